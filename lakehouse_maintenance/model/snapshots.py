"""Facts about a table's snapshots and refs, as expiry needs them (Iceberg spec: Snapshots, Snapshot References)."""

from __future__ import annotations

from dataclasses import dataclass

MAIN_BRANCH = "main"


@dataclass(frozen=True, slots=True)
class SnapshotFact:
    """One snapshot of `metadata.json`. `timestamp_ms`: milliseconds since 1970. `parent_id`: None for the first."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RefFact:
    """A branch or a tag. The retention values are the ref's own; None where the table's rules count.

    `kind`: `branch` or `tag`. In a v1 table without refs, the current snapshot is the branch `main`.
    """

    name: str
    kind: str
    snapshot_id: int
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None

    @property
    def is_branch(self) -> bool:
        """Branches keep ancestors of their head; a tag keeps its snapshot alone."""
        return self.kind == "branch"
