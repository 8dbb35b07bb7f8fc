"""Where a table's files may lie, and whose else they could be there.

Until the evidence of all tables is read, expiry works only where nobody else can be: a table whose location or write
path equals, contains or lies inside another table's is refused, and files outside its own folders are kept. A table
that cannot be read could own anything in its database, and around where its metadata lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.catalogs import Catalog, TableKind, discover
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.iceberg.metadata import Metadata, read_metadata
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName

_WRITE_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


@dataclass(frozen=True, slots=True)
class Territory:
    """Folders of one table; `unread`: why they are not known for sure."""

    table: str
    database: str
    folders: tuple[Location, ...]
    unread: str | None = None


def folders_of(metadata: Metadata) -> tuple[Location, ...]:
    """The table's location and its write paths."""
    texts = [metadata.table_location]
    texts += [metadata.properties[key] for key in _WRITE_PATHS if metadata.properties.get(key)]
    return tuple(dict.fromkeys(Location.parse(text) for text in texts))


def refuse_neighbours(
    catalogs: Mapping[str, Catalog],
    others: Mapping[str, tuple[Location, ...]],
    name: TableName,
    own: tuple[Location, ...],
    cache: BlobCache | None,
) -> str | None:
    """Why files of the table must not be deleted: somebody else could own them. None where nobody could.

    `others`: places of tables of other formats by name. Everything is read afresh; metadata files that were read before
    are remembered by their location, since they never change.
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
            met = _meeting(own, territory.folders)
            if met is not None:
                return f"its folder {met[0]} and {met[1]} of {entry.name} overlap"
            if territory.unread is not None and territory.database == name.database:
                return f"{entry.name} in its database cannot be read, and may own files here: {territory.unread}"
    return None


def _meeting(own: tuple[Location, ...], theirs: tuple[Location, ...]) -> tuple[Location, Location] | None:
    return next(((a, b) for a in own for b in theirs if a.overlaps(b)), None)


def _territory(catalog: Catalog, name: TableName, cache: BlobCache | None) -> Territory:
    pointer: str | None = None
    try:
        pointer, storage = catalog.locate(name)
        key = f"territory:{pointer}"
        known = {} if cache is None else cache.get_many([key])
        if key in known:
            return Territory(str(name), name.database, tuple(map(Location.parse, json.loads(known[key]))))
        folders = folders_of(read_metadata(storage, str(name), pointer))
        if cache is not None:
            cache.put_many({key: json.dumps([folder.text for folder in folders]).encode()})
        return Territory(str(name), name.database, folders)
    except (LakehouseError, ValueError, TypeError) as error:
        return Territory(str(name), name.database, tuple(_around(pointer)), str(error))


def _around(pointer: str | None) -> Iterator[Location]:
    """The folder above the metadata file's own: a table's location, as every engine lays it out."""
    if pointer is None:
        return
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
