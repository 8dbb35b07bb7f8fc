"""All of Dagster's definitions for one `lakehouse.yaml`, for this package's code location or for anybody's own."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from lakehouse_maintenance.orchestration.assets import ASSETS
from lakehouse_maintenance.orchestration.configuration import checked_config
from lakehouse_maintenance.orchestration.inventory import inventories
from lakehouse_maintenance.orchestration.jobs import maintain_tables, register_tables
from lakehouse_maintenance.orchestration.orphans import orphan_schedules, orphan_searches
from lakehouse_maintenance.orchestration.resources import RESOURCE, LakehouseResource
from lakehouse_maintenance.orchestration.reviewed import cleanup_jobs, cleanup_sensors
from lakehouse_maintenance.orchestration.sensors import build_sensors
from lakehouse_maintenance.orchestration.untracked import untracked_assets, untracked_schedules


def build_definitions(config_path: str | Path | None = None, *, sensor_seconds: int | None = None) -> dg.Definitions:
    """Assets, checks, jobs, sensors (off) and the resource.

    `config_path`: None for where the command line would find the file. `sensor_seconds`: least time between two ticks
    of a sensor; None: 5 minutes for discovery, 1 minute for the others.

    Sets no executor, so that it merges with definitions that do. Raises DagsterInvalidDefinitionError where the
    configuration is wrong; its message names the key.
    """
    config = checked_config(config_path)
    path = None if config is None else str(config.path)
    schedules = [*orphan_schedules(config), *untracked_schedules(config)]
    cleanup = cleanup_jobs(config)
    return dg.Definitions(
        assets=[*ASSETS, *inventories(config), *orphan_searches(config), *untracked_assets(config)],
        jobs=[register_tables, maintain_tables, *(schedule.job for schedule in schedules), *cleanup],
        schedules=schedules,
        sensors=[*build_sensors(sensor_seconds), *cleanup_sensors(cleanup, sensor_seconds)],
        resources={RESOURCE: LakehouseResource(config_path=path)},
    )
