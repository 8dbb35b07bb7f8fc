"""The planned rewrite of position delete files, or why there is none (IM-10). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.files import TableState
from lakehouse_maintenance.model.plans import Expected, Inputs, PlannedAction
from lakehouse_maintenance.model.support import AT_ONCE, ENCRYPTED_DELETES, ONLY_VECTORS
from lakehouse_maintenance.planning.position_deletes import PARTIAL_PROGRESS, DeletePlan, resolve
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions

PlanDeletes = Callable[[RewriteOptions, str], DeletePlan]
"""From the options and a branch's name: the groups of its head."""

SECONDS_A_FILE = 0.01
BYTES_A_SECOND = 20_000_000.0


def plan_position_deletes(
    state: TableState, plan_deletes: PlanDeletes | None, options: Mapping[str, str], reason: str, branch: str
) -> PlannedAction | str:
    """`plan_deletes`: None where nobody can look now. Raises InputError for options that do not fit the table."""
    resolved = resolve(options, state.properties)
    if options.get(PARTIAL_PROGRESS, "false").strip().lower() == "true":
        return f"unsupported: {AT_ONCE}"
    if state.format_version == 1:
        return "nothing to do: a table of format version 1 has no delete files"
    if state.format_version >= 3:
        return f"unsupported: {ONLY_VECTORS}"
    if "encryption" in state.features:
        return f"unsupported: {ENCRYPTED_DELETES}"
    plan = DeletePlan() if plan_deletes is None else plan_deletes(resolved, branch)
    left = "; ".join(f"{count} delete files {why}" for why, count in sorted(plan.left_alone.items()))
    if not plan.groups:
        return f"nothing to gain: {left or 'no position delete file is too small or needed by nothing'}"
    return PlannedAction(
        action=Action.REWRITE_POSITION_DELETE_FILES,
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=reason,
        inputs=Inputs(plan.files, plan.bytes),
        expected=Expected(
            files=plan.expected_files,
            bytes=plan.bytes,
            seconds=round(plan.files * SECONDS_A_FILE + plan.bytes / BYTES_A_SECOND, 3),
            fewer_files=0,
            fewer_deletes=plan.files - plan.expected_files,
        ),
        options=resolved.as_text(),
        groups=plan.groups,
        notes=(left,) if left else (),
        branch=branch,
    )
