"""Sensors that start work by themselves, both off until somebody switches them on: discovery and thresholds."""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

from collections.abc import Collection

import dagster as dg

from lakehouse_maintenance.orchestration.discovering import discover_tick
from lakehouse_maintenance.orchestration.jobs import maintain_tables
from lakehouse_maintenance.orchestration.naming import meta
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME, tables_partitions
from lakehouse_maintenance.orchestration.resources import LakehouseResource
from lakehouse_maintenance.orchestration.thresholds import Wanted, threshold_tick

DISCOVER_SECONDS = 300
THRESHOLD_SECONDS = 60

PARTITION_TAG = "dagster/partition"
RUN_KEY_TAG = "dagster/run_key"
"""Tags that Dagster itself sets on runs."""

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_MOST_UNFINISHED = 2_000
LONGEST_MESSAGE = 4_000


def build_sensors(seconds: int | None = None) -> list[dg.SensorDefinition]:
    """Both sensors. `seconds`: least time between two ticks; None: 5 minutes for discovery, 1 for thresholds."""

    @dg.sensor(
        name="discover_tables",
        minimum_interval_seconds=seconds or DISCOVER_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Adds a partition for each new table of the databases that lakehouse.yaml lists, and removes those "
        "of tables that a complete listing does not have any more. A catalog that cannot be reached, or does not list "
        "to the end, changes nothing. Tells which databases nobody listed. Starts no run.",
    )
    def discover_tables(context: dg.SensorEvaluationContext, lakehouse: LakehouseResource) -> dg.SensorResult:
        known = context.instance.get_dynamic_partitions(TABLES_NAME)
        found = discover_tick(lakehouse.open(), known, context.cursor)
        requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
        if found.add:
            requests.append(tables_partitions.build_add_request(found.add))
        if found.remove:
            requests.append(tables_partitions.build_delete_request(found.remove))
        return dg.SensorResult(
            skip_reason=found.message()[:LONGEST_MESSAGE],
            cursor=found.cursor or "",
            dynamic_partitions_requests=requests,
        )

    @dg.sensor(
        name="table_thresholds",
        job=maintain_tables,
        minimum_interval_seconds=seconds or THRESHOLD_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Starts maintain_tables for tables whose policy makes something due: one run a table, the best "
        "gain for its cost first, at most 50 a tick, within maintenance window, cooldown and daily budget. Reads only "
        "tables that changed, or that got due by age. What came near and did not start is in the tick's message.",
    )
    def table_thresholds(context: dg.SensorEvaluationContext, lakehouse: LakehouseResource) -> dg.SensorResult:
        from lakehouse_maintenance.execution.clock import now_ms

        instance = context.instance
        ticked = threshold_tick(
            lakehouse.open(),
            instance.get_dynamic_partitions(TABLES_NAME),
            context.cursor,
            in_flight=_in_flight(instance),
            find_runs=lambda keys: runs_of(instance, keys),
            now_ms=now_ms(),
        )
        message = ticked.message()[:LONGEST_MESSAGE]
        context.log.info(message)
        return dg.SensorResult(
            run_requests=[_request(wanted) for wanted in ticked.wanted],
            skip_reason=None if ticked.wanted else message,
            cursor=ticked.cursor or "",
        )

    return [discover_tables, table_thresholds]


def _request(wanted: Wanted) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=wanted.run_key,
        partition_key=wanted.table.partition_key,
        tags={
            meta("table"): str(wanted.table),
            meta("action"): ",".join(action.action for action in wanted.actions),
        },
    )


def _in_flight(instance: dg.DagsterInstance) -> set[str]:
    """Partitions of runs that have not ended, however they were started."""
    runs = instance.get_runs(filters=dg.RunsFilter(statuses=_UNFINISHED), limit=_MOST_UNFINISHED)
    return {key for run in runs if (key := run.tags.get(PARTITION_TAG)) is not None}


def runs_of(instance: dg.DagsterInstance, keys: Collection[str]) -> dict[str, str]:
    """Run keys → for those that a run was started for, how it stands, for people."""
    runs = instance.get_runs(filters=dg.RunsFilter(tags={RUN_KEY_TAG: list(keys)}))
    return {
        run.tags[RUN_KEY_TAG]: f"run {run.run_id} of this turn ended with {run.status.value}"
        if run.is_finished
        else f"run {run.run_id} of this turn is {run.status.value}"
        for run in reversed(runs)
    }
