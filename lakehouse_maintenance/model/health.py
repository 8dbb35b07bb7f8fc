"""The health of one table (IM-14)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SIZE_BUCKETS: tuple[tuple[str, int], ...] = (
    ("<1MB", 1 << 20),
    ("<8MB", 8 << 20),
    ("<32MB", 32 << 20),
    ("<128MB", 128 << 20),
    ("<512MB", 512 << 20),
    (">=512MB", 1 << 63),
)
"""File-size histogram: label and exclusive upper bound in bytes."""


@dataclass(frozen=True, slots=True)
class Due:
    """An action that a trigger makes due, and the numbers that crossed it."""

    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Counts are of the current snapshot unless they say otherwise; sizes in bytes; `score` 0 (sick) to 100.

    `snapshots`, `refs`, `metadata_files` are of the table; `expired_snapshots` those that the policy would let go;
    `reclaimable_bytes` what only they reach. With `error` set the numbers mean nothing.
    """

    table: str
    format: str = "iceberg"
    format_version: int | None = None
    snapshot_id: int | None = None
    records: int = 0
    data_files: int = 0
    data_bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    deletion_vectors: int = 0
    deleted_rows: int = 0
    dangling_delete_files: int = 0
    snapshots: int = 0
    expired_snapshots: int = 0
    oldest_snapshot_ms: int | None = None
    newest_snapshot_ms: int | None = None
    refs: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    metadata_files: int = 0
    metadata_bytes: int | None = None
    partitions: int = 0
    largest_partition_files: int = 0
    histogram: dict[str, int] = field(default_factory=dict)
    reclaimable_bytes: int = 0
    score: int = 100
    due: tuple[Due, ...] = ()
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The table's object in the `health` verb's result."""
        return asdict(self)
