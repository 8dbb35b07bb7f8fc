"""Removing orphan files as an action of a table's plan, under the lease of the run that works on the table.

A reviewed plan holds the digest of what was found: what is found now has to be exactly that. A run that nobody reviews
removes what it finds, within the age and the limits of lakehouse.yaml. All guards are those of the verb `orphans`.
"""

from __future__ import annotations

from dataclasses import asdict

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.orphan_search import LOCATION
from lakehouse_maintenance.execution.removing_orphans import remove_orphans
from lakehouse_maintenance.execution.work import Blocked, Run, Work
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.planning.orphan_action import BLOCKED, DIGEST, request_of
from lakehouse_maintenance.planning.tables import REQUESTED
from lakehouse_maintenance.state import Lease


def remove(run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work) -> ActionOutcome:
    """Searches and removes. Where nobody asked for it and nothing can be concluded now, it is skipped: files that stay
    are no failure of a run that had other work to do."""
    by_policy = action.reason != REQUESTED and DIGEST not in action.options
    try:
        result = remove_orphans(run, target, request_of(action), run.orphans, lease, uuid=plan.uuid)
    except Blocked as blocked:
        result = OrphanResult(plan.table, Status.BLOCKED, str(blocked), dry_run=False)
    except InputError as error:
        if error.field != LOCATION:
            raise
        result = OrphanResult(plan.table, Status.SKIPPED, describe(error), dry_run=False)
    status = result.status
    if by_policy and status is Status.BLOCKED:
        status = Status.SKIPPED
        run.memory.ran(plan.table, BLOCKED, now_ms())
    actual = Actual(
        files=result.deleted_files,
        bytes=result.deleted_bytes,
        seconds=work.seconds(),
        deleted_files=result.deleted_files,
        deleted_bytes=result.deleted_bytes,
        kept_files=sum(kept.files for kept in result.kept),
        failed_files=len(result.failed),
        unknown_files=len(result.unknown),
    )
    notes = [f"{kept.files} files kept: {kept.reason}" for kept in result.kept]
    if status is Status.DONE and not result.orphan_files:
        notes.insert(0, f"no orphan files among {result.objects_listed} objects")
    if result.quarantine is not None:
        notes.append(f"moved aside, as quarantine entry {result.quarantine}")
    return ActionOutcome(
        action=action.action,
        status=status,
        expected=asdict(action.expected),
        actual=actual,
        verified=result.is_verified,
        error=None if status is Status.DONE else result.reason or None,
        notes=(*notes, *result.notes),
    )
