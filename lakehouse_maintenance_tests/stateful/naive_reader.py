"""A reader of small local Iceberg tables as the spec tells it, slow and short: nothing here comes from the product.

It applies every kind of delete, in partitioned tables too, and tells of each row where it lies and its lineage. Columns
are those of the files, by field id; flat ones only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyroaring import BitMap64

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

Partition = tuple[int, tuple[Any, ...]]
"""A partition spec's id, and the values of its fields."""


@dataclass(frozen=True)
class Row:
    """`values`: by field id. `row_id`, `last_updated`: None before version 3, and of files from before an upgrade."""

    values: dict[int, Any]
    path: str
    position: int
    partition: Partition
    row_id: int | None
    last_updated: int | None


@dataclass(frozen=True)
class Entry:
    """A live file as a manifest tells of it; `partition` as Avro has it."""

    content: int
    path: str
    partition: Partition
    sequence_number: int
    records: int
    first_row_id: int | None
    equality_ids: tuple[int, ...]
    referenced: str | None
    offset: int | None
    size: int | None

    @property
    def identity(self) -> tuple[str, int | None]:
        """Of deletion vectors, several lie in one file."""
        return self.path, self.offset


@dataclass
class Reading:
    """`files`: every file that the snapshot needs. `positions`: data file → what position deletes and vectors take."""

    rows: list[Row] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    positions: dict[str, set[int]] = field(default_factory=dict)

    @property
    def data(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.content == DATA]

    @property
    def position_files(self) -> set[str]:
        """Position delete files, vectors left out."""
        return {entry.path for entry in self.entries if entry.content == POSITION_DELETES and entry.offset is None}

    @property
    def has_equality_deletes(self) -> bool:
        return any(entry.content == EQUALITY_DELETES for entry in self.entries)


def files_of(metadata: Mapping[str, Any], snapshot_id: int) -> tuple[list[Entry], set[str]]:
    """The live files of a snapshot, and the paths of all that it needs, metadata included."""
    snapshot = next(one for one in metadata["snapshots"] if one["snapshot-id"] == snapshot_id)
    found: list[Entry] = []
    paths = {local(snapshot["manifest-list"])}
    for manifest in avro(snapshot["manifest-list"]):
        paths.add(local(manifest["manifest_path"]))
        found += _live(manifest)
    return found, paths | {local(entry.path) for entry in found}


def read(metadata: Mapping[str, Any], snapshot_id: int) -> Reading:
    """All rows of a snapshot."""
    entries, files = files_of(metadata, snapshot_id)
    unpartitioned = {one["spec-id"] for one in metadata["partition-specs"] if not one["fields"]}
    reading = Reading(entries=entries, files=files)
    deletes = [entry for entry in entries if entry.content != DATA]
    for data in reading.data:
        gone = _positions(data, deletes)
        if gone:
            reading.positions[data.path] = gone
        keys = [
            (delete.equality_ids, _keys(delete))
            for delete in deletes
            if delete.content == EQUALITY_DELETES
            and delete.sequence_number > data.sequence_number
            and (delete.partition[0] in unpartitioned or delete.partition == data.partition)
        ]
        for position, values in enumerate(_columns(data.path)):
            taken = any(tuple(values.get(i) for i in ids) in wanted for ids, wanted in keys)
            if position not in gone and not taken:
                reading.rows.append(_row(data, position, values))
    return reading


def local(path: str) -> str:
    return path.removeprefix("file://")


@lru_cache(maxsize=20_000)
def avro(path: str) -> list[dict[str, Any]]:
    """The records of a file; those that are read never change."""
    with Path(local(path)).open("rb") as stream:
        return [record for record in fastavro.reader(stream) if isinstance(record, dict)]


def _live(manifest: Mapping[str, Any]) -> Iterator[Entry]:
    next_id = manifest.get("first_row_id")
    for entry in avro(manifest["manifest_path"]):
        if entry["status"] == 2:
            continue
        file = entry["data_file"]
        number = entry.get("sequence_number")
        first = file.get("first_row_id")
        if first is None and next_id is not None and manifest.get("content", 0) == 0:
            first = next_id
            next_id += file["record_count"]
        yield Entry(
            content=file.get("content", 0),
            path=file["file_path"],
            partition=(manifest["partition_spec_id"], tuple(file["partition"].values())),
            sequence_number=manifest.get("sequence_number", 0) if number is None else number,
            records=file["record_count"],
            first_row_id=first,
            equality_ids=tuple(file.get("equality_ids") or ()),
            referenced=file.get("referenced_data_file"),
            offset=file.get("content_offset"),
            size=file.get("content_size_in_bytes"),
        )


def _positions(data: Entry, deletes: list[Entry]) -> set[int]:
    here = [
        one
        for one in deletes
        if one.content == POSITION_DELETES
        and one.sequence_number >= data.sequence_number
        and one.partition == data.partition
    ]
    vectors = [one for one in here if one.offset is not None and one.referenced == data.path]
    if vectors:
        assert len(vectors) == 1, "one deletion vector a data file"
        return set(vector(vectors[0]))
    files = [one for one in here if one.offset is None and one.referenced in (None, data.path)]
    rows = [row for one in files for row in _columns(one.path)]
    return {row[2147483545] for row in rows if row[2147483546] == data.path}


def vector(entry: Entry) -> BitMap64:
    """Spec of Puffin: `deletion-vector-v1`: length and checksum around a magic number and the bitmap."""
    assert entry.offset is not None
    assert entry.size is not None
    blob = Path(local(entry.path)).read_bytes()[entry.offset : entry.offset + entry.size]
    assert struct.unpack(">i", blob[:4])[0] == entry.size - 8
    assert blob[4:8] == b"\xd1\xd3\x39\x64"
    return BitMap64.deserialize(blob[8:-4])


def _keys(delete: Entry) -> set[tuple[Any, ...]]:
    return {tuple(row.get(i) for i in delete.equality_ids) for row in _columns(delete.path)}


@lru_cache(maxsize=20_000)
def _columns(path: str) -> list[dict[int, Any]]:
    table = pq.ParquetFile(local(path)).read()
    names = [int(one.metadata[b"PARQUET:field_id"]) for one in table.schema]
    columns = [column.to_pylist() for column in table.columns]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _row(data: Entry, position: int, values: dict[int, Any]) -> Row:
    row_id = last = None
    if data.first_row_id is not None:
        row_id = values.get(ROW_ID, data.first_row_id + position)
        last = values.get(LAST_UPDATED, data.sequence_number)
    plain = {name: value for name, value in values.items() if name not in (ROW_ID, LAST_UPDATED)}
    return Row(plain, data.path, position, data.partition, row_id, last)
