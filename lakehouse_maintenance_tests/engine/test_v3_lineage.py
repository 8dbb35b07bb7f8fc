"""Row lineage of Spark's v3 tables through our compactions: Spark finds every row as it was, and goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.lineage import MERGE_ON_READ, V3, SparkLake, spark_lake
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.spark.session import Spark


@pytest.fixture
def lake(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> SparkLake:
    writer, properties = sql_catalog()
    return spark_lake(spark, tmp_path, writer, properties)


def _life(lake: SparkLake) -> None:
    """Deletes, updates, merges, and rewrites of both engines, in turns."""
    for first in range(0, 160, 80):
        lake.append("t", first, 80)
    lake.sql("DELETE FROM {}.t WHERE id % 7 = 0")
    lake.sql("UPDATE {}.t SET v = 'updated' WHERE id % 9 = 1")
    lake.compacted("t")

    before = lake.lines("t")
    lake.sql(
        """MERGE INTO {}.t t USING (SELECT id FROM range(0, 300, 25)) u ON t.id = u.id
        WHEN MATCHED THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (u.id, 'new')"""
    )
    after, number = lake.lines("t"), lake.raw("t")["last-sequence-number"]
    assert {i: line for i, line in after.items() if i % 25} == {i: line for i, line in before.items() if i % 25}
    for i in range(25, 160, 25):
        if i in before:
            assert after[i][:2] == (before[i][0], number), "an updated row keeps its id"
    assert len(after) > len(before)

    lake.compacted("t")  # files with lineage inside, null in the rows that were inserted
    lake.sql("DELETE FROM {}.t WHERE id % 13 = 1")
    lake.compacted("t")  # a vector over a file of ours
    before = lake.lines("t")
    lake.sql("CALL main.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
    assert lake.lines("t") == before
    lake.append("t", 500, 5)
    lake.compacted("t")
    lake.sql("DELETE FROM {}.t WHERE id > 500")
    assert set(lake.lines("t")) == {i for i in before if i < 500} | {500}


@pytest.mark.requirement("IM-04")
@pytest.mark.parametrize("partition", ["", "PARTITIONED BY (bucket(3, id))"], ids=["unpartitioned", "bucket"])
def test_lineage_is_kept_through_a_tables_life(lake: SparkLake, partition: str) -> None:
    lake.create("t", partition=partition)
    _life(lake)


def test_position_deletes_and_vectors_of_an_upgraded_table(lake: SparkLake) -> None:
    old = f"'format-version' = '2', {MERGE_ON_READ}, 'write.delete.granularity' = 'partition'"
    lake.create("t", form=old)
    for first in range(0, 90, 30):
        lake.append("t", first, 30)
    lake.sql("DELETE FROM {}.t WHERE id % 7 = 0")
    lake.sql("ALTER TABLE {}.t SET TBLPROPERTIES ('write.delete.granularity' = 'file')")
    lake.sql("DELETE FROM {}.t WHERE id % 7 = 1 AND id < 60")
    lake.sql("ALTER TABLE {}.t SET TBLPROPERTIES ('format-version' = '3')")
    lake.sql("DELETE FROM {}.t WHERE id % 7 = 2 AND id < 30")
    lake.append("t", 100, 10)
    formats = lake.sql("SELECT file_format, count(*) AS n FROM {}.t.delete_files GROUP BY 1")
    assert {row.file_format for row in formats} == {"PARQUET", "PUFFIN"}
    lake.compacted("t")
    assert lake.sql("SELECT count(*) AS n FROM {}.t.delete_files")[0].n == 0


def test_rows_from_before_the_upgrade_get_ids_with_our_commit(lake: SparkLake) -> None:
    """No commit has given them any: not to the files that are rewritten, nor to those that stay."""
    lake.create(
        "t", columns="id BIGINT, v STRING, p INT", partition="PARTITIONED BY (p)", form="'format-version' = '2'"
    )
    for first in range(0, 60, 20):
        lake.append("t", first, 20, "'v', 0")
    lake.append("t", 60, 10, "'v', 1")
    lake.sql("ALTER TABLE {}.t SET TBLPROPERTIES ('format-version' = '3')")
    assert {line[:2] for line in lake.lines("t").values()} == {(None, None)}
    before = lake.lines("t")
    assert lake.compact("t", min_input_files="3").status is Status.DONE
    after = lake.lines("t")
    assert {i: line[2] for i, line in after.items()} == {i: line[2] for i, line in before.items()}
    assert {line[0] for line in after.values()} <= set(range(lake.raw("t")["next-row-id"]))
    lake.append("t", 100, 10, "'v', 1")
    lake.compacted("t")


def test_one_vector_of_a_puffin_file_goes_and_the_file_stays(lake: SparkLake) -> None:
    """One delete wrote the vectors of several partitions into one file; only one partition is worth a rewrite."""
    form = f"{V3}, 'write.distribution-mode' = 'none'"
    lake.create("t", columns="id BIGINT, p INT", partition="PARTITIONED BY (p)", form=form)
    for first in range(0, 45, 15):
        lake.append("t", first, 15, "0")
    lake.append("t", 50, 10, "1")
    lake.append("t", 60, 40, "2")
    lake.sql("DELETE FROM {}.t WHERE id IN (3, 53, 63, 64)")
    vectors = lake.sql("SELECT file_path, content_offset FROM {}.t.delete_files")
    assert (len(vectors), len({row.file_path for row in vectors})) == (3, 1)
    lake.compacted("t", min_input_files="3")
    left = lake.sql("SELECT file_path, referenced_data_file FROM {}.t.delete_files")
    assert (len(left), {row.file_path for row in left}) == (2, {vectors[0].file_path})
    before = lake.lines("t")
    assert expire(lake.ours).status is Status.DONE
    assert lake.lines("t") == before
    lake.compacted("t")
    assert expire(lake.ours).status is Status.DONE
    assert not Path(vectors[0].file_path.removeprefix("file:").replace("//", "/", 1)).exists()
    assert lake.sql("SELECT * FROM {}.t.delete_files") == []
