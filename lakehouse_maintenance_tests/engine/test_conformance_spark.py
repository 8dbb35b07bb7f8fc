"""Conformance: Spark on its own tables after each of our actions, and what it writes and maintains itself on top."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance_tests.engine.conformance import (
    CURRENT,
    TABLES,
    golden_of,
    kept,
    open_golden,
    recorded_rows,
    seen,
    spark_sees,
    written_to,
)
from lakehouse_maintenance_tests.engine.steps import LIMITS, OTHERWISE, take
from lakehouse_maintenance_tests.golden.fixture import BUCKET, CATALOG, WAREHOUSE, ExpectedTable, GoldenLakehouse
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.spark.session import Spark

Lake = tuple[GoldenLakehouse, Lakehouse]
COW, MOR = "copy-on-write", "merge-on-read"
WRITTEN_TO = [("db.v1_events", COW), ("db.v2_mor", MOR), ("db.v3_dv", MOR), ("db.v2_equality", MOR)]
FUTURE = "TIMESTAMP '2100-01-01'"


@pytest.fixture(scope="module")
def lake(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("conformance")
    golden = golden_of(s3, folder)
    return golden, open_golden(golden, folder, limits=LIMITS)


@pytest.fixture
def attached(spark: Spark, lake: Lake) -> Spark:
    golden = lake[0]
    spark.attach(CATALOG, golden.sqlite, WAREHOUSE, golden.s3)
    return spark


def check_lineage(spark: Spark, recorded: ExpectedTable) -> None:
    if recorded.lineage is not None:
        lineage = f"SELECT *, _row_id, _last_updated_sequence_number FROM {recorded.spark_name}"
        assert seen(spark.query_rows(lineage)) == recorded.lineage


@pytest.mark.requirement("IM-02", "IM-03", "IM-04", "IM-05", "IM-06", "IM-07", "IM-08", "IM-10", "IM-11")
@pytest.mark.parametrize("name", list(TABLES))
def test_spark_sees_what_it_wrote(attached: Spark, lake: Lake, name: str) -> None:
    """The actions one after the other on one table, each upon what the one before left."""
    golden, ours = lake
    recorded = TABLES[name]
    everything = recorded_rows(recorded)
    for step in ("position deletes", "manifests", "zorder", "sort"):
        outcome = take(ours, name, step)
        expected = Status.SKIPPED if OTHERWISE.get(step, {}).get(name) else Status.DONE
        assert outcome.status is expected, outcome
        if expected is Status.DONE:
            heads = {at: rows for at, rows in everything.items() if at == CURRENT or at in recorded.refs}
            assert spark_sees(attached, recorded, heads) == heads, step
            check_lineage(attached, recorded)
    assert take(ours, name, "metadata and orphans").status is Status.DONE
    assert spark_sees(attached, recorded) == everything
    outcome = take(ours, name, "maintain")
    assert outcome.status is Status.DONE, outcome
    left = kept(everything, golden.catalog().load_table(recorded.identifier))
    assert len(left) < len(everything)
    assert spark_sees(attached, recorded, left) == left
    check_lineage(attached, recorded)


@pytest.mark.requirement("IM-04", "IM-12")
@pytest.mark.parametrize(("name", "mode"), WRITTEN_TO)
def test_spark_goes_on_writing_and_maintains_the_result(attached: Spark, lake: Lake, name: str, mode: str) -> None:
    golden, ours = lake
    assert take(ours, name, "maintain").status is Status.DONE
    at = TABLES[name].spark_name
    table = at.removeprefix(f"`{CATALOG}`.")
    assert orphans(attached, golden, table) == [], "Spark would find none either"
    expected = written_to(attached, at, mode, mode)
    assert seen(attached.rows(at)) == expected
    everything = "options => map('rewrite-all', 'true')"
    for call in (
        f"rewrite_position_delete_files(table => '{table}', {everything})",
        f"rewrite_manifests('{table}')",
        f"rewrite_data_files(table => '{table}', {everything})",
        f"expire_snapshots(table => '{table}', older_than => {FUTURE}, retain_last => 1)",
    ):
        attached.sql(f"CALL {CATALOG}.system.{call}").collect()
        assert seen(attached.rows(at)) == expected, call
    assert take(ours, name, "maintain").status is Status.DONE, "and we go on where Spark left it"
    assert seen(attached.rows(at)) == expected
    assert orphans(attached, golden, table) == []


def orphans(spark: Spark, golden: GoldenLakehouse, table: str) -> list[str]:
    """What Spark's procedure would remove, were all objects of the table's folder a month old."""
    location = golden.catalog().load_table(tuple(table.replace("`", "").split("."))).location()
    pages = (
        golden.s3.client()
        .get_paginator("list_objects_v2")
        .paginate(Bucket=BUCKET, Prefix=location.removeprefix(f"s3://{BUCKET}/") + "/")
    )
    then = datetime.now(UTC) - timedelta(days=30)
    listed = [(f"s3://{BUCKET}/{item['Key']}", then) for page in pages for item in page.get("Contents", [])]
    spark.session.createDataFrame(listed, "file_path STRING, last_modified TIMESTAMP").createOrReplaceTempView("listed")
    call = f"{Action.REMOVE_ORPHAN_FILES}(table => '{table}', dry_run => true, file_list_view => 'listed')"
    return [row[0] for row in spark.sql(f"CALL {CATALOG}.system.{call}").collect()]
