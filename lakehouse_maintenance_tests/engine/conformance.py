"""The golden tables as a lakehouse of ours, and what readers have to see of them before and after our work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

CURRENT = "current"
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


def open_golden(golden: GoldenLakehouse, folder: Path, **config: object) -> Lakehouse:
    """A lakehouse on the golden tables. `config`: more of lakehouse.yaml."""
    loaded = config_from_mapping({**settings(golden, folder), **config}, base=folder)
    return Lakehouse(loaded, open_state(loaded.state.url))


def golden_of(s3: S3Server, folder: Path) -> GoldenLakehouse:
    """For a fixture of the module: a catalog of its own in the folder, that knows the tables as they were written."""
    upload(s3)
    copy_catalog(folder / "golden.db")
    return GoldenLakehouse(folder / "golden.db", s3)


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
    golden = golden_of(s3, folder)
    return CompactedLakehouse(golden, open_golden(golden, folder))


def seen(rows: list[str]) -> Expected:
    """As tables.json records rows."""
    return Expected(len(rows), digest(rows))


def pyiceberg_sees(table: Table, recorded: ExpectedTable, places: Iterable[str | int] | None = None) -> Seen:
    """Through PyIceberg: everything that was recorded, or these places of it (see Seen)."""

    def rows(at: str | int) -> list[str]:
        if isinstance(at, int):
            return read_pyiceberg(table, snapshot_id=at)
        return read_pyiceberg(table) if at == CURRENT else read_pyiceberg(table, ref=at)

    return {at: seen(rows(at)) for at in (recorded_rows(recorded) if places is None else places)}


def duckdb_sees(table: Table, recorded: ExpectedTable, s3: S3Server, places: Iterable[str | int] | None = None) -> Seen:
    """Through DuckDB, which knows no refs: they are read by their snapshots, and left out here."""
    location, properties = table.metadata_location, s3.properties
    wanted = [at for at in (recorded_rows(recorded) if places is None else places) if isinstance(at, int)]
    found: Seen = {CURRENT: seen(read_duckdb(location, properties))}
    return found | {one: seen(read_duckdb(location, properties, snapshot_id=one)) for one in wanted}


def spark_sees(spark: Spark, recorded: ExpectedTable, places: Iterable[str | int] | None = None) -> Seen:
    """Through Spark, whose catalog `golden` is attached."""

    def rows(at: str | int) -> list[str]:
        name = recorded.spark_name
        if isinstance(at, int):
            return read_spark(spark, name, snapshot_id=at)
        return read_spark(spark, name) if at == CURRENT else read_spark(spark, name, ref=at)

    return {at: seen(rows(at)) for at in (recorded_rows(recorded) if places is None else places)}


def kept(everything: Seen, table: Table) -> Seen:
    """What was recorded of the snapshots and refs that are left."""
    left = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    return {at: rows for at, rows in everything.items() if at == CURRENT or at in left or at in table.metadata.refs}


def recorded_rows(recorded: ExpectedTable, *, refs: bool = True) -> Seen:
    """What a reader has to see: what Spark saw when it had written the table."""
    found: Seen = {CURRENT: recorded.current, **recorded.snapshots}
    return found | recorded.refs if refs else found


def written_to(spark: Spark, at: str, delete_mode: str, merge_mode: str) -> Expected:
    """Spark appends to, deletes from and merges into a table with ids from 0 on; returns what it has to read then."""
    rows: list[dict[str, Any]] = [json.loads(row) for row in spark.rows(at)]
    modes = f"'write.delete.mode' = '{delete_mode}', 'write.merge.mode' = '{merge_mode}'"
    spark.sql(f"ALTER TABLE {at} SET TBLPROPERTIES ({modes})")
    spark.sql(f"INSERT INTO {at} SELECT * FROM {at} WHERE id IN (0, 10, 15)")
    rows += [row for row in rows if row["id"] in (0, 10, 15)]
    spark.sql(f"DELETE FROM {at} WHERE id < 30 AND id % 7 = 1")
    rows = [row for row in rows if not (row["id"] is not None and row["id"] < 30 and row["id"] % 7 == 1)]
    spark.sql(
        f"""MERGE INTO {at} t USING (SELECT explode(array(2, 10, 11, 1000000001)) AS id) s ON t.id = s.id
        WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET id = t.id + 1000
        WHEN NOT MATCHED AND s.id > 1000 THEN INSERT (id) VALUES (s.id)"""
    )
    rows = [{**row, "id": 1011} if row["id"] == 11 else row for row in rows if row["id"] not in (2, 10)]
    rows.append({**dict.fromkeys(rows[0]), "id": 1000000001})
    return seen([json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")) for row in rows])


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
