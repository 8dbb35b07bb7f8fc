"""Values in every kind of state: compare-and-swap, names, the layout's version, faults."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakehouse_maintenance.model.errors import ConfigurationError, InputError, LakehouseError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import layout
from lakehouse_maintenance.state import objects as objects_module
from lakehouse_maintenance.state.copying import Copied, copy_store
from lakehouse_maintenance.state.layout import Migration
from lakehouse_maintenance.state.naming import file_name, key_of
from lakehouse_maintenance.state.store import KeyValueStore
from lakehouse_maintenance.state.swapping import TRAIL, Fate, Stamp, fate, trail_after
from lakehouse_maintenance_tests.services.states import KINDS, Place, new_place
from lakehouse_maintenance_tests.unit.state_worker import start_worker

KEYS = st.text(st.characters(exclude_categories=()), max_size=300)


def test_reading_creates_nothing(place: Place) -> None:
    state = place.open()
    assert state.get("k") is None
    assert list(state.keys("")) == []
    assert state.leases.current("c.d.t") is None
    assert state.leases.all() == []
    assert state.journal.events(last=5) == []
    assert state.journal.events(run_id="r") == []
    assert state.journal.open_intents("c.d.t") == []
    assert state.cache.get_many(["k"]) == {}
    state.check_writable()
    assert place.is_empty()
    assert list(place.scratch.iterdir()) == []


def test_compare_and_swap(place: Place) -> None:
    state = place.open()
    first = state.put("k", b"one", None)
    assert first is not None
    assert place.store().check_version() == layout.latest()
    assert state.put("k", b"two", None) is None
    assert state.put("k", b"two", "no such version") is None
    assert state.put("absent", b"two", "no such version") is None
    assert state.get("absent") is None
    assert state.get("k") == (b"one", first)
    second = state.put("k", b"line\nline\0", first)
    assert second not in (None, first)
    assert place.open().get("k") == (b"line\nline\0", second)
    third = state.put("k", b"one", second)
    assert state.put("k", b"late", first) is None, "the same bytes again are not the same version"
    assert state.get("k") == (b"one", third)
    state.check_writable()
    place.open().check_writable()


def test_more_writes_than_a_trail_remembers(place: Place) -> None:
    state = place.open()
    first = version = state.put("k", b"0", None)
    for number in range(TRAIL + 3):
        version = state.put("k", str(number).encode(), version)
        assert version is not None
    assert state.put("k", b"late", first) is None
    assert state.put("k", b"late", None) is None
    assert state.get("k") == (str(TRAIL + 2).encode(), version)


def test_compare_and_swap_between_threads(place: Place) -> None:
    """Lost updates would show in the sum; threads share one state, or have one each."""
    shared = place.open()

    def add(own: bool) -> None:
        state = place.open() if own else shared
        times = 8
        while times:
            stored = state.get("n")
            value, version = (b"0", None) if stored is None else stored
            if state.put("n", str(int(value) + 1).encode(), version) is not None:
                times -= 1

    threads = [threading.Thread(target=add, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = place.open().get("n")
    assert stored is not None
    assert stored[0] == b"32"


def test_compare_and_swap_between_processes(place: Place) -> None:
    """Two real processes, as two hosts would: no addition is lost, none is made twice."""
    times = 60 if place.kind == "folder" else 30
    with (
        start_worker("add", place.argument, str(times)) as one,
        start_worker("add", place.argument, str(times)) as other,
    ):
        assert [one.wait(), other.wait()] == [0, 0]
    stored = place.open().get("n")
    assert stored is not None
    assert stored[0] == str(2 * times).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_any_key_behaves_as_in_a_dictionary(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(KEYS, st.binary(max_size=20), st.booleans()), max_size=8))
    @example([("", b"a", True), (".", b"b", True), ("..", b"c", True), ("a/b", b"d", True), ("A", b"", True)])
    @example([("/", b"a", True), ("a//b", b"b", True), ("a/", b"c", True), ("/a", b"d", True), ("a", b"e", True)])
    @example([("x" * 500, b"a", True), ("x" * 499 + "y", b"b", True), ("\ud800", b"c", True), ("\0\n", b"d", True)])
    @example([("x" * 300 + "/1", b"a", True), ("x" * 300 + "/2", b"b", True), ("a%2fb", b"c", True), ("~", b"", True)])
    def check(writes: list[tuple[str, bytes, bool]]) -> None:
        store = new_place(kind, request, tmp_path_factory.mktemp("state")).store()
        model: dict[str, tuple[bytes, str]] = {}
        for key, value, is_current in writes:
            expected = model[key][1] if key in model else None
            version = store.put(key, value, expected if is_current else "stale")
            assert (version is not None) is is_current
            if version is not None:
                model[key] = (value, version)
        assert sorted(store.keys("")) == sorted(model)
        for key, stored in model.items():
            assert store.get(key) == stored
            prefix = key[: len(key) // 2]
            assert sorted(store.keys(prefix)) == sorted(other for other in model if other.startswith(prefix))

    check()


@given(KEYS, KEYS)
def test_names_are_safe_and_tell_keys_apart(one: str, other: str) -> None:
    name = file_name(one)
    assert 0 < len(name.encode("ascii")) <= 255
    assert "/" not in name
    assert not name.startswith(".")
    assert name == name.lower()
    assert (name == file_name(other)) is (one == other)
    assert key_of(name) in (one, None)


def test_damaged_value_is_named(place: Place) -> None:
    state = place.open()
    version = state.put("kind/k", b"v", None)
    place.damage("kind/k")
    with pytest.raises(StorageError, match="kind%2fk") as caught:
        state.get("kind/k")
    assert caught.value.field == "state.url"
    if place.kind != "postgres":
        with pytest.raises(StorageError, match="kind%2fk"):
            state.put("kind/k", b"w", version)


# The layout's version


def test_version_from_the_future_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "VERSION_SECONDS", 0.0)
    state = place.open()
    version = state.put("k", b"v", None)
    place.set_version(layout.latest() + 1)
    with pytest.raises(ConfigurationError, match=f"layout version {layout.latest() + 1}") as caught:
        place.open()
    assert caught.value.field == "state.url"
    # A state that was open when a newer release took over stops as well.
    with pytest.raises(ConfigurationError):
        state.get("k")
    with pytest.raises(ConfigurationError):
        state.put("k", b"w", version)
    with pytest.raises(ConfigurationError):
        state.journal.events()
    place.set_version(0)
    with pytest.raises(ConfigurationError, match="no layout version that was ever in use"):
        place.open()
    place.set_version(layout.latest())
    assert state.get("k") == (b"v", version)


@pytest.fixture
def two_more_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps to versions 3 and 4, each of which changes `k`; returns what ran. The first time, step 4 crashes after its
    write."""
    ran: list[int] = []

    def step(number: int) -> Migration:
        def apply(values: KeyValueStore) -> None:
            stored = values.get("k")
            assert stored is not None
            done = b"+%d" % number
            if not stored[0].endswith(done):
                assert values.put("k", stored[0] + done, stored[1]) is not None
            assert values.put("k", b"never", stored[1] + "x") is None
            assert "k" in list(values.keys(""))
            ran.append(number)
            if ran == [3, 4]:
                raise ZeroDivisionError

        return Migration(number, "for a test", apply)

    monkeypatch.setattr(layout, "MIGRATIONS", (*layout.MIGRATIONS, step(3), step(4)))
    return ran


def test_a_crash_in_the_middle_of_a_migration_is_made_good(place: Place, two_more_steps: list[int]) -> None:
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(layout, "MIGRATIONS", layout.MIGRATIONS[:1])
        state = place.open()
        version = state.put("k", b"v", None)
        assert place.store().check_version() == 2
    # Reading changes nothing, and needs no step.
    assert place.open().get("k") == (b"v", version)
    assert two_more_steps == []
    with pytest.raises(ZeroDivisionError):
        place.open().put("other", b"w", None)
    assert place.open().put("other", b"w", None) is not None
    # In PostgreSQL all steps are one transaction; elsewhere those that ended stay.
    assert two_more_steps == ([3, 4, 3, 4] if place.kind == "postgres" else [3, 4, 4])
    assert place.store().check_version() == 4
    stored = place.open().get("k")
    assert stored is not None
    assert stored[0] == b"v+3+4"
    place.open().put("third", b"w", None)
    assert len(two_more_steps) <= 4


def test_a_writer_of_an_older_release_stops_when_the_layout_moves(place: Place, two_more_steps: list[int]) -> None:
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(layout, "MIGRATIONS", layout.MIGRATIONS[:1])
        old = place.open()
        version = old.put("k", b"v", None)
    two_more_steps.append(0)
    place.open().put("other", b"w", None)
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(layout, "MIGRATIONS", layout.MIGRATIONS[:1])
        with pytest.raises(ConfigurationError, match="layout version 4"):
            old.put("k", b"late", version)
        with pytest.raises(LakehouseError, match="layout version 4"):
            old.leases.acquire("c.d.t", run_id="r", owner="o", ttl=timedelta(hours=1))


# What became of a write


@given(st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_the_trail_tells_what_became_of_a_write(before: int, after: int, went_through: bool) -> None:
    """A history of writes with ours in it or not: what is told is true, and told while the trail reaches back."""
    history = [f"before{number}" for number in range(before)]
    expected = history[-1] if history else None
    history += ["ours"] if went_through else []
    history += [f"after{number}" for number in range(after)]
    stored: Stamp | None = None
    for version in history:
        stored = Stamp(version, trail_after(stored))
    told = fate(stored, "ours", expected)
    is_told = after <= TRAIL or expected is None
    if went_through:
        assert told is (Fate.DONE if is_told else Fate.UNKNOWN)
    elif after == 0:
        assert told is Fate.NOT_YET
    else:
        assert told is (Fate.REFUSED if is_told else Fate.UNKNOWN)


# Moving it


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_moves_to_another_kind(kind: str, place: Place, request: pytest.FixtureRequest) -> None:
    scratch = place.scratch / "target"
    scratch.mkdir()
    target = new_place(kind, request, scratch)
    state = place.open()
    with pytest.raises(ConfigurationError, match="no state in"):
        copy_store(place.store(), target.store())
    for number in range(3):
        at = f"2026-05-0{number + 1}T00:00:00+00:00"
        state.journal.record(Event(at, f"R/{number % 2}", "c.d.t", "a", "intent", details={"n": number}))
    state.put("x" * 300, b"long\n\0", None)
    lease = state.leases.acquire("c.d.t", run_id="r", owner="o", ttl=timedelta(hours=1))
    with pytest.raises(InputError, match="is held by o"):
        copy_store(place.store(), target.store())
    lease.release()
    assert target.is_empty()
    assert copy_store(place.store(), target.store()) == Copied(values=3, lines=3)
    moved = target.open()
    assert moved.journal.events() == state.journal.events()
    assert moved.journal.open_intents("c.d.t") == state.journal.open_intents("c.d.t")
    assert sorted(moved.keys("")) == sorted(state.keys(""))
    for key in state.keys(""):
        mine, theirs = state.get(key), moved.get(key)
        assert mine is not None
        assert theirs is not None
        assert mine[0] == theirs[0]
    with moved.leases.acquire("c.d.t", run_id="r", owner="o", ttl=timedelta(hours=1)) as lease:
        assert lease.fence == 2
    with pytest.raises(ConfigurationError, match="is not empty"):
        copy_store(place.store(), target.store())
