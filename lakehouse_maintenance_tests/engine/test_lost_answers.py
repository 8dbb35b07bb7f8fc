"""Commits whose answer is lost, leases that end, runs that are killed: nothing is cleaned up, the next run knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import append, before_commit, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,))
COMPACT_ALL = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr("lakehouse_maintenance.iceberg.commit.ReplaceCommit.pause", staticmethod(lambda attempt: None))


@contextmanager
def commits(target: Lakehouse, behave: Callable[[int, Callable[[], Any]], Any]) -> Iterator[None]:
    """`behave` gets the number of the attempt and the real commit, and stands in for the catalog's answer."""
    catalog = target.catalogs["main"].pyiceberg
    real = catalog.commit_table
    attempts = 0

    def commit_table(*args: Any, **kwargs: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return behave(attempts, lambda: real(*args, **kwargs))

    catalog.commit_table = commit_table  # type: ignore[method-assign]
    try:
        yield
    finally:
        catalog.commit_table = real  # type: ignore[method-assign]


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_commit_that_went_through_is_found_by_its_snapshot(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        real()
        raise CommitStateUnknownException("the connection was closed")

    with commits(ours, lose):
        outcome = ours.maintain((), COMPACT, run_id="run-1").tables[0]
    assert outcome.status is Status.DONE, outcome
    table = writer.load_table("db.t")
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.snapshot_id == outcome.actions[0].snapshot_id
    assert head.summary.additional_properties["lakehouse-maintenance.run-id"] == "run-1"
    assert ids(writer) == [*range(60)]


def test_it_is_found_though_others_committed_after_it(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        real()
        append(writer, "db.t", 1000, 10)
        raise TimeoutError("no answer")

    with commits(ours, lose):
        outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60), *range(1000, 1010)]


def test_a_request_that_never_arrived_is_made_again(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        if attempt == 1:
            raise ConnectionResetError("reset")
        return real()

    with commits(ours, lose):
        outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.attempts == 2


def test_a_late_arrival_of_the_first_request_does_no_harm(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    """The first request is only slow: it reaches the catalog when a second one has been made."""
    writer, ours = pair
    many_small_files(writer)
    slow: list[Callable[[], Any]] = []

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        if attempt == 1:
            slow.append(real)
            raise TimeoutError("no answer")
        slow[0]()
        return real()

    with commits(ours, lose):
        outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60)]
    assert len(writer.load_table("db.t").metadata.snapshots) == 7, "one of the two requests became visible"


def test_an_answer_that_stays_unknown_cleans_nothing_and_the_next_run_tells(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    many_small_files(writer)
    catalog = ours.catalogs["main"]
    real_load = catalog.pyiceberg.load_table
    down = False

    def load_table(identifier: Any) -> Any:
        if down:
            raise ConnectionError("the catalog is down")
        return real_load(identifier)

    monkeypatch.setattr(catalog.pyiceberg, "load_table", load_table)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        nonlocal down
        real()
        down = True
        raise TimeoutError("no answer")

    before = files_below(tmp_path / "warehouse")
    with commits(ours, lose):
        result = ours.maintain((), COMPACT, run_id="lost-run")
    outcome = result.tables[0]
    assert outcome.status is Status.UNKNOWN, outcome
    assert not result.ok
    assert "lost-run" in str(outcome.reason), "our run id tells whether it went through"
    assert before < files_below(tmp_path / "warehouse"), "nothing was cleaned up"
    event = ours.audit(last=1)[0]
    assert (event.status, event.phase) == ("unknown", "outcome")
    assert event.details["written"]["files"] > 0

    down = False
    append(writer, "db.t", 100, 10)
    ours.maintain((), COMPACT_ALL)
    told = [e for e in ours.audit() if e.run_id == "lost-run" and e.phase == "outcome"]
    assert [e.status for e in told] == ["unknown", "done"]
    assert ids(writer) == sorted([*range(60), *range(100, 110)])


def test_a_refusal_is_definite(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)

    def refuse(attempt: int, real: Callable[[], Any]) -> Any:
        raise ValueError("not like this")

    with commits(ours, refuse):
        outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.FAILED
    assert "refused the commit: not like this" in outcome.reason


def test_a_lost_lease_stops_the_commit(pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    many_small_files(writer)
    head = writer.load_table("db.t").current_snapshot()
    from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Rewriter

    real = Rewriter.rewrite

    def rewrite(self: Any, *args: Any) -> Any:
        made = real(self, *args)
        # Another run takes over, as if ours had slept longer than its lease.
        key = "leases/main.db.t"
        value, version = ours.state.get(key) or (b"", "")
        assert ours.state.put(
            key, value.replace(b'"fence": 1', b'"fence": 2').replace(b'"fence":1', b'"fence":2'), version
        )
        return made

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)
    outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.FAILED, outcome
    assert writer.load_table("db.t").current_snapshot() == head


def test_a_table_that_another_run_holds_is_blocked_and_others_go_on(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    many_small_files(writer, "db.u")
    with ours.state.leases.acquire("main.db.t", run_id="other", owner="somebody", ttl=timedelta(minutes=1)):
        result = ours.maintain((), COMPACT)
    by_name = {table.table: table for table in result.tables}
    assert by_name["main.db.t"].status is Status.BLOCKED
    assert "somebody" in by_name["main.db.t"].reason
    assert by_name["main.db.u"].status is Status.DONE


_KILLED = """
import os, signal, sys
from pathlib import Path
from lakehouse_maintenance_tests.engine.tables import before_commit, lakehouse
from lakehouse_maintenance_tests.engine.test_lost_answers import COMPACT, commits
folder, when = Path(sys.argv[1]), sys.argv[2]
uri, warehouse = f"sqlite:///{folder / 'main'}.db", f"file://{folder / 'warehouse'}"
ours = lakehouse(folder, {"type": "sql", "uri": uri, "warehouse": warehouse})
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
def behave(attempt, real):
    if when == "after":
        real()
    die()
with commits(ours, behave):
    ours.maintain((), COMPACT, run_id="killed-run")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_at_its_commit_is_told_by_the_next(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    writer, ours = pair
    many_small_files(writer)
    before = files_below(tmp_path / "warehouse")
    child = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), when], check=False, cwd=os.getcwd())
    assert child.returncode == -signal.SIGKILL
    assert before < files_below(tmp_path / "warehouse")
    blocked = ours.maintain((), COMPACT).tables[0]
    if when == "before":
        assert blocked.status is Status.BLOCKED, "its lease lives on for its time"
    info = ours.state.leases.current("main.db.t")
    assert info is not None
    later = info.expires_at + timedelta(seconds=1)
    monkeypatch.setattr(ours.state.leases, "_now", lambda: later)
    append(writer, "db.t", 100, 10)
    outcome = ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})).tables[
        0
    ]
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == sorted([*range(60), *range(100, 110)])
    told = [e for e in ours.audit() if e.run_id == "killed-run" and e.phase == "outcome"]
    assert [e.status for e in told] == ["failed" if when == "before" else "done"]
    assert told[0].details["recovered"] is True


def test_before_commit_hook_is_real(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    """The injected races above happen where they claim to: before the catalog sees our commit."""
    writer, ours = pair
    many_small_files(writer)
    seen: list[int] = []
    with before_commit(ours, lambda attempt: seen.append(len(writer.load_table("db.t").metadata.snapshots))):
        ours.maintain((), COMPACT)
    assert seen == [6]
