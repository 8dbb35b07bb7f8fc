"""The canonical form that conformance tests compare: the same for every Arrow layout of the same values."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from lakehouse_maintenance_tests.readers import canonical_rows, digest


def _values(array: pa.Array) -> list[object]:
    # The position keeps the order, which canonical rows give up.
    rows = canonical_rows(pa.table({"at": pa.array(range(len(array))), "value": array}))
    return [row["value"] for row in sorted(map(json.loads, rows), key=lambda row: row["at"])]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([True, None]), [True, None]),
        (pa.array([2**63 - 1], pa.int64()), [2**63 - 1]),
        (pa.array([0.1, math.nan, math.inf, -math.inf, -0.0]), ["0.1", "NaN", "Infinity", "-Infinity", "-0.0"]),
        (pa.array([0.1], pa.float32()), ["0.10000000149011612"]),
        (pa.array([Decimal("12.50"), Decimal("0.00")], pa.decimal128(9, 2)), ["12.50", "0.00"]),
        (pa.array([Decimal("0.0000001")], pa.decimal128(30, 7)), ["0.0000001"]),
        (pa.array([date(1, 1, 1)]), ["0001-01-01"]),
        (pa.array([time(1, 2, 3)], pa.time64("us")), ["01:02:03.000000"]),
        (pa.array([datetime(1969, 12, 31, 23, 59, 59, 999_999)]), ["1969-12-31T23:59:59.999999"]),  # noqa: DTZ001
        (pa.array([datetime(9999, 12, 31, tzinfo=UTC)]), ["9999-12-31T00:00:00.000000Z"]),
        (pa.array([1], pa.timestamp("ms", "Europe/Berlin")), ["1970-01-01T00:00:00.001000Z"]),
        (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
        (pa.array([b"\x00\xff", b""]), ["00ff", ""]),
        (pa.array(["a", "a", None]).dictionary_encode(), ["a", "a", None]),
        (pa.array([UUID(int=1).bytes, None], pa.uuid()), ["00000000-0000-0000-0000-000000000001", None]),
        (pa.nulls(2), [None, None]),
        (pa.array([[1, None], None, []], pa.list_(pa.int32())), [[1, None], None, []]),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
        (pa.array([{"b": 1, "a": None}, None]), [{"a": None, "b": 1}, None]),
        (
            pa.array([[("b", 1), ("a", None)], None, []], pa.map_(pa.string(), pa.int32())),
            [[["a", None], ["b", 1]], None, []],
        ),
    ],
    ids=str,
)
def test_each_type_has_one_form(array: pa.Array, values: list[object]) -> None:
    assert _values(array) == values


def test_offsets_of_slices_and_chunks_do_not_show() -> None:
    kind = pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.string())))]))
    data = [[{"m": [(row, ["x", None])]}, None] if row % 3 else None for row in range(10)]
    whole = pa.array(data, kind)
    expected = _values(whole)
    assert _values(whole.slice(4, 3)) == expected[4:7]
    chunked = pa.chunked_array([whole.slice(0, 3), whole.slice(3, 0), whole.slice(3)])
    assert canonical_rows(pa.table({"value": chunked})) == canonical_rows(pa.table({"value": whole}))


def test_rows_and_columns_in_any_order_are_equal_and_duplicates_count() -> None:
    first = canonical_rows(pa.table({"a": [1, 2, 2], "b": ["x", "y", "y"]}))
    assert first == canonical_rows(pa.table({"b": ["y", "x", "y"], "a": [2, 1, 2]}))
    assert digest(first) == digest(list(reversed(first)))
    assert digest(first) != digest(first[:2])


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="not unique"):
        canonical_rows(pa.table([[1], [2]], names=["a", "a"]))
