"""Files of this machine that are symbolic links themselves. Links among the folders above a file are followed by the
forms of its path; a look of its own for each of a million paths would cost as much as reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location

_HOST = "file://localhost/"
_FOLDERS = 1 << 16


class Links:
    """Where paths lead that are links: what a table names is then what is read there.

    Each folder is looked at once, so an instance is for one question, asked now: a link that is made later is not seen.
    """

    def __init__(self) -> None:
        self._in_folder: dict[str, frozenset[str] | None] = {}

    def led_to(self, paths: Iterable[str]) -> Iterator[str]:
        """Targets of those of the paths that are links."""
        known = self._in_folder
        for path in paths:
            folder, _, name = path.rpartition("/")
            links = known[folder] if folder in known else self._look(folder)
            if links is not None and name not in links:
                continue
            try:
                local = _local(path)
                if local is not None and os.path.islink(local):  # noqa: PTH114 - a Path takes ten times as long
                    yield Location.parse(path).resolved.text
            except (InputError, ValueError):
                continue  # no path of this machine

    def _look(self, folder: str) -> frozenset[str] | None:
        """Names of the links in a folder; None where each path has to be looked at by itself."""
        if len(self._in_folder) >= _FOLDERS:
            self._in_folder.clear()
        found: frozenset[str] | None = frozenset()
        local = _local(folder + "/")
        if local is not None:
            try:
                with os.scandir(local) as entries:
                    found = frozenset(entry.name for entry in entries if entry.is_symlink())
            except FileNotFoundError:
                pass
            except (OSError, ValueError):
                found = None
        self._in_folder[folder] = found
        return found


def led_to(paths: Iterable[str]) -> Iterator[str]:
    """As `Links.led_to`, for one batch."""
    return Links().led_to(paths)


def _local(path: str) -> str | None:
    if path.startswith(_HOST):
        return path[len(_HOST) - 1 :]
    if path.startswith("file:/"):
        return path[5:]
    return path if path.startswith("/") else None
