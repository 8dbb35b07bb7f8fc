"""Quarantine as people use it: what lies there, bring it back, purge it; and how what a killed run began is ended.

Each entry is handled under the lease of its subject, the table or database that it was taken from, so nothing else of
us works there meanwhile. An operation that a killed run began is taken up where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.making import describe
from lakehouse_maintenance.execution.progress import Progress
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import LakehouseError, LeaseHeldError, LeaseLostError, OccupiedError, TableError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.removal import (
    Candidate,
    Entry,
    EntryState,
    Operation,
    Permit,
    Removal,
    RemovalList,
    Remover,
    Unreadable,
    entries,
    open_lists,
    read_entry,
)
from lakehouse_maintenance.removal.quarantine import read_parts
from lakehouse_maintenance.removal.remover import REMOVE_FILES
from lakehouse_maintenance.removal.results import Recheck
from lakehouse_maintenance.state import Lease, State
from lakehouse_maintenance.storage import Storage

UNREADABLE = "unreadable"
"""The state of an entry that is damaged."""

_ENDED = {Operation.RESTORE: EntryState.RESTORED, Operation.PURGE: EntryState.PURGED}


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An entry, and what became of it. `status`: None where it was only looked at. `why`: what kept it from "done"."""

    entry: Entry | Unreadable
    status: Status | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """False where it is damaged, and where what was asked for did not happen."""
        return not isinstance(self.entry, Unreadable) and self.status in (None, Status.DONE)

    def as_json(self) -> dict[str, Any]:
        """One of the `entries` of the command line."""
        if isinstance(self.entry, Unreadable):
            unknown = dict.fromkeys(("path", "quarantined_path", "objects", "bytes", "at", "purge_after"))
            found: dict[str, Any] = {"id": self.entry.id, **unknown, "state": UNREADABLE}
        else:
            found = self.entry.as_json()
        return {**found, "status": self.status, "error": self.why, "notes": list(self.notes)}


ClaimsOf = Callable[[Entry], Recheck]
"""Gives the recheck of an entry's objects before they are purged: see claims."""


@dataclass(frozen=True, slots=True)
class Quarantining:
    """Handles entries for one run. `storage_of`: reaches the entry's places."""

    state: State
    run_id: str
    owner: str
    lease_ttl: timedelta
    storage_of: Callable[[Entry], Storage]
    progress: Progress
    claims_of: ClaimsOf

    def listed(self) -> list[Quarantined]:
        """Every entry, oldest first, also those that are over."""
        return [self._shown(entry) for entry in entries(self.state)]

    def restore(self, entry_id: str) -> Quarantined:
        """Brings an entry back, whole. Restored already: done.

        Raises InputError for an id that is none's, StorageError for an entry that is damaged.
        """
        return self._handle(read_entry(self.state, entry_id), Operation.RESTORE)

    def purge(self, entry_id: str | None = None, older_than: timedelta | None = None) -> list[Quarantined]:
        """Deletes the entry, or all entries, whose time has passed, and goes on with what a killed run was purging.

        `older_than`: in place of the time that each entry was to be kept, so much must have passed since it was moved.
        Raises as `restore` where an entry is named.
        """
        now = datetime.now(UTC)
        if entry_id is not None:
            entry = read_entry(self.state, entry_id)
            if entry.state == EntryState.QUARANTINED and not _is_due(entry, now, older_than):
                return [self._kept(entry, older_than)]
            return [self._handle(entry, Operation.PURGE)]
        found: list[Quarantined] = []
        for one in entries(self.state):
            if isinstance(one, Unreadable):
                found.append(self._shown(one))
            elif one.state == EntryState.PURGING or (
                one.state == EntryState.QUARANTINED and _is_due(one, now, older_than)
            ):
                found.append(self._handle(one, Operation.PURGE))
        return found

    def _shown(self, entry: Entry | Unreadable) -> Quarantined:
        return Quarantined(entry, why=entry.why) if isinstance(entry, Unreadable) else Quarantined(entry)

    def _kept(self, entry: Entry, older_than: timedelta | None) -> Quarantined:
        until = f"it is kept until {entry.purge_after}" if older_than is None else f"it was moved at {entry.at}"
        return Quarantined(entry, Status.BLOCKED, f"{until}: --older-than sets another age")

    def _handle(self, entry: Entry, operation: Operation) -> Quarantined:
        if entry.state == _ENDED[operation] and not _open_lists_of(self.state, entry, operation):
            return Quarantined(entry, Status.DONE, notes=(f"it was {entry.state} before",))
        self.progress.begin(entry.subject, operation, entry.objects, entry.bytes)
        try:
            result = self._under_lease(entry, operation)
        except (LeaseHeldError, OccupiedError) as error:
            result = Quarantined(read_entry(self.state, entry.id), Status.BLOCKED, describe(error))
        except LakehouseError as error:
            result = Quarantined(_latest(self.state, entry), Status.FAILED, describe(error))
        finally:
            self.progress.end(entry.subject, operation)
        return result

    def _under_lease(self, entry: Entry, operation: Operation) -> Quarantined:
        leases = self.state.leases
        storage = self.storage_of(entry)
        with leases.acquire(entry.subject, run_id=self.run_id, owner=self.owner, ttl=self.lease_ttl) as lease:
            # What was read before the lease may be another run's work of a moment ago.
            entry = read_entry(self.state, entry.id)
            work = _Work(self.state, storage, self.run_id, lease, self.progress, self.claims_of)
            resumed = _open_lists_of(self.state, entry, operation)
            if entry.state == _ENDED[operation]:
                for head in resumed:
                    # Its run was killed when all was done but the closing of its list.
                    work.go_on(entry, head)
                return Quarantined(entry, Status.DONE, notes=(f"it was {entry.state} before",))
            removal = work.go_on(entry, resumed[0]) if resumed else work.begin(entry, operation)
        entry = read_entry(self.state, entry.id)
        problem = _problem(removal)
        if problem is None and entry.state != _ENDED[operation]:
            kept = "; ".join(f"{count} objects kept: {why}" for why, count in sorted(removal.kept.items()))
            problem = kept or f"it is {entry.state}"
        notes = _foreign(removal)
        return Quarantined(entry, Status.DONE if problem is None else Status.FAILED, problem, notes)


def finish_entry_lists(
    state: State,
    storage_of: Callable[[Entry], Storage],
    claims_of: ClaimsOf,
    run_id: str,
    lease: Lease,
    progress: Progress,
) -> list[str]:
    """Goes on with the restoring and purging that killed runs left on the lease's subject.

    Returns what is not finished, and why: such a list stays open, and must not keep the subject from anything else.
    """
    problems: list[str] = []
    for head in open_lists(state, lease.table):
        if head.operation not in (Operation.RESTORE, Operation.PURGE):
            continue
        try:
            entry = read_entry(state, head.entry or "")
            work = _Work(state, storage_of(entry), run_id, lease, progress, claims_of)
            problem = _problem(work.go_on(entry, head))
        except LeaseLostError:
            raise
        except LakehouseError as error:
            problem = describe(error)
        if problem is not None:
            problems.append(
                f"to {head.operation} the quarantine entry {head.entry}, as run {head.run_id} left it: {problem}"
            )
    return problems


@dataclass(frozen=True, slots=True)
class _Work:
    """One entry's work, under the lease of its subject."""

    state: State
    storage: Storage
    run_id: str
    lease: Lease
    progress: Progress
    claims_of: ClaimsOf

    def begin(self, entry: Entry, operation: Operation) -> Removal:
        permit = self._permit(entry, operation)
        recheck = self._recheck(entry, operation)
        if operation is Operation.PURGE:
            self._refuse_claimed(entry, recheck)
        remover = self._remover(entry)
        head = remover.intend(
            permit, (), now_ms(), operation=operation, entry=entry, evidence={"entry": entry.as_json()}
        )
        return remover.remove(permit, head, recheck)

    def go_on(self, entry: Entry, head: RemovalList) -> Removal:
        """With the list of a run that is over."""
        self._close_intents(head)
        permit = replace(self._permit(entry, Operation(head.operation)), uuid=head.uuid)
        recheck = self._recheck(entry, Operation(head.operation))
        return self._remover(entry).remove(permit, head, recheck, resumed=True)

    def _recheck(self, entry: Entry, operation: Operation) -> Recheck:
        """To restore takes nothing away from anybody: the entry's own list says what comes back."""
        return self.claims_of(entry) if operation is Operation.PURGE else lambda batch: {}

    def _refuse_claimed(self, entry: Entry, recheck: Recheck) -> None:
        """Before anything is purged: half purged, an entry that somebody needs could not be restored any more."""
        claimed: dict[str, str] = {}
        for part in read_parts(self.state, entry):
            claimed |= recheck([Candidate(entry.aside(kept).text, entry.kind, kept.size) for kept in part])
        for path, why in islice(claimed.items(), 1):
            raise TableError(
                f"{len(claimed)} objects of {entry.id} are needed, the first is {path}: {why}",
                field=entry.id,
                hint="nothing was purged",
            )

    def _permit(self, entry: Entry, operation: Operation) -> Permit:
        """To purge, the entry's own folder; to restore, the place that its objects came from as well."""
        territory = entry.territory if operation is Operation.RESTORE else (entry.quarantined,)
        return Permit(entry.subject, self.run_id, operation, entry.digest, self.lease, territory)

    def _remover(self, entry: Entry) -> Remover:
        return Remover(self.state, self.storage, lambda files, size: self.progress.advance(entry.subject, files, size))

    def _close_intents(self, head: RemovalList) -> None:
        for intent in self.state.journal.open_intents(head.table):
            if (intent.run_id, intent.details.get("removal_list")) == (head.run_id, head.key):
                self.state.journal.record(
                    Event(
                        at=now_text(),
                        run_id=intent.run_id,
                        table=intent.table,
                        action=REMOVE_FILES,
                        phase="outcome",
                        status=Status.FAILED,
                        digest=intent.digest,
                        details={
                            **intent.details,
                            "recovered": True,
                            "why": f"the run ended amid it; run {self.run_id} goes on with its list",
                        },
                    )
                )


def _open_lists_of(state: State, entry: Entry, operation: Operation) -> Sequence[RemovalList]:
    return [head for head in open_lists(state, entry.subject) if (head.entry, head.operation) == (entry.id, operation)]


def _is_due(entry: Entry, now: datetime, older_than: timedelta | None) -> bool:
    if older_than is None:
        return entry.may_be_purged(now)
    return datetime.fromisoformat(entry.at) + older_than <= now


def _latest(state: State, entry: Entry) -> Entry:
    try:
        return read_entry(state, entry.id)
    except LakehouseError:
        return entry


def _problem(removal: Removal) -> str | None:
    parts: list[str] = []
    both: tuple[tuple[Mapping[str, str], str], ...] = ((removal.failed, "failed"), (removal.unknown, "are unknown"))
    for paths, what in both:
        for path, why in islice(paths.items(), 1):
            parts.append(f"{len(paths)} objects {what}, the first is {path}: {why}")
    return "; ".join(parts) or None


def _foreign(removal: Removal) -> tuple[str, ...]:
    if not removal.foreign:
        return ()
    shown = ", ".join(removal.foreign_paths)
    return (f"{removal.foreign} objects in the entry's folder are not its own and were left alone, such as {shown}",)
