"""Health against Spark's metadata tables: golden tables of Spark's, a live one with a column that we cannot read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.conformance import TABLES, open_golden, table_name
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.golden.fixture import CATALOG, WAREHOUSE, GoldenLakehouse
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.spark.session import Spark


def counted(spark: Spark, table: str) -> dict[str, Any]:
    """What Spark's metadata tables say."""

    def rows(what: str, columns: str) -> list[Any]:
        return spark.sql(f"SELECT {columns} FROM {table}.{what}").collect()

    files = rows(
        "files",
        "content, file_format, record_count, spec_id, partition"
        if has_partition(spark, table)
        else "content, file_format, record_count, spec_id, 1 AS partition",
    )
    data = [file for file in files if file.content == 0]
    positions = [file for file in files if file.content == 1]
    partitions = Counter((file.spec_id, str(file.partition)) for file in data)
    manifests = rows("manifests", "content, length, existing_data_files_count, added_data_files_count")
    sizes = sorted(partitions.values())
    return {
        "records": sum(file.record_count for file in data),
        "data_files": len(data),
        "delete_files": len(files) - len(data),
        "deletion_vectors": sum(file.file_format == "PUFFIN" for file in positions),
        "deleted_rows": sum(file.record_count for file in positions),
        "manifests": len(manifests),
        "delete_manifests": sum(manifest.content for manifest in manifests),
        "manifest_bytes": sum(manifest.length for manifest in manifests),
        "snapshots": len(rows("snapshots", "snapshot_id")),
        "refs": len(rows("refs", "name")),
        "metadata_files": len(rows("metadata_log_entries", "file")),
        "partitions": len(partitions),
        "largest_partition_files": sizes[-1],
        "median_partition_files": sizes[(len(sizes) - 1) // 2],
    }


def has_partition(spark: Spark, table: str) -> bool:
    return "partition" in spark.sql(f"SELECT * FROM {table}.files").columns


@pytest.mark.requirement("IM-14")
@pytest.mark.parametrize("name", ["db.v1_events", "db.v2_mor", "db.v3_dv", "db.v2_equality"])
def test_counts_are_those_of_sparks_metadata_tables(
    golden: GoldenLakehouse, spark: Spark, tmp_path: Path, name: str
) -> None:
    spark.attach(CATALOG, golden.sqlite, WAREHOUSE, golden.s3)
    (health,) = open_golden(golden, tmp_path).health([str(table_name(name))])
    found = counted(spark, TABLES[name].spark_name)
    assert {key: getattr(health, key) for key in found} == found


@pytest.mark.requirement("IM-14")
@pytest.mark.requirement("IM-22")
def test_a_table_with_a_variant_column_is_measured_and_named(
    spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path
) -> None:
    writer, properties = sql_catalog()
    writer.create_namespace("db")
    spark.attach("main", tmp_path / "main.db", f"file://{tmp_path / 'warehouse'}")
    spark.sql(
        "CREATE TABLE main.db.v (id BIGINT, p STRING, v VARIANT) USING iceberg PARTITIONED BY (p) "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    for number in range(3):
        spark.sql(
            f"INSERT INTO main.db.v SELECT id, CAST(id % 2 AS STRING), parse_json('{{\"a\": {number}}}') "
            f"FROM range({number * 10}, {number * 10 + 10})"
        )
    spark.sql("DELETE FROM main.db.v WHERE id = 3")
    ours = lakehouse(tmp_path, properties)
    (health,) = ours.health(["main.db.v"])
    assert (health.error, health.features) == (None, ("variant",))
    found = counted(spark, "main.db.v")
    assert {key: getattr(health, key) for key in found} == found
    (skip,) = ours.plan(["main.db.v"], Request(actions=(Action.REWRITE_DATA_FILES,))).tables[0].skipped
    assert "variant" in skip.reason
