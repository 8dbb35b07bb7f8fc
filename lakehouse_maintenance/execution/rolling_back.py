"""Rolling a table back to an earlier snapshot, or forward again: under the table's lease, in the journal, verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.execution.clock import now_text
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.execution.recovery import Recovery
from lakehouse_maintenance.execution.verify import live_files_present
from lakehouse_maintenance.execution.work import LEASE_TTL, ROLLBACK, Blocked, Run, Work
from lakehouse_maintenance.iceberg.metadata import MAIN, Metadata
from lakehouse_maintenance.iceberg.metadata import Snapshot as SnapshotInfo
from lakehouse_maintenance.iceberg.rollback import RollbackCommit, ancestry
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import (
    CommitUnknownError,
    InputError,
    LakehouseError,
    LeaseHeldError,
    TableError,
)
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check, Recovered, TableOutcome
from lakehouse_maintenance.model.plans import TablePlan
from lakehouse_maintenance.state import Lease, State

_SNAPSHOTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Rollback:
    """What was asked for. `to`: a snapshot id; None: the one that the last failed verification named."""

    to: int | None = None
    branch: str = MAIN
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A branch's way from one snapshot to another. `hidden`: snapshots that leave the branch, newest first."""

    uuid: str
    branch: str
    old: SnapshotInfo
    new: SnapshotInfo
    hidden: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """`sha256:…` over table, branch and both snapshots."""
        text = json.dumps([self.uuid, self.branch, self.old.snapshot_id, self.new.snapshot_id])
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def roll_back(run: Run, target: Target, asked: Rollback) -> tuple[str, TableOutcome]:
    """The digest of what was done or would be, and what became of it.

    Raises InputError where what was asked for does not exist: no such branch or snapshot, or no failed verification.
    Nothing was changed then.
    """
    name = str(target.name)
    recovered: tuple[Recovered, ...] = ()
    digest = ""
    try:
        if asked.dry_run:
            move = _planned(run, target, asked)
            return move.digest, _table_outcome(name, _shown(move))
        with run.state.leases.acquire(name, run_id=run.run_id, owner=run.owner, ttl=LEASE_TTL) as lease:
            recovery = Recovery(run, target, lease)
            recovery.tell_outcomes()
            recovered = recovery.recovered
            move = _planned(run, target, asked)
            digest = move.digest
            return digest, replace(_table_outcome(name, _move(run, target, move, lease)), recovered=recovered)
    except InputError:
        raise
    except (Blocked, LeaseHeldError) as error:
        why = describe(error) if isinstance(error, LakehouseError) else str(error)
        return digest, TableOutcome(name, Status.BLOCKED, why, recovered=recovered)
    except LakehouseError as error:
        return digest, TableOutcome(name, Status.FAILED, describe(error), recovered=recovered)


def _planned(run: Run, target: Target, asked: Rollback) -> Move:
    """What would be done now; every file of the snapshot is looked up. Raises InputError, Blocked, TableError."""
    name = str(target.name)
    observed = observe(target.catalog, target.name, run.cache)
    metadata = observed.metadata
    refuse_blocked(metadata, TablePlan(name, None, None), target)
    ref, old = metadata.refs.get(asked.branch), metadata.head(asked.branch)
    if ref is None or old is None or not ref.is_branch:
        branches = ", ".join(sorted(ref.name for ref in metadata.refs.values() if ref.is_branch)) or "none"
        raise InputError(f"{name} has no branch {asked.branch}", field="--branch", hint=f"its branches: {branches}")
    wanted = _named_by_verification(run.state, name, metadata, asked.branch) if asked.to is None else asked.to
    new = metadata.snapshots.get(wanted)
    if new is None:
        raise InputError(
            f"{name} has no snapshot {wanted}: it has expired, or never was in this table",
            field="--to",
            hint=f"its newest snapshots: {_newest(metadata)}",
        )
    if new.snapshot_id == old.snapshot_id:
        raise InputError(
            f"branch {asked.branch} of {name} stands at snapshot {wanted} already",
            field="--to",
            hint=f"its newest snapshots: {_newest(metadata)}",
        )
    present = _live_files(observed, new)
    if not present.passed:
        raise TableError(
            f"{name}: snapshot {wanted} cannot be read any more: {present.detail}",
            field=name,
            hint="nothing was changed; choose another snapshot",
        )
    return _describe(target, metadata, asked.branch, old, new)


def _move(run: Run, target: Target, move: Move, lease: Lease) -> ActionOutcome:
    name = str(target.name)
    details: dict[str, Any] = {
        "branch": move.branch,
        "from": move.old.snapshot_id,
        "to": move.new.snapshot_id,
        "uuid": move.uuid,
        "hidden": len(move.hidden),
        "fence": lease.fence,
    }
    run.state.journal.record(_event(run, name, move, "intent", None, details))
    work = Work()
    commit = RollbackCommit(
        catalog=target.catalog,
        name=target.name,
        uuid=move.uuid,
        old=move.old.snapshot_id,
        new=move.new.snapshot_id,
        guard=lease.check,
        branch=move.branch,
        cache=run.cache,
    )
    outcome = replace(_shown(move), status=Status.UNKNOWN, error="interrupted; the next run looks where the branch is")
    try:
        commit.run()
        outcome = _verified(run, target, move)
    except CommitUnknownError as error:
        outcome = replace(outcome, status=Status.UNKNOWN, error=describe(error))
    except LakehouseError as error:
        outcome = replace(outcome, status=Status.FAILED, snapshot_id=None, error=describe(error))
    finally:
        actual = Actual(seconds=work.seconds(), attempts=commit.attempted)
        outcome = replace(outcome, actual=actual)
        if outcome.status is Status.UNKNOWN and not commit.attempted:
            outcome = replace(outcome, status=Status.FAILED, snapshot_id=None, error="interrupted; nothing was changed")
        if outcome.status is Status.UNKNOWN:
            run.memory.left_unresolved(name, run.run_id, ROLLBACK, [])
        told = {**details, "verified": outcome.verified, "error": outcome.error, "notes": list(outcome.notes)}
        run.state.journal.record(_event(run, name, move, "outcome", outcome.status, told))
    return outcome


def _verified(run: Run, target: Target, move: Move) -> ActionOutcome:
    """The outcome of a move that went through."""
    checks: tuple[Check, ...]
    try:
        observed = observe(target.catalog, target.name, run.cache)
        head = observed.metadata.head(move.branch)
        line = () if head is None else tuple(ancestry(observed.metadata, head.snapshot_id))
        stands = move.new.snapshot_id in line
        where = "nowhere" if head is None else f"at snapshot {head.snapshot_id}"
        moved = Check("branch_moved", stands, f"branch {move.branch} stands {where}")
        checks = (moved, _live_files(observed, move.new))
    except LakehouseError as error:
        checks = (Check("branch_moved", False, f"could not be verified: {describe(error)}"),)
    failed = next((check for check in checks if not check.passed), None)
    return replace(
        _shown(move),
        status=Status.DONE if failed is None else Status.FAILED,
        verified=failed is None,
        checks=checks,
        error=None if failed is None else f"verification failed: {failed.name}: {failed.detail}",
    )


def _named_by_verification(state: State, name: str, metadata: Metadata, branch: str) -> int:
    """The snapshot before the last commit of ours whose verification failed."""
    failed = [
        event.details
        for event in state.journal.events(table=name)
        if event.phase == "outcome"
        and event.details.get("verified") is False
        and event.details.get("previous_snapshot_id") is not None
        and event.details.get("snapshot_id") is not None
    ]
    if not failed:
        raise InputError(
            f"no failed verification of {name} is in the journal",
            field="--to",
            hint=f"name the snapshot with --to; its newest snapshots: {_newest(metadata)}",
        )
    bad, before = int(failed[-1]["snapshot_id"]), int(failed[-1]["previous_snapshot_id"])
    if bad not in ancestry(metadata, metadata.refs[branch].snapshot_id):
        raise InputError(
            f"the last failed verification of {name} was of snapshot {bad}, which branch {branch} does not hold",
            field="--to",
            hint=f"it may have been rolled back already; else name the snapshot with --to, such as {before}",
        )
    return before


def _describe(target: Target, metadata: Metadata, branch: str, old: SnapshotInfo, new: SnapshotInfo) -> Move:
    kept = set(ancestry(metadata, new.snapshot_id))
    hidden = tuple(i for i in ancestry(metadata, old.snapshot_id) if i not in kept)
    notes = []
    if hidden:
        named = ", ".join(map(str, hidden[:_SNAPSHOTS_SHOWN])) + (", …" if len(hidden) > _SNAPSHOTS_SHOWN else "")
        notes.append(f"out of view: {len(hidden)} snapshots of branch {branch}: {named}")
    before, after = _rows(old), _rows(new)
    if before is not None and after is not None:
        notes.append(f"rows: {before} before, {after} after, by the snapshots' summaries (deletes not applied)")
    notes.append(
        f"to undo: rollback {target.name} --to {old.snapshot_id}"
        + ("" if branch == MAIN else f" --branch {branch}")
        + ", until that snapshot expires: nothing holds it any more but its age"
    )
    return Move(metadata.uuid, branch, old, new, hidden, tuple(notes))


def _rows(snapshot: SnapshotInfo) -> int | None:
    text = snapshot.summary.get("total-records", "")
    return int(text) if text.isdigit() else None


def _live_files(observed: Observed, snapshot: SnapshotInfo) -> Check:
    manifests = [m for m in observed.reader.manifests(snapshot) if m.live_files != 0]
    live = list(observed.reader.live_files(manifests))
    return live_files_present(observed.storage, observed.metadata.table_location, live)


def _newest(metadata: Metadata) -> str:
    newest: Sequence[SnapshotInfo] = sorted(metadata.snapshots.values(), key=lambda s: s.timestamp_ms, reverse=True)
    listed = [
        f"{s.snapshot_id} ({datetime.fromtimestamp(s.timestamp_ms / 1000, UTC).isoformat(timespec='seconds')})"
        for s in newest[:_SNAPSHOTS_SHOWN]
    ]
    return ", ".join(listed) or "none"


def _shown(move: Move) -> ActionOutcome:
    return ActionOutcome(
        ROLLBACK,
        Status.SKIPPED,
        {},
        Actual(),
        snapshot_id=move.new.snapshot_id,
        previous_snapshot_id=move.old.snapshot_id,
        notes=move.notes,
        error="dry run: nothing was changed",
    )


def _table_outcome(name: str, outcome: ActionOutcome) -> TableOutcome:
    return TableOutcome(name, outcome.status, outcome.error or "", (outcome,))


def _event(run: Run, name: str, move: Move, phase: str, status: str | None, details: dict[str, Any]) -> Event:
    return Event(
        at=now_text(),
        run_id=run.run_id,
        table=name,
        action=ROLLBACK,
        phase=phase,
        status=status,
        digest=move.digest,
        details=details,
    )
