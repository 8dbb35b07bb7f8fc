"""Any rows in any order, sorted in memory and through spilled runs: in order, and bit by bit the same rows."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import pyarrow_to_schema

from lakehouse_maintenance.engines.embedded_iceberg import sorting
from lakehouse_maintenance.engines.embedded_iceberg.sort_keys import SortKeys, key_of
from lakehouse_maintenance.engines.embedded_iceberg.sorting import ExternalSort
from lakehouse_maintenance.model.sort_orders import SortField, SortOrder

pytestmark = pytest.mark.requirement("IM-02", "EN-09")


def _field(number: int, name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {b"PARQUET:field_id": str(number).encode()})


SCHEMA = pa.schema(
    [
        _field(1, "row", pa.int64(), nullable=False),
        _field(2, "i", pa.int32()),
        _field(3, "t", pa.string()),
        _field(4, "d", pa.float64()),
        _field(5, "m", pa.decimal128(20, 1)),
        _field(6, "f", pa.binary(3)),
        _field(7, "s", pa.struct([_field(8, "x", pa.int64(), nullable=False), _field(9, "b", pa.binary())])),
        _field(10, "l", pa.list_(_field(11, "element", pa.float32()))),
        _field(12, "k", pa.map_(_field(13, "key", pa.string(), nullable=False), _field(14, "value", pa.bool_()))),
        _field(15, "u", pa.uuid()),
    ]
)
TABLE = pyarrow_to_schema(SCHEMA.remove(9)).model_copy()
COLUMNS = ("row", "i", "t", "d", "m", "f", "s.x", "s.b")

few = st.sampled_from
rows = st.lists(
    st.tuples(
        st.none() | few([-1, 0, 1, 2**31 - 1]),
        st.none() | few(["", "a", "a\0", "ab", "a long common text 1", "a long common text 2", "é"]),
        st.none() | few([0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, 5e-324]),
        st.none() | st.decimals("-1e15", "1e15", places=1),
        st.none() | few([b"abc", b"\0\0\0", b"\xff\xff\xff"]),
        st.none() | st.fixed_dictionaries({"x": few([1, 2]), "b": st.none() | few([b"", b"\0", b"\xff" * 9])}),
        st.none() | st.lists(st.none() | few([0.0, -0.0, 0.5]), max_size=3),
        st.none()
        | st.lists(st.tuples(few(["a", "b"]), st.none() | st.booleans()), max_size=2, unique_by=lambda p: p[0]),
        st.none() | st.binary(min_size=16, max_size=16),
    ),
    min_size=1,
    max_size=60,
)
orders = st.lists(
    st.builds(
        SortField,
        few(COLUMNS).map(lambda name: tuple(name.split("."))),
        st.just("identity"),
        st.none(),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(lambda fields: SortOrder(tuple(fields)))
zorders = st.lists(few(COLUMNS), min_size=1, max_size=4, unique=True).map(
    lambda names: SortOrder(tuple(SortField(tuple(name.split("."))) for name in names), zorder=True)
)


def batch_of(values: list[Any], start: int) -> pa.RecordBatch:
    columns = [[start + number for number in range(len(values))], *map(list, zip(*values, strict=True))]
    arrays = []
    for field, column in zip(SCHEMA, columns, strict=True):
        if isinstance(field.type, pa.BaseExtensionType):
            arrays.append(pa.ExtensionArray.from_storage(field.type, pa.array(column, field.type.storage_type)))
        else:
            arrays.append(pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def bits(value: Any) -> Any:
    """The value with its floats as bytes."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {key: bits(one) for key, one in value.items()}
    return [bits(one) for one in value] if isinstance(value, list | tuple) else value


def compared(order: SortOrder, one: dict[str, Any], other: dict[str, Any]) -> int:
    for field in order.fields:
        a, b = (functools.reduce(lambda at, part: at and at[part], field.column, row) for row in (one, other))
        if a is None or b is None:
            if (a is None) != (b is None):
                return -1 if (a is None) == field.nulls_first else 1
            continue
        x, y = _key(a), _key(b)
        if x != y:
            return -1 if (x < y) != field.descending else 1
    return 0


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value) if value == 0 else 0)
    return value.encode() if isinstance(value, str) else value


def sort(values: list[Any], order: SortOrder, memory: int, ranges: int, batch: int) -> tuple[list[Any], int]:
    keys = SortKeys(order, TABLE, SCHEMA)
    with ExternalSort(SCHEMA, keys, memory, 2, 2, 0) as made:
        buffers = [made.buffer(), made.buffer()]
        for number, start in enumerate(range(0, len(values), batch)):
            buffers[number % 2].add(batch_of(values[start : start + batch], start))
        made.finish()
        assert made.rows == len(values)
        found = [row for part in made.ranges(ranges) for one in part for row in one.to_pylist()]
        assert len(found) == len(values)
        return found, made.spilled_bytes


@given(rows, orders, st.integers(1, 4), st.integers(1, 7), st.sampled_from([1, 2000, 1 << 20]))
def test_sorted_rows_are_the_same_rows_in_order(values, order, ranges, batch, memory):
    found, spilled = sort(values, order, memory, ranges, batch)
    assert bool(spilled) <= (memory < 1 << 20)
    for before, after in itertools.pairwise(found):
        assert compared(order, before, after) <= 0
    original = batch_of(values, 0).to_pylist()
    by_row = sorted(found, key=lambda row: row["row"])
    assert [bits(row) for row in by_row] == [bits(row) for row in original]


@given(rows, zorders, st.integers(1, 4), st.integers(1, 7))
def test_z_order_is_one_order_whatever_was_spilled(values, order, ranges, batch):
    found, spilled = sort(values, order, 1, ranges, batch)
    assert spilled or len(values) <= 2 * batch
    original = batch_of(values, 0).to_pylist()
    assert [bits(row) for row in sorted(found, key=lambda row: row["row"])] == [bits(row) for row in original]
    keys = SortKeys(order, TABLE, SCHEMA)
    # What was spilled first decides where values lie: whatever it was, all rows are in the order of that.
    keys.fit([batch_of(values[:batch], 0)])
    levels = keys.levels(batch_of(values, 0))
    if spilled and len(values) <= batch:
        placed = [key_of(levels, row["row"]) for row in found]
        assert placed == sorted(placed)


def test_many_runs_are_merged_in_turns(monkeypatch):
    """Whatever does not fit as one block of each run: fewer, longer runs first."""
    monkeypatch.setattr(sorting, "_SMALLEST_BLOCK", 1)
    values = [(i * 7919 % 200, None, None, None, None, None, None, None, None) for i in range(200)]
    found, spilled = sort(values, SortOrder((SortField(("i",)),)), 64, 3, 4)
    assert [row["i"] for row in found] == sorted(row["i"] for row in found)
    assert sorted(row["row"] for row in found) == list(range(200))
    assert spilled


def test_equal_rows_spread_over_the_ranges():
    """A border between ranges runs through rows of one key too: no file takes them all."""
    values = [(1, None, None, None, None, None, None, None, None)] * 400
    with ExternalSort(SCHEMA, SortKeys(SortOrder((SortField(("i",)),)), TABLE, SCHEMA), 4000, 2, 2, 0) as made:
        for number, buffer in enumerate((made.buffer(), made.buffer())):
            for start in range(0, 200, 10):
                buffer.add(batch_of(values[:10], number * 200 + start))
        made.finish()
        sizes = [sum(batch.num_rows for batch in part) for part in made.ranges(4)]
        assert made.spilled_bytes
    assert all(80 <= size <= 120 for size in sizes), sizes


def _held_at_once(monkeypatch) -> list[int]:
    """Bytes of each batch that sorting puts together from several."""
    held: list[int] = []
    for name in ("_combined", "_concatenated"):
        real = getattr(sorting, name)

        def together(batches, schema, real=real):
            held.append(sum(batch.nbytes for batch in batches))
            return real(batches, schema)

        monkeypatch.setattr(sorting, name, together)
    return held


def test_a_key_whose_rows_are_the_large_ones_fits_too(monkeypatch):
    """A block is cut by what its rows take, not by the mean of all: else a merge holds all rows of such a key."""
    held = _held_at_once(monkeypatch)
    memory, batches = 4 << 20, 100
    rows = [(1, "x" * 20_000, *[None] * 7)] * 10 + [(0, "", *[None] * 7)] * 1990
    batch = batch_of(rows, 0)
    keys = SortKeys(SortOrder((SortField(("i",)),)), TABLE, SCHEMA)
    with ExternalSort(SCHEMA, keys, memory, 1, 1, batches * batch.nbytes) as made:
        buffer = made.buffer()
        for _ in range(batches):
            buffer.add(batch)
        made.finish()
        assert sum(one.num_rows for part in made.ranges(2) for one in part) == batches * 2000
        assert made.spilled_bytes > 4 * memory
    assert max(held) <= memory + batch.nbytes


def test_what_several_readers_hold_is_never_one_batch_beyond_its_limit(monkeypatch):
    """Arrow's texts have 32-bit offsets: with much memory, buffers together hold more than fits one batch."""
    held = _held_at_once(monkeypatch)
    monkeypatch.setattr(sorting, "_LARGEST_RUN", 40_000)
    values = [(number * 7919 % 400, "text" * 9, *[None] * 7) for number in range(400)]
    assert 40_000 < batch_of(values, 0).nbytes < 80_000, "each buffer fits, both do not"
    found, spilled = sort(values, SortOrder((SortField(("i",)),)), 1 << 30, 2, 50)
    assert [row["i"] for row in found] == list(range(400))
    assert spilled
    assert max(held) <= 40_000


def test_a_full_disk_says_where_to_look(monkeypatch):
    from lakehouse_maintenance.model.errors import StorageError

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    values = [(1, *[None] * 8)] * 10
    with pytest.raises(StorageError, match="No space left") as told:
        sort(values, SortOrder((SortField(("i",)),)), 1, 1, 1)
    assert told.value.field == "TMPDIR"
