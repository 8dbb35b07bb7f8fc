"""The journal in a folder: its files, crashes, damage. What holds in every state: services/test_state_events.py."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import Journal, open_state
from lakehouse_maintenance.state.folder_log import TORN

START = datetime(2026, 5, 4, 23, 59, 58, tzinfo=UTC)


def event(second: int, phase: str = "intent", *, run: str = "r1", table: str = "c.d.t", action: str = "a") -> Event:
    status = "done" if phase == "outcome" else None
    at = (START + timedelta(seconds=second)).isoformat()
    return Event(at, run, table, action, phase, status, "sha256:0", 3, 4, {"deep": [1, {"ü": None}]})


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_state(str(tmp_path)).journal


def test_open_intents_read_only_what_is_marked(tmp_path: Path, journal: Journal) -> None:
    """The rest of the history may be of any size: it is not opened, so its damage does not show either."""
    for number in range(5):
        journal.record(event(number, run=f"old{number}"))
        journal.record(event(number, "outcome", run=f"old{number}"))
        (tmp_path / "journal" / event(number).at[:10] / f"old{number}.jsonl").write_bytes(b"damaged\n")
    journal.record(event(7))
    assert journal.open_intents("c.d.t") == [event(7)]


def test_last_reads_newest_files_only(tmp_path: Path, journal: Journal) -> None:
    days = tmp_path / "journal"
    for number in range(3):
        journal.record(event(number, run=f"r{number}"))
    (days / "2026-05-04" / "r0.jsonl").write_bytes(b"damaged\n")
    (days / "2020-01-01").mkdir()
    (days / "2020-01-01" / "old.jsonl").write_bytes(b"damaged\n")
    (days / "notes.txt").write_text("not ours")
    # Files carry the times of their events, as they do when clocks are not made up.
    for number in range(3):
        when = (START + timedelta(seconds=number) - timedelta(hours=2 if number == 0 else 0)).timestamp()
        os.utime(next(days.rglob(f"r{number}.jsonl")), (when, when))
    assert journal.events(last=1) == [event(2, run="r2")]
    with pytest.raises(StorageError, match=r"r0\.jsonl line 1"):
        journal.events(last=3)


def test_every_truncation_leaves_the_lines_before_it(tmp_path: Path, journal: Journal) -> None:
    for number in range(2):
        journal.record(event(number, action=f"a{number}"))
    path = next((tmp_path / "journal").rglob("r1.jsonl"))
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for cut in range(first, len(content)):
        path.write_bytes(content[:cut])
        assert journal.events() == [event(0, action="a0")]
    # The next writer goes on behind what was torn, also where only the newline is missing.
    for cut in (first + 10, len(content) - 1):
        path.write_bytes(content[:cut])
        journal.record(event(1, "outcome", action="a0"))
        assert journal.events() == [event(0, action="a0"), event(1, "outcome", action="a0")]
        assert path.read_bytes().startswith(content[:cut] + b"\n" + TORN)


@pytest.mark.parametrize(
    "damage", [b"{}", b"", b"null", b"\xff\xfe", b'{"at": "x"', b'{"at":"yesterday","run_id":"r"}']
)
def test_damage_in_the_middle_names_file_and_line(tmp_path: Path, journal: Journal, damage: bytes) -> None:
    journal.record(event(0))
    path = next((tmp_path / "journal").rglob("r1.jsonl"))
    path.write_bytes(path.read_bytes() + damage + b"\n" + path.read_bytes())
    with pytest.raises(StorageError, match=r"2026-05-04/r1\.jsonl line 2") as caught:
        journal.events()
    assert caught.value.field == "state.url"
    with pytest.raises(StorageError, match="line 2"):
        journal.open_intents("c.d.t")


def test_fields_of_a_later_release_are_left_aside(tmp_path: Path, journal: Journal) -> None:
    journal.record(event(0))
    path = next((tmp_path / "journal").rglob("r1.jsonl"))
    path.write_bytes(path.read_bytes().replace(b'{"at"', b'{"colour":"red","at"'))
    assert journal.events() == [event(0)]


def test_what_is_recorded_is_synced_before_it_counts(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of each file that was written, and the folders that name it."""
    calls: list[tuple[str, int]] = []
    write, sync = os.write, os.fsync

    def writing(descriptor: int, content: bytes) -> int:
        calls.append(("write", os.fstat(descriptor).st_ino))
        return write(descriptor, content)

    def syncing(descriptor: int) -> None:
        calls.append(("sync", os.fstat(descriptor).st_ino))
        sync(descriptor)

    monkeypatch.setattr(os, "write", writing)
    monkeypatch.setattr(os, "fsync", syncing)
    journal.record(event(0))
    path = next((tmp_path / "journal").rglob("r1.jsonl"))
    line = path.stat().st_ino
    marker = (tmp_path / "values" / "open%2fc.d.t").stat().st_ino
    for inode in (line, marker):
        assert ("sync", inode) in calls[calls.index(("write", inode)) :]
    for folder in (path.parent, path.parent.parent, tmp_path / "values", tmp_path):
        assert ("sync", folder.stat().st_ino) in calls
    assert calls.index(("write", marker)) < calls.index(("write", line)), "the marker goes first"
    assert calls.index(("sync", marker)) < calls.index(("write", line))
