"""The Iceberg tables of all configured catalogs as owners, remembered by their pointer.

An owner's `elsewhere` needs every manifest of every snapshot once: a table may reference files in any folder
(`add_files`, an earlier location, a snapshot of another table). What one manifest reaches is remembered under its path,
and what a whole table reaches under its pointer, so a second look reads only what moved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakehouse_maintenance.catalogs import Catalog, CatalogEntry, TableKind, ask_each
from lakehouse_maintenance.evidence.links import Links, folders_of_paths
from lakehouse_maintenance.evidence.owners import Gap, Owner, Unread
from lakehouse_maintenance.evidence.resolving import WRITE_PATHS, is_unparsable, parsable_folders, why_unresolved
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, read_metadata
from lakehouse_maintenance.iceberg.references import kind_of, referenced_paths, references
from lakehouse_maintenance.iceberg.twice import named_twice
from lakehouse_maintenance.model.errors import InputError, LakehouseError, TableUnreadableError, UnknownTableError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.properties import forbids_deleting
from lakehouse_maintenance.model.references import ReferenceKind
from lakehouse_maintenance.storage import Storage

ICEBERG = "iceberg"
_MANIFESTS_A_CALL = 256
_UNIQUE = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
"""In the names that catalogs give to metadata files. Engines without a catalog count instead (`v3.metadata.json`), and
count again from 1 for a table that is made anew."""


@dataclass(frozen=True, slots=True)
class IcebergNames:
    """Everything that one metadata file of a table names, itself included."""

    table: str
    pointer: str
    storage: Storage
    cache: BlobCache | None

    def named(self) -> Iterator[tuple[str, str]]:
        """See Names."""
        for reference in references(*self._open()):
            yield reference.path, reference.kind

    def paths(self) -> Iterator[list[str]]:
        """See Names."""
        return referenced_paths(*self._open())

    def reaching(self, meant: Callable[[str], bool]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """See Names. A kind is told once, with all the snapshots that reach anything meant of that kind."""
        metadata, reader = self._open()
        found: dict[str, list[int]] = {}
        for reference in references(metadata, reader, ()):
            if meant(reference.path):
                found.setdefault(reference.kind, [])
        kinds_of: dict[str, frozenset[str]] = {}
        for snapshot, manifests in reader.manifests_of(metadata.snapshots.values()):
            kinds = {ReferenceKind.MANIFEST_LIST.value} if meant(snapshot.manifest_list or "") else set()
            for manifest in manifests:
                if manifest.path not in kinds_of:
                    files = reader.live_files((manifest,))
                    known = {str(kind_of(file)) for file in files if meant(file.path)}
                    if meant(manifest.path):
                        known.add(ReferenceKind.MANIFEST.value)
                    kinds_of[manifest.path] = frozenset(known)
                kinds |= kinds_of[manifest.path]
            for kind in kinds:
                found.setdefault(kind, []).append(snapshot.snapshot_id)
        for kind, snapshot_ids in found.items():
            yield str(kind), tuple(snapshot_ids)

    def named_twice(self) -> str | None:
        """A file that two live entries of one snapshot name. Raises LakehouseError."""
        return named_twice(*self._open())

    def _open(self) -> tuple[Metadata, ManifestReader]:
        metadata = read_metadata(self.storage, self.table, self.pointer)
        return metadata, ManifestReader(self.storage, self.table, self.cache)


def folders_of(metadata: Metadata) -> tuple[Location, ...]:
    """The table's location and its write paths."""
    texts = [metadata.table_location]
    texts += [metadata.properties[key] for key in WRITE_PATHS if metadata.properties.get(key)]
    return tuple(dict.fromkeys(Location.parse(text) for text in texts))


def iceberg_owners(
    catalogs: Mapping[str, Catalog],
    cache: BlobCache | None,
    known: dict[str, Owner],
    is_asked: Callable[[Owner], bool] = lambda owner: True,
) -> tuple[list[Owner | Unread], list[Gap], list[TableName]]:
    """Every table of every catalog, each read or with the reason why not; where there may be more than those; views.

    `known`: owners of an earlier look by name; those whose pointer is still the same are taken from it. It is changed
    to what is found now. `is_asked`: of the known ones, whose pointer is asked for; where a catalog tells the pointers
    of a whole database in one answer, all are. Names are always listed, and new ones always read.
    """
    found: list[Owner | Unread] = []
    gaps: list[Gap] = []
    views: list[TableName] = []
    foreign: list[tuple[Catalog, str, str, str]] = []
    for catalog in catalogs.values():
        entries, missing = _entries(catalog)
        gaps += missing
        names = [entry.name for entry in entries if entry.kind is TableKind.ICEBERG]
        views += [entry.name for entry in entries if entry.kind is TableKind.VIEW]
        found += ask_each(catalog, partial(_owner, catalog, _pointers(catalog, names), cache, known, is_asked), names)
        for entry in entries:
            if entry.kind is TableKind.OTHER:
                why = "it is of another format, and where it lies is not known"
                found.append(Unread(str(entry.name), entry.name.database, why))
        try:
            foreign += [(catalog, *one) for one in catalog.foreign_pointers()]
        except LakehouseError as error:
            gaps.append(Gap(catalog.name, None, error.message))
    for catalog, name, pointer in _told_apart(catalogs, foreign, found):
        found.append(_read(name, "", pointer, catalog.storage(), cache, known))
    if not gaps:  # what a gap hides is there again at the next look, and needs no second reading
        known.clear()
    known.update({owner.name: owner for owner in found if isinstance(owner, Owner)})
    return found, gaps, views


def _entries(catalog: Catalog) -> tuple[list[CatalogEntry], list[Gap]]:
    """Of every database that could be listed, sorted by name; and the databases that could not."""
    databases = catalog.databases()
    if isinstance(databases, Incomplete):
        return [], [Gap(catalog.name, None, databases.why)]
    found: list[CatalogEntry] = []
    gaps: list[Gap] = []
    for namespace, listed in zip(databases.items, ask_each(catalog, catalog.tables, databases.items), strict=True):
        if isinstance(listed, Incomplete):
            gaps.append(Gap(catalog.name, TableName(catalog.name, namespace, "").database, listed.why))
        else:
            found += listed.items
    return sorted(found), gaps


def _told_apart(
    catalogs: Mapping[str, Catalog], foreign: Sequence[tuple[Catalog, str, str, str]], found: Sequence[Owner | Unread]
) -> Iterator[tuple[Catalog, str, str]]:
    """Tables of catalogs that are not configured, each under a name that no other owner has.

    Every SQL database has a catalog of some common name, so what it holds under the name of a configured catalog may be
    another table. An owner's name stands for one table everywhere: the two must not be taken for one.
    """
    pointers = {
        owner.name: owner.names.pointer
        for owner in found
        if isinstance(owner, Owner) and isinstance(owner.names, IcebergNames)
    }
    taken = {owner.name for owner in found}
    for catalog, catalog_name, name, pointer in foreign:
        configured = catalogs.get(catalog_name)
        if configured is not None and configured.properties.get("uri") == catalog.properties.get("uri"):
            continue  # the same rows, which that catalog has told
        if pointers.get(name) == pointer:
            continue
        is_clear = configured is None and name not in taken
        shown = name if is_clear else f"{name} in the database of catalog {catalog.name}"
        taken.add(shown)
        yield catalog, shown, pointer


def _pointers(catalog: Catalog, names: Sequence[TableName]) -> dict[TableName, str]:
    """What one question a database tells; the rest is asked table by table."""
    found: dict[TableName, str] = {}
    for namespace in dict.fromkeys(name.namespace for name in names):
        try:
            found |= catalog.pointers(namespace)
        except LakehouseError:
            continue  # then each table is asked, and tells what is wrong
    return found


def _owner(
    catalog: Catalog,
    pointers: Mapping[TableName, str],
    cache: BlobCache | None,
    known: Mapping[str, Owner],
    is_asked: Callable[[Owner], bool],
    name: TableName,
) -> Owner | Unread:
    before = known.get(str(name))
    if before is not None and name not in pointers and not is_asked(before):
        return before
    try:
        if name in pointers:
            pointer, storage = pointers[name], catalog.storage(name)
        else:
            pointer, storage = catalog.locate(name)
    except UnknownTableError as error:
        # Dropped since the listing, or renamed: then its new name is not in the listing.
        return Unread(str(name), name.database, str(error), _reached_last(str(name), before, cache), is_gone=True)
    except (LakehouseError, ValueError, TypeError) as error:
        return Unread(str(name), name.database, str(error), _reached_last(str(name), before, cache), is_lost=True)
    return _read(str(name), name.database, pointer, storage, cache, known)


def _read(
    name: str, database: str, pointer: str, storage: Storage, cache: BlobCache | None, known: Mapping[str, Owner]
) -> Owner | Unread:
    names = IcebergNames(name, pointer, storage, cache)
    before = known.get(name)
    places = list(_around(pointer))
    metadata = None
    try:
        token = _token(storage, pointer)
        if before is not None and before.token == token:
            return replace(before, names=names)  # vended credentials are new each time
        key = f"owner-3:{token}"
        blob = None if cache is None else cache.get_many([key]).get(key)
        if blob is not None:
            uuid, folder_texts, elsewhere_texts, keeps_all, text, unresolved = json.loads(blob)
            folders = tuple(map(Location.parse, folder_texts))
            elsewhere = tuple(map(Location.parse, elsewhere_texts))
            return Owner(name, database, ICEBERG, token, uuid, folders, elsewhere, names, keeps_all, text, unresolved)
        metadata = read_metadata(storage, name, pointer)
        unresolved, text = why_unresolved(metadata), metadata.table_location
        try:
            folders = folders_of(metadata)
        except InputError as error:
            raise TableUnreadableError(f"{name}: {unresolved or error.message}", field=name) from error
        keeps_all = forbids_deleting(metadata.properties)
        reader = ManifestReader(storage, name, cache)
        elsewhere = tuple(_elsewhere(metadata, reader, folders, cache))
        if cache is not None:
            told = [metadata.uuid, [one.text for one in folders], [one.text for one in elsewhere]]
            known_as = json.dumps([*told, keeps_all, text, unresolved]).encode()
            reach = [one.text for one in (*folders, *elsewhere)]
            cache.put_many({key: known_as, f"reach-1:{name}": json.dumps(reach).encode()})
        return Owner(
            name, database, ICEBERG, token, metadata.uuid, folders, elsewhere, names, keeps_all, text, unresolved
        )
    except (LakehouseError, ValueError, TypeError) as error:
        given = None if metadata is None else metadata.table_location
        places += [] if metadata is None else parsable_folders(metadata)
        places += _last_reach(name, before, cache)
        seen = tuple(dict.fromkeys(places))
        return Unread(name, database, str(error), seen, location=given, is_unparsable=is_unparsable(given))


def _token(storage: Storage, pointer: str) -> str:
    """What changes whenever the metadata does: the pointer; with size, time and tag where its name may come again."""
    if _UNIQUE.search(pointer.rpartition("/")[2]):
        return pointer
    info = storage.stat(Location.parse(pointer))
    return pointer if info is None else f"{pointer} {info.size} {info.modified} {info.etag}"


def _last_reach(name: str, before: Owner | None, cache: BlobCache | None) -> Iterator[Location]:
    """Where the table's files lay when it could last be read, other tables' folders included; as far as remembered."""
    if before is not None:
        yield from (*before.folders, *before.elsewhere)
        return
    key = f"reach-1:{name}"
    blob = None if cache is None else cache.get_many([key]).get(key)
    if blob is not None:
        yield from map(Location.parse, json.loads(blob))


def _reached_last(name: str, before: Owner | None, cache: BlobCache | None) -> tuple[Location, ...]:
    return tuple(dict.fromkeys(_last_reach(name, before, cache)))


def _elsewhere(
    metadata: Metadata, reader: ManifestReader, folders: Sequence[Location], cache: BlobCache | None
) -> Iterator[Location]:
    """Folders of referenced files that lie in none of the table's own, each once.

    Also those that do by their text and not by where a symbolic link in the table's folder leads.
    """
    seen: set[str] = set()
    homes = [(own, own.resolved) for own in folders]
    for folder in _reached_folders(metadata, reader, cache):
        if folder not in seen:
            seen.add(folder)
            place = Location.parse(folder)
            if not any(own.contains(place) and real.contains(place.resolved) for own, real in homes):
                yield place


def _reached_folders(metadata: Metadata, reader: ManifestReader, cache: BlobCache | None) -> Iterator[str]:
    for reference in references(metadata, reader, ()):  # all but snapshots: metadata files, statistics
        yield _folder(reference.path)
    manifests: dict[str, ManifestFile] = {}
    for snapshot, listed in reader.manifests_of(metadata.snapshots.values()):
        if snapshot.manifest_list is not None:
            yield _folder(snapshot.manifest_list)
        manifests |= {manifest.path: manifest for manifest in listed}
    yield from map(_folder, manifests)
    pending, links = list(manifests.values()), Links()
    for start in range(0, len(pending), _MANIFESTS_A_CALL):
        yield from _folders_of_files(pending[start : start + _MANIFESTS_A_CALL], reader, cache, links)


def _folders_of_files(
    manifests: Sequence[ManifestFile], reader: ManifestReader, cache: BlobCache | None, links: Links
) -> Iterator[str]:
    """Folders of the live files of each manifest: remembered apart from the files, which are many more."""
    keys = {f"folders-2:{manifest.path}:{manifest.length}": manifest for manifest in manifests}
    blobs = {} if cache is None else cache.get_many(keys)
    fresh: dict[str, bytes] = {}
    missing = {manifest.path: key for key, manifest in keys.items() if key not in blobs}
    for blob in blobs.values():
        yield from json.loads(blob)
    wanted = [manifest for manifest in manifests if manifest.path in missing]
    for manifest, files in reader.live_files_by_manifest(wanted):
        names = [file.path for file in files]
        folders = sorted(folders_of_paths(names) | folders_of_paths(links.led_to(names)))
        fresh[missing[manifest.path]] = json.dumps(folders).encode("utf-8", "surrogatepass")
        yield from folders
    if fresh and cache is not None:
        cache.put_many(fresh)


def _folder(path: str) -> str:
    """With its `/`, so that a bucket's root stays one."""
    return path[: path.rfind("/") + 1]


def _around(pointer: str) -> Iterator[Location]:
    """The folder above the metadata file's own: a table's location, as every engine lays it out."""
    try:
        location = Location.parse(pointer)
    except (LakehouseError, TypeError):
        return
    segments = location.segments
    if len(segments) > 2:
        yield location.with_key("/".join(segments[:-2]))
