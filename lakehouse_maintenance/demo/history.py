"""Tables whose commits lie in the past, so that a lakehouse that was just made has snapshots, and files, of real ages.

PyIceberg stamps what it commits with the wall clock. Here every commit is given its time, and goes through the
catalog's public `commit_table` like any other. Times of one table must rise from commit to commit: readers refuse
metadata whose history runs backwards.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.types import DateType, IntegerType, StringType

from lakehouse_maintenance.engines.embedded_iceberg.output import DataFileWriter, Format
from lakehouse_maintenance.engines.embedded_iceberg.schema import table_schema
from lakehouse_maintenance.iceberg.fields import ADDED, DELETED, AvroType
from lakehouse_maintenance.iceberg.metadata import MAIN, Metadata, parse_metadata
from lakehouse_maintenance.iceberg.summary import replace_summary
from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

_PATH_ID, _POSITION_ID = 2147483546, 2147483545
"""Reserved field ids of position delete files (Iceberg spec: Reserved Field IDs)."""
_AVRO_TYPES: dict[type, AvroType] = {
    DateType: {"type": "int", "logicalType": "date"},
    IntegerType: "int",
    StringType: "string",
}
_POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)
_NOTHING_YET = {
    f"total-{what}": "0"
    for what in ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")
}

Partition = Mapping[str, Any]
"""Raw partition tuple: partition field → value as Avro holds it (a day is days since 1970)."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file to write."""

    rows: pa.Table
    partition: Partition = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewDeletes:
    """A position delete file to write: `positions` of rows by data file, all of one partition."""

    positions: Mapping[str, Sequence[int]]
    partition: Partition = field(default_factory=dict)


@dataclass
class TableHistory:
    """One table and its commits so far. `location`: its folder."""

    catalog: SqlCatalog
    identifier: str
    location: Path
    table: Table
    _ids: np.random.Generator
    _heads: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _summaries: dict[str, dict[str, str]] = field(default_factory=dict)
    _entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        catalog: SqlCatalog,
        identifier: str,
        location: Path,
        schema: Schema,
        *,
        created: datetime,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> TableHistory:
        """An empty table that was made at `created`."""
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, f"file://{location}", dict(properties or {}))
        metadata = metadata.model_copy(update={"last_updated_ms": _ms(created)})
        path = f"{metadata.location}/metadata/00000-{uuid.uuid4()}.metadata.json"
        ToOutputFile.table_metadata(metadata, load_file_io(location=path).new_output(path))
        table = catalog.register_table(identifier, path)
        return cls(catalog, identifier, location, table, np.random.default_rng(seed))

    def append(
        self,
        at: datetime,
        files: Sequence[NewFile],
        *,
        manifests: int = 1,
        branch: str = MAIN,
        tags: Sequence[str] = (),
        branches: Sequence[str] = (),
        evolve: Sequence[TableUpdate] = (),
    ) -> list[str]:
        """Commits an append at that time, its files spread over so many manifests; returns the paths of the files.

        `tags`, `branches`: new refs to this very snapshot. `evolve`: changes of schema or partition spec that come
        with the commit, under which the files are written already.
        """
        table = self._evolved(evolve)
        schema = table_schema(table.schema())
        records = [self._write_data(table, schema, at, file) for file in files]
        parts = [records[start::manifests] for start in range(manifests)]
        self._commit(at, table, Operation.APPEND, parts, branch, tags, branches, evolve)
        return [record["file_path"] for record in records]

    def overwrite(self, at: datetime, files: Sequence[NewFile]) -> None:
        """Commits at that time that the table holds these files and no others, as an INSERT OVERWRITE does."""
        schema = table_schema(self.table.schema())
        records = [self._write_data(self.table, schema, at, file) for file in files]
        removed = self._entries.pop(MAIN, [])
        operation = Operation.OVERWRITE if removed else Operation.APPEND
        self._commit(at, self.table, operation, [records], MAIN, (), (), (), removed)

    def delete_rows(self, at: datetime, deletes: Sequence[NewDeletes]) -> None:
        """Commits position deletes at that time, as a merge-on-read DELETE does."""
        records = [self._write_deletes(at, one) for one in deletes]
        self._commit(at, self.table, Operation.DELETE, [records], MAIN, (), (), ())

    def _evolved(self, evolve: Sequence[TableUpdate]) -> Table:
        table = self.table
        if not evolve:
            return table
        metadata = update_table_metadata(table.metadata, tuple(evolve))
        return type(table)(table.name(), metadata, table.metadata_location, table.io, self.catalog)

    def _write_data(self, table: Table, schema: pa.Schema, at: datetime, file: NewFile) -> dict[str, Any]:
        path = self._new_path(file.partition)
        form = Format.of(table.properties, buffer_bytes=64 << 20, dictionary=True)
        writer = DataFileWriter(table, schema, path, form)
        for batch in file.rows.cast(schema).to_batches():
            writer.write(batch)
        record = writer.finish()
        _age(path, at)
        return {**record, "partition": dict(file.partition)}

    def _write_deletes(self, at: datetime, deletes: NewDeletes) -> dict[str, Any]:
        path = self._new_path(deletes.partition, "-deletes")
        named = sorted(deletes.positions)
        pairs = [(data_file, position) for data_file in named for position in sorted(deletes.positions[data_file])]
        columns = [pa.array([data_file for data_file, _ in pairs]), pa.array([position for _, position in pairs])]
        rows = pa.Table.from_arrays(columns, schema=_POSITION_DELETES)
        local = Path(path.removeprefix("file://"))
        pq.write_table(rows, local, compression="zstd", store_schema=False)
        _age(path, at)
        none_of = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "key_metadata")
        optional = ("split_offsets", "equality_ids", "sort_order_id", "first_row_id", "referenced_data_file")
        vectors = ("content_offset", "content_size_in_bytes")
        return {
            **dict.fromkeys((*none_of, *optional, *vectors)),
            "content": 1,
            "file_path": path,
            "file_format": "PARQUET",
            "partition": dict(deletes.partition),
            "record_count": rows.num_rows,
            "file_size_in_bytes": local.stat().st_size,
            "lower_bounds": [{"key": _PATH_ID, "value": named[0].encode()}],
            "upper_bounds": [{"key": _PATH_ID, "value": named[-1].encode()}],
        }

    def _new_path(self, partition: Partition, suffix: str = "") -> str:
        folders = [f"{name}={_human(name, value)}" for name, value in partition.items()]
        folder = self.location.joinpath("data", *folders)
        folder.mkdir(parents=True, exist_ok=True)
        return f"file://{folder}/{uuid.UUID(bytes=self._ids.bytes(16), version=4)}{suffix}.parquet"

    def _commit(
        self,
        at: datetime,
        table: Table,
        operation: Operation,
        parts: Sequence[Sequence[dict[str, Any]]],
        branch: str,
        tags: Sequence[str],
        branches: Sequence[str],
        evolve: Sequence[TableUpdate],
        removed: Sequence[dict[str, Any]] = (),
    ) -> None:
        """`parts`: records of new files, one manifest each. `removed`: entries of all files there were, or none."""
        metadata = _ours(table)
        version = metadata.format_version
        snapshot_id = int(self._ids.integers(1 << 40, 1 << 62))
        number = metadata.last_sequence_number + 1 if version > 1 else None
        origin = branch if branch in self._heads else MAIN
        written = [[_added(record, snapshot_id, None) for record in part] for part in parts]
        gone = [{**entry, "status": DELETED, "snapshot_id": snapshot_id} for entry in removed]
        rows = [self._manifest(at, table, metadata, part, snapshot_id, number) for part in (*written, gone) if part]
        rows += [] if removed else self._rows.get(origin, [])
        manifest_list = f"{table.location()}/metadata/snap-{snapshot_id}-1-{uuid.uuid4()}.avro"
        parent = self._heads.get(origin)
        write_manifest_list(self._put(at), manifest_list, metadata, rows, snapshot_id, parent, number)
        added = [record for part in parts for record in part]
        no_more = [entry["data_file"] for entry in removed]
        summary = replace_summary(self._summaries.get(origin, _NOTHING_YET), added, no_more)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=number,
            timestamp_ms=_ms(at),
            manifest_list=manifest_list,
            schema_id=table.metadata.current_schema_id,
            summary=Summary(operation, **summary),
        )
        updates: list[TableUpdate] = [*evolve, AddSnapshotUpdate(snapshot=snapshot)]
        heads = list(dict.fromkeys((branch, *branches)))
        updates += [_ref(name, SnapshotRefType.BRANCH, snapshot_id) for name in heads]
        updates += [_ref(name, SnapshotRefType.TAG, snapshot_id) for name in tags]
        self.catalog.commit_table(self.table, (AssertTableUUID(uuid=uuid.UUID(metadata.uuid)),), tuple(updates))
        self.table = self.catalog.load_table(self.identifier)
        for name in heads:
            self._heads[name], self._rows[name], self._summaries[name] = snapshot_id, rows, summary
        # Of the branch alone: only a table without other branches is overwritten here.
        self._entries.setdefault(branch, []).extend(_added(record, snapshot_id, number) for record in added)

    def _manifest(
        self,
        at: datetime,
        table: Table,
        metadata: Metadata,
        entries: Sequence[dict[str, Any]],
        snapshot_id: int,
        number: int | None,
    ) -> dict[str, Any]:
        path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        spec_id, content = table.metadata.default_spec_id, entries[0]["data_file"]["content"]
        row = write_manifest(
            self._put(at), path, metadata, spec_id, content, _partition_type(table), entries, snapshot_id
        )
        return {**row, "sequence_number": number or 0, "min_sequence_number": number or 0}

    def _put(self, at: datetime) -> Callable[[str, bytes], None]:
        def put(path: str, data: bytes) -> None:
            local = Path(path.removeprefix("file://"))
            local.write_bytes(data)
            _age(path, at)

        return put


def _added(record: dict[str, Any], snapshot_id: int, number: int | None) -> dict[str, Any]:
    """`number`: None where the entry inherits it from its manifest's row, as new ones do."""
    numbers = {"sequence_number": number, "file_sequence_number": number}
    return {"status": ADDED, "snapshot_id": snapshot_id, **numbers, "data_file": record}


def _ours(table: Table) -> Metadata:
    raw = json.loads(table.metadata.model_dump_json(exclude_none=True))
    return parse_metadata(".".join(table.name()), table.metadata_location, raw)


def _ref(
    name: str, kind: Literal[SnapshotRefType.BRANCH, SnapshotRefType.TAG], snapshot_id: int
) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _partition_type(table: Table) -> AvroType:
    types = table.spec().partition_type(table.schema())
    fields = [
        {
            "name": one.name,
            "type": ["null", _AVRO_TYPES[type(one.field_type)]],
            "default": None,
            "field-id": one.field_id,
        }
        for one in types.fields
    ]
    return {"type": "record", "name": "r102", "fields": fields}


def _age(path: str, at: datetime) -> None:
    os.utime(path.removeprefix("file://"), (at.timestamp(), at.timestamp()))


def _human(name: str, value: Any) -> str:
    return str(date(1970, 1, 1) + timedelta(days=value)) if name.endswith("_day") else str(value)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
