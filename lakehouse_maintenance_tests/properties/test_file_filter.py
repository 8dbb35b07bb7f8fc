"""A file that holds a matching row is never left out by a filter, whatever schema, partition spec and statistics."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from lakehouse_maintenance.iceberg.file_filter import FileFilter
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader, partition_spelling
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.files import Content, LiveFile

EPOCH_DAY, EPOCH = date(1970, 1, 1), datetime(1970, 1, 1)  # noqa: DTZ001 - columns without a zone
FIELDS: list[tuple[int, str, IcebergType]] = [
    (1, "i", IntegerType()),
    (2, "l", LongType()),
    (3, "f", FloatType()),
    (4, "d", DoubleType()),
    (5, "s", StringType()),
    (6, "day", DateType()),
    (7, "at", TimestampType()),
    (8, "dec", DecimalType(9, 2)),
    (9, "b", BooleanType()),
    (10, "u", UUIDType()),
]
SCHEMA = Schema(*(NestedField(fid, name, kind, required=False) for fid, name, kind in FIELDS))
KINDS = {name: kind for _, name, kind in FIELDS}
IDS = {name: fid for fid, name, _ in FIELDS}
TRANSFORMS = [
    *(("identity", name) for name in KINDS),
    *((f"bucket[{n}]", name) for n in (2, 5) for name in KINDS if name not in ("f", "d", "b")),
    *((f"truncate[{n}]", name) for n in (1, 3) for name in ("i", "l", "s", "dec")),
    *((name, source) for name in ("year", "month", "day") for source in ("day", "at")),
    ("hour", "at"),
    ("void", "i"),
]
TEXTS = st.text(alphabet="ab\u00e9z\U0001f600", max_size=4)


def narrow(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def values(name: str) -> st.SearchStrategy[Any]:
    """Of few enough that filters hit them."""
    if name == "i" or name == "l":
        return st.integers(-4, 4) | st.sampled_from([-(2**31), 2**31 - 1])
    if name in ("f", "d"):
        numbers = st.sampled_from([-1.5, -0.0, 0.0, 0.1, 1.0, math.inf, -math.inf, math.nan])
        return numbers.map(narrow) if name == "f" else numbers
    if name == "s":
        return TEXTS
    if name == "day":
        return st.integers(-800, 800)
    if name == "at":
        return st.integers(-30 * 3_600_000_000, 30 * 3_600_000_000)
    if name == "dec":
        return st.integers(-500, 500).map(lambda cents: Decimal(cents).scaleb(-2))
    if name == "b":
        return st.booleans()
    return st.sampled_from([bytes([number] * 16) for number in (0, 1, 127, 128, 255)])


@dataclass
class File:
    rows: list[dict[str, Any]]
    live: LiveFile
    record: dict[str, Any]


@dataclass
class Reader:
    """What FileFilter asks of a ManifestReader."""

    files: list[File]

    def live_files_by_manifest(self, manifests: Any) -> Iterator[tuple[ManifestFile, list[LiveFile]]]:
        for manifest in manifests:
            yield manifest, [file.live for file in self.files]

    def entries(self, manifest: Any, skip: Any) -> Any:
        return SimpleNamespace(records=[{"status": 1, "data_file": file.record} for file in self.files])


ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values(name) for name in KINDS}), min_size=1, max_size=4)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[File]]:
    """Fields of a partition spec, and files of one row group, each of one partition tuple."""
    chosen = draw(st.lists(st.sampled_from(TRANSFORMS), max_size=2, unique=True))
    fields = [
        {"name": f"p{n}", "transform": transform, "source-id": IDS[source], "field-id": 1000 + n}
        for n, (transform, source) in enumerate(chosen)
    ]
    files = []
    for number, rows in enumerate(draw(st.lists(ROWS, min_size=1, max_size=4))):
        tuples = [tuple(transformed(t, s, row[s]) for t, s in chosen) for row in rows]
        kept = [row for row, one in zip(rows, tuples, strict=True) if repr(one) == repr(tuples[0])]
        partition = {f"p{n}": value for n, value in enumerate(tuples[0])}
        spell = partition_spelling({"fields": [{"name": f["name"], "type": avro(f, chosen)} for f in fields]})
        live = LiveFile(f"{number}", Content.DATA, "PARQUET", 0, spell(partition), len(kept), 1, 1, 1)
        files.append(File(kept, live, draw(statistics(kept))))
    return fields, files


def avro(field: dict[str, Any], chosen: list[tuple[str, str]]) -> Any:
    transform, source = chosen[int(field["name"][1:])]
    is_decimal = source == "dec" and transform.startswith(("identity", "truncate", "void"))
    return {"type": "fixed", "size": 4, "logicalType": "decimal"} if is_decimal else "x"


def transformed(transform: str, source: str, value: Any) -> Any:
    """As a manifest holds it."""
    result = parse_transform(transform).transform(KINDS[source])(value)
    if isinstance(result, Decimal):
        return int(result.scaleb(2)).to_bytes(4, "big", signed=True)
    # As in Java: what leaves the type comes in at its other end.
    return result + 2**32 if source == "i" and isinstance(result, int) and result < -(2**31) else result


@st.composite
def statistics(draw: st.DrawFn, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the rows; of some columns none or half of them."""
    found: dict[str, Any] = {"record_count": len(rows)}
    names = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    for name in names:
        found[name] = []
    for column, kind in KINDS.items():
        column_values = [row[column] for row in rows]
        present = [v for v in column_values if v is not None]
        ordered = [v for v in present if v == v]
        told: dict[str, Any] = {
            "value_counts": len(rows),
            "null_value_counts": len(rows) - len(present),
        }
        if column in ("f", "d"):
            told["nan_value_counts"] = len(present) - len(ordered)
        if ordered:
            # As Parquet writes them: -0.0 below 0.0.
            key = (lambda v: (v, math.copysign(1, v))) if column in ("f", "d") else (lambda v: v)
            lower, upper = min(ordered, key=key), max(ordered, key=key)
            if column == "s" and draw(st.booleans()):
                lower, upper = lower[:2], upper if len(upper) <= 2 else upper[:1] + chr(ord(upper[1]) + 1)
            told["lower_bounds"] = bound(kind, lower, draw(st.booleans()))
            told["upper_bounds"] = bound(kind, upper, draw(st.booleans()))
        # NaNs of `d` are always counted where it has bounds, those of `f` sometimes.
        keep = draw(st.sampled_from(["all", "all", "all", "counts", "none", "nan"]))
        if column == "f" and draw(st.booleans()):
            told.pop("nan_value_counts")
        for name, value in told.items():
            if keep == "none" or (keep == "counts" and "bounds" in name):
                continue
            damaged = keep == "nan" and column in ("f", "d") and "bounds" in name
            found[name].append({"key": IDS[column], "value": to_bytes(kind, math.nan) if damaged else value})
    return found


def bound(kind: IcebergType, value: Any, promoted: bool) -> bytes:
    """`promoted`: as it was written when the column still was the narrower type."""
    if promoted and isinstance(kind, LongType):
        return struct.pack("<i", value)
    if promoted and isinstance(kind, DoubleType) and narrow(value) == value:
        return struct.pack("<f", value)
    return to_bytes(kind, UUID(bytes=value) if isinstance(kind, UUIDType) else value)


@dataclass
class Leaf:
    """A predicate's text, and whether a row's value matches it."""

    text: str
    column: str
    matches: Any


@st.composite
def leaves(draw: st.DrawFn) -> Leaf:
    column = draw(st.sampled_from(sorted(KINDS)))
    form = draw(st.sampled_from(["cmp", "cmp", "in", "null", "nan", "like"]))
    if form == "null":
        negated = draw(st.booleans())
        return Leaf(
            f"{column} IS {'NOT ' if negated else ''}NULL", column, lambda v: (v is not None) if negated else v is None
        )
    if form == "nan" and column in ("f", "d"):
        return Leaf(f"{column} IS NAN", column, lambda v: v is not None and v != v)
    if form == "like" and column == "s":
        prefix = draw(TEXTS)
        return Leaf(f"s LIKE '{prefix}%'", column, lambda v: v is not None and v.startswith(prefix))
    usable = values(column).filter(lambda v: not isinstance(v, float) or math.isfinite(v))
    if form == "in" and column != "b":
        members = draw(st.lists(usable, min_size=1, max_size=3))
        listed = ", ".join(written(column, v) for v in members)
        return Leaf(f"{column} IN ({listed})", column, lambda v: any(same(column, v, one) for one in members))
    value = draw(usable)
    operator = draw(st.sampled_from(["=", "!="] if column in ("b", "u") else ["=", "!=", "<", "<=", ">", ">="]))
    return Leaf(f"{column} {operator} {written(column, value)}", column, comparison(column, operator, value))


def same(column: str, value: Any, literal: Any) -> bool:
    return value is not None and value in (literal, narrow(literal) if column == "f" else literal)


def comparison(column: str, operator: str, literal: Any) -> Any:
    def matches(value: Any) -> bool | None:
        if value is None:
            return False
        if value != value:
            # As in Spark: more than any number. Where nobody counted NaNs, Iceberg knows of none.
            if operator in ("=", "!="):
                return operator == "!="
            return operator in (">", ">=") if column == "d" else None
        if operator == "=":
            return same(column, value, literal)
        if operator == "!=":
            return not same(column, value, literal)
        both = (value < literal, value <= literal, value > literal, value >= literal)
        return both[["<", "<=", ">", ">="].index(operator)]

    return matches


def written(column: str, value: Any) -> str:
    if column == "s":
        return f"'{value}'"
    if column == "day":
        return f"'{EPOCH_DAY + timedelta(days=value)}'"
    if column == "at":
        return f"'{(EPOCH + timedelta(microseconds=value)).isoformat()}'"
    if column == "u":
        return f"'{UUID(bytes=value)}'"
    if column == "b":
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3f}" if value != narrow(0.1) else "0.1"
    return str(value)


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, Any]:
    """The text, and whether a row matches. NOT stands before single predicates: null and NOT match in no row."""
    first, second = draw(leaves()), draw(leaves())
    negated, word = draw(st.booleans()), draw(st.sampled_from(["AND", "OR"]))

    def one(row: dict[str, Any]) -> bool:
        value = row[first.column]
        if not negated or first.matches(value) is None:
            return bool(first.matches(value))
        if value is None:
            return first.text.endswith("IS NOT NULL")
        return not first.matches(value)

    def both(row: dict[str, Any]) -> bool:
        left, right = one(row), second.matches(row[second.column])
        return bool(left and right if word == "AND" else left or right)

    return f"{'NOT ' if negated else ''}({first.text}) {word} {second.text}", both


def chosen(fields: list[dict[str, Any]], files: list[File], where: str) -> list[bool]:
    metadata = SimpleNamespace(current_schema=SCHEMA.model_dump(by_alias=True), specs={0: fields})
    file_filter = FileFilter(cast(Metadata, metadata), where)
    manifest = SimpleNamespace(spec_id=0)
    verdicts = file_filter.choose(cast(ManifestReader, Reader(files)), [cast(ManifestFile, manifest)])
    return [verdict for _, verdict in verdicts]


@pytest.mark.requirement("IM-01")
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), filters())
def test_a_file_with_a_matching_row_is_chosen(table: Any, filter_: Any) -> None:
    fields, files = table
    where, matches = filter_
    verdicts = chosen(fields, files, where)
    for file, verdict in zip(files, verdicts, strict=True):
        hits = [row for row in file.rows if matches(row)]
        assert verdict or not hits, (where, fields, file)


STEPS: dict[str, Any] = {"i": 1, "l": 1, "day": 1, "at": 1, "dec": Decimal("0.01")}


def forms_of(column: str, value: Any) -> Iterator[str]:
    """Filters that a row with this value matches, as sharp as can be."""
    if value is None:
        yield f"{column} IS NULL"
        return
    yield f"{column} IS NOT NULL"
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{column} > 1000.0" if value > 0 else f"{column} IS NOT NULL"
        return
    text = written(column, value)
    yield f"{column} = {text}"
    if column != "b":
        yield f"{column} IN ({text}, {text})"
        yield f"NOT {column} < {text}"
        yield f"{column} <= {text}"
        yield f"{column} BETWEEN {text} AND {text}"
    if column == "s":
        for end in range(len(value) + 1):
            yield f"s LIKE '{value[:end]}%'"
        yield f"s NOT LIKE '{value}a%'"
        if value:
            yield f"s > '{value[:-1]}'"
        yield f"s < '{value}a'"
    step = STEPS.get(column)
    if step is not None and abs(value) < 2**31 - 1:
        yield f"{column} > {written(column, value - step)}"
        yield f"{column} < {written(column, value + step)}"
        yield f"{column} != {written(column, value + step)}"
    if column == "f" and value == narrow(0.1):
        yield "f > 0.1"


@pytest.mark.requirement("IM-01")
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.data())
def test_every_value_is_found_by_every_filter_on_it(table: Any, data: st.DataObject) -> None:
    fields, files = table
    number = data.draw(st.integers(0, len(files) - 1))
    row = data.draw(st.sampled_from(files[number].rows))
    # Mostly of a column that the partition is made from.
    sources = [name for name in KINDS if IDS[name] in {field["source-id"] for field in fields}]
    column = data.draw(st.sampled_from(sources * 10 + sorted(KINDS)))
    for where in forms_of(column, row[column]):
        assert chosen(fields, files, where)[number], (where, fields, files[number])


@pytest.mark.requirement("IM-01")
@pytest.mark.parametrize(
    ("transform", "column", "value", "matching", "others"),
    [
        ("truncate[1]", "s", "ab", ["s >= 'ab'", "s > 'aa'", "s LIKE 'abc%'"], ["s > 'b'", "s < 'a'", "s LIKE 'b%'"]),
        ("truncate[3]", "i", -(2**31) + 1, ["i < 0", f"i = {-(2**31) + 1}"], ["i IS NULL"]),
        ("truncate[3]", "s", "ab", ["s >= 'ab'"], ["s > 'ab'", "s LIKE 'abc%'", "s != 'ab'"]),
        ("void", "f", narrow(0.1), ["f = 0.1", "f <= 0.1", "f > 0.1"], ["f = 0.2", "f > 0.2"]),
        ("identity", "f", narrow(0.1), ["f = 0.1", "f <= 0.1", "f != 0.1"], ["f < 0.05"]),
        ("identity", "d", -0.0, ["d = 0.0", "d < 0.0", "d != 0.0", "d >= 0.0"], ["d > 0.5", "d IS NAN"]),
        ("identity", "d", math.nan, ["d IS NAN", "d > 5.0"], ["d < 5.0", "d IS NULL", "d = 1.0"]),
        ("bucket[5]", "i", 4, ["i = 4", "i > 4000000"], ["i = 5", "i IS NULL"]),
        ("hour", "at", -1, ["at < '1970-01-01'", "at >= '1969-12-31 22:30:00'"], ["at >= '1970-01-01'"]),
        (
            "month",
            "day",
            40,
            ["day = '1970-02-01'", "day < '1970-02-02'"],
            ["day < '1970-02-01'", "day > '1970-02-28'"],
        ),
        ("truncate[10]", "dec", Decimal("1.25"), ["dec = 1.29", "dec > 1.28"], ["dec > 1.29", "dec < 1.2"]),
        ("identity", "u", b"\x7f" * 16, [f"u < '{UUID(int=0)}'"], [f"u = '{UUID(int=0)}'"]),
        ("identity", "i", None, ["i IS NULL", "i != 5"], ["i = 5", "i < 5", "i IS NOT NULL", "NOT i < 5"]),
    ],
)
def test_what_a_partition_tells(transform: str, column: str, value: Any, matching: Any, others: Any) -> None:
    fields = [{"name": "p0", "transform": transform, "source-id": IDS[column], "field-id": 1000}]
    made = transformed(transform, column, value)
    spell = partition_spelling({"fields": [{"name": "p0", "type": avro(fields[0], [(transform, column)])}]})
    live = LiveFile("f", Content.DATA, "PARQUET", 0, spell({"p0": made}), 1, 1, 1, 1)
    bounds = transform == "void"
    record = {"record_count": 1}
    if bounds:
        both = [{"key": IDS[column], "value": to_bytes(KINDS[column], value)}]
        record |= {"lower_bounds": both, "upper_bounds": both}  # type: ignore[dict-item]
    files = [File([], live, record)]
    assert [where for where in matching if not chosen(fields, files, where)[0]] == []
    assert [where for where in others if chosen(fields, files, where)[0]] == []
