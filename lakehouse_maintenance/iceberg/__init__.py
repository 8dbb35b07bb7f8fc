"""Iceberg tables: reading metadata and manifests, measuring, writing manifests, and the one module that commits."""
