"""The composition root: a configured lakehouse with a method for each verb of the command line.

from lakehouse_maintenance import Lakehouse

lakehouse = Lakehouse.open("lakehouse.yaml")
plan = lakehouse.plan()
result = lakehouse.apply(plan)
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance.config import LakehouseConfig, load_config
from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.maintaining import maintain_table
from lakehouse_maintenance.execution.making import Target, measure_tables, plan_tables
from lakehouse_maintenance.execution.memory import Memory
from lakehouse_maintenance.execution.progress import Progress, Silent
from lakehouse_maintenance.execution.quarantining import Quarantined, Quarantining
from lakehouse_maintenance.execution.removing_orphans import orphans_of_table
from lakehouse_maintenance.execution.rolling_back import Rollback, roll_back
from lakehouse_maintenance.execution.running import run_table
from lakehouse_maintenance.execution.watching import Watched, watch
from lakehouse_maintenance.execution.work import LEASE_TTL, OrphanSettings, Run
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.explanations import Explanation
from lakehouse_maintenance.model.folders import FolderRequest, FolderRun
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName, TablePattern
from lakehouse_maintenance.model.orphans import OrphanReport, OrphanResult
from lakehouse_maintenance.model.outcomes import ApplyResult
from lakehouse_maintenance.model.plans import Plan, TablePlan
from lakehouse_maintenance.model.reviews import Review
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH
from lakehouse_maintenance.planning.budget import within_budget
from lakehouse_maintenance.planning.moment import resolve_moments
from lakehouse_maintenance.planning.orphan_action import DIGEST
from lakehouse_maintenance.planning.orphans import OrphanRequest, effective_age
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.reaching import evidence_of, storage_for, storage_of_entry
from lakehouse_maintenance.selecting import Catalogs, select_tables
from lakehouse_maintenance.state import State, open_configured

if TYPE_CHECKING:
    from lakehouse_maintenance.doctor import DoctorCheck
    from lakehouse_maintenance.evidence import Evidence
    from lakehouse_maintenance.execution.untracked import FolderJob


class Lakehouse:
    """Catalogs, state and policies of one `lakehouse.yaml`. Opening reads the file alone; catalogs open when needed."""

    def __init__(self, config: LakehouseConfig, state: State, progress: Progress | None = None) -> None:
        self.config = config
        self.state = state
        self.catalogs = Catalogs(config)
        self.progress: Progress = Silent() if progress is None else progress
        self._memory = Memory(state)

    @classmethod
    def open(cls, path: str | Path | None = None, *, progress: Progress | None = None) -> Lakehouse:
        """From a file, or where the command line would find it. Raises ConfigurationError."""
        config = load_config(path)
        return cls(config, open_configured(config.state), progress)

    def close(self) -> None:
        """Gives back connections to catalogs, for processes that open a lakehouse again and again."""
        self.catalogs.close()

    def tables(self, patterns: Sequence[str] = ()) -> list[TableName]:
        """Names that the patterns mean; all tables of the configured databases without any."""
        return select_tables(self.config, self.catalogs, patterns)

    def health(self, tables: Sequence[str] = (), *, exact: bool = False) -> list[TableHealth]:
        """Health of each table, from metadata alone. A table that cannot be read has `error` set.

        `exact`: manifests already read are not trusted but read again, and metadata files are looked up for their size.
        """
        return list(self.iter_health(self.tables(tables), exact=exact))

    def iter_health(self, names: Iterable[TableName], *, exact: bool = False) -> Iterator[TableHealth]:
        """As `health`, streamed, for names that are known to exist."""
        cache = None if exact else self.state.cache
        return measure_tables(map(self._target, names), self._memory, cache, self.progress, exact=exact)

    def plan(self, tables: Sequence[str] = (), request: Request | None = None) -> Plan:
        """What would be done and why, what is expected of it, and why the rest is left alone. Changes nothing.

        Without a request: what the policies make due, whatever the budget. Raises InputError for a bad request.
        """
        _check(request)
        return self.plan_for(self.tables(tables), request)

    def plan_for(self, names: Iterable[TableName], request: Request | None = None) -> Plan:
        """As `plan`, for names that need no looking up; one that does not exist is an entry with its error."""
        return self._planned(names, _check(request), searches=True)

    def apply(self, plan: Plan, *, run_id: str | None = None) -> ApplyResult:
        """Runs a plan; every file is checked again first, and what no longer fits is left alone.

        Raises InputError for a plan that is to remove orphan files and does not say which: nobody looked for them.
        """
        for table in plan.tables:
            for action in table.actions:
                if action.action is Action.REMOVE_ORPHAN_FILES and DIGEST not in action.options:
                    raise InputError(
                        f"the plan does not say which orphan files of {table.table} to remove",
                        field="tables",
                        hint=f"plan them: plan {table.table} --action remove_orphan_files --out FILE",
                    )
        run = self._run(plan.digest, run_id)
        targets = [self._planned_target(table) for table in plan.tables]
        pairs = zip(targets, plan.tables, strict=True)
        return ApplyResult(plan.digest, run.run_id, tuple(run_table(run, target, table) for target, table in pairs))

    def maintain(
        self,
        tables: Sequence[str] = (),
        request: Request | None = None,
        *,
        run_id: str | None = None,
        told: Callable[[Plan], None] = lambda plan: None,
    ) -> ApplyResult:
        """Plans and runs, table by table in the safe order: what the policies make due now within the budget, or what
        was asked for. Each action is planned from what the action before left.

        `told`: is given the first plan, before anything is done.
        """
        asked = _check(request)
        plan = self._affordable(self._planned(self.tables(tables), asked, searches=False), asked)
        told(plan)
        run = self._run(plan.digest, run_id)

        def afford(again: TablePlan) -> TablePlan:
            return self._affordable(Plan(plan.created_at, (again,)), asked).tables[0]

        outcomes = tuple(
            maintain_table(run, self._planned_target(table), table, asked, afford) for table in plan.tables
        )
        return ApplyResult(plan.digest, run.run_id, outcomes)

    def due(self, tables: Sequence[str] = (), request: Request | None = None) -> Plan:
        """What `maintain` would begin with: as `plan`, within today's budget where nobody asked for actions."""
        _check(request)
        return self.due_for(self.tables(tables), request)

    def due_for(self, names: Iterable[TableName], request: Request | None = None) -> Plan:
        """As `due`, for names that need no looking up."""
        return self._affordable(self.plan_for(names, request), request or Request())

    def _planned(self, names: Iterable[TableName], asked: Request, *, searches: bool) -> Plan:
        """`searches`: orphan files that are to be removed are looked for now, so that the plan says which."""
        _check(asked)
        run = self._run("", None)
        one_at_a_time = threading.Lock()

        def find(target: Target, wanted: OrphanRequest) -> OrphanResult:
            # A search fills the evidence that the others use, and lists with all the calls in flight that are good.
            with one_at_a_time:
                return orphans_of_table(run, target, wanted, run.orphans, delete=False)

        orphans = find if searches else None
        targets = map(self._target, names)
        planned = plan_tables(targets, self._memory, self.state.cache, self.progress, asked, orphans)
        return Plan(now_text(), tuple(planned))

    def _affordable(self, plan: Plan, asked: Request) -> Plan:
        budget = self.config.policies.default.budget
        if asked.actions is not None or budget is None or budget.bytes_per_day is None:
            return plan
        kept, _ = within_budget(plan.tables, budget.bytes_per_day, self._memory.spent_today())
        return Plan(plan.created_at, kept)

    def rollback(
        self,
        table: str,
        *,
        to: int | None = None,
        branch: str = MAIN_BRANCH,
        dry_run: bool = False,
        run_id: str | None = None,
    ) -> ApplyResult:
        """Moves a branch to another snapshot of the table, back or forward; no file is written or deleted.

        `to`: the snapshot's id; None: the one that the table's last failed verification named. Raises InputError
        where there is no such table, branch or snapshot, or no failed verification; then nothing was changed.
        """
        names = self.tables([table])
        if len(names) != 1:
            raise InputError(f"{table} means {len(names)} tables", field="table", hint="name one table")
        run = self._run("", run_id)
        digest, outcome = roll_back(run, self._target(names[0]), Rollback(to, branch, dry_run))
        return ApplyResult(digest, run.run_id, (outcome,))

    def orphans(
        self,
        tables: Sequence[str] = (),
        request: OrphanRequest | None = None,
        *,
        delete: bool = False,
        run_id: str | None = None,
    ) -> OrphanReport:
        """Files in the tables' folders that no table references: counted, and removed where `delete` says so.

        Raises InputError for a bad request before anything is read of any table.
        """
        names = self.tables(tables)
        run_id = run_id or new_run_id()
        return OrphanReport(run_id, tuple(self.iter_orphans(names, request, delete=delete, run_id=run_id)))

    def iter_orphans(
        self,
        names: Sequence[TableName],
        request: OrphanRequest | None = None,
        *,
        delete: bool = False,
        run_id: str | None = None,
    ) -> Iterator[OrphanResult]:
        """As `orphans`, table by table, for names that need no looking up. What one look at the catalogs told is used
        for the next table as far as nothing moved."""
        asked = request or OrphanRequest()
        asked.check()
        targets = [self._target(name) for name in names]
        for target in targets:
            effective_age(target.policy.remove_orphan_files, asked)
        if asked.plan_digest is not None and len(targets) != 1:
            raise InputError("a digest is of one table", field="plan_digest", hint="name that table alone")
        run = self._run("", run_id)
        is_alone = len(targets) == 1
        return (
            orphans_of_table(run, target, asked, run.orphans, delete=delete, is_alone=is_alone) for target in targets
        )

    def last_run_ms(self, name: TableName, action: str) -> int | None:
        """When an action last ended well on a table, in ms since 1970; None where that is not remembered."""
        return self._memory.table(str(name)).last_run_ms.get(action)

    def explain(self, path: str) -> Explanation:
        """Who owns an object or a folder now, and every decision about it that the journal knows. Changes nothing.

        Raises InputError for a text that is no location, StorageError where the journal cannot be read.
        """
        from lakehouse_maintenance.evidence.ownership import ownership
        from lakehouse_maintenance.execution.database_facts import World
        from lakehouse_maintenance.execution.explaining import past_decisions
        from lakehouse_maintenance.execution.folder_verdict import folder_verdict
        from lakehouse_maintenance.execution.objects import object_facts, our_own

        location = Location.parse(path)
        storage = storage_for(self.config, self.catalogs, location)
        found = our_own(self.state, self.config.quarantine.prefix, location)
        if found is None:
            found = ownership(self._evidence(), storage, location)
            if found.owned is False:
                found = replace(found, why=f"{found.why}; {object_facts(storage, location)}")
        world = World.see(self._evidence(), self.catalogs, self.progress)
        folder = folder_verdict(self.config, self.catalogs, self.state, world, location)
        return Explanation(found, tuple(past_decisions(self.state, path)), folder)

    def untracked_folders(
        self, file: str | Path, *, plan_digest: str | None = None, run_id: str | None = None
    ) -> FolderRun:
        """Runs the untracked table folders job of an `application.json` (seed 000), which is read unchanged.

        `plan_digest`: of a plan that a dry run told, for the run or one database: only folders that are still what it
        says are removed. Raises ConfigurationError and InputError before any catalog or store is asked.
        """
        from lakehouse_maintenance.config.untracked_job import load_untracked_job

        request, notes = load_untracked_job(file, self.config)
        return self._folder_job(replace(request, plan_digest=plan_digest), run_id, notes)()

    def reconcile(self, database: str, *, run_id: str | None = None) -> FolderRun:
        """Table folders of `catalog.database` that no table owns, by the policy in force. Removes nothing; what was
        found is remembered as the plan to review."""
        from lakehouse_maintenance.config.untracked_job import policy_request

        return self._folder_job(policy_request(self.config, database, removes=False), run_id)()

    def remove_folders(self, database: str, *, run_id: str | None = None) -> FolderRun:
        """Removes, by the policy in force, the folders of `catalog.database` that were approved and are still what was
        approved; all that nobody owns where the policy wants no review."""
        from lakehouse_maintenance.config.untracked_job import policy_request

        return self._folder_job(policy_request(self.config, database, removes=True), run_id)()

    def reviews(self) -> list[Review]:
        """Every plan that was found, with what was said of it; the latest first."""
        return self.state.reviews.all()

    def review_of(self, database: str) -> Review | None:
        """The latest plan of `catalog.database`; None where nothing is to be reviewed."""
        return self.state.reviews.latest(database)

    def approve(
        self, digest: str, folders: Sequence[str] | None = None, *, by: str, until: datetime | None = None
    ) -> list[Review]:
        """Approves folders of a plan, or all of them. `digest`: of a database's plan or of a run. Raises InputError,
        and records nothing, for a folder that is not in the plan and a plan that is not the latest."""
        return self.state.reviews.approve(digest, folders, by=by, until=until, now=datetime.now(UTC))

    def reject(self, digest: str, folders: Sequence[str] | None = None, *, by: str) -> list[Review]:
        """Rejects folders of a plan, or all of them; an approval is taken back. Raises InputError."""
        return self.state.reviews.reject(digest, folders, by=by, now=datetime.now(UTC))

    def _folder_job(self, request: FolderRequest, run_id: str | None, notes: Sequence[str] = ()) -> FolderJob:
        from lakehouse_maintenance.audit import FolderAudit
        from lakehouse_maintenance.execution.untracked import FolderJob

        audit = self.config.audit
        return FolderJob(
            run=self._run("", run_id),
            catalogs=self.catalogs,
            request=request,
            audit=FolderAudit(self.catalogs[audit.catalog or request.catalog], audit.namespace),
            aside=self.config.quarantine.prefix,
            notes=notes,
            mask=self.config.masker.mask,
        )

    def quarantined(self) -> list[Quarantined]:
        """Every entry of the quarantine, oldest first, those that were restored or purged included."""
        return self._quarantining(None).listed()

    def restore(self, entry_id: str, *, run_id: str | None = None) -> Quarantined:
        """Brings a quarantined folder, or the files of a table, back to where they were. Never overwrites anything.

        Where something lies there again, nothing is moved and the status is blocked. Raises InputError for an id that
        is none's, StorageError for an entry that is damaged.
        """
        return self._quarantining(run_id).restore(entry_id)

    def purge(
        self, entry_id: str | None = None, older_than: timedelta | None = None, *, run_id: str | None = None
    ) -> list[Quarantined]:
        """Deletes what lies in quarantine and whose time has passed: of one entry, or of all.

        `older_than`: since it was moved, in place of the time that the policy gave it. Raises as `restore`.
        """
        return self._quarantining(run_id).purge(entry_id, older_than)

    def watch(self, name: TableName) -> Watched:
        """One look at a table that is known to exist: its health, what is due whatever the budget, and when to look
        again though it does not change. Raises LakehouseError."""
        return watch(self._target(name), self._memory, self.state.cache)

    def spent_today(self) -> int:
        """Bytes that were read for rewriting since midnight UTC: what counts against the day's budget."""
        return self._memory.spent_today()

    def audit(self, *, last: int | None = None, table: str | None = None) -> list[Event]:
        """Events of the journal, oldest first; `last`: only so many of the newest.

        `table`: a name or pattern as everywhere, or `catalog.database` for what was done to a database; it need not
        exist any more. Raises InputError for no name.
        """
        if table is None:
            return self.state.journal.events(last=last)
        pattern = TablePattern.parse(table)
        only = next(iter(self.catalogs)) if len(self.catalogs) == 1 else None
        events = self.state.journal.events()
        found = [event for event in events if pattern.means(event.table, only_catalog=only)]
        return found if last is None else found[max(len(found) - last, 0) :]

    def doctor(self, *, write_test: bool = False) -> list[DoctorCheck]:
        """Looks at configuration, versions, each catalog, each store and the state. Changes nothing.

        `write_test`: a scratch object is written to each warehouse and removed again.
        """
        from lakehouse_maintenance.doctor import examine

        return examine(self.config, self.catalogs, self.state, write_test=write_test)

    def _target(self, name: TableName) -> Target:
        index = self.config.policy_index
        return Target(
            catalog=self.catalogs[name.catalog],
            name=name,
            policy=self.config.policy_for(name),
            named_by_policy=(name.catalog, *name.namespace, name.table) in index.tables,
            default_engine=self.config.engine.use,
            longest_reader=self.config.readers.longest,
        )

    def _planned_target(self, table: TablePlan) -> Target:
        name = TableName.parse(table.table)
        if name.catalog not in self.catalogs:
            raise InputError(
                f"the plan is for {table.table}, and no catalog {name.catalog} is configured",
                field="tables",
                hint="apply a plan with the configuration that it was made with",
            )
        return self._target(name)

    def _run(self, digest: str, run_id: str | None) -> Run:
        return Run(
            run_id=run_id or new_run_id(),
            owner=_owner(),
            digest=digest,
            state=self.state,
            memory=self._memory,
            cache=self.state.cache,
            progress=self.progress,
            memory_limit=self.config.engine.memory_limit,
            evidence=self._evidence(),
            orphans=OrphanSettings(self.config.limits, self.config.shared_locations, self.config.quarantine.prefix),
            shared_locations=self.config.shared_locations,
        )

    def _quarantining(self, run_id: str | None) -> Quarantining:
        from lakehouse_maintenance.execution.claims import Claims

        return Quarantining(
            state=self.state,
            run_id=run_id or new_run_id(),
            owner=_owner(),
            lease_ttl=LEASE_TTL,
            storage_of=lambda entry: storage_of_entry(self.config, self.catalogs, entry),
            progress=self.progress,
            claims_of=lambda entry: Claims(self.state, self._evidence(), entry),
        )

    def _evidence(self) -> Evidence:
        return evidence_of(self.config, self.catalogs, self.state)


def new_run_id() -> str:
    """A name for one run; it goes into the journal and into the snapshots that the run commits."""
    return str(uuid.uuid4())


def _owner() -> str:
    return f"{_user()}@{socket.gethostname()}:{os.getpid()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _check(request: Request | None) -> Request:
    """The request, of which nothing is wrong that can be told without a table. Raises InputError."""
    asked = request or Request()
    asked.check()
    if asked.where is not None:
        from lakehouse_maintenance.iceberg.filter_text import parse_filter

        parse_filter(resolve_moments(asked.where, now_ms()))
    return asked
