"""Spark on its own tables after our rewrites of manifests and delete files: as before, and it goes on with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine import tables
from lakehouse_maintenance_tests.engine.conformance import (
    TABLES,
    duckdb_sees,
    open_golden,
    pyiceberg_sees,
    readable_by,
    recorded_rows,
    spark_sees,
    table_name,
)
from lakehouse_maintenance_tests.golden.fixture import CATALOG, WAREHOUSE, GoldenLakehouse, copy_catalog, upload
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.spark.session import Spark

BEFORE_V3 = ("db.v1_events", "db.v1_respec", "db.v2_mor", "db.v2_evolved", "sales.eu.order items")
REWRITES = (Action.REWRITE_POSITION_DELETE_FILES, Action.REWRITE_MANIFESTS)
NOTHING_NEEDED = ("nothing to gain", "nothing to do")


@pytest.fixture(scope="module")
def golden(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[GoldenLakehouse, Lakehouse]:
    """A catalog of this module's own."""
    folder = tmp_path_factory.mktemp("manifests")
    upload(s3)
    copy_catalog(folder / "golden.db")
    found = GoldenLakehouse(folder / "golden.db", s3)
    return found, open_golden(found, folder)


def rewrite(ours: Lakehouse, name: str, action: Action, **options: str) -> TableOutcome:
    by_action = {action: {key.replace("_", "-"): value for key, value in options.items()}}
    return ours.maintain([name], Request(actions=(action,), by_action=by_action)).tables[0]


def entries(spark: Spark, at: str) -> list[tuple[object, ...]]:
    """Live entries with all that Spark shows of them."""
    found = spark.sql(
        f"SELECT snapshot_id, sequence_number, file_sequence_number, data_file FROM {at}.entries WHERE status < 2"
    )
    return sorted(tuple(map(str, row)) for row in found.collect())


@pytest.mark.requirement("IM-06", "IM-10")
@pytest.mark.parametrize("name", BEFORE_V3)
def test_every_reader_sees_golden_tables_as_before(
    spark: Spark, golden: tuple[GoldenLakehouse, Lakehouse], s3: S3Server, name: str
) -> None:
    lake, ours = golden
    spark.attach(CATALOG, lake.sqlite, WAREHOUSE, lake.s3)
    recorded = TABLES[name]
    ours_name = str(table_name(name))
    for spec in spark.sql(f"SELECT DISTINCT partition_spec_id FROM {recorded.spark_name}.manifests").collect():
        before = entries(spark, recorded.spark_name)
        outcome = rewrite(ours, ours_name, Action.REWRITE_MANIFESTS, spec_id=str(spec[0]))
        assert outcome.status is Status.DONE or any(why in outcome.reason for why in NOTHING_NEEDED), outcome
        assert entries(spark, recorded.spark_name) == before
    outcome = rewrite(ours, ours_name, Action.REWRITE_POSITION_DELETE_FILES, rewrite_all="true")
    assert outcome.status is Status.DONE or any(why in outcome.reason for why in NOTHING_NEEDED), outcome
    assert spark_sees(spark, recorded) == recorded_rows(recorded)
    table = lake.catalog().load_table(recorded.identifier)
    if name in readable_by("pyiceberg"):
        assert pyiceberg_sees(table, recorded) == recorded_rows(recorded)
    if name in readable_by("duckdb"):
        assert duckdb_sees(table, recorded, s3) == recorded_rows(recorded, refs=False)


@pytest.mark.requirement("IM-06", "IM-10", "IM-03")
def test_spark_goes_on(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    catalog, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", f"file://{tmp_path / 'warehouse'}")
    ours = tables.lakehouse(tmp_path, properties)
    spark.sql("CREATE NAMESPACE main.db")
    spark.sql(
        "CREATE TABLE main.db.t (id BIGINT, p DOUBLE) USING iceberg PARTITIONED BY (p) TBLPROPERTIES "
        "('format-version'='2', 'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read', "
        "'write.delete.granularity'='partition', 'commit.manifest-merge.enabled'='false')"
    )
    cases = ("null", "double('NaN')", "double('-0.0')", "0.0")
    values = "CASE id % 5 " + " ".join(f"WHEN {n} THEN {case}" for n, case in enumerate(cases)) + " ELSE -1.5 END"
    for number in range(4):
        spark.sql(f"INSERT INTO main.db.t SELECT id, {values} FROM range({number * 50}, {number * 50 + 50})")
        spark.sql(f"DELETE FROM main.db.t WHERE id % 7 = {number}")

    def rows() -> list[str]:
        return spark.rows("main.db.t")

    seen, before = rows(), entries(spark, "main.db.t")
    action = rewrite(ours, "main.db.t", Action.REWRITE_MANIFESTS).actions[0]
    assert action.verified, action
    assert action.results["rewritten_manifests_count"] == 8
    assert entries(spark, "main.db.t") == before
    assert rows() == seen
    for predicate in ("p = 0.0", "p = -1.5", "isnan(p)", "p IS NULL"):
        assert spark.sql(f"SELECT id FROM main.db.t WHERE {predicate}").count() > 0, predicate
    called = spark.sql("CALL main.system.rewrite_manifests('db.t')").collect()[0]
    assert rows() == seen, called

    action = rewrite(ours, "main.db.t", Action.REWRITE_POSITION_DELETE_FILES, min_input_files="2").actions[0]
    assert action.verified, action
    assert action.results["rewritten_delete_files_count"] > action.results["added_delete_files_count"] > 0
    assert rows() == seen
    spark.sql("DELETE FROM main.db.t WHERE id = 30")
    spark.sql("MERGE INTO main.db.t t USING (SELECT 31L AS id) u ON t.id = u.id WHEN MATCHED THEN DELETE")
    left = [row for row in seen if '"id":30,' not in row and '"id":31,' not in row]
    assert rows() == left
    spark.sql("CALL main.system.rewrite_position_delete_files(table => 'db.t', options => map('rewrite-all', 'true'))")
    assert rows() == left
    spark.sql("CALL main.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
    spark.sql(
        "CALL main.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert rows() == left
    assert len(tables.ids(catalog)) == len(left)


@pytest.mark.requirement("IM-06", "IM-04")
def test_version_3_keeps_row_ids(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    _, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", f"file://{tmp_path / 'warehouse'}")
    ours = tables.lakehouse(tmp_path, properties)
    spark.sql("CREATE NAMESPACE main.db")
    modes = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
    spark.sql(
        "CREATE TABLE main.db.t (id BIGINT, p INT) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='2', 'commit.manifest-merge.enabled'='false', {modes})"
    )

    def insert(number: int) -> None:
        start = number * 10
        spark.sql(f"INSERT INTO main.db.t SELECT id, cast(id % 3 AS INT) FROM range({start}, {start + 10})")

    def rows() -> list[str]:
        return spark.query_rows("SELECT id, p, _row_id, _last_updated_sequence_number AS seq FROM main.db.t")

    insert(0)
    insert(1)
    spark.sql("ALTER TABLE main.db.t SET TBLPROPERTIES ('format-version'='3')")
    outcome = rewrite(ours, "main.db.t", Action.REWRITE_MANIFESTS)
    assert outcome.status is Status.DONE, outcome
    assert len({row for row in rows() if '"_row_id":null' not in row}) == 20, "the first commit in version 3 gives ids"
    insert(2)
    spark.sql("DELETE FROM main.db.t WHERE id % 5 = 0")
    insert(3)
    spark.sql("UPDATE main.db.t SET p = 7 WHERE id % 5 = 1")
    seen, before = rows(), entries(spark, "main.db.t")
    action = rewrite(ours, "main.db.t", Action.REWRITE_MANIFESTS).actions[0]
    assert action.verified, action
    assert rows() == seen
    assert len(entries(spark, "main.db.t")) == len(before)
    insert(4)
    assert {row for row in rows() if '"seq":' in row} >= set(seen)
    assert len(spark.query_rows("SELECT DISTINCT _row_id FROM main.db.t")) == len(rows())
    spark.sql("CALL main.system.rewrite_manifests('db.t')")
    assert set(rows()) >= set(seen)
    assert "nothing to gain" in rewrite(ours, "main.db.t", Action.REWRITE_MANIFESTS).reason
