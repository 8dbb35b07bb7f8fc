"""Who owns what, by the rules of docs/safety.md, in plain Python: nothing here comes from the product.

The model knows what was written because it was told by the writers: PyIceberg's own reading of each metadata file, and
the actions of each Delta commit. Paths are real ones (links followed, no scheme).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

DAY = 86_400.0
MARKED = "metadata.json"


@dataclass(frozen=True)
class MetadataFile:
    """What one metadata file says. `names`: every file it names. `to_read`: those without which that is not known."""

    uuid: str
    folders: tuple[str, ...]
    names: frozenset[str]
    to_read: frozenset[str]
    keeps_all: bool = False


@dataclass(frozen=True)
class Log:
    """A Delta table's log. `names`: what its commits name."""

    names: frozenset[str]
    is_readable: bool = True


@dataclass(frozen=True)
class Zone:
    """A folder whose files may belong to somebody unseen; None: every folder that is asked about."""

    folder: str | None

    def covers(self, path: str) -> bool:
        return self.folder is None or inside(path, self.folder)


@dataclass(frozen=True)
class Visible:
    """A table that is known and can be read."""

    name: str
    folders: tuple[str, ...]
    names: frozenset[str]
    uuid: str | None = None
    keeps_all: bool = False


@dataclass
class World:
    """`pointers`: table → its metadata file. `metadata`: every metadata file ever written. `damaged`: files that cannot
    be read now. `logs`: folder → the log in it. `listed`: Delta tables that the configuration names.

    `hidden_databases`: tables of catalogs that are not configured, whose database counts for nobody.
    """

    root: str
    pointers: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, MetadataFile] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    logs: dict[str, Log] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    strangers: frozenset[str] = frozenset()

    # What is there.

    def files(self) -> dict[str, os.stat_result]:
        """Every object on disk."""
        paths = (os.path.join(folder, name) for folder, _, names in os.walk(self.root) for name in names)
        return {path: os.stat(path) for path in paths}

    def is_readable(self, metadata_file: str) -> bool:
        """Whether all that a metadata file names can be told."""
        if metadata_file in self.damaged or not os.path.exists(metadata_file):
            return False
        return all(os.path.exists(one) and one not in self.damaged for one in self.metadata[metadata_file].to_read)

    def visible(self) -> list[Visible]:
        """Iceberg tables of all catalogs and listed Delta tables."""
        found = []
        for name, pointer in self.pointers.items():
            if self.is_readable(pointer):
                said = self.metadata[pointer]
                found.append(Visible(name, said.folders, said.names, said.uuid, said.keeps_all))
        for name, root in self.listed.items():
            if root in self.logs and self.logs[root].is_readable:
                found.append(self._delta(name, root))
        return found

    def unread(self) -> dict[str, tuple[str, ...]]:
        """Tables that are known and cannot be read → where their files may lie besides their database."""
        found: dict[str, tuple[str, ...]] = {}
        for name, pointer in self.pointers.items():
            if not self.is_readable(pointer):
                is_known = pointer not in self.damaged and os.path.exists(pointer)
                found[name] = (above(above(pointer)), *(self.metadata[pointer].folders if is_known else ()))
        for name, root in self.listed.items():
            if root in self.logs and not self.logs[root].is_readable:
                found[name] = (root,)
        return found

    # What follows from it.

    def owner_names(self, path: str) -> frozenset[str]:
        """The tables that name a file; an unlisted Delta table around it counts, under its log's path."""
        owners = [owner for owner in self.visible() if path in owner.names]
        owners += [one for one in self._unlisted_around(path) if path in one.names]
        return frozenset(owner.name for owner in owners)

    def verdict(self, path: str) -> bool | None:
        """Owned, not owned, or not to be known."""
        if self.owner_names(path):
            return True
        if any(not self.logs[root].is_readable for root in self._log_roots_around(path)):
            return None
        homes = [owner for owner in self.visible() if any(inside(path, folder) for folder in owner.folders)]
        if any(self.refuses(database, [path]) for database in {self.database(home.name) for home in homes} or {""}):
            return None
        zones = [zone for home in homes for zone in self.zones(home.folders)] + list(self.zones_above([path]))
        return None if any(zone.covers(path) for zone in zones) else False

    def orphans(self, name: str, before: float) -> set[str] | None:
        """What the search finds in a table; None where it must refuse. `before`: files that are older may go."""
        table = next((owner for owner in self.visible() if owner.name == name), None)
        if table is None or table.keeps_all or self.refuses(self.database(name), table.folders):
            return None
        others = [owner for owner in self.visible() if owner.name != name]
        if any(meet(a, b) for other in others for a in other.folders for b in table.folders):
            return None
        zones = self.zones(table.folders)
        if any(zone.covers(folder) for zone in zones for folder in table.folders):
            return None
        named = frozenset().union(*(owner.names for owner in self.visible()))
        return {
            path
            for path, status in self.files().items()
            if any(inside(path, folder) for folder in table.folders)
            and path not in named
            and not any(zone.covers(path) for zone in zones)
            and 2 * 365 * DAY < status.st_mtime < before
            and not is_hidden(path, table.folders)
            and not (status.st_size == 0 and path.endswith("_$folder$"))
        }

    def refuses(self, database: str, places: Iterable[str]) -> bool:
        """Whether a table that cannot be read may own files there."""
        return any(
            (database and self.database(name) == database) or any(meet(a, b) for a in where for b in places)
            for name, where in self.unread().items()
        )

    def zones(self, places: Iterable[str]) -> list[Zone]:
        """Where somebody unseen may own files, by the signs in these folders and above them."""
        places = list(places)
        named = frozenset().union(*(owner.names for owner in self.visible()))
        found: list[Zone] = []
        for path in self.files():
            if any(inside(path, place) for place in places) and is_metadata(path) and path not in named:
                found += self._stranger(path)
        for root in self.logs:
            if root not in self._seen_roots() and any(inside(root, place) for place in places):
                found += self._unlisted(root)
        return found + list(self.zones_above(places))

    def zones_above(self, places: Iterable[str]) -> Iterator[Zone]:
        """As `zones`, by the signs above alone: such a table's folder is around all of it."""
        places = list(places)
        for path in self.files():
            # The metadata folder of a folder above; what it holds of a table that is visible says nothing.
            around = [folder for folder in folders_above(path) if folder.endswith("/metadata")]
            if is_metadata(path) and any(is_above(above(folder), place) for folder in around for place in places):
                yield from (Zone(None) for _ in self._stranger(path))
        for root in self.logs:
            if root not in self._seen_roots() and any(is_above(root, place) for place in places):
                yield Zone(None)

    def database(self, name: str) -> str:
        return "" if name in self.strangers else name.rpartition(".")[0]

    def _stranger(self, path: str) -> list[Zone]:
        """What a metadata file that nothing visible explains makes unknown."""
        said = self.metadata.get(path)
        if said is None or path in self.damaged:
            return [Zone(None)]
        if said.uuid in {owner.uuid for owner in self.visible()}:
            return []
        if not self.is_readable(path):
            return [Zone(None)]
        around = above(above(path)) if above(path).endswith("/metadata") else above(path)
        return [Zone(folder) for folder in {around, *said.folders, *map(above, said.names)}]

    def _unlisted(self, root: str) -> list[Zone]:
        log = self.logs[root]
        return [Zone(root), *map(Zone, map(above, log.names))] if log.is_readable else [Zone(None)]

    def _seen_roots(self) -> set[str]:
        return {root for name, root in self.listed.items() if root in self.logs and self.logs[root].is_readable}

    def _log_roots_around(self, path: str) -> list[str]:
        return [root for root in self.logs if is_above(root, path)]

    def _unlisted_around(self, path: str) -> list[Visible]:
        roots = [root for root in self._log_roots_around(path) if root not in self._seen_roots()]
        return [self._delta(f"{root}/_delta_log", root) for root in roots if self.logs[root].is_readable]

    def _delta(self, name: str, root: str) -> Visible:
        log = f"{root}/_delta_log"
        own = {path for path in self.files() if inside(path, log)}
        return Visible(name, (root,), self.logs[root].names | own)


def real(text: str) -> str:
    """The file that a path means, however it is written."""
    for scheme in ("file://localhost", "file://", "file:"):
        if text.startswith(scheme):
            text = text.removeprefix(scheme)
            break
    return os.path.realpath(text)


def above(path: str) -> str:
    return path.rpartition("/")[0]


def folders_above(path: str) -> Iterator[str]:
    while path := above(path):
        yield path


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def is_above(folder: str, path: str) -> bool:
    return path != folder and inside(path, folder)


def meet(one: str, two: str) -> bool:
    return inside(one, two) or inside(two, one)


def is_metadata(path: str) -> bool:
    name = path.rpartition("/")[2]
    return any(name == end or name.endswith(f".{end}") for end in (MARKED, f"{MARKED}.gz"))


def is_hidden(path: str, folders: Iterable[str]) -> bool:
    """By the part of the path below the innermost of the table's own folders."""
    innermost = max((folder for folder in folders if inside(path, folder)), key=len)
    return any(part[:1] in ("_", ".") for part in path[len(innermost) + 1 :].split("/"))
