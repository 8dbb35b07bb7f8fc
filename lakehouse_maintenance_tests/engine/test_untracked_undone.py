"""Quarantine: moved whole, told in the row, brought back byte by byte, purged after its time, never over anything."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import quarantining
from lakehouse_maintenance.execution.quarantining import Quarantined
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import TableError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, folder, only, verdicts
from lakehouse_maintenance_tests.readers import read_duckdb, read_pyiceberg

ODD = ["a b", "a%20b", "a+b", "p=1", "ü", "日本", "#", "?x", "&", "..x", "'", "x" * 200]
EXACT = ["d//x", "//y", "e/", "f_$folder$", "a:b", " "]


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live", commits=2)
    return Untracked(lake)


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    local_lake.table("db.live", commits=2)
    return Untracked(local_lake)


def to_quarantine(untracked: Untracked, **policy: Any) -> Lakehouse:
    return untracked.lake.open(policies={"default": {"untracked_folders": {"removal": "quarantine", **policy}}})


def moved(untracked: Untracked, ours: Lakehouse, *folders: str) -> list[str]:
    """Ids of the entries."""
    result = only(untracked.delete(ours))
    assert result.row.status == "SUCCESS", result.row
    assert result.row.deleted_folders == folders
    assert result.row.diagnostic_details["removal"] == "quarantine"
    entries = result.row.diagnostic_details["quarantine"]
    assert set(entries) == set(folders)
    return [entries[path] for path in folders]


def contents(untracked: Untracked, place: str) -> dict[str, bytes]:
    return {path: untracked.lake.read(path) for path in untracked.there(place)}


@pytest.mark.requirement("UF-44", "UF-28")
def test_more_objects_than_a_batch_there_and_back(untracked: Untracked) -> None:
    place = f"{untracked.root}/big"
    for number in range(1200):
        untracked.lake.put(f"{place}/p={number % 7}/{number:04}.parquet", str(number).encode())
    before = contents(untracked, place)
    ours = to_quarantine(untracked)
    (entry,) = moved(untracked, ours, place)
    assert not untracked.there(place)
    (listed,) = [one.as_json() for one in ours.quarantined()]
    size = sum(map(len, before.values()))
    assert [listed[name] for name in ("id", "path", "objects", "bytes")] == [entry, place, 1200, size]
    row = next(row for row in untracked.audit() if row["deleted_folder_count"])
    assert (row["deleted_object_count"], row["deleted_total_size_bytes"]) == (1200, size)
    assert ours.restore(entry).ok
    assert contents(untracked, place) == before


@pytest.mark.requirement("UF-44")
def test_odd_names_there_and_back(untracked: Untracked) -> None:
    place = f"{untracked.root}/odd é"
    for name in ODD:
        untracked.lake.put(f"{place}/{name}/{name}", name.encode())
    _there_and_back(untracked, place)


@pytest.mark.requirement("UF-44")
def test_names_that_only_an_exact_store_holds(exact_lake: Lake) -> None:
    """Doubled slashes, and the markers by which clients pretend that there are folders."""
    exact_lake.table("db.live")
    untracked = Untracked(exact_lake)
    place = f"{untracked.root}/t"
    for name in [*ODD, *EXACT]:
        exact_lake.put(f"{place}/{name}", name.encode())
    exact_lake.put(f"{place}/", b"")
    exact_lake.put(f"{place}_$folder$", b"")
    _there_and_back(untracked, place)
    assert f"{place}_$folder$" in exact_lake.objects()


def _there_and_back(untracked: Untracked, place: str) -> None:
    before = contents(untracked, place)
    ours = to_quarantine(untracked)
    (entry,) = moved(untracked, ours, place)
    assert not untracked.there(place)
    assert ours.restore(entry).ok
    assert contents(untracked, place) == before


@pytest.mark.requirement("UF-42", "UF-44")
def test_a_table_is_registered_from_its_folder_again(untracked: Untracked) -> None:
    """The row says which metadata file it is."""
    table = untracked.lake.table("db.t", commits=3)
    rows, pointer = read_pyiceberg(table), table.metadata_location
    untracked.lake.writer.drop_table("db.t")
    ours = to_quarantine(untracked)
    found = folder(only(untracked.run(ours)), "t")
    assert found.content is not None
    (sign,) = found.content.signs
    assert (sign.format, sign.path, sign.table_uuid) == ("iceberg", pointer, str(table.metadata.table_uuid))
    assert (sign.records, sign.last_commit_ms) == (3, table.metadata.last_updated_ms)
    (entry,) = moved(untracked, ours, str(table.location()))
    assert ours.restore(entry).ok
    again = untracked.lake.writer.register_table("db.t", sign.path)
    assert read_pyiceberg(again) == rows
    assert read_duckdb(pointer, untracked.lake.properties)
    assert verdicts(only(untracked.delete(ours)))["t"] == "table"


@pytest.mark.requirement("UF-42")
def test_a_table_is_registered_without_taking_anything_back(untracked: Untracked) -> None:
    """A candidate that turns out to be needed: from the same place, by what the report says."""
    table = untracked.lake.table("db.t", commits=2)
    rows = read_pyiceberg(table)
    untracked.lake.writer.drop_table("db.t")
    result = only(untracked.run())
    shown = result.row.diagnostic_details["candidates"][0]["signs"][0]
    assert read_pyiceberg(untracked.lake.writer.register_table("db.t", shown["path"])) == rows
    assert only(untracked.delete()).row.deleted_folders == ()


@pytest.mark.requirement("UF-49")
@pytest.mark.parametrize("what", ["another object", "a new table"])
def test_a_place_that_is_occupied_again(untracked: Untracked, what: str) -> None:
    gone = untracked.dropped("gone")
    before = contents(untracked, gone)
    ours = to_quarantine(untracked)
    (entry,) = moved(untracked, ours, gone)
    if what == "a new table":
        untracked.lake.table("db.new", location=gone)
    else:
        untracked.lake.put(f"{gone}/stranger.parquet", b"stranger")
    there = contents(untracked, gone)
    said = _refusal(ours, entry)
    assert gone in said
    assert any(path in said for path in there), said
    assert contents(untracked, gone) == there
    for path in there:
        untracked.lake.remove(path)
    if what == "a new table":
        untracked.lake.writer.drop_table("db.new")
    assert ours.restore(entry).ok
    assert contents(untracked, gone) == before


def _refusal(ours: Lakehouse, entry: str) -> str:
    try:
        result: Quarantined = ours.restore(entry)
    except TableError as error:
        return str(error)
    assert not result.ok
    assert result.status is Status.BLOCKED
    return str(result.why)


class TwoDaysOn(datetime):
    """The clock, two days on."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(days=2)


@pytest.mark.requirement("UF-44")
def test_it_is_purged_after_its_time_and_not_before(untracked: Untracked) -> None:
    gone = untracked.dropped("gone")
    ours = to_quarantine(untracked, purge_after="1 days")
    moved(untracked, ours, gone)
    kept = {path for path in untracked.lake.objects() if "_lakehouse_maintenance_quarantine/" in path}
    assert kept
    ours.purge()
    assert kept <= untracked.lake.objects()
    untracked.lake.patch.setattr(quarantining, "datetime", TwoDaysOn)
    (done,) = ours.purge()
    assert done.ok
    assert not {path for path in untracked.lake.objects() if "_lakehouse_maintenance_quarantine/" in path}


@pytest.mark.requirement("UF-44")
@pytest.mark.parametrize("removal", ["delete", "quarantine"])
def test_the_row_says_which_removal_it_was(untracked: Untracked, removal: str) -> None:
    gone = untracked.dropped("gone")
    ours = untracked.lake.open(policies={"default": {"untracked_folders": {"removal": removal}}})
    only(untracked.delete(ours))
    (row,) = untracked.audit()
    details = json.loads(row["diagnostic_details"])
    assert details["removal"] == removal
    assert list(details["quarantine"]) == ([gone] if removal == "quarantine" else [])


@pytest.mark.requirement("UF-44")
def test_an_application_json_deletes_where_nothing_else_is_said(untracked: Untracked) -> None:
    gone = untracked.dropped("gone")
    result = only(untracked.delete())
    assert result.row.deleted_folders == (gone,)
    assert result.row.diagnostic_details["removal"] == "delete"
    assert untracked.lake.open().quarantined() == []


@pytest.mark.parametrize("removal", ["delete", "quarantine"])
def test_directories_of_this_machine(local: Untracked, removal: str) -> None:
    """The folder itself goes, with its empty directories; the database's stays, whatever was last in it."""
    gone = local.dropped("gone")
    at = Path(Location.parse(gone).local_path)
    (at / "empty" / "deep").mkdir(parents=True)
    ours = local.lake.open(policies={"default": {"untracked_folders": {"removal": removal}}})
    result = only(local.delete(ours))
    assert result.row.deleted_folders == (gone,), result.row
    assert not at.exists()
    assert at.parent.is_dir()
    if removal == "quarantine":
        ours.restore(result.row.diagnostic_details["quarantine"][gone])
        assert (at / "data/0.parquet").is_file()


# --- what explain says


@pytest.mark.requirement("UF-47")
def test_explain_a_folder_through_its_life(untracked: Untracked) -> None:
    gone = untracked.dropped("gone")
    ours = to_quarantine(untracked, older_than="0s")
    data = f"{gone}/data/0.parquet"
    for path in (gone, data):
        told = ours.explain(path)
        assert told.ownership.owned is not True
        assert told.folder is not None
        assert (told.folder["path"], told.folder["verdict"], told.folder["database"]) == (gone, "candidate", "main.db")
        assert told.folder["objects"] == len(untracked.there(gone))
        assert [sign["format"] for sign in told.folder["signs"]] == ["iceberg"]
    live = str(untracked.lake.writer.load_table("db.live").location())
    owned = ours.explain(live)
    assert owned.ownership.owned is True
    assert owned.folder is not None
    assert (owned.folder["verdict"], "main.db.live" in owned.folder["why"]) == ("table", True)
    (entry,) = moved(untracked, ours, gone)
    removed = ours.explain(data)
    assert any(decision.phase == "outcome" for decision in removed.journal)
    assert {decision.action for decision in removed.journal} >= {"untracked_folders"}
    aside = next(path for path in untracked.lake.objects() if "_lakehouse_maintenance_quarantine/" in path)
    assert "quarantine" in ours.explain(aside).ownership.why
    assert ours.restore(entry).ok
    back = ours.explain(gone).folder
    assert back is not None
    assert (back["verdict"], back["objects"]) == ("candidate", len(untracked.there(gone)))


@pytest.mark.requirement("UF-47")
def test_explain_what_was_deleted(untracked: Untracked) -> None:
    gone = untracked.dropped("gone")
    ours = untracked.lake.open()
    only(untracked.delete(ours))
    told = ours.explain(f"{gone}/data/0.parquet")
    fates = {decision.fate for decision in told.journal}
    assert "deleted" in fates, told.journal
    assert told.folder is None or told.folder["objects"] == 0


@pytest.mark.requirement("UF-47")
def test_explain_why_a_folder_stays(untracked: Untracked) -> None:
    """Files of a table elsewhere, and a folder that is too young by the policy in force."""
    table = untracked.lake.table("db.t")
    untracked.lake.add(table, f"{untracked.root}/import/a.parquet")
    young = untracked.dropped("young")
    ours = untracked.lake.open()
    told = ours.explain(f"{untracked.root}/import")
    assert told.folder is not None
    assert (told.folder["verdict"], "main.db.t" in told.folder["why"]) == ("referenced", True)
    told = ours.explain(young)
    assert told.folder is not None
    assert told.folder["verdict"] == "too_young"
