"""Bringing an entry back, and purging it: both go by the entry's parts, and touch nothing that is not in them.

Restoring passes over the parts twice. First everything is copied back, verified, never over anything; only when all of
it is at its place are the copies in quarantine deleted. So a restore that fails half-way has lost nothing, and can be
done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakehouse_maintenance.model.errors import OccupiedError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.context import Context
from lakehouse_maintenance.removal.copies import (
    Look,
    Pair,
    Unclear,
    copy_all,
    have_same_bytes,
    is_recorded,
    look,
    may_be_the_same,
)
from lakehouse_maintenance.removal.lists import Candidate
from lakehouse_maintenance.removal.quarantine import Entry, EntryKind, EntryState, Kept, read_parts
from lakehouse_maintenance.removal.results import Batch, Removal
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage.scratch import is_unfinished_copy

_COUNTED = 10_000
"""Foreign objects are counted so far; after that it is "more than"."""

_SHOWN = 3


def refuse_occupied(state: State, storage: Storage, entry: Entry) -> None:
    """Raises OccupiedError where something lies at the original place that restoring did not put there.

    A folder's place is free when nothing is at or below it; a file's when nothing has its name, or what has it holds
    the same bytes. Of an entry whose moving never ended, sources may still be in place: each object is compared when
    its turn comes.
    """
    found: list[ObjectInfo] = []
    number = 0
    for info in _lying_there(state, storage, entry):
        number += 1
        if len(found) < _SHOWN:
            found.append(info)
        if number > _COUNTED:
            break
    if not number:
        return
    shown = ", ".join(f"{info.location.text} ({info.size} bytes, {_when(info)})" for info in found)
    count = f"more than {_COUNTED}" if number > _COUNTED else str(number)
    raise OccupiedError(
        f"{entry.path} is occupied again: {count} object{'s' if number > 1 else ''} lie{'s' if number == 1 else ''} "
        f"there, such as {shown}",
        field=entry.id,
        hint="nothing was moved; restoring never overwrites: move away what lies there, then restore again",
    )


def _lying_there(state: State, storage: Storage, entry: Entry) -> Iterator[ObjectInfo]:
    if entry.state == EntryState.MOVING:
        return
    if entry.kind == EntryKind.FOLDER:
        # Half restored, some of it is ours: told apart by name here, and by content when its turn comes.
        ours: set[int] = set()
        if entry.state == EntryState.RESTORING:
            ours = {hash(kept.rest) for part in read_parts(state, entry) for kept in part}
        itself = storage.stat(entry.original)
        if itself is not None:
            yield itself
        for infos in storage.list(entry.original):
            others = [info for info in infos if hash(entry.rest_of(info.location)) not in ours]
            yield from _without_unfinished(storage, others) if ours else others
        return
    for part in read_parts(state, entry):
        seen = look(storage, [entry.at_home(kept) for kept in part])
        for kept in part:
            there = seen[entry.at_home(kept)]
            if isinstance(there, Unclear):
                raise StorageError(
                    f"it cannot be told what lies at {entry.path}: {there.why}", hint="nothing was moved"
                )
            if there is not None and not _is_ours(storage, entry, kept, there):
                yield there


def _is_ours(storage: Storage, entry: Entry, kept: Kept, there: ObjectInfo) -> bool:
    """An object that never left, or came back already: what would be restored is there."""
    if not kept.is_copied:
        return True
    here = storage.stat(entry.aside(kept))
    return there.size == kept.size if here is None else have_same_bytes(storage, here, there)


def remove_unfinished(storage: Storage, folder: Location) -> None:
    """After the run that goes on with what a killed one left: what that one's local copies left half-written.

    Under the lease of the entry's subject nobody else of us copies into the folder. Objects have no such copies.
    """
    if folder.family == "file":
        for infos in storage.list(folder):
            _without_unfinished(storage, infos)


def _without_unfinished(storage: Storage, infos: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Local copies that a kill cut short lie beside their target: they are removed, by the name that tells them."""
    unfinished = [info for info in infos if is_unfinished_copy(info.location)]
    for info in unfinished:
        storage.remove_scratch(info.location)
    return [info for info in infos if info not in unfinished]


def _when(info: ObjectInfo) -> str:
    return "of unknown age" if info.modified is None else info.modified.isoformat(timespec="seconds")


def copy_back(context: Context, entry: Entry, part: Sequence[Kept], batch: Batch) -> None:
    """First pass over a part: afterwards each object is at its original place, or the batch says why not.

    Fates are told for what does not succeed; what does is told by `take_out`.
    """
    aside, home = _look_at_both(context, entry, part)
    pairs: list[Pair] = []
    for kept in part:
        here, there = aside[entry.aside(kept)], home[entry.at_home(kept)]
        path = entry.at_home(kept).text
        if isinstance(here, Unclear):
            batch.doubt(path, here.why)
        elif isinstance(there, Unclear):
            batch.doubt(path, there.why)
        elif here is None:
            _judge_without_copy(kept, there, path, batch)
        elif not kept.is_copied and there is not None:
            continue  # its moving never came to the end: it is where it was
        elif not is_recorded(kept, here):
            batch.fail(path, f"{here.location.text} is not what was moved there")
        elif not (context.permit.covers(here.location) and context.permit.covers(entry.at_home(kept))):
            batch.fail(path, "outside the entry's own places")
        else:
            pairs.append(Pair(here, entry.at_home(kept), there))
    reasons = context.recheck([Candidate(pair.target.text, entry.kind, pair.source.size) for pair in pairs])
    cleared = [pair for pair in pairs if pair.target.text not in reasons]
    for path, why in reasons.items():
        batch.fail(path, why)
    context.permit.check()
    for pair, result in zip(cleared, copy_all(context.storage, cleared), strict=True):
        if isinstance(result, Unclear):
            batch.fail(pair.target.text, f"it could not be copied back: {result.why}")


def _judge_without_copy(kept: Kept, there: ObjectInfo | None, path: str, batch: Batch) -> None:
    if there is not None and there.size == kept.size:
        return  # it was restored before, or never moved
    if there is None and not kept.is_copied:
        return  # it was never moved, and somebody else deleted it
    if there is None:
        batch.fail(path, "it is neither in quarantine nor at its place any more")
    elif kept.is_copied:
        batch.fail(path, "its copy is gone from quarantine, and another object is at its place")


def take_out(context: Context, entry: Entry, part: Sequence[Kept], batch: Batch) -> None:
    """Second pass: deletes the copies of what is at its original place, and of nothing else."""
    aside, home = _look_at_both(context, entry, part)
    restored: dict[Location, Kept] = {}
    for kept in part:
        here, there = aside[entry.aside(kept)], home[entry.at_home(kept)]
        path = entry.at_home(kept).text
        if here is None:
            batch.gone()
        elif isinstance(here, Unclear):
            batch.doubt(path, here.why)
        elif isinstance(there, Unclear):
            batch.doubt(path, there.why)
        elif there is None or not may_be_the_same(context.storage, here, there):
            batch.fail(path, "it is not at its place, so its copy stays in quarantine")
        elif not is_recorded(kept, here) or not (kept.is_copied or have_same_bytes(context.storage, here, there)):
            batch.keep(path, f"{here.location.text} is not what was moved there")
        elif not context.permit.covers(here.location):
            batch.fail(path, "outside the entry's own places")
        else:
            restored[here.location] = kept
    context.permit.check()
    for location, told in context.remove_batch(list(restored)).items():
        kept = restored[location]
        batch.tell(entry.at_home(kept).text, told, kept.size)


def purge_part(context: Context, entry: Entry, part: Sequence[Kept], batch: Batch) -> None:
    """Deletes what the part names, as far as it still is what was moved there."""
    places = {entry.aside(kept): kept for kept in part}
    seen = look(context.storage, list(places))
    found: dict[Location, Kept] = {}
    for location, kept in places.items():
        info = seen[location]
        if info is None:
            batch.gone()
        elif isinstance(info, Unclear):
            batch.doubt(location.text, info.why)
        elif not is_recorded(kept, info):
            batch.keep(location.text, "it is not what was moved there")
        elif not context.permit.covers(location):
            batch.keep(location.text, "outside the entry's own place")
        else:
            found[location] = kept
    reasons = context.recheck([Candidate(location.text, entry.kind, kept.size) for location, kept in found.items()])
    for location in [location for location in found if location.text in reasons]:
        batch.keep(location.text, reasons[location.text])
        del found[location]
    context.permit.check()
    for location, told in context.remove_batch(list(found)).items():
        batch.tell(location.text, told, found[location].size)


def tell_foreign(storage: Storage, entry: Entry, result: Removal) -> None:
    """After nothing of the entry is left in its folder: what still lies there is somebody else's, and is left alone."""
    for infos in storage.list(entry.quarantined):
        others = _without_unfinished(storage, infos)
        result.foreign += len(others)
        result.foreign_paths += [info.location.text for info in others][: _SHOWN - len(result.foreign_paths)]


def _look_at_both(
    context: Context, entry: Entry, part: Sequence[Kept]
) -> tuple[dict[Location, Look], dict[Location, Look]]:
    aside = look(context.storage, [entry.aside(kept) for kept in part])
    return aside, look(context.storage, [entry.at_home(kept) for kept in part])
