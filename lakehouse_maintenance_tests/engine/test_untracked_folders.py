"""From a dry run to a removed and a restored folder, on local files and a real S3 server."""

from __future__ import annotations

import pytest

from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, only, verdicts
from lakehouse_maintenance_tests.readers import read_pyiceberg


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live", commits=2)
    return Untracked(lake)


def test_a_dropped_table_is_found_and_deleted(untracked: Untracked) -> None:
    gone = untracked.dropped("gone")
    before = untracked.there(gone)
    result = only(untracked.run())
    assert (result.row.status, result.row.status_reason) == ("SUCCESS", None), result.row
    assert verdicts(result) == {"gone": "candidate", "live": "table"}
    assert result.row.candidate_folders == (gone,)
    assert result.row.candidate_object_count == len(before)
    assert untracked.there(gone) == before
    deleted = only(untracked.delete())
    assert deleted.row.status == "SUCCESS", deleted.row
    assert deleted.row.deleted_folders == (gone,)
    assert deleted.row.deleted_object_count == len(before)
    assert not untracked.there(gone)
    assert verdicts(only(untracked.run())) == {"live": "table"}
    assert [row["deleted_folder_count"] for row in sorted(untracked.audit(), key=lambda row: row["start_time"])] == [
        0,
        1,
        0,
    ]
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.live"))) == 2


def test_quarantine_and_back(untracked: Untracked) -> None:
    gone = untracked.dropped("gone")
    before = {path: untracked.lake.read(path) for path in untracked.there(gone)}
    ours = untracked.lake.open(policies={"default": {"untracked_folders": {"removal": "quarantine"}}})
    moved = only(untracked.delete(ours))
    assert moved.row.status == "SUCCESS", moved.row
    assert moved.row.deleted_folders == (gone,)
    entry = moved.row.diagnostic_details["quarantine"][gone]
    assert not untracked.there(gone)
    assert verdicts(only(untracked.run(ours)))["_lakehouse_maintenance_quarantine"] == "working_folder"
    restored = ours.restore(entry)
    assert restored.ok, restored
    assert {path: untracked.lake.read(path) for path in untracked.there(gone)} == before
