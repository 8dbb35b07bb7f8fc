"""Rows divided by a partition spec: transforms as PyIceberg computes them one by one, tuples as manifests hold them."""

from __future__ import annotations

import math
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
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

from lakehouse_maintenance.engines.embedded_iceberg.output import Format
from lakehouse_maintenance.engines.embedded_iceberg.partitioning import Partitioning
from lakehouse_maintenance.engines.embedded_iceberg.repartition import Repartition
from lakehouse_maintenance.engines.embedded_iceberg.schema import table_schema
from lakehouse_maintenance.engines.embedded_iceberg.transforms import transform

DAY = 86_400_000_000
WHOLE = st.integers(-(2**31), 2**31 - 1) | st.integers(-20, 20)
MICROS = st.integers(-(2**48), 2**48) | st.integers(-3 * DAY, 3 * DAY)
SCALE = 4
KINDS: dict[str, tuple[IcebergType, pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), pa.int32(), WHOLE),
    "long": (LongType(), pa.int64(), st.integers(-(2**62), 2**62) | WHOLE),
    "date": (DateType(), pa.date32(), st.integers(-200_000, 200_000)),
    "time": (TimeType(), pa.time64("us"), st.integers(0, DAY - 1)),
    "timestamp": (TimestampType(), pa.timestamp("us"), MICROS),
    "timestamptz": (TimestamptzType(), pa.timestamp("us", "UTC"), MICROS),
    "string": (StringType(), pa.string(), st.text(max_size=6)),
    "binary": (BinaryType(), pa.binary(), st.binary(max_size=6)),
    "fixed": (FixedType(3), pa.binary(3), st.binary(min_size=3, max_size=3)),
    "uuid": (UUIDType(), pa.uuid(), st.binary(min_size=16, max_size=16)),
    "decimal": (
        DecimalType(38, SCALE),
        pa.decimal128(38, SCALE),
        (st.integers(-(10**37), 10**37) | st.integers(-100, 100)).map(
            lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -SCALE))
        ),
    ),
    "boolean": (BooleanType(), pa.bool_(), st.booleans()),
    "float": (FloatType(), pa.float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "double": (DoubleType(), pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.inf])),
}
ALLOWED: dict[str, list[str]] = {
    "bucket[7]": [k for k in KINDS if k not in ("boolean", "float", "double")],
    "truncate[3]": ["int", "long", "string", "binary", "decimal"],
    "truncate[10]": ["int", "long", "string", "binary", "decimal"],
    "year": ["date", "timestamp", "timestamptz"],
    "month": ["date", "timestamp", "timestamptz"],
    "day": ["date", "timestamp", "timestamptz"],
    "hour": ["timestamp", "timestamptz"],
    "identity": list(KINDS),
    "void": list(KINDS),
}


def array(kind: str, values: list[Any]) -> pa.Array:
    arrow = KINDS[kind][1]
    if kind == "uuid":
        return pa.ExtensionArray.from_storage(arrow, pa.array(values, arrow.storage_type))
    if kind in ("time", "timestamp", "timestamptz"):
        return pa.array(values, pa.int64()).cast(arrow)
    return pa.array(values, pa.int32()).cast(arrow) if kind == "date" else pa.array(values, arrow)


def plain(values: pa.Array) -> list[Any]:
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_temporal(values.type):
        return [one.value if one.is_valid else None for one in values]
    return list(values.to_pylist())


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in ALLOWED.items() for kind in kinds])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_transforms(name: str, kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind][2], max_size=8))
    one = parse_transform(name).transform(KINDS[kind][0])
    # PyIceberg rounds a decimal to 28 digits and hashes no more of it either.
    if kind == "decimal" and not name.startswith(("identity", "void")):
        values = [v for v in values if v is None or abs(v) < 10**20]
    if name.startswith("truncate") and kind in ("int", "long"):
        values = [v for v in values if v is None or v > -(2**31) + 10]
    found = plain(transform(array(kind, values), name))
    expected = [None if value is None else one(value) for value in values]
    assert repr(found) == repr(expected) if kind in ("float", "double") else found == expected


def test_what_leaves_the_type_wraps_around_as_in_java() -> None:
    assert plain(transform(pa.array([-(2**31) + 1], pa.int32()), "truncate[3]")) == [2**31 - 1]


def test_the_specs_own_hash_values() -> None:
    # Appendix B.
    assert plain(transform(pa.array([34], pa.int32()), "bucket[2147483647]")) == [2017239379]
    assert plain(transform(pa.array(["iceberg"]), "bucket[2147483647]")) == [1210000089]
    assert plain(transform(pa.array([Decimal("14.20")]), "bucket[2147483647]")) == [-500754589 & 0x7FFFFFFF]


class FakeTable:
    """What Partitioning and Repartition ask of a table."""

    def __init__(self, schema: Schema, spec: PartitionSpec, folder: Path) -> None:
        self._schema, self._spec, self._folder = schema, spec, folder
        self.properties: dict[str, str] = {}
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self.io = PyArrowFileIO()

    def name(self) -> tuple[str, ...]:
        return ("t",)

    def schema(self) -> Schema:
        return self._schema

    def specs(self) -> dict[int, PartitionSpec]:
        return {1: self._spec}

    def location(self) -> str:
        return str(self._folder)


SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "double", DoubleType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "text", StringType(), required=False)), required=False),
    NestedField(5, "dec", DecimalType(9, 2), required=False),
    NestedField(6, "u", UUIDType(), required=False),
    NestedField(7, "day", DateType(), required=False),
)
ROW = st.fixed_dictionaries(
    {
        "double": st.none() | KINDS["double"][2],
        "s": st.none() | st.fixed_dictionaries({"text": st.none() | st.sampled_from(["", "a/b", "ä", "longer text"])}),
        "dec": st.none() | st.sampled_from([Decimal("-0.01"), Decimal("0.00"), Decimal("12.50")]),
        "u": st.none() | st.sampled_from([b"\0" * 16, b"\xff" * 16]),
        "day": st.none() | st.integers(-40, 40),
    }
)
SPECS = [
    [(2, "identity"), (4, "truncate[1]")],
    [(5, "identity"), (7, "month"), (6, "identity")],
    [(1, "bucket[3]"), (7, "day")],
    [(4, "identity"), (5, "void")],
    [],
]


def batches(rows: list[dict[str, Any]], size: int) -> Iterator[pa.RecordBatch]:
    schema = table_schema(SCHEMA)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns = [array("long", list(range(start, start + len(part))))]
        for field in list(schema)[1:]:
            kind = {"u": "uuid", "day": "date"}.get(field.name)
            values = [row[field.name] for row in part]
            columns.append(array(kind, values) if kind else pa.array(values, field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def expected_tuple(spec: list[tuple[int, str]], number: int, row: dict[str, Any]) -> list[Any]:
    found = []
    for source, name in spec:
        value = {
            1: number,
            2: row["double"],
            4: (row["s"] or {}).get("text"),
            5: row["dec"],
            6: row["u"],
            7: row["day"],
        }
        kind = SCHEMA.find_field(source).field_type
        result = parse_transform(name).transform(kind)(value[source])
        if isinstance(result, Decimal):
            result = int(result.scaleb(2)).to_bytes(4, "big", signed=True)
        found.append(result)
    return found


def bits(values: Any) -> Any:
    """Comparable: NaN equals itself, and -0.0 is not 0.0."""
    return tuple(struct.pack("<d", v) if isinstance(v, float) else v for v in values)


@pytest.mark.requirement("IM-01", "IM-04")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(ROW, max_size=30),
    spec=st.sampled_from(SPECS),
    size=st.integers(1, 10),
    gather=st.sampled_from([1, 500, 1 << 30]),
)
def test_every_row_goes_to_its_partition(tmp_path_factory, rows, spec, size, gather) -> None:
    folder = tmp_path_factory.mktemp("out")
    fields = [
        PartitionField(source, 1000 + n, parse_transform(name), f"p{n} odd") for n, (source, name) in enumerate(spec)
    ]
    table: Any = FakeTable(SCHEMA, PartitionSpec(*fields, spec_id=1), folder)
    schema = table_schema(SCHEMA)
    announced: list[str] = []
    opened: list[str] = []

    def written(path: str) -> None:
        assert path in announced
        opened.append(path)

    repartition = Repartition(
        table=table,
        schema=schema,
        partitioning=Partitioning(table, 1, schema),
        form=Format.of({}, 1 << 20, False),
        gather_bytes=gather,
        roll_bytes=1 << 30,
        sort_order_id=7,
        threads=2,
        announce=announced.extend,
        written=written,
    )
    records = repartition.write(batches(rows, size), threading.Event())

    wanted = defaultdict(list)
    for number, row in enumerate(rows):
        wanted[bits(expected_tuple(spec, number, row))].append(number)
    found = {}
    for record in records:
        assert record["spec_id"] == 1
        assert list(record["partition"]) == [f"p{n}_x20odd" for n in range(len(spec))]
        read = pq.read_table(record["file_path"], partitioning=None)
        assert read.num_rows == record["record_count"]
        found[bits(record["partition"].values())] = read["n"].to_pylist()
    assert found == dict(wanted), "in their order, each in one file"
    assert sorted(opened) == sorted(record["file_path"] for record in records)
