"""The health of one table (IM-14, IM-21); `docs/health.md` tells what each number means to a person."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from lakehouse_maintenance.model.advice import Advice

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
    `reclaimable_bytes` what only they reach. With `error` set the numbers mean nothing. None: not known.
    Percentages are whole numbers, rounded down; `deleted_rows_percent` is of the rows before deletes.

    `manifests_after`: about how many manifests `rewrite_manifests` would leave.
    `opened_manifests_…`, `opened_files_…`: what a query on one partition opens, in the median and the worst partition;
    `…_after`: about what `rewrite_manifests`, and compaction, would leave of them. A manifest is opened where its
    partition range covers the partition; the files are the partition's data and delete files.
    `partition_skew_percent`: files of the largest partition by those of the median one; 100 where all are alike.
    `overlapping_files`: data files whose key range overlaps that of more than three others of their partition;
    `overlap_depth_percent`: how many files of a partition hold a key, on average over the files' ranges (100: one).
    Both None where no sort order is in force (planning.overlap defines them).
    `prunable_metadata_files`: previous versions of the metadata beyond those that the policy keeps, as far as it lets
    them be pruned. `properties_to_set`: table properties that the policy wants to be set, and that are not.
    `orphan_files`, `orphan_bytes`: as last counted, at `orphans_counted_ms`.
    `last_maintenance`: action → when it last ran, by our memory and the table's own snapshots.
    Times are milliseconds since 1970. `features`: what data work here cannot keep (encryption, variant, …).
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
    prunable_metadata_files: int = 0
    properties_to_set: int = 0
    partitions: int = 0
    largest_partition_files: int = 0
    median_partition_files: int = 0
    partition_skew_percent: int = 0
    small_files_percent: int = 0
    deleted_rows_percent: int = 0
    delete_bytes: int = 0
    delete_manifests: int = 0
    manifests_after: int = 0
    opened_manifests_median: int = 0
    opened_manifests_worst: int = 0
    opened_manifests_median_after: int = 0
    opened_manifests_worst_after: int = 0
    opened_files_median: int = 0
    opened_files_worst: int = 0
    opened_files_median_after: int = 0
    opened_files_worst_after: int = 0
    overlapping_files: int | None = None
    overlap_depth_percent: int | None = None
    orphan_files: int | None = None
    orphan_bytes: int | None = None
    orphans_counted_ms: int | None = None
    measured_at_ms: int | None = None
    histogram: dict[str, int] = field(default_factory=dict)
    reclaimable_bytes: int = 0
    score: int = 100
    due: tuple[Due, ...] = ()
    advice: tuple[Advice, ...] = ()
    features: tuple[str, ...] = ()
    last_maintenance: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The table's object in the `health` verb's result."""
        return asdict(self)
