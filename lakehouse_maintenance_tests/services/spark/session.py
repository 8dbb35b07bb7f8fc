"""Spark with Iceberg as a second party in tests: attaches a test's catalog and reads or writes its tables.

One Java process serves all tests of a run; every test gets a session of its own in it, so that a catalog's name can
mean another database in the next test. PyIceberg's SqlCatalog and Spark share the tables of one SQLite file where the
catalog has the same name in both.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from lakehouse_maintenance_tests.services.processes import why_no_java
from lakehouse_maintenance_tests.services.spark.jars import available_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class S3Endpoint(Protocol):
    """What Spark must know of an S3 server: the part of the S3 fixture that it uses."""

    @property
    def endpoint(self) -> str: ...
    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def region(self) -> str: ...


class Spark:
    """A Spark session with Iceberg's extensions; time zone UTC. Names in SQL are in Spark's quoting (backticks)."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def attach(self, name: str, sqlite: Path, warehouse: str, s3: S3Endpoint | None = None) -> None:
        """Makes the SQLite catalog known as `name`, which must be its name in PyIceberg too.

        `warehouse`: a location ("s3://bucket/folder", "file:///folder"). Only before the name's first use in SQL:
        Spark keeps the catalog that it opened first.
        """
        prefix = f"spark.sql.catalog.{name}"
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{sqlite}",
            ".jdbc.schema-version": "V1",
            ".warehouse": warehouse,
            ".cache-enabled": "false",
        }
        if s3 is not None:
            settings |= {
                ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                ".s3.endpoint": s3.endpoint,
                ".s3.path-style-access": "true",
                ".s3.access-key-id": s3.access_key,
                ".s3.secret-access-key": s3.secret_key,
                ".client.region": s3.region,
            }
        for key, value in settings.items():
            self.session.conf.set(prefix + key, value)

    def sql(self, query: str) -> DataFrame:
        """Runs the statement; commands run at once, a query when its rows are asked for."""
        return self.session.sql(query)

    def rows(self, table: str, *, snapshot_id: int | None = None, ref: str | None = None) -> list[str]:
        """Canonical rows (see readers) of the current snapshot, of a snapshot, or of a branch or tag."""
        at = ""
        if snapshot_id is not None:
            at = f" VERSION AS OF {snapshot_id}"
        elif ref is not None:
            at = " VERSION AS OF '" + ref.replace("'", "\\'") + "'"
        return self.query_rows(f"SELECT * FROM {table}{at}")

    def query_rows(self, query: str) -> list[str]:
        """Canonical rows of any query."""
        from lakehouse_maintenance_tests.readers import canonical_rows

        found = self.sql(query)
        # pyarrow refuses null structs with required fields, which Spark hands over as they are.
        return canonical_rows(found.to(_nullable(found.schema)).toArrow())

    def fresh(self) -> Spark:
        """Another session in the same Java process, with no catalog attached."""
        return Spark(self.session.newSession())

    @property
    def java(self) -> Any:
        """The gateway to Java (py4j), for what SQL cannot do."""
        return self.session.sparkContext._jvm

    def stop(self) -> None:
        """Ends the Java process' Spark, with all its sessions."""
        self.session.stop()


def why_unavailable() -> str | None:
    """One line that says what is missing, or None where Spark can start."""
    if (reason := why_no_java()) is not None:
        return reason
    if importlib.util.find_spec("pyspark") is None:
        return "needs Java 17 or 21 and pyspark: pyspark is not installed (extra spark)"
    if not available_jars():
        return "needs Java 17 or 21 and Iceberg's jars: run make jars"
    return None


def start_spark(scratch: Path, further: Mapping[str, str] | None = None) -> Spark:
    """Starts the Java process (about 6 s). `scratch`: an existing folder for Spark's own files.

    `further`: settings beside or instead of the usual ones.
    """
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.jars": ",".join(map(str, available_jars())),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Small tables only: compiling queries and hot code would take twice the time of running them.
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakehouse-maintenance-tests")
    for key, value in (settings | dict(further or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return Spark(session)


@pytest.fixture(scope="session")
def spark_process() -> Iterator[Spark]:
    """The run's one Spark; tests use `spark`."""
    if reason := why_unavailable():
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    scratch = Path(tempfile.mkdtemp(prefix="spark-"))
    process = start_spark(scratch)
    yield process
    process.stop()
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture
def spark(spark_process: Spark) -> Spark:
    """A session of the test's own; skipped with one line where Spark cannot run (an error where CI is set)."""
    return spark_process.fresh()


def _nullable(kind: Any) -> Any:
    """The Spark type with every field, element and value nullable."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind
