"""What a table's metadata refers to (Iceberg spec: Table Metadata, Snapshots, Manifest Lists, Table Statistics)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReferenceKind(StrEnum):
    """Through what a file is reached."""

    DATA = "data"
    POSITION_DELETES = "position_deletes"
    EQUALITY_DELETES = "equality_deletes"
    DELETION_VECTOR = "deletion_vector"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest_list"
    METADATA = "metadata"
    STATISTICS = "statistics"
    PARTITION_STATISTICS = "partition_statistics"
    VERSION_HINT = "version_hint"


@dataclass(frozen=True, slots=True)
class Reference:
    """One file that metadata names. `size` in bytes, where metadata tells it."""

    kind: ReferenceKind
    path: str
    size: int | None = None
