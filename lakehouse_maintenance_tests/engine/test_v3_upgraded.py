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
from lakehouse_maintenance.catalogs.format_v3 import teach
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.stateful.row_writer import RowWriter

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


@pytest.mark.requirement("IM-12", "RS-04")
@pytest.mark.parametrize("action", [Action.REWRITE_DATA_FILES, Action.REWRITE_MANIFESTS])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("appends", [False, True])
def test_upgraded_right_before_our_commit(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, action: Action, version: int, appends: bool
) -> None:
    """An upgrade makes no snapshot: the branch stands where it was, and what was staged does not fit any more."""
    writer, properties = sql_catalog()
    teach(writer)
    many_small_files(writer, version=version)
    ours = lakehouse(tmp_path, properties)

    def upgrade(attempt: int) -> None:
        if attempt > 1:
            return
        if version == 2:
            edited(writer, "db.t", to_v3)
            if appends:
                table = writer.load_table("db.t")
                rows = RowWriter(writer, "db.t")
                rows.commit(table, rows.data(table, [{1: 60, 2: "a"}]))
        else:
            with writer.load_table("db.t").transaction() as transaction:
                transaction.upgrade_table_version(2)
            if appends:
                append(writer, "db.t", 60, 1)

    with before_commit(ours, upgrade):
        outcome = ours.maintain((), Request(actions=(action,))).tables[0]
    assert outcome.status is Status.DONE, outcome
    table = writer.load_table("db.t")
    assert ids(writer) == [*range(61 if appends else 60)]
    head = table.current_snapshot()
    assert head is not None
    assert table.format_version == version + 1
    assert head.sequence_number == table.metadata.last_sequence_number
    assert head.sequence_number == (1 if version == 1 else 7) + appends


@pytest.mark.requirement("IM-10", "IM-12", "RS-04")
@pytest.mark.parametrize("is_planned", [True, False])
def test_no_position_delete_file_comes_into_an_upgraded_table(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, is_planned: bool
) -> None:
    """Version 3 forbids it. `is_planned`: the upgrade comes after the plan, else right before our commit."""
    writer, properties = sql_catalog()
    many_small_files(writer, partitioned=False, version=2)
    for position in range(3):
        delete_rows(writer, "db.t", {path: [position] for path in data_paths(writer)[:2]}, per_file=False)
    ours = lakehouse(tmp_path, properties)
    action = Action.REWRITE_POSITION_DELETE_FILES
    options = {"rewrite-all": "true", "min-input-files": "1"}
    plan = ours.plan((), Request(actions=(action,), by_action={action: options}))
    assert plan.tables[0].actions

    def upgrade(attempt: int) -> None:
        if attempt == 1:
            edited(writer, "db.t", to_v3)

    if is_planned:
        upgrade(1)
    with before_commit(ours, upgrade if not is_planned else lambda attempt: None):
        outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.SKIPPED, outcome
    deletes = [file.path for file in live(writer)[1] if file.content is Content.POSITION_DELETES]
    assert len(deletes) == 3
    assert len(ids(writer)) == 54
