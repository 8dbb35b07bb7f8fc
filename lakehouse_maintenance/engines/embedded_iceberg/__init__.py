"""The embedded engine for Iceberg: pyarrow reads, applies position deletes, and writes; no Java, bounded memory."""
