"""A table that Spark wrote and evolved, laid out by us: Spark reads equal rows, finds its order, opens fewer files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog
from lakehouse_maintenance_tests.services.spark.session import Spark

pytestmark = pytest.mark.requirement("IM-02")

NAME = "main.db.t"


@pytest.fixture
def attached(spark: Spark, tmp_path: Path) -> tuple[Spark, dict[str, str]]:
    catalog, properties = make_sql_catalog(tmp_path)
    catalog.create_namespace("db")
    catalog.close()
    session = spark.fresh()
    session.attach("main", Path(properties["uri"].removeprefix("sqlite:///")), properties["warehouse"])
    return session, properties


def _fill(spark: Spark, name: str) -> None:
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT, x INT, y STRING, d DECIMAL(30, 2)) USING iceberg
        TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read',
          'write.parquet.bloom-filter-enabled.column.id' = 'true')"""
    )
    for seed in range(4):
        spark.sql(
            f"""INSERT INTO {name} SELECT id, CAST(rand({seed}) * 1000 AS INT),
              concat('item-', lpad(CAST(rand({seed + 10}) * 1000 AS INT), 4, '0')), CAST(id / 3 AS DECIMAL(30, 2))
            FROM range({seed * 1000}, {seed * 1000 + 1000}, 1, 1)"""
        )
    spark.sql(f"DELETE FROM {name} WHERE id % 100 = 7")


def _opened(spark: Spark, name: str, column: str, value: str) -> tuple[int, int]:
    """Files whose bounds let the value in, and all; by Iceberg's own metadata table."""
    rows = spark.sql(
        f"""SELECT readable_metrics.{column}.lower_bound AS low, readable_metrics.{column}.upper_bound AS high
        FROM {name}.data_files"""
    ).collect()
    return sum(str(row.low).zfill(9) <= value.zfill(9) <= str(row.high).zfill(9) for row in rows), len(rows)


def test_spark_reads_what_we_z_ordered_and_sorted(attached: tuple[Spark, dict[str, str]], tmp_path: Path) -> None:
    spark, properties = attached
    _fill(spark, NAME)
    spark.sql(f"ALTER TABLE {NAME} RENAME COLUMN d TO price")
    before = spark.rows(NAME)
    ours = lakehouse(tmp_path, properties)
    target = {"target-file-size-bytes": "5000", "min-file-size-bytes": "1000", "rewrite-all": "true"}
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options=target, strategy="zorder", sort_order="x, y")
    assert ours.maintain((), asked).tables[0].status is Status.DONE
    assert spark.rows(NAME) == before
    for column, value in (("x", "500"), ("y", "item-0500")):
        opened, files = _opened(spark, NAME, column, value)
        assert files >= 4
        assert opened < files, (column, opened, files)

    spark.sql(f"ALTER TABLE {NAME} WRITE ORDERED BY truncate(3, y), x DESC NULLS FIRST")
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options=target, strategy="sort")
    assert ours.maintain((), asked).tables[0].status is Status.DONE
    assert spark.rows(NAME) == before
    ids = {row[0] for row in spark.sql(f"SELECT sort_order_id FROM {NAME}.files").collect()}
    assert len(ids) == 1
    assert ids.isdisjoint({0, None})
    # By the Bloom filter, and without it.
    by_filter, by_scan = (f"SELECT x FROM {NAME} WHERE id {plus} = 1234" for plus in ("", "+ 0"))
    assert spark.query_rows(by_filter) == spark.query_rows(by_scan) != []
    spark.sql(f"DELETE FROM {NAME} WHERE id = 11")
    spark.sql(f"INSERT INTO {NAME} VALUES (9999, 1, 'new', 1.5)")
    assert len(spark.rows(NAME)) == len(before)
