"""A table of which nobody can tell what it owns: its whole database is kept, and others go on (UF-15)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from lakehouse_maintenance.model.folders import FolderRun
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, of, only, verdicts

Edit = Callable[[dict[str, Any]], object]


def properties(**changed: str) -> Edit:
    named = {key.replace("__", "-").replace("_", "."): value for key, value in changed.items()}
    return lambda document: document["properties"].update(named)


def location(text: str) -> Edit:
    return lambda document: document.update(location=text)


CAUSES: dict[str, tuple[Edit | bytes | None, str]] = {
    "metadata that is not there": (None, "metadata"),
    "metadata that is no metadata": (b"{}", "odd"),
    "metadata that is cut": (b'{"format-version": 2, ', "odd"),
    "no location": (lambda document: document.pop("location"), "location"),
    "a blank location": (location("  "), "location is blank"),
    "a relative location": (location("wh/db/odd"), "no scheme and bucket"),
    "a location without a bucket": (location("s3:///db/odd"), "no scheme and bucket"),
    "properties that are none": (lambda document: document.update(properties=[1]), "odd"),
    "gc.enabled false": (properties(gc_enabled="false"), "gc.enabled"),
    "gc.enabled anything": (properties(gc_enabled="yes"), "gc.enabled"),
    "a location provider": (properties(write_location__provider_impl="com.example.P"), "location-provider"),
    "a blank data path": (properties(write_data_path=" "), "write.data.path is blank"),
    "a bare metadata path": (properties(write_metadata_path="/metadata"), "write.metadata.path has no scheme"),
    "a relative object path": (properties(write_object__storage_path="objects"), "write.object-storage.path"),
    "a blank folder path": (properties(write_folder__storage_path=""), "write.folder-storage.path is blank"),
}


def make_odd(lake: Lake, how: Edit | bytes | None, name: str = "db.odd", **options: Any) -> None:
    """A table that the catalog lists, with metadata that PyIceberg lets nobody write."""
    pointer = lake.table(name, **options).metadata_location
    if how is None:
        lake.remove(pointer)
    elif isinstance(how, bytes):
        lake.put(pointer, how)
    else:
        document = json.loads(lake.read(pointer))
        how(document)
        lake.put(pointer, json.dumps(document).encode())


def leave(lake: Lake, database: str) -> str:
    """A database with one table, and a folder of a dropped one, which is returned."""
    lake.table(f"{database}.live")
    table = lake.table(f"{database}.gone")
    lake.writer.drop_table(f"{database}.gone")
    return str(table.location())


def status(run: FolderRun, database: str) -> tuple[str, str | None]:
    row = of(run, database).row
    return str(row.status), row.status_reason


def assert_is_kept(untracked: Untracked, run: FolderRun, gone: str, why: str) -> None:
    """`db` is blocked: what nobody claims is potentially untracked, and is still there."""
    assert status(run, "db") == ("BLOCKED", "unresolved_catalog_ownership")
    result = of(run, "db")
    row = result.row
    assert (row.candidate_folder_count, row.candidate_folders, row.deleted_folder_count) == (0, (), 0)
    assert row.potentially_untracked_folder_count == sum(
        one == "potentially_untracked" for one in verdicts(result).values()
    )
    assert verdicts(result)["gone"] == "potentially_untracked"
    assert verdicts(result)["live"] == "table"
    assert (row.active_table_count, row.unresolved_table_count) == (1, 1)
    ((name, told),) = result.unresolved
    assert name == "main.db.odd"
    assert why in told
    assert why in str(row.error_message)
    assert result.digest is None
    assert untracked.there(gone)
    assert "POTENTIALLY UNTRACKED STORAGE FOLDERS" in run.report
    assert "TABLES WHOSE STORAGE LOCATION COULD NOT BE RESOLVED" in run.report


@pytest.mark.requirement("UF-15")
@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause(local_lake: Lake, cause: str) -> None:
    """With deletion switched on; another database of the run is cleaned all the same."""
    how, why = CAUSES[cause]
    kept, goes = leave(local_lake, "db"), leave(local_lake, "x")
    make_odd(local_lake, how)
    untracked = Untracked(local_lake)
    run = untracked.delete(databases=["db", "x"])
    assert_is_kept(untracked, run, kept, why)
    assert status(run, "x") == ("SUCCESS", None)
    assert of(run, "x").row.deleted_folders == (goes,)
    rows = {row["database_name"]: row for row in untracked.audit()}
    assert (rows["db"]["status"], rows["db"]["status_reason"]) == ("BLOCKED", "unresolved_catalog_ownership")
    assert (rows["db"]["unresolved_table_count"], rows["db"]["potentially_untracked_folder_count"]) == (
        1,
        of(run, "db").row.potentially_untracked_folder_count,
    )


@pytest.mark.requirement("UF-15")
@pytest.mark.parametrize("cause", ["metadata that is not there", "a blank location", "gc.enabled false"])
def test_both_ways_to_run(lake: Lake, cause: str) -> None:
    """A dry run says the same, and tells nothing to review; resolved again, the folder is a candidate."""
    how, why = CAUSES[cause]
    gone = leave(lake, "db")
    make_odd(lake, how)
    untracked = Untracked(lake)
    ours = lake.open()
    for run in (untracked.run(ours), untracked.delete(ours)):
        assert_is_kept(untracked, run, gone, why)
    assert ours.review_of("main.db") is None
    lake.writer.drop_table("db.odd")
    found = only(untracked.run(ours))
    assert (str(found.row.status), set(found.row.candidate_folders)) == ("SUCCESS", {gone, f"{untracked.root}/odd"})


@pytest.mark.requirement("UF-15")
def test_a_row_without_metadata(local_lake: Lake) -> None:
    """The catalog lists the table, and tells nothing of it."""
    gone = leave(local_lake, "db")
    local_lake.table("db.odd")
    with closing(sqlite3.connect(local_lake.folder / "main.db")) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = NULL WHERE table_name = 'odd'")
    untracked = Untracked(local_lake)
    goes = leave(local_lake, "x")
    run = untracked.delete(databases=["db", "x"])
    assert_is_kept(untracked, run, gone, "metadata location")
    assert of(run, "x").row.deleted_folders == (goes,)


@pytest.mark.requirement("UF-15")
def test_a_table_of_another_format(local_lake: Lake) -> None:
    """What a catalog lists beside tables and views is somebody's storage too, and nobody knows which."""
    gone = leave(local_lake, "db")
    with closing(sqlite3.connect(local_lake.folder / "main.db")) as connection, connection:
        connection.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            "VALUES ('main', 'db', 'odd', 's3://lake/new', 'TOPIC')"
        )
    untracked = Untracked(local_lake)
    assert_is_kept(untracked, untracked.delete(), gone, "another format")


# --- other databases


@pytest.mark.requirement("UF-15")
@pytest.mark.parametrize("place", ["{wh}/x/odd", "{wh}/x/deep/odd", "{wh}/x", "{wh}"])
def test_another_database_whose_root_meets_the_unresolved_table(local_lake: Lake, place: str) -> None:
    """One that does not meet it goes on."""
    lake = local_lake
    kept, goes = leave(lake, "x"), leave(lake, "y")
    apart = place == "{wh}"
    make_odd(
        lake,
        properties(gc_enabled="false"),
        location=place.format(wh=lake.warehouse),
        properties={"write.metadata.path": f"{lake.root}apart/odd"},
    )
    untracked = Untracked(lake)
    run = untracked.delete(databases=["x", "y"])
    assert status(run, "x") == ("BLOCKED", "other_database_storage_unknown")
    assert "main.db.odd" in str(of(run, "x").row.error_message)
    assert untracked.there(kept)
    expected = ("BLOCKED", "other_database_storage_unknown") if apart else ("SUCCESS", None)
    assert status(run, "y") == expected
    assert of(run, "y").row.deleted_folders == (() if apart else (goes,))


@pytest.mark.requirement("UF-15")
def test_an_unknown_location_is_where_its_database_lies(lake: Lake) -> None:
    """Of the unreadable table nothing is known but its database, which lies around `x` and beside `y`."""
    lake.writer.create_namespace("around", {"location": f"{lake.warehouse}/part"})
    lake.writer.create_namespace("x", {"location": f"{lake.warehouse}/part/x"})
    kept, goes = leave(lake, "x"), leave(lake, "y")
    make_odd(lake, None, "around.odd", location=f"{lake.root}apart/odd")
    untracked = Untracked(lake)
    run = untracked.delete(databases=["x", "y"])
    assert status(run, "x") == ("BLOCKED", "other_database_storage_unknown")
    assert untracked.there(kept)
    assert (status(run, "y"), of(run, "y").row.deleted_folders) == (("SUCCESS", None), (goes,))


@pytest.mark.requirement("UF-15")
def test_a_known_location_is_enough(local_lake: Lake) -> None:
    """Only its write path is blank: it lies apart from `x`, wherever its database lies."""
    lake = local_lake
    lake.writer.create_namespace("around", {"location": lake.warehouse})
    goes = leave(lake, "x")
    make_odd(lake, properties(write_data_path=" "), "around.odd", location=f"{lake.root}apart/odd")
    run = Untracked(lake).delete(databases=["x"])
    assert (status(run, "x"), of(run, "x").row.deleted_folders) == (("SUCCESS", None), (goes,))


@pytest.mark.requirement("UF-15")
def test_an_unreadable_table_of_another_catalog(local_lake: Lake) -> None:
    """Its metadata is gone: where its database lies by default, nothing is removed; elsewhere it is."""
    lake = local_lake
    kept, goes = leave(lake, "x"), leave(lake, "y")
    side, settings = lake.another_catalog("side")
    side.create_namespace("x")
    table = side.create_table("x.odd", lake.writer.load_table("x.live").schema(), location=f"{lake.root}apart/odd")
    lake.remove(table.metadata_location)
    untracked = Untracked(lake)
    run = untracked.delete(lake.open(catalogs={"side": settings}), databases=["x", "y"])
    assert status(run, "x") == ("BLOCKED", "other_database_storage_unknown")
    assert "side.x.odd" in str(of(run, "x").row.error_message)
    assert untracked.there(kept)
    assert of(run, "y").row.deleted_folders == (goes,)
