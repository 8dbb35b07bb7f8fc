"""Symbolic links: two texts, one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.tables import ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    catalog, properties = sql_catalog()
    many_small_files(catalog)
    (tmp_path / "alias").symlink_to(tmp_path / "warehouse")
    return catalog, lakehouse(tmp_path, properties)


def test_a_file_added_again_through_a_link_stays(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    table = writer.load_table("db.t")
    paths = [task.file.file_path for task in table.scan().plan_files()]
    for path in (path.removeprefix("file://") for path in paths):
        rows = pq.read_table(path)
        pq.write_table(pa.Table.from_arrays(rows.columns, names=rows.column_names), path)
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    before = ids(writer)
    writer.load_table("db.t").delete("id >= 0")
    writer.load_table("db.t").add_files([path.replace("/warehouse/", "/alias/") for path in paths])
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == before


def test_a_table_at_the_same_place_through_a_link(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    location = f"file://{tmp_path}/alias/db/t"
    table = writer.load_table("db.t")
    paths = [task.file.file_path for task in table.scan().plan_files()]
    other = writer.create_table("db.u", table.schema(), location=location)
    with other.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    other.add_files([path.replace("/warehouse/", "/alias/") for path in paths])
    before = ids(writer, "db.u")
    table.delete("id >= 0")
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert ids(writer, "db.u") == before


def test_a_folder_that_leads_out_of_the_table(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    inside, outside = tmp_path / "warehouse/db/t/data/p=a", tmp_path / "elsewhere"
    inside.rename(outside)
    inside.symlink_to(outside)
    there = sorted(outside.iterdir())
    writer.load_table("db.t").delete("p == 'a'")
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert sorted(outside.iterdir()) == there
    kept: Any = outcome.actions[0].actual.kept_files
    assert kept == len(there)
