"""Entries of manifests copied as they are encoded, with the values filled in that they inherited.

A rewritten manifest changes nothing of an entry but what stands before its data file: status, snapshot id and sequence
numbers. Decoding and encoding the rest, most of it statistics, would cost ten times as much, and could only lose
something. So bytes are copied field by field, from the writer's schema into ours; fields that are side by side in both
go in one piece. Only where the same value is encoded otherwise in the two schemas, it is decoded and encoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakehouse_maintenance.iceberg.avro import (
    Body,
    definitions_of,
    encoded,
    encoded_long,
    field_type,
    spelled_out,
)
from lakehouse_maintenance.iceberg.decoding import Decoder, Read, passer
from lakehouse_maintenance.iceberg.fields import (
    ADDED,
    DATA_FILE_ID,
    DELETED,
    EXISTING,
    NAMES,
    PARTITION_ID,
    AvroType,
    entry_schema,
)
from lakehouse_maintenance.iceberg.manifests import ManifestFile, require_all
from lakehouse_maintenance.model.errors import UnsupportedError

_STATUS, _SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE = 0, 1, 3, 4
_CONTENT, _RECORDS, _FIRST_ROW_ID = 134, 103, 142
_DEPRECATED = frozenset({105, 106, 107, 111})
"""block_size_in_bytes, file_ordinal, sort_columns, distinct_counts: not written any more, and read by nothing."""
_NULL, _PRESENT = b"\x00", b"\x02"
"""Branches 0 and 1 of a union, of which ours have null first."""

_Piece = bytes | tuple[int, int] | Callable[[bytes, Sequence[int]], bytes]
"""Bytes to write; or those between two positions in a data file; or what makes them from all its positions."""


Numbers = tuple[int, int, int | None]


@dataclass(slots=True)
class Spliced:
    """A live entry as EXISTING: `before` and `after` its partition tuple, and that tuple as its writer encoded it.

    `numbers`: snapshot id, data and file sequence number.
    """

    before: bytes
    partition: bytes
    after: bytes
    records: int
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Layout:
    """How entries of one writer's schema are read, and written for a format version.

    `partition`: the writer's type of partition tuples. `entry`: its fields before the data file. `passers`: over each
    field of the data file. `before`, `after`: what is written around the partition tuple; `after` goes up to the first
    row id, and `tail` on from there.
    """

    partition: AvroType
    read_partition: Read
    entry: tuple[tuple[int, Read], ...]
    passers: tuple[Callable[[bytes, int], int], ...]
    partition_at: int
    records: tuple[int, Read]
    first_row_id: tuple[int, Read] | None
    before: tuple[_Piece, ...]
    after: tuple[_Piece, ...]
    tail: tuple[_Piece, ...]
    version: int

    def live(self, manifest: ManifestFile, body: Body) -> Iterator[Spliced]:
        """Live entries in their order. Raises ValueError, IndexError, … where the bytes are damaged.

        Inherited values as in the spec (Sequence Number Inheritance, First Row ID Inheritance).
        """
        data = body.data
        heads: dict[Numbers, bytes] = {}
        next_row_id = None if manifest.deletes else manifest.first_row_id
        position, read_records = self.records
        at = live = 0
        values: dict[int, Any] = dict.fromkeys((_SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE))
        for _ in range(body.count):
            for field_id, read in self.entry:
                values[field_id], at = read(data, at)
            marks = [at]
            for pass_over in self.passers:
                at = pass_over(data, at)
                marks.append(at)
            if values[_STATUS] == DELETED:
                continue
            live += 1
            records: int = read_records(data, marks[position])[0]
            numbers = _numbers(values, manifest)
            head = heads.get(numbers)
            if head is None:
                head = heads[numbers] = _head(numbers, self.version)
            after = _join(self.after, data, marks)
            if self.version > 2:
                row_id = self._own_row_id(data, marks)
                if row_id is None and next_row_id is not None:
                    row_id, next_row_id = next_row_id, next_row_id + records
                after += (_NULL if row_id is None else _PRESENT + encoded_long(row_id)) + _join(self.tail, data, marks)
            yield Spliced(
                head + _join(self.before, data, marks),
                data[marks[self.partition_at] : marks[self.partition_at + 1]],
                after,
                records,
                numbers,
            )
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many for {body.count} records")
        require_all(manifest, live)

    def _own_row_id(self, data: bytes, marks: Sequence[int]) -> int | None:
        if self.first_row_id is None:
            return None
        where, read = self.first_row_id
        found: int | None = read(data, marks[where])[0]
        return found


def _numbers(values: dict[int, Any], manifest: ManifestFile) -> Numbers:
    snapshot_id, sequence, file_sequence = values[_SNAPSHOT], values[_SEQUENCE], values[_FILE_SEQUENCE]
    if snapshot_id is None:
        snapshot_id = manifest.added_snapshot_id
    if values[_STATUS] == ADDED or manifest.sequence_number == 0:
        sequence = manifest.sequence_number if sequence is None else sequence
        file_sequence = manifest.sequence_number if file_sequence is None else file_sequence
    if sequence is None:
        raise ValueError("an existing entry has no sequence number")
    return snapshot_id, sequence, file_sequence


def _head(numbers: Numbers, version: int) -> bytes:
    snapshot_id, sequence, file_sequence = numbers
    status = encoded_long(EXISTING)
    if version == 1:
        return status + encoded_long(snapshot_id)
    last = _NULL if file_sequence is None else _PRESENT + encoded_long(file_sequence)
    return status + _PRESENT + encoded_long(snapshot_id) + _PRESENT + encoded_long(sequence) + last


def _join(pieces: Sequence[_Piece], data: bytes, marks: Sequence[int]) -> bytes:
    parts: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, tuple):
            parts.append(data[marks[piece[0]] : marks[piece[1]]])
        elif isinstance(piece, bytes):
            parts.append(piece)
        else:
            parts.append(piece(data, marks))
    return b"".join(parts)


@lru_cache(maxsize=64)
def layout(schema: bytes, version: int) -> Layout:
    """For entries under a writer's schema.

    Raises UnsupportedError where it has fields that ours lacks, ValueError where it lacks what ours needs.
    """
    declared = json.loads(schema)
    definitions = definitions_of(declared)
    decoder = Decoder(NAMES, frozenset({PARTITION_ID}))
    fields = declared["fields"]
    if fields[-1].get("field-id") != DATA_FILE_ID:
        raise ValueError("its entries do not end with their data file")
    # Readers are made in the schema's order: a type may be named once and referred to further on.
    entry = tuple((field["field-id"], decoder.reader(field["type"])) for field in fields[:-1])
    unknown = {field_id for field_id, _ in entry} - {_STATUS, _SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE}
    data_file: AvroType = field_type(declared, DATA_FILE_ID)
    own = {field.get("field-id"): index for index, field in enumerate(data_file["fields"])}
    readers = [decoder.reader(field["type"]) for field in data_file["fields"]]
    types = [spelled_out(field["type"], definitions) for field in data_file["fields"]]
    partition = types[own[PARTITION_ID]]
    target = field_type(entry_schema(version, partition), DATA_FILE_ID)["fields"]
    unknown |= set(own) - {field["field-id"] for field in target} - _DEPRECATED
    if unknown:
        raise UnsupportedError(
            f"a manifest has fields that format version {version} does not know: {sorted(map(str, unknown))}",
            hint="the engine that wrote it keeps them: use its own rewrite_manifests",
        )
    pieces = {
        field["field-id"]: _piece(field, types, readers, own)
        for field in target
        if field["field-id"] not in (PARTITION_ID, _FIRST_ROW_ID)
    }
    order = [field["field-id"] for field in target]
    cut, end = order.index(PARTITION_ID), order.index(_FIRST_ROW_ID) if _FIRST_ROW_ID in order else len(order)
    row_id = own.get(_FIRST_ROW_ID)
    return Layout(
        partition=partition,
        read_partition=Decoder({}, frozenset()).reader(partition),
        entry=entry,
        passers=tuple(passer(kind, read) for kind, read in zip(types, readers, strict=True)),
        partition_at=own[PARTITION_ID],
        records=(own[_RECORDS], readers[own[_RECORDS]]),
        first_row_id=None if row_id is None else (row_id, readers[row_id]),
        before=_merged(pieces[field_id] for field_id in order[:cut]),
        after=_merged(pieces[field_id] for field_id in order[cut + 1 : end]),
        tail=_merged(pieces[field_id] for field_id in order[end + 1 :]),
        version=version,
    )


def _piece(target: dict[str, Any], types: Sequence[AvroType], readers: Sequence[Read], own: dict[Any, int]) -> _Piece:
    """How a field of our schema comes from the writer's."""
    wanted, index = target["type"], own.get(target["field-id"])
    if index is None:
        if target["field-id"] == _CONTENT:
            return encoded_long(0)  # a manifest of version 1 holds data
        if not isinstance(wanted, list):
            raise ValueError(f"it lacks {target['name']}")
        return _NULL
    have = types[index]
    if _shape(have) == _shape(wanted):
        return (index, index + 1)
    read = readers[index]
    return lambda data, marks: encoded(read(data, marks[index])[0], wanted)


def _merged(pieces: Iterable[_Piece]) -> tuple[_Piece, ...]:
    """Neighbours as one."""
    merged: list[_Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, tuple) and isinstance(last, tuple) and last[1] == piece[0]:
            merged[-1] = (last[0], piece[1])
        elif isinstance(piece, bytes) and isinstance(last, bytes):
            merged[-1] = last + piece
        else:
            merged.append(piece)
    return tuple(merged)


def _shape(schema: AvroType) -> Any:
    """Types of equal shape encode equal values to equal bytes, whatever they are named."""
    if isinstance(schema, list):
        return ("union", *map(_shape, schema))
    if isinstance(schema, str):
        return {"int": "number", "long": "number", "string": "bytes"}.get(schema, schema)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _shape(kind)
    if kind == "record":
        return ("record", *(_shape(field["type"]) for field in schema["fields"]))
    if kind == "array":
        return ("array", _shape(schema["items"]))
    if kind == "map":
        return ("map", _shape(schema["values"]))
    if kind == "fixed":
        return ("fixed", schema["size"])
    return _shape(kind)


def same_encoding(one: AvroType, other: AvroType) -> bool:
    """Whether the two encode equal values to equal bytes."""
    return bool(_shape(one) == _shape(other))
