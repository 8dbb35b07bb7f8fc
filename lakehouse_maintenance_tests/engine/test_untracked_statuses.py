"""Every status and reason of the source, on real catalogs and stores, with the audit row that says so."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from lakehouse_maintenance.model.folders import FolderRun
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, make_old, of, only, statuses, verdicts


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live")
    return Untracked(lake)


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    local_lake.table("db.live")
    return Untracked(local_lake)


# --- the source's own configurations

DRY_RUN = """{
  "catalog": "spark_catalog",
  "databases": ["analytics"],
  "exclude_paths": [],
  "exclude_database_folders": [],
  "older_than_hours": 24,
  "dry_run": true,
  "delete_enabled": false,
  "max_candidate_folders_per_database": 10
}
"""
DELETE = """{
  "catalog": "spark_catalog",
  "databases": ["analytics"],
  "exclude_paths": [
    "s3a://bucket/data/analytics/protected_table"
  ],
  "exclude_database_folders": [],
  "older_than_hours": 24,
  "dry_run": false,
  "delete_enabled": true,
  "max_candidate_folders_per_database": 5
}
"""


@pytest.mark.requirement("UF-01", "UF-11")
def test_the_sources_examples(local: Untracked) -> None:
    """Its two files, with this lakehouse's names in them: a dry run, and then the deletion."""
    lake = local.lake
    lake.table("analytics.orders")
    places = {}
    for name in ("dropped", "protected_table", "young"):
        places[name] = str(lake.table(f"analytics.{name}").location())
        lake.writer.drop_table(f"analytics.{name}")
    make_old(places["dropped"])
    make_old(places["protected_table"])
    before = lake.objects()

    def run(text: str) -> FolderRun:
        text = text.replace("spark_catalog", "main").replace("s3a://bucket/data", lake.warehouse)
        file = lake.folder / "application.json"
        file.write_text(text)
        return lake.open().untracked_folders(file)

    dry = only(run(DRY_RUN))
    assert statuses(run(DRY_RUN)) == {"analytics": ("SUCCESS", None)}
    assert set(dry.row.candidate_folders) == {places["dropped"], places["protected_table"]}
    assert verdicts(dry)["young"] == "too_young"
    assert before <= lake.objects()
    deleted = only(run(DELETE))
    assert (deleted.row.status, deleted.row.deleted_folders) == ("SUCCESS", (places["dropped"],))
    assert verdicts(deleted) == {
        "dropped": "candidate",
        "orders": "table",
        "protected_table": "excluded",
        "young": "too_young",
    }
    assert not local.there(places["dropped"])
    assert before - lake.objects() == {path for path in before if path.startswith(places["dropped"] + "/")}


# --- SKIPPED


@pytest.mark.requirement("UF-09")
def test_databases_that_are_refused(untracked: Untracked) -> None:
    """Each for its own location, in one run with deletion switched on; nothing of any is touched."""
    lake = untracked.lake
    lake.properties["lakehouse-maintenance.warehouse"] = f"{lake.warehouse}/deep"
    bucket = "file:///" if lake.is_local else f"s3://{Location.parse(lake.warehouse).authority}"
    locations = {
        "bare": "wh/bare",
        "path": "/wh/path",
        "hadoop": "hdfs://namenode:8020/wh/hadoop",
        "broken": "file:///wh/../broken" if lake.is_local else "s3:///broken",
        "bucket": bucket,
        "warehouse": f"{lake.warehouse}/deep/".replace("s3://", "s3a://"),
        "above": lake.warehouse,
        "empty": f"{lake.warehouse}/empty",
        "inferred": None,
    }
    for name, location in locations.items():
        lake.writer.create_namespace(name, {} if location is None else {"location": location})
        if name not in ("empty", "inferred"):
            lake.table(f"{name}.t", location=f"{lake.root}apart/{name}")
        lake.put(f"{lake.warehouse}/{name}/left/data.parquet")
    before = lake.objects()
    run = untracked.delete(databases=[*locations, "nowhere"])
    expected = {
        "bare": "invalid_storage_location",
        "path": "invalid_storage_location",
        "hadoop": "invalid_storage_location",
        "broken": "invalid_storage_location",
        "bucket": "database_location_is_bucket_root",
        "warehouse": "database_location_contains_warehouse_root",
        "above": "database_location_contains_warehouse_root",
        "empty": "no_active_tables_in_database",
        "inferred": "no_active_tables_in_database",
        "nowhere": "database_not_found",
    }
    assert statuses(run) == {name: ("SKIPPED", reason) for name, reason in expected.items()}
    assert untracked.recorded(run) == statuses(run)
    assert run.ok
    assert before <= lake.objects()
    for one in run.databases:
        assert one.row.error_message, "an intended skip says what it is about"
        assert one.row.storage_scan_location is None
        assert (one.row.storage_folder_count, one.row.candidate_folder_count) == (0, 0)
        assert one.row.discovered_database_location == locations.get(
            one.row.database_name
        ) or one.row.database_name in ("inferred", "nowhere")


@pytest.mark.requirement("UF-09")
@pytest.mark.parametrize("warehouse", ["wh", "s3://", "file:///../wh"])
def test_a_warehouse_that_is_no_location(local: Untracked, warehouse: str) -> None:
    local.lake.writer.update_namespace_properties("db", updates={"location": local.root})
    local.lake.properties["lakehouse-maintenance.warehouse"] = warehouse
    run = local.delete()
    assert statuses(run) == local.recorded(run) == {"db": ("SKIPPED", "invalid_storage_location")}
    assert "warehouse" in str(only(run).row.error_message)


@pytest.mark.requirement("UF-09")
def test_a_table_location_that_cannot_be_parsed(untracked: Untracked) -> None:
    untracked.dropped("gone")
    lie_about_location(untracked.lake, "db.odd", "file:///wh/../odd" if untracked.lake.is_local else "s3://lake/o\0d")
    run = untracked.delete()
    assert statuses(run) == untracked.recorded(run) == {"db": ("SKIPPED", "invalid_storage_location")}
    assert "main.db.odd" in str(only(run).row.error_message)


def lie_about_location(lake: Lake, name: str, location: str) -> None:
    """A table whose metadata says something else than PyIceberg lets anybody write."""
    pointer = lake.table(name).metadata_location
    lake.put(pointer, json.dumps(json.loads(lake.read(pointer)) | {"location": location}).encode())


@pytest.mark.requirement("UF-09")
def test_a_catalog_without_a_warehouse(local: Untracked) -> None:
    """Of one database the catalog keeps a location, of the other nothing is left to tell. The audit table has no
    place either, so nothing is recorded, and that is told too."""
    lake = local.lake
    lake.writer.create_namespace("told", {"location": f"{lake.warehouse}/told"})
    lake.table("told.t")
    del lake.properties["warehouse"]
    run = local.run(databases=["db", "told"])
    assert statuses(run) == {
        "db": ("SKIPPED", "database_location_missing"),
        "told": ("SKIPPED", "catalog_warehouse_unknown"),
    }
    assert (run.is_audit_lost, run.ok) == (True, False)


@pytest.mark.requirement("UF-07", "UF-09")
def test_tables_outside_of_their_database(untracked: Untracked) -> None:
    lake = untracked.lake
    lake.writer.create_namespace("out", {"location": f"{lake.warehouse}/out"})
    for name in ("a", "b"):
        lake.table(f"out.{name}", location=f"{lake.root}apart/{name}")
    left = lake.put(f"{lake.root}apart/left/data.parquet")
    here = lake.put(f"{lake.warehouse}/out/here/data.parquet")
    run = untracked.delete(databases=["out"])
    assert statuses(run) == untracked.recorded(run) == {"out": ("SKIPPED", "scan_root_outside_database_boundary")}
    assert {left, here} <= lake.objects()
    assert only(run).row.storage_scan_location is None


@pytest.mark.requirement("UF-10", "UF-30")
def test_too_many_candidates(untracked: Untracked) -> None:
    """They are counted before their age, which would keep them all, and are in the audit row."""
    gone = sorted(untracked.dropped(f"gone_{number}", files=1) for number in range(3))
    told_of = {"max_candidate_folders_per_database": 2, "older_than_hours": 24}
    run = untracked.delete(**told_of)
    assert statuses(run) == {"db": ("SKIPPED", "too_many_candidate_folders")}
    (row,) = [row for row in untracked.audit() if row["run_id"] == run.run_id]
    assert (row["status"], row["status_reason"]) == ("SKIPPED", "too_many_candidate_folders")
    assert (sorted(row["candidate_folders"]), row["candidate_folder_count"]) == (gone, 3)
    assert (row["deleted_folder_count"], row["deleted_folders"]) == (0, [])
    assert all(untracked.there(one) for one in gone)
    fewer = untracked.delete(**told_of, exclude_paths=[gone[0]])
    assert statuses(fewer) == {"db": ("SUCCESS", None)}
    assert sorted(verdicts(only(fewer)).values()) == ["excluded", "table", "too_young", "too_young"]
    # Unresolved ownership comes first.
    untracked.lake.table("db.odd", properties={"gc.enabled": "false"})
    assert statuses(untracked.delete(**told_of)) == {"db": ("BLOCKED", "unresolved_catalog_ownership")}


# --- BLOCKED


@pytest.mark.requirement("UF-16", "UF-30")
def test_no_table_lies_under_the_root(untracked: Untracked) -> None:
    """Its tables have no parent in common and lie elsewhere; what is found is reported, and nothing goes."""
    lake = untracked.lake
    lake.writer.create_namespace("far", {"location": f"{lake.warehouse}/far"})
    for name in ("a", "b"):
        lake.table(f"far.{name}", location=f"{lake.root}apart/{name}/t")
    left = lake.put(f"{lake.warehouse}/far/left/data.parquet")
    run = untracked.delete(databases=["far"])
    assert statuses(run) == untracked.recorded(run) == {"far": ("BLOCKED", "cleanup_root_has_no_visible_table")}
    assert only(run).row.candidate_folders == (f"{lake.warehouse}/far/left",)
    assert only(run).row.deleted_folder_count == 0
    assert left in lake.objects()
    assert "UNTRACKED STORAGE FOLDERS (DELETION BLOCKED)" in run.report
    # With a table that leaves open what it owns, nothing in the database is a candidate any more.
    lake.table("far.odd", location=f"{lake.root}apart/odd", properties={"gc.enabled": "false"})
    again = untracked.delete(databases=["far"])
    assert statuses(again) == {"far": ("BLOCKED", "cleanup_root_has_no_visible_table")}
    row = only(again).row
    assert (row.candidate_folder_count, row.potentially_untracked_folder_count) == (0, 1)


@pytest.mark.requirement("UF-14")
@pytest.mark.parametrize("location", ["nowhere", "/wh/x", "s3://"])
def test_the_location_of_another_database_cannot_be_compared(local: Untracked, location: str) -> None:
    gone = local.dropped("gone")
    local.lake.writer.create_namespace("x", {"location": location})
    run = local.delete()
    assert statuses(run) == local.recorded(run) == {"db": ("BLOCKED", "other_database_storage_unknown")}
    assert "main.x" in str(only(run).row.error_message)
    assert only(run).row.candidate_folders == (gone,)
    assert local.there(gone)


# --- FAILED


@pytest.mark.requirement("UF-20")
def test_storage_that_cannot_be_listed(untracked: Untracked) -> None:
    """A bucket that is not there, a name that no disk has: that database fails with the cause, the next goes on."""
    lake = untracked.lake
    gone = untracked.dropped("gone")
    home = f"{lake.warehouse}/{'lost' * 100}" if lake.is_local else "s3://no-such-bucket/wh/lost"
    lake.writer.create_namespace("lost", {"location": home})
    for name in ("a", "b"):
        lake.table(f"lost.{name}", location=f"{lake.root}apart/{name}/t")
    run = untracked.delete(databases=["lost", "db"])
    assert statuses(run) == {"lost": ("FAILED", "unexpected_error"), "db": ("SUCCESS", None)}
    assert untracked.recorded(run) == statuses(run)
    assert ("lostlost" if lake.is_local else "no-such-bucket") in str(of(run, "lost").row.error_message)
    assert of(run, "db").row.deleted_folders == (gone,)
    assert not run.ok


@pytest.mark.requirement("UF-09")
def test_views_of_a_sql_catalog(local: Untracked) -> None:
    """As Spark's JDBC catalog writes them."""
    lake = local.lake
    lake.writer.create_namespace("views")
    with closing(sqlite3.connect(lake.folder / "main.db")) as connection, connection:
        connection.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            f"VALUES ('main', 'views', 'v', '{lake.warehouse}/views/v/metadata/v.json', 'VIEW')"
        )
    assert statuses(local.run(databases=["views"])) == {"views": ("SKIPPED", "no_active_tables_in_database")}
