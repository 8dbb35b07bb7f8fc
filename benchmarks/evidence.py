"""Orphan search: every object of a table against every reference, beside listing and reading manifests alone.

What is compared is the price of the comparison itself: ours does both and tells which of the listed objects nobody
references; the baseline lists and reads through the same code, one after the other, and compares nothing.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.health import write_table
from benchmarks.running import Benchmark, Contender, Ratio

TABLE = "main.bench.many_files"
MEMORY_LIMIT_MB = 300
ORPHANS = 1000
BUCKET = "evidence"


def benchmark(work: Path, *, manifests: int, on_s3: bool, files: int = 1000, say: Callable[[str], None]) -> Benchmark:
    """Makes the table and its objects where they are not there yet. `files`: in each manifest."""
    where = "s3" if on_s3 else "local"
    folder = work / f"evidence-{where}-{manifests}x{files}"
    shutil.rmtree(folder, ignore_errors=True) if on_s3 else None
    server = _start_s3(folder) if on_s3 else {}
    warehouse = f"s3://{BUCKET}/warehouse" if on_s3 else f"file://{folder}/warehouse"
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse, **server}
    if on_s3 or not (folder / "ready").exists():
        say(f"  writing {manifests} manifests and {manifests * files:,} objects ({where})")
        if not on_s3:
            shutil.rmtree(folder, ignore_errors=True)
        make(folder, properties, manifests=manifests, files=files)
        (folder / "ready").touch()

    def forget() -> None:
        shutil.rmtree(folder / "state", ignore_errors=True)

    settings = {"catalogs": {"main": properties}, "state": {"url": str(folder / "state")}}
    total = manifests * files
    return Benchmark(
        name=f"evidence_{where}",
        title=f"{total:,} objects against {total:,} references, {'on S3' if on_s3 else 'local files'}",
        sizes={"objects": total + ORPHANS, "references": total, "manifests": manifests},
        contenders=(
            Contender("ours, orphan search", __name__, "start_search", {"settings": settings}, forget),
            Contender("listing, then manifests", __name__, "start_baseline", {"settings": settings}, forget),
        ),
        ratios=(
            Ratio(
                "ours / listing and manifests alone",
                "ours, orphan search",
                ("listing, then manifests",),
                at_most=1.2,
            ),
        ),
        memory_limit_mb=MEMORY_LIMIT_MB,
        limited="ours, orphan search",
    )


def _start_s3(folder: Path) -> dict[str, str]:
    """A server that lives as long as this process; returns PyIceberg's properties for it."""
    from lakehouse_maintenance_tests.services.s3 import running_s3

    def new_folder() -> Path:
        shutil.rmtree(folder / "seaweedfs", ignore_errors=True)
        (folder / "seaweedfs").mkdir(parents=True)
        return folder / "seaweedfs"

    stack = ExitStack()
    atexit.register(stack.close)
    server = stack.enter_context(running_s3(new_folder))
    server.bucket(BUCKET)
    return server.properties


def start_search(settings: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """`orphans` as a dry run, nothing remembered."""
    from datetime import timedelta

    import numpy  # noqa: F401
    import pyiceberg.catalog.sql  # noqa: F401

    from lakehouse_maintenance import Lakehouse
    from lakehouse_maintenance.config import config_from_mapping
    from lakehouse_maintenance.planning.orphans import OrphanRequest
    from lakehouse_maintenance.state import open_state

    config = config_from_mapping(settings, base=Path.cwd())
    lakehouse = Lakehouse(config, open_state(config.state.url))
    lakehouse.catalogs["main"].databases()
    everything = OrphanRequest(older_than=timedelta(0), allow_short_retention=True)

    def work() -> dict[str, Any]:
        found = lakehouse.orphans([TABLE], everything).tables[0]
        if found.orphan_files != ORPHANS:
            raise RuntimeError(f"{found.orphan_files} orphans: {found.status} {found.reason}")
        return {"objects": found.objects_listed, "orphans": found.orphan_files}

    return work


def start_baseline(settings: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """The same listing, and the same manifests through the same reader, and nothing else."""
    import pyiceberg.catalog.sql  # noqa: F401

    from lakehouse_maintenance.catalogs import open_catalog
    from lakehouse_maintenance.iceberg.manifests import ManifestReader
    from lakehouse_maintenance.iceberg.metadata import read_metadata
    from lakehouse_maintenance.model.locations import Location
    from lakehouse_maintenance.model.names import TableName
    from lakehouse_maintenance.state import open_state

    catalog = open_catalog("main", settings["catalogs"]["main"])
    catalog.databases()
    cache = open_state(settings["state"]["url"]).cache

    def work() -> dict[str, Any]:
        pointer, storage = catalog.locate(TableName.parse(TABLE))
        metadata = read_metadata(storage, TABLE, pointer)
        objects = sum(len(rows) for rows, _ in storage.rows(Location.parse(metadata.table_location)))
        reader = ManifestReader(storage, TABLE, cache)
        head = metadata.head()
        assert head is not None
        references = sum(1 for _ in reader.live_files(reader.manifests(head)))
        return {"objects": objects, "references": references}

    return work


def make(folder: Path, properties: dict[str, str], *, manifests: int, files: int) -> None:
    """A table of many entries, an empty object for each, and old objects that nothing names."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("main", **properties)
    catalog.create_namespace("bench")
    table = write_table(catalog, manifests=manifests, files=files)
    location = table.location()
    orphans = (f"{location}/data/at_day=20000/orphan-{number}.parquet" for number in range(ORPHANS))
    put = _put_local if location.startswith("file:") else _putter(location, properties)
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(put, [*_paths(table), *orphans], chunksize=256):
            pass


def _paths(table: Any) -> Iterator[str]:
    from lakehouse_maintenance.iceberg.manifests import ManifestReader
    from lakehouse_maintenance.iceberg.metadata import read_metadata
    from lakehouse_maintenance.storage import Storage

    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, TABLE, table.metadata_location)
    reader = ManifestReader(storage, TABLE)
    head = metadata.head()
    assert head is not None
    for paths in reader.live_paths(reader.manifests(head)):
        yield from paths


def _put_local(url: str) -> None:
    path = Path(url.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _putter(location: str, properties: dict[str, str]) -> Callable[[str], None]:
    import obstore

    from lakehouse_maintenance.model.locations import Location
    from lakehouse_maintenance.storage.clients import client_for

    client = client_for(Location.parse(location), properties)

    def put(url: str) -> None:
        obstore.put(client, Location.parse(url).key, b"")

    return put
