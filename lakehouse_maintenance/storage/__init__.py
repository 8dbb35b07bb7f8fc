"""Clients and credentials from a catalog's properties; list, stat, read. Bounded in memory and in concurrency."""

from __future__ import annotations

from lakehouse_maintenance.storage.base import ObjectInfo
from lakehouse_maintenance.storage.storage import Storage

__all__ = ["ObjectInfo", "Storage"]
