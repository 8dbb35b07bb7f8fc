"""Writes the golden Delta tables anew with Spark: `python -m lakehouse_maintenance_tests.golden_delta.generate`.

Takes about five minutes and needs what the Spark tests need. Replaces warehouse/ and tables.json as a whole; what is
recorded is Spark's own state of each version: active files, tombstones, deletion vectors, protocol.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from lakehouse_maintenance_tests.golden_delta.fixture import FOLDER, WRITTEN_AT
from lakehouse_maintenance_tests.golden_delta.statements import TABLES, DeltaTable
from lakehouse_maintenance_tests.services.spark.jars import fetch_jars
from lakehouse_maintenance_tests.services.spark.session import Spark, start_spark, why_unavailable

_MAX_BYTES = 1_000_000

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's defaults are made for large tables: each statement would take many times as long.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


def generate(folder: Path = FOLDER) -> None:
    """Writes all tables at the fixed place that absolute paths in their logs name, and copies them into `folder`."""
    os.environ["SPARK_USER"] = "spark"
    root = Path(WRITTEN_AT)
    root.mkdir()
    try:
        with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
            spark = start_spark(Path(scratch), _SETTINGS)
            try:
                document = {
                    "written_by": _versions(spark),
                    "tables": {table.name: _write(spark, table) for table in TABLES},
                }
            finally:
                spark.stop()
        _copy(root, folder / "warehouse")
    finally:
        shutil.rmtree(root)
    (folder / "tables.json").write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def _versions(spark: Spark) -> str:
    return f"Spark {spark.session.version}, Delta {spark.java.io.delta.package.VERSION()}"


def _write(spark: Spark, table: DeltaTable) -> dict[str, Any]:
    sys.stderr.write(f"{table.name} …\n")
    path = f"{WRITTEN_AT}/{table.name}"
    table.write(spark, path)
    log = spark.java.org.apache.spark.sql.delta.DeltaLog.forTable(spark.session._jsparkSession, path)
    none = spark.java.scala.Option.empty()
    latest = log.update(False, none, none)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
    oldest = int(spark.sql(f"DESCRIBE HISTORY delta.`{path}`").selectExpr("min(version)").collect()[0][0])
    snapshots = {
        version: log.getSnapshotAt(version, none, none, False) for version in range(oldest, latest.version() + 1)
    }
    return {
        "description": table.description,
        "id": detail.id,
        "latest": latest.version(),
        "partition_columns": list(detail.partitionColumns),
        "reader_version": detail.minReaderVersion,
        "writer_version": detail.minWriterVersion,
        "features": sorted(detail.tableFeatures),
        "versions": {str(version): _files(spark, snapshot.allFiles(), path) for version, snapshot in snapshots.items()},
        "tombstones": _files(spark, latest.tombstones(), path),
        "read_of_latest": sorted(
            {_decoded(spark, row[0]) for row in spark.sql(f"SELECT input_file_name() FROM delta.`{path}`").collect()}
        ),
        "rows": spark.sql(f"SELECT * FROM delta.`{path}`").count(),
    }


def _files(spark: Spark, actions: Any, path: str) -> list[dict[str, Any]]:
    root = spark.java.org.apache.hadoop.fs.Path(path)
    found = []
    for action in actions.collectAsList():
        vector = action.deletionVector()
        on_disk = vector is not None and vector.storageType() != "i"
        name = str(action.toPath().toString()).removeprefix("file:")
        found.append(
            {
                "path": _relative(name if name.startswith("/") else f"{path}/{name}"),
                "vector": _relative(str(vector.absolutePath(root).toString())) if on_disk else None,
                "vector_id": None if vector is None else str(vector.uniqueId()).replace(f"{WRITTEN_AT}/", ""),
            }
        )
    return sorted(found, key=lambda one: (one["path"], one["vector_id"] or ""))


def _decoded(spark: Spark, url: str) -> str:
    return _relative(str(spark.java.org.apache.spark.paths.SparkPath.fromUrlString(url).toPath().toString()))


def _relative(path: str) -> str:
    return path.removeprefix("file:").removeprefix(f"{WRITTEN_AT}/")


def _copy(root: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    # Hadoop's checksum of every local file, which no reader of the table needs.
    shutil.copytree(root, target, ignore=shutil.ignore_patterns(".*.crc"))
    total = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sys.stderr.write(f"{total} bytes\n")
    if total > _MAX_BYTES:
        raise RuntimeError(f"the golden Delta tables have {total} bytes, more than {_MAX_BYTES}")


if __name__ == "__main__":
    fetch_jars()
    if reason := why_unavailable():
        sys.exit(reason)
    generate()
