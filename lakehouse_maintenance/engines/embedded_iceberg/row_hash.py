"""An order-independent hash over rows: equal for the same rows in any order and in any files (IM-13).

Each value gets two hashes of 64 bits, seeded with its column's field id; a row's hash mixes those of its columns, and
rows are summed up, so that a row that is there twice counts twice. Columns are known by their ids, not by names. Null,
NaN (one value, whatever its bits), -0.0 and an empty text are values of their own. It finds faults; it is no defence
against somebody who makes rows up to collide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_maintenance.engines.embedded_iceberg.schema import field_id

Hashes = npt.NDArray[np.uint64]

_LANES = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_NULL, _EMPTY = np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB)
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class RowHash:
    """`rows`: how many; `sums`: of their hashes, one for each lane."""

    rows: int = 0
    sums: tuple[int, int] = (0, 0)

    def __add__(self, other: RowHash) -> RowHash:
        first, second = ((a + b) % (1 << 64) for a, b in zip(self.sums, other.sums, strict=True))
        return RowHash(self.rows + other.rows, (first, second))

    def __str__(self) -> str:
        return "".join(f"{part:016x}" for part in self.sums)


def hash_rows(batches: Iterable[pa.RecordBatch]) -> RowHash:
    """Of all rows; memory is that of a few columns of one batch. Fields need Iceberg ids."""
    found = RowHash()
    for whole in batches:
        # Bytes of text become numbers of 64 bits on the way.
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            found += _of_batch(whole.slice(start, _ROWS_AT_ONCE))
    return found


def _of_batch(batch: pa.RecordBatch) -> RowHash:
    # Sums and products are meant to wrap around.
    with np.errstate(over="ignore"):
        first, second = (_row_sum(batch, lane) for lane in _LANES)
    return RowHash(batch.num_rows, (first, second))


def _row_sum(batch: pa.RecordBatch, lane: np.uint64) -> int:
    rows = np.full(batch.num_rows, lane)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        # A sum: columns may stand in another order.
        rows += _mix(_hash(column, field, lane) ^ _seed(field, lane))
    return int(np.sum(_mix(rows), dtype=np.uint64))


def _seed(field: pa.Field, lane: np.uint64) -> np.uint64:
    return np.uint64(_mix(np.array([(field_id(field) or 0) + 1], np.uint64) * lane)[0])


def _mix(values: Hashes) -> Hashes:
    """Spreads each number over all its bits (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash(array: pa.Array, field: pa.Field, lane: np.uint64) -> Hashes:
    """A hash for each value of the array."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_struct(kind):
        hashes = np.zeros(len(array), np.uint64)
        # flatten, not field: what lies under a null struct is no value.
        for child, values in zip(kind, array.flatten(), strict=True):
            hashes += _mix(_hash(values, child, lane) ^ _seed(child, lane))
    elif pa.types.is_map(kind):
        keys, items = _entries(array)
        # Entries have no order of their own.
        entries = _mix(_mix(_hash(keys, kind.key_field, lane)) + _hash(items, kind.item_field, lane) * lane)
        hashes = _summed(entries, _offsets(array))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = _offsets(array)
        values = array.values.slice(array.offsets[0].as_py(), int(offsets[-1])) if len(array) else array.values[:0]
        places = np.arange(len(values), dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))
        elements = _hash(values, kind.value_field, lane)
        hashes = _summed(_mix(elements + _mix(places.astype(np.uint64) + lane)), offsets)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        hashes = _of_bytes(array.cast(pa.large_binary()), lane)
    elif pa.types.is_decimal(kind):
        hashes = _of_bytes(_decimal_bytes(array), lane)
    else:
        hashes = _mix(_bits(array) * lane)
    if array.null_count:
        hashes = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL * lane, hashes)
    return hashes


def _bits(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        return np.where(np.isnan(numbers), np.float64("nan"), numbers).view(np.uint64)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.cast(pa.int32())
    whole: npt.NDArray[np.int64] = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return whole.astype(np.int64, copy=False).view(np.uint64)


def _decimal_bytes(array: pa.Array) -> pa.Array:
    """Each decimal's unscaled number as bytes of its width; the scale is the column's."""
    width = array.type.bit_width // 8
    data = array.buffers()[1]
    return pa.Array.from_buffers(pa.binary(width), len(array), [None, data], null_count=0, offset=array.offset).cast(
        pa.large_binary()
    )


def _of_bytes(array: pa.Array, lane: np.uint64) -> Hashes:
    """Polynomials over the bytes, of all values at once: differences of a running sum, brought to the same power."""
    if not len(array):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    lengths = np.diff(offsets)
    start, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    nothing = data is None or end == start
    content = np.zeros(0, np.uint8) if nothing else np.frombuffer(data, np.uint8, end - start, start)
    base = _mix(np.array([lane], np.uint64))[0] | np.uint64(1)
    powers = np.full(len(content) + 1, base)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    running = np.zeros(len(content) + 1, np.uint64)
    # Mixed by value first: two bytes that change places must not cancel each other out.
    np.cumsum(_BYTES[content] * powers[:-1], dtype=np.uint64, out=running[1:])
    at = offsets - start
    inverse = np.uint64(pow(int(base), -1, 1 << 64))
    back = np.full(len(content) + 1, inverse)
    back[0] = 1
    np.multiply.accumulate(back, out=back)
    polynomials = (running[at[1:]] - running[at[:-1]]) * back[at[:-1]]
    return _mix(polynomials + _mix(lengths.astype(np.uint64) * lane + _EMPTY))


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Where each list begins, from the first one's beginning; null lists are empty."""
    if not len(array):
        return np.zeros(1, np.int64)
    offsets: npt.NDArray[np.int64] = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    offsets -= offsets[0]
    return offsets


def _entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    if not len(array):
        return array.keys[:0], array.items[:0]
    start, length = array.offsets[0].as_py(), int(_offsets(array)[-1])
    return array.keys.slice(start, length), array.items.slice(start, length)


def _summed(hashes: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    """Of each list: the sum over its elements, and how many there are."""
    running = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes, dtype=np.uint64, out=running[1:])
    sums = running[offsets[1:]] - running[offsets[:-1]]
    return _mix(sums + _mix(np.diff(offsets).astype(np.uint64) + _EMPTY))


_BYTES: Hashes = _mix(np.arange(1, 257, dtype=np.uint64))
