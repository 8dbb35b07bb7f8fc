"""What all tables of one run share, and what one action's work leaves for the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.evidence import Evidence
from lakehouse_maintenance.execution.memory import Memory
from lakehouse_maintenance.execution.progress import Progress
from lakehouse_maintenance.iceberg.commit import Committed
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.state import State

if TYPE_CHECKING:
    from lakehouse_maintenance.config.settings import Limits, SharedLocation

ROLLBACK = "rollback"
"""The journal's name for it; no action of plans."""

LEASE_TTL = timedelta(minutes=2)
"""How long a killed run keeps others from its table. A living one renews its lease three times in this time."""

MOST_FILES_NAMED = 2000
"""Files named in one journal event; a count stands for the rest."""


@dataclass(frozen=True, slots=True)
class OrphanSettings:
    """What `lakehouse.yaml` says of orphan files beside the policies."""

    limits: Limits
    shared: tuple[SharedLocation, ...] = ()
    quarantine_prefix: str = "_lakehouse_maintenance_quarantine"


@dataclass(frozen=True, slots=True)
class Run:
    """What all tables of one run share. `shared_locations`: whose files are whose, as `lakehouse.yaml` says it now."""

    run_id: str
    owner: str
    digest: str
    state: State
    memory: Memory
    cache: BlobCache | None
    progress: Progress
    memory_limit: int
    evidence: Evidence
    orphans: OrphanSettings
    shared_locations: Sequence[SharedLocation] = ()


@dataclass
class Work:
    """Numbers of one action as it goes. `announced`: told to the journal before anything was written to it.

    `commits`: in their order; with partial progress there may be several. `verified`: how many of them are verified.
    """

    started: float = field(default_factory=time.monotonic)
    announced: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    snapshot_ids: list[int] = field(default_factory=list)
    attempts: int = 0
    in_flight: bool = False
    """An attempt to commit was made, and nobody has told yet how it ended."""
    commits: list[Committed] = field(default_factory=list)
    verified: int = 0

    @property
    def committed(self) -> Committed | None:
        """The last commit; setting it adds one."""
        return self.commits[-1] if self.commits else None

    @committed.setter
    def committed(self, committed: Committed) -> None:
        self.commits.append(committed)

    def seconds(self) -> float:
        return round(time.monotonic() - self.started, 3)

    def left_files(self) -> bool:
        """Whether anything that was written, or may have been, is no part of what was committed."""
        if not self.commits:
            return bool(self.announced)
        ours = {path for committed in self.commits for path in (*committed.added_files, *committed.files)}
        return not {*self.written} <= ours


class Blocked(Exception):
    """Somebody else's word keeps us from the table now."""


def named_files(paths: Sequence[str]) -> dict[str, Any]:
    """How many files, and the first of them by name."""
    return {"files": len(paths), "paths": list(paths[:MOST_FILES_NAMED])}
