"""A state that an older release has written: it is read as it is, goes on, and is brought up to date when written to.

`state_layout_1.json` holds the files that the release of layout version 1 left when it was killed after an intent.
"""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, LeaseHeldError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.removal.lists import Candidate, close_list, open_lists, read_list
from lakehouse_maintenance.state import State, files, folder, layout, open_state

EVENTS = "main.analytics.events"
ORDERS = "main.sales.orders"
NOW = datetime(2026, 5, 4, 12, 10, tzinfo=UTC)


def _files() -> dict[str, bytes]:
    texts: dict[str, str] = json.loads(Path(__file__).with_name("state_layout_1.json").read_text("ascii"))
    binary = "base64:"
    return {
        name: b64decode(text.removeprefix(binary)) if text.startswith(binary) else text.encode("ascii")
        for name, text in texts.items()
    }


FILES = _files()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The folder as it was left."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def opened(path: Path) -> State:
    return open_state(str(path), now=lambda: NOW)


def check_what_is_remembered(state: State) -> None:
    """All that the old release has written, by every way of reading it."""
    (intent,) = state.journal.open_intents(EVENTS)
    assert (intent.run_id, intent.action, intent.details) == ("Run/1", "expire_snapshots", {"snapshots": [1]})
    assert state.journal.open_intents(ORDERS) == []
    assert [each.phase for each in state.journal.events(run_id="Run/1")][:3] == ["intent", "outcome", "intent"]
    held = state.leases.current(EVENTS)
    assert held is not None
    assert (held.owner, held.fence) == ("old@host:1", 1)
    (head,) = open_lists(state, EVENTS)
    assert (head.run_id, head.operation, head.files, head.uuid) == ("Run/1", "delete", 2, "u1")
    (candidates,) = read_list(state, head)
    assert candidates == [
        Candidate("s3://lake/events/data/1.parquet", "data", 10),
        Candidate("s3://lake/events/metadata/snap-1.avro", "manifest_list", None),
    ]
    assert open_lists(state, ORDERS) == []
    assert state.get("spent/2026-05-04") == (b"12345", "f16d82d1dd1a4d589e8f15321f8554df")
    stored = state.get("x" * 250)
    assert stored is not None
    assert stored[0] == b"long"
    assert {"spent/2026-05-04", "x" * 250, f"leases/{EVENTS}"} <= set(state.keys(""))


def test_reading_an_older_state_changes_nothing(old: Path) -> None:
    before = contents(old)
    state = opened(old)
    check_what_is_remembered(state)
    state.check_writable()
    with pytest.raises(LeaseHeldError):
        state.leases.acquire(EVENTS, run_id="new", owner="new", ttl=timedelta(hours=1))
    assert contents(old) == before


@pytest.mark.requirement("RS-08")
@pytest.mark.parametrize("first", ["value", "journal", "lease"])
def test_everything_goes_on_after_the_migration(old: Path, first: str) -> None:
    state = opened(old)
    if first == "value":
        assert state.put("new", b"v", None) is not None
    elif first == "journal":
        state.journal.record(Event(NOW.isoformat(), "new", "a.b.c", "a", "outcome", "done"))
    else:
        state.leases.acquire("a.b.c", run_id="new", owner="new", ttl=timedelta(hours=1)).release()
    assert (old / "version").read_text() == "2\n"
    unchanged = {name: content for name, content in FILES.items() if name != "version"}
    assert unchanged.items() <= contents(old).items()
    check_what_is_remembered(state)
    check_what_is_remembered(opened(old))
    # What was open is finished by this release; fences and versions go on from where they were.
    (head,) = open_lists(state, EVENTS)
    close_list(state, head, {"deleted": 2})
    state.journal.record(Event(NOW.isoformat(), "Run/1", EVENTS, "expire_snapshots", "outcome", "done"))
    assert state.journal.open_intents(EVENTS) == []
    assert open_lists(state, EVENTS) == []
    assert state.put("spent/2026-05-04", b"2", "f16d82d1dd1a4d589e8f15321f8554df") is not None
    for table, later in ((ORDERS, timedelta(0)), (EVENTS, timedelta(hours=1))):
        with open_state(str(old), now=lambda later=later: NOW + later).leases.acquire(  # type: ignore[misc]
            table, run_id="new", owner="new", ttl=timedelta(hours=1)
        ) as lease:
            assert lease.fence == 2


def test_an_older_release_refuses_what_this_one_has_written(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older release is this one without the step: it was open before, and it is opened again."""
    with monkeypatch.context() as older:
        older.setattr(layout, "latest", lambda: 1)
        running = opened(old)
        version = running.put("k", b"v", None)
        assert (old / "version").read_text() == "1\n"
    opened(old).put("new", b"v", None)
    monkeypatch.setattr(layout, "latest", lambda: 1)
    with pytest.raises(ConfigurationError, match="layout version 2, this release knows 1"):
        opened(old)
    for use in (
        lambda: running.get("k"),
        lambda: running.put("k", b"w", version),
        lambda: open_lists(running, EVENTS),
        running.journal.events,
        lambda: running.leases.acquire("a.b.c", run_id="r", owner="o", ttl=timedelta(hours=1)),
    ):
        with pytest.raises(LakehouseError, match="layout version 2"):
            use()


def test_a_crash_before_the_version_is_written_is_made_good(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class CrashError(Exception):
        pass

    def crash(*_: object) -> None:
        raise CrashError

    with monkeypatch.context() as fault:
        fault.setattr(folder.os, "replace", crash)
        with pytest.raises(CrashError):
            opened(old).put("new", b"v", None)
    assert (old / "version").read_text() == "1\n"
    check_what_is_remembered(opened(old))
    assert opened(old).put("new", b"v", None) is not None
    assert (old / "version").read_text() == "2\n"
    check_what_is_remembered(opened(old))


def test_the_migration_waits_for_the_lock(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of the older release may be in the middle of a write."""
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.02)
    with (old / "lock").open("r+") as lock:
        with files.file_lock(lock.fileno(), old / "lock"), pytest.raises(LakehouseError, match="locked"):
            opened(old).put("new", b"v", None)
        assert (old / "version").read_text() == "1\n"
    assert opened(old).put("new", b"v", None) is not None


def test_steps_are_numbered_without_a_gap() -> None:
    assert [step.to for step in layout.MIGRATIONS] == list(range(2, layout.latest() + 1))
    assert layout.oldest() == 1
