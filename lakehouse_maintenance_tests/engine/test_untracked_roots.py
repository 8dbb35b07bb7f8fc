"""Where folders are looked for: the cleanup root, and the roots that are shown for review and never touched."""

from __future__ import annotations

import pytest

from lakehouse_maintenance.model.folders import DatabaseResult
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, only, verdicts


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    return Untracked(lake)


def told(result: DatabaseResult) -> tuple[str, str | None]:
    return str(result.row.status), result.row.status_reason


def roots(result: DatabaseResult) -> dict[str, tuple[str, str, str | None]]:
    """Root → origin, status, and why it is not scanned; without a `/` at its end."""
    return {one.path.rstrip("/"): (one.origin, str(one.status), one.reason) for one in result.roots}


def unmatched(result: DatabaseResult) -> set[str]:
    return {path for one in result.roots for path in one.unmatched}


def leave(lake: Lake, folder: str) -> str:
    """A folder that nobody owns."""
    lake.put(f"{folder}/data/part.parquet")
    return folder


# --- the cleanup root


@pytest.mark.requirement("UF-07")
def test_the_parent_that_all_tables_share(untracked: Untracked) -> None:
    """Only there folders go; what lies in the database beside it is shown."""
    lake = untracked.lake
    for name in ("a", "b"):
        lake.table(f"db.{name}", location=f"{untracked.root}/in/{name}")
    inside, beside = leave(lake, f"{untracked.root}/in/left"), leave(lake, f"{untracked.root}/left")
    found = only(untracked.delete())
    assert told(found) == ("SUCCESS", None)
    assert found.row.storage_scan_location == f"{untracked.root}/in"
    assert found.row.deleted_folders == (inside,)
    assert roots(found)[untracked.root] == ("database_location", "scanned", None)
    assert unmatched(found) == {beside}
    assert untracked.there(beside)


@pytest.mark.requirement("UF-07", "UF-08")
def test_tables_with_several_parents(untracked: Untracked) -> None:
    """The database location is the root then, and what it does not cover is told."""
    lake = untracked.lake
    lake.table("db.a")
    deep = str(lake.table("db.b", location=f"{untracked.root}/in/b").location())
    far = str(lake.table("db.far", location=f"{lake.root}apart/far").location())
    left, hidden = leave(lake, f"{untracked.root}/left"), leave(lake, f"{lake.root}apart/left")
    found = only(untracked.delete())
    assert told(found) == ("SUCCESS", "partial_scan_coverage")
    assert found.row.storage_scan_location == untracked.root
    assert verdicts(found) == {"a": "table", "in": "table", "left": "candidate"}
    assert found.row.deleted_folders == (left,)
    assert found.outside_root == (("main.db.far", far),)
    assert found.row.diagnostic_details["outside_cleanup_root"] == [far]
    assert found.outside_every_root == (("main.db.far", far),)
    assert roots(found) == {
        untracked.root: ("cleanup_root", "scanned", None),
        deep.rpartition("/")[0]: ("table_parent", "scanned", None),
        f"{lake.root}apart": ("table_parent", "not_scanned", "outside_database_boundary"),
    }
    assert untracked.there(hidden)
    (row,) = untracked.audit()
    assert (row["status"], row["status_reason"]) == ("SUCCESS", "partial_scan_coverage")
    assert "TABLE LOCATIONS OUTSIDE THE SCANNED ROOT" in untracked.run().report
    lake.writer.drop_table("db.far")
    assert told(only(untracked.run())) == ("SUCCESS", None)


@pytest.mark.requirement("UF-07", "UF-23", "UF-27", "UF-29")
@pytest.mark.parametrize("tables_in", ["hive", "hive.db"])
def test_a_database_whose_location_ends_in_db(untracked: Untracked, tables_in: str) -> None:
    """Its tables may lie in either folder; folders go from that one alone, and the other is shown."""
    lake = untracked.lake
    other_in = "hive" if tables_in == "hive.db" else "hive.db"
    spelled = lake.warehouse.replace("s3://", "s3a://")
    lake.writer.create_namespace("hive", {"location": f"{spelled}/hive.db"})
    lake.table("hive.t", location=f"{lake.warehouse}/{tables_in}/t")
    goes, kept = leave(lake, f"{lake.warehouse}/{tables_in}/left"), leave(lake, f"{lake.warehouse}/{other_in}/left")
    found = only(untracked.delete(databases=["hive"]))
    assert told(found) == ("SUCCESS", None)
    assert found.row.storage_scan_location == f"{spelled}/{tables_in}", "as the catalog spells the database"
    assert found.row.deleted_folders == (f"{spelled}/{tables_in}/left",)
    assert not untracked.there(goes)
    assert untracked.there(kept)
    assert unmatched(found) == {f"{spelled}/{other_in}/left"}
    assert roots(found) == {
        f"{spelled}/{tables_in}": ("cleanup_root", "scanned", None),
        f"{spelled}/{other_in}": ("database_location", "scanned", None),
    }


@pytest.mark.requirement("UF-27")
def test_names_differ_by_case(untracked: Untracked) -> None:
    untracked.lake.table("db.orders")
    left = leave(untracked.lake, f"{untracked.root}/ORDERS")
    found = only(untracked.delete())
    assert verdicts(found) == {"ORDERS": "candidate", "orders": "table"}
    assert found.row.deleted_folders == (left,)
    assert untracked.lake.writer.load_table("db.orders").scan().to_arrow().num_rows == 1


# --- roots for review


@pytest.mark.requirement("UF-06", "UF-23")
def test_roots_for_review(untracked: Untracked) -> None:
    """All three origins, with what nobody owns in them; exclusions hold there too, and nothing of it goes."""
    lake = untracked.lake
    lake.writer.create_namespace("sales", {"location": f"{lake.root}own/sales"})
    lake.table("sales.a", location=f"{lake.root}own/sales/in/a")
    for name in ("b", "c"):
        lake.table(f"sales.{name}", location=f"{lake.root}approved/{name}")
    lake.table("sales.d", location=f"{lake.root}own/sales/more/d")
    shown = {
        leave(lake, f"{place}/left")
        for place in (f"{lake.root}approved", f"{lake.warehouse}/sales", f"{lake.root}own/sales/more")
    }
    for place in (f"{lake.root}approved", f"{lake.warehouse}/sales"):
        leave(lake, f"{place}/archive")
        leave(lake, f"{place}/_temporary")
    leave(lake, f"{lake.warehouse}/sales/kept")
    before = lake.objects()
    found = only(
        untracked.delete(
            databases=["sales"],
            exclude_database_folders=["sales.archive"],
            exclude_paths=[f"{lake.warehouse}/sales/kept"],
            report_only_storage_roots={"sales": [f"{lake.root}approved"]},
        )
    )
    assert told(found) == ("SUCCESS", "partial_scan_coverage")
    assert roots(found) == {
        f"{lake.root}own/sales": ("cleanup_root", "scanned", None),
        f"{lake.warehouse}/sales": ("namespace_folder", "scanned", None),
        f"{lake.root}approved": ("approved", "scanned", None),
        f"{lake.root}own/sales/in": ("table_parent", "scanned", None),
        f"{lake.root}own/sales/more": ("table_parent", "scanned", None),
    }
    assert unmatched(found) == shown
    assert found.outside_every_root == ()
    assert found.row.candidate_folder_count == 0
    assert before <= lake.objects()
    assert set(found.row.excluded_paths) >= {
        f"{place}/archive" for place in (f"{lake.root}own/sales", f"{lake.root}approved", f"{lake.warehouse}/sales")
    }


@pytest.mark.requirement("UF-23")
def test_roots_that_are_absent_or_do_not_list(untracked: Untracked) -> None:
    """That keeps nothing of the cleanup root from going."""
    lake = untracked.lake
    lake.writer.create_namespace("sales", {"location": f"{lake.root}own/sales.db"})
    lake.table("sales.a")
    far = "file:///" + "x" * 300 if lake.is_local else "s3://no-such-bucket/far"
    pointer = lake.table("sales.b", commits=0).metadata_location
    lake.put(pointer, lake.read(pointer).replace(f"{lake.root}own/sales.db/b".encode(), f"{far}/b".encode()))
    left = leave(lake, f"{lake.root}own/sales.db/left")
    found = only(untracked.delete(databases=["sales"], report_only_storage_roots={"sales": [far]}))
    listed = roots(found)
    assert listed[far] == ("approved", "listing_failed", None)
    assert listed[f"{lake.root}own/sales"] == ("database_location", "absent", None)
    assert listed[f"{lake.warehouse}/sales"] == ("namespace_folder", "absent", None)
    (failed,) = [one for one in found.roots if one.status == "listing_failed"]
    assert failed.error
    assert left in found.row.deleted_folders


@pytest.mark.requirement("UF-23")
def test_roots_that_are_not_scanned(local_lake: Lake) -> None:
    """Every reason; the unit tests have more of each."""
    lake, untracked = local_lake, Untracked(local_lake)
    home = f"{lake.warehouse}/sub/sales"
    lake.writer.create_namespace("sales", {"location": home})
    for name, place in {
        "a": f"{home}/a",
        "nested": f"{home}/a/nested/t",
        "outside": f"{lake.root}apart/t",
        "at_warehouse": f"{lake.warehouse}/t",
    }.items():
        lake.table(f"sales.{name}", location=place)
    approved = ["file:///", f"{lake.warehouse}/sub", f"{lake.root}empty", "hdfs://host/x", "nowhere"]
    for number in range(27):
        lake.table(f"sales.t{number:02}", location=f"{home}/many{number:02}/t", commits=0)
    found = only(untracked.run(databases=["sales"], report_only_storage_roots={"sales": approved}))
    assert told(found) == ("SUCCESS", "partial_scan_coverage")
    why = {one.path: str(one.reason) for one in found.roots if one.status == "not_scanned"}
    assert why == {
        "file:///": "bucket_root",
        f"{lake.warehouse}/sub": "contains_database_storage",
        f"{lake.root}empty": "no_visible_table",
        "hdfs://host/x": "invalid_location",
        "nowhere": "invalid_location",
        f"{home}/a/nested": "inside_table_location",
        f"{lake.root}apart": "outside_database_boundary",
        lake.warehouse: "contains_warehouse_root",
        f"{home}/many24": "root_limit_reached",
        f"{home}/many25": "root_limit_reached",
        f"{home}/many26": "root_limit_reached",
    }
    assert len([one for one in found.roots if one.status != "not_scanned"]) == 1 + 25
    assert set(found.outside_every_root) == {
        ("main.sales.outside", f"{lake.root}apart/t"),
        ("main.sales.at_warehouse", f"{lake.warehouse}/t"),
    }


@pytest.mark.requirement("UF-24", "UF-43")
def test_a_database_at_the_warehouse_root(untracked: Untracked) -> None:
    """It is never cleaned, and can be reviewed: of other databases nothing is shown but what nobody owns."""
    lake = untracked.lake
    lake.writer.create_namespace("default", {"location": lake.warehouse})
    lake.table("default.a")
    lake.table("db.t")
    left, theirs = leave(lake, f"{lake.warehouse}/left"), leave(lake, f"{untracked.root}/left")
    run = untracked.delete(databases=["default"])
    found = only(run)
    assert told(found) == ("SKIPPED", "database_location_contains_warehouse_root")
    assert found.row.storage_scan_location is None
    assert roots(found)[lake.warehouse] == ("database_location", "scanned", None)
    assert unmatched(found) == {left}
    assert {left, theirs} <= {path.rpartition("/data/")[0] for path in lake.objects()}
    assert "STORAGE ROOT REPORT" in run.report
    assert "CLEANUP REPORT" not in run.report
    assert left in run.report
    assert (found.row.candidate_folder_count, found.row.deleted_folder_count, found.digest) == (0, 0, None)


@pytest.mark.requirement("UF-24")
@pytest.mark.parametrize("reason", ["database_location_is_bucket_root", "scan_root_outside_database_boundary"])
def test_other_refusals_that_show_roots(untracked: Untracked, reason: str) -> None:
    lake = untracked.lake
    is_bucket = reason == "database_location_is_bucket_root"
    bucket = "file:///" if lake.is_local else lake.root
    lake.writer.create_namespace("odd", {"location": bucket if is_bucket else f"{lake.root}own/odd"})
    for name in ("a", "b"):
        lake.table(f"odd.{name}", location=f"{lake.root}apart/{name}")
    approved = [f"{lake.root}apart"]
    apart, mine = leave(lake, f"{lake.root}apart/left"), leave(lake, f"{lake.warehouse}/odd/left")
    own = leave(lake, f"{lake.root}own/odd/left")
    before = lake.objects()
    run = untracked.delete(databases=["odd"], report_only_storage_roots={"odd": approved})
    found = only(run)
    assert told(found) == ("SKIPPED", reason)
    assert unmatched(found) == ({apart, mine} if is_bucket else {apart, mine, own})
    assert roots(found)[f"{lake.root}apart"] == ("approved", "scanned", None)
    if is_bucket:
        assert roots(found)[bucket.rstrip("/")] == ("database_location", "not_scanned", "bucket_root")
    assert before <= lake.objects()
    assert "STORAGE ROOT REPORT" in run.report
    # Other refusals list nothing.
    lake.writer.create_namespace("bare", {"location": "nowhere"})
    assert only(untracked.run(databases=["bare"])).roots == ()
