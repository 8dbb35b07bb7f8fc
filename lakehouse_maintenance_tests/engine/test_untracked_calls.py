"""What a run asks catalog and storage for: each table once, each manifest once for ever, whatever the databases."""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.engine.untracked import Untracked
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.services.faults import fault_proxy

DATABASES, TABLES, WITH_MANIFESTS = 10, 100, 10
"""Of a database's tables, only some have snapshots: PyIceberg takes its time to commit them."""


class Reads:
    """What storage was read for the tables of the databases, by kind of file."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()

    def kinds(self) -> dict[str, int]:
        """How often each kind was read."""
        found: Counter[str] = Counter()
        for path, times in self.paths.items():
            found[_kind(path)] += times
        return dict(found)


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    if name.endswith(".metadata.json"):
        return "metadata"
    return "manifest list" if name.startswith("snap-") else "manifest" if name.endswith(".avro") else name


@contextmanager
def counted(patch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Our own storage's reads, but for the audit table's files."""
    reads = Reads()
    with patch.context() as patching:
        real = Storage.read

        def read(self: Storage, where: Location, *more: Any, **named: Any) -> bytes:
            if "/iomete_system_db/" not in where.text:
                reads.paths[where.text] += 1
            return real(self, where, *more, **named)

        patching.setattr(Storage, "read", read)
        yield reads


@contextmanager
def statements(ours: Lakehouse) -> Iterator[list[str]]:
    """What the catalog's database is asked."""
    from sqlalchemy import event

    seen: list[str] = []

    def learn(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        seen.append(statement)

    engine: Any = ours.catalogs["main"].pyiceberg.engine  # type: ignore[attr-defined]
    event.listen(engine, "before_cursor_execute", learn)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", learn)


def fill(lake: Lake, databases: int) -> None:
    """Tables without snapshots are copies of one, under names and places of their own."""
    template = json.loads(lake.read(lake.table("db.template", commits=0).metadata_location))
    rows = []
    for database in (f"d{number}" for number in range(databases)):
        lake.writer.create_namespace(database)
        for number in range(WITH_MANIFESTS):
            lake.table(f"{database}.full{number}")
        for number in range(TABLES - WITH_MANIFESTS):
            home = f"{lake.warehouse}/{database}/t{number}"
            pointer = f"{home}/metadata/00000-{uuid.uuid4()}.metadata.json"
            lake.put(pointer, json.dumps(template | {"location": home, "table-uuid": str(uuid.uuid4())}).encode())
            rows.append(("main", database, f"t{number}", pointer, "TABLE"))
        lake.put(f"{lake.warehouse}/{database}/left/part.parquet")
    with closing(sqlite3.connect(lake.folder / "main.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            "VALUES (?, ?, ?, ?, ?)",
            rows,
        )


def test_each_table_and_manifest_is_read_once(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten databases of a hundred tables in a dry run, and again: what has not moved is read no second time."""
    lake, untracked = local_lake, Untracked(local_lake)
    fill(lake, DATABASES)
    names = [f"d{number}" for number in range(DATABASES)]
    full = DATABASES * WITH_MANIFESTS
    tables = DATABASES * TABLES + 1

    def run(databases: list[str]) -> tuple[dict[str, int], int]:
        ours = lake.open()  # nothing in memory, all in its state
        ours.catalogs["main"].databases()
        with counted(monkeypatch) as reads, statements(ours) as asked:
            found = untracked.run(ours, databases=databases)
        assert {str(one.row.status) for one in found.databases} == {"SUCCESS"}
        assert {one.row.candidate_folder_count for one in found.databases} == {1}
        assert {one.row.active_table_count for one in found.databases} == {TABLES}
        twice = [path for path, times in reads.paths.items() if times > 1]
        assert not twice, "each file is read once"
        return reads.kinds(), len(asked)

    first, asked_first = run(names)
    assert first == {"metadata": tables, "manifest list": full, "manifest": full}
    again, asked_again = run(names)
    assert again == {}
    # For one more database: its location, its names and pointers, its audit row; nothing for any table.
    _, asked_one = run(names[:1])
    assert asked_again - asked_one <= (DATABASES - 1) * 12, (asked_one, asked_again)
    assert asked_first <= asked_again + 30
    assert asked_first < tables / 4

    lake.add(lake.writer.load_table("d3.full0"), f"{lake.warehouse}/d3/full0/data/more.parquet")
    moved, _ = run(names)
    assert moved == {"metadata": 1, "manifest list": 2, "manifest": 1}, "lists are not kept between processes"


@pytest.mark.parametrize("rest_catalog", ["rest"], indirect=True)
def test_a_service_is_asked_once_for_each_table(rest_catalog: AnyCatalog, tmp_path: Path) -> None:
    """However many databases the run has; and once for each database, and for its names."""
    databases = [f"d{number}" for number in range(5)]
    for database in databases:
        rest_catalog.writer.create_namespace(database)
        for number in range(4):
            table = rest_catalog.writer.create_table(f"{database}.t{number}", SCHEMA)
    place = Location.parse(table.location())
    own = {"lakehouse-maintenance.warehouse": place.with_key("/".join(place.segments[:-2])).text}
    address = urlsplit(rest_catalog.properties["uri"])
    file = tmp_path / "application.json"
    file.write_text(json.dumps({"catalog": "main", "databases": databases, "older_than_hours": 0}))
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        ours = lakehouse(tmp_path, rest_catalog.behind(proxy.endpoint) | own)
        ours.untracked_folders(file)  # makes the audit table
        proxy.seen.clear()
        run = ours.untracked_folders(file)
    assert {str(one.row.status) for one in run.databases} == {"SUCCESS"}
    asked = Counter(
        re.sub(r"^.*/namespaces/", "", request.target.partition("?")[0])
        for request in proxy.seen
        if request.method == "GET" and "/namespaces/d" in request.target
    )
    loads = {name: times for name, times in asked.items() if "/tables/" in name}
    assert loads == {f"{database}/tables/t{number}": 1 for database in databases for number in range(4)}
    assert {asked[database] for database in databases} == {1}
    assert {asked[f"{database}/tables"] for database in databases} == {1}
