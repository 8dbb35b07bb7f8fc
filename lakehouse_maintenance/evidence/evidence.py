"""Who owns what: asked before anything is deleted, and again right before each batch.

The read order, and the race it is for: storage is listed first, then references are read, then they are asked for
again just before the deletion. A file that is committed after the listing is either referenced by the time that the
candidates are checked again, or too young to be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.evidence.around import ancestors, logs_at, metadata_at
from lakehouse_maintenance.evidence.delta_owners import DeltaPlaces, delta_owner, delta_owners, log_zones
from lakehouse_maintenance.evidence.freshness import Freshness
from lakehouse_maintenance.evidence.iceberg_owners import iceberg_owners
from lakehouse_maintenance.evidence.index import ReferenceIndex, Spelling
from lakehouse_maintenance.evidence.links import Links, folders_of_paths
from lakehouse_maintenance.evidence.markers import Markers, Zone, metadata_zones
from lakehouse_maintenance.evidence.owners import Look, Owner, Unread
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.model.errors import TableError
from lakehouse_maintenance.model.forms import FormIndex
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

_LOOKS = 3


@dataclass
class Evidence:
    """All tables of the configured catalogs and Delta groups. What was read is remembered by the pointer it was read
    under; pointers are asked for again at each look, as its own text says."""

    catalogs: Mapping[str, Catalog]
    delta: Sequence[DeltaPlaces] = ()
    cache: BlobCache | None = None
    _iceberg: dict[str, Owner] = field(default_factory=dict)
    _delta: dict[str, Owner] = field(default_factory=dict)
    _whole: Freshness = field(default_factory=Freshness)

    def look(self, near: Sequence[Location] = ()) -> Look:
        """All owners now. Never raises for a table: one that cannot be read is told as that.

        `near`: the places in question. Where the last look at every pointer was short ago, measured by how long such a
        look takes, only tables that may reach those places are asked for theirs, beside new ones: a catalog of ten
        thousand tables without an answer for all of them at once would be asked ten thousand times for each batch of
        each table otherwise. Without `near` all are asked.
        """
        if not near or not self._whole.is_fresh():
            with self._whole.measured():
                look = self._steady(lambda owner: True)
            if look.incomplete is not None:
                self._whole.at = None
            return look
        return self._steady(lambda owner: owner.reaches(near))

    def _steady(self, is_asked: Callable[[Owner], bool]) -> Look:
        look = self._look(is_asked)
        gone = look.gone()
        for _ in range(_LOOKS - 1):
            if not look.gone():
                return look
            look = self._look(is_asked)
            gone &= look.gone()
        # Named by each listing and denied each time: it did not go away, it is hidden from us (404 for 403).
        hidden = tuple(
            replace(one, is_lost=True, why=f"its catalog lists it and does not find it: {one.why}")
            if one.name in gone
            else one
            for one in look.unread
        )
        return replace(look, unread=hidden)

    def _look(self, is_asked: Callable[[Owner], bool]) -> Look:
        found, gaps, views = iceberg_owners(self.catalogs, self.cache, self._iceberg, is_asked)
        more, more_gaps = delta_owners(self.delta, self._delta)
        found += more
        owners = tuple(one for one in found if isinstance(one, Owner))
        unread = tuple(one for one in found if isinstance(one, Unread))
        return Look(owners, unread, (*gaps, *more_gaps), tuple(views))

    def around(self, storage: Storage, places: Sequence[Location]) -> tuple[list[Owner], str | None]:
        """Tables of other formats whose log lies in one of these folders itself, or above it; and why their files are
        not known, where one cannot be read.

        UniForm and XTable keep logs of several formats over the same files. Raises StorageError where it cannot be
        looked.
        """
        folders = list({folder: None for place in places for folder in (place, *ancestors(place))})
        owners: list[Owner] = []
        for text, name in logs_at(storage, folders):
            if name != "_delta_log":
                return owners, f"{text}/{name} is the log of another format, which may need the same files"
            found = delta_owner(f"{text}/{name}", Location.parse(text), storage, self._delta)
            if isinstance(found, Unread):
                return owners, f"{text}/{name} is the log of another format and cannot be read: {found.why}"
            owners.append(found)
        return owners, None


def index_references(
    owners: Iterable[Owner], own: str, places: Sequence[Location], spelling: Spelling, *, listed: bool = False
) -> ReferenceIndex:
    """All that these owners name. `own`: the table whose files are looked for; what it names under another scheme or
    bucket than `places` is held against them by key as well, and so is what any other names under another scheme.
    `listed`: the caller has listed the places, and knows itself which files in them are links.

    Raises LakehouseError: then nothing is known. The caller closes the index.
    """
    index = ReferenceIndex(spelling)
    homes = {_root(spelling.declared(place.text)): place for place in places}
    families = {place.family for place in homes.values()}
    links = Links(places if listed else ())
    try:
        for owner in owners:
            is_home: dict[str, bool] = {}
            for paths in owner.names.paths():
                index.add(paths)
                folders = folders_of_paths(paths)
                index.add(list(links.among(paths, folders)))
                away = set()
                for folder in folders:
                    root = _root(folder)
                    known = is_home.get(root)
                    if known is None:
                        known = is_home[root] = _is_home(
                            spelling.declared(folder), homes.values(), families, owner.name == own
                        )
                    if not known:
                        away.add(folder)
                if away:
                    index.add_elsewhere(path for path in paths if path[: path.rfind("/") + 1] in away)
    except BaseException:
        index.close()
        raise
    return index


def _root(path: str) -> str:
    """Scheme and authority as written; one text for local paths. What is no location stands for itself."""
    start = path.find("://")
    if start < 0 and path.startswith(("/", "file:/")):
        return "file:"
    return path if start < 0 else path[: path.find("/", start + 3) + 1]


def _is_home(path: str, homes: Iterable[Location], families: set[str], is_own: bool) -> bool:
    location = Location.parse(path)
    if is_own:
        return any(location.family == home.family and location.authority == home.authority for home in homes)
    return location.family in families


def unknown_zones(
    look: Look,
    storage: Storage,
    places: Sequence[Location],
    markers: Markers,
    index: ReferenceIndex,
    explained: frozenset[str],
    cache: BlobCache | None,
) -> list[Zone]:
    """Where nobody can tell who owns a file, from the signs that were listed and those above the places.

    `explained`: table-uuids whose metadata files are no sign of anybody unseen. Raises StorageError where it cannot be
    looked above.
    """
    above = list({folder: None for place in places for folder in ancestors(place)})
    flags = index.referenced([row[0] for row in markers.metadata_files])
    strange = [row for row, is_known in zip(markers.metadata_files, flags, strict=True) if not is_known]
    zones = list(metadata_zones(storage, strange, explained, cache))
    zones += log_zones(look, storage, list(markers.logs))
    strange_above = metadata_at(storage, above)
    zones += [Zone(None, zone.why) for zone in metadata_zones(storage, strange_above, explained, cache)]
    zones += [Zone(None, zone.why) for zone in log_zones(look, storage, logs_at(storage, above))]
    return zones


def ask(owners: Iterable[Owner], paths: FormIndex, asked: dict[str, str], owned: dict[str, str]) -> None:
    """Which of these paths the owners name; `owned` is told, path → who. Raises LakehouseError part-way.

    Owners whose metadata has not moved since they were `asked` (name → token) are not read again. What was once found
    owned stays so.
    """
    links = Links()
    for owner in owners:
        if asked.get(owner.name) == owner.token:
            continue
        for batch in owner.names.paths():
            for path in (*batch, *links.led_to(batch)):
                for named in paths.named_by(path):
                    owned.setdefault(named, f"{owner.name} references it")
        asked[owner.name] = owner.token


@dataclass
class StillUnowned:
    """The recheck of candidates: what of them any table's metadata names by now.

    Owners whose metadata has not moved since they were last asked are not read again. What was once found owned stays
    so. `refuse`: raises where nothing may be deleted at all; called with each `look`. `storage`: for logs of other
    formats in and above the places. `aliases`: the places under names that mean the same. `asked`: owners' tokens under
    which the candidates are known to be unreferenced.
    """

    evidence: Evidence
    storage: Storage
    database: str
    places: Sequence[Location]
    paths: FormIndex
    refuse: Callable[[Look], None]
    aliases: Sequence[Location] = ()
    asked: dict[str, str] = field(default_factory=dict)
    owned: dict[str, str] = field(default_factory=dict)

    def look(self) -> Mapping[str, str]:
        """Path → who owns it now. Raises TableError where it cannot be known, and what reading raises."""
        named = (*self.places, *self.aliases)
        look = self.evidence.look(named)
        self.refuse(look)
        why = look.refusal(self.database, named)
        if why is not None:
            raise TableError(f"nothing more was deleted: {why}", field=self.database)
        around, why = self.evidence.around(self.storage, self.places)
        if why is not None:
            raise TableError(f"nothing more was deleted: {why}", field=self.database)
        owners = {owner.name: owner for owner in (*look.reaching(named), *around)}
        ask(owners.values(), self.paths, self.asked, self.owned)
        return self.owned
