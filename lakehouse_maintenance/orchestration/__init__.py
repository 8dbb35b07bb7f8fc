"""Dagster: partitions, resources, assets, checks and jobs. A thin layer over `Lakehouse`; loading it reads no table."""
