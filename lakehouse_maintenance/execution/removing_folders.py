"""Removing folders that nobody owns, one at a time (UF-17, UF-18, UF-44, UF-46).

Under the lease of the database. For the database, once: what killed runs left is ended; then storage is listed
(reconciling); then the catalogs are read afresh, all of them, and `assess` must find no reason against it. For each
folder, in this order:
  1. it is listed again, to disk: what is reviewed or was found must be what is there, and old enough;
  2. all catalogs are asked again; any claim keeps the folder, and where a table cannot be resolved any more everything
     stops;
  3. durable list and intent; before each batch of at most 1,000 objects what may reach the root is asked again; then
     delete or move;
  4. its objects are listed once more: what is not gone is not counted as removed, and ends the database's run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.evidence import Spool
from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.database_facts import World
from lakehouse_maintenance.execution.looking_inside import look_inside
from lakehouse_maintenance.execution.making import describe
from lakehouse_maintenance.execution.progress import Silent
from lakehouse_maintenance.execution.reconciling import Found, claims_on
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import LakehouseError, StorageError, TableError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.folders import Content, Folder, HowToRemove, Reason, Verdict
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.reviews import PlannedFolder
from lakehouse_maintenance.planning.untracked_folders import assess, first_verdict, last_verdict
from lakehouse_maintenance.removal import (
    Candidate,
    EntryKind,
    Operation,
    Permit,
    Removal,
    Remover,
    new_entry,
    open_lists,
)
from lakehouse_maintenance.removal.emptied import remove_emptied
from lakehouse_maintenance.state import Lease
from lakehouse_maintenance.storage import Storage

_ACTION = Action.UNTRACKED_FOLDERS

_HELD = "the store holds it"
"""So the removal begins its reason for objects under a lock or hold, which no table keeps."""

Binding = Mapping[str, PlannedFolder] | None
"""Path → what may go there: so many objects, bytes, and that newest time; None: whatever was found."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A candidate that stays, and why."""

    path: str
    why: str


@dataclass
class Removed:
    """What became of a database's candidates. `stopped`: the reason against everything that came up meanwhile;
    `failed`: the folder that could not be removed, with the cause. `moved`: by path, the quarantine entry."""

    gone: list[Folder] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    stopped: tuple[Reason, str] | None = None
    failed: tuple[str, str] | None = None


@dataclass
class Removing:
    """The removal for one database, by the run that holds its lease. `aside`: name of quarantine folders."""

    run: Run
    catalog: Catalog
    catalogs: Mapping[str, Catalog]
    found: Found
    how: HowToRemove
    lease: Lease
    aside: str
    _world: World | None = None

    def remove(self, bound: Callable[[], Binding], result: Removed) -> None:
        """Every candidate that may go, into `result`, which holds also where this raises: for a catalog or a store that
        does not answer, and a lease that was lost, before anything of the next folder was touched. `bound`: is asked
        before each folder, since somebody may take an approval back."""
        binding = bound()
        candidates = [folder for folder in self.found.candidates if folder.content is not None]
        result.kept += self._reviewed_in_vain(binding)
        if not candidates:
            return
        self._world = World.see(self.run.evidence, self.catalogs, self.run.progress)
        result.stopped = self._reason()
        self._journal("intent", None, candidates, {"binding": None if binding is None else len(binding)})
        ended = False
        try:
            for folder in candidates:
                if result.stopped is not None or result.failed is not None:
                    break
                self._folder(folder, bound(), result)
            ended = True
        finally:
            is_done = ended and result.stopped is None and result.failed is None
            status = Status.DONE if is_done else Status.BLOCKED if ended and result.stopped else Status.FAILED
            self._journal("outcome", status, result.gone, _told(result))

    def _reviewed_in_vain(self, binding: Binding) -> Iterator[Kept]:
        """What was meant to go, is still there, and is no candidate any more."""
        for folder in self.found.folders:
            if binding is not None and folder.path in binding and folder.verdict is not Verdict.CANDIDATE:
                yield Kept(folder.path, f"it is no candidate any more: {folder.why}")

    def _folder(self, folder: Folder, binding: Binding, result: Removed) -> None:
        if binding is not None and folder.path not in binding:
            result.kept.append(Kept(folder.path, "it is not in the plan that was reviewed, or was not approved"))
            return
        unfinished = self._unfinished(folder)
        if unfinished is not None:
            result.failed = (folder.path, unfinished)
            return
        self.run.progress.begin(folder.path, "listing", 0, 0)
        with Spool() as spool:
            listed_at = now_ms()
            content = look_inside(self._storage, folder.location, spool=spool)
            why = self._changed(folder, content, binding)
            if why is None:
                result.stopped = self._look_again(whole=True)
                why = self._claimed(folder.location)
            if result.stopped is None and why is None:
                self._take_away(folder, content, spool, listed_at, result)
            elif result.stopped is None:
                result.kept.append(Kept(folder.path, why or ""))
        self.run.progress.end(folder.path, "done" if why is None else "kept")

    def _unfinished(self, folder: Folder) -> str | None:
        """Why it is not begun anew: with another entry for what is left, the folder would be in quarantine in pieces,
        one more with each run."""
        for head in open_lists(self.run.state, self.found.facts.name):
            if head.operation == Operation.QUARANTINE and head.evidence.get("folder") == folder.path:
                return f"moving it to quarantine entry {head.entry}, which run {head.run_id} began, could not be ended"
        return None

    def _changed(self, folder: Folder, content: Content, binding: Binding) -> str | None:
        """Why what is there now is not what was meant, or not any more."""
        rules = self.found.rules
        assert rules is not None, "a database with candidates was looked at"
        verdict, why = last_verdict(content, rules, None)
        if verdict is not Verdict.CANDIDATE:
            return why
        now = PlannedFolder(folder.path, content.objects, content.bytes, content.newest_ms or 0)
        if binding is not None and not binding[folder.path].is_same(now):
            meant = binding[folder.path]
            return (
                f"it is not what was reviewed any more: {content.objects} objects of {content.bytes} bytes, not "
                f"{meant.objects} of {meant.bytes}, or another newest object"
            )
        assert folder.content is not None
        then = (folder.content.objects, folder.content.bytes, folder.content.newest_ms)
        if then != (content.objects, content.bytes, content.newest_ms):
            return "somebody wrote to it, or deleted in it, while it was looked at"
        return None

    def _reason(self) -> tuple[Reason, str] | None:
        """Why nothing of this database may be removed, by what the catalogs tell now."""
        assert self._world is not None
        facts = self._world.facts(self.catalog, self.found.database)
        now = assess(facts)
        if now.reason is not None:
            return now.reason, f"the catalog changed since it was looked at: {now.message}"
        if now.root != self.found.assessment.root:
            why = f"the cleanup root was {self.found.assessment.root} and is {now.root}: the tables moved meanwhile"
            return Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY, why
        return None

    def _look_again(self, *, whole: bool) -> tuple[Reason, str] | None:
        """Before each folder all tables and databases are asked: what lies in it is old, so that no commit which takes
        files of it over shows by their age."""
        assert self._world is not None
        if whole:
            self._world = World.see(self.run.evidence, self.catalogs, Silent())
        else:
            self._world = self._world.again(self.run.evidence, [self._root])
        return self._reason()

    def _claimed(self, folder: Location) -> str | None:
        assert self._world is not None
        assert self.found.rules is not None
        ended = first_verdict(folder, claims_on(self._world, self.found, self._root, folder), self.found.rules)
        return None if ended is None else f"it became owned since it was looked at: {ended[1]}"

    def _take_away(self, folder: Folder, content: Content, spool: Spool, listed_at: int, result: Removed) -> None:
        permit = self._permit(folder.location)
        remover = self._remover(folder)
        entry = None
        if self.how.removal == "quarantine":
            entry = new_entry(
                self.found.facts.name,
                EntryKind.FOLDER,
                folder.location,
                prefix=self.aside,
                keep=self.how.purge_after,
                now=datetime.now(UTC),
            )
        self.run.progress.begin(folder.path, self.how.removal, content.objects, content.bytes)
        head = remover.intend(
            permit,
            _candidates(spool),
            listed_at,
            operation=Operation.DELETE if entry is None else Operation.QUARANTINE,
            entry=entry,
            evidence={"why": folder.why, "looked_at": now_text(), "folder": folder.path},
        )
        removal = Removal()
        try:
            remover.remove(permit, head, self._recheck(folder.location, result), into=removal)
            # Empty directories of what somebody owns by now are theirs: a writer may be about to use them.
            is_gone = not removal.kept and remove_emptied(self._storage, permit, folder.location)
        except LakehouseError as error:
            if result.stopped is not None and not removal.deleted and not removal.moved:
                remover.end(head, result.stopped[1], removal)
            else:
                result.failed = (folder.path, describe(error))
            return
        finally:
            if entry is not None and removal.moved:
                result.moved[folder.path] = entry.id
        removed = removal.deleted + removal.moved
        is_held = any(why.startswith(_HELD) for why in removal.kept)
        if not removed and removal.is_complete and not is_held and (removal.kept or is_gone):
            why = next(iter(removal.kept), "somebody else removed it meanwhile")
            result.kept.append(Kept(folder.path, why))
        elif is_gone and entry is None and not removal.is_complete:
            # The last look settles it: some stores keep a folder's marker until nothing lies under it any more.
            remover.end(head, "everything in its folder is gone", removal)
            result.gone.append(Folder(folder.location, folder.verdict, folder.why, content))
        elif is_gone and removal.is_complete:
            # Objects that somebody else removed meanwhile are not ours to count.
            own = replace(content, objects=removed, bytes=removal.deleted_bytes + removal.moved_bytes)
            result.gone.append(Folder(folder.location, folder.verdict, folder.why, own))
        else:
            result.failed = (folder.path, _cause(removal, self._storage, folder.location))

    def _recheck(self, folder: Location, result: Removed) -> Callable[[Sequence[Candidate]], Mapping[str, str]]:
        def recheck(batch: Sequence[Candidate]) -> Mapping[str, str]:
            result.stopped = self._look_again(whole=False)
            if result.stopped is not None:
                raise TableError(f"nothing more was removed: {result.stopped[1]}", field=self.found.facts.name)
            why = self._claimed(folder)
            return {} if why is None else {candidate.path: why for candidate in batch}

        return recheck

    @property
    def _root(self) -> Location:
        root = self.found.assessment.root
        assert root is not None, "a database with candidates has a cleanup root"
        return root

    @property
    def _storage(self) -> Storage:
        storage = self.found.storage
        assert storage is not None, "a database with candidates was looked at"
        return storage

    def _permit(self, folder: Location) -> Permit:
        return Permit(self.found.facts.name, self.run.run_id, _ACTION, self.run.digest, self.lease, (folder,))

    def _remover(self, folder: Folder) -> Remover:
        return Remover(
            self.run.state, self._storage, lambda files, size: self.run.progress.advance(folder.path, files, size)
        )

    def _journal(
        self, phase: str, status: Status | None, folders: Sequence[Folder], details: Mapping[str, object]
    ) -> None:
        contents = [folder.content for folder in folders if folder.content is not None]
        self.run.state.journal.record(
            Event(
                at=now_text(),
                run_id=self.run.run_id,
                table=self.found.facts.name,
                action=_ACTION,
                phase=phase,
                status=status,
                digest=self.run.digest,
                files=sum(content.objects for content in contents),
                bytes=sum(content.bytes for content in contents),
                details={"folders": [folder.path for folder in folders], "removal": self.how.removal, **details},
            )
        )


def _candidates(spool: Spool) -> Iterator[Candidate]:
    for rows in spool:
        for path, size, modified in rows:
            yield Candidate(path, "untracked folder", size, modified_ms=modified)


def _cause(removal: Removal, storage: Storage, folder: Location) -> str:
    for path, why in islice({**removal.failed, **removal.unknown}.items(), 1):
        count = len(removal.failed) + len(removal.unknown)
        return f"{count} objects could not be removed, or it is not known; the first is {path}: {why}"
    for why, count in removal.kept.items():
        return f"{count} objects of it were kept: {why}"
    try:
        left = next((info.location.text for batch in storage.list(folder, batch_size=1) for info in batch), None)
    except StorageError as error:
        return f"the folder is still there, and cannot be listed: {error.message}"
    if left is None:
        return "its objects are gone, and the folder is still there"
    return f"everything that was listed is gone, and the folder still holds {left}"


def _told(result: Removed) -> dict[str, object]:
    return {
        "kept": [{"path": kept.path, "why": kept.why} for kept in result.kept],
        "quarantine": dict(result.moved),
        "stopped": None if result.stopped is None else result.stopped[1],
        "failed": None if result.failed is None else {"path": result.failed[0], "why": result.failed[1]},
    }
