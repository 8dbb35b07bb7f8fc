"""Manifest lists and manifests, read once each and remembered (Iceberg spec: Manifests, Manifest Lists).

Manifests never change, so what was read of one is kept in a compact form under its path; a second look at a table
costs only the manifests that are new since. Reading is streamed: no more than a few manifests are decoded at a time.
"""

from __future__ import annotations

import json
import math
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from lakehouse_maintenance.iceberg.avro import Body, Container, read_body, read_container
from lakehouse_maintenance.iceberg.fields import (
    ADDED,
    DELETED,
    POSITION_DELETE_PATH_ID,
    STATISTICS,
    STATISTICS_BUT_BOUNDS,
    AvroType,
)
from lakehouse_maintenance.iceberg.lists import ListDecoder, RememberedLists
from lakehouse_maintenance.iceberg.metadata import Snapshot
from lakehouse_maintenance.model.errors import NotFoundError, TableUnreadableError
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

_BATCH = 512
_BATCH_BYTES = 32 << 20
_PATHS_BATCH = 64
_LISTS = 64
"""Manifest lists asked for at once."""


class BlobCache(Protocol):
    """Somewhere to keep what was read; may forget anything at any time."""

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """The blobs that are still there."""
        ...

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """Remember these."""
        ...


class MemoryCache:
    """Blobs of this process, the least recently used forgotten beyond `limit` bytes."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._blobs: OrderedDict[str, bytes] = OrderedDict()

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """See BlobCache."""
        found: dict[str, bytes] = {}
        for key in keys:
            blob = self._blobs.get(key)
            if blob is not None:
                self._blobs.move_to_end(key)
                found[key] = blob
        return found

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """See BlobCache."""
        for key, blob in items.items():
            self._size += len(blob) - len(self._blobs.pop(key, b""))
            self._blobs[key] = blob
        while self._size > self._limit and self._blobs:
            _, blob = self._blobs.popitem(last=False)
            self._size -= len(blob)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One row of a manifest list. `raw` holds every field by our names, for writing it again unchanged.

    `deletes`: the manifest holds delete files. `live_files`: added and existing entries; None where an old writer did
    not count them. `added_snapshot_id`, `sequence_number`: what its entries inherit.
    """

    path: str
    length: int
    spec_id: int
    deletes: bool
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    live_files: int | None
    first_row_id: int | None
    raw: dict[str, Any]

    @classmethod
    def from_raw(cls, raw: dict[str, Any]) -> ManifestFile:
        """From a record of a manifest list of any version."""
        raw = {"content": 0, "sequence_number": 0, "min_sequence_number": 0, "first_row_id": None, **raw}
        added, existing = raw.get("added_files_count"), raw.get("existing_files_count")
        return cls(
            path=raw["manifest_path"],
            length=raw["manifest_length"],
            spec_id=raw["partition_spec_id"],
            deletes=raw["content"] == 1,
            sequence_number=raw["sequence_number"],
            min_sequence_number=raw["min_sequence_number"],
            added_snapshot_id=raw["added_snapshot_id"],
            live_files=None if added is None or existing is None else added + existing,
            first_row_id=raw["first_row_id"],
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class Entries:
    """A manifest's entries with inherited values filled in, and the Avro type of its partition tuples."""

    records: list[dict[str, Any]]
    partition: AvroType


_LISTS_OF: WeakKeyDictionary[BlobCache, RememberedLists[ManifestFile]] = WeakKeyDictionary()
_LISTS_LOCK = threading.Lock()


def _remembered(cache: BlobCache) -> RememberedLists[ManifestFile]:
    """The lists that readers with this cache have read in this process: a plan, its run and each recheck ask for the
    same ones."""
    with _LISTS_LOCK:
        return _LISTS_OF.setdefault(cache, RememberedLists())


class ManifestReader:
    """Reads one table's manifest lists and manifests. Damaged ones raise TableUnreadableError naming the file."""

    def __init__(self, storage: Storage, table: str, cache: BlobCache | None = None) -> None:
        self._storage = storage
        self._table = table
        self._cache: BlobCache = MemoryCache() if cache is None else cache
        self._lists = _remembered(self._cache)
        self._decoder = ListDecoder(ManifestFile.from_raw)
        self.manifests_read = 0
        """Manifests fetched from storage, not from memory: what a second look costs."""

    def manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        """The snapshot's manifests, in the list's order."""
        return next(self.manifests_of((snapshot,)))[1]

    def manifests_of(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, Sequence[ManifestFile]]]:
        """Each snapshot's manifests; lists are read ahead, and a manifest that many lists name is one object."""
        pending = iter(snapshots)
        while batch := list(islice(pending, _LISTS)):
            paths = [self._list_of(snapshot) for snapshot in batch]
            known = self._lists.get_many(self._table, paths)
            fetched = self._storage.read_many(Location.parse(path) for path in paths if path not in known)
            for snapshot, path in zip(batch, paths, strict=True):
                rows = known.get(path)
                yield snapshot, self._decode_list(path, self._next(fetched, path)) if rows is None else rows

    def list_size(self, snapshot: Snapshot) -> int | None:
        """Bytes of the snapshot's manifest list, which metadata does not tell; None where it was not just read."""
        return None if snapshot.manifest_list is None else self._lists.length(self._table, snapshot.manifest_list)

    def _list_of(self, snapshot: Snapshot) -> str:
        if snapshot.manifest_list is None:
            raise TableUnreadableError(
                f"{self._table}: snapshot {snapshot.snapshot_id} names its manifests without a manifest list",
                field=self._table,
                hint="a table from before Iceberg 0.9; any write by a current engine replaces this form",
            )
        return snapshot.manifest_list

    def _decode_list(self, path: str, data: bytes) -> Sequence[ManifestFile]:
        try:
            rows, fresh = self._decoder.decode(data)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(path, error) from error
        self._lists.put(self._table, path, rows, fresh, len(data))
        return rows

    @property
    def cache(self) -> BlobCache:
        """Where what is read of manifests is kept; see `manifest_key`."""
        return self._cache

    def entries(self, manifest: ManifestFile, skip: frozenset[str] = frozenset()) -> Entries:
        """All entries of a manifest, deleted ones too, with every field but the skipped ones."""
        return self._entries(manifest, self._fetch(manifest.path), skip)

    def entries_of(
        self, manifests: Iterable[ManifestFile], skip: frozenset[str] = frozenset()
    ) -> Iterator[tuple[ManifestFile, Entries]]:
        """As `entries`, of each in order, fetched ahead."""
        wanted = list(manifests)
        fetched = self._storage.read_many(Location.parse(manifest.path) for manifest in wanted)
        for manifest in wanted:
            yield manifest, self._entries(manifest, self._next(fetched, manifest.path), skip)

    def _entries(self, manifest: ManifestFile, data: bytes, skip: frozenset[str]) -> Entries:
        container = self._read(manifest.path, data, skip)
        try:
            entries = list(_inherited(container.records, manifest))
            require_all(manifest, sum(entry["status"] != DELETED for entry in entries))
            return Entries(entries, container.partition)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(manifest.path, error) from error

    def bodies(self, manifests: Iterable[ManifestFile]) -> Iterator[tuple[ManifestFile, Body]]:
        """Each manifest's entries as they are encoded, in order; fetched ahead, and not remembered.

        Whoever decodes them does so inside `damage`.
        """
        wanted = list(manifests)
        fetched = self._storage.read_many(Location.parse(manifest.path) for manifest in wanted)
        for manifest in wanted:
            data = self._next(fetched, manifest.path)
            with self.damage(manifest):
                body = read_body(data)
            yield manifest, body

    @contextmanager
    def damage(self, manifest: ManifestFile) -> Iterator[None]:
        """What goes wrong inside, while the manifest's bytes are decoded, is told as its damage."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, struct.error) as error:
            raise self._damaged(manifest.path, error) from error

    def live_files(self, manifests: Iterable[ManifestFile]) -> Iterator[LiveFile]:
        """Live entries of these manifests, streamed in their order."""
        for _, files in self.live_files_by_manifest(manifests):
            yield from files

    def live_files_by_manifest(
        self, manifests: Iterable[ManifestFile]
    ) -> Iterator[tuple[ManifestFile, Sequence[LiveFile]]]:
        """As `live_files`, manifest by manifest."""
        batch: list[ManifestFile] = []
        size = 0
        for manifest in manifests:
            batch.append(manifest)
            size += manifest.length
            if len(batch) >= _BATCH or size >= _BATCH_BYTES:
                yield from self._batch(batch)
                batch, size = [], 0
        if batch:
            yield from self._batch(batch)

    def live_paths(self, manifests: Iterable[ManifestFile]) -> Iterator[list[str]]:
        """Paths of the live entries, a list for each manifest in any order: nothing else of an entry is looked at."""
        pending = iter(manifests)
        while batch := list(islice(pending, _PATHS_BATCH)):
            known = dict(self._cache.get_many(manifest_key(manifest) for manifest in batch))
            missing: list[ManifestFile] = []
            for manifest in batch:
                paths = _unpack_paths(known.pop(manifest_key(manifest), None)) if known else None
                if paths is None:
                    missing.append(manifest)
                else:
                    yield paths
            for _, files in self.live_files_by_manifest(missing):
                yield [file.path for file in files]

    def _batch(self, batch: list[ManifestFile]) -> Iterator[tuple[ManifestFile, Sequence[LiveFile]]]:
        known = self._cache.get_many(manifest_key(manifest) for manifest in batch)
        missing = [manifest for manifest in batch if manifest_key(manifest) not in known]
        fetched = self._storage.read_many(Location.parse(manifest.path) for manifest in missing)
        fresh: dict[str, bytes] = {}
        for manifest in batch:
            blob = known.get(manifest_key(manifest))
            files = None if blob is None else _unpack(blob)
            if files is None:
                data = self._next(fetched, manifest.path) if blob is None else self._fetch(manifest.path)
                files = self._decode(manifest, data)
                fresh[manifest_key(manifest)] = _pack(files)
                self.manifests_read += 1
            yield manifest, files
        if fresh:
            self._cache.put_many(fresh)

    def _decode(self, manifest: ManifestFile, data: bytes) -> list[LiveFile]:
        container = self._read(manifest.path, data, STATISTICS_BUT_BOUNDS if manifest.deletes else STATISTICS)
        try:
            spell = partition_spelling(container.partition)
            entries = _inherited(container.records, manifest)
            files = [live_file(entry, spell) for entry in entries if entry["status"] != DELETED]
            require_all(manifest, len(files))
            return files
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(manifest.path, error) from error

    def _next(self, fetched: Iterator[tuple[Location, bytes]], path: str) -> bytes:
        try:
            return next(fetched)[1]
        except NotFoundError as error:
            raise self._gone(path) from error

    def _fetch(self, path: str) -> bytes:
        try:
            return self._storage.read(Location.parse(path))
        except NotFoundError as error:
            raise self._gone(path) from error

    def _read(self, path: str, data: bytes, skip: frozenset[str]) -> Container:
        try:
            return read_container(data, skip)
        except ValueError as error:
            raise self._damaged(path, error) from error

    def _gone(self, path: str) -> TableUnreadableError:
        return TableUnreadableError(
            f"{self._table}: metadata names {path}, which does not exist",
            field=self._table,
            hint="the table has lost metadata; roll back to a snapshot that does not need this file",
        )

    def _damaged(self, path: str, error: BaseException) -> TableUnreadableError:
        return TableUnreadableError(
            f"{self._table}: {path} cannot be read: {error or type(error).__name__}",
            field=self._table,
            hint="the file is truncated or damaged; nothing was changed",
        )


def _inherited(records: Iterable[dict[str, Any]], manifest: ManifestFile) -> Iterator[dict[str, Any]]:
    """Fills in what the spec lets a reader inherit (Sequence Number Inheritance, First Row ID Inheritance)."""
    next_row_id = manifest.first_row_id
    for entry in records:
        data_file = entry["data_file"]
        data_file.setdefault("content", 0)
        data_file["spec_id"] = manifest.spec_id
        for name in ("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes", "equality_ids"):
            data_file.setdefault(name, None)
        if entry.get("snapshot_id") is None:
            entry["snapshot_id"] = manifest.added_snapshot_id
        for name in ("sequence_number", "file_sequence_number"):
            # A v1 manifest has no numbers and counts as 0; an EXISTING entry of a v2 manifest must carry its own.
            if entry.get(name) is None and (entry["status"] == ADDED or manifest.sequence_number == 0):
                entry[name] = manifest.sequence_number
        if entry["sequence_number"] is None and entry["status"] != DELETED:
            raise ValueError(f"an existing entry for {data_file['file_path']} has no sequence number")
        inherits_row_ids = next_row_id is not None and not manifest.deletes and entry["status"] != DELETED
        if inherits_row_ids and data_file["first_row_id"] is None:
            data_file["first_row_id"] = next_row_id
            next_row_id += data_file["record_count"]
        yield entry


def require_all(manifest: ManifestFile, live: int) -> None:
    """An Avro file that is cut between two blocks is a valid shorter one: the list's count tells."""
    if manifest.live_files is not None and live < manifest.live_files:
        raise ValueError(f"it holds {live} live files, and its manifest list counts {manifest.live_files}")


def partition_spelling(partition: AvroType) -> PartitionSpelling:
    """How to spell partition tuples of this Avro type canonically."""
    return PartitionSpelling(partition)


class PartitionSpelling:
    """Canonical JSON of raw partition tuples: equal text if and only if equal tuple, within one spec.

    Decimals are spelled as numbers (a widened precision changes their bytes, not their value); floats by their exact
    text, so that -0.0 and 0.0 differ and NaN equals itself, as in Iceberg's own comparison.
    """

    def __init__(self, partition: AvroType) -> None:
        fields = (partition or {}).get("fields", ())
        self._fields = [(field["name"], _is_decimal(field["type"])) for field in fields]
        self._spelled: dict[tuple[Any, ...], str] = {}

    def __call__(self, values: dict[str, Any]) -> str:
        raw = tuple(values[name] for name, _ in self._fields)
        # 0.0 == -0.0 and NaN != NaN as dict keys: floats are never remembered.
        if any(isinstance(value, float) for value in raw):
            return self._spell(raw)
        spelled = self._spelled.get(raw)
        if spelled is None:
            spelled = self._spelled[raw] = self._spell(raw)
        return spelled

    def _spell(self, raw: tuple[Any, ...]) -> str:
        spelled = [_spell(value, decimal) for value, (_, decimal) in zip(raw, self._fields, strict=True)]
        return json.dumps(spelled, separators=(",", ":"))


def _spell(value: Any, decimal: bool) -> Any:
    if isinstance(value, bytes):
        return {"decimal": int.from_bytes(value, "big", signed=True)} if decimal else {"bytes": value.hex()}
    if isinstance(value, float):
        return {"float": "NaN" if math.isnan(value) else repr(value)}
    if isinstance(value, bool):
        return {"bool": value}
    return value


def _is_decimal(avro_type: AvroType) -> bool:
    if isinstance(avro_type, list):
        return any(_is_decimal(branch) for branch in avro_type)
    return isinstance(avro_type, dict) and avro_type.get("logicalType") == "decimal"


def live_file(entry: dict[str, Any], spell: PartitionSpelling) -> LiveFile:
    """The facts of an entry whose inherited values are filled in."""
    data_file = entry["data_file"]
    offset = data_file["content_offset"]
    vector_size = data_file["content_size_in_bytes"]
    return LiveFile(
        path=data_file["file_path"],
        content=Content(data_file["content"]),
        file_format=data_file["file_format"].upper(),
        spec_id=data_file["spec_id"],
        partition=spell(data_file["partition"]),
        records=data_file["record_count"],
        size=data_file["file_size_in_bytes"] if offset is None or vector_size is None else vector_size,
        sequence_number=entry["sequence_number"],
        snapshot_id=entry["snapshot_id"],
        referenced_data_file=referenced_data_file(data_file),
        content_offset=offset,
        equality_ids=tuple(data_file["equality_ids"] or ()),
        first_row_id=data_file["first_row_id"],
        sort_order_id=data_file.get("sort_order_id"),
    )


def referenced_data_file(data_file: dict[str, Any]) -> str | None:
    """The one data file that position deletes are for: as written, or proved by equal bounds of their path column.

    Bounds that were cut are never equal: a cut upper bound is rounded up.
    """
    if data_file["content"] != Content.POSITION_DELETES:
        return None
    if data_file["referenced_data_file"] is not None:
        return str(data_file["referenced_data_file"])
    lower = _bound(data_file.get("lower_bounds"))
    upper = _bound(data_file.get("upper_bounds"))
    if lower is None or lower != upper:
        return None
    try:
        return lower.decode()
    except UnicodeDecodeError:
        return None


def _bound(bounds: list[dict[str, Any]] | None) -> bytes | None:
    for bound in bounds or ():
        if bound["key"] == POSITION_DELETE_PATH_ID:
            return bytes(bound["value"])
    return None


def manifest_key(manifest: ManifestFile) -> str:
    """What was read of a manifest is kept under; it never changes under the same key."""
    # Sequence number and snapshot id are inherited from the list's row: a manifest staged on a branch and picked
    # later could be listed with other ones.
    inherited = f"{manifest.spec_id}:{manifest.sequence_number}:{manifest.added_snapshot_id}:{manifest.first_row_id}"
    return f"5:{manifest.path}:{manifest.length}:{inherited}"


def _pack(files: Iterable[LiveFile]) -> bytes:
    rows = [
        (
            f.path,
            int(f.content),
            f.file_format,
            f.spec_id,
            f.partition,
            f.records,
            f.size,
            f.sequence_number,
            f.snapshot_id,
            f.referenced_data_file,
            f.content_offset,
            f.equality_ids,
            f.first_row_id,
            f.sort_order_id,
        )
        for f in files
    ]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode("utf-8", "surrogatepass"), 1)


def _unpack(blob: bytes) -> list[LiveFile] | None:
    """None where the blob is damaged: then the manifest is read again."""
    try:
        rows = json.loads(zlib.decompress(blob))
        for row in rows:
            row[1], row[11] = Content(row[1]), tuple(row[11])
        return [LiveFile(*row) for row in rows]
    except (ValueError, TypeError, IndexError, zlib.error):
        return None


def _unpack_paths(blob: bytes | None) -> list[str] | None:
    """None where there is none, or a damaged one."""
    if blob is None:
        return None
    try:
        return [row[0] for row in json.loads(zlib.decompress(blob))]
    except (ValueError, TypeError, IndexError, zlib.error):
        return None
