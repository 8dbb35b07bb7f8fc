"""What a place for the state has to offer: values by key, and a log that only grows. See folder.py, objects.py and
postgres.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakehouse_maintenance.state.store import KeyValueStore

FIELD = "state.url"
"""The configuration key that every error of this package names."""


@dataclass(frozen=True, slots=True)
class Line:
    """One recorded line, without its newline. `where`: for people who have to repair it."""

    where: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines of a day, oldest first, of which none was written after `written` (by the store's clock). Read when
    iterated over, once."""

    written: datetime
    lines: Iterable[Line]


class Log(Protocol):
    """Lines by UTC day and run; nothing is ever changed or removed. Safe as the KeyValueStore beside it is."""

    def append(self, day: str, run_id: str, content: bytes) -> None:
        """Write one line of a run durably, behind every line of the run and day that this process wrote or saw.

        Raises StorageError or ConfigurationError where it may not be there: the line may still turn up.
        """
        ...

    def days(self) -> list[str]:
        """Days (YYYY-MM-DD) that have lines, newest first."""
        ...

    def pages(self, day: str) -> Iterator[Page]:
        """All lines of a day in pages, the page that was written last first."""
        ...

    def of_run(self, run_id: str) -> Iterator[Line]:
        """All lines of a run in the order they were written. Its cost does not grow with other runs' lines."""
        ...


class Backend(KeyValueStore, Protocol):
    """One state. Nothing is created before the first write; reading never creates anything.

    Every error has `state.url` as its field: ConfigurationError for what stays wrong until somebody changes the setup
    (a right, an address, a layout of another release), StorageError for everything else.
    """

    @property
    def location(self) -> str:
        """Where it lies, for people and without secrets."""
        ...

    @property
    def cache_folder(self) -> Path | None:
        """A folder of the state's own for what is disposable; None where it has none on this machine."""
        ...

    @property
    def log(self) -> Log:
        """The log beside the values."""
        ...

    def check_version(self) -> int | None:
        """The layout's version, None where nothing was written yet. Raises ConfigurationError unless this release can
        use it."""
        ...

    def check_writable(self) -> None:
        """Raise ConfigurationError where the first write would be refused, as far as that shows without one."""
        ...
