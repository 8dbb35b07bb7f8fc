"""The verbs `orphans` and `explain`: what they answer in JSON and in text, their exit codes, bad input."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.execution import orphan_search
from lakehouse_maintenance_tests.small_lakehouse import Ended, SmallLakehouse, call, make_lakehouse

KEYS = {
    "table",
    "digest",
    "status",
    "reason",
    "objects_listed",
    "orphan_files",
    "orphan_bytes",
    "deleted_files",
    "deleted_bytes",
    "kept",
    "failed",
    "unknown",
}
OLD = 5 * 86_400


@pytest.fixture
def lakehouse(tmp_path: Path) -> SmallLakehouse:
    """A table `db.t` of four files, with an old orphan and a young one."""
    made = make_lakehouse(tmp_path)
    made.add("db.t", files=4)
    orphan(made)
    orphan(made, "young.parquet", age=0)
    return made


def orphan(lakehouse: SmallLakehouse, name: str = "orphan.parquet", *, age: float = OLD, size: int = 7) -> str:
    file = lakehouse.folder / "wh" / "db" / "t" / "data" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    moment = time.time() - age
    os.utime(file, (moment, moment))
    return f"file://{file}"


def on(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], *argv: object) -> Ended:
    return call(capsys, "--config", lakehouse.config, *argv)


def only(ended: Ended) -> dict[str, Any]:
    (table,) = ended.json["tables"]
    assert set(table) >= KEYS
    found: dict[str, Any] = table
    return found


def test_a_dry_run(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    before = lakehouse.listing()
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--json")
    assert ended.code == 0
    table = only(ended)
    assert (table["table"], table["status"], table["orphan_files"], table["orphan_bytes"]) == (
        "main.db.t",
        "done",
        1,
        7,
    )
    assert (table["deleted_files"], table["deleted_bytes"], table["failed"], table["unknown"]) == (0, 0, [], [])
    assert table["kept"] == [{"reason": "younger than the cutoff", "files": 1}]
    assert table["objects_listed"] == len([one for one in before if one.startswith("wh/db/t/")])
    assert table["digest"].startswith("sha256:")
    assert "files" not in table
    # The count is remembered for the table's health; the lake itself is as before.
    after = lakehouse.listing()
    assert {path: what for path, what in after.items() if not path.startswith("state/")} == before


def test_named_files(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    table = only(on(lakehouse, capsys, "orphans", "db.t", "--list", "--json"))
    (file,) = table["files"]
    assert (file["path"], file["bytes"]) == (orphan(lakehouse), 7)
    assert table["orphan_file_locations"] == [file["path"]]


def test_deleting(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    digest = only(on(lakehouse, capsys, "orphans", "main.db.t", "--json"))["digest"]
    before = lakehouse.listing()
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--delete", "--plan-digest", digest, "--json")
    assert ended.code == 0
    table = only(ended)
    assert (table["status"], table["deleted_files"], table["deleted_bytes"]) == ("done", 1, 7)
    gone = {name for name in before if name.startswith("wh/")} - set(lakehouse.listing())
    assert gone == {"wh/db/t/data/orphan.parquet"}
    again = on(lakehouse, capsys, "orphans", "main.db.t", "--delete", "--json")
    assert (again.code, only(again)["orphan_files"]) == (0, 0)


def test_text(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    odd = orphan(lakehouse, "odd\x1b[31m\n[b].parquet", size=2048)
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--list")
    assert ended.code == 0
    for word in ("main.db.t", "2 files", "referenced by nobody", "1 file kept: younger than the cutoff", "sha256:"):
        assert word in ended.out
    assert "\x1b" not in ended.out
    assert odd.partition("odd")[0] + "orphan.parquet" in ended.out
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--delete")
    assert ended.code == 0
    assert "2 files" in ended.out
    assert "deleted" in ended.out
    assert "removed" not in ended.out


OTHER = "sha256:" + "0" * 64


def test_what_is_blocked_is_1(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    before = lakehouse.listing()
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--delete", "--plan-digest", OTHER, "--json")
    assert (ended.code, only(ended)["status"]) == (1, "blocked")
    assert OTHER in only(ended)["reason"]
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--plan-digest", OTHER)
    assert ended.code == 1, "a dry run compares too"
    assert on(lakehouse, capsys, "orphans", "main.db.t", "--plan-digest", "sha256:0").code == 2
    with lakehouse.catalog.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--delete")
    assert ended.code == 1
    assert "gc.enabled" in ended.out
    assert {name for name in before if "/data/" in name} <= set(lakehouse.listing())


def test_one_table_that_is_blocked_does_not_stop_the_others(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    lakehouse.add("db.a", files=1)
    with lakehouse.catalog.load_table("db.a").transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    ended = on(lakehouse, capsys, "orphans", "main.db.*", "--delete", "--json")
    assert ended.code == 1
    assert {table["table"]: table["status"] for table in ended.json["tables"]} == {
        "main.db.a": "blocked",
        "main.db.t": "done",
    }


@pytest.mark.parametrize(
    "argv",
    [
        ["--older-than", "23h"],
        ["--older-than", "1 day", "--plan-digest", "sha256:0", "main.db.u"],
        ["--older-than", "soon"],
        ["--older-than", "-1h"],
        ["--prefix-mismatch-mode", "SOMETIMES"],
        ["--equal-schemes", "oss"],
        ["--equal-authorities", "=x"],
        ["--location", "relative/path"],
        ["--removal", "burn"],
    ],
)
def test_bad_input_is_2_before_anything_is_looked_at(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    lakehouse.add("db.u", files=1)
    before = lakehouse.listing()
    monkeypatch.setattr(orphan_search, "observe", None)
    monkeypatch.setattr(orphan_search, "_list", None)
    ended = on(lakehouse, capsys, "orphans", "main.db.t", "--delete", "--json", *argv)
    assert ended.code == 2, ended
    assert ended.error["message"]
    assert lakehouse.listing() == before


def test_a_table_that_does_not_exist(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(lakehouse, capsys, "orphans", "main.db.none", "--json")
    assert ended.code == 2
    assert "none" in ended.error["message"]
    assert on(lakehouse, capsys, "orphans").code == 2


def test_a_short_retention_with_the_word(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    orphan(lakehouse, "hours.parquet", age=3 * 3600)
    argv = ("orphans", "main.db.t", "--older-than", "1h", "--json", "--delete", "--allow-short-retention")
    assert only(on(lakehouse, capsys, *argv))["deleted_files"] == 2


# Explain


def explained(ended: Ended) -> dict[str, Any]:
    assert set(ended.json) >= {"path", "owned", "by", "why", "journal"}
    found: dict[str, Any] = ended.json
    return found


@pytest.mark.requirement("UF-47")
def test_explain_tells_owned_unowned_and_unknown(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    table = lakehouse.catalog.load_table("db.t")
    head = table.current_snapshot()
    assert head is not None
    data = next(iter(table.scan().plan_files())).file.file_path
    manifest = head.manifests(table.io)[0].manifest_path
    kinds = {
        data: "data",
        manifest: "manifest",
        head.manifest_list: "manifest_list",
        table.metadata_location: "metadata",
        table.location(): "location",
    }
    for path, via in kinds.items():
        ended = on(lakehouse, capsys, "explain", path, "--json")
        found = explained(ended)
        assert (ended.code, found["owned"]) == (0, True), found
        by = {one["via"]: one for one in found["by"]}
        assert by[via]["table"] == "main.db.t"
        if via in ("data", "manifest", "manifest_list"):
            assert by[via]["snapshot_ids"] == [head.snapshot_id]
    ended = on(lakehouse, capsys, "explain", orphan(lakehouse), "--json")
    assert (ended.code, explained(ended)["owned"], explained(ended)["by"]) == (0, False, [])
    assert "main.db.t" in explained(ended)["why"]
    nowhere = explained(on(lakehouse, capsys, "explain", f"file://{lakehouse.folder}/nowhere/x", "--json"))
    assert nowhere["owned"] is False
    assert "folder of none" in nowhere["why"]
    text = on(lakehouse, capsys, "explain", data).out
    assert "owned" in text
    assert str(head.snapshot_id) in text
    # A table of the database whose metadata is gone: nobody knows any more.
    other = lakehouse.add("db.broken", files=1)
    Path(other.metadata_location.removeprefix("file://")).write_text("{")
    ended = on(lakehouse, capsys, "explain", orphan(lakehouse), "--json")
    assert (ended.code, explained(ended)["owned"]) == (1, None)
    assert "main.db.broken" in explained(ended)["why"]
    ended = on(lakehouse, capsys, "explain", f"{other.location()}/data/x", "--json")
    assert (ended.code, explained(ended)["owned"]) == (1, None)
    assert explained(on(lakehouse, capsys, "explain", data, "--json"))["owned"] is True


def test_explain_needs_a_path(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(lakehouse, capsys, "explain", "no/path", "--json")
    assert ended.code == 2
    assert ended.error["message"]


@pytest.mark.requirement("RS-10")
@pytest.mark.parametrize("removal", ["delete", "quarantine"])
def test_explain_proves_a_removal_afterwards(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], removal: str
) -> None:
    fate = {"delete": "deleted", "quarantine": "moved into quarantine"}[removal]
    path, kept = orphan(lakehouse), orphan(lakehouse, "kept.parquet", age=0)
    before = explained(on(lakehouse, capsys, "explain", path, "--json"))
    assert (before["owned"], before["journal"]) == (False, [])
    pointer = lakehouse.catalog.load_table("db.t").metadata_location
    result = on(lakehouse, capsys, "orphans", "main.db.t", "--delete", "--removal", removal, "--json")
    digest = only(result)["digest"]
    for asked in (path, path.rpartition("/")[0], path.replace("file:///", "file:/")):
        journal = explained(on(lakehouse, capsys, "explain", asked, "--json"))["journal"]
        assert [event["phase"] for event in journal] == ["intent", "outcome"], asked
        intent, outcome = journal
        assert {event["run_id"] for event in journal} == {result.json["run_id"]}
        assert {event["digest"] for event in journal} == {digest}
        assert {event["action"] for event in journal} == {"remove_orphan_files"}
        assert {event["path"] for event in journal} == {path}
        assert intent["evidence"]["metadata"] == pointer
        assert intent["evidence"]["owners"] == {"main.db.t": pointer}
        assert intent["evidence"]["cutoff_ms"] < intent["evidence"]["listed_at_ms"]
        assert outcome["fate"] == fate
    assert explained(on(lakehouse, capsys, "explain", kept, "--json"))["journal"] == []
    text = on(lakehouse, capsys, "explain", path).out
    assert fate in text
    assert "owned by nobody" in text


def test_explain_tells_why_a_file_was_kept(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the recheck saved: the journal says who came to own it."""
    from lakehouse_maintenance.execution.deleting import Deletion
    from lakehouse_maintenance_tests.engine.foreign import add_entry

    path = orphan(lakehouse)
    real = Deletion.remove

    def remove(self: Deletion, *args: Any, **options: Any) -> Any:
        add_entry(lakehouse.catalog.load_table("db.t"), path, records=1, size=7)
        return real(self, *args, **options)

    monkeypatch.setattr(Deletion, "remove", remove)
    result = only(on(lakehouse, capsys, "orphans", "main.db.t", "--delete", "--json"))
    assert result["deleted_files"] == 0
    found = explained(on(lakehouse, capsys, "explain", path, "--json"))
    assert found["owned"] is True
    assert found["journal"][-1]["fate"] == "kept"
    assert "main.db.t" in found["journal"][-1]["why"]
