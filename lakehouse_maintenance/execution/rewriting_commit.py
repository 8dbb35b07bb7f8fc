"""Committing rewritten groups in one snapshot, every attempt in the journal before it is made; and verifying it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lakehouse_maintenance.engines.embedded_iceberg.deletes import named_data_files
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.execution.committing import commit
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import Observed
from lakehouse_maintenance.execution.traces import GROUPS_LEFT
from lakehouse_maintenance.execution.verify import compared, verify_rewrite
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.commit import Committed
from lakehouse_maintenance.iceberg.metadata import Snapshot
from lakehouse_maintenance.iceberg.replace import Replacement
from lakehouse_maintenance.iceberg.replacing import ReplaceGroups
from lakehouse_maintenance.model.outcomes import Check
from lakehouse_maintenance.model.plans import PlannedAction
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.state import Lease


def commit_groups(
    run: Run,
    target: Target,
    observed: Observed,
    groups: Sequence[Replacement],
    action: PlannedAction,
    options: RewriteOptions,
    lease: Lease,
    work: Work,
    announce: Callable[[Sequence[str]], None],
    groups_left: int,
) -> Committed:
    """One snapshot on the action's branch; `work` learns of it. `groups_left`: to be committed after this one.

    Raises what ReplaceCommit.run raises.
    """
    opener = Opener(observed.storage, target.catalog.load(target.name).io)
    targets: dict[tuple[str, int | None], frozenset[str] | None] = {}
    sizes = [file.size for group in groups for file in group.inputs]

    def delete_targets(delete: Any) -> frozenset[str] | None:
        if delete.identity not in targets:
            targets[delete.identity] = named_data_files(delete, opener)
        return targets[delete.identity]

    change = ReplaceGroups(groups, delete_targets, keep_dangling=not options.remove_dangling_deletes)
    inputs, told = (len(sizes), sum(sizes)), {GROUPS_LEFT: groups_left}
    committed = commit(run, target, observed, action, lease, work, announce, change, lambda: inputs, told)
    assert committed is not None, "groups always leave something to do"
    return committed


def verify_commit(run: Run, target: Target, committed: Committed, groups: Sequence[Replacement]) -> tuple[Check, ...]:
    """Checks of one commit, from the table as it is now. Never raises for what concerns the table."""

    def compare(observed: Observed, before: Snapshot, after: Snapshot) -> tuple[Check, ...]:
        return verify_rewrite(observed, before, after, groups)

    return compared(target.catalog, target.name, run.cache, committed, "rows_unchanged", compare)
