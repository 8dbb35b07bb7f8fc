"""The daily budget: what triggered work may read, spent where it gains most for its cost (DG-06). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakehouse_maintenance.model.actions import LEAVES_DATA
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.plans import PlannedAction, Skip, TablePlan


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A planned action that has to wait for another day."""

    table: str
    action: str
    reason: str


def within_budget(
    plans: Sequence[TablePlan], budget_bytes: int | None, spent_bytes: int
) -> tuple[tuple[TablePlan, ...], tuple[OverBudget, ...]]:
    """The plans in their order, with what the budget has no room for moved to `skipped`; and what was moved.

    `budget_bytes`: bytes that may be read for rewriting in a day, None for no limit; `spent_bytes`: read today
    already. Actions are taken by files gained (data and delete files) for each byte read, best first; one that does
    not fit leaves room for smaller ones after it. Actions that read nothing cost nothing.
    """
    if budget_bytes is None:
        return tuple(plans), ()
    left = max(budget_bytes - spent_bytes, 0)
    ranked = sorted(
        ((position, index) for position, plan in enumerate(plans) for index in range(len(plan.actions))),
        # The table's name settles ties, so that the same plans are always cut the same way.
        key=lambda at: (-value(plans[at[0]].actions[at[1]]), plans[at[0]].table, at[1]),
    )
    refused: dict[tuple[int, int], OverBudget] = {}
    for position, index in ranked:
        action = plans[position].actions[index]
        if action.action in LEAVES_DATA:
            continue  # they delete their inputs, and read none of them
        if action.inputs.bytes <= left:
            left -= action.inputs.bytes
        else:
            reason = _reason(action.inputs.bytes, budget_bytes, left)
            refused[position, index] = OverBudget(plans[position].table, action.action, reason)
    kept = tuple(_without(plan, position, refused) for position, plan in enumerate(plans))
    return kept, tuple(refused[at] for at in sorted(refused))


def value(action: PlannedAction) -> float:
    """Files gained, of both kinds, for each byte that has to be read."""
    gain = action.expected.fewer_files + action.expected.fewer_deletes
    return gain / max(action.inputs.bytes, 1)


def _reason(needed: int, budget: int, left: int) -> str:
    if needed > budget:
        return f"budget: it reads {format_size(needed)}, more than a whole day's budget of {format_size(budget)}"
    return f"budget: it reads {format_size(needed)}, and {format_size(left)} of today's {format_size(budget)} are left"


def _without(plan: TablePlan, position: int, refused: dict[tuple[int, int], OverBudget]) -> TablePlan:
    gone = [refused[position, index] for index in range(len(plan.actions)) if (position, index) in refused]
    if not gone:
        return plan
    actions = tuple(action for index, action in enumerate(plan.actions) if (position, index) not in refused)
    return replace(plan, actions=actions, skipped=plan.skipped + tuple(Skip(o.action, o.reason) for o in gone))
