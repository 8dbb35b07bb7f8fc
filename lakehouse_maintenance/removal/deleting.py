"""The calls that delete: one batch in, the fate of every key out. This module is the only one that has them.

A store's answer is not believed, in either direction. A batch call answers for the whole batch or fails somewhere in
it, and says "deleted" for keys that were never there; so after every call each key is looked at again. What is gone
was deleted; what is there was not, whatever the store said; what cannot be looked at is unknown.

Throttling is not failure: what it left is asked for again after growing pauses. What is still there for another cause
is asked for once more key by key, so that each key gets its own cause.

Object stores say "deleted" for a key that was not there too; where that matters, because an earlier run may have
deleted it, the remover looks first.
"""

from __future__ import annotations

import errno
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage.causes import is_held, is_throttling
from lakehouse_maintenance.storage.keys import is_refused, other_readings
from lakehouse_maintenance.storage.ordered import map_ordered

BATCH = 1000
"""Keys in one call, as many as S3 takes."""

CONCURRENCY = 16
"""Calls in flight, looks included."""

WAITS = (1.0, 3.0, 9.0, 27.0)
"""Seconds, give or take half, before a throttled call is made again; the client's own retries come on top of each."""

_HOLDING = (errno.EPERM,)
"""Of files that are immutable; who has no right to the folder, or a disk that is read-only, is told otherwise."""

_PER_KEY = re.compile(r"DeleteObjects request failed for key .*: (.*\(code: \w+\))", re.DOTALL)


class Fate(StrEnum):
    """What became of one key. HELD: it is there and stays, because the store will not let this object go."""

    DELETED = "deleted"
    GONE = "gone"
    FAILED = "failed"
    UNKNOWN = "unknown"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Told:
    """A key's fate and, where it is not deleted, why."""

    fate: Fate
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the store said to a call. `why`: None for "deleted"; `absent`: there was no such object."""

    why: str | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class _Unclear:
    """A look that failed."""

    why: str


_Look = ObjectInfo | _Unclear | None
_Call = Callable[[Sequence[Location]], Mapping[Location, _Answer]]


def delete_batch(
    storage: Storage, locations: Sequence[Location], *, concurrency: int = CONCURRENCY
) -> dict[Location, Told]:
    """Deletes objects of one or several stores; every location gets a fate. Raises nothing of the stores' own.

    At most `BATCH` keys in a call and `concurrency` calls in flight; memory grows with the locations alone.
    A key that the store could take for another object (`a//b` where that is `a/b`) is not touched: HELD.
    """
    fates: dict[Location, Told] = {}
    by_store: dict[tuple[str, str], list[Location]] = {}
    for location in dict.fromkeys(locations):
        if location.family == "file":
            fates[location] = _unlink(location)
        else:
            by_store.setdefault((location.family, location.authority), []).append(location)
    for group in by_store.values():
        try:
            storage.client(group[0])
        except StorageError as error:
            fates |= dict.fromkeys(group, Told(Fate.FAILED, error.message))
            continue
        for start in range(0, len(group), BATCH):
            fates |= _Deletion(storage, now(), concurrency).run(group[start : start + BATCH])
    return fates


def now() -> datetime:
    """What is modified later was written while we deleted."""
    return datetime.now(UTC)


def pause(seconds: float) -> None:
    """Waits before a throttled call is made again."""
    time.sleep(seconds)


def _unlink(location: Location) -> Told:
    try:
        Path(location.local_path).unlink()
    except FileNotFoundError:
        return Told(Fate.GONE)
    except OSError as error:
        why = f"{error.strerror or error}"
        return Told(Fate.HELD if error.errno in _HOLDING else Fate.FAILED, why)
    return Told(Fate.DELETED)


def remove_empty_folder(name: str, *, within: int | None = None) -> None:
    """Removes a directory of this machine if it is empty; leaves what holds something, and links, as they are.

    `within`: a descriptor of the directory that the name is in.
    """
    # The system refuses a directory that holds something, whoever put it there a moment ago.
    with suppress(OSError):
        os.rmdir(name, dir_fd=within)


@dataclass
class _Deletion:
    """One batch of one store. `seen`: each object at the first look that met it, to tell when it was written again."""

    storage: Storage
    started: datetime
    concurrency: int = CONCURRENCY
    seen: dict[Location, ObjectInfo] = field(default_factory=dict)

    def run(self, locations: Sequence[Location]) -> dict[Location, Told]:
        odd: list[Location] = []
        plain: list[Location] = []
        for one in locations:
            (odd if is_refused(one.key) or other_readings(one.key) else plain).append(one)
        fates = self._delete_odd(odd)
        if not plain:
            return fates
        if plain[0].family != "s3":
            # Their clients' batches say nothing about single keys, and a missing key fails them.
            return fates | self._settle(plain, self._each(self._one_object))
        told = self._settle(plain, self._whole_batch)
        again = [one for one in plain if told[one].fate in (Fate.FAILED, Fate.HELD) and self._may_try_again(told[one])]
        return fates | told | self._key_by_key(again)

    def _may_try_again(self, told: Told) -> bool:
        return not is_throttling(told.why) and told.why != _WRITTEN_AGAIN

    def _key_by_key(self, locations: Sequence[Location]) -> dict[Location, Told]:
        """Ends early where the store refuses requests as such: more of them would only be refused too."""
        fates: dict[Location, Told] = {}
        for start in range(0, len(locations), self.concurrency):
            part = locations[start : start + self.concurrency]
            told = self._settle(part, self._each(self._one_object))
            fates |= told
            refused = [one for one in told.values() if one.fate is Fate.FAILED and one.why != _NOT_DONE]
            if len(refused) == len(part):
                return fates | dict.fromkeys(locations[start + self.concurrency :], refused[-1])
        return fates

    def _delete_odd(self, locations: Sequence[Location]) -> dict[Location, Told]:
        fates: dict[Location, Told] = {}
        clear: list[Location] = []
        for location, told in map_ordered(self._why_not_odd, locations, concurrency=self.concurrency):
            if told is None:
                clear.append(location)
            else:
                fates[location] = told
        return fates | self._settle(clear, self._each(self._one_odd_object))

    def _why_not_odd(self, location: Location) -> Told | None:
        """None: the store keeps this key apart from the others that it resembles."""
        if is_refused(location.key) and self.storage.vendor_client(location) is None:
            return Told(Fate.HELD, "its key cannot be named exactly without boto3 (extra `aws`), and only on S3")
        try:
            info = self.storage.stat(location)
            if info is None:
                return Told(Fate.GONE)
            for key in other_readings(location.key):
                other = self.storage.stat(location.with_key(key))
                if other is not None and _is_same(info, other):
                    return Told(Fate.HELD, "the store may take its key for that of another object")
        except StorageError as error:
            return Told(Fate.UNKNOWN, error.message)
        return None

    def _settle(self, locations: Sequence[Location], call: _Call) -> dict[Location, Told]:
        """Calls and looks, until nothing is left that a throttled store might still do."""
        fates: dict[Location, Told] = {}
        answers: dict[Location, _Answer] = {}
        pending = list(locations)
        for wait in (*WAITS, None):
            # What could not be looked at may be gone, and its name used again: it is looked at before it is asked for.
            asked = [one for one in pending if one not in fates or fates[one].fate is Fate.FAILED]
            answers |= call(asked) if asked else {}
            looks = self._look(pending)
            fates |= {one: self._judge(one, answers[one], looks[one]) for one in pending}
            pending = [one for one in pending if _may_pass(fates[one])]
            if not pending or wait is None:
                break
            pause(wait * random.uniform(0.5, 1.5))
        return fates

    def _judge(self, location: Location, answer: _Answer, look: _Look) -> Told:
        if look is None:
            return Told(Fate.GONE if answer.absent else Fate.DELETED)
        if isinstance(look, _Unclear):
            said = answer.why or "the store said deleted"
            return Told(Fate.UNKNOWN, f"{said}; and it cannot be told whether the object is there: {look.why}")
        first = self.seen.setdefault(location, look)
        # An answer that was lost may have been to a deletion that was done; what lies there now is not ours to delete.
        if not _is_same(first, look) or (look.modified is not None and look.modified > self.started):
            return Told(Fate.FAILED, _WRITTEN_AGAIN)
        if answer.why is None:
            return Told(Fate.FAILED, _NOT_DONE)
        return Told(Fate.HELD if is_held(answer.why) else Fate.FAILED, answer.why)

    def _look(self, locations: Sequence[Location]) -> dict[Location, _Look]:
        """Gives up once as many looks in a row as are in flight have failed."""
        looks: dict[Location, _Look] = {}
        failed = 0
        for location, look in map_ordered(self._look_at, locations, concurrency=self.concurrency):
            looks[location] = look
            failed = failed + 1 if isinstance(look, _Unclear) else 0
            if failed >= self.concurrency and isinstance(look, _Unclear):
                return {one: looks.get(one, look) for one in locations}
        return looks

    def _look_at(self, location: Location) -> _Look:
        try:
            return self.storage.stat(location)
        except StorageError as error:
            return _Unclear(error.message)

    def _whole_batch(self, locations: Sequence[Location]) -> dict[Location, _Answer]:
        answer = self._answer(lambda: _delete_objects(self.storage, locations))
        return dict.fromkeys(locations, answer)

    def _each(self, one: Callable[[Location], _Answer]) -> _Call:
        return lambda locations: dict(map_ordered(one, locations, concurrency=self.concurrency))

    def _one_object(self, location: Location) -> _Answer:
        return self._answer(lambda: _delete_objects(self.storage, [location]))

    def _one_odd_object(self, location: Location) -> _Answer:
        if is_refused(location.key):
            return self._answer(lambda: _delete_odd_object(self.storage, location))
        return self._one_object(location)

    def _answer(self, call: Callable[[], None]) -> _Answer:
        try:
            call()
        except FileNotFoundError as error:
            return _Answer(self._cause(error), absent=True)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  # obstore's own panics too: each key is looked at afterwards
            return _Answer(self._cause(error))
        return _Answer()

    def _cause(self, error: BaseException) -> str:
        said = getattr(error, "response", None)
        if isinstance(said, dict) and "Error" in said:  # boto3's
            return f"{said['Error'].get('Message')} (code: {said['Error'].get('Code')})"
        cause = self.storage.cause_of(error)
        own = _PER_KEY.search(cause)
        return own.group(1) if own else cause


_WRITTEN_AGAIN = "it was written again while it was being deleted"
_NOT_DONE = "the store said deleted and it is still there"


def _delete_objects(storage: Storage, locations: Sequence[Location]) -> None:
    import obstore

    obstore.delete(storage.client(locations[0]), [location.key for location in locations])


def _delete_odd_object(storage: Storage, location: Location) -> None:
    """Only for a key of which `_why_not_odd` found that it stands for itself."""
    client = storage.vendor_client(location)
    if client is None:
        raise StorageError(f"no client names the key of {location.text!r} exactly")
    client.delete_object(Bucket=location.authority, Key=location.key)


def _may_pass(told: Told) -> bool:
    return told.fate in (Fate.FAILED, Fate.UNKNOWN) and is_throttling(told.why)


def _is_same(one: ObjectInfo, other: ObjectInfo) -> bool:
    return (one.size, one.modified, one.etag) == (other.size, other.modified, other.etag)
