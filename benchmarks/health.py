"""A table's health from metadata: ours with and without what was remembered, beside PyIceberg's `inspect`.

The data files do not exist: nobody here opens one.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.copies import CONFIGURATION, MEMORY_LIMIT
from benchmarks.running import Benchmark, Contender, Ratio

TABLE = "main.bench.many_files"
SNAPSHOTS = 10


def benchmark(work: Path, *, manifests: int, files: int, say: Callable[[str], None]) -> Benchmark:
    """Makes the table where it is not there yet. `files`: in each manifest."""
    folder = work / f"health-{manifests}x{files}"
    if not (folder / "ready").exists():
        say(f"  writing {manifests} manifests of {files} files each with PyIceberg")
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, manifests=manifests, files=files)
        (folder / "ready").touch()
    metadata = sorted((folder / "warehouse").rglob("*.avro"))

    def configured(name: str) -> str:
        (folder / name).mkdir(exist_ok=True)
        text = CONFIGURATION.format(
            catalog=folder / "catalog.db",
            warehouse=folder / "warehouse",
            state=folder / name / "state",
            memory=MEMORY_LIMIT,
        )
        (folder / name / "lakehouse.yaml").write_text(text)
        return str(folder / name / "lakehouse.yaml")

    def forget() -> None:
        shutil.rmtree(folder / "cold" / "state", ignore_errors=True)

    def remember() -> None:
        start_ours(configured("warm"), exact=False)()

    def ours(name: str, where: str, before: Callable[[], None], *, exact: bool = False) -> Contender:
        return Contender(name, __name__, "start_ours", {"config": configured(where), "exact": exact}, before)

    location = {"catalog": str(folder / "catalog.db"), "warehouse": str(folder / "warehouse")}
    return Benchmark(
        name="health",
        title=f"Health of {manifests * files} files in {manifests} manifests",
        sizes={
            "files": manifests * files,
            "manifests": manifests,
            "manifest_bytes": sum(path.stat().st_size for path in metadata),
            "snapshots": SNAPSHOTS,
        },
        contenders=(
            ours("ours, first look", "cold", forget),
            ours("ours, second look", "warm", remember),
            ours("ours, exact", "cold", forget, exact=True),
            Contender("PyIceberg inspect", __name__, "start_inspect", {**location, "only_files": False}),
            Contender("PyIceberg inspect.files", __name__, "start_inspect", {**location, "only_files": True}),
        ),
        ratios=(
            Ratio("PyIceberg inspect / ours, first look", "ours, first look", ("PyIceberg inspect",), at_least=5.0),
            Ratio("PyIceberg inspect.files alone / ours, first look", "ours, first look", ("PyIceberg inspect.files",)),
            Ratio("PyIceberg inspect / ours, second look", "ours, second look", ("PyIceberg inspect",)),
        ),
        inputs=metadata,
    )


def start_ours(config: str, exact: bool) -> Callable[[], dict[str, Any]]:
    """`health` through the Python interface, what it read remembered in the state as always."""
    import pyiceberg.catalog.sql  # noqa: F401

    import lakehouse_maintenance.execution.running  # noqa: F401
    from lakehouse_maintenance import Lakehouse

    lakehouse = Lakehouse.open(config)
    lakehouse.catalogs["main"].databases()

    def work() -> dict[str, Any]:
        found = lakehouse.health([TABLE], exact=exact)[0]
        if found.error is not None:
            raise RuntimeError(found.error)
        return {
            "data_files": found.data_files,
            "records": found.records,
            "manifests": found.manifests,
            "snapshots": found.snapshots,
            "partitions": found.partitions,
        }

    return work


def start_inspect(catalog: str, warehouse: str, only_files: bool) -> Callable[[], dict[str, Any]]:
    """What a person would ask PyIceberg for the same numbers; partitions and small files follow from `files`."""
    import pyarrow.compute as compute
    import pyiceberg.io.pyarrow  # noqa: F401
    from pyiceberg.catalog.sql import SqlCatalog

    opened = SqlCatalog("main", uri=f"sqlite:///{catalog}", warehouse=f"file://{warehouse}")
    opened.list_namespaces()

    def work() -> dict[str, Any]:
        table = opened.load_table("bench.many_files")
        files = table.inspect.files()
        facts = {"data_files": files.num_rows, "records": compute.sum(files["record_count"]).as_py()}
        if only_files:
            return facts
        return {
            **facts,
            "manifests": table.inspect.manifests().num_rows,
            "snapshots": table.inspect.snapshots().num_rows,
            "refs": table.inspect.refs().num_rows,
            "metadata_files": table.inspect.metadata_log_entries().num_rows,
        }

    return work


def make(folder: Path, *, manifests: int, files: int) -> None:
    """A partitioned table whose manifests carry statistics of ten columns, as writers leave them."""
    from pyiceberg.catalog.sql import SqlCatalog

    (folder / "warehouse").mkdir(parents=True)
    catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("bench")
    write_table(catalog, manifests=manifests, files=files)


def write_table(catalog: Any, *, manifests: int, files: int) -> Any:
    """The table, in a namespace `bench` that exists; its data files do not."""
    import pyarrow as pa
    from pyiceberg.transforms import DayTransform

    columns = [pa.field("at", pa.timestamp("us"))]
    columns += [pa.field(f"number_{number}", pa.int64()) for number in range(5)]
    columns += [pa.field(f"text_{number}", pa.string()) for number in range(4)]
    table = catalog.create_table("bench.many_files", pa.schema(columns), properties={"format-version": "2"})
    with table.update_spec() as change:
        change.add_field("at", DayTransform(), "at_day")
    for number in range(SNAPSHOTS):
        count = manifests * (number + 1) // SNAPSHOTS - manifests * number // SNAPSHOTS
        if count:
            _append(catalog, table, number, count, files)
            table = catalog.load_table("bench.many_files")
    return table


def _append(catalog: Any, table: Any, number: int, manifests: int, files: int) -> None:
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
        write_manifest,
        write_manifest_list,
    )
    from pyiceberg.table.refs import SnapshotRefType
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, SetSnapshotRefUpdate
    from pyiceberg.typedef import Record

    snapshot_id, sequence_number = number + 1, number + 1
    head = table.current_snapshot()
    location = table.location()
    written = [] if head is None else list(head.manifests(table.io))
    for manifest in range(manifests):
        path = f"{location}/metadata/{uuid.uuid4()}-m{manifest}.avro"
        day = 20_000 + number * 10 + manifest % 10
        with write_manifest(2, table.spec(), table.schema(), table.io.new_output(path), snapshot_id, "deflate") as out:
            for file in range(files):
                data_file = DataFile.from_args(
                    _table_format_version=2,
                    content=DataFileContent.DATA,
                    file_path=f"{location}/data/at_day={day}/{uuid.uuid4()}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=Record(day),
                    record_count=10_000 + file,
                    file_size_in_bytes=1_000_000 + 1000 * file,
                    **_statistics(file),
                    split_offsets=[4],
                    spec_id=table.spec().spec_id,
                )
                entry = ManifestEntry.from_args(
                    _table_format_version=2,
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=snapshot_id,
                    data_file=data_file,
                )
                out.add_entry(entry)
        written.append(out.to_manifest_file())
    path = f"{location}/metadata/snap-{snapshot_id}-1-{uuid.uuid4()}.avro"
    parent = None if head is None else head.snapshot_id
    with write_manifest_list(2, table.io.new_output(path), snapshot_id, parent, sequence_number, "deflate") as rows:
        rows.add_manifests(written)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        sequence_number=sequence_number,
        timestamp_ms=max(int(time.time() * 1000), table.metadata.last_updated_ms),
        manifest_list=path,
        schema_id=0,
        summary=Summary(Operation.APPEND),
    )
    catalog.commit_table(
        table,
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name="main",
                type=SnapshotRefType.BRANCH,
                snapshot_id=snapshot_id,
                max_ref_age_ms=None,
                max_snapshot_age_ms=None,
                min_snapshots_to_keep=None,
            ),
        ),
    )


def _statistics(file: int) -> dict[str, Any]:
    ids = range(1, 11)
    return {
        "column_sizes": dict.fromkeys(ids, 100_000 + file),
        "value_counts": dict.fromkeys(ids, 10_000 + file),
        "null_value_counts": dict.fromkeys(ids, 0),
        "nan_value_counts": {},
        "lower_bounds": {column: _bound(column, file * column) for column in ids},
        "upper_bounds": {column: _bound(column, file * column + 1000) for column in ids},
    }


def _bound(column: int, value: int) -> bytes:
    """A single value as Iceberg writes it: the first six columns are numbers, the others text."""
    return value.to_bytes(8, "little") if column <= 6 else f"text {value:011d}".encode()
