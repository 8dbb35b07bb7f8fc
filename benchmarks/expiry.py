"""Expiring snapshots: our whole command at several sizes, beside Spark's procedure and zamboni's local engine.

Each snapshot adds one manifest of a few files and lists those before it; every fifth manifest leaves the table ten
snapshots later, so that data files expire too. All files exist. Every run works on a copy of its own in the same place:
links to the same files, which nobody changes.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.copies import Copies
from benchmarks.peers import ZAMBONI, LocalSpark, environment, spark_jars
from benchmarks.running import Benchmark, Contender, Growth, Ratio

TABLE = "main.bench.many_snapshots"
RETAIN_LAST = 10
FILES = 3


def benchmark(work: Path, *, snapshots: int, peers: bool, say: Callable[[str], None]) -> Benchmark:
    """Makes the tables where they are not there yet. `peers`: beside Spark and zamboni, where they can run.

    Zamboni runs on the smallest size alone: it reads every manifest again for each snapshot that lists it, so that
    its time grows with the square, and the largest would take it the better part of an hour.
    """
    sizes = sorted({max(20, snapshots // 10), snapshots // 4, snapshots // 2, snapshots})
    tables = {size: many_snapshots(work, size, say) for size in sizes}
    least, most = sizes[0], sizes[-1]
    small, large = tables[least], tables[most]
    ours = {size: f"ours, {size:,}" for size in sizes}
    contenders = [
        Contender(ours[size], __name__, "start_ours", {"config": table.config}, table.fresh)
        for size, table in tables.items()
    ]
    ratios = []
    if peers and (jars := spark_jars(say)):
        name = f"Spark local, {most:,}"
        arguments = {"run": str(large.run), "jars": ",".join(map(str, jars))}
        contenders.append(Contender(name, __name__, "start_spark", arguments, large.fresh))
        ratios.append(Ratio("Spark local / ours", ours[most], (name,), at_least=10.0))
    if peers and (python := environment(work / "zamboni", ZAMBONI, say)):
        name = f"zamboni, {least:,}"
        arguments = {"run": str(small.run)}
        contenders.append(Contender(name, __name__, "start_zamboni", arguments, small.fresh, python=str(python)))
        ratios.append(Ratio(f"zamboni / ours, {least:,} snapshots", ours[least], (name,), at_least=10.0))
    return Benchmark(
        name="expiry",
        title=f"Expire {most - RETAIN_LAST:,} of {most:,} snapshots over {most:,} manifests",
        sizes={"snapshots": most, "manifests": most, "files": most * FILES, "kept": RETAIN_LAST},
        contenders=contenders,
        ratios=ratios,
        inputs=[path for table in tables.values() for path in table.metadata()],
        growth=Growth("time of ours by manifests", tuple((size, ours[size]) for size in sizes[-3:]), at_most=1.2),
    )


def many_snapshots(work: Path, snapshots: int, say: Callable[[str], None]) -> Copies:
    """The table, made where it is not there yet."""

    def made(folder: Path) -> None:
        make(folder, snapshots=snapshots)

    return Copies(work / f"expiry-{snapshots}", made).ready(f"{snapshots} snapshots", say)


def start_ours(config: str) -> Callable[[], dict[str, Any]]:
    """The whole command: plan, list, commit, recheck, delete, verify."""
    from datetime import timedelta

    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    import lakehouse_maintenance.execution.running  # noqa: F401
    from lakehouse_maintenance import Lakehouse
    from lakehouse_maintenance.model.actions import Action
    from lakehouse_maintenance.planning.expiring import ExpiryRequest
    from lakehouse_maintenance.planning.tables import Request

    lakehouse = Lakehouse.open(config)
    lakehouse.catalogs["main"].databases()
    asked = ExpiryRequest(older_than=timedelta(0), retain_last=RETAIN_LAST, allow_short_retention=True)
    request = Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=asked)

    def work() -> dict[str, Any]:
        outcome = lakehouse.apply(lakehouse.plan([TABLE], request)).tables[0]
        if outcome.status != "done":
            raise RuntimeError(f"{outcome.status}: {outcome.reason} {outcome.actions}")
        actual = outcome.actions[0].actual
        return {"snapshots": actual.expired_snapshots, "deleted_files": actual.deleted_files}

    return work


def start_spark(run: str, jars: str) -> Callable[[], dict[str, Any]]:
    """`expire_snapshots` with its own defaults, on as many threads as there are cores, with a warm session."""
    spark = LocalSpark(run, jars)
    spark.session.sql(f"SELECT count(*) FROM {TABLE}.manifests").collect()

    def work() -> dict[str, Any]:
        call = (
            f"CALL main.system.expire_snapshots(table => 'bench.many_snapshots', retain_last => {RETAIN_LAST}, "
            "older_than => current_timestamp())"
        )
        counts = spark.session.sql(call).collect()[0].asDict()
        deleted = sum(count for name, count in counts.items() if name.startswith("deleted_"))
        return {"deleted_files": deleted, "elsewhere_cpu_seconds": spark.cpu_seconds()}

    return work


def start_zamboni(run: str) -> Callable[[], dict[str, Any]]:
    """Its own expirer, as its local engine calls it; in the Python that has it."""
    from pyiceberg.catalog.sql import SqlCatalog

    # By name: type checkers look at this project's environment, which has none.
    expire = importlib.import_module("zamboni.expire")
    catalog = SqlCatalog("main", uri=f"sqlite:///{run}/catalog.db", warehouse=f"file://{run}/warehouse")
    catalog.list_namespaces()

    def work() -> dict[str, Any]:
        table = catalog.load_table("bench.many_snapshots")
        policy = expire.RetentionPolicy.resolve(
            dict(table.properties), max_snapshot_age_days=0, min_snapshots_to_keep=RETAIN_LAST
        )
        result = expire.SnapshotExpirer(policy).run(table)
        return {"snapshots": result.expired_snapshots, "deleted_files": result.deleted_files}

    return work


def make(folder: Path, *, snapshots: int) -> None:
    """A partitioned table of one branch, its manifests and lists written by our own writers."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table.refs import SnapshotRefType
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, SetSnapshotRefUpdate
    from pyiceberg.transforms import DayTransform

    from lakehouse_maintenance.iceberg.metadata import read_metadata
    from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
    from lakehouse_maintenance.storage import Storage

    (folder / "warehouse").mkdir(parents=True)
    catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("bench")
    schema = pa.schema([pa.field("at", pa.timestamp("us")), pa.field("number", pa.int64())])
    table = catalog.create_table("bench.many_snapshots", schema, properties={"format-version": "2"})
    with table.update_spec() as change:
        change.add_field("at", DayTransform(), "at_day")
    metadata = read_metadata(Storage({}), TABLE, table.metadata_location)
    location = table.location()
    Path(location.removeprefix("file://"), "data").mkdir(parents=True)
    day_type = {"type": ["null", {"type": "int", "logicalType": "date"}], "default": None}
    partition = {"type": "record", "name": "r102", "fields": [{"name": "at_day", "field-id": 1000, **day_type}]}
    spec_id = metadata.default_spec_id
    now = max(int(time.time() * 1000), table.metadata.last_updated_ms)
    rows: list[dict[str, Any]] = []
    updates: list[Any] = []
    for number in range(1, snapshots + 1):
        day = 20_000 + number % 30
        entries = [entry(location, number, file, {"at_day": day}) for file in range(FILES)]
        for added in entries:
            put(added["data_file"]["file_path"], b"PAR1" * 4)
        path = f"{location}/metadata/{uuid.uuid4()}-m0.avro"
        row = write_manifest(put, path, metadata, spec_id, 0, partition, entries, number)
        # Merged or rewritten away: as far as reachability goes, the manifest is simply not listed any more.
        gone = number - 10
        rows = [r for r in rows if not (r["added_snapshot_id"] == gone and gone % 5 == 0)]
        path = f"{location}/metadata/snap-{number}-1-{uuid.uuid4()}.avro"
        parent = number - 1 or None
        row |= {"sequence_number": number, "min_sequence_number": number}
        rows = [row, *rows]
        write_manifest_list(put, path, metadata, rows, number, parent, number)
        snapshot = Snapshot(
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=number,
            timestamp_ms=now + number,
            manifest_list=path,
            schema_id=0,
            summary=Summary(Operation.APPEND),
        )
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
    head: dict[str, Any] = {"type": SnapshotRefType.BRANCH, "snapshot_id": snapshots}
    ages: dict[str, Any] = dict.fromkeys(("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep"))
    updates.append(SetSnapshotRefUpdate(ref_name="main", **head, **ages))
    catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), tuple(updates))


def entry(location: str, number: int, file: int, partition: dict[str, Any]) -> dict[str, Any]:
    """An added file of a manifest; `number` is that of the snapshot, and its id."""
    counts = [{"key": column, "value": 1000} for column in (1, 2)]
    bounds = [{"key": column, "value": number.to_bytes(8, "little")} for column in (1, 2)]
    optional = ("block_size_in_bytes", "nan_value_counts", "key_metadata", "equality_ids", "sort_order_id")
    later = ("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
    data_file = {
        **dict.fromkeys((*optional, *later)),
        "content": 0,
        "file_path": f"{location}/data/{number}-{file}-{uuid.uuid4()}.parquet",
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": 1000,
        "file_size_in_bytes": 16,
        "column_sizes": counts,
        "value_counts": counts,
        "null_value_counts": counts,
        "lower_bounds": bounds,
        "upper_bounds": bounds,
        "split_offsets": [4],
    }
    sequence = {"sequence_number": None, "file_sequence_number": None}
    return {"status": 1, "snapshot_id": number, **sequence, "data_file": data_file}


def put(path: str, data: bytes) -> None:
    """A new local file."""
    with Path(path.removeprefix("file://")).open("xb") as file:
        file.write(data)
