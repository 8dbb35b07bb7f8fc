"""Running a rewrite of position delete files: recheck, rewrite, commit, verify; what others outdate is redone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial

from lakehouse_maintenance.engines.embedded_iceberg.position_rewrite import (
    DeleteGroup,
    DeleteRewriter,
    LiveData,
    RewrittenDeletes,
)
from lakehouse_maintenance.execution.committing import Announce, announcer, commit
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.execution.verify import compared
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.commit import Committed, Outdated
from lakehouse_maintenance.iceberg.metadata import Snapshot
from lakehouse_maintenance.iceberg.replacing_deletes import LAST_VERSION, ReplaceDeletes
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CommitConflictError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check
from lakehouse_maintenance.model.plans import FileGroup, PlannedAction, TablePlan
from lakehouse_maintenance.planning.position_deletes import by_file
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.state import Lease

ROUNDS = 4
"""How often groups that other writers outdate are read and written anew before we give up on them."""


def rewrite_deletes(
    run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work
) -> ActionOutcome:
    """Rewrites and commits those of the planned delete files that are still there and still gain anything."""
    options = RewriteOptions.from_text(action.options)
    planned = frozenset(file.path for group in action.groups for file in group.files)
    for round_number in range(1, ROUNDS + 1):
        observed = observe(target.catalog, target.name, run.cache)
        refuse_blocked(observed.metadata, plan, target)
        announce = announcer(run, observed, action, work)
        is_upgraded = observed.metadata.format_version > LAST_VERSION
        groups = () if is_upgraded else observed.delete_plan(options, action.branch, only=planned).groups
        done = _rewrite_groups(run, target, observed, action, groups, options, lease, work, announce)
        dropped = len(action.groups) - len(done)
        if not done:
            return _nothing_left(action, work, dropped)
        change = ReplaceDeletes([one.replacement for one in done])
        try:
            committed = commit(run, target, observed, action, lease, work, announce, change, partial(_inputs, done))
        except Outdated as outdated:
            work.notes += [f"round {round_number}: a group was redone: {why}" for why in outdated.reasons.values()]
            continue
        assert committed is not None, "groups always leave something to do"
        return _finish(run, target, action, committed, done, work, dropped)
    raise CommitConflictError(
        f"{plan.table}: other writers outdated the rewritten delete files {ROUNDS} times",
        field=plan.table,
        hint="nothing was changed; try again when the table is quieter",
    )


def _inputs(done: Sequence[RewrittenDeletes]) -> tuple[int, int]:
    sizes = [delete.size for one in done for delete in one.replacement.inputs]
    return len(sizes), sum(sizes)


def _rewrite_groups(
    run: Run,
    target: Target,
    observed: Observed,
    action: PlannedAction,
    groups: Sequence[FileGroup],
    options: RewriteOptions,
    lease: Lease,
    work: Work,
    announce: Announce,
) -> list[RewrittenDeletes]:
    """Those groups that can be rewritten and gain something by what was found in them."""
    head = observed.metadata.head(action.branch)
    if not groups or head is None:
        return []
    wanted = frozenset(file.path for group in groups for file in group.files)
    current = {delete.path: delete for delete in _deletes(observed, head) if delete.path in wanted}
    data = _data_of(observed, head, current.values())
    rewriter = _rewriter(run, target, observed, work, announce)
    # Half-way between target and maximum, as Iceberg's writers do.
    roll = (options.target_file_size_bytes + options.max_file_size_bytes) // 2
    done: list[RewrittenDeletes] = []
    for group in groups:
        lease.check()
        files = tuple(current[file.path] for file in group.files)
        try:
            made = rewriter.rewrite(DeleteGroup(files, by_file(files, observed.metadata.properties), roll), data)
        except UnsupportedError as error:
            work.notes.append(f"{len(files)} delete files were left alone: {describe(error)}")
            continue
        if len(made.replacement.outputs) < len(files):
            done.append(made)
        run.progress.advance(str(target.name), len(files), group.bytes)
    return done


def _rewriter(run: Run, target: Target, observed: Observed, work: Work, announce: Announce) -> DeleteRewriter:
    table = target.catalog.load(target.name)
    return DeleteRewriter(table, observed.storage, run.memory_limit, announce, work.written.append)


def _deletes(observed: Observed, snapshot: Snapshot) -> Iterable[LiveFile]:
    found = observed.reader.manifests(snapshot)
    return observed.reader.live_files(m for m in found if m.deletes and m.live_files != 0)


def _data_of(observed: Observed, snapshot: Snapshot, deletes: Iterable[LiveFile]) -> LiveData:
    """Data files that one of these deletes can name."""
    partitions, paths = set(), set()
    for delete in deletes:
        partitions.add(delete.partition_id)
        paths.add(delete.referenced_data_file)
    found: dict[str, list[LiveFile]] = {}
    manifests = (m for m in observed.reader.manifests(snapshot) if not m.deletes and m.live_files != 0)
    for file in observed.reader.live_files(manifests):
        if file.partition_id in partitions or file.path in paths:
            found.setdefault(file.path, []).append(file)
    return found


def _nothing_left(action: PlannedAction, work: Work, dropped: int) -> ActionOutcome:
    return ActionOutcome(
        action.action,
        Status.SKIPPED,
        asdict(action.expected),
        Actual(seconds=work.seconds(), groups_dropped=max(dropped, 0)),
        error="nothing of the plan is worth doing any more: the table changed, or the groups could not be rewritten",
        notes=tuple(work.notes),
    )


def _finish(
    run: Run,
    target: Target,
    action: PlannedAction,
    committed: Committed,
    done: Sequence[RewrittenDeletes],
    work: Work,
    dropped: int,
) -> ActionOutcome:
    count, size = _inputs(done)
    outputs = [output for one in done for output in one.replacement.outputs]
    added = sum(output["file_size_in_bytes"] for output in outputs)
    check = _verify(run, target, committed, done, work)
    roll_back = f"roll back to snapshot {committed.previous_snapshot_id}"
    return ActionOutcome(
        action=action.action,
        status=Status.DONE if check.passed else Status.FAILED,
        expected=asdict(action.expected),
        actual=Actual(
            files=len(outputs),
            bytes=added,
            seconds=work.seconds(),
            removed_delete_files=committed.removed_delete_files,
            groups_done=len(done),
            groups_dropped=max(dropped, 0),
            attempts=committed.attempts,
        ),
        snapshot_id=committed.snapshot_id,
        snapshot_ids=(committed.snapshot_id,),
        previous_snapshot_id=committed.previous_snapshot_id,
        verified=check.passed,
        checks=(check,),
        error=None if check.passed else f"verification failed: {check.name}: {check.detail}; {roll_back}",
        notes=(*work.notes, "storage shrinks when the snapshots before this one expire"),
        results={
            "rewritten_delete_files_count": count,
            "added_delete_files_count": len(outputs),
            "rewritten_bytes_count": size,
            "added_bytes_count": added,
        },
    )


def _verify(run: Run, target: Target, committed: Committed, done: Sequence[RewrittenDeletes], work: Work) -> Check:
    """The outputs delete the positions that the inputs deleted, in every data file that is live after the commit; all
    other delete files are as before."""
    name = "deletes_unchanged"

    def compare(observed: Observed, before: Snapshot, after: Snapshot) -> tuple[Check, ...]:
        return (_compare(name, run, target, observed, before, after, done, work),)

    return compared(target.catalog, target.name, run.cache, committed, name, compare)[0]


def _compare(
    name: str,
    run: Run,
    target: Target,
    observed: Observed,
    before: Snapshot,
    after: Snapshot,
    done: Sequence[RewrittenDeletes],
    work: Work,
) -> Check:
    inputs = {delete.path for one in done for delete in one.replacement.inputs}
    outputs = {output["file_path"] for one in done for output in one.replacement.outputs}
    now = {delete.path: delete for delete in _deletes(observed, after)}
    others = {delete.path: delete for delete in _deletes(observed, before) if delete.path not in inputs}
    if {path: delete for path, delete in now.items() if path not in outputs} != others:
        return Check(name, False, "delete files that were not rewritten have changed")
    rewriter = _rewriter(run, target, observed, work, lambda paths: None)
    data = _data_of(observed, after, (delete for one in done for delete in one.replacement.inputs))
    rows = 0
    for one in done:
        files = [now[output["file_path"]] for output in one.replacement.outputs if output["file_path"] in now]
        if len(files) != len(one.replacement.outputs):
            return Check(name, False, "a delete file that was written is not in the table")
        expected = {path: digest for path, digest in one.effective.items() if path in data}
        if rewriter.effective(files, data) != expected:
            return Check(name, False, f"{files[0].path if files else 'nothing'} deletes other positions than before")
        rows += sum(file.records for file in files)
    return Check(name, True, f"{len(outputs)} files delete the same {rows} positions; {len(others)} others as before")
