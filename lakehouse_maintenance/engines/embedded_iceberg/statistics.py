"""Column statistics of a data file as its manifest entry holds them (Iceberg spec: Manifests; Java: MetricsConfig).

Readers skip whole files by these numbers, and Iceberg's deletes drop whole files by them, so each has to be right or
absent. Values come from the Parquet footer in their physical form; NaN counts, which no footer has, are counted while
batches are written: Iceberg's strict evaluation takes a missing count for "no NaN".
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_DEFAULT = "write.metadata.metrics.default"
_COLUMN = "write.metadata.metrics.column."
_MOST_COLUMNS = "write.metadata.metrics.max-inferred-column-defaults"
_FIELD_ID = b"PARQUET:field_id"
_FORMATS = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


@dataclass(frozen=True, slots=True)
class Mode:
    """How much is kept of a column. `length`: characters or bytes of a text or binary bound; None for all."""

    counts: bool = True
    bounds: bool = True
    length: int | None = 16


_NONE, _COUNTS, _FULL, _TRUNCATE = Mode(False, False), Mode(True, False), Mode(length=None), Mode()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One Parquet column, in the file's order. `path`: child indices from the root. `repeated`: inside list or map."""

    field_id: int
    kind: pa.DataType
    name: str
    path: tuple[int, ...]
    repeated: bool
    mode: Mode


class StatisticsPlan:
    """What is kept of each column, by the table's `write.metadata.metrics.*`; used for all files of one schema."""

    def __init__(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        self.leaves = [
            Leaf(fid, kind, name, path, repeated, _mode(name, number, properties))
            for number, (fid, kind, name, path, repeated) in enumerate(_walk(schema))
        ]
        self.floats = [
            leaf for leaf in self.leaves if pa.types.is_floating(leaf.kind) and leaf.mode.counts and not leaf.repeated
        ]

    def count_nans(self, batch: pa.RecordBatch, counts: Counter[int]) -> None:
        """Adds the batch's NaNs, by field id."""
        for leaf in self.floats:
            array = batch.column(leaf.path[0])
            for index in leaf.path[1:]:
                # flatten, not field: a value under a null struct is no value.
                array = array.flatten()[index]
            counts[leaf.field_id] += pc.sum(pc.is_nan(array)).as_py() or 0

    def of(self, footer: pq.FileMetaData, nans: Mapping[int, int]) -> dict[str, Any]:
        """The fields of a `data_file` record from `column_sizes` to `split_offsets`."""
        columns = [_Column(leaf) for leaf in self.leaves]
        offsets: list[int] = []
        for group in map(footer.row_group, range(footer.num_row_groups)):
            offsets.append(_start(group.column(0)))
            for position, column in enumerate(columns):
                column.add(group.column(position))
        counted = [column for column in columns if column.leaf.mode.counts]
        bounds = [(column.leaf.field_id, *column.bounds()) for column in counted]
        return {
            "column_sizes": _pairs((column.leaf.field_id, column.size) for column in columns),
            "value_counts": _pairs((column.leaf.field_id, column.values) for column in counted),
            "null_value_counts": _pairs((column.leaf.field_id, column.nulls) for column in counted),
            "nan_value_counts": _pairs((leaf.field_id, nans.get(leaf.field_id, 0)) for leaf in self.floats),
            "lower_bounds": _pairs((field_id, lower) for field_id, lower, _ in bounds),
            "upper_bounds": _pairs((field_id, upper) for field_id, _, upper in bounds),
            "split_offsets": sorted(offsets),
        }


@dataclass
class _Column:
    leaf: Leaf
    size: int = 0
    values: int = 0
    nulls: int | None = 0
    complete: bool = True
    lowest: list[Any] = field(default_factory=list)
    highest: list[Any] = field(default_factory=list)

    def add(self, chunk: pq.ColumnChunkMetaData) -> None:
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        found = chunk.statistics
        if found is None or not found.has_null_count:
            self.nulls, self.complete = None, False
            return
        if self.nulls is not None:
            self.nulls += found.null_count
        if found.has_min_max:
            self.lowest.append(_ordered(self.leaf.kind, found.min_raw))
            self.highest.append(_ordered(self.leaf.kind, found.max_raw))
        elif found.null_count < chunk.num_values and not pa.types.is_floating(self.leaf.kind):
            # Parquet leaves long values out of its statistics: those of other row groups say nothing about these.
            # Floats without a minimum are all NaN, which bounds leave out anyway.
            self.complete = False

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """Lower and upper bound, None where there is none that is sure to hold."""
        mode, kind = self.leaf.mode, self.leaf.kind
        if self.leaf.repeated or not mode.bounds or not self.complete or not self.lowest:
            return None, None
        lower, upper = min(self.lowest), max(self.highest)
        if pa.types.is_string(kind):
            return truncate_text(lower, mode.length), truncate_text_up(upper, mode.length)
        if pa.types.is_binary(kind):
            return lower[: mode.length], truncate_binary_up(upper, mode.length)
        return _single_value(kind, lower), _single_value(kind, upper)


def _walk(schema: pa.Schema) -> Iterator[tuple[int, pa.DataType, str, tuple[int, ...], bool]]:
    """Leaves in the order of a Parquet file's columns: id, type, Iceberg's dotted name, path, whether repeated."""

    def visit(
        one: pa.Field, name: str, path: tuple[int, ...], repeated: bool
    ) -> Iterator[tuple[int, pa.DataType, str, tuple[int, ...], bool]]:
        kind = one.type
        if pa.types.is_struct(kind):
            for index in range(kind.num_fields):
                child = kind.field(index)
                yield from visit(child, f"{name}.{child.name}", (*path, index), repeated)
        elif pa.types.is_list(kind):
            yield from visit(kind.value_field, f"{name}.element", path, True)
        elif pa.types.is_map(kind):
            yield from visit(kind.key_field, f"{name}.key", path, True)
            yield from visit(kind.item_field, f"{name}.value", path, True)
        else:
            yield int(one.metadata[_FIELD_ID]), kind, name, path, repeated

    for index, top in enumerate(schema):
        yield from visit(top, top.name, (index,), False)


def _mode(name: str, number: int, properties: Mapping[str, str]) -> Mode:
    """The column's own property, else the table's default, else `truncate(16)` for the first hundred columns."""
    own = _parse(properties.get(_COLUMN + name))
    default = _parse(properties.get(_DEFAULT))
    if own is not None or default is not None:
        return own or default or _TRUNCATE
    most = properties.get(_MOST_COLUMNS, "")
    return _TRUNCATE if number < (int(most) if most.isdigit() else 100) else _NONE


def _parse(text: str | None) -> Mode | None:
    """None where it is not given, or not a mode: Iceberg's writers ignore such a one too."""
    known = {"none": _NONE, "counts": _COUNTS, "full": _FULL}
    word = (text or "").strip().lower()
    match = re.fullmatch(r"truncate\((\d+)\)", word)
    if match is not None and int(match.group(1)) > 0:
        return Mode(length=int(match.group(1)))
    return known.get(word)


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(chunk.data_page_offset if not dictionary else min(dictionary, chunk.data_page_offset))


def _ordered(kind: pa.DataType, raw: Any) -> Any:
    """A physical value that compares as its type does."""
    return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(kind) and isinstance(raw, bytes) else raw


def _single_value(kind: pa.DataType, value: Any) -> bytes:
    """Binary single-value serialisation (spec, Appendix D)."""
    if pa.types.is_decimal(kind):
        magnitude = value if value >= 0 else ~value
        return int(value).to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, bytes):
        return value
    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pa.types.is_floating(kind):
        return struct.pack(_FORMATS["FLOAT" if pa.types.is_float32(kind) else "DOUBLE"], value)
    return struct.pack(_FORMATS["INT32" if kind.bit_width == 32 else "INT64"], value)


def truncate_text(value: bytes, length: int | None) -> bytes | None:
    """The first characters; None where the bytes are no UTF-8."""
    try:
        return value.decode()[:length].encode()
    except UnicodeDecodeError:
        return None


def truncate_text_up(value: bytes, length: int | None) -> bytes | None:
    """The least text of so many characters that is no smaller; None where there is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if length is None or len(text) <= length:
        return value
    for end in range(length, 0, -1):
        code = ord(text[end - 1]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000  # surrogates are no characters
        if code <= 0x10FFFF:
            return (text[: end - 1] + chr(code)).encode()
    return None


def truncate_binary_up(value: bytes, length: int | None) -> bytes | None:
    """The least value of so many bytes that is no smaller; None where there is none."""
    if length is None or len(value) <= length:
        return value
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _pairs(items: Iterator[tuple[int, Any]] | Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in items if value is not None]
