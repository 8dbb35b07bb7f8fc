"""Where a table's files may lie, and whose else they could be there.

Until the evidence of all tables is read, expiry works only where nobody else can be: a table whose location or write
path equals, contains or lies inside another table's is refused, and files outside its own folders are kept. A table
that cannot be read could own anything in its database, and around where its metadata lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lakehouse_maintenance.catalogs import Catalog, TableKind, discover
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, read_metadata
from lakehouse_maintenance.iceberg.references import references
from lakehouse_maintenance.model.errors import LakehouseError, UnknownTableError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.planning.expiry import GC_PROPERTY
from lakehouse_maintenance.storage import Storage

_WRITE_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_LOGS = ("_delta_log", ".hoodie")


@dataclass(frozen=True, slots=True)
class Territory:
    """Folders of one table and, where they lie elsewhere, files that it needs; `unread`: why they are not known."""

    table: str
    database: str
    folders: tuple[Location, ...]
    unread: str | None = None
    uuid: str | None = None
    is_lost: bool = False
    """Not even where its metadata lies is known: its files could be anywhere."""


def folders_of(metadata: Metadata) -> tuple[Location, ...]:
    """The table's location and its write paths."""
    texts = [metadata.table_location]
    texts += [metadata.properties[key] for key in _WRITE_PATHS if metadata.properties.get(key)]
    return tuple(dict.fromkeys(Location.parse(text) for text in texts))


def log_of_another_format(storage: Storage, metadata: Metadata) -> str | None:
    """Why files of the table may be another format's too: UniForm and XTable keep several logs over the same files.

    Raises StorageError where it cannot be told.
    """
    for folder in folders_of(metadata):
        for marker in _LOGS:
            log = folder.child(marker)
            if next(iter(storage.list(log, batch_size=1)), None):
                return f"{log} is the log of another format, which may need the same files"
    return None


def refuse_neighbours(
    catalogs: Mapping[str, Catalog],
    others: Mapping[str, tuple[Location, ...]],
    name: TableName,
    own: tuple[Location, ...],
    cache: BlobCache | None,
    uuid: str | None = None,
) -> str | None:
    """Why files of the table must not be deleted: somebody else could own them. None where nobody could.

    `others`: places of tables of other formats by name. Everything is read afresh; metadata files that were read before
    are remembered by their location, since they never change. `uuid`: of the table; who has the same was registered
    from its metadata, and shares its files wherever it lies now.
    """
    for other, folders in others.items():
        met = _meeting(own, folders)
        if met is not None:
            return f"its folder {met[0]} and {met[1]} of {other} overlap"
    for catalog in catalogs.values():
        listed = discover(catalog, ["*"])
        if isinstance(listed, Incomplete):
            return f"the tables around it are not known: {listed.why}"
        for entry in listed.items:
            if entry.name == name or entry.kind is TableKind.VIEW:
                continue
            if entry.kind is not TableKind.ICEBERG:
                if entry.name.database == name.database:
                    return f"{entry.name} in its database is of another format, and where it lies is not known"
                continue
            territory = _territory(catalog, entry.name, cache)
            why = _shared(own, uuid, territory)
            if why is not None:
                return why
            if territory.is_lost:
                return f"{entry.name} cannot be found, and may own files anywhere: {territory.unread}"
            if territory.unread is not None and territory.database == name.database:
                return f"{entry.name} in its database cannot be read, and may own files here: {territory.unread}"
        try:
            foreign = catalog.foreign_pointers()
        except LakehouseError as error:
            return f"the tables around it are not known: {error.message}"
        for other, pointer in foreign:
            territory = _read_territory(other, "", pointer, catalog.storage(), cache)
            why = _shared(own, uuid, territory)
            if why is not None:
                return why
    return None


def _shared(own: tuple[Location, ...], uuid: str | None, other: Territory) -> str | None:
    if uuid is not None and other.uuid == uuid:
        return f"{other.table} is the same table under another name (table-uuid {uuid})"
    met = _meeting(own, other.folders)
    return None if met is None else f"its folder {met[0]} and {met[1]} of {other.table} overlap"


def _meeting(own: tuple[Location, ...], theirs: tuple[Location, ...]) -> tuple[Location, Location] | None:
    return next(((a, b) for a in own for b in theirs if a.overlaps(b) or a.resolved.overlaps(b.resolved)), None)


def _territory(catalog: Catalog, name: TableName, cache: BlobCache | None) -> Territory:
    try:
        pointer, storage = catalog.locate(name)
    except (LakehouseError, ValueError, TypeError) as error:
        return Territory(str(name), name.database, (), str(error), is_lost=not isinstance(error, UnknownTableError))
    return _read_territory(str(name), name.database, pointer, storage, cache)


def _read_territory(table: str, database: str, pointer: str, storage: Storage, cache: BlobCache | None) -> Territory:
    try:
        key = f"territory-2:{pointer}"
        known = {} if cache is None else cache.get_many([key])
        if key in known:
            uuid, *texts = json.loads(known[key])
            return Territory(table, database, tuple(map(Location.parse, texts)), None, uuid)
        metadata = read_metadata(storage, table, pointer)
        places = (*folders_of(metadata), *_needed(metadata, ManifestReader(storage, table, cache)))
        if cache is not None:
            cache.put_many({key: json.dumps([metadata.uuid, *(place.text for place in places)]).encode()})
        return Territory(table, database, places, None, metadata.uuid)
    except (LakehouseError, ValueError, TypeError) as error:
        return Territory(table, database, tuple(_around(pointer)), str(error))


def _needed(metadata: Metadata, reader: ManifestReader) -> Iterator[Location]:
    """Files that the table needs, one of each folder: a table may have been moved since they were written.

    Manifests are read only of a table that forbids deleting (`gc.enabled=false`): what it references is others'.
    """
    paths: Iterable[str] = [
        metadata.location,
        *(s.manifest_list for s in metadata.snapshots.values() if s.manifest_list is not None),
        *(path for path, _ in metadata.statistics_paths()),
        *(path for path, _ in metadata.partition_statistics_paths()),
    ]
    if metadata.properties.get(GC_PROPERTY, "true").strip().lower() != "true":
        paths = chain(paths, (reference.path for reference in references(metadata, reader)))
    seen: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        if folder not in seen:
            seen.add(folder)
            yield Location.parse(path)


def _around(pointer: str) -> Iterator[Location]:
    """The folder above the metadata file's own: a table's location, as every engine lays it out."""
    try:
        location = Location.parse(pointer)
    except LakehouseError:
        return
    segments = location.segments
    if len(segments) > 2:
        yield location.with_key("/".join(segments[:-2]))


def places(delta: Mapping[str, Any]) -> dict[str, tuple[Location, ...]]:
    """Roots and tables of the configured Delta groups, by a name for messages."""
    found: dict[str, tuple[Location, ...]] = {}
    for group, settings in delta.items():
        for root in settings.roots:
            found[f"{group} (root {root})"] = (Location.parse(root),)
        for table, text in settings.tables.items():
            found[f"{group}.{table}"] = (Location.parse(text),)
    return found
