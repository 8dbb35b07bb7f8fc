"""Spark on its own tables after our compaction: it reads them as before, goes on writing, and maintains them itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine import tables
from lakehouse_maintenance_tests.engine.conformance import (
    COMPACTED,
    CompactedLakehouse,
    compacted_lakehouse,
    recorded_rows,
    seen,
    spark_sees,
    table_name,
    written_to,
)
from lakehouse_maintenance_tests.golden.fixture import CATALOG, WAREHOUSE
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.spark.session import Spark

Row = dict[str, Any]

COW, MOR = "copy-on-write", "merge-on-read"
WRITTEN_TO = [
    ("db.v1_events", COW, COW),
    ("db.v1_respec", COW, COW),
    ("db.v2_mor", MOR, MOR),
    ("db.v2_evolved", MOR, COW),
    ("sales.eu.order items", MOR, MOR),
]

FUTURE = "TIMESTAMP '2100-01-01'"
"""Everything is older."""


@pytest.fixture(scope="module")
def lakehouse(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> CompactedLakehouse:
    return compacted_lakehouse(s3, tmp_path_factory.mktemp("compacted"))


@pytest.fixture
def attached(spark: Spark, lakehouse: CompactedLakehouse) -> Spark:
    golden = lakehouse.golden
    spark.attach(CATALOG, golden.sqlite, WAREHOUSE, golden.s3)
    return spark


def _records(spark: Spark, query: str) -> list[Row]:
    return [row.asDict(recursive=True) for row in spark.sql(query).collect()]


@pytest.mark.parametrize("name", COMPACTED)
def test_spark_reads_every_snapshot_and_ref_as_before(
    attached: Spark, lakehouse: CompactedLakehouse, name: str
) -> None:
    compacted = lakehouse[name]
    assert compacted.outcome.status is Status.DONE, compacted.outcome
    assert spark_sees(attached, compacted.recorded) == recorded_rows(compacted.recorded)
    if compacted.recorded.lineage is not None:
        lineage = f"SELECT *, _row_id, _last_updated_sequence_number FROM {compacted.recorded.spark_name}"
        assert seen(attached.query_rows(lineage)) == compacted.recorded.lineage


@pytest.mark.parametrize("name", COMPACTED)
def test_sparks_metadata_tables_agree(attached: Spark, lakehouse: CompactedLakehouse, name: str) -> None:
    compacted = lakehouse[name]
    at, action = compacted.recorded.spark_name, compacted.outcome.actions[0]
    health = lakehouse.ours.health([str(table_name(name))])[0]

    entries = _records(
        attached,
        f"""SELECT status, snapshot_id, sequence_number, file_sequence_number, data_file.file_path AS path,
            data_file.content AS content, data_file.record_count AS records, data_file.file_size_in_bytes AS size
            FROM {at}.entries""",
    )
    live = {entry["path"]: entry for entry in entries if entry["status"] != 2}
    data = [entry for entry in live.values() if entry["content"] == 0]
    assert len(live) == sum(entry["status"] != 2 for entry in entries), "no file is listed twice"
    assert len(data) == health.data_files
    assert len(live) - len(data) == health.delete_files == 0
    assert sum(entry["records"] for entry in data) == health.records == compacted.recorded.current.rows

    before = _entries_before(attached, at, action.previous_snapshot_id)
    added = {path for path, entry in live.items() if entry["snapshot_id"] == action.snapshot_id}
    assert len(added) == action.actual.files
    version = compacted.recorded.format_version
    newest = max(number for number, *_ in before.values())
    for path, entry in live.items():
        if path in added:
            assert path not in before
            assert entry["status"] == 1
            assert entry["sequence_number"] == (0 if version == 1 else newest)
            assert (entry["file_sequence_number"] > newest) is (version > 1)
        else:
            numbers = (entry["sequence_number"], entry["file_sequence_number"], entry["snapshot_id"])
            assert numbers == before[path], "what was not rewritten keeps its numbers"
    assert {entry["path"] for entry in entries if entry["status"] == 2} == set(before) - set(live)

    manifests = _records(
        attached,
        f"""SELECT sum(added_data_files_count) AS added, sum(existing_data_files_count) AS existing,
            sum(deleted_data_files_count) AS deleted, sum(added_delete_files_count + existing_delete_files_count)
            AS deletes, count(*) AS manifests FROM {at}.manifests""",
    )[0]
    assert manifests["added"] + manifests["existing"] == health.data_files
    assert manifests["deletes"] == 0
    assert manifests["manifests"] == health.manifests
    partitions = _records(
        attached, f"SELECT sum(file_count) AS files, sum(record_count) AS records FROM {at}.partitions"
    )
    assert partitions == [{"files": health.data_files, "records": health.records}]

    query = f"SELECT operation, summary FROM {at}.snapshots WHERE snapshot_id = {action.snapshot_id}"
    snapshot = _records(attached, query)[0]
    assert snapshot["operation"] == "replace"
    told = {key: int(value) for key, value in snapshot["summary"].items() if value.isdigit()}
    totals = {
        "total-data-files": len(data),
        "total-records": health.records,
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
        "total-files-size": sum(entry["size"] for entry in live.values()),
        "added-data-files": len(added),
        "deleted-data-files": action.actual.rewritten_data_files,
    }
    assert {key: told.get(key) for key in totals} == totals
    assert told.get("removed-delete-files", 0) == action.actual.removed_delete_files


def _entries_before(spark: Spark, at: str, snapshot_id: int | None) -> dict[str, tuple[int, int, int]]:
    query = f"""SELECT sequence_number, file_sequence_number, snapshot_id, data_file.file_path AS path
                FROM {at}.entries VERSION AS OF {snapshot_id} WHERE status != 2"""
    found = _records(spark, query)
    return {row["path"]: (row["sequence_number"], row["file_sequence_number"], row["snapshot_id"]) for row in found}


@pytest.mark.parametrize(("name", "delete_mode", "merge_mode"), WRITTEN_TO)
def test_spark_appends_deletes_merges_and_maintains(
    attached: Spark, lakehouse: CompactedLakehouse, name: str, delete_mode: str, merge_mode: str
) -> None:
    at = lakehouse[name].recorded.spark_name
    table = at.removeprefix(f"`{CATALOG}`.")
    expected = written_to(attached, at, delete_mode, merge_mode)
    assert seen(attached.rows(at)) == expected
    attached.sql(f"CALL golden.system.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))")
    call = f"CALL golden.system.expire_snapshots(table => '{table}', older_than => {FUTURE}, retain_last => 1)"
    assert attached.sql(call).collect()[0]["deleted_data_files_count"] > 0
    assert seen(attached.rows(at)) == expected


def test_spark_writes_to_a_branch_and_expires_by_the_refs_own_rules(
    attached: Spark, lakehouse: CompactedLakehouse
) -> None:
    recorded = lakehouse["db.v2_branches"].recorded
    at = recorded.spark_name
    attached.sql(f"INSERT INTO {at}.branch_audit VALUES (1000, 'on the branch')")
    attached.sql(f"INSERT INTO {at} VALUES (2000, 'on main')")
    attached.sql(f"CALL golden.system.expire_snapshots(table => 'db.v2_branches', older_than => {FUTURE})")
    assert len(attached.rows(at, ref="audit")) == recorded.refs["audit"].rows + 1
    assert len(attached.rows(at)) == recorded.refs["main"].rows + 1
    assert seen(attached.rows(at, ref="release")) == recorded.refs["release"]


def test_a_delete_by_bounds_spares_nan(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    """Iceberg drops a file whole where its bounds say that all rows match, unless NaNs are counted in it."""
    _, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", properties["warehouse"])
    spark.sql("CREATE TABLE main.db.t (id BIGINT, x DOUBLE) USING iceberg")
    for first in (0, 2):
        spark.sql(f"INSERT INTO main.db.t VALUES ({first}, 1.5), ({first + 1}, CAST('NaN' AS DOUBLE))")
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    assert tables.lakehouse(tmp_path, properties).maintain((), asked).ok
    spark.sql("DELETE FROM main.db.t WHERE x < 5")
    assert [json.loads(row)["id"] for row in spark.rows("main.db.t")] == [1, 3]


def test_odd_column_names_and_filters_on_them(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    catalog, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", properties["warehouse"])
    catalog.create_namespace("db")
    names = ["a.b c", "1st", "ключ", "a/b", "q\"'"]
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)])
    table = catalog.create_table("db.t", schema)
    for first in (0, 10):
        values = [[f"{name}{i}" for i in range(first, first + 10)] for name in names]
        table.append(pa.table([list(range(first, first + 10)), *values], schema=schema))
    before = spark.rows("main.db.t")
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    assert tables.lakehouse(tmp_path, properties).maintain((), asked).ok
    assert spark.rows("main.db.t") == before
    for name in names:
        value = f"{name}15".replace("'", "\\'")
        (row,) = spark.rows(f"main.db.t WHERE `{name}` = '{value}'")
        assert json.loads(row)["id"] == 15
