"""A run of the untracked table folders job: every database by itself, a row in the audit table for each (seed 000).

The catalogs are read once for all databases. A database that fails stops no other. Once a row cannot be written, no
folder is removed any more in the run, and the run has failed (UF-19).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.audit import FolderAudit
from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.execution.database_facts import World
from lakehouse_maintenance.execution.folder_recovery import finish_what_was_left
from lakehouse_maintenance.execution.folder_report import run_report
from lakehouse_maintenance.execution.folder_rows import Draft, told
from lakehouse_maintenance.execution.making import describe
from lakehouse_maintenance.execution.reconciling import (
    Found,
    Rules,
    claims_on,
    left_alone,
    own_places,
    planned,
    reconcile,
    rules_of,
)
from lakehouse_maintenance.execution.removing_folders import Binding, Removed, Removing
from lakehouse_maintenance.execution.work import LEASE_TTL, Run
from lakehouse_maintenance.model.errors import LakehouseError, TableError
from lakehouse_maintenance.model.folders import (
    DatabaseResult,
    FolderRequest,
    FolderRun,
    HowToRemove,
    Reason,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import quote_part, split_name
from lakehouse_maintenance.model.reviews import FolderPlan, PlannedFolder, Review
from lakehouse_maintenance.planning.untracked_folders import assess, first_verdict, is_inside, run_digest
from lakehouse_maintenance.removal import Candidate, open_lists
from lakehouse_maintenance.state import Lease

_logger = logging.getLogger(__name__)

_SHORTEST_HOURS = 24
"""A nearer cutoff is the source's to allow, and is told."""


@dataclass
class FolderJob:
    """One run. `catalogs`: all that are configured, since any table of any of them may own a folder. `audit`: None
    where nothing is recorded. `environ`: where the runtime identity is told (UF-22). `mask`: takes
    secrets out of texts."""

    run: Run
    catalogs: Mapping[str, Catalog]
    request: FolderRequest
    audit: FolderAudit | None
    aside: str
    notes: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    mask: Callable[[str], str] = str
    _world: World | None = None
    _audit_lost: str | None = None
    _is_audit_ready: bool = False

    def __call__(self) -> FolderRun:
        """Every database of the request. Raises InputError for a digest that is unknown, before anything is read of
        catalog or storage; never for one database."""
        reviewed = self._reviewed()
        self._prepare_audit()
        results = [self._database(database, reviewed) for database in self.request.databases]
        digest = run_digest(result.digest for result in results)
        if digest is not None and not self.request.removes:
            self._record_run(digest, [result.digest for result in results if result.digest])
        report = run_report(results, self._audit_lost is not None)
        return FolderRun(self.run.run_id, digest, tuple(results), report, self._audit_lost is not None)

    def _record_run(self, digest: str, digests: Sequence[str]) -> None:
        try:
            self.run.state.reviews.record_run(digest, digests)
        except LakehouseError as error:
            # The rows are written, and each database's own digest is remembered: the run's result must not be lost.
            _logger.error("the digest of this run cannot be used: %s", self.mask(describe(error)))

    def _reviewed(self) -> list[Review] | None:
        digest = self.request.plan_digest
        return None if digest is None else self.run.state.reviews.find(digest)

    def _prepare_audit(self) -> None:
        """Before anything is removed, so that nothing is without there being a place to record it."""
        if self.audit is None:
            return
        try:
            self._make_ready(self.audit)
        except LakehouseError as error:
            self._lose_audit(self.audit, error)

    def _make_ready(self, audit: FolderAudit) -> None:
        if not self._is_audit_ready:
            audit.prepare(older_than_hours=self.request.older_than_hours)
            self._is_audit_ready = True

    def _lose_audit(self, audit: FolderAudit, error: LakehouseError) -> None:
        self._audit_lost = self._audit_lost or self.mask(describe(error))
        # Rows of later databases are tried all the same; nothing depends on them any more that would be worth waiting.
        audit.attempts = audit.patience
        _logger.error("the audit is lost, and no folder is removed any more in this run: %s", self._audit_lost)

    def _database(self, database: str, reviewed: Sequence[Review] | None) -> DatabaseResult:
        name = ".".join(quote_part(part) for part in (self.request.catalog, *split_name(database)))
        draft = Draft(self.request, self.run.run_id, database, name, self.environ, notes=list(self.notes))
        if self.request.older_than_hours < _SHORTEST_HOURS:
            draft.notes.append(
                f"older_than_hours is {self.request.older_than_hours:g}: a writer that is still at work may have files "
                "in a folder of which no catalog knows yet"
            )
        self.run.progress.begin(name, "reconciling", 0, 0)
        try:
            if self.request.removes:
                with self.run.state.leases.acquire(
                    name, run_id=self.run.run_id, owner=self.run.owner, ttl=LEASE_TTL
                ) as lease:
                    self._finish_left(draft, lease, reviewed)
                    self._reconcile(draft)
                    self._remove(draft, lease, reviewed)
            else:
                self._reconcile(draft)
                self._note_left(draft)
                self._record_plan(draft)
        except LakehouseError as error:
            draft.fail(describe(error))
        except Exception as error:
            # A fault of ours or of a library, met on this database: it must not stop the others (UF-20).
            _logger.exception("%s: reconciling failed", name)
            draft.fail(f"unexpected {type(error).__name__}: {error}")
        result = self._recorded(told(draft).masked(self.mask))
        self.run.progress.end(name, result.row.status)
        return result

    def _recorded(self, result: DatabaseResult) -> DatabaseResult:
        if self.audit is None:
            return result
        try:
            self._make_ready(self.audit)
            self.audit.write(result.row)
        except LakehouseError as error:
            self._lose_audit(self.audit, error)
            note = f"this row is not in the audit table: {self.mask(describe(error))}"
            return replace(result, is_recorded=False, notes=(*result.notes, note))
        return replace(result, is_recorded=True)

    @property
    def _catalog(self) -> Catalog:
        return self.catalogs[self.request.catalog]

    def _see(self) -> World:
        if self._world is None:
            self._world = World.see(self.run.evidence, self.catalogs, self.run.progress)
        return self._world

    def _reconcile(self, draft: Draft) -> None:
        draft.found = reconcile(self._see(), self._catalog, draft.database, self._rules(draft), self.run.progress)

    def _rules(self, draft: Draft) -> Rules:
        started_ms, cutoff_ms = (int(moment.timestamp() * 1000) for moment in (draft.start, draft.cutoff))
        return Rules(self.request, cutoff_ms, started_ms, self.aside, own_places(self.run.state))

    def _record_plan(self, draft: Draft) -> None:
        """What was found is what can be reviewed, unless something is against removing anything of it."""
        if draft.digest is None or draft.found is None or draft.found.reason is not None:
            self.run.state.reviews.record_nothing(draft.name)
            return
        folders = planned(draft.found.candidates)
        self.run.state.reviews.record(FolderPlan(draft.digest, draft.name, draft.start, self.run.run_id, folders))

    def _note_left(self, draft: Draft) -> None:
        for head in open_lists(self.run.state, draft.name):
            draft.notes.append(
                f"run {head.run_id} ended amid a list to {head.operation} ({head.files} objects of "
                f"{head.evidence.get('folder', draft.name)}); the next run that removes ends it"
            )

    def _finish_left(self, draft: Draft, lease: Lease, reviewed: Sequence[Review] | None) -> None:
        if self._audit_lost is not None:
            self._note_left(draft)  # to go on with it would remove something
            return

        def storage_of() -> Any:
            return self._catalog.storage_for_listing(self._see().tables_of(draft.name))

        def still(folder: Location) -> Callable[[Sequence[Candidate]], Mapping[str, str]]:
            def recheck(batch: Sequence[Candidate]) -> Mapping[str, str]:
                why = self._why_not(draft, folder, reviewed)
                return {} if why is None else {candidate.path: why for candidate in batch}

            return recheck

        draft.notes += finish_what_was_left(self.run, storage_of, draft.name, lease, still)

    def _why_not(self, draft: Draft, folder: Location, reviewed: Sequence[Review] | None) -> str | None:
        """Why this run would leave a folder that an earlier one was moving; by all that decides now but its age."""
        self._world = world = World.see(self.run.evidence, self.catalogs, self.run.progress)
        facts = world.facts(self._catalog, draft.database)
        now = assess(facts)
        if now.reason is not None or now.root is None:
            raise TableError(f"nothing was moved: {now.message}", field=draft.name)
        if not is_inside(folder, now.root):
            return f"it does not lie in the cleanup root any more, which is {now.root}"
        binding = self._binding(draft, self.request.how.get(draft.database, HowToRemove()), reviewed)
        if binding is not None and folder.text.rstrip("/") not in binding:
            return "it is not in the plan that was reviewed, or is not approved any more"
        rules = rules_of(self._rules(draft), draft.database, [now.root])
        found = Found(draft.database, facts, now, left_alone=left_alone(rules))
        ended = first_verdict(folder, claims_on(world, found, now.root, folder), rules)
        return None if ended is None else ended[1]

    def _remove(self, draft: Draft, lease: Lease, reviewed: Sequence[Review] | None) -> None:
        found = draft.found
        assert found is not None, "it was reconciled"
        if found.reason is None and found.candidates and self._audit_lost is not None:
            found.reason = Reason.AUDIT_INTEGRITY_LOST
            found.message = f"no folder is removed without a record: {self._audit_lost}"
        if found.reason is not None:
            return
        how = self.request.how.get(draft.database, HowToRemove())
        run = replace(self.run, digest=draft.digest or "")
        draft.removed, draft.how = Removed(), how
        removing = Removing(run, self._catalog, self.catalogs, found, how, lease, self.aside)
        removing.remove(lambda: self._binding(draft, how, reviewed), draft.removed)
        self._use_up(draft)

    def _use_up(self, draft: Draft) -> None:
        """What was approved and is gone is not approved any more, should it come back."""
        latest = self.run.state.reviews.latest(draft.name)
        gone = {folder.path for folder in draft.removed.gone} if draft.removed is not None else set()
        if latest is not None and gone.issuperset(folder.path for folder in latest.plan.folders):
            self.run.state.reviews.record_nothing(draft.name)

    def _binding(self, draft: Draft, how: HowToRemove, reviewed: Sequence[Review] | None) -> Binding:
        """What may go: of the plan that was named, and of what was approved where the policy wants a review."""
        binding: dict[str, PlannedFolder] | None = None
        if reviewed is not None:
            mine = [review for review in reviewed if review.plan.subject == draft.name]
            # The plan as it was told, less what somebody rejected of it since.
            binding = {
                folder.path: folder
                for review in (self.run.state.reviews.find(one.plan.digest)[0] for one in mine)
                for folder in review.plan.folders
                if folder.path not in review.rejected
            }
        if how.needs_review:
            latest = self.run.state.reviews.latest(draft.name)
            approved = {} if latest is None else {one.path: one for one in latest.may_go(datetime.now(UTC))}
            binding = (
                approved
                if binding is None
                else {path: one for path, one in binding.items() if path in approved and approved[path].is_same(one)}
            )
        return binding
