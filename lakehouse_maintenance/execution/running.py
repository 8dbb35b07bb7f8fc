"""Running one table's plan, under its lease, with everything in the journal.

In order, for each table:
  1. take the table's lease (nobody else of us works on it);
  2. finish what an earlier run left (recovery): intents without outcome, lists of files half removed, files that were
     written and not committed;
  3. for each action, in the safe order: journal the intent, run it (rewriting, expiring, …), journal the outcome;
  4. remove what this run wrote and did not commit, as far as it is proven. After an unknown commit nothing is.
Each action looks at the table afresh and checks the plan again by the predicates that made it. After one that failed,
is blocked or unknown nothing more is done to the table: what comes later builds on it, or deletes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.expiring import expire
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.orphan_action import remove
from lakehouse_maintenance.execution.pruning_metadata import intended_properties, prune
from lakehouse_maintenance.execution.recovery import Recovery, anything_left
from lakehouse_maintenance.execution.rewriting import rewrite
from lakehouse_maintenance.execution.rewriting_deletes import rewrite_deletes
from lakehouse_maintenance.execution.rewriting_manifests import rewrite_manifests
from lakehouse_maintenance.execution.setting_properties import set_properties
from lakehouse_maintenance.execution.work import LEASE_TTL, Blocked, Run, Work, named_files
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import CommitUnknownError, LakehouseError, LeaseHeldError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import NOT_RUN, ActionOutcome, Actual, Recovered, TableOutcome
from lakehouse_maintenance.model.plans import PlannedAction, Skip, TablePlan
from lakehouse_maintenance.model.procedures import procedure_results
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH
from lakehouse_maintenance.state import Lease

_logger = logging.getLogger(__name__)

STOPS = (Status.FAILED, Status.BLOCKED, Status.UNKNOWN)
"""After an action that ended so, no other is begun on the table."""


@dataclass
class Ran:
    """What was done to a table, as far as it went, and what was not and why."""

    outcomes: list[ActionOutcome] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)

    @property
    def stopped_by(self) -> ActionOutcome | None:
        """The action after which nothing more may be begun."""
        last = self.outcomes[-1] if self.outcomes else None
        return last if last is not None and last.status in STOPS else None

    def leave(self, action: str) -> None:
        """Tells that the action is not begun, since the one before it did not end well."""
        before = self.stopped_by
        assert before is not None, "nothing stands against the action"
        self.skipped.append(Skip(action, f"{NOT_RUN}{before.action} before it ended as {before.status}"))


Steps = Callable[[Lease], Ran]
"""Works on one table under its lease."""


def run_table(run: Run, target: Target, plan: TablePlan, steps: Steps | None = None) -> TableOutcome:
    """Runs what is planned for a table, exactly, or the steps in its place. Never raises for what concerns this table
    alone."""
    name = plan.table
    work = steps or (lambda lease: run_planned(run, target, plan, lease))
    if plan.error is not None:
        return TableOutcome(name, Status.FAILED, plan.error)
    recovery: Recovery | None = None
    try:
        # What an earlier run left is looked up also where nothing is due.
        if not plan.actions and not anything_left(run, name):
            return TableOutcome(name, Status.SKIPPED, _why_not(plan))
        with run.state.leases.acquire(name, run_id=run.run_id, owner=run.owner, ttl=LEASE_TTL) as lease:
            recovery = Recovery(run, target, lease)
            recovery.tell_outcomes()
            left = "; ".join(recovery.finish_lists())
            recovery.clean()
            ran = work(lease)
            _clean_up(recovery, name, ran.outcomes)
    except LeaseHeldError as error:
        if not plan.actions:
            # What is open there is the work of the run that holds the lease.
            return TableOutcome(name, Status.SKIPPED, _why_not(plan))
        return TableOutcome(name, Status.BLOCKED, describe(error))
    except LakehouseError as error:
        found = () if recovery is None else recovery.recovered
        return TableOutcome(name, Status.FAILED, describe(error), recovered=found)
    return _table_outcome(plan, ran, left, recovery.recovered)


_WORST_FIRST = (Status.UNKNOWN, Status.FAILED, Status.BLOCKED, Status.DONE, Status.SKIPPED)
"""A table that had one action done, and another with nothing left to do, is done."""


def _table_outcome(plan: TablePlan, ran: Ran, left: str, recovered: tuple[Recovered, ...]) -> TableOutcome:
    name, outcomes, skipped = plan.table, tuple(ran.outcomes), (*plan.skipped, *ran.skipped)
    if not outcomes:
        if left:
            return TableOutcome(name, Status.FAILED, left, recovered=recovered, skipped=skipped)
        return TableOutcome(name, Status.SKIPPED, _why_not(plan), recovered=recovered, skipped=skipped)
    worst = min(outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.status))
    if left and worst.status in (Status.DONE, Status.SKIPPED):
        return TableOutcome(name, Status.FAILED, left, outcomes, recovered, skipped)
    reason = "; ".join(filter(None, (worst.error, left)))
    return TableOutcome(name, worst.status, reason, outcomes, recovered, skipped)


def _clean_up(recovery: Recovery, name: str, outcomes: list[ActionOutcome]) -> None:
    """Our commits, too, make attempts of earlier runs void: what had to stay before may go now."""
    if not outcomes or any(outcome.status is Status.UNKNOWN for outcome in outcomes):
        return
    try:
        recovery.clean()
    except LakehouseError as error:
        # The actions are done and told; what lies about is remembered.
        _logger.warning("%s: what this run left is looked for by the next: %s", name, error)


def _why_not(plan: TablePlan) -> str:
    return "; ".join(f"{skip.action}: {skip.reason}" for skip in plan.skipped)


def run_planned(run: Run, target: Target, plan: TablePlan, lease: Lease) -> Ran:
    """The actions of a plan, in their order; what is not in the plan is not done."""
    ran = Ran()
    for action in plan.actions:
        if ran.stopped_by is not None:
            ran.leave(action.action)
        else:
            ran.outcomes.append(run_action(run, target, plan, action, lease))
    return ran


def run_action(run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease) -> ActionOutcome:
    """One action, with its intent and its outcome in the journal. Raises only what ends the process."""
    name = plan.table
    intent = Event(
        at=now_text(),
        run_id=run.run_id,
        table=name,
        action=action.action,
        phase="intent",
        digest=run.digest,
        files=action.inputs.files,
        bytes=action.inputs.bytes,
        details={
            "planned_at_snapshot": plan.snapshot_id,
            "groups": len(action.groups),
            "fence": lease.fence,
            "expires": list(action.snapshots),
            "sets": intended_properties(action),
        },
    )
    run.state.journal.record(intent)
    run.progress.begin(name, action.action, action.inputs.files, action.inputs.bytes)
    work = Work()
    outcome = ActionOutcome(action.action, Status.FAILED, asdict(action.expected), Actual(), error="interrupted")
    try:
        outcome = _RUNNERS[action.action](run, target, plan, action, lease, work)
    except CommitUnknownError as error:
        outcome = replace(outcome, status=Status.UNKNOWN, error=describe(error))
    except Blocked as blocked:
        outcome = replace(outcome, status=Status.BLOCKED, error=str(blocked))
    except LakehouseError as error:
        outcome = replace(outcome, error=describe(error))
    except Exception as error:
        # A fault of ours or of a library: it is this table's outcome, and must not stop the others.
        _logger.exception("%s: %s failed", name, action.action)
        outcome = replace(outcome, error=f"unexpected {type(error).__name__}: {error}")
    finally:
        outcome = _with_commit(outcome, work)
        if outcome.status is not Status.SKIPPED and not outcome.results:
            outcome = replace(outcome, results=procedure_results(outcome.action, outcome.actual))
        # Also after Ctrl-C: what was written is told, the lease is given back, nothing is half committed.
        _record_outcome(run, name, action, outcome, work)
        run.progress.end(name, outcome.status)
    return outcome


def _with_commit(outcome: ActionOutcome, work: Work) -> ActionOutcome:
    """The outcome, with what is known of commits where something else ended the action."""
    if outcome.snapshot_id is None and work.commits:
        outcome = replace(
            outcome,
            snapshot_id=work.commits[-1].snapshot_id,
            previous_snapshot_id=work.commits[0].previous_snapshot_id,
            snapshot_ids=tuple(committed.snapshot_id for committed in work.commits),
        )
        if outcome.status is not Status.UNKNOWN and not work.in_flight:
            done = ", ".join(str(committed.snapshot_id) for committed in work.commits)
            but = "and then ended" if work.verified == len(work.commits) else "but not verified"
            outcome = replace(outcome, error=f"committed as snapshot {done}, {but}: {outcome.error}")
    if work.in_flight and outcome.status is not Status.UNKNOWN:
        return replace(
            outcome, status=Status.UNKNOWN, error=f"{outcome.error} during a commit, which may or may not be visible"
        )
    return outcome


_RUNNERS = {
    Action.REWRITE_DATA_FILES: rewrite,
    Action.REWRITE_POSITION_DELETE_FILES: rewrite_deletes,
    Action.REWRITE_MANIFESTS: rewrite_manifests,
    Action.EXPIRE_SNAPSHOTS: expire,
    Action.SET_PROPERTIES: set_properties,
    Action.PRUNE_METADATA: prune,
    Action.REMOVE_ORPHAN_FILES: remove,
}


def _record_outcome(run: Run, name: str, action: PlannedAction, outcome: ActionOutcome, work: Work) -> None:
    if outcome.status is Status.UNKNOWN:
        run.memory.left_unresolved(name, run.run_id, action.action, work.snapshot_ids)
    if work.left_files():
        # Before the outcome closes the intents that announced them.
        run.memory.left_files(name, {"run_id": run.run_id, "action": action.action, "looks": 0})
    details: dict[str, Any] = {
        "snapshot_id": outcome.snapshot_id,
        "previous_snapshot_id": outcome.previous_snapshot_id,
        "snapshot_ids": [committed.snapshot_id for committed in work.commits],
        "verified": outcome.verified,
        "expected": outcome.expected,
        "actual": asdict(outcome.actual),
        "notes": list(outcome.notes),
    }
    if outcome.status is not Status.DONE:
        details["error"] = outcome.error
        # Where it lies, until it is proven that it may go.
        details["written"] = named_files(work.written)
        details["attempted_snapshots"] = work.snapshot_ids
    elif outcome.actual.attempts > 1 or work.notes:
        details["written"] = named_files(work.written)
    run.state.journal.record(
        Event(
            at=now_text(),
            run_id=run.run_id,
            table=name,
            action=action.action,
            phase="outcome",
            status=outcome.status,
            digest=run.digest,
            files=outcome.actual.files,
            bytes=outcome.actual.bytes,
            details=details,
        )
    )
    if outcome.status is Status.DONE and action.branch == MAIN_BRANCH:
        # Policies, and so cooldowns, are about main.
        run.memory.ran(name, action.action, now_ms())
