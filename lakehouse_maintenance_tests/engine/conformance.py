"""The golden tables as a lakehouse of ours, and what readers have to see of them before and after our work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.golden.fixture import (
    CATALOG,
    Expected,
    ExpectedTable,
    GoldenLakehouse,
    copy_catalog,
    expected,
    upload,
)
from lakehouse_maintenance_tests.readers import digest, read_duckdb, read_pyiceberg, read_spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse_maintenance_tests.services.s3 import S3Server
    from lakehouse_maintenance_tests.services.spark.session import Spark

TABLES = expected()

COMPACTED = list(TABLES)
"""The tables that the embedded engine compacts: all. `rewrite-all` leaves each with fewer files."""

Seen = dict[str | int, Expected]
"""Rows by snapshot id, by ref, and `current`."""


def readable_by(reader: str, names: Sequence[str] = tuple(TABLES)) -> list[str]:
    """Those of the tables that the reader reads right."""
    return [name for name in names if reader in TABLES[name].readers]


def table_name(name: str) -> TableName:
    """Our name of a golden table."""
    identifier = TABLES[name].identifier
    return TableName(CATALOG, identifier[:-1], identifier[-1])


def settings(golden: GoldenLakehouse, folder: Path) -> dict[str, object]:
    """A lakehouse.yaml on the golden tables, with its state in the folder."""
    return {"catalogs": {CATALOG: golden.properties}, "state": {"url": str(folder / "state")}}


def open_golden(golden: GoldenLakehouse, folder: Path) -> Lakehouse:
    """A lakehouse on the golden tables."""
    loaded = config_from_mapping(settings(golden, folder), base=folder)
    return Lakehouse(loaded, open_state(loaded.state.url))


def compact(ours: Lakehouse, name: str, **options: str) -> TableOutcome:
    """Rewrites a golden table's data files, due or not; options by Iceberg's names with `_` for `-`."""
    asked = Request(
        actions=(Action.REWRITE_DATA_FILES,), options={key.replace("_", "-"): value for key, value in options.items()}
    )
    return ours.maintain([str(table_name(name))], asked).tables[0]


@dataclass(frozen=True, slots=True)
class Compacted:
    """A golden table that was compacted with `rewrite-all`."""

    recorded: ExpectedTable
    before: TableHealth
    outcome: TableOutcome
    table: Table


@dataclass
class CompactedLakehouse:
    """The golden tables in a catalog of a test module's own, each compacted when it is first asked for."""

    golden: GoldenLakehouse
    ours: Lakehouse
    _done: dict[str, Compacted] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Compacted:
        if name not in self._done:
            before = self.ours.health([str(table_name(name))])[0]
            outcome = compact(self.ours, name, rewrite_all="true")
            table = self.golden.catalog().load_table(TABLES[name].identifier)
            self._done[name] = Compacted(TABLES[name], before, outcome, table)
        return self._done[name]


def compacted_lakehouse(s3: S3Server, folder: Path) -> CompactedLakehouse:
    """For a fixture of the module; `folder` holds the catalog and our state."""
    upload(s3)
    copy_catalog(folder / "golden.db")
    golden = GoldenLakehouse(folder / "golden.db", s3)
    return CompactedLakehouse(golden, open_golden(golden, folder))


def seen(rows: list[str]) -> Expected:
    """As tables.json records rows."""
    return Expected(len(rows), digest(rows))


def pyiceberg_sees(table: Table, recorded: ExpectedTable) -> Seen:
    """Through PyIceberg."""
    found: Seen = {"current": seen(read_pyiceberg(table))}
    found |= {snapshot: seen(read_pyiceberg(table, snapshot_id=snapshot)) for snapshot in recorded.snapshots}
    return found | {ref: seen(read_pyiceberg(table, ref=ref)) for ref in recorded.refs}


def duckdb_sees(table: Table, recorded: ExpectedTable, s3: S3Server) -> Seen:
    """Through DuckDB, which knows no refs: they are read by their snapshots."""
    location, properties = table.metadata_location, s3.properties
    found: Seen = {"current": seen(read_duckdb(location, properties))}
    return found | {one: seen(read_duckdb(location, properties, snapshot_id=one)) for one in recorded.snapshots}


def spark_sees(spark: Spark, recorded: ExpectedTable) -> Seen:
    """Through Spark, whose catalog `golden` is attached."""
    at = recorded.spark_name
    found: Seen = {snapshot: seen(read_spark(spark, at, snapshot_id=snapshot)) for snapshot in recorded.snapshots}
    found |= {"current": seen(read_spark(spark, at))}
    return found | {ref: seen(read_spark(spark, at, ref=ref)) for ref in recorded.refs}


def recorded_rows(recorded: ExpectedTable, *, refs: bool = True) -> Seen:
    """What a reader has to see: what Spark saw when it had written the table."""
    found: Seen = {"current": recorded.current, **recorded.snapshots}
    return found | recorded.refs if refs else found


EVERYTHING: dict[str, object] = {
    "trigger": {"of": "small_files", "base": 1},
    "min_gain": "1 files",
    "options": {"rewrite-all": "true"},
}
"""A policy for `rewrite_data_files` by which every golden table is due."""


def write_config(golden: GoldenLakehouse, folder: Path) -> Path:
    """A lakehouse.yaml on the golden tables; JSON is YAML."""
    path = folder / "lakehouse.yaml"
    policies = {"default": {"rewrite_data_files": EVERYTHING}}
    path.write_text(json.dumps({**settings(golden, folder), "databases": {CATALOG: ["*"]}, "policies": policies}))
    return path
