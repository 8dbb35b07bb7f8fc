"""Untracked folders of all databases of a catalog in one dry run, beside reading the catalog and all metadata once.

Each database protects the folders of every other, so that every table of the catalog has to be known for each of them:
what is asked here is whether a run reads a table once, or once for each database. Tables hold no snapshot, so the
baseline has no manifest to read; each database has one folder that nobody owns.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.running import Benchmark, Contender, Growth, Ratio

DAYS_OLD = 10


def benchmark(work: Path, *, databases: int, tables: int, say: Callable[[str], None]) -> Benchmark:
    """Makes the catalogs where they are not there yet. `tables`: of each database."""
    sizes = sorted({max(1, databases // 4), max(1, databases // 2), databases})
    contenders = []
    for size in sizes:
        folder = work / f"untracked-{size}x{tables}"
        if not (folder / "ready").exists():
            say(f"  writing {size} databases of {tables} tables")
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, databases=size, tables=tables)
            (folder / "ready").touch()
        contenders.append(_contender(f"ours, databases: {size}", "start_run", folder))
    baseline = _contender("catalog and metadata, once", "start_baseline", work / f"untracked-{databases}x{tables}")
    return Benchmark(
        name="untracked",
        title=f"Untracked folders of {databases} databases of {tables:,} tables",
        sizes={"databases": databases, "tables": databases * tables},
        contenders=(*contenders, baseline),
        ratios=(Ratio("catalog and metadata, once / ours", contenders[-1].name, (baseline.name,)),),
        growth=Growth(
            "untracked folders, by tables",
            tuple((size * tables, contender.name) for size, contender in zip(sizes, contenders, strict=True)),
            at_most=1.15,
        ),
    )


def _contender(name: str, function: str, folder: Path) -> Contender:
    def forget() -> None:
        """The state, and the audit table with its database: each run creates them."""
        shutil.rmtree(folder / "state", ignore_errors=True)
        shutil.rmtree(folder / "warehouse" / "iomete_system_db", ignore_errors=True)
        with sqlite3.connect(folder / "catalog.db") as connection:
            for table, column in (("iceberg_tables", "table_namespace"), ("iceberg_namespace_properties", "namespace")):
                connection.execute(f"DELETE FROM {table} WHERE {column} = 'iomete_system_db'")

    return Contender(name, __name__, function, {"folder": str(folder)}, forget)


def start_run(folder: str) -> Callable[[], dict[str, Any]]:
    """The verb on all databases, nothing remembered. Catalog calls are statements that its database is sent."""
    import pyiceberg.catalog.sql  # noqa: F401
    from sqlalchemy import event

    from lakehouse_maintenance import Lakehouse
    from lakehouse_maintenance.config import config_from_mapping
    from lakehouse_maintenance.state import open_state

    where = Path(folder)
    config = config_from_mapping(_settings(where), base=where)
    lakehouse = Lakehouse(config, open_state(config.state.url))
    catalog = lakehouse.catalogs["main"]
    catalog.databases()
    calls = _count(event, catalog.pyiceberg)
    databases = json.loads((where / "application.json").read_text())["databases"]

    def work() -> dict[str, Any]:
        began = time.perf_counter()
        run = lakehouse.untracked_folders(where / "application.json")
        seconds = time.perf_counter() - began
        found = sum(one.row.candidate_folder_count for one in run.databases)
        if not run.ok or found != len(databases):
            told = {(str(one.row.status), one.row.status_reason, one.row.error_message) for one in run.databases}
            raise RuntimeError(f"{found} candidates in {len(databases)} databases: {sorted(map(str, told))[:5]}")
        return {
            "tables": sum(one.row.active_table_count for one in run.databases),
            "catalog_calls": len(calls),
            "catalog_calls_per_database": len(calls) / len(databases),
            "seconds_per_database": seconds / len(databases),
        }

    return work


def start_baseline(folder: str) -> Callable[[], dict[str, Any]]:
    """Every database and table of the catalog, its metadata and its manifests, through the same readers."""
    from sqlalchemy import event

    from lakehouse_maintenance.catalogs import open_catalog
    from lakehouse_maintenance.iceberg.manifests import ManifestReader
    from lakehouse_maintenance.iceberg.metadata import read_metadata
    from lakehouse_maintenance.model.listing import Complete

    catalog = open_catalog("main", _settings(Path(folder))["catalogs"]["main"])
    catalog.databases()
    calls = _count(event, catalog.pyiceberg)

    def work() -> dict[str, Any]:
        tables = manifests = 0
        databases = catalog.databases()
        assert isinstance(databases, Complete)
        for namespace in databases.items:
            assert isinstance(catalog.tables(namespace), Complete)
            for name, pointer in catalog.pointers(namespace).items():
                storage = catalog.storage(name)
                metadata = read_metadata(storage, str(name), pointer)
                reader = ManifestReader(storage, str(name))
                manifests += sum(len(listed) for _, listed in reader.manifests_of(metadata.snapshots.values()))
                tables += 1
        return {"tables": tables, "manifests": manifests, "catalog_calls": len(calls)}

    return work


def _count(event: Any, inner: Any) -> list[str]:
    """Learns every statement from here on."""
    seen: list[str] = []
    event.listen(inner.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    return seen


def _settings(folder: Path) -> dict[str, Any]:
    main = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return {"catalogs": {"main": main}, "state": {"url": str(folder / "state")}}


def make(folder: Path, *, databases: int, tables: int) -> None:
    """Rows of the catalog and metadata files, written as PyIceberg writes those of one table, which is the pattern."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    (folder / "warehouse").mkdir(parents=True)
    settings = _settings(folder)["catalogs"]["main"]
    catalog = SqlCatalog("main", uri=settings["uri"], warehouse=settings["warehouse"])
    catalog.create_namespace("pattern")
    table = catalog.create_table("pattern.pattern", pa.schema([("id", pa.int64())]))
    pattern = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    catalog.drop_table("pattern.pattern")
    catalog.drop_namespace("pattern")
    catalog.close()
    shutil.rmtree(folder / "warehouse" / "pattern")

    names = [f"db{number:04d}" for number in range(databases)]
    rows = []
    old = time.time() - DAYS_OLD * 86400
    for database in names:
        for number in range(tables):
            location = folder / "warehouse" / database / f"t{number:05d}"
            pointer = location / "metadata" / f"00000-{uuid.uuid4()}.metadata.json"
            pointer.parent.mkdir(parents=True)
            pointer.write_text(
                json.dumps(pattern | {"location": f"file://{location}", "table-uuid": str(uuid.uuid4())})
            )
            rows.append(("main", database, location.name, f"file://{pointer}", "TABLE"))
        dropped = folder / "warehouse" / database / "dropped" / "data" / "0.parquet"
        dropped.parent.mkdir(parents=True)
        dropped.write_bytes(b"nobody's")
        os.utime(dropped, (old, old))
    with sqlite3.connect(folder / "catalog.db") as connection:
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        connection.executemany(f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
        columns = "catalog_name, namespace, property_key, property_value"
        connection.executemany(
            f"INSERT INTO iceberg_namespace_properties ({columns}) VALUES ('main', ?, 'exists', 'true')",
            [(name,) for name in names],
        )
    (folder / "application.json").write_text(json.dumps({"catalog": "main", "databases": names}))
