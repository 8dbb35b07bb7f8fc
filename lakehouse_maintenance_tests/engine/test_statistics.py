"""Counts and bounds of the data files that we write: exact, or absent."""

from __future__ import annotations

import io
import math
import struct
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
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
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse_maintenance.engines.embedded_iceberg.statistics import (
    StatisticsPlan,
    truncate_binary_up,
    truncate_text,
    truncate_text_up,
)
from lakehouse_maintenance_tests.engine.bounds import added_files
from lakehouse_maintenance_tests.engine.foreign import Watched, with_ids


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.catalog.close()


def test_every_type_of_v2_with_bounds(watched: Watched) -> None:
    kinds: dict[str, Any] = {
        "boolean": BooleanType(),
        "int": IntegerType(),
        "long": LongType(),
        "float": FloatType(),
        "double": DoubleType(),
        "decimal9": DecimalType(9, 2),
        "decimal18": DecimalType(18, 3),
        "decimal38": DecimalType(38, 10),
        "date": DateType(),
        "time": TimeType(),
        "timestamp": TimestampType(),
        "timestamptz": TimestamptzType(),
        "string": StringType(),
        "uuid": UUIDType(),
        "fixed": FixedType(5),
        "binary": BinaryType(),
    }
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), 1)]
    # pyarrow makes no uuid inside a struct from Python values.
    nested = [NestedField(100 + f.field_id, f.name, f.field_type) for f in fields if f.name != "uuid"]
    table = watched.create(Schema(*fields, NestedField(99, "nested", StructType(*nested))))
    for sign in (-1, 1):
        values = {
            "boolean": sign > 0,
            "int": sign * (2**31 - 1),
            "long": sign * (2**63 - 1),
            "float": sign * 3.5,
            "double": sign * math.inf,
            "decimal9": Decimal("9999999.99") * sign,
            "decimal18": Decimal("128.000") * sign,
            "decimal38": Decimal("1234567890123456789012345678.0123456789") * sign,
            "date": date(1970 + sign * 100, 1, 1),
            "time": time(12 + sign * 11, 59, 59, 999999),
            "timestamp": datetime(1970 + sign * 1900, 1, 1),  # noqa: DTZ001
            "timestamptz": datetime(1970 + sign * 1900, 1, 1, tzinfo=UTC),
            "string": "z" * 40 if sign > 0 else "äöü" * 10,
            "uuid": (uuid.UUID(int=2**127 + 1) if sign > 0 else uuid.UUID(int=1)).bytes,
            "fixed": b"\xff" * 5 if sign > 0 else b"\x00" * 5,
            "binary": b"\xff" * 15 + b"\x01" * 20 if sign > 0 else b"",
        }
        inner = {name: value for name, value in values.items() if name != "uuid"}
        arrow = pa.schema([field.with_nullable(True) for field in table.schema().as_arrow()])
        table.append(
            pa.Table.from_pylist(
                [{**values, "nested": inner}, {}],
                schema=arrow,
            )
        )
    watched.compact()


def test_long_values_leave_no_wrong_bound(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet has no statistics of a row group with a long value: the other row groups' are no bound of the file."""
    monkeypatch.setattr("lakehouse_maintenance.engines.embedded_iceberg.output._DEFAULT_ROW_GROUP_BYTES", 1)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("raw", pa.binary())])
    table = watched.create(schema)
    for number, text in enumerate(["b", "z" * 5000, "c"]):
        table.append(pa.table([[number], [text], [text.encode()]], schema=schema))
    watched.compact(bounded=False)
    (file,) = added_files(watched.table).values()
    assert len(file.split_offsets) == 3
    assert set(file.lower_bounds) == set(file.upper_bounds) == {1}
    found = watched.table.scan(row_filter=f"text = '{'z' * 5000}'").to_arrow()
    assert found["id"].to_pylist() == [1]


def test_nans_are_counted(watched: Watched) -> None:
    """Else Iceberg's `DELETE WHERE x < 5` would drop a file whole that holds NaN."""
    schema = pa.schema([("x", pa.float64()), ("s", pa.struct([("y", pa.float32())]))])
    table = watched.create(schema)
    for value in (1.0, math.nan, None):
        table.append(pa.table([[value], [None if value is None else {"y": value}]], schema=schema))
    watched.compact()
    (file,) = added_files(watched.table).values()
    assert file.nan_value_counts == {1: 1, 3: 1}


def _record(columns: dict[str, Any], properties: dict[str, str], **options: Any) -> dict[str, dict[int, Any]]:
    """What a manifest would have of a file with these columns, whose ids count from 1."""
    rows = pa.table(columns)
    rows = rows.cast(with_ids(rows.schema))
    plan, nans, sink = StatisticsPlan(rows.schema, properties), Counter[int](), io.BytesIO()
    for batch in rows.to_batches():
        plan.count_nans(batch, nans)
    pq.write_table(rows, sink, **options)
    record = plan.of(pq.ParquetFile(sink).metadata, nans)
    return {
        name: {pair["key"]: pair["value"] for pair in pairs}
        for name, pairs in record.items()
        if name != "split_offsets"
    }


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {1: "bounds", 2: "bounds"}),
        ({"write.metadata.metrics.default": "none"}, {}),
        ({"write.metadata.metrics.default": "counts"}, {1: "counts", 2: "counts"}),
        ({"write.metadata.metrics.default": "full"}, {1: "bounds", 2: "full"}),
        ({"write.metadata.metrics.default": "gibberish"}, {1: "bounds", 2: "bounds"}),
        ({"write.metadata.metrics.max-inferred-column-defaults": "1"}, {1: "bounds"}),
        ({"write.metadata.metrics.default": "none", "write.metadata.metrics.column.s": "truncate(3)"}, {2: "cut"}),
    ],
    ids=lambda value: " ".join(map(str, value.values())) or "default",
)
def test_metrics_modes(properties: dict[str, str], expected: dict[int, str]) -> None:
    found = _record({"id": [1, 2], "s": ["long text" * 5, "longer text" * 5]}, properties)
    assert set(found["column_sizes"]) == {1, 2}
    assert set(found["value_counts"]) == set(found["null_value_counts"]) == set(expected)
    lengths = {"full": 45, "bounds": 16, "cut": 3}
    bounded = {field for field, mode in expected.items() if mode in lengths}
    assert set(found["lower_bounds"]) == set(found["upper_bounds"]) == bounded
    if 2 in bounded:
        assert len(found["lower_bounds"][2]) == lengths[expected[2]]


def test_bounds_over_row_groups_and_their_gaps() -> None:
    columns = {"n": [3, None, None, -2], "nan": [math.nan, 1.0, math.nan, -0.0], "none": pa.nulls(4, pa.string())}
    found = _record(columns, {}, row_group_size=1)
    assert found["lower_bounds"] == {1: struct.pack("<q", -2), 2: struct.pack("<d", -0.0)}
    assert found["upper_bounds"] == {1: struct.pack("<q", 3), 2: struct.pack("<d", 1.0)}
    assert found["nan_value_counts"] == {2: 2}
    assert found["null_value_counts"] == {1: 2, 2: 0, 3: 4}


@given(st.text(), st.integers(1, 5))
def test_truncated_text_bounds_hold(text: str, length: int) -> None:
    raw = text.encode()
    lower, upper = truncate_text(raw, length), truncate_text_up(raw, length)
    assert lower is not None
    assert lower <= raw
    assert len(lower.decode()) <= length
    if upper is None:
        assert set(text[:length]) == {chr(0x10FFFF)}
    else:
        assert upper >= raw
        assert len(upper.decode()) <= length


@given(st.binary(), st.integers(1, 5))
def test_truncated_binary_bounds_hold(raw: bytes, length: int) -> None:
    upper = truncate_binary_up(raw, length)
    if upper is None:
        assert set(raw[:length]) == {0xFF}
    else:
        assert upper >= raw
        assert len(upper) <= length
