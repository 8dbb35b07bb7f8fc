"""Moving a batch to quarantine: copy, look, make durable what was copied, and only then delete the sources.

In order, for each batch:
  1. look at every source; one that is not the object that was listed stays;
  2. the caller's recheck: what must stay is not even copied;
  3. the batch's part of the entry names what will be copied, so no copy is ever without a record;
  4. copy inside the store, verified; never over anything;
  5. look at every source again, and recheck again, since copying takes a while: a source that a writer replaced since
     it was copied stays, and its copy goes;
  6. the part names the copies by size, entity tag and time;
  7. the lease is checked, the sources are deleted, each key's fate is learned;
  8. copies whose source stays for good are dropped, and the part says so.
Killed anywhere, each object is at its place, in quarantine, or at both, and the same steps end it.

What remains is the moment between 5 and 7: stores offer no deletion of one version only. Whoever replaces an object
in that moment loses the new one, so moving is for objects that nobody writes to: unowned ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.context import Context
from lakehouse_maintenance.removal.copies import (
    Look,
    Pair,
    Unclear,
    copy_all,
    have_same_bytes,
    is_recorded,
    is_unchanged,
    look,
    not_meant,
)
from lakehouse_maintenance.removal.deleting import Fate
from lakehouse_maintenance.removal.lists import Candidate
from lakehouse_maintenance.removal.quarantine import Entry, Kept, put_part, read_part, record
from lakehouse_maintenance.removal.results import Batch
from lakehouse_maintenance.storage import ObjectInfo
from lakehouse_maintenance.storage.causes import held_by


@dataclass
class _Move:
    """One object on its way. `there`: what lay at the target already; `copy`: the verified copy."""

    candidate: Candidate
    rest: str
    source: ObjectInfo
    target: Location
    there: ObjectInfo | None = None
    copy: ObjectInfo | None = None


def quarantine_batch(
    context: Context, entry: Entry, number: int, candidates: Sequence[Candidate], batch: Batch
) -> list[Kept]:
    """Moves what may be moved; returns what of the batch is in quarantine now, as the part of the entry says."""
    part = _Part(context, entry, number)
    moves = _begun(context, entry, candidates, batch, part)
    moves = _cleared(context, moves, batch, part)
    context.permit.check()
    part.write_planned(moves)
    pairs = [Pair(move.source, move.target, move.there) for move in moves]
    copied: list[_Move] = []
    for move, result in zip(moves, copy_all(context.storage, pairs), strict=True):
        if isinstance(result, Unclear) and (hold := held_by(result.why)) is not None:
            # Archived for years, perhaps: the entry is whole without it, and a later listing finds it again.
            batch.keep(move.candidate.path, f"the store holds it, so it cannot be copied: {hold}")
            part.forget(move)
        elif isinstance(result, Unclear):
            batch.fail(move.candidate.path, f"it could not be copied: {result.why}")
        else:
            move.copy = result
            part.copied(move.rest, result)
            copied.append(move)
    unchanged = _cleared(context, _still_unchanged(context, copied, batch, part), batch, part)
    part.write()
    context.permit.check()
    by_source = {move.source.location: move for move in unchanged}
    for location, told in context.remove_batch(list(by_source)).items():
        move = by_source[location]
        if told.fate is Fate.HELD:
            # The next listing finds it again; the entry must not stay half moved until a hold ends.
            batch.keep(move.candidate.path, f"the store holds it: {told.why}")
            part.drop(move)
        else:
            batch.tell(move.candidate.path, told, move.source.size)
    part.write_without_dropped(batch)
    return part.objects


class _Part:
    """The batch's part of the entry: what was or will be copied. Written before anything depends on it."""

    def __init__(self, context: Context, entry: Entry, number: int) -> None:
        self._context = context
        self._entry = entry
        self._number = number
        found = read_part(context.state, entry, number) if context.resumed else None
        self._written = found
        self.earlier = {kept.rest: kept for kept in found or ()}
        self._rows: dict[str, Kept] = {}
        self._dropped: dict[Location, _Move] = {}

    @property
    def objects(self) -> list[Kept]:
        """As written last."""
        return list(self._rows.values())

    def keep(self, kept: Kept) -> None:
        """An object that is in quarantine already, or may be."""
        self._rows[kept.rest] = kept

    def keep_as_it_was(self, rest: str) -> None:
        """An object that is not looked at: whatever an earlier run recorded still holds."""
        if rest in self.earlier:
            self._rows[rest] = self.earlier[rest]

    def copied(self, rest: str, copy: ObjectInfo) -> None:
        """The copy is there, and verified."""
        self._rows[rest] = record(rest, copy)

    def drop(self, move: _Move) -> None:
        """The source stays, so its copy goes, where it is ours: made now, or by an earlier run.

        A copy that holds something else may be the last of what was moved: the name was used again since.
        """
        earlier = self.earlier.get(move.rest)
        if move.copy is not None or (earlier is not None and self._is_ours(move, earlier)):
            self._rows.setdefault(move.rest, earlier or Kept(move.rest, move.source.size))
            self._dropped[move.target] = move
        elif earlier is not None and earlier.is_copied and move.there is not None:
            self.keep(earlier)

    def forget(self, move: _Move) -> None:
        """Nothing was copied, and nothing will be."""
        self._rows.pop(move.rest, None)

    def _is_ours(self, move: _Move, earlier: Kept) -> bool:
        """Whether what lies at the target is the copy of this source that an earlier run made, or was about to make."""
        if move.there is None or not is_recorded(earlier, move.there):
            return False
        try:
            return have_same_bytes(self._context.storage, move.source, move.there)
        except StorageError:
            return False

    def write_planned(self, moves: Sequence[_Move]) -> None:
        """Before the first copy."""
        for move in moves:
            self._rows[move.rest] = self.earlier.get(move.rest) or Kept(move.rest, move.source.size)
        self.write()

    def write(self) -> None:
        """As known now; nothing is written where nothing changed."""
        if self._written != self.objects:
            put_part(self._context.state, self._entry, self._number, self.objects)
            self._written = self.objects

    def write_without_dropped(self, batch: Batch) -> None:
        """After the sources are deleted: drops the copies whose source stays."""
        if self._dropped:
            for location, told in self._context.remove_batch(list(self._dropped)).items():
                move = self._dropped[location]
                if told.fate in (Fate.DELETED, Fate.GONE):
                    self._rows.pop(move.rest, None)
                else:
                    batch.fail(move.candidate.path, f"it stays, but its copy in quarantine is still there: {told.why}")
        self.write()


def _begun(context: Context, entry: Entry, candidates: Sequence[Candidate], batch: Batch, part: _Part) -> list[_Move]:
    """What is there to be moved, and still is what was meant."""
    sources: dict[Location, tuple[Candidate, str]] = {}
    for candidate in candidates:
        try:
            location = Location.parse(candidate.path)
        except InputError as error:
            batch.keep(candidate.path, f"not a location: {error.message}")
            continue
        rest = entry.rest_of(location)
        if rest is None:
            batch.keep(candidate.path, "outside the folder that is quarantined")
        elif not context.permit.covers(location):
            batch.keep(candidate.path, "outside the places that may be cleaned")
            part.keep_as_it_was(rest)
        else:
            sources[location] = candidate, rest
    targets = {location: entry.aside(Kept(rest, 0)) for location, (_, rest) in sources.items()}
    seen = look(context.storage, list(sources))
    # A fresh entry's folder carries an id that nobody used before.
    there = look(context.storage, list(targets.values())) if context.resumed else {}
    moves: list[_Move] = []
    for location, (candidate, rest) in sources.items():
        source, target = seen[location], there.get(targets[location])
        earlier = part.earlier.get(rest)
        if isinstance(source, Unclear):
            batch.doubt(candidate.path, source.why)
            part.keep_as_it_was(rest)
        elif isinstance(target, Unclear):
            batch.doubt(candidate.path, target.why)
            part.keep_as_it_was(rest)
        elif source is None:
            batch.gone()
            if target is not None and earlier is not None:
                # Moved by the earlier run; where it was killed before it could say so, the copy is the last there is.
                part.keep(earlier if earlier.is_copied else record(rest, target))
        else:
            move = _Move(candidate, rest, source, targets[location], target)
            why = not_meant(candidate, source, context.head.at_ms if context.resumed else None)
            if why is None:
                moves.append(move)
            else:
                batch.keep(candidate.path, why)
                part.drop(move)
    return moves


def _cleared(context: Context, moves: Sequence[_Move], batch: Batch, part: _Part) -> list[_Move]:
    """What the caller's recheck lets go, with facts that are fresh now."""
    if not moves:
        return []
    reasons = context.recheck([move.candidate for move in moves])
    cleared: list[_Move] = []
    for move in moves:
        why = reasons.get(move.candidate.path)
        if why is None:
            cleared.append(move)
        else:
            batch.keep(move.candidate.path, why)
            part.drop(move)
    return cleared


def _still_unchanged(context: Context, moves: Sequence[_Move], batch: Batch, part: _Part) -> list[_Move]:
    seen: dict[Location, Look] = look(context.storage, [move.source.location for move in moves])
    unchanged: list[_Move] = []
    for move in moves:
        now = seen[move.source.location]
        if is_unchanged(move.source, now):
            unchanged.append(move)
        elif isinstance(now, Unclear):
            batch.doubt(move.candidate.path, now.why)
        elif now is None:
            batch.gone()
        else:
            batch.keep(move.candidate.path, "a writer replaced it while it was copied")
            part.drop(move)
    return unchanged
