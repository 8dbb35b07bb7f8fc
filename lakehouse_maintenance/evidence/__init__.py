"""Who owns a path: the union of references over every table that could reach it, spilled and streamed.

For each path the answer is *owned* (by whom, how), *unowned*, or *unknown* (why). Uncertainty keeps the file.
"""

from __future__ import annotations

from lakehouse_maintenance.evidence.claims import ClaimIndex, claims_of
from lakehouse_maintenance.evidence.delta_owners import DeltaPlaces
from lakehouse_maintenance.evidence.evidence import Evidence, StillUnowned, ask, index_references, unknown_zones
from lakehouse_maintenance.evidence.iceberg_owners import folders_of
from lakehouse_maintenance.evidence.index import ReferenceIndex, Spelling
from lakehouse_maintenance.evidence.markers import Markers, Zone
from lakehouse_maintenance.evidence.owners import Gap, Look, Owner, Unread
from lakehouse_maintenance.evidence.spool import Spool
from lakehouse_maintenance.storage.base import Row

__all__ = [
    "ClaimIndex",
    "DeltaPlaces",
    "Evidence",
    "Gap",
    "Look",
    "Markers",
    "Owner",
    "ReferenceIndex",
    "Row",
    "Spelling",
    "Spool",
    "StillUnowned",
    "Unread",
    "Zone",
    "ask",
    "claims_of",
    "folders_of",
    "index_references",
    "unknown_zones",
]
