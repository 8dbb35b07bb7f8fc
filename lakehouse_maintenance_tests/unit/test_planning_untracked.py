"""Which folders of a database may go, decided over facts alone: every refusal, their order, and what protects a folder.

Real catalogs and stores: engine/test_untracked_statuses.py and its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from lakehouse_maintenance.model.folders import Reason
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.untracked_folders import (
    DatabaseStorage,
    Stranger,
    TableFacts,
    assess,
)
from lakehouse_maintenance_tests.folder_facts import HOME, WAREHOUSE, at, facts


def reason(**changed: Any) -> Reason | None:
    found = assess(facts(**changed))
    assert (found.reason is None) == (found.message is None)
    return found.reason


def root(**changed: Any) -> str | None:
    found = assess(facts(**changed)).root
    return None if found is None else found.text


# --- the cleanup root


@pytest.mark.requirement("UF-07")
@pytest.mark.parametrize(
    ("location", "tables", "expected"),
    [
        (HOME, (f"{HOME}/a", f"{HOME}/b"), HOME),
        (HOME, (f"{HOME}/in/a", f"{HOME}/in/b/"), f"{HOME}/in"),
        (HOME, (f"{HOME}/a", f"{HOME}/in/b"), HOME),
        (HOME, (f"{HOME}/a", "s3://far/b"), HOME),
        (f"{HOME}.db", (f"{HOME}.db/a",), f"{HOME}.db"),
        (f"{HOME}.db", (f"{HOME}/a", f"{HOME}/b"), HOME),
        (f"{HOME}.db", (f"{HOME}/in/a",), f"{HOME}/in"),
        (f"{HOME}.db", (f"{HOME}/a", f"{HOME}.db/b"), f"{HOME}.db"),
        ("s3a://lake/wh/db/", ("s3n://lake/wh/db/a", "s3://lake/wh/db/b"), "s3a://lake/wh/db/"),
        ("s3a://lake/wh/db", ("s3n://lake/wh/db/in/a", "s3://lake/wh/db/in/b"), "s3a://lake/wh/db/in"),
        ("s3://lake//wh/db", ("s3://lake//wh/db/a", "s3://lake/wh/db/b"), "s3://lake//wh/db"),
        ("file:///wh/db", ("file:/wh/db/a",), "file:///wh/db"),
    ],
)
def test_the_cleanup_root(location: str, tables: tuple[str, ...], expected: str) -> None:
    warehouse = "file:///wh" if location.startswith("file") else WAREHOUSE
    found = assess(facts(location=location, tables=at(*tables), warehouse=warehouse, others=()))
    assert found.reason is None
    assert found.root is not None
    assert (found.root, found.root.text) == (Location.parse(expected), expected)


@pytest.mark.requirement("UF-07")
@pytest.mark.parametrize(
    ("location", "tables"),
    [
        (HOME, ("s3://far/a", "s3://far/b")),
        (HOME, (f"{WAREHOUSE}/a",)),
        (HOME, (HOME,)),
        (HOME, (f"{HOME}_2/a",)),
        (HOME, (f"{HOME}.db/a",)),
        (HOME, ("s3://lake/WH/db/a",)),
        (HOME, ("hdfs://host/wh/db/a",)),
        (f"{HOME}.db", (f"{HOME}.d/a",)),
        (f"{WAREHOUSE}/.db", (f"{WAREHOUSE}/a",)),
        (f"{WAREHOUSE}.db/db", (f"{WAREHOUSE}/a",)),
    ],
)
def test_a_root_outside_of_the_database(location: str, tables: tuple[str, ...]) -> None:
    found = assess(facts(location=location, tables=at(*tables)))
    assert (found.reason, found.root) == (Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY, None)


def test_the_path_without_db_is_not_the_databases_where_the_warehouse_lies_in_it() -> None:
    changed = {"location": "s3://lake/a.db", "warehouse": "s3://lake/a/wh"}
    assert reason(**changed, tables=at("s3://lake/a/t")) is Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY
    assert reason(**changed, tables=at("s3://lake/a.db/t")) is None


@pytest.mark.requirement("UF-08")
def test_tables_outside_of_the_root_are_told() -> None:
    found = assess(facts(tables=at(f"{HOME}/a", f"{HOME}/in/b", "s3://far/c", f"{HOME}_2/d")))
    assert [where.text for _, where in found.outside] == ["s3://far/c", f"{HOME}_2/d"]
    assert not assess(facts()).outside


# --- refusals


@pytest.mark.requirement("UF-09")
@pytest.mark.parametrize(
    "changed",
    [
        {"location": "wh/db"},
        {"location": "/wh/db"},
        {"location": "lake:wh"},
        {"location": "s3:///wh/db"},
        {"location": "hdfs://host/wh/db"},
        {"location": "hdfs:///wh/db"},
        {"location": "oss://lake/wh/db"},
        {"location": "file://host/wh/db"},
        {"location": "file:///wh/../db"},
        {"location": "s3://lake/d\0b"},
        {"warehouse": "wh"},
        {"warehouse": "/wh"},
        {"warehouse": "s3://"},
        {"warehouse": "file:///../wh"},
        {"tables": (*at(f"{HOME}/a"), TableFacts("main.db.odd", "s3://lake/o\0d", "it cannot be", True))},
    ],
)
def test_invalid_storage_locations(changed: dict[str, Any]) -> None:
    assert reason(**changed) is Reason.INVALID_STORAGE_LOCATION


@pytest.mark.requirement("UF-09")
def test_only_the_database_has_to_be_on_supported_storage() -> None:
    assert reason(warehouse="hdfs://host/wh") is None
    assert reason(tables=at(f"{HOME}/a", "hdfs://host/b")) is None


@pytest.mark.requirement("UF-09", "UF-29")
@pytest.mark.parametrize(
    "location",
    ["s3://lake", "s3a://lake/", "s3://lake//", "gs://lake", "abfss://c@a.dfs.core.windows.net/", "file:///"],
)
def test_roots_of_buckets(location: str) -> None:
    assert reason(location=location) is Reason.DATABASE_LOCATION_IS_BUCKET_ROOT


@pytest.mark.requirement("UF-09", "UF-27")
@pytest.mark.parametrize(
    ("location", "contains"),
    [
        (WAREHOUSE, True),
        ("s3a://lake/wh/", True),
        ("s3n://lake//wh", True),
        ("s3://lake/WH", False),
        ("s3://lake/w", False),
        ("s3://lake/wh_2", False),
        ("s3://other/wh", False),
    ],
)
def test_the_warehouse_root(location: str, contains: bool) -> None:
    told = reason(location=location, tables=at(f"{location}/t"))
    assert told is (Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT if contains else None)


@pytest.mark.requirement("UF-27")
@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("s3://lake/wh/db", "s3a://lake/wh/db/t", True),
        ("s3n://lake/wh/db", "s3://lake/wh/db/t", True),
        ("abfs://c@a.dfs.core.windows.net/wh/db", "abfss://c@a.dfs.core.windows.net/wh/db/t", True),
        ("wasb://c@a.blob.core.windows.net/wh/db", "wasbs://c@a.blob.core.windows.net/wh/db/t", True),
        ("gs://lake/wh/db", "gs://lake/wh/db/t", True),
        ("gs://lake/wh/db", "s3://lake/wh/db/t", False),
        ("abfs://c@a.dfs.core.windows.net/wh/db", "abfs://d@a.dfs.core.windows.net/wh/db/t", False),
        ("s3://lake/wh/db", "s3://lake/wh/DB/t", False),
    ],
)
def test_schemes_of_one_place(one: str, two: str, same: bool) -> None:
    warehouse = Location.parse(one).with_key("wh").text
    told = reason(location=one, warehouse=warehouse, tables=at(two), others=())
    assert told is (None if same else Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY)


@pytest.mark.requirement("UF-09")
@pytest.mark.parametrize(
    "tables", [(), (TableFacts("main.db.a", None, "unreadable"),), (TableFacts("main.db.a", "bare/a", "bare"),)]
)
def test_no_table_with_a_readable_location(tables: tuple[TableFacts, ...]) -> None:
    assert reason(tables=tables) is Reason.NO_ACTIVE_TABLES_IN_DATABASE


def test_tables_that_nobody_listed_are_not_no_tables() -> None:
    unlisted = "the catalog did not list its databases"
    found = assess(facts(tables=(), unlisted=unlisted, gaps=(unlisted,)))
    assert (found.reason, found.root) == (Reason.OTHER_DATABASE_STORAGE_UNKNOWN, None)


@pytest.mark.requirement("UF-14")
@pytest.mark.parametrize(
    "changed",
    [
        {"others": (DatabaseStorage("main.x", unknown="it does not answer"),)},
        {"others": (DatabaseStorage("main.x", ("nowhere",)),)},
        {"others": (DatabaseStorage("main.x", ("/x",)),)},
        {"others": (DatabaseStorage("main.x", (f"{WAREHOUSE}/x", "s3://")),)},
        {"gaps": ("catalog side did not list its databases",)},
    ],
)
def test_databases_whose_storage_is_unknown(changed: dict[str, Any]) -> None:
    found = assess(facts(**changed))
    assert (found.reason, found.root) == (Reason.OTHER_DATABASE_STORAGE_UNKNOWN, Location.parse(HOME))


@pytest.mark.requirement("UF-15")
@pytest.mark.parametrize(
    ("place", "blocks"),
    [
        (HOME, True),
        (f"{HOME}/left/deep", True),
        (f"{WAREHOUSE}/", True),
        ("s3a://lake/wh/db/x", True),
        (f"{HOME}_2", False),
        (f"{WAREHOUSE}/x/t", False),
        (None, True),
    ],
)
def test_unresolved_tables_of_other_databases(place: str | None, blocks: bool) -> None:
    stranger = Stranger("main.x.t", "unreadable", () if place is None else (Location.parse(place),))
    assert reason(strangers=(stranger,)) is (Reason.OTHER_DATABASE_STORAGE_UNKNOWN if blocks else None)


@pytest.mark.requirement("UF-16")
def test_no_table_under_the_root() -> None:
    found = assess(facts(tables=at("s3://far/a", "s3://further/b")))
    assert (found.reason, found.root) == (Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE, Location.parse(HOME))


@pytest.mark.requirement("UF-15")
def test_what_is_unresolved_is_known_whatever_else_holds() -> None:
    """Blocked for another reason, nothing in the database is proven untracked all the same."""
    unresolved = TableFacts("main.db.odd", None, "its metadata cannot be read")
    for changed in ({}, {"gaps": ("x",)}, {"tables": at("s3://far/a", "s3://further/b")}):
        sound = facts(**changed)
        found = assess(replace(sound, tables=(*sound.tables, unresolved)))
        assert "main.db.odd: its metadata cannot be read" in str(found.unresolved)
    assert assess(facts()).unresolved is None


# --- the order of reasons

Change = Callable[[dict[str, Any]], None]


def _tables(*places: str) -> Change:
    return lambda made: made.update(located=places)


HOLDS: dict[Reason, Change] = {
    Reason.DATABASE_NOT_FOUND: lambda made: made.update(exists=False),
    Reason.DATABASE_LOCATION_MISSING: lambda made: made.update(location="  "),
    Reason.INVALID_STORAGE_LOCATION: lambda made: made["more"].append(TableFacts("main.db.p", "s3://l/\0", "p", True)),
    Reason.CATALOG_WAREHOUSE_UNKNOWN: lambda made: made.update(warehouse=None),
    Reason.DATABASE_LOCATION_IS_BUCKET_ROOT: lambda made: made.update(location="s3://lake"),
    Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT: lambda made: made.update(location=WAREHOUSE),
    Reason.NO_ACTIVE_TABLES_IN_DATABASE: _tables(),
    Reason.OTHER_DATABASE_STORAGE_UNKNOWN: lambda made: made.update(gaps=("unseen",)),
    Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY: _tables("s3://far/a", "s3://far/b"),
    Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE: _tables("s3://far/a", "s3://further/b"),
    Reason.UNRESOLVED_CATALOG_OWNERSHIP: lambda made: made["more"].append(TableFacts("main.db.u", None, "unreadable")),
}
EXCLUSIVE = {
    frozenset(pair)
    for pair in (
        (Reason.DATABASE_LOCATION_MISSING, Reason.DATABASE_LOCATION_IS_BUCKET_ROOT),
        (Reason.DATABASE_LOCATION_MISSING, Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT),
        (Reason.CATALOG_WAREHOUSE_UNKNOWN, Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT),
        (Reason.NO_ACTIVE_TABLES_IN_DATABASE, Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY),
        (Reason.NO_ACTIVE_TABLES_IN_DATABASE, Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE),
        (Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY, Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE),
    )
}
PAIRS = [pair for pair in combinations(HOLDS, 2) if frozenset(pair) not in EXCLUSIVE]


def with_reasons(*reasons: Reason) -> Reason | None:
    made: dict[str, Any] = {"location": HOME, "located": (f"{HOME}/a",), "more": []}
    for one in reasons:
        HOLDS[one](made)
    if {Reason.DATABASE_LOCATION_IS_BUCKET_ROOT, Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT} <= set(reasons):
        made["location"] = "s3://lake"  # it contains the warehouse too
    tables = (*at(*made.pop("located")), *made.pop("more"))
    return reason(tables=tables, **made)


@pytest.mark.requirement("UF-30")
@pytest.mark.parametrize("alone", list(HOLDS))
def test_each_reason_alone(alone: Reason) -> None:
    assert with_reasons(alone) is alone


@pytest.mark.requirement("UF-30")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def test_the_first_of_two_reasons_counts(pair: tuple[Reason, Reason]) -> None:
    order = list(Reason)
    assert with_reasons(*pair) is min(pair, key=order.index)
    assert with_reasons(*reversed(pair)) is min(pair, key=order.index)
