"""Leases in every kind of state: exclusion, fences, expiry, loss, crashes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from lakehouse_maintenance.model.errors import LeaseHeldError, LeaseLostError, StorageError
from lakehouse_maintenance.state import KeyValueStore, Lease, LeaseInfo, Leases, State
from lakehouse_maintenance_tests.services.states import Clock, Place, lease_threads
from lakehouse_maintenance_tests.unit.state_worker import start_worker

TABLE = "c.d.t"
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(place: Place, clock: Clock) -> State:
    return place.open(clock)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    # Tests of other modules may share this process, and hold leases of their own.
    before = lease_threads()
    yield
    assert lease_threads() <= before, "a test left a lease alive"


def acquire(state: State, run: str = "r1", ttl: timedelta = HOUR, table: str = TABLE) -> Lease:
    return state.leases.acquire(table, run_id=run, owner=f"host of {run}", ttl=ttl)


def test_a_lease_excludes_everybody_and_fences_grow(state: State, clock: Clock) -> None:
    with acquire(state) as lease:
        assert lease.fence == 1
        assert state.leases.current(TABLE) == LeaseInfo(TABLE, "r1", "host of r1", 1, clock(), clock() + HOUR)
        for run in ("r1", "r2"):
            with pytest.raises(LeaseHeldError) as caught:
                acquire(state, run)
            assert caught.value.field == TABLE
            for word in (TABLE, "host of r1", "run r1", "since 2026-05-04T12:00:00+00:00", "until 2026-05-04T13:00"):
                assert word in caught.value.message
        with acquire(state, table="c.d.other") as other:
            assert other.fence == 1
            assert [info.table for info in state.leases.all()] == ["c.d.other", TABLE]
        lease.check()
    assert state.leases.current(TABLE) is None
    assert state.leases.all() == []
    for fence in (2, 3):
        with acquire(state, "r2") as lease:
            assert lease.fence == fence


def test_release_ends_it_for_good(state: State) -> None:
    lease = acquire(state)
    lease.release()
    lease.release()
    with pytest.raises(LeaseLostError, match="released"):
        lease.check()


def test_the_lease_is_released_when_the_work_fails(state: State) -> None:
    with pytest.raises(ZeroDivisionError), acquire(state):
        raise ZeroDivisionError
    acquire(state, "r2").release()


def test_taken_over_after_its_end(state: State, clock: Clock) -> None:
    lease = acquire(state)
    clock.time += HOUR
    assert state.leases.current(TABLE) is None
    with acquire(state, "r2") as other:
        assert other.fence == 2
        with pytest.raises(LeaseLostError, match=r"fence 1.*host of r2 \(run r2\) took it over"):
            lease.check()
        lease.release()
        other.check()
        held = state.leases.current(TABLE)
        assert held is not None
        assert held.run_id == "r2"


def test_ended_is_lost_even_if_nobody_took_it(state: State, clock: Clock) -> None:
    lease = acquire(state)
    clock.time += HOUR
    with pytest.raises(LeaseLostError, match="ended at"):
        lease.check()
    clock.time -= HOUR
    with pytest.raises(LeaseLostError, match="ended at"):
        lease.check()
    lease.release()
    # The clock went back: what is stored has time left again, and its fence is still not reused.
    clock.time += HOUR
    with acquire(state, "r2") as other:
        assert other.fence == 2


def test_decided_by_the_moment_given(state: State, clock: Clock) -> None:
    with acquire(state), pytest.raises(LeaseHeldError):
        state.leases.acquire(TABLE, run_id="r2", owner="o", ttl=HOUR, now=clock() + HOUR - timedelta(seconds=1))
    lease = acquire(state)
    with state.leases.acquire(TABLE, run_id="r2", owner="o", ttl=HOUR, now=clock() + HOUR) as other:
        assert other.fence == 3
    lease.release()
    with pytest.raises(ValueError, match="ttl"):
        acquire(state, ttl=timedelta(0))


@pytest.mark.parametrize("content", [None, b"", b'{"fence": 7}'])
def test_unreadable_counts_as_held(place: Place, state: State, content: bytes | None) -> None:
    """Damage below the value, or a value that is no lease."""
    lease = acquire(state)
    if content is None:
        place.damage("leases/c.d.t")
    else:
        stored = state.get("leases/c.d.t")
        assert stored is not None
        assert state.put("leases/c.d.t", content, stored[1]) is not None
    with pytest.raises(LeaseHeldError, match=r"cannot be read and counts as held"):
        acquire(state, "r2")
    with pytest.raises(LeaseHeldError, match="cannot be read"):
        state.leases.all()
    with pytest.raises(LeaseLostError, match="cannot be confirmed"):
        lease.check()
    lease.release()
    with pytest.raises(LeaseHeldError):
        acquire(state, "r2")


def test_value_that_is_gone_is_lost(place: Place, state: State) -> None:
    lease = acquire(state)
    place.remove("leases/c.d.t")
    with pytest.raises(LeaseLostError, match="gone"):
        lease.check()
    lease.release()


def wait_until_renewed(leases: Leases, times: int) -> None:
    """Sees `times` different ends of the table's lease."""
    ends: set[datetime] = set()
    while len(ends) <= times:
        info = leases.current(TABLE)
        assert info is not None, "the lease ended although its holder lives"
        ends.add(info.expires_at)
        time.sleep(0.005)


def test_it_keeps_itself_alive(place: Place) -> None:
    state = place.open()
    with acquire(state, ttl=timedelta(seconds=3)) as lease:
        wait_until_renewed(state.leases, 1)
        lease.check()
        assert lease.info.fence == 1
        stored = state.leases.current(TABLE)
        assert stored is not None
        assert stored.expires_at > stored.acquired_at + timedelta(seconds=3)


class Flaky:
    """A store whose writes fail on demand."""

    def __init__(self, inner: KeyValueStore) -> None:
        self.is_broken = False
        self.refused = 0
        self.get, self.keys = inner.get, inner.keys
        self._inner = inner

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        if self.is_broken:
            self.refused += 1
            raise StorageError("the disk is full")
        return self._inner.put(key, value, expected)


def test_a_failed_renewal_is_tried_again(place: Place) -> None:
    store = Flaky(place.store())
    leases = Leases(store)
    with leases.acquire(TABLE, run_id="r", owner="o", ttl=timedelta(seconds=3)) as lease:
        store.is_broken = True
        while store.refused == 0:
            time.sleep(0.01)
        lease.check()
        store.is_broken = False
        wait_until_renewed(leases, 1)
        lease.check()


def test_lost_when_it_cannot_be_renewed_in_time(place: Place) -> None:
    store = Flaky(place.store())
    leases = Leases(store)
    lease = leases.acquire(TABLE, run_id="r", owner="o", ttl=timedelta(seconds=0.2))
    store.is_broken = True
    while leases.current(TABLE) is not None:
        time.sleep(0.01)
    store.is_broken = False
    with pytest.raises(LeaseLostError, match="ended at"):
        lease.check()
    lease.release()
    assert leases.current(TABLE) is None


def test_processes_exclude_each_other(place: Place) -> None:
    """Real processes on one state: no addition is lost, and the fences grow in the order of the work."""
    (place.scratch / "counter").write_text("0")
    cycles = 40 if place.kind == "folder" else 12
    arguments = (place.argument, str(place.scratch), str(cycles))
    with start_worker("contend", *arguments) as one, start_worker("contend", *arguments) as other:
        assert [one.wait(), other.wait()] == [0, 0]
    assert (place.scratch / "counter").read_text() == str(2 * cycles)
    fences = [int(line) for line in (place.scratch / "fences").read_text().split()]
    assert fences == list(range(1, 2 * cycles + 1))


def test_a_killed_holder_blocks_until_its_ttl_and_no_longer(place: Place) -> None:
    state = place.open()
    with start_worker("hold", place.argument, "2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        wait_until_renewed(state.leases, 1)
        process.send_signal(signal.SIGKILL)
    left = state.leases.current(TABLE)
    while state.leases.current(TABLE) is not None:
        time.sleep(0.01)
    with acquire(state, "heir") as lease:
        assert lease.fence == 2
        assert left is None or lease.info.acquired_at >= left.expires_at
        lease.check()
