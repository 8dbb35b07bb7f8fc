"""`explain PATH`: the evidence on a path now, and what the journal tells of it from before (RS-10, UF-47)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakehouse_maintenance.evidence.ownership import Meant
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.explanations import PastDecision
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.reviews import UNTRACKED_FOLDERS
from lakehouse_maintenance.removal import Entry, Operation, RemovalList, all_lists, read_entry, read_list
from lakehouse_maintenance.removal.deleting import Fate
from lakehouse_maintenance.removal.quarantine import Kept, read_parts
from lakehouse_maintenance.removal.remover import BATCH
from lakehouse_maintenance.removal.results import MOVED
from lakehouse_maintenance.state import State

_MOST = 100
"""Decisions told about one path; of a folder they can be very many."""


def past_decisions(state: State, path: str) -> list[PastDecision]:
    """Every list that named the path, or something in it: its intent, and what became of it; and what reviewers last
    said of its folder. Oldest first.

    Reads all removal lists and reviews of the state. Raises StorageError where one cannot be read.
    """
    meant = Meant(path)
    found = list(_reviewed(state, Location.parse(path)))
    for head in all_lists(state):
        place = _place(state, head, meant)
        if place is not None:
            found += _of_list(state, head, *place)
    return sorted(found, key=lambda decision: decision.at)[-_MOST:]


def _reviewed(state: State, location: Location) -> Iterator[PastDecision]:
    """The last word on each reviewed folder that is the path, holds it or lies in it."""
    for review in state.reviews.all():
        plan = review.plan
        meant = {folder.path: folder for folder in plan.folders if Location.parse(folder.path).overlaps(location)}
        for word in review.decisions:
            folder = meant.get(word.path)
            if folder is None:
                continue
            ends = "" if word.until is None else f", until {word.until.isoformat(timespec='seconds')}"
            yield PastDecision(
                at=word.at.isoformat(),
                run_id=plan.run_id,
                table=plan.subject,
                action=UNTRACKED_FOLDERS,
                phase="outcome",
                status="done",
                digest=plan.digest,
                path=word.path,
                fate="approved for removal" if word.is_approved else "rejected for removal",
                why=f"by {word.by}{ends}",
                evidence={
                    "objects": folder.objects,
                    "bytes": folder.bytes,
                    "newest_ms": folder.newest_ms,
                    "why": folder.why,
                },
            )


def _place(state: State, head: RemovalList, meant: Meant) -> tuple[str, int] | None:
    """The first path of the list that is meant, as the list's events name it, and the number of its batch."""
    if head.operation in (Operation.RESTORE, Operation.PURGE):
        return _place_in_entry(state, head, meant)
    entry = None if head.operation == Operation.DELETE else _entry(state, head)
    batches = 0
    for part in read_list(state, head):
        for index, candidate in enumerate(part):
            if meant(candidate.path) or (entry is not None and meant(_moved(entry, candidate.path))):
                return candidate.path, batches + index // BATCH
        batches += -(-len(part) // BATCH)
    return None


def _place_in_entry(state: State, head: RemovalList, meant: Meant) -> tuple[str, int] | None:
    """Such a list names nothing itself: what it is about stands in the entry. Either path of an object may be meant."""
    entry = _entry(state, head)
    if entry is None:
        return None
    for number, part in enumerate(read_parts(state, entry)):
        for kept in part:
            home, aside = entry.at_home(kept).text, entry.aside(kept).text
            if meant(home) or meant(aside):
                return (home if head.operation == Operation.RESTORE else aside), number
    return None


def _entry(state: State, head: RemovalList) -> Entry | None:
    """None where the run was killed before it wrote the entry; then it moved nothing."""
    try:
        return read_entry(state, head.entry or "")
    except InputError:
        return None


def _moved(entry: Entry, path: str) -> str:
    try:
        rest = entry.rest_of(Location.parse(path))
    except InputError:
        rest = None
    return path if rest is None else entry.aside(Kept(rest, 0)).text


def _of_list(state: State, head: RemovalList, path: str, batch: int) -> Iterator[PastDecision]:
    for event in state.journal.events(table=head.table):
        if event.details.get("removal_list") != head.key:
            continue
        named = event.details.get("not_done", {})
        if event.phase == "intent":
            yield _decision(event, path, evidence=dict(head.evidence))
        elif path in named:
            # Written as "<fate>: <why>".
            fate, _, why = str(named[path]).partition(": ")
            yield _decision(event, path, fate=fate, why=why)
        elif event.details.get("batch") == batch:
            yield _of_batch(event, path, head.operation)
        elif event.details.get("recovered"):
            yield _decision(event, path, why=event.details.get("why"))


def _of_batch(event: Event, path: str, operation: str) -> PastDecision:
    """A path that the batch's outcome does not name went the batch's way, as far as its counts let that be told."""
    done = _DONE.get(operation, operation)
    fates: dict[str, int] = event.details.get("fates", {})
    gone = fates.get(Fate.GONE, 0)
    others = sum(fates.values()) - fates.get(Fate.DELETED, 0) - fates.get(MOVED, 0) - gone
    unnamed = others - len(event.details.get("not_done", {}))
    if unnamed > 0:
        return _decision(event, path, why=f"{done}, or one of {unnamed} files of its batch that stayed unnamed")
    if gone:
        return _decision(event, path, fate=done, why=f"or gone before, as {gone} files of its batch were")
    return _decision(event, path, fate=done)


_DONE = {"delete": "deleted", "quarantine": "moved into quarantine", "restore": "restored", "purge": "purged"}


def _decision(
    event: Event,
    path: str,
    *,
    fate: str | None = None,
    why: str | None = None,
    evidence: dict[str, Any] | None = None,
) -> PastDecision:
    return PastDecision(
        at=event.at,
        run_id=event.run_id,
        table=event.table,
        action=str(event.details.get("for", event.action)),
        phase=event.phase,
        status=event.status,
        digest=event.digest,
        path=path,
        fate=fate,
        why=why,
        evidence=evidence or {},
    )
