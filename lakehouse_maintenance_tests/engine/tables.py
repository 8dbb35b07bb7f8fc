"""Tables that PyIceberg writes, a row delta that it cannot write, and a hook right before our commits."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import snapshots
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.iceberg.fields import ADDED
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot, read_metadata
from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.float64())])

_PATH = pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"})
_POS = pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"})


def lakehouse(folder: Path, properties: Mapping[str, str], **config: Any) -> Lakehouse:
    """A lakehouse on one catalog `main`, with its state in the folder."""
    settings = {"catalogs": {"main": dict(properties)}, "state": {"url": str(folder / "state")}, **config}
    loaded = config_from_mapping(settings, base=folder)
    return Lakehouse(loaded, open_state(loaded.state.url))


def many_small_files(
    catalog: SqlCatalog, name: str = "db.t", *, commits: int = 6, partitioned: bool = True, version: int = 2
) -> Table:
    """A table of 10 rows a commit; ids count up from 0."""
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    table = catalog.create_table(name, SCHEMA, properties={"format-version": str(version)})
    if partitioned:
        with table.update_spec() as update:
            update.add_identity("p")
    for number in range(commits):
        append(catalog, name, number * 10, 10)
    return catalog.load_table(name)


def append(catalog: SqlCatalog, name: str, start: int, count: int, branch: str = "main") -> None:
    """Rows start … start+count-1 in one commit."""
    ids = list(range(start, start + count))
    rows = pa.table([ids, ["a" if i % 2 else "b" for i in ids], [i / 2 for i in ids]], schema=SCHEMA)
    catalog.load_table(name).append(rows, branch=branch)


def ids(catalog: SqlCatalog, name: str = "db.t", **scan: Any) -> list[int]:
    """Ids that PyIceberg reads, sorted."""
    return sorted(catalog.load_table(name).scan(**scan).to_arrow()["id"].to_pylist())


def data_paths(catalog: SqlCatalog, name: str = "db.t") -> list[str]:
    """Live data files."""
    return sorted(task.file.file_path for task in catalog.load_table(name).scan().plan_files())


def delete_rows(
    catalog: SqlCatalog, name: str, positions: Mapping[str, Sequence[int]], *, per_file: bool = True
) -> list[str]:
    """Commits position deletes as a merge-on-read engine does; returns the delete files.

    `per_file`: one delete file a data file, whose bounds name it; else one for each partition.
    """
    places = _places(catalog, name)
    groups: dict[Any, list[str]] = {}
    for path in positions:
        groups.setdefault(path if per_file else (places[path].spec, str(places[path].values)), []).append(path)
    table = catalog.load_table(name)
    records = [
        (places[paths[0]], _position_deletes(table, {path: positions[path] for path in paths}))
        for paths in groups.values()
    ]
    return _commit(catalog, name, records)


def delete_keys(catalog: SqlCatalog, name: str, keys: pa.Table, beside: str | None = None) -> str:
    """Commits an equality delete of the table's columns that `keys` has, as a streaming engine does; returns its path.

    `beside`: a live data file, whose partition the delete is for; any file of an unpartitioned table.
    """
    table = catalog.load_table(name)
    places = _places(catalog, name)
    place = places[beside] if beside is not None else next(iter(places.values()))
    record = _written(table, "equality", _with_ids(table, keys))
    ids = [table.schema().find_field(column).field_id for column in keys.column_names]
    record |= {"content": 2, "equality_ids": ids}
    return _commit(catalog, name, [(place, record)])[0]


@dataclass(frozen=True)
class _Place:
    """Where a data file belongs: its partition spec, tuple, and the Avro type of that."""

    spec: int
    values: dict[str, Any]
    partition: Any


def _opened(catalog: SqlCatalog, name: str) -> tuple[Metadata, Snapshot, ManifestReader]:
    table = catalog.load_table(name)
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, name, table.metadata_location)
    head = metadata.head()
    assert head is not None
    return metadata, head, ManifestReader(storage, name)


def _places(catalog: SqlCatalog, name: str) -> dict[str, _Place]:
    _, head, reader = _opened(catalog, name)
    places: dict[str, _Place] = {}
    for manifest in reader.manifests(head):
        entries = reader.entries(manifest)
        for entry in entries.records:
            record = entry["data_file"]
            if entry["status"] != 2 and record["content"] == 0:
                places[record["file_path"]] = _Place(manifest.spec_id, record["partition"], entries.partition)
    return places


def append_as_of(catalog: SqlCatalog, name: str, start: int, count: int, sequence_number: int) -> str:
    """Rows as `append` has them, unpartitioned, in a file with an older data sequence number, as a compaction that
    began back then commits it; returns its path."""
    table = catalog.load_table(name)
    numbers = list(range(start, start + count))
    rows = pa.table([numbers, ["a"] * count, [i / 2 for i in numbers]], schema=SCHEMA)
    record = _written(table, "older", _with_ids(table, rows)) | {"content": 0}
    place = next(iter(_places(catalog, name).values()))
    return _commit(catalog, name, [(place, record)], sequence_number)[0]


def _with_ids(table: Table, rows: pa.Table) -> pa.Table:
    fields = [table.schema().find_field(column).field_id for column in rows.column_names]
    named = [
        one.with_metadata({b"PARQUET:field_id": str(found).encode()})
        for one, found in zip(rows.schema, fields, strict=True)
    ]
    return rows.cast(pa.schema(named))


def _commit(
    catalog: SqlCatalog,
    name: str,
    records: Sequence[tuple[_Place, dict[str, Any]]],
    sequence_number: int | None = None,
) -> list[str]:
    """One snapshot that adds these files, all data or all deletes; None: with its own sequence number."""
    table = catalog.load_table(name)
    metadata, head, reader = _opened(catalog, name)
    snapshot_id = secrets.randbits(62)

    def put(path: str, data: bytes) -> None:
        with table.io.new_output(path).create() as out:
            out.write(data)

    rows = []
    for place, record in records:
        entry = {
            "status": ADDED,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence_number,
            "file_sequence_number": None,
            "data_file": {**record, "partition": place.values},
        }
        path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        content = 0 if record["content"] == 0 else 1
        rows.append(write_manifest(put, path, metadata, place.spec, content, place.partition, [entry], snapshot_id))
    sequence = metadata.last_sequence_number + 1
    list_path = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    kept = [manifest.raw for manifest in reader.manifests(head)]
    write_manifest_list(put, list_path, metadata, [*rows, *kept], snapshot_id, head.snapshot_id, sequence)
    snapshot = snapshots.Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence,
        timestamp_ms=int(time.time() * 1000),
        manifest_list=list_path,
        schema_id=metadata.raw["current-schema-id"],
        summary=Summary(Operation.OVERWRITE),
    )
    catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id),
        ),
    )
    return [record["file_path"] for _, record in records]


def _position_deletes(table: Table, positions: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    pairs = sorted((path, position) for path, found in positions.items() for position in found)
    columns = [[path for path, _ in pairs], [position for _, position in pairs]]
    return {
        **_written(table, "deletes", pa.table(columns, schema=pa.schema([_PATH, _POS]))),
        "content": 1,
        "lower_bounds": [{"key": 2147483546, "value": pairs[0][0].encode()}],
        "upper_bounds": [{"key": 2147483546, "value": pairs[-1][0].encode()}],
    }


def _written(table: Table, kind: str, rows: pa.Table) -> dict[str, Any]:
    """Writes the rows; what a manifest says of any file."""
    path = f"{table.location()}/data/{kind}-{uuid.uuid4()}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    data = sink.getvalue().to_pybytes()
    with table.io.new_output(path).create() as out:
        out.write(data)
    return {
        "file_path": path,
        "file_format": "PARQUET",
        "record_count": rows.num_rows,
        "file_size_in_bytes": len(data),
    }


@contextmanager
def before_commit(target: Lakehouse, hook: Callable[[int], None]) -> Iterator[None]:
    """Calls `hook` (attempts counted from 1) right before each of our commits reaches the catalog."""
    catalog = target.catalogs["main"].pyiceberg
    real = catalog.commit_table
    attempts = 0

    def commit_table(*args: Any, **kwargs: Any) -> Any:
        nonlocal attempts
        attempts += 1
        hook(attempts)
        return real(*args, **kwargs)

    catalog.commit_table = commit_table  # type: ignore[method-assign]
    try:
        yield
    finally:
        catalog.commit_table = real  # type: ignore[method-assign]
