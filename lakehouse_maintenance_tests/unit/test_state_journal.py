"""The journal: order, what is open, crashes, damage."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import Journal, open_state
from lakehouse_maintenance.state.folder import FolderStore
from lakehouse_maintenance.state.journal import TORN
from lakehouse_maintenance_tests.unit.state_worker import start_worker

START = datetime(2026, 5, 4, 23, 59, 58, tzinfo=UTC)


def event(second: int, phase: str = "intent", *, run: str = "r1", table: str = "c.d.t", action: str = "a") -> Event:
    status = "done" if phase == "outcome" else None
    at = (START + timedelta(seconds=second)).isoformat()
    return Event(at, run, table, action, phase, status, "sha256:0", 3, 4, {"deep": [1, {"ü": None}]})


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_state(str(tmp_path)).journal


def test_events_come_back_as_they_were_oldest_first(tmp_path: Path, journal: Journal) -> None:
    written = [
        event(0),
        event(1, run="R/2"),
        event(3, "outcome"),
        event(4, "outcome", run="R/2"),
        event(9, table="x.y.z"),
    ]
    for each in reversed(written):
        journal.record(each)
    again = open_state(str(tmp_path)).journal
    assert again.events() == written
    assert again.events(last=2) == written[-2:]
    assert again.events(last=4) == written[-4:]
    assert again.events(last=0) == []
    assert again.events(table="x.y.z") == written[-1:]
    assert again.events(table="c.d.t", last=1) == [written[3]]
    assert again.events(run_id="R/2") == [written[1], written[3]]
    assert again.events(run_id="R/2", last=1) == [written[3]]
    assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == ["2026-05-04", "2026-05-05"]


def test_time_needs_an_offset_and_any_offset_does(journal: Journal) -> None:
    with pytest.raises(ValueError, match="offset"):
        journal.record(Event("2026-05-04T10:00:00", "r", "c.d.t", "a", "intent"))
    assert journal.open_intents("c.d.t") == []
    east = Event("2026-05-05T01:00:00+02:00", "r", "c.d.t", "a", "intent")
    journal.record(east)
    journal.record(event(0, run="later"))
    assert [each.run_id for each in journal.events()] == ["r", "later"]


def test_open_intents(journal: Journal) -> None:
    journal.record(event(0, action="a"))
    journal.record(event(1, action="b"))
    journal.record(event(2, action="a", run="r2"))
    journal.record(event(3, "outcome", action="a"))
    journal.record(event(4, action="a", table="c.d.other"))
    assert [(each.run_id, each.action) for each in journal.open_intents("c.d.t")] == [("r1", "b"), ("r2", "a")]
    # A later run ends what a dead one left open, the day after.
    journal.record(event(90_000, "outcome", action="a", run="r2"))
    journal.record(event(90_001, "outcome", action="b"))
    assert journal.open_intents("c.d.t") == []
    journal.record(event(90_002, action="a"))
    assert [each.at for each in journal.open_intents("c.d.t")] == [event(90_002).at]


def test_crash_between_marker_and_line_does_no_harm(tmp_path: Path) -> None:
    """A marker alone opens nothing; a marker that outlived its outcome neither."""

    class CrashError(Exception):
        pass

    class Crashing(FolderStore):
        puts_left = 99

        def put(self, key: str, value: bytes, expected: str | None) -> str | None:
            if self.puts_left == 0:
                raise CrashError
            self.puts_left -= 1
            return super().put(key, value, expected)

    folder = Crashing(tmp_path)
    journal = Journal(folder)
    folder.put("open/c.d.t", b'[["gone", "a"]]', None)
    assert journal.open_intents("c.d.t") == []

    journal.record(event(0))
    folder.puts_left = 0
    with pytest.raises(CrashError):
        journal.record(event(1, "outcome"))
    after = open_state(str(tmp_path)).journal
    assert after.open_intents("c.d.t") == []
    assert after.events() == [event(0), event(1, "outcome")]

    with pytest.raises(CrashError):
        journal.record(event(2, run="r2"))
    assert len(after.events()) == 2, "an intent without its marker must not become visible"


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


def test_what_was_recorded_survives_a_kill(tmp_path: Path) -> None:
    """A real process, killed while it writes large lines: each line that it had recorded is there."""
    with start_worker("write", str(tmp_path)) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
    journal = open_state(str(tmp_path)).journal
    recorded = [each.action for each in journal.events()]
    assert recorded[: len(acknowledged)] == [f"action {line.strip()}" for line in acknowledged]
    assert {each.action for each in journal.open_intents("c.d.t")} == set(recorded)
    # Had the kill torn a line, it would look like this; the run's next writer copes.
    with next((tmp_path / "journal").rglob("victim.jsonl")).open("ab") as file:
        file.write(b'{"at":"2026')
    for action in recorded:
        journal.record(Event(datetime.now(UTC).isoformat(), "victim", "c.d.t", action, "outcome", "failed"))
    assert journal.open_intents("c.d.t") == []
