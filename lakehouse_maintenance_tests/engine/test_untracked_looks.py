"""What is seen in a folder: its age, its size, its name, and what the audit row tells of it beside."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, folder, make_old, only, statuses, verdicts

DAY = 24 * 3600


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live")
    return Untracked(lake)


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    local_lake.table("db.live")
    return Untracked(local_lake)


@pytest.mark.requirement("UF-11")
def test_the_newest_object_tells_the_age(local: Untracked) -> None:
    """One old object among old ones is not enough; times of 1970 and of the future, and none at all, are no age."""
    lake = local.lake
    for name in ("old", "half", "epoch", "future"):
        lake.put(f"{local.root}/{name}/a/1.parquet")
        lake.put(f"{local.root}/{name}/b/2.parquet")
        make_old(f"{local.root}/{name}")
    Path(Location.parse(f"{local.root}/bare/deep").local_path).mkdir(parents=True)
    for name, moment in (("half", time.time() - 3600), ("epoch", 0), ("future", time.time() + DAY)):
        os.utime(Location.parse(f"{local.root}/{name}/b/2.parquet").local_path, (moment, moment))
    run = local.delete(older_than_hours=24)
    assert verdicts(only(run)) == {
        "bare": "unknown_age",
        "epoch": "unknown_age",
        "future": "unknown_age",
        "half": "too_young",
        "live": "table",
        "old": "candidate",
    }
    assert "age cannot be established" in folder(only(run), "epoch").why
    assert only(run).row.deleted_folders == (f"{local.root}/old",)
    assert len(local.there(f"{local.root}/epoch") | local.there(f"{local.root}/half")) == 4
    assert verdicts(only(local.run(older_than_hours=0.5)))["half"] == "candidate"


@pytest.mark.requirement("UF-11", "UF-12", "UF-28")
def test_folders_of_frameworks_and_young_ones(untracked: Untracked) -> None:
    """Staging folders are left alone however old; a folder written just now is kept; what goes is counted whole."""
    lake = untracked.lake
    names = ("_temporary", ".spark-staging-1", "_spark_metadata", ".hive-staging_hive_1", "_delta_log")
    for name in names:
        lake.put(f"{untracked.root}/{name}/0/part")
    sizes = {"a/1": 3, "a/2": 5, "b/c/3": 7}
    for path, size in sizes.items():
        lake.put(f"{untracked.root}/left/{path}", b"x" * size)
    objects = len(sizes)
    young = untracked.delete(older_than_hours=1)
    assert verdicts(only(young))["left"] == "too_young"
    found, deleted = only(untracked.run()), only(untracked.delete())
    assert verdicts(found) == {"left": "candidate", "live": "table"} | dict.fromkeys(names, "working_folder")
    for row in (found.row, deleted.row):
        assert (row.candidate_object_count, row.candidate_total_size_bytes) == (objects, 15)
        assert row.storage_folder_count == len(names) + 2
    assert (found.row.deleted_object_count, found.row.deleted_total_size_bytes) == (0, 0)
    assert (deleted.row.deleted_object_count, deleted.row.deleted_total_size_bytes) == (objects, 15)
    assert all(untracked.there(f"{untracked.root}/{name}") for name in names)
    (row,) = [row for row in untracked.audit() if row["deleted_folder_count"]]
    assert (row["candidate_object_count"], row["deleted_total_size_bytes"]) == (objects, 15)


@pytest.mark.requirement("UF-06", "UF-27", "UF-31")
def test_exclusions(untracked: Untracked) -> None:
    """By whole segments, under any spelling of the scheme; both forms stand in the audit row."""
    lake = untracked.lake
    for name in ("manual_archive", "manual_archive_v2", "Kept", "kept", "holds", "by_name", "by_name_2"):
        lake.put(f"{untracked.root}/{name}/deep/data.parquet")
    root = untracked.root.replace("s3://", "s3a://")
    paths = [f"{root}/manual_archive", f"{root}/kept/", f"{root}/holds/deep", f"{root}/not/there"]
    run = untracked.delete(exclude_paths=paths, exclude_database_folders=["db.by_name"])
    assert verdicts(only(run)) == {
        "manual_archive": "excluded",
        "manual_archive_v2": "candidate",
        "Kept": "candidate",
        "kept": "excluded",
        "holds": "excluded",
        "by_name": "excluded",
        "by_name_2": "candidate",
        "live": "table",
    }
    assert {one.rpartition("/")[2] for one in only(run).row.deleted_folders} == {
        "manual_archive_v2",
        "Kept",
        "by_name_2",
    }
    (row,) = untracked.audit()
    assert row["excluded_paths"] == [*paths, f"{untracked.root}/by_name"]


# --- what the audit row tells beside


@pytest.mark.requirement("UF-29")
def test_where_a_database_lies(untracked: Untracked) -> None:
    """What the catalog tells counts; where it tells nothing, its own default, which is marked."""
    lake = untracked.lake
    for name, location in (("told", f"{lake.root}elsewhere"), ("hive", f"{lake.warehouse}/hive.db")):
        lake.writer.create_namespace(name, {"location": location})
        lake.table(f"{name}.t")
        lake.put(f"{location}/left/data.parquet")
    run = untracked.run(databases=["db", "told", "hive"])
    assert statuses(run) == dict.fromkeys(("db", "told", "hive"), ("SUCCESS", None))
    seen = {
        one.row.database_name: (
            one.row.discovered_database_location,
            one.row.storage_scan_location,
            one.row.diagnostic_details["database_location_inferred"],
        )
        for one in run.databases
    }
    assert seen == {
        "db": (untracked.root, untracked.root, True),
        "told": (f"{lake.root}elsewhere", f"{lake.root}elsewhere", False),
        "hive": (f"{lake.warehouse}/hive.db", f"{lake.warehouse}/hive.db", False),
    }
    assert [one.row.candidate_folder_count for one in run.databases] == [0, 1, 1]


@pytest.mark.requirement("UF-31")
def test_details_are_samples(local: Untracked) -> None:
    for number in range(101):
        local.lake.put(f"{local.root}/_tmp_{number:03}/part")
    gone = local.dropped("gone")
    run = local.run()
    (row,) = local.audit()
    details = json.loads(row["diagnostic_details"])
    assert (len(details["kept_folders"]), details["kept_folders_truncated"]) == (100, True)
    assert ([one["path"] for one in details["candidates"]], details["candidates_truncated"]) == ([gone], False)
    assert (row["storage_folder_count"], row["error_message"]) == (103, None)
    assert len(only(run).folders) == 103, "the run itself has them all"
