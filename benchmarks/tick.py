"""One tick of the threshold sensor over many tables of which some changed, beside the bare catalog.

A catalog is asked in the cheapest way it has: one query for each database of a SQL catalog, one request for each table
of a REST catalog. A changed table has one snapshot and one manifest more than when the tick before looked at it; its
metadata file, manifest list and new manifest have to be read, which the bare catalog's side does not do.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import expiry
from benchmarks.copies import write_configuration
from benchmarks.running import Benchmark, Contender, Growth, Ratio

DATABASES = 10
MANIFESTS = 5
SHARES = (0, 1, 10, 100)
"""Of the tables, in percent, that changed since the last tick."""


def benchmark(work: Path, *, tables: int, say: Callable[[str], None]) -> Benchmark:
    """Makes the catalog where it is not there yet. `tables`: of all databases together."""
    folder = work / f"tick-{tables}"
    if not (folder / "ready").exists():
        say(f"  writing {tables} tables")
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, tables=tables)
        (folder / "ready").touch()
    run = folder / "run"
    changed = {share: max(1, tables * share // 100) if share else 0 for share in SHARES}

    def fresh(count: int) -> None:
        """What a tick remembers when nothing has changed; then the first `count` tables change."""
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(folder / "ticked", run)
        with sqlite3.connect(run / "catalog.db") as connection:
            connection.execute(
                "UPDATE iceberg_tables SET metadata_location = (SELECT after FROM changes WHERE changes.before = "
                "metadata_location) WHERE table_name IN (SELECT name FROM changes ORDER BY name LIMIT ?)",
                (count,),
            )

    if not (folder / "ticked").exists():
        run.mkdir()
        shutil.copy(folder / "catalog.db", run / "catalog.db")
        write_configuration(run, folder / "warehouse")
        with (run / "lakehouse.yaml").open("a") as out:
            out.write(f"databases: {{main: {json.dumps(_databases())}}}\n")
        start_tick(str(run))()
        run.rename(folder / "ticked")
    asked = {"run": str(run)}
    ticks = {
        share: Contender(f"ours, {count:,} changed", __name__, "start_tick", asked, partial(fresh, count))
        for share, count in changed.items()
    }
    bare = [
        Contender("catalog: each database", __name__, "start_catalog", {**asked, "each": False}, partial(fresh, 0)),
        Contender("catalog: each table", __name__, "start_catalog", {**asked, "each": True}, partial(fresh, 0)),
    ]
    return Benchmark(
        name="tick",
        title=f"A tick of the threshold sensor over {tables:,} tables",
        sizes={"tables": tables, "databases": DATABASES, "manifests_a_table": MANIFESTS},
        contenders=[*ticks.values(), *bare],
        ratios=[
            Ratio("ours, none changed / one question a database", ticks[0].name, (bare[0].name,), at_most=2.0),
            Ratio("ours, 1 % changed / one question a table", ticks[1].name, (bare[1].name,), at_most=2.0),
        ],
        inputs=sorted((folder / "warehouse").rglob("*.avro")),
        growth=Growth(
            "time by changed tables", tuple((changed[share], ticks[share].name) for share in SHARES[1:]), at_most=1.1
        ),
    )


def start_tick(run: str) -> Callable[[], dict[str, Any]]:
    """What the sensor does in a tick, with the state that the tick before left, in a process that has ticked before."""
    import pyiceberg.catalog.sql  # noqa: F401

    import lakehouse_maintenance.execution.running  # noqa: F401
    from lakehouse_maintenance import Lakehouse
    from lakehouse_maintenance.execution.clock import now_ms
    from lakehouse_maintenance.model.names import TableName
    from lakehouse_maintenance.orchestration.thresholds import threshold_tick

    lakehouse = Lakehouse.open(f"{run}/lakehouse.yaml")
    lakehouse.catalogs["main"].databases()
    with sqlite3.connect(f"{run}/catalog.db") as connection:
        rows = connection.execute("SELECT table_namespace, table_name FROM iceberg_tables ORDER BY table_name")
        names = [TableName("main", (namespace,), table) for namespace, table in rows]
    keys = {name.partition_key for name in names}
    # The last one, which changes last: what is imported and compiled at the first look is start-up.
    lakehouse.watch(names[-1])

    def work() -> dict[str, Any]:
        ticked = threshold_tick(lakehouse, keys, None, now_ms=now_ms(), seconds=3600)
        if ticked.problems:
            raise RuntimeError(ticked.problems)
        return {"tables": ticked.tables, "looked": ticked.looked, "wanted": len(ticked.wanted)}

    return work


def start_catalog(run: str, each: bool) -> Callable[[], dict[str, Any]]:
    """Where every table's metadata lies. `each`: asked table by table, else database by database."""
    from lakehouse_maintenance import Lakehouse
    from lakehouse_maintenance.model.names import TableName

    catalog = Lakehouse.open(f"{run}/lakehouse.yaml").catalogs["main"]
    catalog.databases()
    with sqlite3.connect(f"{run}/catalog.db") as connection:
        names = connection.execute("SELECT table_namespace, table_name FROM iceberg_tables").fetchall()

    def work() -> dict[str, Any]:
        if each:
            found = {catalog.pointer(TableName("main", (namespace,), table)) for namespace, table in names}
        else:
            found = {pointer for name in _databases() for pointer in catalog.pointers((name,)).values()}
        return {"tables": len(found)}

    return work


def _databases() -> list[str]:
    return [f"db{number}" for number in range(DATABASES)]


def make(folder: Path, *, tables: int) -> None:
    """Tables as the expiry benchmark makes its one, each as it is and as it will be; `changes` names the latter."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    (folder / "warehouse").mkdir(parents=True)
    catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    for name in _databases():
        catalog.create_namespace(name)
    pattern = catalog.create_table("db0.pattern", pa.schema([("at", pa.timestamp("us")), ("number", pa.int64())]))
    raw = json.loads(Path(pattern.metadata_location.removeprefix("file://")).read_text())
    catalog.drop_table("db0.pattern")
    catalog.close()
    rows, changes = [], []
    for number in range(tables):
        # Round the databases, so that the first ones by name, which change, lie in all of them.
        database, table = f"db{number % DATABASES}", f"t{number:06d}"
        location = folder / "warehouse" / database / table
        (location / "metadata").mkdir(parents=True)
        before, after = _states(raw, location)
        rows.append(("main", database, table, before, "TABLE"))
        changes.append((table, before, after))
    with sqlite3.connect(folder / "catalog.db") as connection:
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        connection.executemany(f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("CREATE TABLE changes (name TEXT, before TEXT PRIMARY KEY, after TEXT)")
        connection.executemany("INSERT INTO changes VALUES (?, ?, ?)", changes)


def _states(raw: dict[str, Any], location: Path) -> Iterable[str]:
    """Metadata files of one table: of all but its last snapshot, and of all."""
    from lakehouse_maintenance.iceberg.metadata import read_metadata
    from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
    from lakehouse_maintenance.storage import Storage

    url = f"file://{location}"
    state = raw | {"location": url, "table-uuid": str(uuid.uuid4())}

    def pointer(version: int) -> str:
        path = location / "metadata" / f"{version:05d}-{uuid.uuid4()}.metadata.json"
        path.write_text(json.dumps(state))
        return f"file://{path}"

    metadata = read_metadata(Storage({}), "main.db.t", pointer(0))
    partition = {"type": "record", "name": "r102", "fields": []}
    listed: list[dict[str, Any]] = []
    snapshots: list[dict[str, Any]] = []
    pointers = []
    for number in range(1, MANIFESTS + 2):
        entries = [expiry.entry(url, number, file, {}) for file in range(expiry.FILES)]
        path = f"{url}/metadata/{uuid.uuid4()}-m0.avro"
        row = write_manifest(expiry.put, path, metadata, 0, 0, partition, entries, number)
        listed = [row | {"sequence_number": number, "min_sequence_number": number}, *listed]
        path = f"{url}/metadata/snap-{number}-1-{uuid.uuid4()}.avro"
        parent = number - 1 or None
        write_manifest_list(expiry.put, path, metadata, listed, number, parent, number)
        moment = raw["last-updated-ms"] + number
        snapshots.append(
            {
                "snapshot-id": number,
                **({"parent-snapshot-id": parent} if parent else {}),
                "sequence-number": number,
                "timestamp-ms": moment,
                "manifest-list": path,
                "schema-id": 0,
                "summary": {"operation": "append"},
            }
        )
        state |= {
            "snapshots": list(snapshots),
            "current-snapshot-id": number,
            "refs": {"main": {"snapshot-id": number, "type": "branch"}},
            "last-sequence-number": number,
            "last-updated-ms": moment,
        }
        if number >= MANIFESTS:
            pointers.append(pointer(number))
    return pointers
