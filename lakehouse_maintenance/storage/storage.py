"""One door to every store that a catalog's properties can reach."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage.base import ObjectInfo, Rows, Store
from lakehouse_maintenance.storage.copying import copy_checked
from lakehouse_maintenance.storage.local import LocalStore
from lakehouse_maintenance.storage.masking import masker_for
from lakehouse_maintenance.storage.ordered import map_ordered
from lakehouse_maintenance.storage.scratch import new_scratch, require_scratch

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from lakehouse_maintenance.storage.objects import ObjectsStore

CONCURRENCY = 16
"""Calls in flight of `read_many` and `stat_many`."""


class Storage:
    """Lists, looks, reads and copies; keeps one client a bucket; may be shared by threads.

    Nothing here changes or deletes an object but its own scratch object, and nothing is cached but clients. Keys are
    exact: on S3, those that obstore cannot name go through boto3 (extra `aws`); elsewhere, and without it, they are a
    StorageError. Every error is a StorageError that names the location and the cause, with the properties' secrets
    masked.
    """

    def __init__(self, properties: Mapping[str, str], *, is_vended: bool = False) -> None:
        self._properties = {key: str(value) for key, value in properties.items()}
        self._clean = masker_for(self._properties).mask
        self.is_vended = is_vended
        """The credentials are one table's, handed out by its catalog: they may reach nothing but its folders."""
        self._stores: dict[tuple[str, str], Store] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, is_vended: bool = False) -> Storage:
        """`properties`: PyIceberg's of a catalog or a FileIO (`s3.*`, `client.*`, `gcs.*`, `adls.*`). No I/O."""
        return cls(properties, is_vended=is_vended)

    def list(self, prefix: Location, *, batch_size: int = 1000) -> Iterator[list[ObjectInfo]]:
        """All objects in the folder `prefix`, in batches of at most `batch_size`, never more than that in memory.

        Folder markers (`d/`) are objects of their own and keep their `/`. A folder that does not exist is empty; a
        bucket that does not exist is an error.
        Raises ListingIncompleteError: what was given out before must not be taken for all there is.
        """
        if batch_size < 1:
            raise ValueError("batch_size is at least 1")
        yield from self._store(prefix).list(prefix, batch_size)

    def folders(self, prefix: Location) -> tuple[Location, ...]:
        """The immediate child folders of the folder `prefix`, each once, without a `/` at the end, in order of names.

        In object stores a folder is what objects or a marker (`t/`) lie in; locally a directory, also an empty one,
        and never a symbolic link to one. A folder that does not exist has none; a bucket that does not exist is an
        error. Left out are children named nothing, `.` or `..` (keys like `db//x`, `db/../x`): text without its `/`
        would name the parent, or another folder where a client takes keys for paths, so nobody could act on one
        safely. Memory: the names, and what objects lie in the folder itself.
        Raises ListingIncompleteError: nothing is known then, not even of a part.
        """
        names = set(self._store(prefix).folders(prefix)) - {"", ".", ".."}
        return tuple(prefix.with_key(prefix.folder_key + name) for name in sorted(names))

    def is_absent(self, folder: Location) -> bool:
        """True where there is no such folder: nothing lies in it in an object store, not even a marker; locally there
        is no such directory. Raises StorageError where that cannot be told.
        """
        return self._store(folder).is_absent(folder)

    def rows(self, prefix: Location, *, batch_size: int = 1000) -> Iterator[Rows]:
        """As `list`, in the form that costs least for very many objects; and, beside each batch, those of it that are
        symbolic links (local files alone)."""
        if batch_size < 1:
            raise ValueError("batch_size is at least 1")
        yield from self._store(prefix).rows(prefix, batch_size)

    def stat(self, location: Location) -> ObjectInfo | None:
        """None: the object is definitely absent. Raises StorageError where that cannot be told."""
        return self._store(location).stat(location)

    def read(self, location: Location, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from `start` on, all or exactly `length`.

        Raises NotFoundError where the object is absent, StorageError for everything else, an object that ends
        before `start + length` included.
        """
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length are not negative")
        if length == 0:
            return b""
        data = self._store(location).read(location, start, length)
        short = len(data) != length if length is not None else start > 0 and not data
        if short:
            raise StorageError(
                f"{location.text} ends early: {len(data)} of {length or 'some'} bytes from {start}",
                hint="the object is shorter than what refers to it says",
            )
        return data

    def read_many(
        self, locations: Iterable[Location], *, concurrency: int = CONCURRENCY
    ) -> Iterator[tuple[Location, bytes]]:
        """Whole objects in the order asked for; at most `concurrency` of them are held ahead of the reader.

        Local files are read when their turn comes: another thread would wait longer for the interpreter than for the
        disk.
        """
        for is_local, run in groupby(locations, key=lambda location: location.family == "file"):
            if is_local:
                yield from ((location, self.read(location)) for location in run)
            else:
                yield from map_ordered(self.read, run, concurrency=concurrency)

    def stat_many(
        self, locations: Iterable[Location], *, concurrency: int = CONCURRENCY
    ) -> Iterator[tuple[Location, ObjectInfo | None]]:
        """`stat` of each, in the order asked for."""
        return map_ordered(self.stat, locations, concurrency=concurrency)

    def copy(self, source: Location, target: Location) -> ObjectInfo:
        """A copy inside one store, made by the store itself; returns what lies at the target.

        Never overwrites what was there before the call: AlreadyExistsError. Against a writer that comes at the same
        moment: certain on local files, Google Cloud and Azure, and on S3 where CopyObject knows `If-None-Match` (AWS,
        SeaweedFS); other S3-compatible stores ignore it, and for more than 5 GB, copied in parts, there is no such
        condition: there a look just before is all.
        Afterwards it looks: the size must be the same, and the ETags where both are plain MD5 (not of objects that
        were written in parts, not under KMS or customer keys). ETags that differ: the bytes are compared. Elsewhere
        the size is all that is compared.
        Raises NotFoundError for an absent source; StorageError for everything else, and then the target, if there is
        one, must not be trusted. Needs boto3 on S3 for odd keys and for more than 5 GB.
        """
        if (source.family, source.authority) != (target.family, target.authority):
            raise StorageError(f"{source.text} and {target.text} are not in one store")
        return copy_checked(self._store(source), source, target)

    def keeps_versions(self, location: Location) -> bool | None:
        """True: what is deleted there stays, and is paid for, until the bucket's lifecycle rules remove its versions.

        False: it does not. None: the store does not tell (soft deletion and object versions of Google Cloud and Azure,
        suspended versioning, no right to ask, no boto3). `location`: an object or a folder.
        """
        return self._store(location).keeps_versions(location)

    def client(self, location: Location) -> ObjectStore:
        """Obstore's own client for the location's bucket or container; for the remover alone."""
        return self._objects(location).client

    def vendor_client(self, location: Location) -> Any | None:
        """The boto3 client of the location's bucket, for keys that obstore cannot name; for the remover alone.

        None: not S3, or boto3 is not installed.
        """
        vendor = self._objects(location).vendor()
        return None if vendor is None else vendor.client

    def cause_of(self, error: BaseException) -> str:
        """What a client's own error says, on one line, with the properties' secrets masked; for the remover alone."""
        from lakehouse_maintenance.storage.causes import shortened

        return shortened(self._clean(str(error)))

    def put_scratch(self, folder: Location) -> Location:
        """Writes a small object of an unused name into the folder, for `doctor --write-test`; returns where."""
        location = new_scratch(folder)
        self._store(location).put_scratch(location)
        return location

    def remove_scratch(self, location: Location) -> None:
        """Removes what `put_scratch` wrote. Raises ValueError for any other name."""
        require_scratch(location)
        self._store(location).remove_scratch(location)

    def _store(self, location: Location) -> Store:
        key = (location.family, location.authority)
        with self._lock:
            store = self._stores.get(key)
            if store is None:
                store = self._stores[key] = self._open(location)
        return store

    def _objects(self, location: Location) -> ObjectsStore:
        from lakehouse_maintenance.storage.objects import ObjectsStore

        store = self._store(location)
        if not isinstance(store, ObjectsStore):
            raise ValueError(f"{location.text!r} is not in an object store")
        return store

    def _open(self, location: Location) -> Store:
        if location.family == "file":
            return LocalStore()
        # obstore takes 50 ms to import; local lakehouses never need it.
        from lakehouse_maintenance.storage.clients import client_for
        from lakehouse_maintenance.storage.objects import ObjectsStore
        from lakehouse_maintenance.storage.vendor import open_vendor

        root = location.with_key("")
        try:
            client = client_for(location, self._properties)
        except StorageError as error:
            raise StorageError(self._clean(error.message), field=error.field, hint=error.hint) from None
        return ObjectsStore(client, root, self._clean, lambda: open_vendor(root, self._properties, self._clean))
