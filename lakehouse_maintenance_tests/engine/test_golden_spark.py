"""Spark on its own tables after our compaction: it reads them as before, goes on writing, and maintains them itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.conformance import (
    COMPACTED,
    TABLES,
    CompactedLakehouse,
    compact,
    compacted_lakehouse,
    open_golden,
    recorded_rows,
    seen,
    spark_sees,
    table_name,
)
from lakehouse_maintenance_tests.golden.fixture import CATALOG, WAREHOUSE, ExpectedTable, GoldenLakehouse
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.spark.session import Spark

Row = dict[str, Any]

WRITTEN_TO = ("db.v1_events", "db.v1_respec", "db.v2_mor", "db.v2_evolved", "db.v2_types", "sales.eu.order items")


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


@pytest.mark.parametrize("name", WRITTEN_TO)
def test_spark_appends_deletes_merges_and_maintains(attached: Spark, lakehouse: CompactedLakehouse, name: str) -> None:
    recorded = lakehouse[name].recorded
    at = recorded.spark_name
    rows = [json.loads(row) for row in attached.rows(at)]

    def check(expected: list[Row]) -> None:
        assert seen(attached.rows(at)) == seen([_canonical(row) for row in expected])

    def where(test: Callable[[int], bool]) -> Callable[[Row], bool]:
        return lambda row: row["id"] is not None and test(row["id"])

    attached.sql(f"INSERT INTO {at} SELECT * FROM {at} WHERE id % 5 = 0")
    rows += list(filter(where(lambda one: one % 5 == 0), rows))
    check(rows)

    modes = ("copy-on-write",) if recorded.format_version == 1 else ("merge-on-read", "copy-on-write")
    for mode, remainder in zip(modes, (1, 2), strict=False):
        attached.sql(
            f"ALTER TABLE {at} SET TBLPROPERTIES ('write.delete.mode' = '{mode}', 'write.merge.mode' = '{mode}')"
        )
        attached.sql(f"DELETE FROM {at} WHERE id % 7 = {remainder}")
        rows = [row for row in rows if not where(lambda one, r=remainder: one % 7 == r)(row)]
        check(rows)
        # 3 + 7n: neither of the deletes has taken these.
        source = [3, 10, 17, 24, 31, 10**9 + remainder]
        attached.sql(
            f"""MERGE INTO {at} t USING (SELECT explode(array({", ".join(map(str, source))})) AS id) s ON t.id = s.id
            WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET id = t.id + 1000
            WHEN NOT MATCHED AND s.id > 1000 THEN INSERT (id) VALUES (s.id)"""
        )
        nulls = dict.fromkeys(rows[0])
        merged = [row for row in rows if not (row["id"] in source and row["id"] % 2 == 0)]
        rows = [{**row, "id": row["id"] + 1000} if row["id"] in source else row for row in merged]
        rows.append({**nulls, "id": source[-1]})
        check(rows)

    table = _unquoted(recorded)
    attached.sql(f"CALL golden.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    check(rows)
    expired = attached.sql(
        f"CALL golden.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    ).collect()[0]
    assert expired["deleted_data_files_count"] > 0
    check(rows)


def _unquoted(recorded: ExpectedTable) -> str:
    return recorded.spark_name.removeprefix(f"`{CATALOG}`.")


def _canonical(row: Row) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def test_spark_writes_to_a_branch_and_expires_by_the_refs_own_rules(
    attached: Spark, lakehouse: CompactedLakehouse
) -> None:
    recorded = lakehouse["db.v2_branches"].recorded
    at = recorded.spark_name
    attached.sql(f"INSERT INTO {at}.branch_audit VALUES (1000, 'on the branch')")
    attached.sql(f"INSERT INTO {at} VALUES (2000, 'on main')")
    attached.sql("CALL golden.system.expire_snapshots(table => 'db.v2_branches', older_than => TIMESTAMP '2100-01-01')")
    assert len(attached.rows(at, ref="audit")) == recorded.refs["audit"].rows + 1
    assert len(attached.rows(at)) == recorded.refs["main"].rows + 1
    assert seen(attached.rows(at, ref="release")) == recorded.refs["release"]


def test_a_delete_by_bounds_spares_nan(golden: GoldenLakehouse, spark: Spark, tmp_path: Path) -> None:
    """Iceberg drops a file whole where its bounds say that all rows match, unless NaNs are counted in it."""
    recorded = TABLES["db.v1_events"]
    assert compact(open_golden(golden, tmp_path), "db.v1_events", rewrite_all="true").status is Status.DONE
    spark.attach(CATALOG, golden.sqlite, WAREHOUSE, golden.s3)
    spark.sql(f"DELETE FROM {recorded.spark_name} WHERE value < 1000000")
    left = [json.loads(row)["value"] for row in spark.rows(recorded.spark_name)]
    assert set(left) == {"NaN"}
    assert len(left) == 11
