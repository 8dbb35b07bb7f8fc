"""Maintaining tables through Dagster in this process: for the demo, scripts and tests. No daemon is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.jobs import maintain_tables_once
from lakehouse_maintenance.orchestration.naming import MAINTAINED_KEY, meta
from lakehouse_maintenance.orchestration.partitions import register

# Dagster writes every event to standard error otherwise; they are in the instance's event log all the same.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """How one table's run ended. `reason`: why it failed, is blocked or was skipped. `step`: the one that failed.

    `expired_snapshots`, `deleted_files`, `deleted_bytes`: what the table's expiry let go, and freed.
    """

    table: TableName
    run_id: str
    status: Status
    reason: str
    step: str | None = None
    expired_snapshots: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0

    @property
    def ok(self) -> bool:
        """False where the run failed, as Dagster shows it."""
        return self.step is None


def maintain_with_dagster(
    config_path: str | Path | None,
    instance: dg.DagsterInstance,
    tables: Sequence[TableName],
    on_table: Callable[[PartitionRun], None] | None = None,
) -> dict[TableName, PartitionRun]:
    """Registers the tables' partitions and materializes the three assets of each, one run a table, one after another.

    A table that fails never stops the others, nor is it tried again. `on_table` hears of each as it ends. Raises
    DagsterInvalidDefinitionError for a wrong configuration.
    """
    definitions = build_definitions(config_path)
    once = dg.Definitions(
        assets=definitions.assets, jobs=[maintain_tables_once], resources=dict(definitions.resources or {})
    )
    job = once.resolve_job_def(maintain_tables_once.name)
    register(instance, tables)
    runs: dict[TableName, PartitionRun] = {}
    for table in tables:
        result = job.execute_in_process(
            run_config=_QUIET, instance=instance, partition_key=table.partition_key, raise_on_error=False
        )
        runs[table] = _run_of(table, result)
        if on_table is not None:
            on_table(runs[table])
    return runs


def _run_of(table: TableName, result: dg.ExecuteInProcessResult) -> PartitionRun:
    for event in result.all_events:
        if event.is_step_failure:
            status, reason = _failure(event)
            return PartitionRun(table, result.run_id, status, reason, event.step_key)
    for event in result.all_events:
        if event.is_step_materialization and event.asset_key == MAINTAINED_KEY:
            facts = event.step_materialization_data.materialization.metadata
            return PartitionRun(
                table,
                result.run_id,
                _status(facts),
                _text(facts, "reason"),
                expired_snapshots=_whole(facts, "expired_snapshots"),
                deleted_files=_whole(facts, "deleted_files"),
                deleted_bytes=_whole(facts, "deleted_bytes"),
            )
    return PartitionRun(table, result.run_id, Status.FAILED, "the run ended without a result", "")


def _failure(event: dg.DagsterEvent) -> tuple[Status, str]:
    data = event.step_failure_data
    told = data.user_failure_data
    if told is not None:
        return _status(told.metadata), told.description or ""
    return Status.FAILED, "" if data.error is None else data.error.message.strip()


def _status(facts: Mapping[str, dg.MetadataValue]) -> Status:
    text = _text(facts, "status")
    return Status(text) if text else Status.FAILED


def _text(facts: Mapping[str, dg.MetadataValue], name: str) -> str:
    entry = facts.get(meta(name))
    return "" if entry is None else str(entry.value)


def _whole(facts: Mapping[str, dg.MetadataValue], name: str) -> int:
    value = getattr(facts.get(meta(name)), "value", None)
    return int(value) if isinstance(value, int | float) else 0
