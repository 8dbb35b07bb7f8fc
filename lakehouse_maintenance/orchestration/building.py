"""All of Dagster's definitions for one `lakehouse.yaml`, for this package's code location or for anybody's own."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from lakehouse_maintenance.orchestration.assets import ASSETS
from lakehouse_maintenance.orchestration.configuration import checked_path
from lakehouse_maintenance.orchestration.jobs import maintain_tables, register_tables
from lakehouse_maintenance.orchestration.resources import RESOURCE, LakehouseResource


def build_definitions(config_path: str | Path | None = None) -> dg.Definitions:
    """Assets, checks, jobs and the resource. `config_path`: None for where the command line would find the file.

    Sets no executor, so that it merges with definitions that do. Raises DagsterInvalidDefinitionError where the
    configuration is wrong; its message names the key.
    """
    path = checked_path(config_path)
    return dg.Definitions(
        assets=list(ASSETS),
        jobs=[register_tables, maintain_tables],
        resources={RESOURCE: LakehouseResource(config_path=path)},
    )
