"""The read side of catalogs: databases, tables of every kind, pointers, properties. Nothing here writes."""

from __future__ import annotations

from lakehouse_maintenance.catalogs.asking import ask_each
from lakehouse_maintenance.catalogs.catalog import Catalog, CatalogEntry, TableKind
from lakehouse_maintenance.catalogs.databases import DatabaseStorage, database_storage, database_storages
from lakehouse_maintenance.catalogs.discovery import discover
from lakehouse_maintenance.catalogs.opening import known_properties, open_catalog

__all__ = [
    "Catalog",
    "CatalogEntry",
    "DatabaseStorage",
    "TableKind",
    "ask_each",
    "database_storage",
    "database_storages",
    "discover",
    "known_properties",
    "open_catalog",
]
