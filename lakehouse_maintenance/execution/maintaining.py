"""`maintain` on one table: each action planned from the metadata that the action before left (IM-11).

The first plan decides whether there is anything to do, and the budget. Under one lease its first action runs as it is
planned. Every later one is planned right before it, by the rules that made the first plan: what was due then may not be
any more, and what was not may be. Manifests are rewritten as compaction left them, snapshots expire that it left, and
orphan files are looked for last.

`apply` does not come here: a reviewed plan is run as it was reviewed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict

from lakehouse_maintenance.execution.making import Target, describe, plan_one
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.running import Ran, run_action, run_table
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, TableOutcome
from lakehouse_maintenance.model.plans import Expected, TablePlan
from lakehouse_maintenance.planning.order import SAFE_ORDER
from lakehouse_maintenance.planning.tables import AVAILABLE, Request
from lakehouse_maintenance.state import Lease

_logger = logging.getLogger(__name__)

Afford = Callable[[TablePlan], TablePlan]
"""The plan without what the budget has no room for now."""


def maintain_table(run: Run, target: Target, plan: TablePlan, request: Request, afford: Afford) -> TableOutcome:
    """Does what the plan says and what becomes due by it. Never raises for what concerns this table alone."""
    return run_table(run, target, plan, lambda lease: _in_order(run, target, plan, request, afford, lease))


def _in_order(run: Run, target: Target, first: TablePlan, request: Request, afford: Afford, lease: Lease) -> Ran:
    ran = Ran()
    planned = {action.action: action for action in first.actions}
    considered = {*planned, *(skip.action for skip in first.skipped)}
    for name in (action for action in SAFE_ORDER if action in considered and action in AVAILABLE):
        if ran.stopped_by is not None:
            if name in planned:
                ran.leave(name)
            continue
        plan, action = first, planned.get(name)
        if ran.outcomes:
            again = _plan_again(run, target, first, request, afford, name)
            if isinstance(again, ActionOutcome):
                ran.outcomes.append(again)
                continue
            plan, action = again, next(iter(again.actions), None)
            if action is None and name in planned:
                ran.skipped += again.skipped
        if action is not None:
            ran.outcomes.append(run_action(run, target, plan, action, lease))
    return ran


def _plan_again(
    run: Run, target: Target, first: TablePlan, request: Request, afford: Afford, name: Action
) -> TablePlan | ActionOutcome:
    """The plan of one action, from the table as it is now; a failure where that cannot be told."""
    try:
        observed = observe(target.catalog, target.name, run.cache)
        plan = plan_one(observed, target, run.memory, request, run.memory.throughput(), only=(name,))
    except LakehouseError as error:
        return _failed(name, describe(error))
    except Exception as error:
        # A fault of ours or of a library, met on this table: it must not stop the others.
        _logger.exception("%s: planning %s failed", target.name, name)
        return _failed(name, f"unexpected {type(error).__name__}: {error}")
    if plan.error is not None:
        return _failed(name, plan.error)
    if plan.uuid != first.uuid:
        return _failed(name, "the name became another table's")
    return afford(plan)


def _failed(name: Action, why: str) -> ActionOutcome:
    expected = asdict(Expected(files=0, bytes=0, seconds=0.0))
    return ActionOutcome(name, Status.FAILED, expected, Actual(), error=f"it could not be planned: {why}")
