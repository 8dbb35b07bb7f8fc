"""What all tables of one run share, and what one action's work leaves for the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.execution.memory import Memory
from lakehouse_maintenance.execution.progress import Progress
from lakehouse_maintenance.iceberg.commit import Committed
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_FILES_NAMED = 2000
"""Files named in one journal event; a count stands for the rest."""


@dataclass(frozen=True, slots=True)
class Run:
    """What all tables of one run share. `neighbours`: see territory.refuse_neighbours."""

    run_id: str
    owner: str
    digest: str
    state: State
    memory: Memory
    cache: BlobCache | None
    progress: Progress
    memory_limit: int
    neighbours: Callable[[TableName, Metadata], str | None] = lambda name, metadata: None


@dataclass
class Work:
    """Numbers of one rewrite as it goes."""

    started: float = field(default_factory=time.monotonic)
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    snapshot_ids: list[int] = field(default_factory=list)
    groups_dropped: int = 0
    attempts: int = 0
    in_flight: bool = False
    """An attempt to commit was made, and nobody has told yet how it ended."""
    committed: Committed | None = None

    def seconds(self) -> float:
        return round(time.monotonic() - self.started, 3)


class Blocked(Exception):
    """Somebody else's word keeps us from the table now."""


def named_files(paths: Sequence[str]) -> dict[str, Any]:
    """How many files, and the first of them by name."""
    return {"files": len(paths), "paths": list(paths[:MOST_FILES_NAMED])}
