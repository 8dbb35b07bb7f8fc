"""A folder, the remover that moves it aside, and hooks that end a run amid it: for tests of quarantine on any store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.progress import Silent
from lakehouse_maintenance.execution.quarantining import Quarantining
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import (
    Candidate,
    Entry,
    EntryKind,
    Operation,
    Permit,
    Removal,
    Remover,
    deleting,
    new_entry,
    open_lists,
    read_entry,
    remover,
)
from lakehouse_maintenance.state import Lease, State
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.base import epoch_ms

PREFIX = "_quarantine"
SUBJECT = "main.db"
TTL = timedelta(minutes=10)

_numbers = itertools.count(1)


class Killed(BaseException):
    """Ends a run like a kill: nothing that handles errors handles it, and nothing is journaled after it."""


def nothing_owned(batch: Sequence[Candidate]) -> Mapping[str, str]:
    return {}


@dataclass
class Case:
    """`folder` is moved aside. `removals`: results of all runs so far. `claims`: the recheck before a purge."""

    state: State
    storage: Storage
    folder: Location
    kind: EntryKind = EntryKind.FOLDER
    keep: timedelta = timedelta(days=30)
    removals: list[Removal] = field(default_factory=list)
    claims: Callable[..., Mapping[str, str]] = nothing_owned
    territory: Location | None = None

    def objects(self, folder: Location | None = None) -> dict[str, bytes]:
        """Exact key below the folder → content."""
        at = self.folder if folder is None else folder
        return {
            info.location.key.removeprefix(at.folder_key): self.storage.read(info.location)
            for batch in self.storage.list(at)
            for info in batch
        }

    def candidates(self, *, detailed: bool = True) -> list[Candidate]:
        """Everything in the folder, as a listing shows it."""
        return [
            Candidate(
                info.location.text,
                "file",
                info.size,
                info.etag if detailed else None,
                epoch_ms(info.modified) if detailed else None,
            )
            for batch in self.storage.list(self.folder)
            for info in batch
        ]

    @contextmanager
    def lease(self) -> Iterator[tuple[Lease, str]]:
        run_id = f"run-{next(_numbers)}"
        with self.state.leases.acquire(SUBJECT, run_id=run_id, owner="a test", ttl=TTL) as lease:
            yield lease, run_id

    def permit(self, lease: Lease, run_id: str) -> Permit:
        return Permit(SUBJECT, run_id, "untracked_folders", "sha256:1", lease, (self.territory or self.folder,))

    def remover(self) -> Remover:
        return Remover(self.state, self.storage, lambda files, size: None)

    def entry(self) -> Entry:
        return new_entry(SUBJECT, self.kind, self.folder, prefix=PREFIX, keep=self.keep, now=datetime.now(UTC))

    def quarantine(
        self, candidates: Sequence[Candidate] | None = None, recheck: Callable[..., Any] = nothing_owned
    ) -> Entry:
        """One run that moves the folder aside; a Killed passes through."""
        entry = self.entry()
        with self.lease() as (lease, run_id):
            permit = self.permit(lease, run_id)
            head = self.remover().intend(
                permit,
                self.candidates() if candidates is None else candidates,
                now_ms(),
                operation=Operation.QUARANTINE,
                entry=entry,
            )
            self.removals.append(Removal())
            self.remover().remove(permit, head, recheck, into=self.removals[-1])
        return read_entry(self.state, entry.id)

    def go_on(self, recheck: Callable[..., Any] = nothing_owned) -> Removal:
        """The next run, which finishes the list that is open."""
        with self.lease() as (lease, run_id):
            (head,) = open_lists(self.state, SUBJECT)
            self.removals.append(Removal())
            return self.remover().remove(
                self.permit(lease, run_id), head, recheck, resumed=True, into=self.removals[-1]
            )

    def quarantining(self) -> Quarantining:
        run_id = f"run-{next(_numbers)}"
        return Quarantining(
            self.state, run_id, "a test", TTL, lambda entry: self.storage, Silent(), lambda entry: self.claims
        )

    def is_open(self) -> bool:
        return bool(open_lists(self.state, SUBJECT))


@contextmanager
def killed_before(calls: list[str], number: int, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the run right before its `number`-th call that copies or deletes. `calls` tells which they were."""

    lock = threading.Lock()

    def count(what: str) -> None:
        with lock:
            calls.append(what)
            is_last = len(calls) == number
        if is_last:
            raise Killed

    copy, delete = Storage.copy, deleting.delete_batch

    def counted_copy(self: Storage, source: Location, target: Location) -> Any:
        count("copy")
        return copy(self, source, target)

    def counted_delete(*args: Any) -> Any:
        count("delete")
        return delete(*args)

    with patch.context() as patched:
        patched.setattr(Storage, "copy", counted_copy)
        patched.setattr(remover, "delete_batch", counted_delete)
        yield
