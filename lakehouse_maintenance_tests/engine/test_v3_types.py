"""What format version 3 brings to schemas: default values, columns that are stored nowhere, nanoseconds."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import select

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.lineage import SparkLake, spark_lake
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.spark.session import Spark

DEFAULTS: dict[str, tuple[str, object]] = {
    "i": ("IntegerType.get", 5),
    "l": ("LongType.get", 5_000_000),
    "bo": ("BooleanType.get", True),
    "f": ("FloatType.get", 1.5),
    "d": ("DoubleType.get", -2.25),
    "s": ("StringType.get", "größe"),
    "da": ("DateType.get", "1969-12-31"),
    "ts": ("TimestampType.withoutZone", "1960-02-03T04:05:06.000007"),
    "tz": ("TimestampType.withZone", "2024-02-29T23:59:59.999999+00:00"),
    "u": ("UUIDType.get", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    "de": ("DecimalType.of(9, 2)", "-14.20"),
}
"""Name → Iceberg's type, and a literal that converts to it."""


@pytest.fixture
def lake(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> SparkLake:
    writer, properties = sql_catalog()
    return spark_lake(spark, tmp_path, writer, properties)


class _Java:
    """A table through Iceberg's Java API, for what Spark's SQL has no words for."""

    def __init__(self, spark: Spark, name: str) -> None:
        self._iceberg = spark.java.org.apache.iceberg
        self._table = self._iceberg.spark.Spark3Util.loadIcebergTable(spark.session._jsparkSession, f"main.db.{name}")

    def type(self, name: str) -> Any:
        """`DecimalType.of(9, 2)`, `DateType.get`."""
        call, _, arguments = name.rstrip(")").partition("(")
        found: Any = self._iceberg.types.Types
        for part in call.split("."):
            found = getattr(found, part)
        return found(*json.loads(f"[{arguments}]"))

    def add(self, name: str, kind: str, default: object = None, *, parent: str | None = None) -> None:
        """A column, or a field of a struct."""
        self._table.refresh()
        made = self.type(kind)
        update = self._table.updateSchema()
        place = (name,) if parent is None else (parent, name)
        if default is None:
            update.addColumn(*place, made).commit()
        else:
            literal = getattr(self._iceberg.expressions.Literal, "of")(default).to(made)  # noqa: B009  # no name in Python
            update.addColumn(*place, made, "with a default", literal).commit()

    def append_file(self, path: Path) -> None:
        """A Parquet file that somebody else wrote."""
        self._table.refresh()
        builder = self._iceberg.DataFiles.builder(self._table.spec()).withPath(f"file://{path}")
        builder = builder.withFormat("PARQUET").withFileSizeInBytes(path.stat().st_size)
        builder = builder.withRecordCount(pq.read_metadata(path).num_rows)
        self._table.newAppend().appendFile(builder.build()).commit()


def only_file(lake: SparkLake) -> str:
    """Path of the table's one data file."""
    (path,) = [row.file_path for row in lake.sql("SELECT file_path FROM {}.t.data_files")]
    return str(path).removeprefix("file:").replace("//", "")


def test_rows_from_before_a_column_have_its_initial_default(lake: SparkLake) -> None:
    lake.create("t", columns="id BIGINT, n STRUCT<a: INT>, e ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>")
    value = "if(id % 3 = 0, null, struct(1)), array(struct(2), null), map('k', struct(3))"
    for first in range(0, 30, 10):
        lake.append("t", first, 10, value)
    java = _Java(lake.spark, "t")
    for name, (kind, default) in DEFAULTS.items():
        java.add(name, kind, default)
    java.add("x", "IntegerType.get", 7, parent="n")
    java.add("y", "StringType.get", "seven", parent="e.element")
    java.add("z", "LongType.get", 8, parent="m.value")
    rest = ", ".join(f"null AS {name}" for name in DEFAULTS)
    more = "struct(1, 2), array(struct(2, 'a')), map('k', struct(3, 4L))"
    lake.sql(f"INSERT INTO {{}}.t SELECT id, {more}, {rest} FROM range(100, 105, 1, 1)")
    before = lake.lines("t")
    assert '"x": 7' in before[1][2]
    assert '"x": null' not in before[1][2]
    lake.compacted("t")  # compares rows
    written = pq.read_table(only_file(lake)).to_pylist()
    old, new = written[1], written[-1]
    assert (old["i"], old["s"], str(old["de"]), old["bo"]) == (5, "größe", "-14.20", True)
    assert old["u"] == uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    assert [new[name] for name in DEFAULTS] == [None] * len(DEFAULTS), "a null that was written is no missing value"


def test_columns_of_type_unknown_are_null_and_stored_nowhere(lake: SparkLake) -> None:
    lake.create("t", columns="id BIGINT, nothing VOID, v STRING")
    for first in range(0, 30, 10):
        lake.append("t", first, 10, "null, 'v'")
    _Java(lake.spark, "t").add("later", "UnknownType.get")
    assert '"nothing": null' in lake.lines("t")[0][2]
    lake.compacted("t")
    assert pq.read_schema(only_file(lake)).names == ["id", "v", "_row_id", "_last_updated_sequence_number"]


def test_nanoseconds(lake: SparkLake, tmp_path: Path) -> None:
    """Spark has no such type: Iceberg's Java API commits the files, PyIceberg reads them."""
    lake.create("t", columns="id BIGINT")
    java = _Java(lake.spark, "t")
    java.add("at", "TimestampNanoType.withoutZone")
    java.add("tz", "TimestampNanoType.withZone")
    fields = [("id", pa.int64()), ("at", pa.timestamp("ns")), ("tz", pa.timestamp("ns", "UTC"))]
    schema = pa.schema([pa.field(n, k, metadata={"PARQUET:field_id": str(i)}) for i, (n, k) in enumerate(fields, 1)])
    folder = tmp_path / "warehouse" / "db" / "t" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, 60, 10):
        ids = list(range(first, first + 10))
        values = [None if i % 5 == 0 else -(2**62) + i for i in ids]
        path = folder / f"{first}.parquet"
        pq.write_table(pa.table([ids, values, values], schema=schema), path)
        java.append_file(path)
    before = lake.table("t").scan().to_arrow().sort_by("id")
    old = lake.raw("t")
    assert lake.compact("t").status is Status.DONE
    table = lake.table("t")
    assert table.scan().to_arrow().sort_by("id") == before
    assert lake.raw("t")["next-row-id"] == old["next-row-id"] + 60
    lowest = min(value for value in before["at"].cast(pa.int64()).to_pylist() if value is not None)
    (bounds,) = table.inspect.files()["lower_bounds"].to_pylist()
    assert dict(bounds)[2] == lowest.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    ("column", "kind"),
    [("VARIANT", None), ("STRING", "GeometryType.crs84"), ("STRING", "GeographyType.crs84")],
    ids=["variant", "geometry", "geography"],
)
def test_types_that_cannot_be_kept_are_named_and_nothing_is_changed(
    lake: SparkLake, column: str, kind: str | None, request: pytest.FixtureRequest
) -> None:
    """PyIceberg, through which commits go, does not read the metadata of such a table either."""
    lake.create("t", columns=f"id BIGINT, v {column}")
    for first in (0, 10):
        lake.append("t", first, 10, "null")
    if kind is not None:
        _Java(lake.spark, "t").add("place", kind)
    before = _pointers(lake)
    assert lake.ours.health(["main.db.t"])[0].error is None
    for outcome in (lake.compact("t"), expire(lake.ours)):
        assert outcome.status is Status.SKIPPED
        assert "unsupported" in outcome.reason
        assert request.node.callspec.id in outcome.reason
    assert _pointers(lake) == before


def _pointers(lake: SparkLake) -> list[str]:
    """The catalog's rows: PyIceberg loads no such table."""
    assert isinstance(lake.writer, SqlCatalog)
    with lake.writer.engine.connect() as connection:
        return list(connection.execute(select(IcebergTables.metadata_location)).scalars().all())
