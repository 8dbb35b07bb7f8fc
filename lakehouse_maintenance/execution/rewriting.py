"""Running a rewrite of data files: recheck, rewrite, commit, verify; what other writers outdate is redone.

Groups are rewritten several at once and committed together, in one snapshot. With `partial-progress.enabled` they are
committed in up to `partial-progress.max-commits` snapshots as they are done, each verified before the next is made.
Then a group that fails is left out and told, and what was committed before a failure stays done. Without it, the first
failure ends the action, and nothing was committed. A group that the engine cannot do (UnsupportedError) is left alone
either way. After a commit whose result is unknown, or whose verification failed, no other is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace

from lakehouse_maintenance.execution.committing import announcer
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.execution.rewriting_commit import commit_groups, verify_commit
from lakehouse_maintenance.execution.rewriting_groups import fresh_groups, rewritten_groups
from lakehouse_maintenance.execution.row_verification import row_hash
from lakehouse_maintenance.execution.shrinking import shrink_note
from lakehouse_maintenance.execution.work import Blocked, Run, Work
from lakehouse_maintenance.iceberg.commit import Committed, Outdated
from lakehouse_maintenance.iceberg.moved import is_moved
from lakehouse_maintenance.iceberg.replace import Replacement
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import (
    CommitConflictError,
    CommitUnknownError,
    LakehouseError,
    LeaseLostError,
    StorageError,
    UnsupportedError,
)
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.planning.compaction import gains_order
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.sizing import is_split
from lakehouse_maintenance.state import Lease

_logger = logging.getLogger(__name__)

ROUNDS = 4
"""How often groups that other writers outdate are read and written anew before we give up on them."""


@dataclass(frozen=True, slots=True)
class Part:
    """One commit of ours, what it holds, and what its verification says."""

    committed: Committed
    groups: tuple[Replacement, ...]
    checks: tuple[Check, ...]

    @property
    def failed(self) -> Check | None:
        """The first check that failed."""
        return next((check for check in self.checks if not check.passed), None)


class _Ended(Exception):
    """No other commit is made; the text says why."""


def rewrite(
    run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work
) -> ActionOutcome:
    """Rewrites and commits the groups; those that other writers outdate are redone from fresh metadata."""
    going = _Rewriting(run, target, plan, action, lease, work, RewriteOptions.from_text(action.options))
    try:
        going.all_rounds()
    except _Ended as ended:
        return going.outcome(Status.FAILED, str(ended))
    except (LakehouseError, Blocked) as error:
        if not going.parts:
            raise
        # What is committed stays done, and is told beside the failure.
        status = Status.UNKNOWN if isinstance(error, CommitUnknownError) else Status.FAILED
        return going.outcome(status, describe(error) if isinstance(error, LakehouseError) else str(error))
    return going.outcome(Status.DONE, None)


@dataclass
class _Rewriting:
    """One rewrite as it goes. Groups are named by their number in the plan.

    `done`: written, and not committed yet. `redo`: outdated by other writers in this round. `dropped`: came out without
    a gain. `failed`: why they are not done; `lost`: those of a commit that was refused for good (both with partial
    progress). `tried`: commits that were made or refused for good.
    """

    run: Run
    target: Target
    plan: TablePlan
    action: PlannedAction
    lease: Lease
    work: Work
    options: RewriteOptions
    done: dict[int, Replacement] = field(default_factory=dict)
    redo: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    unsupported: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    parts: list[Part] = field(default_factory=list)
    tried: int = 0
    failed_commits: int = 0

    def all_rounds(self) -> None:
        """Raises _Ended, and what ends the action as a whole."""
        for number in range(1, ROUNDS + 1):
            self._round(number)
            if not self.redo:
                return
        why = f"other writers outdated the rewritten files {ROUNDS} times"
        if not self.options.partial_progress:
            raise CommitConflictError(
                f"{self.plan.table}: {why}",
                field=self.plan.table,
                hint="nothing was changed; a settle time keeps compaction away from partitions that are being written",
            )
        for index in sorted(self.redo):
            self._fail(index, why, self.failed)

    def _round(self, number: int) -> None:
        """Reads, writes and commits what is not settled yet, from fresh metadata."""
        observed = observe(self.target.catalog, self.target.name, self.run.cache).on(self.action.branch)
        refuse_blocked(observed.metadata, self.plan, self.target)
        self.redo.clear()
        skip = {*self.done, *self.dropped, *self.unsupported, *self.failed, *self.lost, *self.committed}
        fresh = fresh_groups(observed, self.action.groups, self.options, skip)
        announce = announcer(self.run, observed, self.action, self.work)
        left = set(fresh)
        results = rewritten_groups(
            self.run, self.target, observed, fresh, self.options, self.work, announce, self.lease.check
        )
        with closing(results):
            for index, result in results:
                left.discard(index)
                self._take(index, result)
                if self._is_commit_due():
                    self._commit(observed, announce, number, len(left))
        while self.done and not self._waits_for_redone(number):
            self._commit(observed, announce, number, 0)

    def _take(self, index: int, result: Replacement | Exception) -> None:
        if isinstance(result, Replacement):
            if self._gains(result):
                self.done[index] = result
            else:
                self.dropped.add(index)
        elif isinstance(result, UnsupportedError):
            self.unsupported[index] = describe(result)
            self.work.notes.append(f"a group was left alone: {describe(result)}")
        elif isinstance(result, LeaseLostError) or not self.options.partial_progress:
            raise result
        elif isinstance(result, LakehouseError):
            self._fail(index, describe(result), self.failed)
        else:
            _logger.error("%s: a group failed", self.plan.table, exc_info=result)
            self._fail(index, f"unexpected {type(result).__name__}: {result}", self.failed)

    def _fail(self, index: int, why: str, among: dict[int, str]) -> None:
        among[index] = why
        group = self.action.groups[index]
        self.work.notes.append(f"a group of {len(group.files)} files was not rewritten: {why}")

    def _gains(self, group: Replacement) -> bool:
        """What came out has to be worth a commit (IM-26), whatever was estimated."""
        inputs, outputs = len(group.inputs), len(group.outputs)
        largest = max(file.size for file in group.inputs)
        if outputs < inputs or any(group.applied.values()) or is_split(inputs, outputs, largest, self.options):
            return True
        if is_moved(group):
            return True
        return outputs == inputs and gains_order(group.inputs, self.options)

    @property
    def _commits_left(self) -> int:
        return (self.options.max_commits if self.options.partial_progress else 1) - self.tried

    def _is_commit_due(self) -> bool:
        """Before all groups are done: with partial progress, but for the last commit, which takes all that is left."""
        if not self.options.partial_progress or self._commits_left <= 1:
            return False
        return len(self.done) >= -(-len(self.action.groups) // self.options.max_commits)

    def _waits_for_redone(self, number: int) -> bool:
        """Groups that are redone in the next round go into the last commit together with those that wait for it."""
        is_last = number == ROUNDS and self.options.partial_progress
        return bool(self.redo) and self._commits_left <= 1 and not is_last

    def _commit(self, observed: Observed, announce: Callable[[Sequence[str]], None], number: int, in_work: int) -> None:
        """One snapshot of all groups that are done, verified. `in_work`: groups of this round that are not done yet."""
        indices = sorted(self.done)
        groups = tuple(self.done[index] for index in indices)
        try:
            committed = commit_groups(
                *(self.run, self.target, observed, groups, self.action, self.options),
                *(self.lease, self.work, announce, in_work + len(self.redo)),
            )
        except Outdated as outdated:
            for position, reason in outdated.reasons.items():
                self.done.pop(indices[position])
                self.redo.add(indices[position])
                self.work.notes.append(f"round {number}: a group was redone: {reason}")
            return
        except CommitConflictError as error:
            if not self.options.partial_progress:
                raise
            self._commit_failed(indices, error)
            return
        self.tried += 1
        self.done.clear()
        self.committed.update(indices)
        checks = verify_commit(self.run, self.target, committed, groups)
        if self.options.verify_rows and all(check.passed for check in checks):
            checks += (row_hash(self.target, self.run.cache, committed, groups, self.run.memory_limit),)
        part = Part(committed, groups, checks)
        self.parts.append(part)
        self._spend(part)
        if part.failed is not None:
            raise _Ended(
                f"verification failed: {part.failed.name}: {part.failed.detail}; "
                f"roll back to snapshot {committed.previous_snapshot_id}"
            )
        self.work.verified += 1

    def _commit_failed(self, indices: Sequence[int], error: CommitConflictError) -> None:
        self.tried += 1
        self.failed_commits += 1
        for index in indices:
            self.done.pop(index)
            self._fail(index, describe(error), self.lost)
        if self.failed_commits > self.options.max_failed_commits:
            raise _Ended(
                f"{self.failed_commits} commits failed, more than partial-progress.max-failed-commits "
                f"({self.options.max_failed_commits}); the last by: {describe(error)}"
            )

    def _spend(self, part: Part) -> None:
        try:
            self.run.memory.spend(sum(file.size for group in part.groups for file in group.inputs))
        except StorageError as error:
            # The table is as it should be; only what we remember of it is not.
            self.work.notes.append(f"not counted against the budget: {describe(error)}")

    def outcome(self, status: Status, error: str | None) -> ActionOutcome:
        """What is told. `status`, `error`: how the rounds ended."""
        not_done = {**self.failed, **self.lost}
        if not self.parts and not not_done and error is None:
            return self._nothing_left()
        # Commits that lost against other writers are let pass, up to max-failed-commits, if any was made at all.
        if error is None and (self.failed or not self.parts):
            status, error = Status.FAILED, f"{len(not_done)} groups were not rewritten: {next(iter(not_done.values()))}"
        groups = [group for part in self.parts for group in part.groups]
        commits = [part.committed for part in self.parts]
        unverified = next((part for part in self.parts if part.failed is not None), None)
        actual = Actual(
            files=sum(len(group.outputs) for group in groups),
            bytes=sum(output["file_size_in_bytes"] for group in groups for output in group.outputs),
            seconds=self.work.seconds(),
            rewritten_data_files=sum(len(group.inputs) for group in groups),
            added_data_files=sum(len(committed.added_files) for committed in commits),
            removed_delete_files=sum(committed.removed_delete_files for committed in commits),
            rows=sum(group.rows for group in groups),
            groups_done=len(groups),
            groups_dropped=len(self.action.groups) - len(groups) - len(not_done),
            attempts=sum(committed.attempts for committed in commits),
            rewritten_bytes=sum(file.size for group in groups for file in group.inputs),
            failed_data_files=sum(len(self.action.groups[index].files) for index in not_done),
            groups_failed=len(not_done),
            failed_commits=self.failed_commits,
        )
        self._remember_speed(groups, actual.seconds)
        self._remember_order(status)
        notes = list(self.work.notes)
        if commits:
            notes.append(shrink_note(self.run, self.target, commits[-1].snapshot_id, self.action.branch))
        if error is not None and unverified is None and commits:
            named = ", ".join(str(committed.snapshot_id) for committed in commits)
            error = f"{len(groups)} of {len(self.action.groups)} groups are committed (snapshot {named}); {error}"
        before = None if not commits else commits[0] if unverified is None else unverified.committed
        return ActionOutcome(
            action=self.action.action,
            status=status,
            expected=asdict(self.action.expected),
            actual=actual,
            snapshot_id=commits[-1].snapshot_id if commits else None,
            previous_snapshot_id=before.previous_snapshot_id if before is not None else None,
            verified=unverified is None if commits else None,
            checks=_of_all(self.parts),
            error=error,
            notes=tuple(notes),
            snapshot_ids=tuple(committed.snapshot_id for committed in commits),
        )

    def _remember_speed(self, groups: Sequence[Replacement], seconds: float) -> None:
        try:
            self.run.memory.took(sum(file.size for group in groups for file in group.inputs), seconds)
        except StorageError as error:
            self.work.notes.append(f"its speed is not remembered: {describe(error)}")

    def _remember_order(self, status: Status) -> None:
        if self.options.reorder is None or self.options.sort_order is None or status is not Status.DONE:
            return
        try:
            name = str(self.target.name)
            self.run.memory.brought_into_order(name, self.options.sort_order, self.options.reorder[1])
        except StorageError as error:
            self.work.notes.append(f"its order is not remembered: {describe(error)}")

    def _nothing_left(self) -> ActionOutcome:
        """Every group was dropped: the table changed since the plan, or the engine cannot do them."""
        why = "the table changed since it was planned: nothing of the plan is worth doing any more"
        if self.unsupported and len(self.unsupported) == len(self.action.groups):
            why = "unsupported: " + next(iter(self.unsupported.values()))
        return ActionOutcome(
            self.action.action,
            Status.SKIPPED,
            asdict(self.action.expected),
            Actual(seconds=self.work.seconds(), groups_dropped=len(self.action.groups)),
            error=why,
            notes=tuple(self.work.notes),
        )


def _of_all(parts: Sequence[Part]) -> tuple[Check, ...]:
    """One check of each name: the one that failed, else the last commit's."""
    found: dict[str, Check] = {}
    for check in (check for part in parts for check in part.checks):
        if check.name not in found or found[check.name].passed:
            found[check.name] = check
    if len(parts) == 1:
        return tuple(found.values())
    return tuple(replace(check, detail=f"{check.detail} (of {len(parts)} commits)") for check in found.values())
