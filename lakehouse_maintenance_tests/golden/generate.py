"""Writes the golden warehouse anew with Spark and Iceberg: `python -m lakehouse_maintenance_tests.golden.generate`.

Takes about three minutes and needs what the Spark tests need. Replaces warehouse/, catalog.db and tables.json as a
whole; the recorded rows are what Spark itself reads of each snapshot and ref.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from lakehouse_maintenance_tests.golden.fixture import BUCKET, CATALOG, FOLDER, WAREHOUSE
from lakehouse_maintenance_tests.golden.written import TABLES, VIEW, VIEW_QUERY, GoldenTable
from lakehouse_maintenance_tests.readers import digest
from lakehouse_maintenance_tests.services.s3 import running_s3
from lakehouse_maintenance_tests.services.spark.jars import fetch_jars
from lakehouse_maintenance_tests.services.spark.session import Spark, start_spark, why_unavailable

_MAX_BYTES = 3_000_000


def generate(folder: Path = FOLDER) -> None:
    """Writes all tables, downloads their objects into `folder` and records what Spark reads."""
    # Spark writes its user into namespaces and tables; it must not be whoever runs this.
    os.environ["SPARK_USER"] = "spark"
    with (
        tempfile.TemporaryDirectory(prefix="golden-") as scratch,
        running_s3(lambda: Path(tempfile.mkdtemp(dir=scratch))) as s3,
    ):
        client = s3.client()
        client.create_bucket(Bucket=BUCKET)
        sqlite = Path(scratch, "catalog.db")
        spark = start_spark(Path(scratch))
        try:
            spark.attach(CATALOG, sqlite, WAREHOUSE, s3)
            tables = {}
            for table in TABLES:
                _say(f"{'.'.join((*table.namespace, table.table))} …")
                _write(spark, table)
                tables[".".join((*table.namespace, table.table))] = _record(spark, table, sqlite)
            view = _write_view(spark, sqlite)
            written_by = f"Spark {spark.session.version}, Iceberg {_iceberg_version(spark)}"
        finally:
            spark.stop()
        _replace_catalog(sqlite, folder / "catalog.db")
        _download(client, folder / "warehouse")
    document = {"written_by": written_by, "tables": tables, "views": view}
    (folder / "tables.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _write(spark: Spark, table: GoldenTable) -> None:
    for depth in range(1, len(table.namespace) + 1):
        namespace = ".".join(f"`{part}`" for part in (CATALOG, *table.namespace[:depth]))
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    table.write(spark, table.spark_name)


def _write_view(spark: Spark, sqlite: Path) -> dict[str, Any]:
    spark.sql(f"CREATE VIEW {CATALOG}.{'.'.join(VIEW)} AS {VIEW_QUERY}")
    return {".".join(VIEW): {"metadata_location": _pointer(sqlite, VIEW[:-1], VIEW[-1]), "query": VIEW_QUERY}}


def _record(spark: Spark, table: GoldenTable, sqlite: Path) -> dict[str, Any]:
    name = table.spark_name
    version = spark.sql(f"SHOW TBLPROPERTIES {name}").where("key = 'format-version'").collect()[0][1]
    snapshots = [
        row[0] for row in spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at").collect()
    ]
    refs = [row[0] for row in spark.sql(f"SELECT name FROM {name}.refs ORDER BY name").collect()]
    lineage = None
    if version == "3":
        rows = spark.query_rows(f"SELECT *, _row_id, _last_updated_sequence_number FROM {name}")
        lineage = _rows(rows)
    return {
        "metadata_location": _pointer(sqlite, table.namespace, table.table),
        "format_version": int(version),
        "description": table.description,
        "features": list(table.features),
        "readers": list(table.readers),
        "current": _rows(spark.rows(name)),
        "refs": {ref: _rows(spark.rows(name, ref=ref)) for ref in refs},
        "snapshots": {str(snapshot): _rows(spark.rows(name, snapshot_id=snapshot)) for snapshot in snapshots},
        "files": _files(spark, name),
        "lineage": lineage,
    }


def _rows(rows: list[str]) -> dict[str, Any]:
    return {"rows": len(rows), "sha256": digest(rows)}


def _files(spark: Spark, name: str) -> dict[str, int]:
    counts = {"data": 0, "position_deletes": 0, "deletion_vectors": 0, "equality_deletes": 0}
    for content, file_format, count in spark.sql(
        f"SELECT content, file_format, count(*) FROM {name}.files GROUP BY content, file_format"
    ).collect():
        kind = ("data", "position_deletes", "equality_deletes")[content]
        counts["deletion_vectors" if file_format == "PUFFIN" else kind] += count
    counts["manifests"] = spark.sql(f"SELECT count(*) FROM {name}.manifests").collect()[0][0]
    return counts


def _pointer(sqlite: Path, namespace: tuple[str, ...], name: str) -> str:
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(sqlite)) as connection:
        return str(connection.execute(query, (".".join(namespace), name)).fetchone()[0])


def _iceberg_version(spark: Spark) -> str:
    return str(spark.java.org.apache.iceberg.IcebergBuild.version())


def _replace_catalog(sqlite: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(sqlite)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))


def _download(client: Any, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    total = 0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for item in page.get("Contents", []):
            body = client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read()
            path = target / item["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            total += len(body)
    _say(f"{total} bytes")
    if total > _MAX_BYTES:
        raise RuntimeError(f"the golden warehouse has {total} bytes, more than {_MAX_BYTES}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    fetch_jars()
    if reason := why_unavailable():
        sys.exit(reason)
    generate()
