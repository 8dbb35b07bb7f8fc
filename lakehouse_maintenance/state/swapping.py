"""Compare-and-swap over a network, where an answer may be lost after the write went through.

Each value carries the versions that went before it (its trail). Looking again therefore tells a write that never
happened from one that happened, even where another writer has replaced it since.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.state.backend import FIELD

TRAIL = 16
"""Versions remembered with a value, beside its first. Where more writes than that lie between a lost answer and the
look, it cannot be told."""

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before each try."""


class UnsureError(Exception):
    """A write that may or may not have happened. `cause`: what to tell when that cannot be found out."""

    def __init__(self, cause: StorageError | None = None) -> None:
        super().__init__("unsure")
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stored value's version, and its trail: the very first version, then the last ones before it, oldest first."""

    version: str
    trail: tuple[str, ...]


class Fate(Enum):
    """What became of a write."""

    DONE = "it went through"
    REFUSED = "it did not and never will: somebody else wrote first"
    NOT_YET = "nothing has changed so far"
    UNKNOWN = "it cannot be told any more"


def trail_after(stored: Stamp | None) -> tuple[str, ...]:
    """The trail of the value that replaces a stored one."""
    if stored is None:
        return ()
    whole = (*stored.trail, stored.version)
    return whole if len(whole) <= TRAIL + 1 else (whole[0], *whole[-TRAIL:])


def fate(stored: Stamp | None, version: str, expected: str | None) -> Fate:
    """What became of the write of `version` over `expected` (None: over nothing), by what is stored now."""
    if stored is None:
        return Fate.NOT_YET if expected is None else Fate.REFUSED
    if version == stored.version or version in stored.trail:
        return Fate.DONE
    if expected == stored.version:
        return Fate.NOT_YET
    # Over nothing there is but one write, and the trail begins with it; what followed that may be forgotten.
    reaches_back = expected is None or len(stored.trail) <= TRAIL or expected in stored.trail[1:]
    return Fate.REFUSED if reaches_back else Fate.UNKNOWN


def swap(
    version: str, expected: str | None, attempt: Callable[[], bool], look: Callable[[], Stamp | None], key: str
) -> str | None:
    """`version` once it is known to be written over `expected`, None once it is known never to be.

    `attempt`: writes where `expected` is stored; False where something else is; raises UnsureError where the answer
    leaves a doubt. Repeating it is safe, for at most one of the attempts can find `expected`. Raises StorageError where
    it cannot be told.
    """
    unsure: UnsureError | None = None
    for pause in PAUSES:
        time.sleep(pause)
        try:
            if attempt():
                return version
            if unsure is None:
                return None
        except UnsureError as error:
            unsure = error
        told = fate(look(), version, expected)
        if told is Fate.DONE:
            return version
        if told is Fate.REFUSED:
            return None
        if told is Fate.UNKNOWN:
            break
    cause = None if unsure is None else unsure.cause
    raise StorageError(
        f"whether {key} was written cannot be told{'' if cause is None else f': {cause.message}'}",
        field=FIELD,
        hint=None if cause is None else cause.hint,
    ) from cause
