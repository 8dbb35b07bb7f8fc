"""Running a rewrite of manifests: recheck, stage and commit from each head anew, verify that no entry changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from lakehouse_maintenance.execution.committing import announcer, commit
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.execution.verify import compared
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.commit import Committed
from lakehouse_maintenance.iceberg.entry_sets import moved_entries
from lakehouse_maintenance.iceberg.manifests import ManifestFile
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.partition_ranges import manifest_facts
from lakehouse_maintenance.iceberg.rewriting_manifests import RewriteManifests
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.planning.manifests import ManifestOptions, plan_manifests
from lakehouse_maintenance.state import Lease


def rewrite_manifests(
    run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work
) -> ActionOutcome:
    """Rewrites those of the planned manifests that are still there, as far as that still gains anything."""
    options = ManifestOptions.from_text(action.options)
    planned = frozenset(file.path for file in action.files)
    observed = observe(target.catalog, target.name, run.cache)
    refuse_blocked(observed.metadata, plan, target)

    def choose(metadata: Metadata, manifests: Sequence[ManifestFile]) -> Collection[str]:
        lease.check()
        there = [manifest for manifest in manifests if manifest.path in planned]
        return {fact.path for fact in plan_manifests(manifest_facts(metadata, there), options).chosen}

    change = RewriteManifests(choose)
    announce = announcer(run, observed, action, work)
    committed = commit(run, target, observed, action, lease, work, announce, change, lambda: _inputs(change))
    if committed is None:
        return ActionOutcome(
            action.action,
            Status.SKIPPED,
            asdict(action.expected),
            Actual(seconds=work.seconds()),
            error="the table changed since it was planned: rewriting what is left of the plan gains nothing any more",
            notes=tuple(work.notes),
        )
    return _finish(run, target, action, committed, change, work)


def _inputs(change: RewriteManifests) -> tuple[int, int]:
    return len(change.rewritten), sum(manifest.length for manifest in change.rewritten)


def _finish(
    run: Run, target: Target, action: PlannedAction, committed: Committed, change: RewriteManifests, work: Work
) -> ActionOutcome:
    read, _ = _inputs(change)
    run.progress.advance(str(target.name), *_inputs(change))
    checks = _verify(run, target, committed, change)
    failed = [check for check in checks if not check.passed]
    return ActionOutcome(
        action=action.action,
        status=Status.FAILED if failed else Status.DONE,
        expected=asdict(action.expected),
        actual=Actual(
            files=len(change.written),
            bytes=sum(row["manifest_length"] for row in change.written),
            seconds=work.seconds(),
            attempts=committed.attempts,
        ),
        snapshot_id=committed.snapshot_id,
        snapshot_ids=(committed.snapshot_id,),
        previous_snapshot_id=committed.previous_snapshot_id,
        verified=not failed,
        checks=checks,
        error=None
        if not failed
        else f"verification failed: {failed[0].name}: {failed[0].detail}; "
        f"roll back to snapshot {committed.previous_snapshot_id}",
        notes=tuple(work.notes),
        results={"rewritten_manifests_count": read, "added_manifests_count": len(change.written)},
    )


def _verify(run: Run, target: Target, committed: Committed, change: RewriteManifests) -> tuple[Check, ...]:
    """The live entries of the two snapshots, read from storage: that also shows that every new manifest is there."""
    name = "entries_unchanged"

    def compare(observed: Observed, before: Snapshot, after: Snapshot) -> tuple[Check, ...]:
        old, new, numbers = moved_entries(observed.reader, before, after)
        if (old.files, old.rows) != (new.files, new.rows):
            told = f"{new.files} entries of {new.rows} rows stand in place of {old.files} of {old.rows} rows"
            return (Check(name, False, told),)
        if old != new or numbers != change.numbers:
            return (Check(name, False, "entries have other values than before"),)
        return (Check(name, True, f"{new.files} entries are as before, but in other manifests"),)

    return compared(target.catalog, target.name, run.cache, committed, name, compare)
