"""Deleting what a table's metadata let go: who may, what is asked before each batch, and how a killed run's list ends.

The permit is issued here, to the holder of the table's lease. Before the first batch and before each one after it the
evidence is asked again: which tables are there, could anybody else reach a file on the list, and does the table itself
still do so. Metadata that has not moved since is not read again. A file may go only if nothing in any visible table's
metadata, as it is then, may mean it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from lakehouse_maintenance.evidence import Look, Spelling, StillUnowned, Zone, folders_of
from lakehouse_maintenance.execution.claims import Claims
from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.orphan_search import (
    NOT_GIVEN,
    as_declared,
    foreign_zones,
    own_folders,
    shared_refusal,
    told,
    unknown_now,
)
from lakehouse_maintenance.execution.quarantining import finish_entry_lists
from lakehouse_maintenance.execution.versions import versions_kept
from lakehouse_maintenance.execution.work import Blocked, Run
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import LakehouseError, LeaseLostError, TableError
from lakehouse_maintenance.model.forms import FormIndex
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.properties import GC_PROPERTY, forbids_deleting
from lakehouse_maintenance.model.references import Reference
from lakehouse_maintenance.removal import (
    Candidate,
    Entry,
    Operation,
    Permit,
    Removal,
    RemovalList,
    Remover,
    open_lists,
    read_list,
)
from lakehouse_maintenance.state import Lease
from lakehouse_maintenance.storage import Storage


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletions of one action on one table, by the run that holds its lease.

    `forbidden`: with each look, a further reason why nothing may be deleted in these places, or None. `spelling`: which
    schemes and authorities were declared to mean the same. `zones`: where it is not known who owns a file, which stays.
    `own`: folders to which the table's files are limited, or None. `concurrency`: see Remover.
    """

    run: Run
    target: Target
    action: str
    lease: Lease
    forbidden: Callable[[Look, Sequence[Location]], str | None] = field(default=lambda look, places: None)
    spelling: Spelling = field(default_factory=Spelling)
    zones: Sequence[Zone] = ()
    own: tuple[Location, ...] | None = None
    concurrency: int | None = None

    def refuse(self, metadata: Metadata) -> None:
        """Raises TableError where files of this table must not be deleted at all."""
        name = self.target.name
        if forbids_deleting(metadata.properties):
            raise TableError(f"{name}: {GC_PROPERTY} forbids deleting its files", field=str(name))
        look = self.run.evidence.look(folders_of(metadata))
        why = look.refusal(name.database, folders_of(metadata))
        if why is None:
            why = self.run.evidence.around(self.target.catalog.storage(name), folders_of(metadata))[1]
        if why is not None:
            raise TableError(f"{name}: nothing was deleted: {why}", field=str(name))
        self._refuse_look(look, metadata)

    def intend(
        self,
        metadata: Metadata,
        storage: Storage,
        found: Iterable[Reference],
        *,
        evidence: Mapping[str, Any] | None = None,
    ) -> RemovalList:
        """Makes the list durable, and the intent; nothing is deleted yet."""
        candidates = (Candidate(reference.path, reference.kind, reference.size) for reference in found)
        return self.intend_candidates(metadata, storage, candidates, evidence=evidence)

    def intend_candidates(
        self,
        metadata: Metadata,
        storage: Storage,
        candidates: Iterable[Candidate],
        *,
        at_ms: int | None = None,
        into: Entry | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> RemovalList:
        """As `intend`. `at_ms`: when the files were seen; a file that is newer is not what was meant. `into`: a new
        quarantine entry, where they are to be moved and not deleted."""
        seen = {"metadata": metadata.location, "looked_at": now_text(), **(evidence or {})}
        return self._remover(storage).intend(
            self._permit(metadata),
            candidates,
            now_ms() if at_ms is None else at_ms,
            operation=Operation.DELETE if into is None else Operation.QUARANTINE,
            entry=into,
            evidence=seen,
        )

    def remove(
        self,
        head: RemovalList,
        *,
        resumed: bool = False,
        into: Removal | None = None,
        asked: Mapping[str, str] | None = None,
    ) -> Removal:
        """Deletes what the list names and nothing needs.

        `into`: counts that are there also where it raises. `asked`: owners' tokens under which the list was made.
        """
        observed = observe(self.target.catalog, self.target.name, self.run.cache)
        metadata = observed.metadata
        still = StillUnowned(
            evidence=self.run.evidence,
            storage=observed.storage,
            database=self.target.name.database,
            places=folders_of(metadata),
            aliases=self._places(metadata),
            paths=FormIndex(
                (candidate.path for part in read_list(self.run.state, head) for candidate in part),
                self.spelling.forms,
            ),
            refuse=lambda look: self._refuse_look(look, metadata),
            asked=dict(asked or {}),
        )

        def recheck(batch: Sequence[Candidate]) -> Mapping[str, str]:
            owned = still.look()
            kept = {c.path: owned.get(c.path) or self._unknown(c.path) for c in batch}
            return {path: why for path, why in kept.items() if why is not None}

        remover = self._remover(observed.storage)
        return remover.remove(self._permit(metadata), head, recheck, resumed=resumed, into=into)

    def versions_kept(self) -> list[str]:
        """See the function of that name, for the table's own folders. Never raises: it is a note."""
        try:
            observed = observe(self.target.catalog, self.target.name, self.run.cache)
            return versions_kept(observed.storage, folders_of(observed.metadata))
        except LakehouseError:
            return []

    def _refuse_look(self, look: Look, metadata: Metadata) -> None:
        name = str(self.target.name)
        owner = look.owner(name)
        if owner is None:
            raise TableError(f"{name} is not in its catalog any more, or cannot be read", field=name)
        if owner.uuid != metadata.uuid:
            raise TableError(f"{name} became another table meanwhile", field=name)
        if owner.keeps_all:
            raise TableError(f"{name}: {GC_PROPERTY} forbids deleting its files", field=name)
        why = self.forbidden(look, self._places(metadata))
        if why is not None:
            raise TableError(f"{name}: nothing was deleted: {why}", field=name)

    def _unknown(self, path: str) -> str | None:
        location = Location.parse(path)
        if self.own is not None and not any(folder.contains(location) for folder in self.own):
            return NOT_GIVEN
        return next((zone.why for zone in self.zones if zone.covers(location)), None)

    def _places(self, metadata: Metadata) -> tuple[Location, ...]:
        return self.spelling.everywhere(folders_of(metadata))

    def _permit(self, metadata: Metadata) -> Permit:
        name = str(self.target.name)
        folders = folders_of(metadata)
        return Permit(name, self.run.run_id, self.action, self.run.digest, self.lease, folders, metadata.uuid)

    def _remover(self, storage: Storage) -> Remover:
        name = str(self.target.name)
        return Remover(
            self.run.state, storage, lambda files, size: self.run.progress.advance(name, files, size), self.concurrency
        )


def finish_open_lists(run: Run, target: Target, lease: Lease, ended: dict[str, Removal] | None = None) -> list[str]:
    """Finishes the lists that killed runs left on the table; each once, whatever was deleted of it already.

    Returns what is not finished, and why: such a list stays open, and must not keep the table from anything else.
    `ended`: is told what became of each list, by its key.
    """
    # Restoring and purging go by what the quarantine entry says.
    problems = finish_entry_lists(
        run.state,
        lambda entry: target.catalog.storage(target.name),
        lambda entry: Claims(run.state, run.evidence, entry),
        run.run_id,
        lease,
        run.progress,
    )
    for head in open_lists(run.state, str(target.name)):
        if head.operation in (Operation.RESTORE, Operation.PURGE):
            continue
        left = f"the files that run {head.run_id} left to delete are not all gone"
        try:
            refuse_blocked(observe(target.catalog, target.name, run.cache).metadata, None, target)
            removal = Removal()
            if ended is not None:
                ended[head.key] = removal
            _of_list(run, target, head, lease).remove(head, resumed=True, into=removal)
        except Blocked:
            continue  # its owner says no since the list was made: it waits for another word
        except LeaseLostError:
            raise
        except LakehouseError as error:
            problems.append(f"{left}: {describe(error)}")
            continue
        for path, why in islice({**removal.failed, **removal.unknown}.items(), 1):
            count = len(removal.failed) + len(removal.unknown)
            problems.append(f"{left}: {count} could not be deleted, or it is not known; the first is {path}: {why}")
    return problems


def _of_list(run: Run, target: Target, head: RemovalList, lease: Lease) -> Deletion:
    """The deletion that the list was made for: under the same spelling.

    What may have changed since the killed run looked is looked for again: signs of unseen tables that have come and
    taken over a file, and what is told of shared places. Both then and now it must be told whose files are whose.
    """
    if head.action != Action.REMOVE_ORPHAN_FILES:
        return Deletion(run, target, head.action, lease)
    name, seen = str(target.name), head.evidence
    shares_with = told(name, run.shared_locations).intersection(seen.get("shares_with", ()))
    spelling = Spelling(seen.get("equal_schemes"), seen.get("equal_authorities"))
    return Deletion(
        run,
        target,
        head.action,
        lease,
        forbidden=lambda look, places: shared_refusal(look, places, name, shares_with),
        spelling=spelling,
        zones=as_declared([*unknown_now(run, target, spelling), *foreign_zones(name, run.shared_locations)], spelling),
        own=own_folders(name, run.shared_locations),
    )
