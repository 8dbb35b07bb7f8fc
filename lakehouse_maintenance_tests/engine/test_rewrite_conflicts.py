"""Compaction beside every kind of commit, in both orders: no row is lost or doubled, and appends never fail (RS-04).

Who commits first wins (IM-12). A writer that is second meets its own format's conflict, with nothing lost.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.types import StringType

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.iceberg.fields import ADDED
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import (
    SCHEMA,
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.readers import read_duckdb
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.spark.equality_delete import write_equality_delete
from lakehouse_maintenance_tests.services.spark.session import Spark

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,), options={"min-input-files": "2", "delete-file-threshold": "1"})
ROWS = [*range(40)]


@dataclass(frozen=True)
class Scene:
    """A table `db.t` of 40 rows in two partitions of four files each, `audit` at an older snapshot of it.

    `other`: another deployment of ours, with a state of its own and so without a lease between the two.
    """

    writer: SqlCatalog
    ours: Lakehouse
    other: Lakehouse


Change = Callable[[Scene], tuple[set[int], set[int]]]
"""Commits something; returns the ids that main loses by it, and those it gains."""


@pytest.fixture
def scene(sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    writer, properties = sql_catalog()
    table = many_small_files(writer, commits=4)
    table.manage_snapshots().create_branch(table.metadata.snapshots[-2].snapshot_id, "audit").commit()
    ours = lakehouse(tmp_path, properties)
    return Scene(writer, ours, Lakehouse(ours.config, open_state(str(tmp_path / "other"))))


def _append(scene: Scene) -> tuple[set[int], set[int]]:
    append(scene.writer, "db.t", 1000, 10)
    return set(), {*range(1000, 1010)}


def _delete_positions(scene: Scene, *, per_file: bool) -> tuple[set[int], set[int]]:
    found = {path: [0] for path in data_paths(scene.writer)[:2]}
    gone = {pq.read_table(path[7:], columns=["id"])["id"][0].as_py() for path in found}
    delete_rows(scene.writer, "db.t", found, per_file=per_file)
    return gone, set()


def _delete_copying(scene: Scene) -> tuple[set[int], set[int]]:
    scene.writer.load_table("db.t").delete("id < 3")
    return {0, 1, 2}, set()


def _overwrite_all(scene: Scene) -> tuple[set[int], set[int]]:
    rows = pa.table([[7000, 7001], ["a", "b"], [0.5, 1.5]], schema=SCHEMA)
    scene.writer.load_table("db.t").overwrite(rows)
    return set(ROWS), {7000, 7001}


def _change_schema(scene: Scene) -> tuple[set[int], set[int]]:
    with scene.writer.load_table("db.t").update_schema() as update:
        update.add_column("late", StringType())
        update.rename_column("x", "y")
    return set(), set()


def _change_spec(scene: Scene) -> tuple[set[int], set[int]]:
    with scene.writer.load_table("db.t").update_spec() as update:
        update.remove_field("p")
    return set(), set()


def _set_property(scene: Scene) -> tuple[set[int], set[int]]:
    scene.writer.load_table("db.t").transaction().set_properties({"owner": "them"}).commit_transaction()
    return set(), set()


def _expire(scene: Scene) -> tuple[set[int], set[int]]:
    """All but the newest snapshot of each branch, and their files; `audit` stays."""
    all_old = ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True)
    outcome = scene.other.maintain((), Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=all_old)).tables[0]
    assert outcome.status in (Status.DONE, Status.SKIPPED), outcome
    return set(), set()


def _compact(scene: Scene) -> tuple[set[int], set[int]]:
    assert scene.other.maintain((), COMPACT).tables[0].status in (Status.DONE, Status.SKIPPED)
    return set(), set()


def _append_to_branch(scene: Scene) -> tuple[set[int], set[int]]:
    append(scene.writer, "db.t", 2000, 10, branch="audit")
    return set(), set()


def _roll_back(scene: Scene) -> tuple[set[int], set[int]]:
    table = scene.writer.load_table("db.t")
    earlier = table.metadata.refs["audit"].snapshot_id
    table.manage_snapshots().set_current_snapshot(earlier).commit()
    return {*range(30, 40)}, set()


CHANGES: dict[str, Change] = {
    "append": _append,
    "position delete": lambda scene: _delete_positions(scene, per_file=True),
    "position delete of a partition": lambda scene: _delete_positions(scene, per_file=False),
    "delete by copying": _delete_copying,
    "overwrite": _overwrite_all,
    "schema change": _change_schema,
    "spec change": _change_spec,
    "property change": _set_property,
    "expiry": _expire,
    "compaction": _compact,
    "append to a branch": _append_to_branch,
    "rollback": _roll_back,
}
NEVER_REDONE = {"append", "property change", "append to a branch", "schema change", "spec change", "expiry"}
REFUSED = (CommitFailedException, ValidationException, ValueError)
"""A writer that comes too late is told by one of these; ValueError: its sequence number went to another branch."""
every_change = pytest.mark.parametrize("change", CHANGES)


def check(scene: Scene, expected: set[int]) -> None:
    assert ids(scene.writer) == sorted(expected), "each row once, and no other"
    table = scene.writer.load_table("db.t")
    numbers = [snapshot.sequence_number for snapshot in table.metadata.snapshots]
    assert len(set(numbers)) == len(numbers)
    audit = ids(scene.writer, snapshot_id=table.metadata.refs["audit"].snapshot_id)
    assert [row for row in audit if row < 2000] == [*range(30)]
    assert not scene.ours.plan((), COMPACT).tables[0].error


def applied(done: tuple[set[int], set[int]]) -> set[int]:
    lost, gained = done
    return (set(ROWS) - lost) | gained


@pytest.mark.requirement("IM-12", "RS-04")
@every_change
def test_committed_between_plan_and_run(scene: Scene, change: str) -> None:
    plan = scene.ours.plan((), COMPACT)
    expected = applied(CHANGES[change](scene))
    outcome = scene.ours.apply(plan).tables[0]
    assert outcome.status is Status.DONE if change in NEVER_REDONE else outcome.status in (Status.DONE, Status.SKIPPED)
    check(scene, expected)


@pytest.mark.requirement("IM-12", "RS-04")
@every_change
def test_committed_right_before_our_commit(scene: Scene, change: str) -> None:
    expected: set[int] = set()

    def hook(attempt: int) -> None:
        if attempt == 1:
            expected.update(applied(CHANGES[change](scene)))

    with before_commit(scene.ours, hook):
        outcome = scene.ours.maintain((), COMPACT).tables[0]
    redone = [note for action in outcome.actions for note in action.notes if "redone" in note]
    if change in NEVER_REDONE:
        assert (outcome.status, redone) == (Status.DONE, []), outcome
    else:
        assert outcome.status in (Status.DONE, Status.SKIPPED), outcome
        assert redone
    check(scene, expected)


@contextmanager
def before_theirs(writer: SqlCatalog, other: Lakehouse, work: Callable[[], object]) -> Iterator[None]:
    """`work` once, when a commit of the writer's, or of our other deployment's, is staged and on its way."""
    todo = [work]
    with pytest.MonkeyPatch.context() as patch:
        for catalog in (writer, other.catalogs["main"].pyiceberg):
            real = catalog.commit_table

            def commit_table(*args: Any, real: Any = real, **kwargs: Any) -> Any:
                if todo:
                    todo.pop()()
                return real(*args, **kwargs)

            patch.setattr(catalog, "commit_table", commit_table)
        yield


@pytest.mark.requirement("IM-12", "RS-04")
@every_change
def test_staged_before_our_commit_and_committed_after_it(scene: Scene, change: str) -> None:
    """It is committed all the same, or refused as any writer that comes too late; made anew then, nothing is lost."""
    outcomes: list[TableOutcome] = []
    with before_theirs(scene.writer, scene.other, lambda: outcomes.append(scene.ours.maintain((), COMPACT).tables[0])):
        try:
            expected = applied(CHANGES[change](scene))
        except REFUSED:
            check(scene, set(ROWS))
            expected = applied(CHANGES[change](scene))
    assert [outcome.status for outcome in outcomes] == [Status.DONE], outcomes
    check(scene, expected)


@pytest.mark.requirement("IM-12", "RS-04")
@pytest.mark.parametrize("change", ["delete by copying", "overwrite", "position delete"])
def test_an_overwrite_of_replaced_files_meets_the_ordinary_conflict(scene: Scene, change: str) -> None:
    table = scene.writer.load_table("db.t")
    with (
        before_theirs(scene.writer, scene.other, lambda: scene.ours.maintain((), COMPACT)),
        pytest.raises((CommitFailedException, ValidationException)),
    ):
        CHANGES[change](scene)
    check(scene, set(ROWS))
    assert len(data_paths(scene.writer)) == 2
    assert table.metadata.table_uuid == scene.writer.load_table("db.t").metadata.table_uuid


@pytest.mark.requirement("IM-12", "RS-04")
@pytest.mark.parametrize("when", ["before the run", "before the commit"])
@pytest.mark.parametrize("how", ["dropped", "renamed", "recreated"])
def test_the_table_is_not_there_any_more(scene: Scene, how: str, when: str) -> None:
    """It fails, and what has its name now is left alone, to the last file."""
    writer = scene.writer

    def change() -> None:
        if how == "renamed":
            writer.rename_table("db.t", "db.moved")
        else:
            writer.drop_table("db.t")
        if how == "recreated":
            many_small_files(writer, "db.t", commits=3)

    plan = scene.ours.plan((), COMPACT)
    if when == "before the run":
        change()
        outcome = scene.ours.apply(plan).tables[0]
    else:
        with before_commit(scene.ours, lambda attempt: change() if attempt == 1 else None):
            outcome = scene.ours.apply(plan).tables[0]
    assert outcome.status is Status.FAILED, outcome
    assert outcome.actions[0].snapshot_id is None
    if how == "renamed":
        assert ids(writer, "db.moved") == ROWS
    if how == "recreated":
        assert ids(writer) == [*range(30)]
        assert len(data_paths(writer)) == 6


# Equality deletes


def equality_delete(writer: SqlCatalog, key: int, partition: str) -> None:
    """Commits one equality delete of an id in a partition, as a streaming engine does."""
    table = writer.load_table("db.t")
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, "db.t", table.metadata_location)
    reader, head = ManifestReader(storage, "db.t"), metadata.head()
    assert head is not None
    entries = reader.entries(reader.manifests(head)[0])
    path = f"{table.location()}/data/eq-{uuid.uuid4()}.parquet"
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([[key]], schema=pa.schema([field])), sink, store_schema=False)
    data = sink.getvalue().to_pybytes()

    def put(path: str, data: bytes) -> None:
        with table.io.new_output(path).create() as out:
            out.write(data)

    put(path, data)
    snapshot_id = secrets.randbits(62)
    record = {
        "content": 2,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {"p": partition},
        "record_count": 1,
        "file_size_in_bytes": len(data),
        "equality_ids": [1],
    }
    entry = {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": record,
    }
    where = f"{table.location()}/metadata/{uuid.uuid4()}"
    spec = metadata.default_spec_id
    row = write_manifest(put, f"{where}-m0.avro", metadata, spec, 1, entries.partition, [entry], snapshot_id)
    kept = [manifest.raw for manifest in reader.manifests(head)]
    number = metadata.last_sequence_number + 1
    write_manifest_list(put, f"{where}-list.avro", metadata, [row, *kept], snapshot_id, head.snapshot_id, number)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=int(time.time() * 1000),
        manifest_list=f"{where}-list.avro",
        schema_id=metadata.raw["current-schema-id"],
        summary=Summary(Operation.DELETE),
    )
    writer.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id),
        ),
    )


def rows_by_duckdb(writer: SqlCatalog) -> list[int]:
    import json

    return sorted(json.loads(row)["id"] for row in read_duckdb(writer.load_table("db.t").metadata_location))


@pytest.mark.requirement("IM-01", "IM-12", "RS-04")
@pytest.mark.parametrize("starting", [True, False], ids=["starting number", "own number"])
def test_an_equality_delete_committed_meanwhile_still_holds(scene: Scene, starting: bool) -> None:
    """With the starting sequence number it applies to the outputs, and nothing is redone; with our commit's own number
    it would not any more, so its group is read anew."""
    options = {**COMPACT.options, "use-starting-sequence-number": str(starting).lower()}
    request = Request(actions=COMPACT.actions, options=options)
    with before_commit(scene.ours, lambda attempt: equality_delete(scene.writer, 5, "a") if attempt == 1 else None):
        outcome = scene.ours.maintain((), request).tables[0]
    assert outcome.status is Status.DONE, outcome
    redone = [note for note in outcome.actions[0].notes if "redone" in note]
    assert len(redone) == (0 if starting else 1), "at most the group of its partition"
    assert rows_by_duckdb(scene.writer) == [row for row in ROWS if row != 5]


# Spark beside us


@pytest.mark.requirement("IM-12", "RS-04")
def test_spark_beside_us(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    """Its compaction, its MERGE and an equality delete of Java's right before our commit; its MERGE right after."""
    _, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", f"file://{tmp_path / 'warehouse'}")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS main.db")
    ours = lakehouse(tmp_path, properties)

    def rewrite(table: str) -> None:
        options = "map('min-input-files', '2')"
        spark.sql(f"CALL main.system.rewrite_data_files(table => '{table}', options => {options})").collect()

    def merge(table: str, key: int = 3) -> None:
        spark.sql(
            f"""MERGE INTO {table} t USING (SELECT explode(array({key}, {700 + key})) AS id) s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET x = -1 WHEN NOT MATCHED THEN INSERT (id, p, x) VALUES (s.id, 'a', -7)"""
        )

    def delete_by_equality(table: str) -> None:
        write_equality_delete(spark, table, ["id"], [{"id": 3}], ["b"])

    for change, rows in ((rewrite, 20), (delete_by_equality, 19), (merge, 21)):
        table = f"main.db.{change.__name__}"
        spark.sql(
            f"""CREATE TABLE {table} USING iceberg PARTITIONED BY (p) TBLPROPERTIES
            ('format-version'='2', 'write.merge.mode'='merge-on-read', 'write.distribution-mode'='none')
            AS SELECT id, IF(id % 2 = 0, 'a', 'b') AS p, CAST(id AS DOUBLE) AS x FROM range(0, 20, 1, 4)"""
        )
        expected: list[str] = []

        def theirs(attempt: int, change: Any = change, table: str = table, expected: Any = expected) -> None:
            if attempt == 1:
                change(table)
                expected += spark.rows(table)

        with before_commit(ours, theirs):
            outcome = ours.maintain((table,), COMPACT).tables[0]
        assert outcome.status in (Status.DONE, Status.SKIPPED), outcome
        assert len(expected) == rows
        assert spark.rows(table) == expected, change
    merge(table, 4)
    found = spark.query_rows(f"SELECT id FROM {table} WHERE x < 0")
    assert found == [f'{{"id":{key}}}' for key in (3, 4, 703, 704)], "Spark goes on where we wrote"
