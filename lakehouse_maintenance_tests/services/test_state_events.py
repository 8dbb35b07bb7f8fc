"""The journal in every kind of state: order, what is open, crashes."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import Journal
from lakehouse_maintenance.state import objects_log as objects_log_module
from lakehouse_maintenance.state import postgres_log as postgres_log_module
from lakehouse_maintenance.state.backend import Backend
from lakehouse_maintenance_tests.services.states import Place
from lakehouse_maintenance_tests.unit.state_worker import start_worker

START = datetime(2026, 5, 4, 23, 59, 58, tzinfo=UTC)


def event(second: int, phase: str = "intent", *, run: str = "r1", table: str = "c.d.t", action: str = "a") -> Event:
    status = "done" if phase == "outcome" else None
    at = (START + timedelta(seconds=second)).isoformat()
    return Event(at, run, table, action, phase, status, "sha256:0", 3, 4, {"deep": [1, {"ü": None}]})


def test_events_come_back_as_they_were_oldest_first(place: Place) -> None:
    written = [
        event(0),
        event(1, run="R/2"),
        event(3, "outcome"),
        event(4, "outcome", run="R/2"),
        event(9, table="x.y.z"),
    ]
    journal = place.open().journal
    for each in reversed(written):
        journal.record(each)
    again = place.open().journal
    assert again.events() == written
    assert again.events(last=2) == written[-2:]
    assert again.events(last=4) == written[-4:]
    assert again.events(last=0) == []
    assert again.events(table="x.y.z") == written[-1:]
    assert again.events(table="c.d.t", last=1) == [written[3]]
    assert again.events(run_id="R/2") == [written[1], written[3]]
    assert again.events(run_id="R/2", last=1) == [written[3]]
    assert again.events(run_id="R") == []
    assert place.store().log.days() == ["2026-05-05", "2026-05-04"]


def test_events_of_one_moment_stay_in_their_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_log_module, "_PAGE", 3)
    monkeypatch.setattr(postgres_log_module, "_PAGE", 3)
    journal = place.open().journal
    written = [event(0, action=f"a{number}") for number in range(8)]
    for each in written:
        journal.record(each)
    assert journal.events() == written
    assert journal.events(last=5) == written[-5:]
    assert journal.events(run_id="r1") == written
    assert journal.open_intents("c.d.t") == written


def test_a_clock_that_is_behind_does_not_change_the_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host ends what a run began, by a clock far behind; it has read the run's lines, or it has not."""
    journal, other = place.open().journal, place.open().journal
    other.record(event(0, "outcome", table="c.d.other"))
    for action in ("read", "not read"):
        journal.record(event(0, action=action))
    monkeypatch.setattr(objects_log_module.time, "time_ns", lambda: 10**15)
    assert len(other.open_intents("c.d.t")) == 2
    other.record(event(1, "outcome", action="read"))
    place.open().journal.record(event(1, "outcome", action="not read"))
    phases = [each.phase for each in place.open().journal.events(run_id="r1", table="c.d.t")]
    assert phases == ["intent", "intent", "outcome", "outcome"]
    assert place.open().journal.open_intents("c.d.t") == []
    in_order = [line.content for line in place.store().log.of_run("r1")][1:]
    assert [b"intent" in line for line in in_order] == [True, True, False, False]


def test_time_needs_an_offset_and_any_offset_does(place: Place) -> None:
    journal = place.open().journal
    with pytest.raises(ValueError, match="offset"):
        journal.record(Event("2026-05-04T10:00:00", "r", "c.d.t", "a", "intent"))
    assert journal.open_intents("c.d.t") == []
    east = Event("2026-05-05T01:00:00+02:00", "r", "c.d.t", "a", "intent")
    journal.record(east)
    journal.record(event(0, run="later"))
    assert [each.run_id for each in journal.events()] == ["r", "later"]


def test_open_intents(place: Place) -> None:
    journal = place.open().journal
    journal.record(event(0, action="a"))
    journal.record(event(1, action="b"))
    journal.record(event(2, action="a", run="r2"))
    journal.record(event(3, "outcome", action="a"))
    journal.record(event(4, action="a", table="c.d.other"))
    assert [(each.run_id, each.action) for each in journal.open_intents("c.d.t")] == [("r1", "b"), ("r2", "a")]
    # A later run ends what a dead one left open, the day after.
    later = place.open().journal
    later.record(event(90_000, "outcome", action="a", run="r2"))
    later.record(event(90_001, "outcome", action="b"))
    assert later.open_intents("c.d.t") == []
    later.record(event(90_002, action="a"))
    assert [each.at for each in journal.open_intents("c.d.t")] == [event(90_002).at]


class CrashError(Exception):
    pass


class Crashing:
    """A store that crashes instead of its n-th put."""

    def __init__(self, inner: Backend) -> None:
        self.puts_left = 99
        self.location, self.cache_folder, self.log = inner.location, inner.cache_folder, inner.log
        self.get, self.keys = inner.get, inner.keys
        self.check_version, self.check_writable = inner.check_version, inner.check_writable
        self._inner = inner

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        if self.puts_left == 0:
            raise CrashError
        self.puts_left -= 1
        return self._inner.put(key, value, expected)


def test_crash_between_marker_and_line_does_no_harm(place: Place) -> None:
    """A marker alone opens nothing; a marker that outlived its outcome neither."""
    store = Crashing(place.store())
    journal = Journal(store)
    store.put("open/c.d.t", b'[["gone", "a"]]', None)
    assert journal.open_intents("c.d.t") == []

    journal.record(event(0))
    store.puts_left = 0
    with pytest.raises(CrashError):
        journal.record(event(1, "outcome"))
    after = place.open().journal
    assert after.open_intents("c.d.t") == []
    assert after.events() == [event(0), event(1, "outcome")]

    with pytest.raises(CrashError):
        journal.record(event(2, run="r2"))
    assert len(after.events()) == 2, "an intent without its marker must not become visible"


def test_open_intents_read_only_what_is_marked(place: Place) -> None:
    """The rest of the history may be of any size: it is not read, so its damage does not show either."""
    journal = place.open().journal
    journal.record(event(0, run="old"))
    journal.record(event(0, "outcome", run="old"))
    place.damage_journal()
    journal.record(event(7))
    assert journal.open_intents("c.d.t") == [event(7)]
    with pytest.raises(StorageError, match="is not a journal entry") as caught:
        journal.events()
    assert caught.value.field == "state.url"
    assert "old" in caught.value.message


def test_damaged_list_of_what_is_open_is_an_error(place: Place) -> None:
    state = place.open()
    state.put("open/c.d.t", b"garbage", None)
    with pytest.raises(StorageError, match="open intents"):
        state.journal.open_intents("c.d.t")
    with pytest.raises(StorageError, match="open intents"):
        state.journal.record(event(0))
    assert state.journal.events() == []


def test_what_was_recorded_survives_a_kill(place: Place) -> None:
    """A real process, killed while it writes large lines: each line that it had recorded is there."""
    with start_worker("write", place.argument) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
    journal = place.open().journal
    recorded = [each.action for each in journal.events()]
    assert recorded[: len(acknowledged)] == [f"action {line.strip()}" for line in acknowledged]
    assert {each.action for each in journal.open_intents("c.d.t")} == set(recorded)
    # Had the kill torn a line in a file, it would look like this; the run's next writer copes.
    for path in _files(place):
        with path.open("ab") as file:
            file.write(b'{"at":"2026')
    for action in recorded:
        journal.record(Event(datetime.now(UTC).isoformat(), "victim", "c.d.t", action, "outcome", "failed"))
    assert journal.open_intents("c.d.t") == []


def _files(place: Place) -> Iterable[Path]:
    return Path(place.url, "journal").rglob("victim.jsonl") if place.kind == "folder" else ()
