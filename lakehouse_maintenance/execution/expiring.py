"""Running an expiry: list, commit, recheck, delete.

The list of files is made durable before the commit: after it, what the snapshots reached can no longer be told. A run
that is killed in between leaves an open list, and the next run on the table finishes it. Where the commit did not go
through, everything on the list is still reached, and everything stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import expiry_facts, observe
from lakehouse_maintenance.execution.verify import kept_snapshots_present
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.expiry import ExpireCommit, Expiring, only_reached_by
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import LakehouseError, TableError
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.planning.expiring import decide, refusal
from lakehouse_maintenance.removal import Removal, RemovalList
from lakehouse_maintenance.state import Lease

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import ExpireSnapshots


def expire(run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work) -> ActionOutcome:
    """Lets the planned snapshots go, as far as the same rule lets them go now, and deletes what only they reached."""
    concurrency = action.options.get("max-concurrent-deletes")
    deletion = Deletion(
        run, target, action.action, lease, concurrency=None if concurrency is None else int(concurrency)
    )
    observed = observe(target.catalog, target.name, run.cache)
    _refuse(observed.metadata, plan, target, action)
    deletion.refuse(observed.metadata)
    written: list[RemovalList] = []

    def make_durable(metadata: Metadata, reader: ManifestReader, expiring: Expiring) -> None:
        found = only_reached_by(metadata, reader, frozenset(expiring.snapshot_ids))
        written[:] = [deletion.intend(metadata, observed.storage, found)]
        work.snapshot_ids[:] = expiring.snapshot_ids

    commit = ExpireCommit(
        catalog=target.catalog,
        name=target.name,
        uuid=observed.metadata.uuid,
        decide=lambda metadata: still_expired(metadata, target, action),
        before=make_durable,
        clean_metadata=action.options.get("clean-expired-metadata") == "true",
        guard=lease.check,
        cache=run.cache,
    )
    try:
        expired = commit.run()
    finally:
        work.attempts = commit.attempted
    if not written:
        return ActionOutcome(
            action.action,
            Status.SKIPPED,
            asdict(action.expected),
            Actual(seconds=work.seconds()),
            error="the table changed since it was planned: none of the planned snapshots is expired any more",
        )
    removal = Removal()
    try:
        deletion.remove(written[0], into=removal)
    except LakehouseError as error:
        # The snapshots are gone all the same, and some of the files.
        return _outcome(deletion, action, expired, removal, work, describe(error))
    return _outcome(deletion, action, expired, removal, work)


def still_expired(metadata: Metadata, target: Target, action: PlannedAction) -> Expiring:
    """Of what was planned, what the same rule lets go at this head, at this moment."""
    facts = expiry_facts(metadata)
    policy = planned_policy(target.policy.expire_snapshots, action.options)
    asked = [int(text) for text in action.options.get("snapshot-ids", "").split(",") if text]
    fresh = decide(facts, policy, asked, now_ms(), target.longest_reader, action.options.get("branch"))
    refs = tuple(ref for ref in fresh.refs if ref in action.refs)
    heads_that_stay = {ref.snapshot_id for ref in facts.refs if ref.name not in refs}
    planned = set(action.snapshots)
    ids = tuple(i for i in fresh.snapshot_ids if i in planned and i not in heads_that_stay)
    return Expiring(ids, refs)


def planned_policy(base: ExpireSnapshots, options: Mapping[str, str]) -> ExpireSnapshots:
    """The policy that a plan was made by, from the plan's own settings. Tables say "forever" with the longest long."""
    return base.model_copy(
        update={
            "older_than": timedelta(milliseconds=min(int(options["older-than-ms"]), 10**15)),
            "retain_last": int(options["retain-last"]),
            "allow_short_retention": options["allow-short-retention"] == "true",
        }
    )


def _refuse(metadata: Metadata, plan: TablePlan, target: Target, action: PlannedAction) -> None:
    refuse_blocked(metadata, plan, target)
    # A plan file is a person's word on what, not on whether the guards hold.
    policy = planned_policy(target.policy.expire_snapshots, action.options)
    refused = refusal(policy, metadata.properties, target.longest_reader)
    if refused is not None:
        raise TableError(f"{plan.table}: {refused}", field=plan.table)


def _outcome(
    deletion: Deletion,
    action: PlannedAction,
    expired: Expiring,
    removal: Removal,
    work: Work,
    ended: str | None = None,
) -> ActionOutcome:
    actual = Actual(
        files=removal.deleted,
        bytes=removal.deleted_bytes,
        seconds=work.seconds(),
        attempts=work.attempts,
        expired_snapshots=len(expired.snapshot_ids),
        deleted_files=removal.deleted,
        deleted_bytes=removal.deleted_bytes,
        kept_files=sum(removal.kept.values()),
        failed_files=len(removal.failed),
        unknown_files=len(removal.unknown),
        deleted_kinds=dict(removal.kinds),
    )
    target = deletion.target
    checks = (kept_snapshots_present(target.catalog, target.name, deletion.run.cache),)
    problems = [f"{check.name}: {check.detail}" for check in checks if not check.passed]
    if ended is not None:
        problems.append(f"the snapshots are expired, but the deletion of their files ended early: {ended}")
    if removal.failed:
        path, why = next(iter(removal.failed.items()))
        problems.append(f"{len(removal.failed)} files could not be deleted, the first is {path}: {why}")
    if removal.unknown:
        problems.append(f"of {len(removal.unknown)} files it is not known whether they are deleted")
    notes = [f"{count} files kept: {why}" for why, count in sorted(removal.kept.items())]
    if removal.deleted:
        notes += deletion.versions_kept()
    if ended is not None or not removal.is_complete:
        notes.append("the list stays open: the next run on the table goes on with it")
    return ActionOutcome(
        action=action.action,
        status=Status.FAILED if problems else Status.DONE,
        expected=asdict(action.expected),
        actual=actual,
        verified=all(check.passed for check in checks),
        checks=checks,
        error="; ".join(problems) or None,
        notes=tuple(notes),
    )
