"""Clients and credentials from a catalog's properties; list, stat, read, copy. Bounded in memory and in concurrency."""

from __future__ import annotations

from lakehouse_maintenance.storage.base import ObjectInfo, is_folder_marker
from lakehouse_maintenance.storage.storage import Storage

__all__ = ["ObjectInfo", "Storage", "is_folder_marker"]
