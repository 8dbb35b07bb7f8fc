"""What every action asks of a table right before it works on it, whatever the plan said when it was made."""

from __future__ import annotations

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.work import Blocked
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.errors import TableError
from lakehouse_maintenance.model.plans import TablePlan
from lakehouse_maintenance.planning.blocks import block


def refuse_blocked(metadata: Metadata, plan: TablePlan | None, target: Target) -> None:
    """Raises TableError where the name is another table's by now, Blocked where somebody's word keeps us from it."""
    if plan is not None and plan.uuid is not None and metadata.uuid != plan.uuid:
        raise TableError(f"{plan.table} is another table than the planned one", field=plan.table, hint="plan anew")
    reason = block(metadata.state(), now_ms=now_ms(), named_by_policy=target.named_by_policy)
    if reason is not None:
        raise Blocked(reason)
