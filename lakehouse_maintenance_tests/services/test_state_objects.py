"""State on object storage: lost answers, stores that do not honour conditions, refusals, and what is never called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.model.errors import ConfigurationError, LeaseHeldError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import open_state, swapping
from lakehouse_maintenance.storage import clients
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, Lose, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.states import Place, new_place

TABLE = "c.d.t"
HOUR = timedelta(hours=1)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(clients, "FIRST_BACKOFF", timedelta(milliseconds=1))
    monkeypatch.setattr(swapping, "PAUSES", (0.0, 0.0, 0.0))
    return new_place("s3", request, tmp_path)


@pytest.fixture
def proxy(place: Place) -> Iterator[FaultProxy]:
    assert place.s3 is not None
    with fault_proxy(place.s3.endpoint) as found:
        yield found


@pytest.fixture
def behind(place: Place, proxy: FaultProxy) -> Place:
    """The same state, reached through the proxy."""
    assert place.s3 is not None
    return replace(place, properties=place.s3.at(proxy.endpoint).properties)


def is_put(request: Request, part: str = "/values/") -> bool:
    return request.method == "PUT" and part in request.target


def losing_first_answers(part: str = "/values/") -> Callable[[Request], Lose | None]:
    """Of each new content under a name, the first answer is lost. Repetitions of the same get theirs."""
    seen: set[tuple[str, bytes]] = set()
    lock = threading.Lock()

    def rule(request: Request) -> Lose | None:
        with lock:
            content = (request.target, request.body)
            if not is_put(request, part) or content in seen:
                return None
            seen.add(content)
            return Lose()

    return rule


def event(phase: str, action: str = "a") -> Event:
    return Event(datetime.now(UTC).isoformat(), "r1", TABLE, action, phase)


def test_a_lost_answer_is_no_mismatch(place: Place, behind: Place, proxy: FaultProxy) -> None:
    """The put went through, and nobody heard of it."""
    state = behind.open()
    proxy.rule = losing_first_answers()
    version: str | None = None
    for number in range(5):
        version = state.put("n", str(number).encode(), version)
        assert version is not None
        assert place.open().get("n") == (str(number).encode(), version)
    puts = [request for request in proxy.seen if is_put(request)]
    assert len(puts) == 5


def test_a_lost_answer_is_found_behind_another_write(place: Place, behind: Place, proxy: FaultProxy) -> None:
    """Before we look again, somebody reads our value and replaces it: ours did happen all the same."""
    state, other = behind.open(), place.open()
    first = state.put("n", b"0", None)
    lose = losing_first_answers()

    def rule(request: Request) -> Lose | None:
        lost = lose(request)
        if request.method == "GET" and "/values/" in request.target:
            stored = other.get("n")
            assert stored is not None
            if stored[0] == b"1":
                assert other.put("n", b"2", stored[1]) is not None
        return lost

    proxy.rule = rule
    version = state.put("n", b"1", first)
    assert version is not None
    stored = other.get("n")
    assert stored is not None
    assert stored[0] == b"2"
    assert state.put("n", b"3", version) is None
    assert state.put("m", b"0", None) is not None


def test_a_refusal_by_another_write_is_a_mismatch(place: Place, behind: Place, proxy: FaultProxy) -> None:
    """Between our look and our put, somebody else writes."""
    state, other = behind.open(), place.open()
    first = state.put("n", b"0", None)
    done: list[str | None] = []

    def rule(request: Request) -> None:
        if is_put(request) and not done:
            done.append(other.put("n", b"theirs", first))

    proxy.rule = rule
    assert state.put("n", b"ours", first) is None
    assert state.get("n") == (b"theirs", done[0])


def test_what_cannot_be_found_out_is_an_error(
    place: Place, behind: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_RETRIES", 0)
    state = behind.open()
    first = state.put("n", b"0", None)
    is_cut: list[bool] = []

    def rule(request: Request) -> Answer | Lose | None:
        if is_put(request):
            is_cut.append(True)
            return Lose()
        return Answer(503) if is_cut else None

    proxy.rule = rule
    with pytest.raises(StorageError) as caught:
        state.put("n", b"1", first)
    assert caught.value.field == "state.url"
    proxy.rule = lambda _: None
    stored = place.open().get("n")
    assert stored is not None
    assert stored[0] == b"1"


def test_nothing_is_claimed_where_every_answer_is_lost_and_nothing_arrives(
    place: Place, behind: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_RETRIES", 0)
    state = behind.open()
    first = state.put("n", b"0", None)
    proxy.rule = lambda request: Answer(500) if is_put(request) else None
    with pytest.raises(StorageError, match="cannot be told"):
        state.put("n", b"1", first)
    assert place.open().get("n") == (b"0", first)
    proxy.rule = lambda _: None
    assert state.put("n", b"1", first) is not None


def test_leases_stay_consistent_when_answers_are_lost(place: Place, behind: Place, proxy: FaultProxy) -> None:
    state, other = behind.open(), place.open()
    proxy.rule = losing_first_answers()
    for fence in (1, 3):
        with state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR) as lease:
            assert lease.fence == fence
            lease.check()
            with pytest.raises(LeaseHeldError):
                other.leases.acquire(TABLE, run_id="r2", owner="o2", ttl=HOUR)
            lease.check()
        with other.leases.acquire(TABLE, run_id="r2", owner="o2", ttl=HOUR) as lease:
            assert lease.fence == fence + 1
            with pytest.raises(LeaseHeldError):
                state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR)


def test_a_lease_whose_taking_could_not_be_told_is_held_until_its_end(
    place: Place, behind: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_RETRIES", 0)
    state = behind.open()
    state.put("n", b"0", None)
    is_cut: list[bool] = []

    def rule(request: Request) -> Answer | Lose | None:
        if is_put(request):
            is_cut.append(True)
            return Lose()
        return Answer(503) if is_cut else None

    proxy.rule = rule
    with pytest.raises(StorageError):
        state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR)
    other = place.open()
    with pytest.raises(LeaseHeldError, match="run r"):
        other.leases.acquire(TABLE, run_id="r2", owner="o2", ttl=HOUR)
    later = datetime.now(UTC) + HOUR
    with other.leases.acquire(TABLE, run_id="r2", owner="o2", ttl=HOUR, now=later) as lease:
        assert lease.fence == 2


def test_an_event_whose_answer_is_lost_is_recorded_once(place: Place, behind: Place, proxy: FaultProxy) -> None:
    state = behind.open()
    for part in ("/journal/", "/runs/", "/values/", "/version"):
        proxy.rule = losing_first_answers(part)
        action = f"with {part} lost"
        written = [event("intent", action), event("outcome", action)]
        for each in written:
            state.journal.record(each)
        assert [each for each in place.open().journal.events() if each.action == action] == written
    assert place.open().journal.open_intents(TABLE) == []


def test_an_intent_that_was_not_recorded_raises(
    place: Place, behind: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_RETRIES", 0)
    state = behind.open()
    proxy.rule = lambda request: Answer(500) if is_put(request, "/journal/") else None
    with pytest.raises(StorageError) as caught:
        state.journal.record(event("intent"))
    assert caught.value.field == "state.url"
    assert place.open().journal.events() == []


def test_nothing_is_ever_deleted_or_written_without_a_condition(place: Place, behind: Place, proxy: FaultProxy) -> None:
    state = behind.open()
    state.check_writable()
    with state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR):
        state.journal.record(event("intent"))
        state.journal.record(event("outcome"))
    state.check_writable()
    assert state.journal.events() != []
    assert {request.method for request in proxy.seen} == {"GET", "PUT"}
    for request in proxy.seen:
        names = {name.lower() for name in request.headers}
        assert request.method != "PUT" or names & {"if-match", "if-none-match"}, request.target


# Stores that cannot be used


@contextmanager
def careless(*ignored: str) -> Iterator[S3Server]:
    """A real server but for the conditions of puts, which it does not see."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    inner = DomainDispatcherApplication(create_backend_app)

    def application(environment: dict[str, Any], start: Any) -> Any:
        if environment["REQUEST_METHOD"] == "PUT":
            for header in ignored:
                environment.pop("HTTP_" + header.upper().replace("-", "_"), None)
        return inner(environment, start)

    class Silent(WSGIRequestHandler):
        def log(self, *_: Any) -> None: ...  # type: ignore[override]

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield S3Server(f"http://127.0.0.1:{server.server_port}", "any", "any-secret")
    finally:
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("ignored", [("If-None-Match",), ("If-Match",), ("If-Match", "If-None-Match")])
def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path, ignored: tuple[str, ...]) -> None:
    with careless(*ignored) as server:
        url = f"s3://{server.bucket()}/state"
        state = open_state(url, properties=server.properties, cache=tmp_path)
        assert state.get("k") is None
        for use in (
            lambda: state.put("k", b"v", None),
            lambda: state.leases.acquire(TABLE, run_id="r", owner="o", ttl=HOUR),
            lambda: state.journal.record(event("intent")),
        ):
            with pytest.raises(ConfigurationError, match="ignores conditional writes") as caught:
                use()
            assert caught.value.field == "state.url"
        assert state.get("k") is None
        if "If-Match" in ignored:
            with pytest.raises(ConfigurationError, match="ignores conditional writes"):
                state.check_writable()


def test_a_store_that_knows_no_conditions_is_refused(
    behind: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_RETRIES", 0)
    proxy.rule = lambda request: Answer(501) if request.method == "PUT" else None
    with pytest.raises(ConfigurationError, match="501") as caught:
        behind.open().put("k", b"v", None)
    assert caught.value.hint is not None
    assert "conditional writes" in caught.value.hint


def test_refused_credentials_are_named_and_never_shown(place: Place) -> None:
    secret = "wrong-secret-0123456789"
    wrong = {**place.properties, "s3.secret-access-key": secret}
    with pytest.raises(ConfigurationError, match="403") as caught:
        open_state(place.url, properties=wrong)
    assert caught.value.field == "state.url"
    assert caught.value.hint is not None
    assert "state.properties" in caught.value.hint
    assert secret not in str(caught.value.as_json())


def test_a_right_to_write_that_is_missing_shows_without_writing(place: Place, behind: Place, proxy: FaultProxy) -> None:
    proxy.rule = lambda request: Answer(403) if request.method == "PUT" else None
    state = behind.open()
    with pytest.raises(ConfigurationError, match="403"):
        state.check_writable()
    with pytest.raises(ConfigurationError, match="403"):
        state.put("k", b"v", None)
    assert place.is_empty()


def test_a_missing_bucket_is_no_empty_state(moto: S3Server) -> None:
    with pytest.raises(ConfigurationError, match="no-such-bucket") as caught:
        open_state("s3://no-such-bucket/state", properties=moto.properties)
    assert caught.value.hint == "the bucket must exist"


def test_a_store_that_does_not_answer_is_no_empty_state(
    behind: Place, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_RETRIES", 0)
    proxy.rule = lambda _: Answer(503)
    with pytest.raises(StorageError) as caught:
        behind.open()
    assert caught.value.field == "state.url"


def test_the_root_of_a_bucket_will_do(place: Place) -> None:
    assert place.s3 is not None
    url = f"s3a://{place.s3.bucket()}"
    for spelling in (url, url + "/"):
        state = open_state(spelling, properties=place.properties, cache=place.scratch)
        state.put("a/b", b"v", None)
        assert list(state.keys("a/")) == ["a/b"]


@pytest.mark.parametrize("place_of_cache", ["given", "xdg", "home"])
def test_what_is_disposable_stays_on_this_machine(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place_of_cache: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg") if place_of_cache == "xdg" else "relative")
    given = tmp_path / "given" if place_of_cache == "given" else None
    for url in (place.url, place.url + "-other"):
        state = open_state(url, properties=place.properties, cache=given)
        state.cache.put_many({"k": b"v"})
        assert state.cache.get_many(["k"]) == {"k": b"v"}
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob("manifests.db")]
    if place_of_cache == "given":
        assert found == [Path("given/manifests.db")]
    else:
        assert {path.parts[0] for path in found} == {place_of_cache}
        assert all("lakehouse-maintenance" in path.parts for path in found)
        assert len(found) == 2
    assert place.is_empty()
