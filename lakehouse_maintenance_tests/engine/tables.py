"""Tables that PyIceberg writes, a row delta that it cannot write, and a hook right before our commits."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.iceberg.fields import ADDED
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
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
    table = catalog.load_table(name)
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, name, table.metadata_location)
    reader = ManifestReader(storage, name)
    head = metadata.head()
    assert head is not None
    places: dict[str, tuple[int, dict[str, Any], Any]] = {}
    for manifest in reader.manifests(head):
        entries = reader.entries(manifest)
        for entry in entries.records:
            record = entry["data_file"]
            if entry["status"] != 2 and record["file_path"] in positions:
                places[record["file_path"]] = (manifest.spec_id, record["partition"], entries.partition)
    groups: dict[Any, list[str]] = {}
    for path in positions:
        spec, values, _ = places[path]
        groups.setdefault(path if per_file else (spec, str(values)), []).append(path)

    snapshot_id = secrets.randbits(62)

    def put(path: str, data: bytes) -> None:
        with table.io.new_output(path).create() as out:
            out.write(data)

    rows, written = [], []
    for paths in groups.values():
        spec, values, partition = places[paths[0]]
        record = _delete_file(table, {path: positions[path] for path in paths}, values)
        written.append(record["file_path"])
        entry = {
            "status": ADDED,
            "snapshot_id": snapshot_id,
            "sequence_number": None,
            "file_sequence_number": None,
            "data_file": record,
        }
        manifest_path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        rows.append(write_manifest(put, manifest_path, metadata, spec, 1, partition, [entry], snapshot_id))
    sequence = metadata.last_sequence_number + 1
    list_path = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    kept = [manifest.raw for manifest in reader.manifests(head)]
    write_manifest_list(put, list_path, metadata, [*rows, *kept], snapshot_id, head.snapshot_id, sequence)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence,
        timestamp_ms=int(time.time() * 1000),
        manifest_list=list_path,
        schema_id=metadata.raw["current-schema-id"],
        summary=Summary(Operation.DELETE),
    )
    catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id),
        ),
    )
    return written


def _delete_file(table: Table, positions: Mapping[str, Sequence[int]], partition: dict[str, Any]) -> dict[str, Any]:
    pairs = sorted((path, position) for path, found in positions.items() for position in found)
    columns = [[path for path, _ in pairs], [position for _, position in pairs]]
    path = f"{table.location()}/data/deletes-{uuid.uuid4()}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=pa.schema([_PATH, _POS])), sink, store_schema=False)
    data = sink.getvalue().to_pybytes()
    with table.io.new_output(path).create() as out:
        out.write(data)
    lower, upper = pairs[0][0].encode(), pairs[-1][0].encode()
    return {
        "content": 1,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": len(pairs),
        "file_size_in_bytes": len(data),
        "lower_bounds": [{"key": 2147483546, "value": lower}],
        "upper_bounds": [{"key": 2147483546, "value": upper}],
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
