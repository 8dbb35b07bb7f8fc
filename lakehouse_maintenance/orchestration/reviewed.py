"""The sensor `reviewed_cleanup`: removal of what was approved, without anybody starting it (DG-07)."""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.reviews import UNTRACKED_FOLDERS, Review, ReviewState
from lakehouse_maintenance.orchestration.databases import Database, written_databases
from lakehouse_maintenance.orchestration.naming import meta
from lakehouse_maintenance.orchestration.resources import LakehouseResource
from lakehouse_maintenance.orchestration.sensors import LONGEST_MESSAGE, runs_of
from lakehouse_maintenance.orchestration.untracked import REMOVED

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.lakehouse import Lakehouse

SENSOR = "reviewed_cleanup"
JOB = "remove_reviewed_folders"
CLEANUP_SECONDS = 60
MOST_REQUESTS = 50
"""Runs that one tick asks for."""
_SECONDS = 20.0
"""After so many seconds a tick looks at no further database."""
_NAMED = 20

FindRuns = Callable[[Collection[str]], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Approved:
    """A database of which approved folders may go. `run_key`: action, database, plan and decision."""

    database: Database
    run_key: str
    digest: str
    folders: int


@dataclass
class Cleaned:
    """One tick. `waiting`: what is not started, and why. `cursor`: after which database the next tick goes on."""

    wanted: list[Approved] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    looked: int = 0
    cursor: str = ""

    def message(self) -> str:
        """For people."""
        started = f"{len(self.wanted):,} to start" if self.wanted else "nothing to start"
        parts = [f"{started}: {self.looked:,} databases looked at", *self.waiting[:_NAMED]]
        if len(self.waiting) > _NAMED:
            parts.append(f"{len(self.waiting) - _NAMED:,} more wait")
        if self.cursor:
            parts.append("the next tick goes on")
        return "; ".join(parts)


def cleanup_jobs(config: "LakehouseConfig | None") -> list[dg.JobDefinition]:
    """The job that the sensor starts. None where there is no database."""
    keys = [] if config is None else [database.key(REMOVED) for database in written_databases(config)]
    if not keys:
        return []
    job = dg.define_asset_job(
        name=JOB,
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,
        description="Removes table folders that were approved, in every database that lakehouse.yaml names. What was "
        "not approved, or is not what was approved any more, stays.",
    )
    return [job]  # type: ignore[list-item]


def cleanup_sensors(jobs: Sequence[dg.JobDefinition], seconds: int | None = None) -> list[dg.SensorDefinition]:
    """The sensor, off until switched on; none where there is no job. `seconds`: least time between two ticks; None:
    a minute."""
    if not jobs:
        return []

    @dg.sensor(
        name=SENSOR,
        job=jobs[0],
        minimum_interval_seconds=seconds or CLEANUP_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Starts `removed` for databases whose candidates were approved, in whole or in part, while the "
        "approved plan still is the latest one and the approval has not expired; one run for each decision, at most "
        f"{MOST_REQUESTS} a tick. What it may delete, or move to quarantine as the policy says: folders that a review "
        "names as approved, each only as long as it holds the very objects of the plan and no visible table owns "
        "anything in it. Nothing else: no table, no folder that was found later, nothing of a database whose policy "
        "asks for no review. What waits, and why, is in the tick's message.",
    )
    def reviewed_cleanup(context: dg.SensorEvaluationContext, lakehouse: LakehouseResource) -> dg.SensorResult:
        """May delete (or move to quarantine): the approved folders of the latest plan of each database, and nothing
        else. Every guard is applied again by the step it starts."""
        instance = context.instance
        ticked = cleanup_tick(
            lakehouse.open(), context.cursor, find_runs=lambda keys: runs_of(instance, keys), now=datetime.now(UTC)
        )
        message = ticked.message()[:LONGEST_MESSAGE]
        context.log.info(message)
        return dg.SensorResult(
            run_requests=[_request(one) for one in ticked.wanted],
            skip_reason=None if ticked.wanted else message,
            cursor=ticked.cursor,
        )

    return [reviewed_cleanup]


def cleanup_tick(
    lakehouse: "Lakehouse",
    cursor: str | None,
    *,
    find_runs: FindRuns = lambda keys: {},
    now: datetime,
    seconds: float = _SECONDS,
    most: int = MOST_REQUESTS,
) -> Cleaned:
    """Reads the state alone. Starts nothing itself, and never raises for one database."""
    ticked = Cleaned()
    deadline = time.monotonic() + seconds
    ranked = written_databases(lakehouse.config)
    after = [database for database in ranked if cursor and str(database) > cursor]
    for database in [*after, *(one for one in ranked if one not in set(after))]:
        if len(ticked.wanted) >= most or (ticked.looked and time.monotonic() > deadline):
            break
        ticked.looked += 1
        ticked.cursor = str(database)
        try:
            _look(lakehouse, database, ticked, find_runs, now)
        except LakehouseError as error:
            ticked.waiting.append(f"{database}: {lakehouse.config.masker.mask(error.message)}")
    if ticked.looked == len(ranked):
        ticked.cursor = ""
    return ticked


def _look(lakehouse: "Lakehouse", database: Database, ticked: Cleaned, find_runs: FindRuns, now: datetime) -> None:
    review = lakehouse.review_of(str(database))
    if review is None:
        return
    if not lakehouse.config.policy_for_database(str(database)).untracked_folders.review:
        ticked.waiting.append(f"{database}: its policy asks for no review; materialize removed")
        return
    holding = review.may_go(now)
    if not holding:
        ticked.waiting.append(f"{database}: {_why(review, now)}")
        return
    approved = Approved(database, _run_key(database, review, now), review.plan.digest, len(holding))
    started = find_runs([approved.run_key])
    if approved.run_key in started:
        ticked.waiting.append(f"{database}: {len(holding):,} folders are approved, and {started[approved.run_key]}")
    else:
        ticked.wanted.append(approved)


def _why(review: Review, now: datetime) -> str:
    number = f"{len(review.plan.folders):,} candidates"
    state = review.state(now)
    if state is ReviewState.EXPIRED:
        return f"the approval of {number} has expired: approve them again"
    if state is ReviewState.SUPERSEDED:
        return f"a later plan took the place of the approved one ({number})"
    return f"{number} were rejected" if state is ReviewState.REJECTED else f"{number} wait for a review"


def _run_key(database: Database, review: Review, now: datetime) -> str:
    """A decision starts one run. Of the last approval that holds: a rejection alone is nothing to start for."""
    at = max(one.at for one in review.decisions if one.holds(now))
    return f"{UNTRACKED_FOLDERS}:{database}:{review.plan.digest}:{at.isoformat()}"


def _request(approved: Approved) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=approved.run_key,
        asset_selection=[approved.database.key(REMOVED)],
        tags={
            meta("database"): str(approved.database),
            meta("action"): UNTRACKED_FOLDERS,
            meta("digest"): approved.digest,
        },
    )
