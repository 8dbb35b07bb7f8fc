"""Encodings compare as the values do, and bits are interleaved as one would by hand."""

from __future__ import annotations

import math
import struct
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

from lakehouse_maintenance.engines.embedded_iceberg.sort_keys import transformed
from lakehouse_maintenance.engines.embedded_iceberg.zvalues import (
    Span,
    interleave,
    ordered_parts,
    pack,
    text_word,
    word,
)
from lakehouse_maintenance.model.sort_orders import SortField

pytestmark = pytest.mark.requirement("IM-02")

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal9": (pa.decimal128(9, 2), st.decimals("-9999999.99", "9999999.99", places=2)),
    "decimal38": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "timestamp_ns": (pa.timestamp("ns"), st.integers(-(2**63) + 1, 2**63 - 1)),
    "fixed": (pa.binary(11), st.binary(min_size=11, max_size=11)),
    "uuid": (pa.uuid(), st.uuids().map(lambda value: value.bytes)),
    "string": (pa.string(), st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)),
    "binary": (pa.binary(), st.binary(max_size=12)),
}


def array_of(name: str, values: list[Any]) -> pa.Array:
    kind = KINDS[name][0]
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def reference(value: Any) -> Any:
    """Compares in Python as Iceberg says."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        # NaN last; -0.0 before 0.0.
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value) if value == 0 else 0)
    return (1, value.encode() if isinstance(value, str) else value)


def as_ints(words: list[Any]) -> list[int]:
    return [sum(int(w) << (64 * place) for place, w in enumerate(reversed(row))) for row in zip(*words, strict=True)]


pairs = st.sampled_from(sorted(KINDS)).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(st.none() | KINDS[name][1], min_size=2, max_size=12))
)


@given(pairs, st.integers(0, 2))
def test_encodings_compare_as_the_values(case, start):
    name, values = case
    array = array_of(name, [*[None] * start, *values]).slice(start)
    words = word(array)
    exact = name not in ("string", "binary", "fixed", "uuid", "decimal38")
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            if None not in (one, other):
                assert (reference(one) < reference(other)) <= (words[i] <= words[j]), (one, other)
                if exact and reference(one) != reference(other):
                    assert words[i] != words[j], (one, other)
            elif one is None:
                assert words[i] == 0


@given(pairs.filter(lambda case: case[0] not in ("string", "binary")), st.integers(0, 2))
def test_parts_hold_values_of_fixed_width_whole(case, start):
    name, values = case
    array = array_of(name, [*[None] * start, *values]).slice(start)
    keys = as_ints(pack(ordered_parts(array)))
    present = [(reference(value), key) for value, key in zip(values, keys, strict=True) if value is not None]
    for one, key in present:
        for other, theirs in present:
            assert (one < other) == (key < theirs)


@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(0, 20), st.integers(0, 3))
def test_eight_bytes_of_text(values, start, offset):
    words = text_word(pa.array([*[b"before"] * offset, *values], pa.binary()).slice(offset), start)
    expected = [int.from_bytes((value or b"")[start : start + 8].ljust(8, b"\0"), "big") for value in values]
    assert words.tolist() == expected


@given(pairs, pairs)
def test_a_span_never_turns_the_order(sample, case):
    """Also where it was taken from other values than those it places."""
    name, values = case
    seen = [value for value in sample[1] if sample[0] == name]
    span = Span.of(array_of(name, seen))
    placed = span.place(array_of(name, values))
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            assert (reference(one) < reference(other)) <= (placed[i] <= placed[j]), (one, other, span)


def test_a_span_spreads_small_numbers_and_texts_that_begin_alike():
    numbers = Span.of(pa.array(range(1024))).place(pa.array([0, 500, 520, 1023]))
    assert [int(value) >> 63 for value in numbers] == [0, 0, 1, 1]
    digits = pa.array([f"item-{i:04}" for i in range(1000)])
    assert sum(int(value) >> 63 for value in Span.of(digits).place(digits)) == pytest.approx(500, abs=2)
    texts = pa.array([f"a-long-common-prefix/{i:04}" for i in range(1000)])
    span = Span.of(texts)
    assert span.prefix == b"a-long-common-prefix/0"
    assert len(set(span.place(texts).tolist())) > 990
    outside = span.place(pa.array(["a", "a-long-common-prefix/0500", "z", None]))
    assert outside[0] == outside[3] == 0 < outside[1] < outside[2]


@given(st.integers(1, 16).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * n), max_size=4)))
def test_bits_are_interleaved(rows):
    columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    if not columns:
        return
    expected = [int("".join(map("".join, zip(*(f"{v:064b}" for v in row), strict=True))), 2) for row in rows]
    assert as_ints(interleave(columns)) == expected


@given(st.lists(st.integers(1, 64), min_size=1, max_size=8), st.data())
def test_parts_are_packed_without_gaps(widths, data):
    values = [data.draw(st.integers(0, 2**width - 1)) for width in widths]
    words = pack([(np.array([value], np.uint64), width) for value, width in zip(values, widths, strict=True)])
    text = "".join(f"{value:0{width}b}" for value, width in zip(values, widths, strict=True))
    assert len(words) == -(-sum(widths) // 64)
    assert as_ints(words) == [int(text.ljust(64 * len(words), "0"), 2)]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.integers(1, 100))
def test_buckets_are_icebergs(values, number):
    found = transformed(pa.array(values, pa.int64()), SortField(("x",), "bucket", number), LongType())
    bucket = BucketTransform(number).transform(LongType())
    assert found.to_pylist() == [bucket(value) for value in values]


def test_other_transforms():
    def of(array: pa.Array, transform: str, width: int | None = None, source: Any = None) -> list[Any]:
        return transformed(array, SortField(("x",), transform, width), source).to_pylist()

    days = pa.array([date(1969, 12, 31), date(1970, 2, 1), None])
    assert of(days, "year") == [-1, 0, None]
    assert of(days, "month") == [-1, 1, None]
    assert of(days, "day") == [-1, 31, None]
    micros = pa.array([-1, 3_600_000_000, None], pa.timestamp("us"))
    assert of(micros, "hour") == of(micros.cast(pa.timestamp("ns")), "hour") == [-1, 1, None]
    assert of(micros, "day") == [-1, 0, None]
    assert of(pa.array(["äöü", "a", None]), "truncate", 2) == ["äö", "a", None]
    assert of(pa.array([b"abc", None]), "truncate", 2) == [b"ab", None]
    assert of(pa.array([-1, 9, 10], pa.int32()), "truncate", 10) == [-1, 0, 1]
    assert of(pa.array([Decimal("-0.01"), Decimal("1.05"), None]), "truncate", 10) == [-1, 10, None]
    texts = pa.array(["iceberg", None, "iceberg"])
    bucket = BucketTransform(16).transform(StringType())("iceberg")
    assert of(texts, "bucket", 16, StringType()) == [bucket, None, bucket]


def test_nan_of_either_sign_is_the_greatest():
    negative = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    words = word(pa.array([negative, math.nan, math.inf, -math.inf]))
    assert words[0] == words[1] > words[2] > words[3]
