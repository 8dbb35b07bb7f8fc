"""What Dagster shows of each table: `maintenance_state` → `maintenance_plan` → `maintained`, partitioned by table."""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.model.plans import Plan, TablePlan
from lakehouse_maintenance.orchestration import plans
from lakehouse_maintenance.orchestration.checks import MAINTAINED_CHECKS, STATE_CHECKS, health_check, outcome_checks
from lakehouse_maintenance.orchestration.facts import health_facts, outcome_facts, plan_facts
from lakehouse_maintenance.orchestration.failing import failed, failure
from lakehouse_maintenance.orchestration.measuring import measure
from lakehouse_maintenance.orchestration.naming import GROUP, MAINTAINED_KEY, PLAN_KEY, STATE_KEY
from lakehouse_maintenance.orchestration.partitions import tables_partitions
from lakehouse_maintenance.orchestration.resources import LakehouseResource
from lakehouse_maintenance.planning.tables import Request

if TYPE_CHECKING:
    from lakehouse_maintenance.lakehouse import Lakehouse

_KINDS = {"iceberg"}
_CODE_VERSION = "1"
"""Raised when the same table would give other results than before. Without one, every run would count as new code."""


class TableAction(Enum):
    """Actions that this release has. Dagster's configuration takes the names of the members: the actions' own."""

    rewrite_data_files = Action.REWRITE_DATA_FILES
    expire_snapshots = Action.EXPIRE_SNAPSHOTS
    remove_orphan_files = Action.REMOVE_ORPHAN_FILES


class PlanConfig(dg.Config):
    """What to plan, beyond what the policies make due."""

    actions: list[TableAction] = Field(
        default=[],
        description="Actions to plan, due or not, such as rewrite_data_files. Empty: what the policies of "
        "lakehouse.yaml make due now, within the day's budget; orphan files are left to the job orphan_files then.",
    )


class MaintainConfig(dg.Config):
    """How to apply the plan."""

    dry_run: bool = Field(
        default=False, description="Look up the plan and stop there: nothing is written, and the status is skipped."
    )


@dg.asset(
    key=STATE_KEY,
    partitions_def=tables_partitions,
    check_specs=STATE_CHECKS,
    group_name=GROUP,
    kinds=_KINDS,
    code_version=_CODE_VERSION,
    tags={"lakehouse_maintenance/step": "measure"},
    description="Health of the table, from its metadata alone: files, deletes, snapshots, manifests, what is due. "
    "Its data version changes with the table's snapshot and metadata, and with nothing else.",
)
def maintenance_state(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it by its bare name
    """Measures one table."""
    opened = lakehouse.open()
    try:
        measured = measure(opened, _table(context))
    except LakehouseError as error:
        raise failure(error, opened.config) from None
    return dg.MaterializeResult(
        metadata=health_facts(measured),
        data_version=dg.DataVersion(measured.data_version),
        check_results=[health_check(measured.health)],
    )


@dg.asset(
    key=PLAN_KEY,
    deps=[STATE_KEY],
    partitions_def=tables_partitions,
    group_name=GROUP,
    kinds=_KINDS,
    code_version=_CODE_VERSION,
    tags={"lakehouse_maintenance/step": "plan"},
    description="What would be done to the table, why, and what is expected of it; what is left alone, and why. "
    "Its data version is the plan's digest: the same findings give the same plan.",
)
def maintenance_plan(
    context: dg.AssetExecutionContext, config: PlanConfig, lakehouse: LakehouseResource
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Plans one table, and keeps the plan for `maintained`."""
    opened = lakehouse.open()
    name = _table(context)
    try:
        plan, table = _due(opened, name, _request(config))
        if table.error is not None:
            raise failed(table.error, Status.FAILED, opened.config)
        plans.keep(opened.state, name, plan)
    except LakehouseError as error:
        raise failure(error, opened.config) from None
    return dg.MaterializeResult(metadata=plan_facts(plan, table), data_version=dg.DataVersion(plan.digest))


def _request(config: PlanConfig) -> Request:
    # The job orphan_files looks at a whole database at once: here each table would ask all the others anew.
    return Request(
        actions=tuple(action.value for action in config.actions) or None,
        leave_out=frozenset({Action.REMOVE_ORPHAN_FILES}),
    )


def _due(lakehouse: "Lakehouse", name: TableName, request: Request) -> tuple[Plan, TablePlan]:
    """The plan for this very table, without a look at any other."""
    plan = lakehouse.due_for([name], request)
    return plan, plan.tables[0]


@dg.asset(
    key=MAINTAINED_KEY,
    deps=[PLAN_KEY],
    partitions_def=tables_partitions,
    check_specs=MAINTAINED_CHECKS,
    group_name=GROUP,
    kinds=_KINDS,
    code_version=_CODE_VERSION,
    tags={"lakehouse_maintenance/step": "apply"},
    description="The plan, applied: what was expected beside what came of it. Every file is checked again before it "
    "is touched. A table that failed, is blocked, or whose commit is unknown fails the run.",
)
def maintained(
    context: dg.AssetExecutionContext, config: MaintainConfig, lakehouse: LakehouseResource
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Applies the plan that `maintenance_plan` shows for this table."""
    opened = lakehouse.open()
    name = _table(context)
    try:
        plan = plans.kept(opened.state, name, plans.shown_digest(context.instance, context.partition_key))
        outcome = _apply(opened, plan, context.run.run_id, dry_run=config.dry_run)
    except LakehouseError as error:
        raise failure(error, opened.config) from None
    # Checks first: what verification found is on record also where the run fails for it.
    yield from outcome_checks(outcome)
    metadata = outcome_facts(outcome, plan, opened.config.masker.mask)
    if outcome.status not in (Status.DONE, Status.SKIPPED):
        # A lease that others hold, or a window that another service set, passes by itself.
        raise failed(
            f"{outcome.table}: {outcome.status}: {outcome.reason}",
            outcome.status,
            opened.config,
            metadata,
            retry=outcome.status is Status.BLOCKED,
        )
    yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(_left_at(plan, outcome)))


def _apply(lakehouse: "Lakehouse", plan: Plan, run_id: str, *, dry_run: bool) -> TableOutcome:
    table = plan.tables[0]
    if dry_run:
        planned = ", ".join(action.action for action in table.actions) or "nothing"
        return TableOutcome(table.table, Status.SKIPPED, f"dry run: nothing was changed; planned: {planned}")
    return lakehouse.apply(plan, run_id=run_id).tables[0]


def _left_at(plan: Plan, outcome: TableOutcome) -> str:
    """The snapshot that maintenance left, or saw last where it changed nothing."""
    committed = [action.snapshot_id for action in outcome.actions if action.snapshot_id is not None]
    return str(committed[-1] if committed else plan.tables[0].snapshot_id or "empty")


def _table(context: dg.AssetExecutionContext) -> TableName:
    try:
        return TableName.from_partition_key(context.partition_key)
    except LakehouseError as error:
        raise failure(error) from None


ASSETS = (maintenance_state, maintenance_plan, maintained)
