"""The verb `quarantine` on a real lakehouse: what it shows, its exit codes, and that it never overwrites."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import Entry
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.quarantine_cases import PREFIX, SUBJECT, TTL, Case
from lakehouse_maintenance_tests.small_lakehouse import Ended, SmallLakehouse, call, make_lakehouse

KEYS = {"id", "path", "quarantined_path", "objects", "bytes", "at", "purge_after", "state"}


@pytest.fixture
def lakehouse(tmp_path: Path) -> SmallLakehouse:
    return make_lakehouse(tmp_path)


@pytest.fixture
def case(lakehouse: SmallLakehouse) -> Case:
    """A folder of the database that no table uses."""
    folder = lakehouse.folder / "wh" / "db" / "left"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "a.parquet").write_bytes(b"rows" * 100)
    (folder / "b c").write_bytes(b"")
    state = open_state(str(lakehouse.folder / "state"))
    return Case(state, Storage.from_properties({}), Location.parse(str(folder)))


def on(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], *argv: object) -> Ended:
    return call(capsys, "--config", lakehouse.config, "quarantine", *argv)


def test_nothing_in_quarantine(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    assert on(lakehouse, capsys, "list", "--json").json == {"entries": []}
    assert "nothing in quarantine" in on(lakehouse, capsys, "list").out
    assert on(lakehouse, capsys, "purge", "--json").json == {"entries": []}
    assert not (lakehouse.folder / "state").exists(), "looking writes nothing"


def test_list_and_restore(lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    before = case.objects()
    entry = case.quarantine()
    listed = on(lakehouse, capsys, "list", "--json")
    assert listed.code == 0
    (shown,) = listed.json["entries"]
    assert set(shown) >= KEYS
    assert (shown["id"], shown["path"], shown["state"]) == (entry.id, case.folder.text, "quarantined")
    assert (shown["objects"], shown["bytes"]) == (2, 400)
    assert f"/db/{PREFIX}/{entry.id}/left" in shown["quarantined_path"]
    told = on(lakehouse, capsys, "list")
    assert entry.id in told.out
    assert "400 bytes" in told.out

    restored = on(lakehouse, capsys, "restore", entry.id, "--json")
    assert restored.code == 0
    assert [one["state"] for one in restored.json["entries"]] == ["restored"]
    assert case.objects() == before
    assert on(lakehouse, capsys, "restore", entry.id).code == 0


@pytest.mark.requirement("UF-49")
def test_restoring_never_overwrites(lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    entry = case.quarantine()
    new = Path(case.folder.local_path) / "metadata" / "v1.metadata.json"
    new.parent.mkdir(parents=True)
    new.write_bytes(b"a new table's")
    ended = on(lakehouse, capsys, "restore", entry.id, "--json")
    assert ended.code == 1
    (shown,) = ended.json["entries"]
    assert (shown["state"], shown["status"]) == ("quarantined", "blocked")
    assert str(new) in shown["error"]
    assert case.objects() == {"metadata/v1.metadata.json": b"a new table's"}
    told = on(lakehouse, capsys, "restore", entry.id)
    assert "occupied again" in told.out


def test_purge(lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    entry = case.quarantine()
    assert on(lakehouse, capsys, "purge", "--json").json == {"entries": []}
    early = on(lakehouse, capsys, "purge", entry.id, "--json")
    assert early.code == 1
    assert "--older-than" in early.json["entries"][0]["error"]
    assert on(lakehouse, capsys, "purge", "--older-than", "1 day", "--json").json == {"entries": []}
    purged = on(lakehouse, capsys, "purge", "--older-than", "0s", "--json")
    assert (purged.code, [one["state"] for one in purged.json["entries"]]) == (0, ["purged"])
    assert case.objects(entry.quarantined) == {}


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (["restore", "nobody"], "id"),
        (["purge", "nobody"], "id"),
        (["purge", "--older-than", "soon"], "--older-than"),
        (["restore"], None),
        (["shred"], None),
    ],
)
def test_bad_input(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], argv: list[str], field: str | None
) -> None:
    ended = on(lakehouse, capsys, *argv, "--json")
    assert ended.code == 2
    assert field is None or ended.error["field"] == field


def test_while_another_run_works_there_it_is_blocked(
    lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = case.quarantine()
    with case.state.leases.acquire(SUBJECT, run_id="other", owner="somebody", ttl=TTL):
        ended = on(lakehouse, capsys, "restore", entry.id, "--json")
    assert ended.code == 1
    (shown,) = ended.json["entries"]
    assert shown["status"] == "blocked"
    assert "somebody" in shown["error"]


def test_a_damaged_entry_hides_no_other(
    lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = case.quarantine()
    assert case.state.put("quarantine/00000000-000000-000-00000000", b"garbage", None) is not None
    ended = on(lakehouse, capsys, "list", "--json")
    assert ended.code == 1
    assert [one["state"] for one in ended.json["entries"]] == ["unreadable", "quarantined"]
    assert "damaged" in on(lakehouse, capsys, "list").out
    purged = on(lakehouse, capsys, "purge", "--older-than", "0s", "--json")
    assert (purged.code, [one["state"] for one in purged.json["entries"]]) == (1, ["unreadable", "purged"])
    assert case.objects(entry.quarantined) == {}


def test_a_catalog_that_is_not_configured_any_more(
    lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = case.quarantine()
    stored = case.state.get(f"quarantine/{entry.id}")
    assert stored is not None
    other = {**json.loads(stored[0]), "subject": "other.db"}
    assert case.state.put(f"quarantine/{entry.id}", json.dumps(other).encode(), stored[1]) is not None
    ended = on(lakehouse, capsys, "restore", entry.id, "--json")
    assert ended.code == 1
    assert "no catalog other" in ended.json["entries"][0]["error"]
    assert case.objects() == {}


def test_the_methods_give_typed_values(lakehouse: SmallLakehouse, case: Case) -> None:
    before = case.objects()
    entry = case.quarantine()
    ours = Lakehouse.open(lakehouse.config)
    (listed,) = ours.quarantined()
    assert isinstance(listed.entry, Entry)
    assert listed.entry == entry
    assert ours.restore(entry.id).ok
    assert case.objects() == before
    again = case.quarantine()
    (purged,) = ours.purge(again.id, timedelta(0))
    assert purged.ok
    assert [one.entry.id for one in ours.quarantined()] == [entry.id, again.id]


def test_what_a_table_references_by_now_is_restored_and_not_purged(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the name that it had: its copy in quarantine is the last there is."""
    table = lakehouse.add("db.t", files=3)
    folder = Location.parse(table.location().removeprefix("file://") + "/data")
    case = Case(open_state(str(lakehouse.folder / "state")), Storage.from_properties({}), folder)
    entry = case.quarantine()
    refused = on(lakehouse, capsys, "purge", entry.id, "--older-than", "0s", "--json")
    assert refused.code == 1
    (shown,) = refused.json["entries"]
    assert "main.db.t references it: restore it" in shown["error"]
    assert shown["state"] == "quarantined"
    assert on(lakehouse, capsys, "restore", entry.id).code == 0
    assert table.scan().to_arrow().num_rows == 60


def test_nothing_is_purged_while_a_table_cannot_be_read(
    lakehouse: SmallLakehouse, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    lakehouse.add("db.t", files=1)
    lakehouse.metadata_files("db.t")["metadata"].write_bytes(b"{")
    entry = case.quarantine()
    there = case.objects(entry.quarantined)
    refused = on(lakehouse, capsys, "purge", entry.id, "--older-than", "0s", "--json")
    assert refused.code == 1
    assert "cannot be read" in refused.json["entries"][0]["error"]
    assert case.objects(entry.quarantined) == there
