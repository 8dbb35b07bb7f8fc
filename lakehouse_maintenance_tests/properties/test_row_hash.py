"""The hash over rows: the same for the same rows in any order and batches, another one for any other rows."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_maintenance.engines.embedded_iceberg.row_hash import hash_rows


def named(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


ENTRY = pa.struct([named("a", pa.int32(), 21), named("b", pa.string(), 22)])
SCHEMA = pa.schema(
    [
        named("long", pa.int64(), 1),
        named("text", pa.string(), 2),
        named("double", pa.float64(), 3),
        named("float", pa.float32(), 4),
        named("dec", pa.decimal128(20, 3), 5),
        named("flag", pa.bool_(), 6),
        named("at", pa.timestamp("us", "UTC"), 7),
        named("bytes", pa.binary(), 8),
        named("entry", ENTRY, 9),
        named("list", pa.list_(named("element", pa.string(), 24)), 10),
        named("map", pa.map_(named("key", pa.string(), 25).with_nullable(False), named("value", ENTRY, 26)), 11),
        named("lists", pa.list_(named("element", pa.list_(named("element", pa.int32(), 28)), 27)), 12),
    ]
)
TEXT = st.text(alphabet="ab\u00e9\0", max_size=4)
ENTRIES = st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 2), "b": st.none() | TEXT})
ROW = st.fixed_dictionaries(
    {
        "long": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 1),
        "text": st.none() | TEXT,
        "double": st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
        "float": st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan]),
        "dec": st.none() | st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-3)),
        "flag": st.none() | st.booleans(),
        "at": st.none() | st.integers(0, 5).map(lambda n: datetime(2026, 1, 1, 0, 0, n, tzinfo=UTC)),
        "bytes": st.none() | st.binary(max_size=3),
        "entry": ENTRIES,
        "list": st.none() | st.lists(st.none() | TEXT, max_size=3),
        "map": st.none() | st.dictionaries(TEXT, ENTRIES, max_size=2).map(lambda found: list(found.items())),
        "lists": st.none() | st.lists(st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2), max_size=2),
    }
)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def spelled(row: dict[str, Any]) -> str:
    """Equal text for equal rows; a map's entries have no order."""
    return repr({**row, "map": None if row["map"] is None else sorted(row["map"])})


@pytest.mark.requirement("IM-13")
@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=6), st.randoms(use_true_random=False), st.integers(1, 4), st.integers(0, 2))
def test_order_and_batches_do_not_matter(rows, random, size, before) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    whole = batch([*rows[:before], *shuffled]).slice(min(before, len(rows)))
    parts = [whole.slice(start, size) for start in range(0, whole.num_rows, size)]
    for row in rows:
        if row["map"]:
            row["map"] = row["map"][::-1]
    reversed_columns = batch(rows).select(SCHEMA.names[::-1])
    assert hash_rows(parts) == hash_rows([batch(rows)]) == hash_rows([reversed_columns])


@pytest.mark.requirement("IM-13")
@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=4), st.lists(ROW, max_size=4))
def test_other_rows_have_another_hash(left, right) -> None:
    same = sorted(map(spelled, left)) == sorted(map(spelled, right))
    assert (hash_rows([batch(left)]) == hash_rows([batch(right)])) is same


@pytest.mark.requirement("IM-13")
@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=4), st.data())
def test_one_changed_value_changes_it(rows, data) -> None:
    changed = [dict(row) for row in rows]
    name = data.draw(st.sampled_from(SCHEMA.names))
    row = data.draw(st.sampled_from(changed))
    row[name] = data.draw(ROW)[name]
    same = sorted(map(spelled, rows)) == sorted(map(spelled, changed))
    assert (hash_rows([batch(rows)]) == hash_rows([batch(changed)])) is same


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"long": 1}, {"dec": Decimal(1)}),
        ({"text": ""}, {"text": None}),
        ({"list": []}, {"list": None}),
        ({"list": [""]}, {"list": [None]}),
        ({"list": ["ab", "c"]}, {"list": ["a", "bc"]}),
        ({"list": ["a", "b"]}, {"list": ["b", "a"]}),
        ({"entry": {"a": None, "b": None}}, {"entry": None}),
        ({"double": 0.0}, {"double": -0.0}),
        ({"text": "ab"}, {"text": "ba"}),
        ({"text": "a\0"}, {"text": "a"}),
    ],
)
def test_what_is_easily_taken_for_the_same(left, right) -> None:
    assert hash_rows([batch([left])]) != hash_rows([batch([right])])


def test_a_row_that_is_there_twice_counts_twice() -> None:
    once, twice = batch([{"long": 1}]), batch([{"long": 1}, {"long": 1}])
    assert hash_rows([once]) != hash_rows([twice])
    assert hash_rows([batch([{"long": 1}, {"long": 1}, {"long": 2}])]) != hash_rows(
        [batch([{"long": 1}, {"long": 2}, {"long": 2}])]
    )


def test_every_nan_is_the_same_value() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0]
    assert hash_rows([batch([{"double": odd}])]) == hash_rows([batch([{"double": math.nan}])])
