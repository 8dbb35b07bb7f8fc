"""The lakehouse as a Dagster resource."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.orchestration.failing import failure

if TYPE_CHECKING:
    from lakehouse_maintenance.lakehouse import Lakehouse

RESOURCE = "lakehouse"
"""Key of the resource."""


class LakehouseResource(dg.ConfigurableResource["LakehouseResource"]):
    """The lakehouse that one `lakehouse.yaml` describes. Nothing is opened before a step asks for it."""

    config_path: str | None = Field(
        default=None,
        description="Path of lakehouse.yaml, such as /etc/lakehouse/lakehouse.yaml. Unset: where "
        "LAKEHOUSE_MAINTENANCE_CONFIG points, else the working directory of the run.",
    )

    _opened: Lakehouse | None = PrivateAttr(default=None)
    _log: logging.Logger | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Called by Dagster at the start of a run."""
        self._log = context.log

    def open(self) -> Lakehouse:
        """The lakehouse, one for all steps that share this process. Raises dagster.Failure that names the wrong key."""
        if self._opened is None:
            from lakehouse_maintenance.lakehouse import Lakehouse

            progress = None if self._log is None else _LoggedProgress(self._log)
            try:
                self._opened = Lakehouse.open(self.config_path, progress=progress)
            except LakehouseError as error:
                raise failure(error) from None
        return self._opened


class _LoggedProgress:
    """Begin and end of work as lines of the run's log."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def begin(self, table: str, what: str, files: int, size: int) -> None:
        from lakehouse_maintenance.model.intervals import format_size

        amount = f" ({files} files, {format_size(size)})" if files or size else ""
        self._log.info(f"{table}: {what}{amount}")

    def advance(self, table: str, files: int, size: int) -> None:
        """Too much for a log that is kept for ever."""

    def end(self, table: str, what: str) -> None:
        if what:
            self._log.info(f"{table}: {what}")
