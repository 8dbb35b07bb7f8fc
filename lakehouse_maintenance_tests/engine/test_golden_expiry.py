"""Expiry of tables that Spark wrote: what stays reads as before, and the very files go that Spark would delete."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.conformance import (
    TABLES,
    kept,
    open_golden,
    readable_by,
    recorded_rows,
    seen,
    table_name,
)
from lakehouse_maintenance_tests.golden.fixture import BUCKET, CATALOG, WAREHOUSE, GoldenLakehouse, copy_catalog, upload
from lakehouse_maintenance_tests.readers import read_duckdb, read_pyiceberg, read_spark
from lakehouse_maintenance_tests.services.spark.session import Spark

ALL = ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True)
FUTURE = "TIMESTAMP '2100-01-01'"


def expire(golden: GoldenLakehouse, folder: Path, name: str) -> TableOutcome:
    asked = Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=ALL)
    return open_golden(golden, folder).maintain([str(table_name(name))], asked).tables[0]


def objects(golden: GoldenLakehouse) -> set[str]:
    """Every object of the bucket but metadata.json files, which expiry leaves."""
    pages = golden.s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    return {f"s3://{BUCKET}/{key}" for key in keys if "metadata.json" not in key}


def reachable(table: Table) -> set[str]:
    """Independent of the product: what PyIceberg's own classes reach from every snapshot."""
    metadata = table.metadata
    found = {entry.statistics_path for entry in (*metadata.statistics, *metadata.partition_statistics)}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True)}
    return found


@pytest.mark.parametrize("name", list(TABLES))
def test_what_stays_reads_as_before_and_nothing_else_goes(golden: GoldenLakehouse, tmp_path: Path, name: str) -> None:
    recorded = TABLES[name]
    before, there = reachable(golden.catalog().load_table(recorded.identifier)), objects(golden)
    outcome = expire(golden, tmp_path, name)
    table = golden.catalog().load_table(recorded.identifier)
    expired = len(recorded.snapshots) - len(table.metadata.snapshots)
    if not expired:
        assert outcome.status is Status.SKIPPED, outcome
        return
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.expired_snapshots == expired
    assert there - objects(golden) == before - reachable(table)
    wanted = kept(recorded_rows(recorded), table)
    if name in readable_by("pyiceberg"):
        for at, rows in wanted.items():
            found = (
                read_pyiceberg(table)
                if at == "current"
                else read_pyiceberg(table, snapshot_id=at)
                if isinstance(at, int)
                else read_pyiceberg(table, ref=at)
            )
            assert seen(found) == rows, at
    if name in readable_by("duckdb"):
        for at in [one for one in wanted if isinstance(one, int)]:
            rows_there = read_duckdb(table.metadata_location, golden.s3.properties, snapshot_id=at)
            assert seen(rows_there) == wanted[at], at


@pytest.mark.parametrize("name", list(TABLES))
def test_sparks_own_expiry_deletes_the_same_files(
    golden: GoldenLakehouse, tmp_path: Path, spark: Spark, name: str
) -> None:
    recorded = TABLES[name]
    there = objects(golden)
    outcome = expire(golden, tmp_path, name)
    assert outcome.status in (Status.DONE, Status.SKIPPED), outcome
    ours = there - objects(golden)
    spark.attach(CATALOG, golden.sqlite, WAREHOUSE, golden.s3)
    table = golden.catalog().load_table(recorded.identifier)
    for at, rows in kept(recorded_rows(recorded), table).items():
        where = {"snapshot_id": at} if isinstance(at, int) else {} if at == "current" else {"ref": at}
        assert seen(read_spark(spark, recorded.spark_name, **where)) == rows, at  # type: ignore[arg-type]

    upload(golden.s3)
    again = tmp_path / "again.db"
    copy_catalog(again)
    other = spark.fresh()
    other.attach(CATALOG, again, WAREHOUSE, golden.s3)
    there = objects(golden)
    identifier = ".".join(f"`{part}`" for part in recorded.identifier)
    other.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{identifier}', older_than => {FUTURE}, retain_last => 1)"
    ).collect()
    assert there - objects(golden) == ours
