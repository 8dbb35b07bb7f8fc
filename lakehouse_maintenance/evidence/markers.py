"""Signs of tables that no catalog shows: metadata files, and logs of other formats.

For orphan files such a sign makes unknown whatever that table could reach: its folder, the locations that its metadata
names, and all of the listed place where it cannot be read. A file there is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from lakehouse_maintenance.evidence.iceberg_owners import folders_of
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, read_metadata
from lakehouse_maintenance.iceberg.references import references
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.base import Row

LOGS = ("_delta_log", ".hoodie")
"""Folders that hold another format's log of the folder around them."""

_METADATA_FILE = re.compile(r"(.+\.)?metadata\.json(\.gz)?|.+\.gz\.metadata\.json")


@dataclass(frozen=True, slots=True)
class Zone:
    """A folder of which it is not known who owns its files, and why. `where` None: everything that was listed."""

    where: Location | None
    why: str

    def covers(self, location: Location) -> bool:
        """Whether the object may be one of those."""
        where = self.where
        return (
            where is None
            or where.contains(location)
            or where.collapsed.contains(location.collapsed)
            or _resolved(where).contains(_resolved(location))
            or ("%" in where.key + location.key and _decoded(where).contains(_decoded(location)))
        )


@lru_cache(maxsize=4096)
def _resolved(location: Location) -> Location:
    """Each of many zones is asked about each of many files."""
    return location.resolved


def _decoded(location: Location) -> Location:
    return location.with_key(unquote(location.key)).collapsed


def is_metadata_file(path: str) -> bool:
    """Whether a path ends like an Iceberg metadata file, compressed or not."""
    return _METADATA_FILE.fullmatch(path.rpartition("/")[2]) is not None


def log_root(path: str) -> tuple[str, str] | None:
    """For an object inside another format's log: the folder around the log, and the log's name."""
    for name in LOGS:
        folder, found, _ = path.partition(f"/{name}/")
        if found:
            return folder, name
    return None


class Markers:
    """Gathers signs from a listing as it goes by: few of them, however long it is.

    `logs`: the folder around each log of another format, and the log's name.
    """

    def __init__(self) -> None:
        self.metadata_files: list[Row] = []
        self.logs: dict[tuple[str, str], None] = {}

    def look(self, rows: Sequence[Row]) -> None:
        """Takes what is a sign."""
        # Nearly no batch holds any, and one search through all its paths takes a fifth of a look at each.
        text = "\n".join(row[0] for row in rows)
        if "metadata.json" not in text and not any(f"/{name}/" in text for name in LOGS):
            return
        for row in rows:
            path = row[0]
            if path.endswith((".json", ".gz")) and is_metadata_file(path):
                self.metadata_files.append(row)
            elif "/_delta_log/" in path or "/.hoodie/" in path:
                found = log_root(path)
                if found is not None:
                    self.logs[found] = None


def metadata_zones(
    storage: Storage, rows: Sequence[Row], explained: frozenset[str], cache: BlobCache | None
) -> Iterator[Zone]:
    """Zones of metadata files that nothing references.

    `explained`: uuids of tables whose files are known otherwise. An unreferenced metadata file of such a table is a
    leftover, and so is what only it names.
    """
    known = _known_uuids(rows, cache)
    for row in rows:
        if known.get(row) in explained:
            continue
        path = row[0]
        try:
            metadata = read_metadata(storage, path, path)
        except LakehouseError as error:
            yield Zone(None, f"{path} looks like a table's metadata and cannot be read: {error.message}")
            continue
        if cache is not None:
            cache.put_many({_uuid_key(row): metadata.uuid.encode()})
        if metadata.uuid not in explained:
            why = f"{path} belongs to a table that no catalog shows (table-uuid {metadata.uuid})"
            yield from _reach_of_stranger(storage, path, metadata, why)


def _known_uuids(rows: Sequence[Row], cache: BlobCache | None) -> dict[Row, str]:
    if cache is None:
        return {}
    blobs = cache.get_many(_uuid_key(row) for row in rows)
    return {row: blobs[key].decode() for row in rows if (key := _uuid_key(row)) in blobs}


def _uuid_key(row: Row) -> str:
    return f"uuid-1:{row[0]}:{row[1]}:{row[2]}"


def _reach_of_stranger(storage: Storage, path: str, metadata: Metadata, why: str) -> Iterator[Zone]:
    """What the unseen table could own: around its file, where it says that it lies, and every file it names."""
    yield Zone(folder_around(Location.parse(path)), why)
    try:
        for folder in folders_of(metadata):
            yield Zone(folder, why)
        seen: set[str] = set()
        for reference in references(metadata, ManifestReader(storage, path)):
            folder_path = reference.path[: reference.path.rfind("/") + 1]
            if folder_path not in seen:
                seen.add(folder_path)
                yield Zone(Location.parse(folder_path), why)
    except LakehouseError as error:
        yield Zone(None, f"{why}, and what it needs cannot be read: {error.message}")


def folder_around(location: Location) -> Location:
    """The folder that a metadata file stands for: above `metadata/`, or its own where it lies elsewhere."""
    segments = location.segments
    up = 2 if len(segments) > 1 and segments[-2] == "metadata" else 1
    return location.with_key("/".join(segments[:-up]))
