"""Partition transforms of whole arrays (Iceberg spec: Partition Transforms, Appendix B: 32-bit Hash Requirements)."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BUCKET = re.compile(r"bucket\[(\d+)\]")
_TRUNCATE = re.compile(r"truncate\[(\d+)\]")
_MICROSECONDS_AN_HOUR = 3_600_000_000


def transform(array: pa.Array, name: str) -> pa.Array:
    """The transformed values; null gives null. `name`: as in a partition spec. Raises ValueError for an unknown one."""
    if name == "identity":
        return array
    if name == "void":
        return pa.nulls(len(array), pa.int32())
    if name in ("year", "month", "day", "hour"):
        return _in_time(array, name)
    bucket, cut = _BUCKET.fullmatch(name), _TRUNCATE.fullmatch(name)
    if bucket is not None:
        hashes = _hash(array)
        return pc.cast(pa.array((hashes & 0x7FFFFFFF) % int(bucket[1]), mask=_nulls(array)), pa.int32())
    if cut is not None:
        return _truncate(array, int(cut[1]))
    raise ValueError(f"no partition transform {name!r}")


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _whole(array: pa.Array) -> npt.NDArray[np.int64]:
    """Days, microseconds (nanoseconds where the type has them) or the number itself; 0 for null."""
    kind = array.type
    if pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    values = array.cast(pa.int64())
    return _numpy(values)


def _numpy(values: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def _microseconds(array: pa.Array) -> npt.NDArray[np.int64]:
    values = _whole(array)
    return values // 1000 if pa.types.is_timestamp(array.type) and array.type.unit == "ns" else values


def _in_time(array: pa.Array, name: str) -> pa.Array:
    if pa.types.is_date32(array.type):
        days = _whole(array)
    else:
        micros = _microseconds(array)
        if name == "hour":
            return pc.cast(pa.array(micros // _MICROSECONDS_AN_HOUR, mask=_nulls(array)), pa.int32())
        days = micros // (24 * _MICROSECONDS_AN_HOUR)
    if name != "day":
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        days = months if name == "month" else months // 12
    return pc.cast(pa.array(days, mask=_nulls(array)), pa.int32())


def _truncate(array: pa.Array, width: int) -> pa.Array:
    kind = array.type
    if pa.types.is_integer(kind):
        values = _whole(array)
        # Towards minus infinity; what leaves the type wraps around, as in Java.
        cut = (values - np.mod(values, width)).astype(kind.to_pandas_dtype())
        return pa.array(cut, kind, mask=_nulls(array))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(array, 0, width)
    if pa.types.is_decimal(kind):
        return _by_value(array, lambda value: _truncated(value, width, kind.scale), kind)
    return pc.binary_slice(array, 0, width)


def _truncated(value: Decimal, width: int, scale: int) -> Decimal:
    number = unscaled(value, scale)
    cut = number - number % width
    return Decimal((int(cut < 0), tuple(map(int, str(abs(cut)))), -scale))


def unscaled(value: Decimal, scale: int) -> int:
    """The number without its point."""
    # By digits: arithmetic would round to the context's 28.
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * int(10 ** (int(exponent) + scale))
    return -number if sign else number


def _hash(array: pa.Array) -> npt.NDArray[np.int64]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        array, kind = array.storage, array.type.storage_type
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_time64(kind):
        return _hash_longs(_whole(array))
    if pa.types.is_timestamp(kind):
        return _hash_longs(_microseconds(array))
    if pa.types.is_decimal(kind):
        hashed = _by_value(array, lambda value: _hash_decimal(value, kind.scale), pa.int64())
    else:
        hashed = _by_value(array, mmh3.hash, pa.int64())
    return _numpy(hashed)


def _hash_decimal(value: Decimal, scale: int) -> int:
    number = unscaled(value, scale)
    magnitude = number if number >= 0 else ~number
    return int(mmh3.hash(number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)))


def _by_value(array: pa.Array, one: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """`one` of each distinct value."""
    encoded = array.dictionary_encode()
    results = pa.array([one(value) for value in encoded.dictionary.to_pylist()], kind)
    return results.take(encoded.indices)


def _hash_longs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Murmur3 (x86, 32 bits, seed 0) of each number's eight bytes, the lowest first; as signed numbers."""
    unsigned = values.view(np.uint64)
    state = np.zeros(len(values), np.uint32)
    with np.errstate(over="ignore"):
        for block in (unsigned & np.uint64(0xFFFFFFFF), unsigned >> np.uint64(32)):
            mixed = _rotated(block.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            state = _rotated(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(8)
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.view(np.int32).astype(np.int64)


def _rotated(values: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))
