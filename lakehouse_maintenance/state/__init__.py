"""What we remember between runs: journal, leases, reviews, values, a disposable cache.

It lies in a folder, on object storage or in PostgreSQL.
"""

from __future__ import annotations

from lakehouse_maintenance.state.cache import ManifestCache, SqliteBlobCache
from lakehouse_maintenance.state.copying import copy_state
from lakehouse_maintenance.state.journal import Journal
from lakehouse_maintenance.state.leases import Lease, LeaseInfo, Leases
from lakehouse_maintenance.state.opening import State, open_configured, open_state
from lakehouse_maintenance.state.reviews import Reviews
from lakehouse_maintenance.state.store import KeyValueStore

__all__ = [
    "Journal",
    "KeyValueStore",
    "Lease",
    "LeaseInfo",
    "Leases",
    "ManifestCache",
    "Reviews",
    "SqliteBlobCache",
    "State",
    "copy_state",
    "open_configured",
    "open_state",
]
