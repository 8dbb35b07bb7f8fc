"""What a run told the journal before it did it: the files it wrote, and its attempts to commit them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse_maintenance.iceberg.commit import Base
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.events import Event

WRITING = "writing"
"""Key of an intent's details: paths that are announced before anything is written to them."""

BASE = "base"
"""Key of an attempt's details: what it was staged from."""

GROUPS_LEFT = "groups_left"
"""Key of an attempt's details: groups that were to be committed after it (partial progress)."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request to the catalog. `base`: None where its run did not tell. `groups_left`: to be committed after it."""

    snapshot_id: int
    base: Base | None
    groups_left: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """One action of one run on one table. `uuid`: of the table that the files were written for."""

    run_id: str
    action: str
    uuid: str | None
    paths: tuple[str, ...]
    attempts: tuple[Attempt, ...]

    def visible(self, metadata: Metadata) -> tuple[Attempt, ...]:
        """Attempts of this action whose snapshots are in the table; with partial progress there may be several."""
        return tuple(attempt for attempt in self.attempts if attempt.snapshot_id in metadata.snapshots)

    def may_appear(self, metadata: Metadata) -> str | None:
        """Why one of the attempts could still become visible; None where none can."""
        return next(filter(None, (may_appear(attempt, metadata) for attempt in self.attempts)), None)


def trace(events: Iterable[Event], run_id: str, action: str) -> Trace:
    """From the run's events on one table, oldest first."""
    intents = [e for e in events if e.run_id == run_id and e.action == action and e.phase == "intent"]
    paths = dict.fromkeys(str(path) for event in intents for path in event.details.get(WRITING, ()))
    uuids = [str(event.details["uuid"]) for event in intents if WRITING in event.details]
    attempts = [
        Attempt(int(event.details["snapshot_id"]), _base(event), int(event.details.get(GROUPS_LEFT, 0)))
        for event in intents
        if "snapshot_id" in event.details
    ]
    return Trace(run_id, action, uuids[-1] if uuids else None, tuple(paths), tuple(attempts))


def ending(visible: Sequence[Attempt], attempts: int) -> tuple[Status, str, list[int]]:
    """How an action ended by its attempts whose snapshots are in the table, oldest first, and the number of all:
    status, why, and those snapshots."""
    if not visible:
        why = "none of the run's snapshots is in the table" if attempts else "the run ended before it tried to commit"
        return Status.FAILED, why, []
    ids = [attempt.snapshot_id for attempt in visible]
    why = f"snapshot {ids[0]} of this run is in the table"
    if len(ids) > 1:
        why = f"snapshots {', '.join(map(str, ids))} of this run are in the table"
    left = visible[-1].groups_left
    if left:
        return Status.FAILED, f"{why}; {left} groups that were to be committed after it are not done", ids
    return Status.DONE, why, ids


def may_appear(attempt: Attempt, metadata: Metadata) -> str | None:
    """Why a request that nobody answered could still be carried out; None where it cannot be.

    Each requires its branch to stand at its base. It is void for good once the branch stands elsewhere and cannot come
    back: since the base is gone from the table, or since the table's sequence number has grown past the one that the
    attempt would take, which catalogs refuse wherever the branch stands. A branch alone may come back (rollback).
    """
    base = attempt.base
    if attempt.snapshot_id in metadata.snapshots:
        return None  # it has appeared; what it holds is the table's
    if base is None:
        return "a commit was tried, and what it started from is not known"
    if base.snapshot_id not in metadata.snapshots:
        return None
    head = metadata.head(base.branch)
    if head is not None and head.snapshot_id == base.snapshot_id:
        return f"branch {base.branch} stands where the commit started from, so its request could still arrive"
    if metadata.last_sequence_number <= base.sequence_number:
        return f"branch {base.branch} could come back to where the commit started from, and its request arrive then"
    return None


def _base(event: Event) -> Base | None:
    told = event.details.get(BASE)
    if not isinstance(told, dict):
        return None
    return Base(str(told["uuid"]), str(told["branch"]), int(told["snapshot_id"]), int(told["sequence_number"]))
