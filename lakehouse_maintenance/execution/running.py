"""Running one table's plan, under its lease, with everything in the journal.

In order, for each table:
  1. take the table's lease (nobody else of us works on it);
  2. finish what an earlier run left: intents without outcome (recovery), lists of files half removed (deleting);
  3. for each action: journal the intent, run it (rewriting, expiring), journal the outcome.
Each action looks at the table afresh and checks the plan again by the predicates that made it. Files of attempts that
did not become visible stay, and the journal names them.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.deleting import finish_open_lists
from lakehouse_maintenance.execution.expiring import expire
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.recovery import recover
from lakehouse_maintenance.execution.rewriting import rewrite
from lakehouse_maintenance.execution.work import Blocked, Run, Work, named_files
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import CommitUnknownError, LakehouseError, LeaseHeldError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, TableOutcome
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance.state import Lease

_logger = logging.getLogger(__name__)

LEASE_TTL = timedelta(minutes=2)
"""How long a killed run keeps others from its table. A living one renews its lease three times in this time."""


def run_table(run: Run, target: Target, plan: TablePlan) -> TableOutcome:
    """Runs what is planned for a table. Never raises for what concerns this table alone."""
    name = plan.table
    if plan.error is not None:
        return TableOutcome(name, Status.FAILED, plan.error)
    try:
        # What an earlier run left is looked up also where nothing is due: a lost answer, a list half removed.
        if not plan.actions and not run.memory.table(name).unresolved and not open_lists(run.state, name):
            return TableOutcome(name, Status.SKIPPED, _why_not(plan))
        with run.state.leases.acquire(name, run_id=run.run_id, owner=run.owner, ttl=LEASE_TTL) as lease:
            recover(run.state, run.memory, target, run.cache)
            left = "; ".join(finish_open_lists(run, target, lease))
            outcomes = _run_actions(run, target, plan, lease)
    except LeaseHeldError as error:
        return TableOutcome(name, Status.BLOCKED, describe(error))
    except LakehouseError as error:
        return TableOutcome(name, Status.FAILED, describe(error))
    if not outcomes:
        return TableOutcome(name, Status.FAILED, left) if left else TableOutcome(name, Status.SKIPPED, _why_not(plan))
    worst = next((o for o in outcomes if o.status is not Status.DONE), outcomes[0])
    if left and worst.status in (Status.DONE, Status.SKIPPED):
        return TableOutcome(name, Status.FAILED, left, tuple(outcomes))
    return TableOutcome(name, worst.status, "; ".join(filter(None, (worst.error, left))), tuple(outcomes))


def _why_not(plan: TablePlan) -> str:
    return "; ".join(f"{skip.action}: {skip.reason}" for skip in plan.skipped)


def _run_actions(run: Run, target: Target, plan: TablePlan, lease: Lease) -> list[ActionOutcome]:
    outcomes: list[ActionOutcome] = []
    for action in plan.actions:
        outcomes.append(_run_action(run, target, plan, action, lease))
        if outcomes[-1].status in (Status.UNKNOWN, Status.BLOCKED):
            break  # after an unknown commit nothing is cleaned up
    return outcomes


def _run_action(run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease) -> ActionOutcome:
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
        # Also after Ctrl-C: what was written is told, the lease is given back, nothing is half committed.
        _record_outcome(run, name, action, outcome, work)
        run.progress.end(name, outcome.status)
    return outcome


def _with_commit(outcome: ActionOutcome, work: Work) -> ActionOutcome:
    """The outcome, with what is known of the commit where something else ended the action."""
    if outcome.snapshot_id is not None or outcome.status is Status.UNKNOWN:
        return outcome
    if work.committed is not None:
        return replace(
            outcome,
            snapshot_id=work.committed.snapshot_id,
            previous_snapshot_id=work.committed.previous_snapshot_id,
            error=f"committed as snapshot {work.committed.snapshot_id}, but not verified: {outcome.error}",
        )
    if work.in_flight:
        return replace(
            outcome, status=Status.UNKNOWN, error=f"{outcome.error} during a commit, which may or may not be visible"
        )
    return outcome


_RUNNERS = {Action.REWRITE_DATA_FILES: rewrite, Action.EXPIRE_SNAPSHOTS: expire}


def _record_outcome(run: Run, name: str, action: PlannedAction, outcome: ActionOutcome, work: Work) -> None:
    if outcome.status is Status.UNKNOWN:
        run.memory.left_unresolved(name, run.run_id, action.action, work.snapshot_ids)
    details: dict[str, Any] = {
        "snapshot_id": outcome.snapshot_id,
        "previous_snapshot_id": outcome.previous_snapshot_id,
        "verified": outcome.verified,
        "expected": outcome.expected,
        "actual": asdict(outcome.actual),
        "notes": list(outcome.notes),
    }
    if outcome.status is not Status.DONE:
        details["error"] = outcome.error
        # Nothing of a failed or unknown run is cleaned up here: this is where it lies.
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
    if outcome.status is Status.DONE:
        run.memory.ran(name, action.action, now_ms())
