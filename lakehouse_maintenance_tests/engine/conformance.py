"""The golden tables as a lakehouse of ours, and what readers have to see of them before and after our work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.golden.fixture import CATALOG, Expected, ExpectedTable, GoldenLakehouse, expected
from lakehouse_maintenance_tests.readers import digest, read_duckdb, read_pyiceberg

if TYPE_CHECKING:
    from pyiceberg.table import Table

TABLES = expected()

UNSUPPORTED = ("db.v3_dv", "db.v2_equality")
"""Measured, and left alone by the embedded engine."""

COMPACTED = [name for name in TABLES if name not in UNSUPPORTED]
"""The v1 and v2 tables that `rewrite-all` leaves with fewer files."""


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
    """Rewrites the table's data files, due or not; options by Iceberg's names with `_` for `-`."""
    asked = Request(
        actions=(Action.REWRITE_DATA_FILES,), options={key.replace("_", "-"): value for key, value in options.items()}
    )
    return ours.maintain([str(table_name(name))], asked).tables[0]


def seen(rows: list[str]) -> Expected:
    """As tables.json records rows."""
    return Expected(len(rows), digest(rows))


def pyiceberg_sees(table: Table, recorded: ExpectedTable) -> dict[str | int, Expected]:
    """Current rows, and those of each recorded snapshot and ref."""
    found: dict[str | int, Expected] = {"current": seen(read_pyiceberg(table))}
    found |= {snapshot: seen(read_pyiceberg(table, snapshot_id=snapshot)) for snapshot in recorded.snapshots}
    return found | {ref: seen(read_pyiceberg(table, ref=ref)) for ref in recorded.refs}


def duckdb_sees(golden: GoldenLakehouse, name: str) -> dict[str | int, Expected]:
    """Current rows, and those of each recorded snapshot: DuckDB knows no refs."""
    location, properties = golden.metadata_location(name), golden.s3.properties
    found: dict[str | int, Expected] = {"current": seen(read_duckdb(location, properties))}
    snapshots = TABLES[name].snapshots
    return found | {s: seen(read_duckdb(location, properties, snapshot_id=s)) for s in snapshots}


def recorded_rows(recorded: ExpectedTable, *, refs: bool = True) -> dict[str | int, Expected]:
    """What a reader has to see."""
    found: dict[str | int, Expected] = {"current": recorded.current, **recorded.snapshots}
    return found | recorded.refs if refs else found
