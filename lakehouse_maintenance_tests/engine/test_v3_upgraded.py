"""A v2 table whose metadata says version 3 since: what our commits make of it, and when they are refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,))


def edited(catalog: SqlCatalog, name: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Replaces the table's metadata by a changed copy; returns its location."""
    table = catalog.load_table(name)
    with table.io.new_input(table.metadata_location).open() as stream:
        raw = json.loads(stream.read())
    change(raw)
    location = f"{table.location()}/metadata/00099-{uuid.uuid4()}.metadata.json"
    with table.io.new_output(location).create() as out:
        out.write(json.dumps(raw).encode())
    catalog.drop_table(name)
    catalog.register_table(name, location)
    return location


def to_v3(raw: dict[str, Any]) -> None:
    """As Iceberg's own upgrade leaves it."""
    raw |= {"format-version": 3, "next-row-id": 0}


def pointer(catalog: SqlCatalog, name: str = "db.t") -> str:
    return str(catalog.load_table(name).metadata_location)


def live(catalog: SqlCatalog, name: str = "db.t") -> tuple[int, list[LiveFile]]:
    """The next row id, and the head's files."""
    table = catalog.load_table(name)
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, name, table.metadata_location)
    head = metadata.head()
    assert head is not None
    assert metadata.next_row_id is not None
    reader = ManifestReader(storage, name)
    return metadata.next_row_id, list(reader.live_files(reader.manifests(head)))


def run(ours: Lakehouse) -> TableOutcome:
    return ours.maintain((), COMPACT).tables[0]


def test_our_commit_numbers_the_rows(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer)
    edited(writer, "db.t", to_v3)
    ours = lakehouse(tmp_path, properties)
    assert run(ours).status is Status.DONE
    assert ids(writer) == [*range(60)]
    free, files = live(writer)
    numbered: list[int] = []
    for file in files:
        assert file.first_row_id is not None
        numbered += range(file.first_row_id, file.first_row_id + file.records)
    assert len(numbered) == len(set(numbered)) == 60
    assert max(numbered) < free
    head = writer.load_table("db.t").current_snapshot()
    assert head is not None
    assert (head.first_row_id, head.added_rows) == (0, free)
    assert expire(ours).status is Status.DONE
    assert live(writer) == (free, files)


def _no_row_ids(raw: dict[str, Any]) -> None:
    raw["format-version"] = 3


def _keys(raw: dict[str, Any]) -> None:
    to_v3(raw)
    raw["snapshots"][0]["key-id"] = "k"


@pytest.mark.parametrize(
    ("change", "why"),
    [(_no_row_ids, "has no next-row-id"), (_keys, "would drop snapshots[0].key-id")],
    ids=["no row ids", "unknown to PyIceberg"],
)
def test_what_a_commit_would_lose_is_seen_before(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer)
    location = edited(writer, "db.t", change)
    ours = lakehouse(tmp_path, properties)
    stored = sorted((tmp_path / "warehouse").rglob("*"))
    assert ours.health()[0].error is None
    for outcome in (run(ours), expire(ours)):
        assert outcome.status is Status.SKIPPED
        assert "unsupported" in outcome.reason
        assert why in outcome.reason
    assert pointer(writer) == location
    assert sorted((tmp_path / "warehouse").rglob("*")) == stored
    assert ours.audit() == []
    back = writer.load_table("db.t").metadata.snapshots[0].snapshot_id
    moved = ours.rollback("db.t", to=back).tables[0]
    assert moved.status is Status.FAILED
    assert why in moved.reason
    assert pointer(writer) == location


class OwnWriter(SqlCatalog):
    """A catalog of somebody's own."""

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        raise AssertionError("nobody knows what this does to format version 3")


def test_a_catalog_that_writes_metadata_its_own_way(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer)
    location = edited(writer, "db.t", to_v3)
    own = {key: text for key, text in properties.items() if key != "type"}
    ours = lakehouse(tmp_path, {**own, "py-catalog-impl": f"{__name__}.OwnWriter"})
    for outcome in (run(ours), expire(ours)):
        assert outcome.status is Status.SKIPPED
        assert "its own way of writing metadata" in outcome.reason
    assert pointer(writer) == location
