"""What rows are sorted by: a sort order or z-order as levels of unsigned words that compare as the order says.

A key is a list of levels, the most significant first. A level is an array of words, or texts: after the words that
hold what has a fixed width, and the first bytes of a text, the rest of that text decides.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse_maintenance.engines.embedded_iceberg import zvalues
from lakehouse_maintenance.engines.embedded_iceberg.schema import field_id
from lakehouse_maintenance.engines.embedded_iceberg.zvalues import Part, Words
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.sort_orders import SortField, SortOrder

_CHUNK_ROWS = 1 << 14
"""So many rows at a time: what lies between a value and its words then stays in the processor's cache."""
_MICROSECONDS = {"D": 86_400_000_000, "h": 3_600_000_000}


@dataclass(frozen=True, slots=True)
class Texts:
    """A level of binary values, whose nulls a level before has set apart already."""

    values: pa.Array
    descending: bool

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, length: int) -> Texts:
        """As of arrays."""
        return Texts(self.values.slice(start, length), self.descending)

    def ranks(self, rows: npt.NDArray[np.intp]) -> Words:
        """Of these rows: numbers that compare as their texts do."""
        found = self.values.take(pa.array(rows)).fill_null(b"").dictionary_encode()
        distinct = found.dictionary
        order = pc.array_sort_indices(distinct).to_numpy(zero_copy_only=False)
        rank = np.empty(len(order), np.uint64)
        rank[order] = np.arange(len(order), dtype=np.uint64)
        if self.descending:
            rank = np.uint64(max(len(order) - 1, 0)) - rank
        ranks: Words = rank[found.indices.to_numpy(zero_copy_only=False)]
        return ranks


Level = Words | Texts
Key = tuple[Any, ...]


@functools.total_ordering
class _Reversed:
    """A text that compares the other way round."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text

    def __hash__(self) -> int:
        return hash(self.text)


def key_of(levels: Sequence[Level], row: int) -> Key:
    """The key of one row, as a tuple that compares in Python."""
    found: list[Any] = []
    for level in levels:
        if isinstance(level, Texts):
            text = level.values[row].as_py() or b""
            found.append(_Reversed(text) if level.descending else text)
        else:
            found.append(int(level[row]))
    return tuple(found)


def joined(parts: Sequence[Sequence[Level]]) -> list[Level]:
    """The levels of several batches as those of their rows one after the other."""
    levels: list[Level] = []
    for same in zip(*parts, strict=True):
        first = same[0]
        if isinstance(first, Texts):
            levels.append(Texts(pa.concat_arrays([one.values for one in same]), first.descending))
        else:
            levels.append(np.concatenate(same))
    return levels


def argsort(levels: Sequence[Level]) -> npt.NDArray[np.intp]:
    """The rows in order. Each level is looked at only where those before leave rows equal."""
    first = levels[0]
    words = first.ranks(np.arange(len(first), dtype=np.intp)) if isinstance(first, Texts) else first
    order = np.argsort(words)
    rows = len(order)
    if len(levels) == 1 or rows < 2:
        return order
    found = words[order]
    same = found[1:] == found[:-1]
    for level in levels[1:]:
        tied = np.zeros(rows, dtype=bool)
        tied[1:] |= same
        tied[:-1] |= same
        places = np.flatnonzero(tied)
        if not len(places):
            break
        group = np.cumsum(~np.concatenate(([True], same)))[places]
        members = order[places]
        values = level.ranks(members) if isinstance(level, Texts) else level[members]
        within = np.lexsort((values, group))
        order[places] = members[within]
        values = values[within]
        # Places are neighbours wherever `same` holds between them, and only there it is looked at.
        differs = np.zeros(rows, dtype=bool)
        differs[places[1:]] = values[1:] != values[:-1]
        same &= ~differs[1:]
    return order


class SortKeys:
    """Keys of a table's rows. Of a z-order, `fit` has to see some rows first. Safe between threads after that."""

    def __init__(self, order: SortOrder, schema: Schema, arrow: pa.Schema) -> None:
        """`schema`: the table's, `arrow`: of the batches, with its field ids. Raises InputError for a name that the
        schema lacks: it changed since the order was checked."""
        self._zorder = order.zorder
        self._terms = [_Term.of(field, schema, arrow) for field in order.fields]
        self._spans: list[zvalues.Span] | None = None

    @property
    def needs_fit(self) -> bool:
        """Whether `levels` cannot be asked for yet."""
        return self._zorder and self._spans is None

    def fit(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Learns where the columns' values lie. Any rows do; the more they are like all, the better files are laid
        out. Whatever they are, the order is one and the same for all rows from then on."""
        if not self.needs_fit:
            return
        spans = []
        for term in self._terms:
            arrays = [zvalues.plain_storage(term.column(batch)) for batch in batches]
            spans.append(zvalues.Span.of(pa.concat_arrays([_thinned(array, len(arrays)) for array in arrays])))
        self._spans = spans

    def levels(self, batch: pa.RecordBatch) -> list[Level]:
        """Of the batch's rows."""
        if batch.num_rows <= _CHUNK_ROWS:
            return self._levels(batch)
        starts = range(0, batch.num_rows, _CHUNK_ROWS)
        return joined([self._levels(batch.slice(start, _CHUNK_ROWS)) for start in starts])

    def _levels(self, batch: pa.RecordBatch) -> list[Level]:
        if self._zorder:
            assert self._spans is not None, "fit comes first"
            words = [span.place(term.column(batch)) for span, term in zip(self._spans, self._terms, strict=True)]
            return list(zvalues.interleave(words))
        levels: list[Level] = []
        parts: list[Part] = []
        for term in self._terms:
            found, texts = term.parts(batch)
            parts += found
            if texts is not None:
                levels += [*zvalues.pack(parts), texts]
                parts = []
        return [*levels, *zvalues.pack(parts)]


def _thinned(array: pa.Array, among: int) -> pa.Array:
    most = max(1024, (1 << 17) // among)
    if len(array) <= most:
        return array
    return array.take(pa.array(np.linspace(0, len(array) - 1, most).astype(np.int64)))


@dataclass(frozen=True, slots=True)
class _Term:
    field: SortField
    path: tuple[int, ...]
    nullable: bool
    source: Any

    @classmethod
    def of(cls, field: SortField, schema: Schema, arrow: pa.Schema) -> _Term:
        try:
            found = schema.find_field(field.name)
        except ValueError as error:
            raise InputError(
                f"the table has no column {field.name}", field="sort_order", hint="make the plan anew"
            ) from error
        path, nullable = _path(found.field_id, list(arrow))
        return cls(field, path, nullable, found.field_type)

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """The column's values; null where a struct around it is."""
        array = batch.column(self.path[0])
        for index in self.path[1:]:
            array = array.flatten()[index]
        return array

    def parts(self, batch: pa.RecordBatch) -> tuple[list[Part], Texts | None]:
        array = zvalues.plain_storage(transformed(self.column(batch), self.field, self.source))
        texts: Texts | None = None
        if zvalues.is_text(array.type):
            parts: list[Part] = [(zvalues.text_word(array), 64)]
            texts = Texts(array.cast(pa.binary()), self.field.descending)
        else:
            parts = zvalues.ordered_parts(array)
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        if self.field.descending:
            parts = [(np.uint64((1 << bits) - 1) - values, bits) for values, bits in parts]
            if nulls is not None:
                parts = [(np.where(nulls, np.uint64(0), values), bits) for values, bits in parts]
        if self.nullable:
            null, value = (0, 1) if self.field.nulls_first else (1, 0)
            flag = np.full(len(array), value, np.uint64)
            if nulls is not None:
                flag[nulls] = null
            parts = [(flag, 1), *parts]
        return parts, texts


def _path(wanted: int, fields: Sequence[pa.Field]) -> tuple[tuple[int, ...], bool]:
    """Child indices from the root to the field with this id, and whether null can be met on the way."""
    for index, field in enumerate(fields):
        if field_id(field) == wanted:
            return (index,), field.nullable
        if pa.types.is_struct(field.type):
            children = [field.type.field(i) for i in range(field.type.num_fields)]
            path, nullable = _path(wanted, children)
            if path:
                return (index, *path), nullable or field.nullable
    return (), False


def transformed(array: pa.Array, field: SortField, source: Any) -> pa.Array:
    """Values of the order's transform, or others that compare alike (Iceberg spec: Partition Transforms).

    `source`: PyIceberg's type of the column.
    """
    if field.transform == "identity":
        return array
    if field.transform == "bucket":
        return _bucket(array, field.width or 1, source)
    if field.transform == "truncate":
        return _truncated(array, field.width or 1)
    return _calendar(array, field.transform)


def _integers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Raw values of integers, dates and times; 0 for nulls."""
    plain = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    values: npt.NDArray[np.int64] = plain.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _with_nulls(values: npt.NDArray[np.int64], array: pa.Array) -> pa.Array:
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, pa.int64(), mask=mask)


def _calendar(array: pa.Array, transform: str) -> pa.Array:
    values = _integers(array)
    if pa.types.is_date(array.type):
        days = values
        micros = values
    else:
        micros = values // 1000 if array.type.unit == "ns" else values
        days = micros // _MICROSECONDS["D"]
    if transform == "day":
        return _with_nulls(days, array)
    if transform == "hour":
        return _with_nulls(micros // _MICROSECONDS["h"], array)
    unit = "datetime64[Y]" if transform == "year" else "datetime64[M]"
    return _with_nulls(days.astype("datetime64[D]").astype(unit).astype(np.int64), array)


def _truncated(array: pa.Array, width: int) -> pa.Array:
    """Texts are cut. Of a number, its whole multiple of the width: that compares as the truncated number does."""
    if pa.types.is_string(array.type):
        return pc.utf8_slice_codeunits(array, 0, width)
    if pa.types.is_binary(array.type):
        return pc.binary_slice(array, 0, width)
    if pa.types.is_decimal(array.type):
        scale = array.type.scale
        distinct = array.dictionary_encode()
        multiples = [int(value.scaleb(scale)) // width for value in distinct.dictionary.to_pylist()]
        return pa.array(multiples, pa.decimal128(38, 0)).take(distinct.indices)
    return _with_nulls(_integers(array) // width, array)


def _bucket(array: pa.Array, number: int, source: Any) -> pa.Array:
    if not isinstance(array.type, pa.BaseExtensionType) and (
        pa.types.is_integer(array.type) or pa.types.is_temporal(array.type)
    ):
        values = _integers(array)
        if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
            values = values // 1000
        hashed = _murmur3(values)
        return _with_nulls((hashed & np.uint32(0x7FFFFFFF)).astype(np.int64) % number, array)
    from pyiceberg.transforms import BucketTransform

    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    bucket = BucketTransform(number).transform(source)
    distinct = plain.dictionary_encode()
    buckets = [bucket(value) for value in distinct.dictionary.to_pylist()]
    return pa.array(buckets, pa.int32()).take(distinct.indices)


def _murmur3(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Murmur3, 32 bits, seed 0, of each value's eight bytes (Iceberg spec, Appendix B: hash of a long)."""
    raw = values.view(np.uint64)
    hashed = np.zeros(len(raw), np.uint32)
    for block in ((raw & np.uint64(0xFFFFFFFF)).astype(np.uint32), (raw >> np.uint64(32)).astype(np.uint32)):
        mixed = _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashed = _rotated(hashed ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(8)
    hashed ^= hashed >> np.uint32(16)
    hashed *= np.uint32(0x85EBCA6B)
    hashed ^= hashed >> np.uint32(13)
    hashed *= np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> np.uint32(16))


def _rotated(values: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))
