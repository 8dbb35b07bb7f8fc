"""One lease a table, with a fencing number, built on compare-and-swap alone.

The value of `leases/<table>` stays when a lease ends, and with it the fence, which only ever grows: who holds a lower
one has lost.

A lease ends by the wall clocks of those who look. A taker whose clock runs ahead by more than what is left may take a
lease early; its holder learns that at the next `check()`. A clock of the holder that jumps ahead lets it give up too
early; one that falls back makes it store an end that comes too early for others, who take over, which it learns in the
same way. What remains is the moment between `check()` and the commit: the commit's own requirements cover it. Keep
clocks within a small part of the ttl of each other.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType

from lakehouse_maintenance.model.errors import LakehouseError, LeaseHeldError, LeaseLostError
from lakehouse_maintenance.state.store import KeyValueStore

_PREFIX = "leases/"

_logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The wall clock, aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """Who works on a table. `owner`: for people, such as host and process. Times are aware, in UTC."""

    table: str
    run_id: str
    owner: str
    fence: int
    acquired_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class _Stored:
    info: LeaseInfo
    is_released: bool
    version: str

    def is_held(self, now: datetime) -> bool:
        return not self.is_released and self.info.expires_at > now


class Leases:
    """Leases on tables, in any store with compare-and-swap. `now`: the wall clock."""

    def __init__(self, values: KeyValueStore, now: Callable[[], datetime] = utc_now) -> None:
        self._values = values
        self._now = now

    def acquire(self, table: str, *, run_id: str, owner: str, ttl: timedelta, now: datetime | None = None) -> Lease:
        """Take the table's lease, which then keeps itself alive until it is released or its process ends.

        Does not wait. Raises LeaseHeldError while anybody holds it, the same run included, and where the stored value
        cannot be read. `now`: the moment to decide by, where that is not the clock's.
        """
        if ttl <= timedelta(0):
            raise ValueError(f"a lease needs a ttl above zero, not {ttl}")
        moment = (self._now() if now is None else now).astimezone(UTC)
        while True:
            stored = _read(self._values, table)
            if stored is not None and stored.is_held(moment):
                raise _held(stored.info)
            fence = 1 if stored is None else stored.info.fence + 1
            info = LeaseInfo(table, run_id, owner, fence, moment, moment + ttl)
            expected = None if stored is None else stored.version
            if self._values.put(_PREFIX + table, _dump(info, is_released=False), expected) is not None:
                return Lease(self._values, info, ttl, self._now)

    def current(self, table: str) -> LeaseInfo | None:
        """Who holds the table now; None when nobody does. Raises LeaseHeldError where the value cannot be read."""
        stored = _read(self._values, table)
        return stored.info if stored is not None and stored.is_held(self._now()) else None

    def all(self) -> list[LeaseInfo]:
        """Every lease that is held now, by table. Raises LeaseHeldError where one cannot be read."""
        tables = sorted(key.removeprefix(_PREFIX) for key in self._values.keys(_PREFIX))
        found = [self.current(table) for table in tables]
        return [info for info in found if info is not None]


class Lease:
    """A lease that we hold: a context manager that releases it at the end.

    A daemon thread renews it at a third of the ttl. It is lost for good once somebody else took it, or once it ran out
    before it could be renewed, even where nobody took it meanwhile: others may have acted on seeing it end.
    """

    def __init__(self, values: KeyValueStore, info: LeaseInfo, ttl: timedelta, now: Callable[[], datetime]) -> None:
        self._values = values
        self._info = info
        self._ttl = ttl
        self._now = now
        self._why_lost: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name=f"lease of {info.table}", daemon=True)
        self._thread.start()

    @property
    def fence(self) -> int:
        """The fencing number; higher than that of every earlier lease of the table."""
        return self._info.fence

    @property
    def table(self) -> str:
        """The table's name."""
        return self._info.table

    @property
    def info(self) -> LeaseInfo:
        """As last renewed."""
        return self._info

    def check(self) -> None:
        """Raise LeaseLostError unless the store says, now, that we hold the lease. Call before each commit."""
        if self._stop.is_set() and self._why_lost is None:
            raise self._lost("it was released")
        if self._why_lost is None:
            try:
                self._ours()
            except LeaseLostError:
                raise
            except LakehouseError as error:
                # Not remembered as lost: the store may answer again before the lease ends.
                raise self._lost(f"it cannot be confirmed: {error}") from error
        if self._why_lost is not None:
            raise self._lost(self._why_lost)

    def release(self) -> None:
        """End the lease; the fence stays. Calling it again, or after the lease was lost, does nothing.

        Where the store cannot be written, the lease ends at its ttl.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            # A renewal under way cannot undo the release, since compare-and-swap orders the two: no need to wait long.
            self._thread.join(timeout=1.0)
        try:
            self._write(self._info, is_released=True)
        except LeaseLostError:
            return
        except LakehouseError as error:
            _logger.warning("the lease of %s could not be released and ends at its ttl: %s", self.table, error)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _keep_alive(self) -> None:
        pause = self._ttl.total_seconds() / 3
        wait = pause
        while not self._stop.wait(wait):
            try:
                self._write(replace(self._info, expires_at=self._now() + self._ttl), is_released=False)
                wait = pause
            except LeaseLostError as error:
                if not self._stop.is_set():
                    _logger.warning("%s", error)
                return
            except LakehouseError as error:
                _logger.warning("the lease of %s could not be renewed yet: %s", self.table, error)
                wait = pause / 4

    def _write(self, info: LeaseInfo, *, is_released: bool) -> None:
        """Replace the stored value while it is ours."""
        while True:
            stored = self._ours()
            if self._values.put(_PREFIX + self.table, _dump(info, is_released=is_released), stored.version) is not None:
                self._info = info
                return

    def _ours(self) -> _Stored:
        """The stored value, if it is under our fence and has not ended; otherwise remember the loss and raise."""
        stored = _read(self._values, self.table)
        if stored is None:
            self._why_lost = "its value is gone from the state"
        elif stored.info.fence != self.fence:
            other = stored.info
            self._why_lost = f"{other.owner} (run {other.run_id}) took it over at {_text(other.acquired_at)}"
        elif stored.is_released:
            self._why_lost = "it was released"
        elif not stored.is_held(self._now()):
            self._why_lost = f"it ended at {_text(stored.info.expires_at)} before it could be renewed"
        else:
            return stored
        raise self._lost(self._why_lost)

    def _lost(self, why: str) -> LeaseLostError:
        info = self._info
        return LeaseLostError(
            f"the lease of {info.table} by {info.owner} (run {info.run_id}, fence {info.fence}) is lost: {why}",
            field=info.table,
            hint="nothing is committed any more; plan anew",
        )


def _read(values: KeyValueStore, table: str) -> _Stored | None:
    """Raises LeaseHeldError for a value that cannot be read: it may be somebody's lease."""
    try:
        found = values.get(_PREFIX + table)
    except LakehouseError as error:
        raise LeaseHeldError(
            f"the lease of {table} cannot be read and counts as held: {error}", field=table, hint=error.hint
        ) from error
    if found is None:
        return None
    value, version = found
    try:
        data = json.loads(value)
        info = LeaseInfo(
            table=str(data["table"]),
            run_id=str(data["run_id"]),
            owner=str(data["owner"]),
            fence=int(data["fence"]),
            acquired_at=datetime.fromisoformat(data["acquired_at"]).astimezone(UTC),
            expires_at=datetime.fromisoformat(data["expires_at"]).astimezone(UTC),
        )
        return _Stored(info, bool(data["released"]), version)
    except (ValueError, TypeError, KeyError) as error:
        raise LeaseHeldError(
            f"the lease of {table} cannot be read and counts as held: the value is damaged",
            field=table,
            hint=f"make sure that nothing works on the table, then restore the value {_PREFIX + table!r} of the state",
        ) from error


def _dump(info: LeaseInfo, *, is_released: bool) -> bytes:
    data = {
        "table": info.table,
        "run_id": info.run_id,
        "owner": info.owner,
        "fence": info.fence,
        "acquired_at": info.acquired_at.isoformat(),
        "expires_at": info.expires_at.isoformat(),
        "released": is_released,
    }
    return json.dumps(data).encode("ascii")


def _held(info: LeaseInfo) -> LeaseHeldError:
    return LeaseHeldError(
        f"{info.table} is held by {info.owner} (run {info.run_id}) since {_text(info.acquired_at)}, "
        f"until {_text(info.expires_at)} unless renewed",
        field=info.table,
        hint="wait until that run ends; the lease of a run that crashed ends by itself at that time",
    )


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
