"""Which roots beside the cleanup root are shown for review, and why others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakehouse_maintenance.model.folders import NotScanned, Reason
from lakehouse_maintenance.planning.storage_roots import MOST_ROOTS, roots_to_list
from lakehouse_maintenance.planning.untracked_folders import (
    Assessment,
    assess,
)
from lakehouse_maintenance_tests.folder_facts import HOME, WAREHOUSE, at, facts


def listed(*approved: str, **changed: Any) -> tuple[dict[str, str], dict[str, NotScanned | None]]:
    """Root → origin, and root → why it is not listed."""
    known = facts(**changed)
    chosen, refused = roots_to_list(known, assess(known), approved)
    return {one.text: origin for one, origin in chosen}, {one.path: one.reason for one in refused}


@pytest.mark.requirement("UF-23")
def test_the_three_origins() -> None:
    """What the cleanup root is, is no root of its own."""
    chosen, refused = listed(
        "s3://far/ext",
        location=f"{HOME}.db",
        namespace_folder=f"{WAREHOUSE}/spaces/db",
        tables=at(f"{HOME}.db/in/a", "s3://far/ext/b", f"{HOME}.db/in/c", f"{HOME}/d/e"),
    )
    assert chosen == {
        HOME: "database_location",
        f"{WAREHOUSE}/spaces/db": "namespace_folder",
        "s3://far/ext": "approved",
        f"{HOME}.db/in": "table_parent",
        f"{HOME}/d": "table_parent",
    }
    assert refused == {}


@pytest.mark.requirement("UF-23")
@pytest.mark.parametrize(
    ("approved", "tables", "root_of", "why"),
    [
        ([], ["s3://far/ext/b"], "s3://far/ext", NotScanned.OUTSIDE_DATABASE_BOUNDARY),
        ([], [f"{HOME}_2/b"], f"{HOME}_2", NotScanned.OUTSIDE_DATABASE_BOUNDARY),
        ([], ["s3://far/b"], "s3://far/", NotScanned.BUCKET_ROOT),
        ([], [f"{WAREHOUSE}/b"], WAREHOUSE, NotScanned.CONTAINS_WAREHOUSE_ROOT),
        ([], [f"{HOME}/a/nested"], f"{HOME}/a", NotScanned.INSIDE_TABLE_LOCATION),
        (["s3://lake/own"], ["s3://lake/own/b"], "s3://lake/own", NotScanned.CONTAINS_DATABASE_STORAGE),
        (["s3://far/ext"], [], "s3://far/ext", NotScanned.NO_VISIBLE_TABLE),
        (["far/ext"], [], "far/ext", NotScanned.INVALID_LOCATION),
        (["hdfs://far/ext"], ["hdfs://far/ext/b"], "hdfs://far/ext", NotScanned.INVALID_LOCATION),
        (["s3://far"], ["s3://far/ext/b"], "s3://far", NotScanned.BUCKET_ROOT),
        (["s3://lake/"], [], "s3://lake/", NotScanned.BUCKET_ROOT),
        ([f"{HOME}/a"], [], f"{HOME}/a", NotScanned.INSIDE_TABLE_LOCATION),
    ],
)
def test_why_a_root_is_not_scanned(approved: list[str], tables: list[str], root_of: str, why: NotScanned) -> None:
    _, refused = listed(*approved, tables=at(f"{HOME}/a", *tables), namespace_folder="s3://lake/own/spaces/db")
    assert refused.get(root_of) is why, refused


@pytest.mark.requirement("UF-23")
def test_twenty_five_roots_at_most() -> None:
    tables = at(f"{HOME}/a", *(f"{HOME}/in{number:02}/t" for number in range(MOST_ROOTS + 2)))
    chosen, refused = listed(tables=tables)
    assert MOST_ROOTS == 25
    assert len(chosen) == MOST_ROOTS
    assert refused == {
        f"{HOME}/in25": NotScanned.ROOT_LIMIT_REACHED,
        f"{HOME}/in26": NotScanned.ROOT_LIMIT_REACHED,
    }


@pytest.mark.requirement("UF-43")
def test_a_database_at_the_warehouse_root_is_listed_for_review() -> None:
    known = facts(location=WAREHOUSE, tables=at(f"{WAREHOUSE}/a"), namespace_folder=HOME)
    found: Assessment = assess(known)
    assert (found.reason, found.root) == (Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT, None)
    chosen, refused = roots_to_list(known, found, [])
    assert [(one.text, origin) for one, origin in chosen] == [
        (WAREHOUSE, "database_location"),
        (HOME, "namespace_folder"),
    ]
    assert refused == []
    above = replace(known, location="s3://lake/above", warehouse="s3://lake/above/wh")
    chosen, refused = roots_to_list(above, assess(above), [])
    assert (refused[0].path, refused[0].reason) == ("s3://lake/above", NotScanned.CONTAINS_WAREHOUSE_ROOT)
