"""The discovery sensor: partitions follow complete listings, and nothing else."""

from __future__ import annotations

import json

import pytest

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.catalogs.sql import SqlCatalog
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration import discovering
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME, register
from lakehouse_maintenance_tests.orchestration.lake import Lake
from lakehouse_maintenance_tests.orchestration.ticking import message, point, tick

DISCOVER = "discover_tables"


def partitions(lake: Lake) -> set[str]:
    return set(lake.instance.get_dynamic_partitions(TABLES_NAME))


def databases(lake: Lake, written: str) -> None:
    lake.config.write_text(lake.config.read_text().replace('databases: {main: ["*"]}', f"databases: {written}"))


def namespaces(lake: Lake, *names: str, tables: int = 1) -> None:
    """Databases whose tables nobody can read, which discovery does not need."""
    for name in names:
        lake.catalog.create_namespace_if_not_exists(name)
        point(lake, {f"t{number:04}": "file:///nowhere" for number in range(tables)}, name)


@pytest.mark.requirement("DG-05")
def test_new_tables_come_dropped_ones_go_and_what_is_not_known_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces(lake, "a", "b", tables=2)
    tick(lake, DISCOVER)
    assert partitions(lake) == {"main.a.t0000", "main.a.t0001", "main.b.t0000", "main.b.t0001"}

    lake.catalog.drop_table("a.t0000")
    lake.catalog.drop_table("b.t0000")
    namespaces(lake, "c")

    real = SqlCatalog.tables

    def only_a_part(self: SqlCatalog, namespace: tuple[str, ...]) -> object:
        return Incomplete("the second page of b is missing", 1) if namespace == ("b",) else real(self, namespace)

    monkeypatch.setattr(SqlCatalog, "tables", only_a_part)
    told = message(tick(lake, DISCOVER))
    assert partitions(lake) == {"main.a.t0001", "main.b.t0000", "main.b.t0001", "main.c.t0000"}
    assert "the second page of b is missing" in told
    monkeypatch.setattr(SqlCatalog, "tables", real)

    (lake.folder / "main.db").rename(lake.folder / "away.db")
    before = partitions(lake)
    told = message(tick(lake, DISCOVER))
    assert partitions(lake) == before
    assert "main.db" in told
    (lake.folder / "away.db").rename(lake.folder / "main.db")

    tick(lake, DISCOVER)
    assert partitions(lake) == {"main.a.t0001", "main.b.t0001", "main.c.t0000"}


def test_the_tables_of_a_dropped_database_go_when_the_catalog_lists_its_databases_to_the_end(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces(lake, "a", "b")
    tick(lake, DISCOVER)
    lake.catalog.drop_table("b.t0000")
    lake.catalog.drop_namespace("b")

    monkeypatch.setattr(Catalog, "databases", lambda self: Incomplete("databases are not known", 0))
    told = message(tick(lake, DISCOVER))
    assert partitions(lake) == {"main.a.t0000", "main.b.t0000"}
    assert "databases are not known" in told
    monkeypatch.undo()

    told = message(tick(lake, DISCOVER))
    assert partitions(lake) == {"main.a.t0000"}
    assert "has no database main.b" in told


def test_only_listed_databases_are_touched_and_others_are_told(lake: Lake) -> None:
    namespaces(lake, "a", "b", "c")
    databases(lake, "{main: [a]}")
    register(lake.instance, [TableName("main", ("b",), "gone"), TableName("elsewhere", ("x",), "y")])

    told = message(tick(lake, DISCOVER))

    assert partitions(lake) == {"main.a.t0000", "main.b.gone", "elsewhere.x.y"}
    assert "not listed under databases in lakehouse.yaml: main.b (1 tables), main.c (1 tables)" in told


def test_nothing_listed_touches_nothing(lake: Lake) -> None:
    namespaces(lake, "a")
    databases(lake, "{}")

    tick(lake, DISCOVER)

    assert partitions(lake) == set()


def test_views_and_odd_names_are_no_trouble(lake: Lake) -> None:
    namespaces(lake, "a")
    point(lake, {"we.ird `é": "file:///nowhere"}, "a")

    tick(lake, DISCOVER)
    tick(lake, DISCOVER)

    assert partitions(lake) == {"main.a.t0000", TableName("main", ("a",), "we.ird `é").partition_key}


def test_ticks_are_small_and_go_on_where_the_last_one_ended(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovering, "MOST_CHANGES", 4)
    namespaces(lake, "a", "b", "c", tables=3)

    first = tick(lake, DISCOVER)
    assert len(partitions(lake)) == 4
    assert json.loads(first.cursor or "") == ["main", "b"]
    assert "the next tick goes on" in message(first)
    second = tick(lake, DISCOVER, first.cursor)
    assert len(partitions(lake)) == 8
    third = tick(lake, DISCOVER, second.cursor)
    assert len(partitions(lake)) == 9
    assert third.cursor == ""

    monkeypatch.setattr(discovering, "SECONDS", -1.0)
    late = tick(lake, DISCOVER)
    assert json.loads(late.cursor or "") == ["main", "a"], "out of time before the first database"
