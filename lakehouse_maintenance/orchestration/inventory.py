"""`lakehouse/<catalog>/<database>/inventory`: the health of every table of a database, in one step (DG-03).

The assets are built from the names in lakehouse.yaml, without a look at any catalog.
"""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_maintenance.model.errors import CatalogUnavailableError, LakehouseError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.markdown import plain
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.databases import Database, written_databases
from lakehouse_maintenance.orchestration.facts import observed_facts
from lakehouse_maintenance.orchestration.failing import failure
from lakehouse_maintenance.orchestration.naming import ALL_TABLES_MEASURED, STATE_KEY, meta
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME
from lakehouse_maintenance.orchestration.rendering import told_with_name
from lakehouse_maintenance.orchestration.resources import LakehouseResource
from lakehouse_maintenance.orchestration.summing import DatabaseHealth

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.lakehouse import Lakehouse
    from lakehouse_maintenance.state import State

ASSET = "inventory"
_CODE_VERSION = "1"
_EVERY = 500
"""Tables between two lines of progress in the run's log."""


def inventories(config: "LakehouseConfig | None") -> list[dg.AssetsDefinition]:
    """One asset for each database that `databases` names."""
    return [] if config is None else [_inventory(database) for database in written_databases(config)]


def _inventory(database: Database) -> dg.AssetsDefinition:
    key = database.key(ASSET)

    @dg.multi_asset(
        name=f"{ASSET}__{database.group}",
        outs={
            ASSET: dg.AssetOut(
                key=key,
                dagster_type=dg.Nothing,
                group_name=database.group,
                kinds={"iceberg"},
                code_version=_CODE_VERSION,
                tags={"lakehouse_maintenance/step": "measure"},
                metadata={meta("database"): str(database)},
                description=f"Health of every table of `{plain(database)}`, from metadata alone: worst tables first, "
                "file sizes, what expiry would free, what is due. A table that cannot be measured is told beside the "
                "others and fails nothing.",
            )
        },
        check_specs=[
            dg.AssetCheckSpec(
                name=ALL_TABLES_MEASURED,
                asset=key,
                description="Every table of the database could be measured. One that could not is a warning.",
            )
        ],
    )
    def measured(
        context: dg.AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        opened = lakehouse.open()
        try:
            names = tables_of(opened, database)
            location = _location(opened, database)
        except LakehouseError as error:
            raise failure(error, opened.config) from None
        context.log.info("%s: %s tables", database, len(names))
        found = DatabaseHealth(str(database))
        seen = _Seen(opened.state, database)
        registered = set(context.instance.get_dynamic_partitions(TABLES_NAME))
        measures = (_masked(health, opened) for health in _quiet(opened).iter_health(names))
        for name, health in zip(names, measures, strict=True):
            found.add(health)
            if name.partition_key in registered and seen.is_new(name, health):
                context.log_event(
                    dg.AssetObservation(STATE_KEY, partition=name.partition_key, metadata=observed_facts(health))
                )
            if found.tables % _EVERY == 0:
                context.log.info("%s of %s tables measured", found.tables, len(names))
        seen.keep(names)
        facts = found.facts()
        if location is not None:
            facts["dagster/uri"] = dg.MetadataValue.text(location)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata=facts,
            data_version=dg.DataVersion(found.data_version),
            check_results=[_all_measured(key, found)],
        )

    return measured


def tables_of(lakehouse: "Lakehouse", database: Database) -> list[TableName]:
    """Iceberg tables of the database. Raises CatalogUnavailableError where the listing is not complete."""
    from lakehouse_maintenance.catalogs import TableKind

    listing = lakehouse.catalogs[database.catalog].tables(database.namespace)
    if isinstance(listing, Incomplete):
        raise CatalogUnavailableError(
            listing.why,
            field=f"catalogs.{database.catalog}",
            hint="an incomplete listing is never taken for all there is; check the catalog with: doctor",
        )
    return [entry.name for entry in listing.items if entry.kind is TableKind.ICEBERG]


def _location(lakehouse: "Lakehouse", database: Database) -> str | None:
    return lakehouse.catalogs[database.catalog].database_location(database.namespace)


def _quiet(lakehouse: "Lakehouse") -> "Lakehouse":
    """The same without progress: two lines a table are too much for a log that is kept for ever."""
    quiet = type(lakehouse)(lakehouse.config, lakehouse.state)
    quiet.catalogs = lakehouse.catalogs
    return quiet


def _masked(health: TableHealth, lakehouse: "Lakehouse") -> TableHealth:
    return health if health.error is None else replace(health, error=lakehouse.config.masker.mask(health.error))


def _all_measured(key: dg.AssetKey, found: DatabaseHealth) -> dg.AssetCheckResult:
    failures = [told_with_name(health.table, health.error or "") for health in found.failures()]
    told = f"{found.tables - found.failed:,} of {found.tables:,} tables were measured"
    return dg.AssetCheckResult(
        check_name=ALL_TABLES_MEASURED,
        asset_key=key,
        passed=not found.failed,
        severity=dg.AssetCheckSeverity.WARN,
        description=told,
        metadata={
            meta("tables_failed"): found.failed,
            meta("failures"): dg.MetadataValue.md("\n".join(f"- {plain(text)}" for text in failures) or "none"),
        },
    )


class _Seen:
    """Snapshots that were told as observations before, so that a table is told again only when it changed.

    One value a database in the state; where it is lost, every table is told once more.
    """

    def __init__(self, state: "State", database: Database) -> None:
        self._state = state
        self._key = f"observed/{database}"
        stored = state.get(self._key)
        self._version = None if stored is None else stored[1]
        self._before = _snapshots(None if stored is None else stored[0])
        self._now = dict(self._before)

    def is_new(self, name: TableName, health: TableHealth) -> bool:
        """True once for each snapshot of a table that could be measured."""
        snapshot = str(health.snapshot_id)
        if health.error is not None or self._now.get(name.table) == snapshot:
            return False
        self._now[name.table] = snapshot
        return True

    def keep(self, names: list[TableName]) -> None:
        """Remembers what was told of tables that still exist."""
        there = {name.table for name in names}
        now = {table: snapshot for table, snapshot in self._now.items() if table in there}
        if now != self._before:
            value = zlib.compress(json.dumps(now, separators=(",", ":")).encode())
            # Where another run was faster, some tables are told once more.
            self._state.put(self._key, value, self._version)


def _snapshots(value: bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    try:
        data = json.loads(zlib.decompress(value))
    except (ValueError, zlib.error):
        return {}
    return {str(table): str(snapshot) for table, snapshot in data.items()} if isinstance(data, dict) else {}
