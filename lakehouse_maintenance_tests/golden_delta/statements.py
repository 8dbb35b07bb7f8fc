"""What each golden Delta table is there for, and the statements that write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse_maintenance_tests.services.spark.session import Spark

PARTITION_VALUES = (
    "plain",
    "a b",
    "50%",
    "a%20b",
    "x=y",
    "a/b",
    "../up",
    "été",
    "日本",
    "plus+",
    "#?&:;",
    "2024-01-01 10:00:00",
    "quo'te\"s",
    "~back\\slash",
    "[list]{map}",
)
"""Each of them becomes a folder, escaped by Spark, and a path in the log, percent-encoded once more."""


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """`write(spark, path)` writes the table into the folder `path`; tables are written in the order of `TABLES`."""

    name: str
    description: str
    write: Callable[[Spark, str], None]


def odd_partitions(spark: Spark, path: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, p STRING, d DATE) USING delta PARTITIONED BY (p, d)")
    values = [(number, value) for number, value in enumerate(PARTITION_VALUES)]
    frame = spark.session.createDataFrame([*values, (90, None), (91, "")], "id INT, p STRING")
    frame.selectExpr("id", "p", "DATE'2024-02-29' AS d").coalesce(1).write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p IN ('a b', 'a/b', '日本')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (100, 'a b', DATE'2024-03-01'), (101, 'plain', NULL)")


def vectors(spark: Spark, path: str) -> None:
    _create(spark, path, "id INT, p STRING", "delta.enableDeletionVectors", partition="p")
    for first in (0, 20, 40):
        _append(spark, path, first, 20)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 3")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 4")
    _checkpoint(spark, path)
    spark.sql(f"UPDATE delta.`{path}` SET id = id + 1000 WHERE id IN (5, 25)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 'p1' AND id < 30")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 40")


def vectors_prefixed(spark: Spark, path: str) -> None:
    _create(
        spark, path, "id INT, p STRING", "delta.enableDeletionVectors", "delta.randomizeFilePrefixes", partition="p"
    )
    _append(spark, path, 0, 20)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 4)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 5")


def multi_part(spark: Spark, path: str) -> None:
    _create(spark, path, "id INT, p STRING", partition="p")
    for first in (0, 10, 20):
        _append(spark, path, first, 10)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 'p0' AND id < 10")
    with _setting(spark, "spark.databricks.delta.checkpoint.partSize", "3"):
        _checkpoint(spark, path)
    _append(spark, path, 30, 10)


def v2_json(spark: Spark, path: str) -> None:
    _v2(spark, path, "json")


def v2_parquet(spark: Spark, path: str) -> None:
    _v2(spark, path, "parquet")


def _v2(spark: Spark, path: str, top: str) -> None:
    _create(spark, path, "id INT, p STRING", "delta.enableDeletionVectors", partition="p")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    for first in (0, 10):
        _append(spark, path, first, 10)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 4)")
    with (
        _setting(spark, "spark.databricks.delta.checkpoint.partSize", "3"),
        _setting(spark, "spark.databricks.delta.checkpointV2.topLevelFileFormat", top),
    ):
        _checkpoint(spark, path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 'p1'")


def mapped(spark: Spark, path: str) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, p STRING, gone INT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a b', 1), (2, 'c', 2)")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN p TO `part of, a name`")
    spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN gone")
    spark.sql(f"INSERT INTO delta.`{path}` (id, `part of, a name`) VALUES (3, 'a b')")
    _checkpoint(spark, path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")


def changes(spark: Spark, path: str) -> None:
    _create(spark, path, "id INT, p STRING", "delta.enableChangeDataFeed", partition="p")
    _append(spark, path, 0, 10)
    spark.sql(f"UPDATE delta.`{path}` SET id = id + 100 WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (2, 3)")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT explode(array(4, 500)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, 'a b')"
    )


def cleaned(spark: Spark, path: str) -> None:
    """Old commits went with the log's cleanup, old files with a vacuum; a checkpoint without JSON statistics."""
    _create(spark, path, "id INT, p STRING", "delta.checkpoint.writeStatsAsStruct", partition="p")
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpoint.writeStatsAsJson' = 'false', "
        "'delta.enableExpiredLogCleanup' = 'false')"
    )
    for first in (0, 10, 20):
        _append(spark, path, first, 10)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 10")
    with _setting(spark, "spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 'p1' AND id < 20")
    _checkpoint(spark, path)
    _append(spark, path, 30, 2)
    _clean_log(spark, path)


def clustered(spark: Spark, path: str) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, p STRING, at TIMESTAMP_NTZ) USING delta CLUSTER BY (id) "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a', TIMESTAMP_NTZ'2024-01-01 00:00:00')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, 'b', NULL)")
    spark.sql(f"OPTIMIZE delta.`{path}`")


def clone(spark: Spark, path: str) -> None:
    """Names files of `vectors` by absolute paths, deletion vectors included, and then changes them for itself."""
    source = path.rpartition("/")[0] + "/vectors"
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{source}`")
    _append(spark, path, 70, 4)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 41")
    _checkpoint(spark, path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 'p0' AND id < 20")


def clone_of_odd(spark: Spark, path: str) -> None:
    source = path.rpartition("/")[0] + "/odd_partitions"
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{source}`")


def name_with_space(spark: Spark, path: str) -> None:
    _create(spark, path, "id INT, p STRING", "delta.enableDeletionVectors")
    _append(spark, path, 0, 4)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")


def clone_of_space(spark: Spark, path: str) -> None:
    source = path.rpartition("/")[0] + "/name with%20space"
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{source}`")


TABLES = (
    DeltaTable("odd_partitions", "Partition values that need escaping, twice; null and empty ones.", odd_partitions),
    DeltaTable("vectors", "Deletion vectors, replaced and dropped again; a classic checkpoint between.", vectors),
    DeltaTable("vectors_prefixed", "Data and deletion vectors below random prefixes.", vectors_prefixed),
    DeltaTable("multi_part", "A checkpoint in parts, with tombstones.", multi_part),
    DeltaTable("v2_json", "A v2 checkpoint in JSON with sidecars.", v2_json),
    DeltaTable("v2_parquet", "A v2 checkpoint in Parquet with sidecars.", v2_parquet),
    DeltaTable("mapped", "Column mapping: renamed partition column, dropped column.", mapped),
    DeltaTable("changes", "Change data feed: update, delete, merge.", changes),
    DeltaTable("cleaned", "Old commits cleaned, old files vacuumed; statistics as struct alone.", cleaned),
    DeltaTable(
        "clustered", "Liquid clustering, row tracking, in-commit timestamps, timestamp without zone.", clustered
    ),
    DeltaTable("clone", "A shallow clone that went on by itself; absolute paths.", clone),
    DeltaTable("clone_of_odd", "A shallow clone of odd_partitions: absolute paths that need decoding.", clone_of_odd),
    DeltaTable("name with%20space", "A table whose own folder needs encoding.", name_with_space),
    DeltaTable("clone_of_space", "Its shallow clone: absolute data and deletion-vector paths.", clone_of_space),
)


def _create(spark: Spark, path: str, columns: str, *flags: str, partition: str | None = None) -> None:
    by = f"PARTITIONED BY ({partition})" if partition else ""
    properties = ", ".join(f"'{flag}' = 'true'" for flag in flags)
    options = f"TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {by} {options}")


def _append(spark: Spark, path: str, first: int, count: int) -> None:
    rows = spark.session.range(first, first + count).selectExpr("CAST(id AS INT) AS id", "concat('p', id % 3) AS p")
    rows.coalesce(1).write.format("delta").mode("append").save(path)


def _checkpoint(spark: Spark, path: str) -> None:
    log = spark.java.org.apache.spark.sql.delta.DeltaLog.forTable(spark.session._jsparkSession, path)
    none = spark.java.scala.Option.empty()
    log.checkpoint(log.update(False, none, none), none)


def _clean_log(spark: Spark, path: str) -> None:
    """What Delta's cleanup leaves behind: the newest checkpoint, its own commit and all later ones.

    Delta itself removes whole days only, so that a log written today would keep everything.
    """
    from pathlib import Path

    folder = Path(path, "_delta_log")
    newest = max(int(file.name.split(".")[0]) for file in folder.glob("*.checkpoint*.parquet"))
    for file in folder.iterdir():
        version = file.name.lstrip(".").split(".")[0]
        if version.isdigit() and int(version) < newest:
            file.unlink()


@contextmanager
def _setting(spark: Spark, key: str, value: str) -> Iterator[None]:
    spark.session.conf.set(key, value)
    yield
    spark.session.conf.unset(key)
