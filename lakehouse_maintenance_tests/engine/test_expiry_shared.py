"""Tables that share files with the expired one, though they lie elsewhere or in a catalog that is not configured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import SetLocationUpdate

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    catalog, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    many_small_files(catalog)
    ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,)))
    return catalog, ours


def every_snapshot(catalog: SqlCatalog, name: str) -> dict[int, list[int]]:
    snapshots = catalog.load_table(name).metadata.snapshots
    return {one.snapshot_id: ids(catalog, name, snapshot_id=one.snapshot_id) for one in snapshots}


def test_registered_twice_and_then_moved(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    other = writer.register_table("db.u", writer.load_table("db.t").metadata_location)
    writer.commit_table(other, (), (SetLocationUpdate(location=f"file://{tmp_path}/warehouse/db/u"),))
    rows = every_snapshot(writer, "db.u")
    outcome = expire(ours)
    assert outcome.status is Status.DONE
    assert "main.db.u references it" in " ".join(outcome.actions[0].notes)
    assert every_snapshot(writer, "db.u") == rows


def test_another_catalog_of_the_same_database(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    other = SqlCatalog("other", **writer.properties)
    other.create_namespace("x")
    other.register_table("x.u", writer.load_table("db.t").metadata_location)
    rows = every_snapshot(other, "x.u")
    outcome = expire(ours)
    assert outcome.status is Status.DONE
    assert "other.x.u references it" in " ".join(outcome.actions[0].notes)
    assert every_snapshot(other, "x.u") == rows
    other.close()


def test_what_a_table_without_gc_references_is_owned(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    table = writer.load_table("db.t")
    first = table.metadata.snapshots[0]
    entries = [e for m in first.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
    paths = [entry.data_file.file_path for entry in entries]
    for path in (path.removeprefix("file://") for path in paths):
        rows = pq.read_table(path)
        pq.write_table(pa.Table.from_arrays(rows.columns, names=rows.column_names), path)
    location = f"file://{tmp_path}/elsewhere/u"
    writer.create_table("db.u", table.schema(), location=location, properties={"gc.enabled": "false"}).add_files(paths)
    before = ids(writer, "db.u")
    outcome = expire(ours)
    assert outcome.status is Status.DONE
    assert "main.db.u references it" in " ".join(outcome.actions[0].notes)
    assert ids(writer, "db.u") == before


def test_a_table_elsewhere_that_the_catalog_does_not_load(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over REST, a table that may not be loaded tells nothing, not even where its metadata lies."""
    writer, ours = pair
    writer.create_namespace("other")
    writer.register_table("other.u", writer.load_table("db.t").metadata_location)
    rows = every_snapshot(writer, "other.u")
    kind = type(ours.catalogs["main"])
    real = kind.locate

    def locate(self: Any, name: TableName) -> Any:
        if name.table == "u":
            raise TableUnreadableError(f"{name}: 403 Forbidden")
        return real(self, name)

    monkeypatch.setattr(kind, "locate", locate)
    monkeypatch.setattr(kind, "pointers", lambda self, namespace: {})
    outcome = expire(ours)
    assert outcome.status is Status.FAILED
    assert "main.other.u" in outcome.reason
    assert every_snapshot(writer, "other.u") == rows
