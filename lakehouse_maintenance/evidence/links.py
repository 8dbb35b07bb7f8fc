"""Files of this machine that are symbolic links themselves. Links among the folders above a file are followed by the
forms of its path; a look of its own for each of a million paths would cost as much as reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location

_HOST = "file://localhost/"
_FOLDERS = 1 << 16


class Links:
    """Where paths lead that are links: what a table names is then what is read there.

    Each folder is looked at once, so an instance is for one question, asked now: a link that is made later is not seen.
    `listed`: folders of which the caller knows the links already; they are not looked into.
    """

    def __init__(self, listed: Sequence[Location] = ()) -> None:
        self._may_hold: dict[str, bool] = {}
        self._listed = [(place, place.resolved) for place in listed]

    def led_to(self, paths: Sequence[str]) -> Iterator[str]:
        """Targets of those of the paths that are links."""
        return self.among(paths, folders_of_paths(paths))

    def among(self, paths: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
        """As `led_to`, where the folders of the paths are known: most hold no link, and need no look at each path."""
        holding = {folder for folder in folders if self._holds(folder)}
        if not holding:
            return
        for path in paths:
            if path[: path.rfind("/") + 1] not in holding:
                continue
            try:
                if os.path.islink(_local(path) or ""):  # noqa: PTH114 - a Path takes ten times as long
                    yield Location.parse(path).resolved.text
            except (InputError, ValueError):
                continue  # no path of this machine

    def _holds(self, folder: str) -> bool:
        """Whether a file in the folder may be a link; also where the folder may not be listed."""
        known = self._may_hold.get(folder)
        if known is None:
            if len(self._may_hold) >= _FOLDERS:
                self._may_hold.clear()
            known = self._may_hold[folder] = not self._is_listed(folder) and _may_hold_links(folder)
        return known

    def _is_listed(self, folder: str) -> bool:
        """Also where links lead: a listing does not go into folders that are links."""
        try:
            at = Location.parse(folder) if self._listed else None
        except InputError:
            return False
        return at is not None and any(place.contains(at) and real.contains(at.resolved) for place, real in self._listed)


def led_to(paths: Sequence[str]) -> Iterator[str]:
    """As `Links.led_to`, for one batch."""
    return Links().led_to(paths)


def folders_of_paths(paths: Iterable[str]) -> set[str]:
    """With their `/`, so that a bucket's root stays one."""
    return {path[: path.rfind("/") + 1] for path in paths}


def _may_hold_links(folder: str) -> bool:
    local = _local(folder)
    if local is None:
        return False
    try:
        with os.scandir(local) as entries:
            return any(entry.is_symlink() for entry in entries)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _local(path: str) -> str | None:
    if path.startswith(_HOST):
        return path[len(_HOST) - 1 :]
    if path.startswith("file:/"):
        return path[5:]
    return path if path.startswith("/") else None
