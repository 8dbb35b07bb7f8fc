"""Running a rewrite of data files: recheck, rewrite, commit, verify; what other writers outdate is redone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from lakehouse_maintenance.engines.embedded_iceberg.deletes import named_data_files
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Group, Rewriter
from lakehouse_maintenance.execution.clock import now_text
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.execution.shrinking import shrink_note
from lakehouse_maintenance.execution.traces import BASE, WRITING
from lakehouse_maintenance.execution.verify import verify_rewrite
from lakehouse_maintenance.execution.work import Run, Work, named_files
from lakehouse_maintenance.iceberg.commit import Base, Committed, Outdated, ReplaceCommit, Stamp
from lakehouse_maintenance.iceberg.replace import Replacement
from lakehouse_maintenance.iceberg.replacing import ReplaceGroups
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import (
    CommitConflictError,
    LakehouseError,
    StorageError,
    UnsupportedError,
)
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check
from lakehouse_maintenance.model.plans import FileGroup, PlannedAction, TablePlan
from lakehouse_maintenance.planning.compaction import recheck
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.state import Lease

ROUNDS = 4
"""How often groups that other writers outdate are read and written anew before we give up on them."""


def rewrite(
    run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work
) -> ActionOutcome:
    """Rewrites and commits the groups; those that other writers outdate are redone from fresh metadata."""
    options = RewriteOptions.from_text(action.options)
    done: dict[int, Replacement] = {}
    unsupported: dict[int, str] = {}
    committed: Committed | None = None
    for round_number in range(1, ROUNDS + 1):
        observed = observe(target.catalog, target.name, run.cache)
        refuse_blocked(observed.metadata, plan, target)
        fresh = _recheck(observed, action.groups, options, skip={*done, *unsupported})
        announce = _announcer(run, observed, action, work)
        _rewrite_groups(run, target, observed, fresh, options, lease, work, announce, done, unsupported)
        worthwhile = {index: group for index, group in done.items() if _gains(group)}
        work.groups_dropped = len(action.groups) - len(worthwhile)
        if not worthwhile:
            return _nothing_left(action, work, unsupported)
        try:
            committed = _commit(run, target, observed, list(worthwhile.values()), action, lease, work, announce)
        except Outdated as outdated:
            indices = list(worthwhile)
            for position, reason in outdated.reasons.items():
                done.pop(indices[position])
                work.notes.append(f"round {round_number}: a group was redone: {reason}")
            continue
        done = worthwhile
        break
    if committed is None:
        raise CommitConflictError(
            f"{plan.table}: other writers outdated the rewritten files {ROUNDS} times",
            field=plan.table,
            hint="nothing was changed; a settle time keeps compaction away from partitions that are being written",
        )
    return _finish(run, target, action, committed, list(done.values()), work)


def _recheck(
    observed: Observed, groups: Sequence[FileGroup], options: RewriteOptions, skip: set[int]
) -> dict[int, FileGroup]:
    """Groups that still make sense at the fresh head, by their number in the plan."""
    pending = {index: group for index, group in enumerate(groups) if index not in skip}
    if not pending:
        return {}
    paths = frozenset(file.path for group in pending.values() for file in group.files)
    current = observed.data_files(paths)
    deletes = observed.delete_index()
    state = observed.metadata.state()
    checked = {index: recheck(group, current, deletes, state, options) for index, group in pending.items()}
    return {index: group for index, group in checked.items() if group is not None}


def _announcer(run: Run, observed: Observed, action: PlannedAction, work: Work) -> Callable[[Sequence[str]], None]:
    """Makes paths durable before anything is written to them: a run that is killed leaves no file that nobody knows."""

    def announce(paths: Sequence[str]) -> None:
        event = Event(
            at=now_text(),
            run_id=run.run_id,
            table=str(observed.name),
            action=action.action,
            phase="intent",
            digest=run.digest,
            files=len(paths),
            details={WRITING: list(paths), "uuid": observed.metadata.uuid},
        )
        run.state.journal.record(event)
        work.announced.extend(paths)

    return announce


def _rewrite_groups(
    run: Run,
    target: Target,
    observed: Observed,
    groups: dict[int, FileGroup],
    options: RewriteOptions,
    lease: Lease,
    work: Work,
    announce: Callable[[Sequence[str]], None],
    done: dict[int, Replacement],
    unsupported: dict[int, str],
) -> None:
    """Reads and writes each group; `done` and `unsupported` learn the results by number."""
    if not groups:
        return
    table = target.catalog.load(target.name)
    name = str(target.name)
    rewriter = Rewriter(
        table=table,
        storage=observed.storage,
        memory_limit=run.memory_limit,
        progress=lambda files, size: run.progress.advance(name, files, size),
        announce=announce,
        written=work.written.append,
    )
    current = observed.data_files(frozenset(file.path for group in groups.values() for file in group.files))
    deletes = observed.delete_index()
    head = observed.metadata.head()
    assert head is not None, "groups were found, so there is a head"
    # Half-way between target and maximum, as Iceberg's writers do: an estimate that was a little low costs no file.
    roll = (options.target_file_size_bytes + options.max_file_size_bytes) // 2
    for index, group in groups.items():
        lease.check()
        files = tuple(current[file.path] for file in group.files)
        try:
            done[index] = rewriter.rewrite(Group(files, group.expected_files, head.sequence_number, roll), deletes)
        except UnsupportedError as error:
            unsupported[index] = describe(error)
            work.notes.append(f"a group was left alone: {describe(error)}")


def _gains(group: Replacement) -> bool:
    """What came out has to be worth a commit (IM-26), whatever was estimated."""
    return len(group.outputs) < len(group.inputs) or any(group.applied.values())


def _commit(
    run: Run,
    target: Target,
    observed: Observed,
    groups: Sequence[Replacement],
    action: PlannedAction,
    lease: Lease,
    work: Work,
    announce: Callable[[Sequence[str]], None],
) -> Committed:
    name = str(target.name)
    opener = Opener(observed.storage, target.catalog.load(target.name).io)
    targets: dict[tuple[str, int | None], frozenset[str] | None] = {}

    def on_attempt(snapshot_id: int, files: tuple[str, ...], base: Base) -> None:
        work.attempts += 1
        work.snapshot_ids.append(snapshot_id)
        work.in_flight = True
        work.written.extend(files)
        attempt = Event(
            at=now_text(),
            run_id=run.run_id,
            table=name,
            action=action.action,
            phase="intent",
            digest=run.digest,
            files=sum(len(group.inputs) for group in groups),
            bytes=sum(file.size for group in groups for file in group.inputs),
            details={
                "attempt": work.attempts,
                "snapshot_id": snapshot_id,
                BASE: asdict(base),
                "written": named_files(work.written),
            },
        )
        run.state.journal.record(attempt)

    def delete_targets(delete: Any) -> frozenset[str] | None:
        if delete.identity not in targets:
            targets[delete.identity] = named_data_files(delete, opener)
        return targets[delete.identity]

    commit = ReplaceCommit(
        catalog=target.catalog,
        name=target.name,
        uuid=observed.metadata.uuid,
        stamp=Stamp(run.run_id, action.action, run.digest),
        guard=lease.check,
        on_attempt=on_attempt,
        announce=announce,
        cache=run.cache,
    )
    try:
        committed = commit.run(ReplaceGroups(groups, delete_targets))
    except (Outdated, LakehouseError):
        # Told how it ended, CommitUnknownError included. Whatever else ends it (Ctrl-C) leaves that open.
        work.in_flight = False
        raise
    assert committed is not None, "groups always leave something to do"
    work.committed = committed
    work.in_flight = False
    return committed


def _nothing_left(action: PlannedAction, work: Work, unsupported: dict[int, str]) -> ActionOutcome:
    """Every group was dropped: the table changed since the plan, or the engine cannot do them."""
    if unsupported and len(unsupported) == len(action.groups):
        return ActionOutcome(
            action.action,
            Status.SKIPPED,
            asdict(action.expected),
            Actual(seconds=work.seconds(), groups_dropped=work.groups_dropped),
            error="unsupported: " + next(iter(unsupported.values())),
            notes=tuple(work.notes),
        )
    return ActionOutcome(
        action.action,
        Status.SKIPPED,
        asdict(action.expected),
        Actual(seconds=work.seconds(), groups_dropped=work.groups_dropped),
        error="the table changed since it was planned: nothing of the plan is worth doing any more",
        notes=tuple(work.notes),
    )


def _finish(
    run: Run,
    target: Target,
    action: PlannedAction,
    committed: Committed,
    groups: Sequence[Replacement],
    work: Work,
) -> ActionOutcome:
    actual = Actual(
        files=sum(len(group.outputs) for group in groups),
        bytes=sum(output["file_size_in_bytes"] for group in groups for output in group.outputs),
        seconds=work.seconds(),
        rewritten_data_files=sum(len(group.inputs) for group in groups),
        added_data_files=len(committed.added_files),
        removed_delete_files=committed.removed_delete_files,
        rows=sum(group.rows for group in groups),
        groups_done=len(groups),
        groups_dropped=work.groups_dropped,
        attempts=committed.attempts,
        rewritten_bytes=sum(file.size for group in groups for file in group.inputs),
    )
    read = actual.rewritten_bytes
    checks = _verify(run, target, committed, groups)
    try:
        run.memory.took(read, actual.seconds)
        run.memory.spend(read)
    except StorageError as error:
        # The table is as it should be; only what we remember of it is not.
        work.notes.append(f"not counted against the budget: {describe(error)}")
    failed = [check for check in checks if not check.passed]
    notes = [*work.notes, shrink_note(run, target, committed.snapshot_id, action.branch)]
    return ActionOutcome(
        action=action.action,
        status=Status.FAILED if failed else Status.DONE,
        expected=asdict(action.expected),
        actual=actual,
        snapshot_id=committed.snapshot_id,
        previous_snapshot_id=committed.previous_snapshot_id,
        verified=not failed,
        checks=checks,
        error=None
        if not failed
        else f"verification failed: {failed[0].name}: {failed[0].detail}; "
        f"roll back to snapshot {committed.previous_snapshot_id}",
        notes=tuple(notes),
    )


def _verify(run: Run, target: Target, committed: Committed, groups: Sequence[Replacement]) -> tuple[Check, ...]:
    try:
        observed = observe(target.catalog, target.name, run.cache)
        before = observed.metadata.snapshots.get(committed.previous_snapshot_id)
        after = observed.metadata.snapshots.get(committed.snapshot_id)
        if before is None or after is None:
            return (Check("rows_unchanged", False, "our snapshot, or the one before, is no longer in the table"),)
        return verify_rewrite(observed, before, after, groups)
    except LakehouseError as error:
        return (Check("rows_unchanged", False, f"could not be verified: {describe(error)}"),)
