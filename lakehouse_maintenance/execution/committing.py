"""Bringing a change into a table with everything in the journal: what is written, what is tried, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lakehouse_maintenance.execution.clock import now_text
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import Observed
from lakehouse_maintenance.execution.traces import BASE, WRITING
from lakehouse_maintenance.execution.work import Run, Work, named_files
from lakehouse_maintenance.iceberg.commit import Base, Change, Committed, Outdated, ReplaceCommit, Stamp
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.plans import PlannedAction
from lakehouse_maintenance.state import Lease

Announce = Callable[[Sequence[str]], None]


def announcer(run: Run, observed: Observed, action: PlannedAction, work: Work) -> Announce:
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


def commit(
    run: Run,
    target: Target,
    observed: Observed,
    action: PlannedAction,
    lease: Lease,
    work: Work,
    announce: Announce,
    change: Change,
    inputs: Callable[[], tuple[int, int]],
    told: Mapping[str, Any] | None = None,
) -> Committed | None:
    """Commits the change to the action's branch; each attempt is told before it is made.

    `inputs`: files and bytes that the change stands for, asked when an attempt was staged. `told`: what the journal
    learns of each attempt besides. Returns None where nothing was left to do. Raises what ReplaceCommit.run does;
    `work` knows whether a commit may be visible.
    """

    def on_attempt(snapshot_id: int, files: tuple[str, ...], base: Base) -> None:
        work.attempts += 1
        work.snapshot_ids.append(snapshot_id)
        work.in_flight = True
        work.written.extend(path for path in files if path not in known)
        known.update(files)
        count, size = inputs()
        attempt = Event(
            at=now_text(),
            run_id=run.run_id,
            table=str(target.name),
            action=action.action,
            phase="intent",
            digest=run.digest,
            files=count,
            bytes=size,
            details={
                "attempt": work.attempts - before,
                "commit": len(work.commits) + 1,
                "snapshot_id": snapshot_id,
                BASE: asdict(base),
                **(told or {}),
                "written": named_files(work.written),
            },
        )
        run.state.journal.record(attempt)

    before = work.attempts
    known: set[str] = set(work.written)
    replacing = ReplaceCommit(
        catalog=target.catalog,
        name=target.name,
        uuid=observed.metadata.uuid,
        stamp=Stamp(run.run_id, action.action, run.digest),
        guard=lease.check,
        on_attempt=on_attempt,
        announce=announce,
        cache=run.cache,
        branch=action.branch,
    )
    try:
        committed = replacing.run(change)
    except (Outdated, LakehouseError):
        # Told how it ended, CommitUnknownError included. Whatever else ends it (Ctrl-C) leaves that open.
        work.in_flight = False
        raise
    if committed is not None:
        work.committed = committed
    work.in_flight = False
    return committed
