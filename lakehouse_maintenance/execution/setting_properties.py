"""Setting the table properties that a policy wants (IM-18)."""

from __future__ import annotations

from dataclasses import asdict

from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.properties import PropertiesCommit, are_set
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.model.properties import check_settable
from lakehouse_maintenance.state import Lease


def set_properties(
    run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work
) -> ActionOutcome:
    """Sets the planned properties, in one commit. One that somebody changes meanwhile is left as it is."""
    wanted = action.options
    for name, value in wanted.items():
        check_settable(name, value)  # a plan file is a person's word on what, not on whether the guards hold
    metadata = observe(target.catalog, target.name, run.cache).metadata
    refuse_blocked(metadata, plan, target)
    seen = {name: metadata.properties.get(name) for name in wanted}
    commit = PropertiesCommit(
        catalog=target.catalog,
        name=target.name,
        uuid=metadata.uuid,
        properties=wanted,
        seen=seen,
        guard=lease.check,
        is_done=lambda now: are_set(now, wanted),
        cache=run.cache,
    )
    try:
        committed = commit.run()
    finally:
        work.attempts = commit.attempted
    actual = Actual(seconds=work.seconds(), attempts=work.attempts)
    if not committed:
        error = "the table has the planned properties by now"
        return ActionOutcome(action.action, Status.SKIPPED, asdict(action.expected), actual, error=error)
    check = properties_set(target, run, wanted)
    return ActionOutcome(
        action=action.action,
        status=Status.DONE if check.passed else Status.FAILED,
        expected=asdict(action.expected),
        actual=actual,
        verified=check.passed,
        checks=(check,),
        error=None if check.passed else f"{check.name}: {check.detail}",
        notes=tuple(f"{name}: {_shown(seen[name])} → {value}" for name, value in wanted.items()),
    )


def properties_set(target: Target, run: Run, wanted: dict[str, str]) -> Check:
    """The table has the properties. Never raises for what concerns the table."""
    try:
        found = observe(target.catalog, target.name, run.cache).metadata.properties
    except LakehouseError as error:
        return Check("properties_set", False, f"could not be verified: {describe(error)}")
    missing = [f"{name} is {_shown(found.get(name))}" for name, value in wanted.items() if found.get(name) != value]
    return Check("properties_set", not missing, "; ".join(missing) or f"{len(wanted)} properties are set")


def _shown(value: str | None) -> str:
    return "unset" if value is None else value
