"""Commits that PyIceberg cannot make: any data and delete files in and out, on any branch or on none, of version 3 too.

What is written is found with the reader of `naive_reader.py`; manifests are written by the product's own functions,
whose result other tests give to other readers.
"""

from __future__ import annotations

import json
import secrets
import struct
import time
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import snapshots
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate, TableUpdate
from pyroaring import BitMap64

from lakehouse_maintenance.iceberg.fields import ADDED, DELETED, EXISTING
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.stateful.naive_reader import Partition

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Identity = tuple[str, int | None]
Values = Mapping[int, Any]
"""Field id → value; a missing one is null."""

_AVRO = {"string": "string", "int": "int", "long": "long", "double": "double"}
_ARROW = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64()}
_PATH = pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"})
_POS = pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"})


@dataclass(frozen=True)
class NewFile:
    """One file to add: what a manifest says of it, and its partition."""

    partition: Partition
    record: dict[str, Any]


class RowWriter:
    """Writes files for one table and commits them. Every method takes the table as it was last loaded."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self.catalog = catalog
        self.name = name

    def data(self, table: Table, rows: Sequence[Values]) -> list[NewFile]:
        """The rows in the current schema, one file for each partition of the current spec."""
        spec, schema = table.spec(), table.schema()
        groups: dict[tuple[Any, ...], list[Values]] = {}
        for row in rows:
            values = []
            for one in spec.fields:
                source = schema.find_field(one.source_id)
                values.append(one.transform.transform(source.field_type)(row.get(one.source_id)))
            groups.setdefault(tuple(values), []).append(row)
        return [self.file(table, (spec.spec_id, values), found) for values, found in groups.items()]

    def file(self, table: Table, partition: Partition, rows: Sequence[Values], path: str | None = None) -> NewFile:
        """One data file in the current schema."""
        content = _arrow(table, rows, [one.field_id for one in table.schema().fields])
        return NewFile(partition, _write(table, "rows", content, path) | {"content": 0})

    def positions(self, table: Table, partition: Partition, found: Mapping[str, Collection[int]]) -> NewFile:
        """A file of position deletes for data files of this partition."""
        pairs = sorted((path, position) for path, positions in found.items() for position in positions)
        columns = [[path for path, _ in pairs], [position for _, position in pairs]]
        record = _write(table, "positions", pa.table(columns, schema=pa.schema([_PATH, _POS])))
        bounds = {
            "lower_bounds": [{"key": 2147483546, "value": pairs[0][0].encode()}],
            "upper_bounds": [{"key": 2147483546, "value": pairs[-1][0].encode()}],
        }
        return NewFile(partition, record | bounds | {"content": 1})

    def vectors(self, table: Table, found: Mapping[str, tuple[Partition, Collection[int]]]) -> list[NewFile]:
        """One Puffin file with the deletion vector of each data file."""
        path = f"{table.location()}/data/{uuid.uuid4()}.puffin"
        content = b"PFA1"
        records: list[tuple[Partition, dict[str, Any]]] = []
        blobs: list[dict[str, Any]] = []
        for target, (partition, positions) in found.items():
            body = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
            blob = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
            record = {
                "content": 1,
                "file_path": path,
                "file_format": "PUFFIN",
                "record_count": len(positions),
                "referenced_data_file": target,
                "content_offset": len(content),
                "content_size_in_bytes": len(blob),
            }
            records.append((partition, record))
            blobs.append(
                {
                    "type": "deletion-vector-v1",
                    "fields": [],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": len(content),
                    "length": len(blob),
                    "properties": {"referenced-data-file": target, "cardinality": str(len(positions))},
                }
            )
            content += blob
        footer = json.dumps({"blobs": blobs}).encode()
        content += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
        _put(table, path, content)
        return [NewFile(partition, record | {"file_size_in_bytes": len(content)}) for partition, record in records]

    def keys(self, table: Table, partition: Partition, columns: Sequence[int], rows: Sequence[Values]) -> NewFile:
        """A file of equality deletes over these columns."""
        record = _write(table, "keys", _arrow(table, rows, columns))
        return NewFile(partition, record | {"content": 2, "equality_ids": list(columns)})

    def commit(
        self,
        table: Table,
        added: Sequence[NewFile],
        removed: Collection[Identity] = (),
        *,
        branch: str = "main",
        is_staged: bool = False,
        operation: Operation = Operation.OVERWRITE,
    ) -> int:
        """One snapshot on the branch's head; its id. `is_staged`: no branch is moved to it."""
        storage = Storage.from_properties(table.io.properties)
        metadata = read_metadata(storage, self.name, table.metadata_location)
        reader, head = ManifestReader(storage, self.name), metadata.head(branch)
        snapshot_id = secrets.randbits(62)

        def put(path: str, data: bytes) -> None:
            _put(table, path, data)

        def manifest(spec: int, content: int, partition: Any, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
            path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
            return write_manifest(put, path, metadata, spec, content, partition, entries, snapshot_id)

        rows: list[dict[str, Any]] = []
        groups: dict[tuple[int, int], list[NewFile]] = {}
        for new in added:
            groups.setdefault((new.partition[0], min(new.record["content"], 1)), []).append(new)
        for (spec, content), files in groups.items():
            kind = _partition_type(table, spec)
            rows.append(manifest(spec, content, kind, [_added(one, kind, snapshot_id) for one in files]))
        left = set(removed)
        for old in reader.manifests(head) if head is not None else ():
            entries = reader.entries(old)
            live = [entry for entry in entries.records if entry["status"] != DELETED]
            mine = {_identity(entry) for entry in live} & left
            if not mine:
                rows.append(old.raw)
                continue
            left -= mine
            for entry in live:
                is_gone = _identity(entry) in mine
                entry["status"] = DELETED if is_gone else EXISTING
                if is_gone:
                    entry["snapshot_id"] = snapshot_id
            rows.append(manifest(old.spec_id, int(old.deletes), entries.partition, live))
        assert not left, f"not in the table: {left}"

        sequence = metadata.last_sequence_number + 1
        parent = None if head is None else head.snapshot_id
        path = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
        numbered = write_manifest_list(put, path, metadata, rows, snapshot_id, parent, sequence)
        is_v3 = metadata.format_version > 2
        snapshot = snapshots.Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=sequence,
            timestamp_ms=max(int(time.time() * 1000), int(metadata.raw.get("last-updated-ms") or 0)),
            manifest_list=path,
            schema_id=metadata.raw["current-schema-id"],
            summary=Summary(operation),
            **({"first_row_id": metadata.next_row_id, "added_rows": numbered} if is_v3 else {}),
        )
        updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=snapshot)]
        if not is_staged:
            moved = {"ref-name": branch, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
            updates.append(SetSnapshotRefUpdate.model_validate(moved))
        self.catalog.commit_table(table, (AssertRefSnapshotId(ref=branch, snapshot_id=parent),), tuple(updates))
        return snapshot_id


def _identity(entry: Mapping[str, Any]) -> Identity:
    return entry["data_file"]["file_path"], entry["data_file"].get("content_offset")


def _added(new: NewFile, kind: Mapping[str, Any], snapshot_id: int) -> dict[str, Any]:
    names = [one["name"] for one in kind["fields"]]
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": {**new.record, "partition": dict(zip(names, new.partition[1], strict=True))},
    }


def _partition_type(table: Table, spec_id: int) -> dict[str, Any]:
    spec = table.specs()[spec_id]
    kinds = spec.partition_type(table.schema()).fields
    fields = [
        {"name": one.name, "type": ["null", _AVRO[str(one.field_type)]], "default": None, "field-id": one.field_id}
        for one in kinds
    ]
    return {"type": "record", "name": "r102", "fields": fields}


def _arrow(table: Table, rows: Sequence[Values], columns: Sequence[int]) -> pa.Table:
    schema = pa.schema(
        [
            pa.field(one.name, _ARROW[str(one.field_type)], True, {b"PARQUET:field_id": str(one.field_id).encode()})
            for one in map(table.schema().find_field, columns)
        ]
    )
    return pa.table(
        [pa.array([row.get(i) for row in rows], schema.field(n).type) for n, i in enumerate(columns)], schema
    )


def _write(table: Table, kind: str, rows: pa.Table, path: str | None = None) -> dict[str, Any]:
    path = path or f"{table.location()}/data/{kind}-{uuid.uuid4()}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    data = sink.getvalue().to_pybytes()
    _put(table, path, data)
    size = len(data)
    return {"file_path": path, "file_format": "PARQUET", "record_count": rows.num_rows, "file_size_in_bytes": size}


def _put(table: Table, path: str, data: bytes) -> None:
    with table.io.new_output(path).create() as out:
        out.write(data)
