"""Data files that other writers left, compacted: the rows are those that Iceberg says they hold."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.foreign import Watched, add_entry, add_file, put_file, with_ids
from lakehouse_maintenance_tests.engine.tables import data_paths, delete_rows, ids, many_small_files


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.catalog.close()


def test_imported_files_without_field_ids(watched: Watched) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    schema = pa.schema(
        [("id", pa.int64()), ("s", inner), ("items", pa.list_(inner)), ("lookup", pa.map_(pa.string(), inner))]
    )
    table = watched.create(schema)
    for first in (0, 10):
        values = [{"a": i, "b": f"b{i}"} if i % 3 else None for i in range(first, first + 10)]
        rows = pa.table(
            [list(range(first, first + 10)), values, [[v, v] for v in values], [[("k", v)] for v in values]],
            schema=schema,
        )
        path = f"{table.location()}/imported/{first}.parquet"
        put_file(table, path, rows)
        table.add_files([path])
    assert table.refresh().name_mapping() is not None
    table.append(rows)
    # PyIceberg takes a null inside a list or a map of structs for a struct of nulls in files without ids.
    action = watched.compact(same=False)
    assert action.actual.rewritten_data_files == 3


def test_imported_files_without_ids_or_mapping_are_refused(watched: Watched) -> None:
    schema = pa.schema([("id", pa.int64())])
    table = watched.create(schema)
    for first in (0, 1):
        add_file(table, f"{table.location()}/data/{first}.parquet", pa.table([[first]], schema=schema))
    outcome = watched.maintain()
    assert outcome.status is Status.SKIPPED
    assert "schema.name-mapping.default" in outcome.reason


PARTITION_VALUES: list[tuple[Any, pa.DataType, Any, Any]] = [
    (StringType(), pa.string(), "a b/ü", "a b/ü"),
    (StringType(), pa.string(), None, None),
    (IntegerType(), pa.int32(), 7, 7),
    (LongType(), pa.int64(), -(2**40), -(2**40)),
    (BooleanType(), pa.bool_(), True, True),
    (DateType(), pa.date32(), -1, date(1969, 12, 31)),
    (TimestampType(), pa.timestamp("us"), -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    (TimestamptzType(), pa.timestamp("us", "UTC"), 10**6, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (TimeType(), pa.time64("us"), 61 * 10**6, time(0, 1, 1)),
    (DecimalType(9, 2), pa.decimal128(9, 2), Decimal("-12.34"), Decimal("-12.34")),
    (
        DecimalType(30, 5),
        pa.decimal128(30, 5),
        Decimal("1234567890123456789.00001"),
        Decimal("1234567890123456789.00001"),
    ),
    (BinaryType(), pa.binary(), b"\x00\xff", b"\x00\xff"),
    (FixedType(3), pa.binary(3), b"abc", b"abc"),
    (FloatType(), pa.float32(), 1.5, 1.5),
    (DoubleType(), pa.float64(), -0.0, -0.0),
    (DoubleType(), pa.float64(), math.nan, math.nan),
    (UUIDType(), pa.uuid(), uuid.UUID(int=5), uuid.UUID(int=5)),
]
"""Type, Arrow's type, the value as a manifest has it, and as a row has it."""


def test_partition_columns_that_files_lack_come_from_metadata(watched: Watched) -> None:
    """As in Hive's files, whose partition columns are in folder names alone."""
    numbered = list(enumerate(PARTITION_VALUES))
    table = watched.create(
        Schema(NestedField(1, "id", LongType()), *(NestedField(2 + n, f"p{n}", kind) for n, (kind, *_) in numbered)),
        partition_spec=PartitionSpec(
            *(PartitionField(2 + n, 1000 + n, IdentityTransform(), f"p{n}") for n, _ in numbered)
        ),
    )
    lacking = with_ids(pa.schema([("id", pa.int64())]))
    raw = [value for _, _, value, _ in PARTITION_VALUES]
    for number in range(2):
        add_file(table, f"{table.location()}/imported/{number}.parquet", pa.table([[number]], lacking), partition=raw)
    watched.compact(pyiceberg=False, duckdb=False, statistics=False)
    (path,) = data_paths(watched.catalog)
    rows = pq.read_table(path.removeprefix("file://"))
    assert sorted(rows["id"].to_pylist()) == [0, 1]
    for n, (_, arrow, _, value) in numbered:
        assert rows.schema.field(f"p{n}").type == arrow
        assert [str(one) for one in rows[f"p{n}"].to_pylist()] == [str(value)] * 2


def test_int96_timestamps_of_any_year(watched: Watched) -> None:
    """Read as nanoseconds they would end in the year 2262 and go on in 1677."""
    table = watched.create(
        Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "at", TimestampType()),
            NestedField(3, "tz", TimestamptzType()),
        )
    )
    years = [1, 1582, 1969, 2024, 9999]
    for number, year in enumerate(years):
        moment = datetime(year, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
        schema = with_ids(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("tz", pa.timestamp("us"))]))
        rows = pa.table([[number], [moment], [moment]], schema)
        add_file(
            table,
            f"{table.location()}/data/{number}.parquet",
            rows,
            use_deprecated_int96_timestamps=True,
        )
    watched.compact(pyiceberg=False, duckdb=False)
    (path,) = data_paths(watched.catalog)
    rows = pq.read_table(path.removeprefix("file://")).sort_by("id")
    assert [moment.year for moment in rows["at"].to_pylist()] == years
    assert {moment.microsecond for moment in rows["at"].to_pylist()} == {999999}
    assert [moment.year for moment in rows["tz"].to_pylist()] == years
    assert rows.schema.field("tz").type == pa.timestamp("us", "UTC")


def test_files_without_rows(watched: Watched) -> None:
    schema = with_ids(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    table = watched.create(schema)
    for number, rows in enumerate([[], [1], [], []]):
        data = pa.table([pa.array(rows, pa.int64()), pa.array(["n"] * len(rows), pa.string())], schema=schema)
        add_file(table, f"{table.location()}/data/{number}.parquet", data)
    action = watched.compact()
    assert (action.actual.rewritten_data_files, action.actual.files, action.actual.rows) == (4, 1, 1)


def test_only_files_without_rows_leave_none(watched: Watched) -> None:
    schema = with_ids(pa.schema([("id", pa.int64())]))
    table = watched.create(schema)
    for number in range(3):
        add_file(table, f"{table.location()}/data/{number}.parquet", schema.empty_table())
    action = watched.compact(statistics=False)
    assert (action.actual.files, action.actual.rows) == (0, 0)
    assert data_paths(watched.catalog) == []
    watched.table.append(pa.table([[1]], schema=pa.schema([("id", pa.int64())])))
    assert ids(watched.catalog) == [1]


@pytest.mark.parametrize("folder", ["with space", "per%20cent", "a+b=c&d", "üñí 漢", "it's"])
def test_paths_with_odd_characters(tmp_path: Path, folder: str) -> None:
    watched = Watched(tmp_path, warehouse=f"file://{tmp_path / folder}")
    schema = with_ids(pa.schema([("id", pa.int64())]))
    table = watched.create(schema)
    for number in range(2):
        path = f"{table.location()}/data/{folder} {number}.parquet"
        add_file(table, path, pa.table([[number]], schema=schema))
    delete_rows(watched.catalog, "db.t", {path: [0]})
    watched.compact()
    assert ids(watched.catalog) == [0]
    watched.catalog.close()


def test_a_folder_that_cannot_be_written_to_is_left(watched: Watched) -> None:
    """PyIceberg takes `#` and what follows for no part of a path: all outputs would be one and the same file."""
    schema = with_ids(pa.schema([("id", pa.int64())]))
    table = watched.create(schema)
    for number in range(2):
        path = f"{table.location()}/data/p=a#b/{number}.parquet"
        Path(path.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table([[number]], schema=schema), path.removeprefix("file://"), store_schema=False)
        size = Path(path.removeprefix("file://")).stat().st_size
        add_entry(table, path, records=1, size=size)
    watched.compact(pyiceberg=False, duckdb=False, statistics=False)
    assert ids(watched.catalog) == [0, 1]
    assert not Path(table.location().removeprefix("file://"), "data", "p=a").exists()


@pytest.mark.parametrize("what", ["data", "deletes"])
@pytest.mark.parametrize("damage", [b"garbage", b"PAR1" + bytes(40) + b"PAR1", b"", None])
def test_a_damaged_or_missing_file_fails_its_table_alone(watched: Watched, what: str, damage: bytes | None) -> None:
    many_small_files(watched.catalog, commits=2, partitioned=False)
    data = data_paths(watched.catalog)
    deletes = delete_rows(watched.catalog, "db.t", {data[0]: [0]})
    path = (data if what == "data" else deletes)[-1]
    before = watched.table.metadata_location
    file = Path(path.removeprefix("file://"))
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    outcome = watched.maintain()
    assert outcome.status is Status.FAILED
    assert path in outcome.reason
    assert watched.table.metadata_location == before
