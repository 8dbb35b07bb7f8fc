"""Delta tables as owners: those that the configuration lists, those found under its roots, and those met on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lakehouse_maintenance.delta import find_log, references, table_root_of
from lakehouse_maintenance.evidence.freshness import Freshness
from lakehouse_maintenance.evidence.links import Links
from lakehouse_maintenance.evidence.markers import Zone
from lakehouse_maintenance.evidence.owners import Gap, Look, Owner, Unread
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

DELTA = "delta"
_BATCH = 4096


@dataclass
class DeltaPlaces:
    """One configured group. `tables`: name → root. `roots`: folders that are scanned for logs: again as soon as five
    times as long has passed as it took, and after ten minutes at most."""

    group: str
    storage: Storage
    tables: Mapping[str, Location] = field(default_factory=dict)
    roots: Sequence[Location] = ()
    _scanned: list[tuple[str, Location]] | None = None
    _freshness: Freshness = field(default_factory=Freshness)

    def all_tables(self) -> list[tuple[str, Location]]:
        """Name and root of each; names may come more than once, since they tell only what is below a root.

        Raises StorageError where a root cannot be listed to the end.
        """
        if self._scanned is None or not self._freshness.is_fresh():
            self._scanned = None  # what was found before is not all there is, should this fail
            with self._freshness.measured():
                self._scanned = [
                    (_name(self.group, root, table), table)
                    for root in self.roots
                    for table in _scan(self.storage, root)
                ]
        return [*self._scanned, *((f"{self.group}.{name}", root) for name, root in self.tables.items())]


@dataclass(frozen=True, slots=True)
class DeltaNames:
    """Everything that a Delta log names or consists of."""

    storage: Storage
    root: Location

    def named(self) -> Iterator[tuple[str, str]]:
        """See Names."""
        for reference in references(self.storage, self.root):
            yield reference.location.text, reference.kind

    def paths(self) -> Iterator[list[str]]:
        """See Names."""
        pending = references(self.storage, self.root)
        while batch := [reference.location.text for reference in islice(pending, _BATCH)]:
            yield batch

    def reaching(self, meant: Callable[[str], bool]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """See Names. Delta logs have no snapshot ids."""
        kinds = {str(kind): None for path, kind in self.named() if meant(path)}
        for kind in kinds:
            yield kind, ()


def delta_owners(groups: Sequence[DeltaPlaces], known: dict[str, Owner]) -> tuple[list[Owner | Unread], list[Gap]]:
    """Every table of every group, and where there may be more. `known`: as in `iceberg_owners`."""
    tables: dict[tuple[str, Location], Storage] = {}
    gaps: list[Gap] = []
    for group in groups:
        try:
            tables |= dict.fromkeys(group.all_tables(), group.storage)
        except LakehouseError as error:
            why = f"the Delta tables of {group.group} are not known: {error.message}"
            gaps.append(Gap(group.group, None, why))
    # An owner's name stands for one table everywhere: two of one name must not be taken for one.
    named = Counter(name for name, _ in tables)
    found = [
        delta_owner(name if named[name] == 1 else f"{name} at {root.text}", root, storage, known)
        for (name, root), storage in tables.items()
    ]
    if not gaps:
        known.clear()
    known.update({owner.name: owner for owner in found if isinstance(owner, Owner)})
    return found, gaps


def delta_owner(name: str, root: Location, storage: Storage, known: Mapping[str, Owner]) -> Owner | Unread:
    """The table at `root`; its log is read only where it moved since it was `known`."""
    try:
        log = find_log(storage, root)
        if log is None:
            why = f"there is no Delta log in {root}"
            return Unread(name, name.rpartition(".")[0], why, (root,), location=root.text)
        token = log.token
        before = known.get(name)
        if before is not None and before.token == token and before.folders == (root,):
            return before
        names = DeltaNames(storage, root)
        elsewhere = tuple(Location.parse(folder) for folder in _folders_outside(root, names))
        database = name.rpartition(".")[0]
        return Owner(name, database, DELTA, token, None, (root,), elsewhere, names, location_text=root.text)
    except LakehouseError as error:
        return Unread(name, name.rpartition(".")[0], error.message, (root,), location=root.text)


def log_zones(look: Look, storage: Storage, logs: Sequence[tuple[str, str]]) -> Iterator[Zone]:
    """Zones of logs that no visible table explains: (folder around the log, the log's name)."""
    visible = {folder.resolved for owner in look.owners if owner.table_format == DELTA for folder in owner.folders}
    for text, name in logs:
        root = Location.parse(text if text.rpartition("/")[2] else text + "/")
        if name == "_delta_log" and root.resolved in visible:
            continue
        why = f"{text}/{name} is the log of a table that is not listed, which may need any file around it"
        yield Zone(root, why)
        if name != "_delta_log":
            continue
        try:
            for folder in _folders_outside(root, DeltaNames(storage, root)):
                yield Zone(Location.parse(folder), why)
        except LakehouseError as error:
            yield Zone(None, f"{why}, and it cannot be read: {error.message}")


def _folders_outside(root: Location, names: DeltaNames) -> list[str]:
    """Folders of referenced files that do not lie in the table's own."""
    seen: dict[str, None] = {}
    links = Links()
    for batch in names.paths():
        for path in (*batch, *links.led_to(batch)):
            seen[path[: path.rfind("/") + 1]] = None
    found = [(folder, Location.parse(folder)) for folder in seen]
    real = root.resolved
    return [text for text, folder in found if not (root.contains(folder) and real.contains(folder.resolved))]


def _scan(storage: Storage, root: Location) -> Iterator[Location]:
    """Roots of the tables whose log lies in the folder. Raises ListingIncompleteError."""
    seen: set[Location] = set()
    for batch in storage.list(root):
        for info in batch:
            table = table_root_of(info.location)
            if table is not None and table not in seen:
                seen.add(table)
                yield table


def _name(group: str, root: Location, table: Location) -> str:
    below = [segment for segment in table.key.removeprefix(root.folder_key).split("/") if segment]
    database = ".".join(below[:-1]) or "default"
    return f"{group}.{database}.{below[-1] if below else root.name}"
