"""Values as unsigned integers of the same order, and z-values, which interleave their bits. Vectorised in numpy.

The order is Iceberg's (spec: Sorting): NaN is the greatest of floats and -0.0 is below 0.0, text and bytes compare
byte by byte, unsigned. Nulls have no value here: their slots are 0, the lowest there is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Part = tuple[Words, int]
"""Unsigned values, and in how many low bits they lie."""

_SIGN = np.uint64(1 << 63)
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LONGEST_PARTS = 32
"""Fixed values of more bytes are compared as binary ones."""
_SAMPLE = 1 << 16
_RANK_BITS = 12


def is_text(kind: pa.DataType) -> bool:
    """Whether values have any length, so that no number of words holds each of them."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > _LONGEST_PARTS)
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def plain_storage(array: pa.Array) -> pa.Array:
    """Without the extension type of uuids; text as its bytes; no copy."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.view(pa.binary()) if pa.types.is_string(array.type) else array


def ordered_parts(array: pa.Array) -> list[Part]:
    """The values of a type that is not `is_text`, from the most to the least significant part."""
    array = plain_storage(array)
    kind = array.type
    if pa.types.is_boolean(kind):
        values = array.fill_null(False).to_numpy(zero_copy_only=False)
        return [(_cleared(values.astype(np.uint64), array), 1)]
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_parts(array)
    if pa.types.is_decimal(kind):
        high, low = _decimal_words(array)
        if kind.precision <= 18:
            return [(_cleared(low ^ _SIGN, array), 64)]
        return [(_cleared(high ^ _SIGN, array), 64), (_cleared(low, array), 64)]
    width = kind.bit_width
    bits = _raw(array, width // 8)
    sign, full = np.uint64(1 << (width - 1)), np.uint64((1 << width) - 1)
    if pa.types.is_floating(kind):
        infinity = np.uint64(0x7F800000 if width == 32 else 0x7FF0000000000000)
        nan = (bits & ~sign) > infinity
        bits = np.where(bits & sign != 0, ~bits & full, bits | sign)
        bits[nan] = full
    else:
        bits ^= sign
    return [(_cleared(bits, array), width)]


def text_word(array: pa.Array, start: int = 0) -> Words:
    """Eight bytes of each binary value from `start` on, zeros where it is shorter, as a big-endian number."""
    lengths, first, data = _text_buffers(array)
    left = np.clip(lengths - start, 0, 8)
    if len(data) < 8:
        data = np.concatenate((data, np.zeros(8, np.uint8)))
    # Eight bytes are read at once, from wherever they start. Those of the last values are shifted into their place.
    at = first + start
    within = np.clip(at, 0, len(data) - 8)
    eights: npt.NDArray[np.uint64] = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))
    words = eights[within].astype(np.uint64) << (8 * np.minimum(at - within, 7)).astype(np.uint64)
    unused = (8 * np.minimum(8 - left, 7)).astype(np.uint64)
    words = (words >> unused) << unused
    return np.where(left == 0, np.uint64(0), words)


def word(array: pa.Array, start: int = 0) -> Words:
    """One 64-bit word whose order is that of the values as far as it tells them apart; nulls and the lowest are 0.

    `start`: of text and binary values, the byte from which on they are looked at.
    """
    array = plain_storage(array)
    if is_text(array.type):
        return text_word(array, start)
    if pa.types.is_decimal(array.type) and array.type.precision > 18:
        return _cleared(_double_word(_decimal_as_double(array)), array)
    values, bits = ordered_parts(array)[0]
    return values << np.uint64(64 - bits)


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Where a column's values lie: `quantiles` of their words, whose ranks become the leading bits of a place.

    Without it, the leading bits of a column of small numbers are all alike and tell nothing, while those of another
    column decide alone; and digits or names, which use few of a byte's values, would split into unequal halves. Texts
    are looked at behind the `prefix` with which they all begin. Of values that were not seen, the place is coarser,
    never wrong.
    """

    quantiles: Words
    prefix: bytes = b""

    @classmethod
    def of(cls, array: pa.Array) -> Span:
        """From some of the values."""
        array = plain_storage(array).drop_null()
        if len(array) > _SAMPLE:
            array = array.take(pa.array(np.linspace(0, len(array) - 1, _SAMPLE).astype(np.int64)))
        if not len(array):
            return cls(np.zeros(1, np.uint64))
        prefix = b""
        if is_text(array.type):
            values = array.to_pylist()
            prefix = _common_prefix(min(values), max(values))
        words = np.sort(word(array, len(prefix)))
        return cls(words[np.linspace(0, len(words) - 1, 1 << _RANK_BITS).astype(np.int64)], prefix)

    def place(self, array: pa.Array) -> Words:
        """Of each value: its rank among the quantiles, then as much of its word as there is room for."""
        plain = plain_storage(array)
        words = word(plain, len(self.prefix))
        for start in range(0, len(self.prefix), 8):
            # From the last eight bytes to the first: the first that differ decide.
            at = (len(self.prefix) - 1) // 8 * 8 - start
            part = self.prefix[at : at + 8]
            mask = np.uint64(int.from_bytes(b"\xff" * len(part) + b"\0" * (8 - len(part)), "big"))
            found = text_word(plain, at) & mask
            wanted = np.uint64(int.from_bytes(part + b"\0" * (8 - len(part)), "big"))
            words = np.where(found < wanted, np.uint64(0), np.where(found > wanted, _FULL, words))
        ranks = np.minimum(np.searchsorted(self.quantiles, words), (1 << _RANK_BITS) - 1).astype(np.uint64)
        return _cleared((ranks << np.uint64(64 - _RANK_BITS)) | (words >> np.uint64(_RANK_BITS)), plain)


def interleave(columns: Sequence[Words]) -> list[Words]:
    """As many words as columns, whose bits in turns are a bit of each column, the highest first; at most 16 columns."""
    number = len(columns)
    step = 16 if number <= 4 else 8 if number <= 8 else 4
    table = _spread_table(number, step)
    parts: list[Part] = []
    for high in range(64, 0, -step):
        chunk = np.zeros(len(columns[0]), np.uint64)
        for place, column in enumerate(columns):
            piece = (column >> np.uint64(high - step)) & np.uint64((1 << step) - 1)
            chunk |= table[piece.astype(np.intp)] << np.uint64(number - 1 - place)
        parts.append((chunk, step * number))
    return pack(parts)


def pack(parts: Sequence[Part]) -> list[Words]:
    """The parts' bits one after the other in as few words as hold them: words compare as the parts do, in turn."""
    words: list[Words] = []
    free = 0
    for values, bits in parts:
        left = bits
        while left:
            if not free:
                words.append(np.zeros(len(values), np.uint64))
                free = 64
            taken = min(left, free)
            piece = (values >> np.uint64(left - taken)) & np.uint64((1 << taken) - 1)
            words[-1] |= piece << np.uint64(free - taken)
            free -= taken
            left -= taken
    return words


@functools.cache
def _spread_table(number: int, step: int) -> Words:
    """Each number of `step` bits, with `number - 1` zeros between neighbouring bits."""
    values = np.arange(1 << step, dtype=np.uint64)
    table = np.zeros(1 << step, np.uint64)
    for bit in range(step):
        table |= ((values >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * number)
    return table


def _cleared(words: Words, array: pa.Array) -> Words:
    """With 0 where the array is null: what lies under a null is anything."""
    if array.null_count:
        words = np.where(array.is_null().to_numpy(zero_copy_only=False), np.uint64(0), words)
    return words


def _raw(array: pa.Array, width: int) -> Words:
    """What lies in the array's slots of `width` bytes."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), np.uint64)
    return np.frombuffer(buffer, f"u{width}", len(array), array.offset * width).astype(np.uint64)


def _decimal_words(array: pa.Array) -> tuple[Words, Words]:
    """High and low word of each unscaled value (Arrow: 128 bits, little-endian)."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), np.uint64), np.zeros(len(array), np.uint64)
    both = np.frombuffer(buffer, np.uint64, 2 * len(array), array.offset * 16)
    return both[1::2], both[0::2]


def _decimal_as_double(array: pa.Array) -> npt.NDArray[np.float64]:
    high, low = _decimal_words(array)
    signed = high.view(np.int64)
    whole = signed.astype(np.float64) * 2.0**64
    # From 2^53 on the high word is rounded itself: adding the low one could then step over a neighbour.
    return np.where(np.abs(signed.astype(np.float64)) < 2.0**53, whole + low.astype(np.float64), whole)


def _double_word(values: npt.NDArray[np.float64]) -> Words:
    bits = values.view(np.uint64)
    return np.where(bits & _SIGN != 0, ~bits, bits | _SIGN)


def _fixed_parts(array: pa.Array) -> list[Part]:
    width, rows = array.type.byte_width, len(array)
    buffer = array.buffers()[1]
    if buffer is None or not rows:
        return [(np.zeros(rows, np.uint64), 8 * min(8, width - start)) for start in range(0, width, 8)]
    data = np.frombuffer(buffer, np.uint8, rows * width, array.offset * width).reshape(rows, width)
    parts: list[Part] = []
    for start in range(0, width, 8):
        part = data[:, start : start + 8]
        wide = np.zeros((rows, 8), np.uint8)
        wide[:, 8 - part.shape[1] :] = part
        parts.append((_cleared(wide.view(">u8").ravel().astype(np.uint64), array), 8 * part.shape[1]))
    return parts


def _text_buffers(
    array: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Length and first byte of each value (0 of a null), and all bytes."""
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        buffer = array.buffers()[1]
        data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
        lengths = np.full(len(array), width, np.int64)
        first = (np.arange(len(array), dtype=np.int64) + array.offset) * width
    else:
        _, offsets, values = array.buffers()
        ends = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
        data = np.frombuffer(values, np.uint8) if values is not None and values.size else np.zeros(0, np.uint8)
        lengths, first = np.diff(ends), ends[:-1]
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    return lengths, first, data


def _common_prefix(one: bytes, other: bytes) -> bytes:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return one[:length]
