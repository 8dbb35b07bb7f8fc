"""The lakehouse as a Dagster resource: catalogs, their storage and the state that one `lakehouse.yaml` describes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse_maintenance.config import load_config
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.orchestration.connections import (
    CONFIG_PATH,
    CatalogResource,
    StateResource,
    StorageResource,
    checked,
)
from lakehouse_maintenance.orchestration.failing import failure

if TYPE_CHECKING:
    from lakehouse_maintenance.lakehouse import Lakehouse

RESOURCE = "lakehouse"
"""Key of the resource."""


class LakehouseResource(dg.ConfigurableResource["LakehouseResource"]):
    """The lakehouse that one `lakehouse.yaml` describes. Nothing is opened before a step asks for it."""

    config_path: str | None = Field(default=None, description=CONFIG_PATH)

    _opened: Lakehouse | None = PrivateAttr(default=None)
    _log: logging.Logger | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Called by Dagster at the start of a run."""
        self._log = context.log

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Called by Dagster at the end of a run, and of each tick of a sensor, of which a code server makes many."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

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

    def catalog(self, name: str) -> CatalogResource:
        """One of its catalogs, as a resource of its own."""
        return CatalogResource(name=name, config_path=self.config_path)

    def storage(self, catalog: str) -> StorageResource:
        """Storage with the credentials of one of its catalogs."""
        return StorageResource(catalog=self.catalog(catalog))

    def state(self) -> StateResource:
        """What its runs remember."""
        return StateResource(config_path=self.config_path)

    def check_connection(self) -> dict[str, str]:
        """Looks at every catalog, the warehouse of each that is a place, and the state; what each check tells.

        Raises dagster.Failure that names all that failed.
        """
        try:
            config = load_config(self.config_path)
        except LakehouseError as error:
            raise failure(error) from None
        checks = {"state": self.state().check_connection}
        for name, settings in config.catalogs.items():
            checks[f"catalogs.{name}"] = self.catalog(name).check_connection
            # A REST catalog's warehouse may be a mere name.
            if "/" in (settings.warehouse or ""):
                checks[f"catalogs.{name}.warehouse"] = self.storage(name).check_connection
        return checked(checks, config)


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
