"""Engines do the data work: reading data files, applying deletes, writing new files. They commit nothing."""
