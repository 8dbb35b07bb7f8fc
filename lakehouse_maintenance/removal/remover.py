"""Runs a removal: recheck, act, learn the fate of every key, journal (see the package's text for the order)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.model.errors import InputError, StorageError, TableError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.clearing import cleared, still_meant
from lakehouse_maintenance.removal.context import Context
from lakehouse_maintenance.removal.copies import is_recorded, look
from lakehouse_maintenance.removal.deleting import Fate, Told, delete_batch
from lakehouse_maintenance.removal.emptied import remove_emptied_entry
from lakehouse_maintenance.removal.lists import (
    Candidate,
    Operation,
    RemovalList,
    close_list,
    open_lists,
    read_list,
    write_list,
)
from lakehouse_maintenance.removal.moving import quarantine_batch
from lakehouse_maintenance.removal.permit import Permit
from lakehouse_maintenance.removal.quarantine import (
    Entry,
    EntryKind,
    EntryState,
    count_objects,
    put_entry,
    put_part,
    read_entry,
    read_parts,
    settle,
    whole,
)
from lakehouse_maintenance.removal.restoring import (
    copy_back,
    purge_part,
    refuse_occupied,
    remove_unfinished,
    take_out,
    tell_foreign,
)
from lakehouse_maintenance.removal.results import BATCH, MOVED, Batch, Recheck, Removal
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import ObjectInfo, Storage

__all__ = ["BATCH", "REMOVE_FILES", "Recheck", "Removal", "Remover"]

REMOVE_FILES = "remove_files"
"""The action of a removal's own journal events: an intent for the list, an outcome for each batch."""

_MAY = {
    Operation.RESTORE: (EntryState.MOVING, EntryState.QUARANTINED, EntryState.RESTORING),
    Operation.PURGE: (EntryState.QUARANTINED, EntryState.PURGING),
}
"""What state an entry may be in for an operation to begin, or to go on. Half restored, nothing of it is purged: its
copies may be the only ones. Half purged, it cannot come back whole."""

_DONE = {Operation.RESTORE: "restored", Operation.PURGE: "purged"}

_HINTS = {
    (Operation.PURGE, EntryState.RESTORING): "restore it again, which goes on where it ended",
    (Operation.PURGE, EntryState.MOVING): "the next run of what moved it goes on; or restore what was moved so far",
    (Operation.RESTORE, EntryState.PURGING): "a part of it is deleted already; purge it again to end that",
}


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes files of one table or database. `progress`: files and bytes done since the last call. `concurrency`:
    deleting calls in flight; None: as many as the deleting module takes for good."""

    state: State
    storage: Storage
    progress: Callable[[int, int], None]
    concurrency: int | None = None

    def intend(
        self,
        permit: Permit,
        candidates: Iterable[Candidate],
        at_ms: int,
        *,
        operation: Operation = Operation.DELETE,
        entry: Entry | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> RemovalList:
        """Writes the list, then the intent. Nothing is touched; after this a killed run will be finished.

        `entry`: for QUARANTINE a new one, which is filled; for RESTORE and PURGE the one that is meant, whose parts
        take the place of `candidates`. Raises TableError (OccupiedError where its place is taken) for an entry that
        cannot be restored or purged now, StorageError for one that is damaged: then nothing was written either.
        """
        permit.check()
        if (entry is None) is not (operation is Operation.DELETE):
            raise ValueError(f"{operation} {'needs an' if entry is None else 'takes no'} entry")
        if entry is not None and operation is not Operation.QUARANTINE:
            entry, candidates = self._ready(read_entry(self.state, entry.id), operation), ()
        head = write_list(
            self.state,
            table=permit.table,
            run_id=permit.run_id,
            action=permit.action,
            digest=permit.digest,
            at_ms=at_ms,
            candidates=candidates,
            uuid=permit.uuid,
            operation=operation,
            entry=None if entry is None else entry.id,
            evidence=evidence,
        )
        files, size = head.files, head.bytes
        if entry is not None and operation is Operation.QUARANTINE:
            put_entry(
                self.state,
                replace(
                    entry,
                    parts=-(-head.files // BATCH),
                    run_id=permit.run_id,
                    action=permit.action,
                    digest=permit.digest,
                ),
            )
        elif entry is not None:
            files, size = entry.objects, entry.bytes
        self._journal(permit, "intent", None, files, size, _about(permit, head))
        return head

    def remove(
        self,
        permit: Permit,
        head: RemovalList,
        recheck: Recheck,
        *,
        resumed: bool = False,
        into: Removal | None = None,
    ) -> Removal:
        """Does with what the list names, and the recheck clears, what the list says. `resumed`: of an earlier run.

        The recheck is asked about the paths that would go, or for RESTORE would come back.
        Raises LeaseLostError, OccupiedError and what the recheck raises; the list stays open then, and nothing more is
        touched.
        """
        result = Removal() if into is None else into
        if head.uuid != permit.uuid:
            result.kept["the list is of another table, which had this name"] += head.files
            self._end_moving(head)
            close_list(self.state, head, result.as_json())
            return result
        context = Context(self.state, self.storage, permit, head, recheck, self._remove_batch, resumed)
        if head.operation == Operation.DELETE:
            self._delete(context, result)
        elif head.operation == Operation.QUARANTINE:
            self._quarantine(context, result)
        elif head.operation == Operation.RESTORE:
            self._restore(context, result)
        elif head.operation == Operation.PURGE:
            self._purge(context, result)
        else:
            raise StorageError(f"the removal list {head.key} asks for {head.operation!r}, which is not known here")
        return result

    def end(self, head: RemovalList, why: str, result: Removal | None = None) -> None:
        """Closes a list that nobody will work off; what was moved until now is all there will be in its entry."""
        self._end_moving(head)
        self._abandon(head, why, Removal() if result is None else result)

    def _delete(self, context: Context, result: Removal) -> None:
        for number, candidates in enumerate(self._batches(context.head)):
            batch = Batch(result, len(candidates))
            meant = still_meant(context, candidates, batch)
            # The recheck comes last before the deletion: looking at a thousand files takes a while.
            going = cleared(context, meant, batch)
            context.permit.check()
            for location, told in self._remove_batch(list(going)).items():
                candidate = going[location]
                if told.fate is Fate.HELD:
                    # A lock or an archive may last for years: the list ends all the same, and a later search for
                    # orphan files meets the file again.
                    batch.keep(candidate.path, f"the store holds it: {told.why}")
                else:
                    batch.tell(candidate.path, told, candidate.size or 0)
                    result.kinds[candidate.kind] += told.fate is Fate.DELETED
            self._told(context, batch, sum(candidate.size or 0 for candidate in candidates), number)
        if result.is_complete:
            close_list(self.state, context.head, result.as_json())

    def _quarantine(self, context: Context, result: Removal) -> None:
        try:
            entry = read_entry(self.state, context.head.entry or "")
        except InputError:
            # The entry is written before anything is copied.
            self._abandon(context.head, "the run ended before anything was moved", result)
            return
        if entry.state != EntryState.MOVING:
            self._abandon(context.head, f"what it moved is {entry.state}", result)
            return
        objects = size = 0
        for number, candidates in enumerate(self._batches(context.head)):
            batch = Batch(result, len(candidates), MOVED)
            part = quarantine_batch(context, entry, number, candidates, batch)
            objects += len(part)
            size += sum(kept.size for kept in part)
            if objects > entry.objects:
                entry = replace(entry, objects=objects, bytes=size)
                put_entry(self.state, entry)
            self._told(context, batch, sum(candidate.size or 0 for candidate in candidates), number)
        if result.is_complete:
            if result.kept:
                # What stayed is in its place rightly: restoring may find it there.
                entry = replace(entry, kind=EntryKind.FILES)
            if context.resumed:
                remove_unfinished(self.storage, entry.quarantined)
            put_entry(self.state, whole(settle(self.state, entry), datetime.now(UTC)))
            close_list(self.state, context.head, result.as_json())

    def _end_moving(self, head: RemovalList) -> None:
        """What was moved until now is all there will be: it can be restored and purged."""
        if head.operation != Operation.QUARANTINE:
            return
        try:
            entry = read_entry(self.state, head.entry or "")
        except InputError:
            return  # nothing was moved
        if entry.state == EntryState.MOVING:
            entry = replace(settle(self.state, entry), kind=EntryKind.FILES)
            put_entry(self.state, whole(entry, datetime.now(UTC)))

    def _restore(self, context: Context, result: Removal) -> None:
        entry = read_entry(self.state, context.head.entry or "")
        if entry.state not in _MAY[Operation.RESTORE]:
            self._abandon(context.head, f"what it was to restore is {entry.state}", result)
            return
        if context.resumed:
            refuse_occupied(self.state, self.storage, entry)
        if entry.state != EntryState.RESTORING:
            entry = self._begin(context.head, entry, EntryState.RESTORING)
        for part in read_parts(self.state, entry):
            batch = Batch(result, 0, MOVED)
            copy_back(context, entry, part, batch)
            if not batch.is_complete:
                self._told(context, batch, 0)
        if not result.is_complete:
            return
        for number, part in enumerate(read_parts(self.state, entry)):
            batch = Batch(result, len(part), MOVED)
            take_out(context, entry, part, batch)
            self._told(context, batch, sum(kept.size for kept in part), number)
        if context.resumed:
            remove_unfinished(self.storage, entry.original)
        self._finish(context, entry, EntryState.RESTORED, result)

    def _purge(self, context: Context, result: Removal) -> None:
        entry = read_entry(self.state, context.head.entry or "")
        if entry.state not in _MAY[Operation.PURGE]:
            self._abandon(context.head, f"what it was to purge is {entry.state}", result)
            return
        if entry.state != EntryState.PURGING:
            entry = self._begin(context.head, entry, EntryState.PURGING)
        for number, part in enumerate(read_parts(self.state, entry)):
            batch = Batch(result, len(part))
            purge_part(context, entry, part, batch)
            self._told(context, batch, sum(kept.size for kept in part), number)
        if result.kept and result.is_complete:
            # Asked for again, it is tried again; until then nobody has to finish it.
            self._keep_what_is_left(entry)
            close_list(self.state, context.head, result.as_json())
            return
        self._finish(context, entry, EntryState.PURGED, result)

    def _keep_what_is_left(self, entry: Entry) -> None:
        """Where somebody needs it by now, it has to be restored: the entry is quarantined again, with that alone.

        The list of the purge is open meanwhile: killed amid this, the next run purges, and looks what is left, again.
        """
        objects = size = 0
        is_ours = False
        for number, part in enumerate(read_parts(self.state, entry)):
            seen = look(self.storage, [entry.aside(kept) for kept in part])
            left = [kept for kept in part if seen[entry.aside(kept)] is not None]
            is_ours |= any(
                isinstance(found := seen[entry.aside(k)], ObjectInfo) and is_recorded(k, found) for k in left
            )
            if left != part:
                put_part(self.state, entry, number, left)
            objects += len(left)
            size += sum(kept.size for kept in left)
        state = EntryState.QUARANTINED if is_ours else entry.state
        put_entry(self.state, replace(entry, state=state, objects=objects, bytes=size))

    def _ready(self, entry: Entry, operation: Operation) -> Entry:
        """The entry, read to the last part. Raises unless the operation may begin, or go on."""
        if entry.state not in _MAY[operation]:
            raise TableError(
                f"the quarantine entry {entry.id} is {entry.state}: it cannot be {_DONE[operation]}",
                field=entry.id,
                hint=_HINTS.get((operation, EntryState(entry.state)), "see: lakehouse-maintenance quarantine list"),
            )
        objects, size = count_objects(self.state, entry)
        if operation is Operation.RESTORE:
            refuse_occupied(self.state, self.storage, entry)
        return replace(entry, objects=objects, bytes=size)

    def _begin(self, head: RemovalList, entry: Entry, state: EntryState) -> Entry:
        """From here on the entry cannot be used otherwise, and nothing more is moved into it."""
        begun = replace(settle(self.state, entry), state=state)
        put_entry(self.state, begun)
        for other in open_lists(self.state, head.table):
            if other.entry == entry.id and other.operation == Operation.QUARANTINE:
                self._abandon(other, f"what it moved is {state}", Removal())
        return begun

    def _finish(self, context: Context, entry: Entry, state: EntryState, result: Removal) -> None:
        if not result.is_complete:
            return
        tell_foreign(self.storage, entry, result)
        remove_emptied_entry(context.permit, entry)
        put_entry(self.state, replace(entry, state=state))
        close_list(self.state, context.head, result.as_json())

    def _abandon(self, head: RemovalList, why: str, result: Removal) -> None:
        close_list(self.state, head, {**result.as_json(), "abandoned": why})

    def _batches(self, head: RemovalList) -> Iterator[Sequence[Candidate]]:
        for part in read_list(self.state, head):
            for start in range(0, len(part), BATCH):
                yield part[start : start + BATCH]

    def _remove_batch(self, locations: Sequence[Location]) -> Mapping[Location, Told]:
        if not locations:
            return {}
        if self.concurrency is None:
            return delete_batch(self.storage, locations)
        return delete_batch(self.storage, locations, concurrency=self.concurrency)

    def _told(self, context: Context, batch: Batch, size: int, number: int | None = None) -> None:
        """After each batch: how far it is, and the journal's outcome. `number`: of the batch in its list, from 0."""
        self.progress(batch.tried, size)
        self._journal(
            context.permit,
            "outcome",
            "done" if batch.is_complete else "failed",
            batch.fates[batch.done],
            batch.bytes,
            {
                **_about(context.permit, context.head),
                "batch": number,
                "fates": dict(batch.fates),
                "not_done": batch.not_done,
            },
        )

    def _journal(
        self, permit: Permit, phase: str, status: str | None, files: int, size: int, details: dict[str, Any]
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.state.journal.record(
            Event(
                at=now,
                run_id=permit.run_id,
                table=permit.table,
                action=REMOVE_FILES,
                phase=phase,
                status=status,
                digest=permit.digest,
                files=files,
                bytes=size,
                details=details,
            )
        )


def _about(permit: Permit, head: RemovalList) -> dict[str, Any]:
    about = {"for": permit.action, "removal_list": head.key, "operation": head.operation}
    return about if head.entry is None else {**about, "entry": head.entry}
