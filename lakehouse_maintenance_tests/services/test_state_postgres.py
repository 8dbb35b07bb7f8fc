"""State in PostgreSQL: lost connections and answers, rights, refusals, processes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from lakehouse_maintenance.model.errors import ConfigurationError, LeaseHeldError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import State, database, open_state, swapping
from lakehouse_maintenance.state.opening import open_store
from lakehouse_maintenance.state.postgres import PostgresStore
from lakehouse_maintenance_tests.services.postgres import PostgresServer
from lakehouse_maintenance_tests.services.states import Place, new_place

TABLE = "c.d.t"
HOUR = timedelta(hours=1)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return new_place("postgres", request, tmp_path)


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults that never end should not be waited for."""
    monkeypatch.setattr(swapping, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(database, "PAUSES", (0.0, 0.0, 0.0))


class Commits:
    """The commits of one store: `fault(number, commit)` stands in for each."""

    def __init__(self, store: PostgresStore) -> None:
        self.fault: Callable[[int, Callable[[], None]], None] = lambda _, commit: commit()
        self.number = 0
        dialect = store._database._opened().dialect
        real = dialect.do_commit

        def do_commit(connection: Any) -> None:
            self.number += 1
            try:
                self.fault(self.number, lambda: real(connection))
            except ConnectionError:
                connection.close()
                raise psycopg2.OperationalError("SSL connection has been closed unexpectedly") from None

        dialect.do_commit = do_commit  # type: ignore[method-assign]


def opened(place: Place) -> tuple[State, Commits]:
    """A state with its layout, whose commits can fail."""
    store = open_store(place.url, {})
    assert isinstance(store, PostgresStore)
    store.put("layout", b"", None)
    return State(store, cache=place.scratch), Commits(store)


def lose(number: int, commit: Callable[[], None]) -> None:
    """It is committed, and the answer never comes; every other time."""
    commit()
    if number % 2:
        raise ConnectionError


def event(phase: str, action: str = "a") -> Event:
    return Event(datetime.now(UTC).isoformat(), "r1", TABLE, action, phase)


def test_a_lost_answer_to_a_commit_is_no_mismatch(place: Place) -> None:
    state, commits = opened(place)
    commits.fault = lambda number, commit: lose(1, commit)
    version: str | None = None
    for number in range(5):
        version = state.put("n", str(number).encode(), version)
        assert version is not None
        assert place.open().get("n") == (str(number).encode(), version)
    assert commits.number == 5


def test_a_commit_that_never_happened_is_done_again(place: Place) -> None:
    state, commits = opened(place)

    def fault(number: int, commit: Callable[[], None]) -> None:
        if number % 2:
            raise ConnectionError
        commit()

    commits.fault = fault
    first = state.put("n", b"0", None)
    second = state.put("n", b"1", first)
    assert None not in (first, second)
    assert place.open().get("n") == (b"1", second)
    assert commits.number == 4


def test_a_lost_answer_is_found_behind_another_write(place: Place) -> None:
    state, commits = opened(place)
    other = place.open()

    def fault(number: int, commit: Callable[[], None]) -> None:
        commit()
        if number == 1:
            stored = other.get("n")
            assert stored is not None
            assert other.put("n", b"2", stored[1]) is not None
            raise ConnectionError

    commits.fault = fault
    version = state.put("n", b"1", None)
    assert version is not None
    assert state.put("n", b"3", version) is None
    stored = other.get("n")
    assert stored is not None
    assert stored[0] == b"2"


def test_what_cannot_be_found_out_is_an_error(place: Place, few_tries: None) -> None:
    state, commits = opened(place)

    def fault(number: int, commit: Callable[[], None]) -> None:
        raise ConnectionError

    commits.fault = fault
    with pytest.raises(StorageError, match="whether 'n' was written cannot be told") as caught:
        state.put("n", b"1", None)
    assert caught.value.field == "state.url"
    with pytest.raises(StorageError):
        state.journal.record(event("outcome"))
    assert place.open().get("n") is None
    assert place.open().journal.events() == []


def test_leases_and_journal_when_answers_are_lost(place: Place) -> None:
    state, commits = opened(place)
    other = place.open()
    commits.fault = lose
    for fence in (1, 3):
        with state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR) as lease:
            assert lease.fence == fence
            lease.check()
            with pytest.raises(LeaseHeldError):
                other.leases.acquire(TABLE, run_id="r2", owner="o2", ttl=HOUR)
        with other.leases.acquire(TABLE, run_id="r2", owner="o2", ttl=HOUR) as lease:
            assert lease.fence == fence + 1
    written = [event(phase, f"a{number}") for number in range(3) for phase in ("intent", "outcome")]
    for each in written:
        state.journal.record(each)
    assert other.journal.events() == written
    assert other.journal.open_intents(TABLE) == []


def test_new_connections_for_lost_ones(place: Place) -> None:
    """As after a restart or a failover of the server."""
    assert place.postgres is not None
    state = place.open()
    version = state.put("n", b"0", None)
    uses: tuple[Callable[[], object], ...] = (
        lambda: state.get("n"),
        lambda: state.put("n", b"1", version),
        lambda: state.journal.record(event("intent")),
        lambda: state.journal.open_intents(TABLE),
        lambda: list(state.keys("")),
        lambda: state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR).release(),
        state.check_writable,
    )
    for use in uses:
        place.postgres.drop_connections(place.database)
        use()
    stored = place.open().get("n")
    assert stored is not None
    assert stored[0] == b"1"


def test_a_forked_child_has_connections_of_its_own(place: Place) -> None:
    store = open_store(place.url, {})
    assert isinstance(store, PostgresStore)
    version = store.put("n", b"0", None)
    ours = backend(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            is_own = backend(store) != ours
            code = 0 if store.put("n", b"child", version) is not None and is_own else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    stored = store.get("n")
    assert stored is not None
    assert stored[0] == b"child"
    assert backend(store) == ours
    assert store.put("n", b"parent", stored[1]) is not None


def backend(store: PostgresStore) -> int:
    """The server's process behind the connection."""
    from sqlalchemy import func, select

    return store._database.reading(
        lambda connection: int(connection.execute(select(func.pg_backend_pid())).scalar_one())
    )


def test_many_may_create_the_layout_at_once(place: Place) -> None:
    made: list[str | None] = []
    threads = [
        threading.Thread(target=lambda number=number: made.append(place.open().put(f"k{number}", b"v", None)))  # type: ignore[misc]
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    assert None not in made
    assert len(list(place.open().keys("k"))) == 6


def test_a_writer_that_never_ends_is_an_error(place: Place, few_tries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    state = place.open()
    version = state.put("n", b"0", None)
    monkeypatch.setattr(database, "_LIMITS", "SET LOCAL lock_timeout = '50ms'")
    assert place.postgres is not None
    blocking = psycopg2.connect(place.url.partition("?")[0])
    try:
        with blocking.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {place.schema}.key_values FOR UPDATE")
            with pytest.raises(StorageError, match="lock timeout"):
                state.put("n", b"1", version)
        # Waits for the server's answer, which closing does not.
        blocking.rollback()
    finally:
        blocking.close()
    assert state.put("n", b"1", version) is not None


# Rights and refusals


def test_the_least_rights_are_enough_and_less_is_told(place: Place, postgres: PostgresServer) -> None:
    """What docs/state.md grants."""
    user = f"user_{place.schema}"
    place.query(f"CREATE ROLE {user} LOGIN PASSWORD 'users-password'")
    who = f"postgresql://{user}:users-password@127.0.0.1:{postgres.port}/{place.database}?schema={place.schema}"
    with pytest.raises(ConfigurationError, match="CREATE on the database"):
        open_state(who, cache=place.scratch).check_writable()
    place.query(f"CREATE SCHEMA {place.schema}")
    with pytest.raises(ConfigurationError, match="permission denied for schema"):
        open_state(who, cache=place.scratch)
    place.query(f"GRANT USAGE ON SCHEMA {place.schema} TO {user}")
    with pytest.raises(ConfigurationError, match="CREATE on the schema"):
        open_state(who, cache=place.scratch).check_writable()
    with pytest.raises(ConfigurationError, match="permission denied") as caught:
        open_state(who, cache=place.scratch).put("n", b"0", None)
    assert caught.value.field == "state.url"

    place.open().put("n", b"0", None)
    place.query(f"GRANT SELECT ON ALL TABLES IN SCHEMA {place.schema} TO {user}")
    with pytest.raises(ConfigurationError, match="INSERT on key_values, UPDATE on key_values, INSERT on journal"):
        open_state(who, cache=place.scratch).check_writable()
    place.query(f"GRANT INSERT, UPDATE ON {place.schema}.key_values TO {user}")
    place.query(f"GRANT INSERT ON {place.schema}.journal TO {user}")
    state = open_state(who, cache=place.scratch)
    state.check_writable()
    with state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR) as lease:
        state.journal.record(event("intent"))
        state.journal.record(event("outcome"))
        lease.check()
    assert len(state.journal.events()) == 2
    assert state.leases.all() == []


def test_refusals_are_named_and_never_show_the_password(place: Place, postgres: PostgresServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        closed = taken.getsockname()[1]
        secret = "p4ss-w0rd-1"
        there = f"127.0.0.1:{postgres.port}"
        urls: dict[str, type[Exception]] = {
            f"postgresql://postgres:{secret}@{there}/{place.database}": ConfigurationError,
            f"postgresql://nobody:{secret}@{there}/{place.database}": ConfigurationError,
            f"postgres://postgres:{postgres.password}@{there}/no_such_database": ConfigurationError,
            f"postgresql://u:{secret}@127.0.0.1:{closed}/x": StorageError,
            f"postgresql://u:{secret}@{there}/x?no_such_parameter={secret}": ConfigurationError,
            f"postgresql://u:{secret}@{there}/x?connect_timeout={secret}": ConfigurationError,
        }
        for url, kind in urls.items():
            with pytest.raises(kind) as caught:
                open_state(url)
            error: Any = caught.value
            assert error.field == "state.url", url
            assert error.hint, url
            for hidden in (secret, postgres.password):
                assert hidden not in str(error.as_json())


def test_a_place_shows_no_password(place: Place) -> None:
    assert place.postgres is not None
    assert place.open().location == (
        f"postgresql://postgres@127.0.0.1:{place.postgres.port}/{place.database}, schema {place.schema}"
    )


def test_the_schema_is_the_urls_and_may_have_any_name(place: Place) -> None:
    url = place.url.partition("?")[0]
    names = {"": "lakehouse_maintenance", "?schema=Odd%20%22name%22&application_name=me": 'Odd "name"'}
    for query in names:
        state = open_state(url + query, cache=place.scratch)
        assert state.get("k") is None
        state.check_writable()
        assert state.put("k", query.encode(), None) is not None
        state.check_writable()
        state.journal.record(event("intent"))
    for query in names:
        stored = open_state(url + query, cache=place.scratch).get("k")
        assert stored is not None
        assert stored[0] == query.encode()
    found = place.query("SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%'")
    assert {(name,) for name in names.values()} <= set(found)
