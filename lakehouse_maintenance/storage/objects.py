"""Buckets and containers through obstore, with exact keys or not at all.

obstore parses keys into paths and thereby changes some: it refuses `//`, `.` and `..` segments and control
characters, and it silently strips a `/` at either end. Such keys are never handed to it (StorageError), and what its
listings show is checked: a listing that meets a key it refuses is an error, and a `/` it stripped is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError

from lakehouse_maintenance.model.errors import ListingIncompleteError, NotFoundError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage.base import ObjectInfo
from lakehouse_maintenance.storage.ordered import map_ordered
from lakehouse_maintenance.storage.scratch import CONTENT, require_scratch

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_FAILURES = (BaseError, OSError, ValueError)
"""What obstore raises: its own errors, FileNotFoundError for 404, ValueError for keys and ranges it refuses."""

_LONGEST_CAUSE = 600


class ObjectsStore:
    """One bucket or container. `clean` masks secrets in text that comes from the client."""

    def __init__(self, client: ObjectStore, root: Location, clean: Callable[[str], str]) -> None:
        self._client = client
        self._root = root
        self._clean = clean
        self._reachable = False

    def list(self, prefix: Location, batch_size: int) -> Iterator[list[ObjectInfo]]:
        names = _SlashesPutBack(prefix, self.stat)
        try:
            if not prefix.key:
                self._refuse_leading_slash()
            key = exact_key(prefix.with_key(prefix.folder_key.removesuffix("/"))) if prefix.key else None
            for found in obstore.list(self._client, prefix=key, chunk_size=batch_size):
                self._reachable = True
                yield names.exact(found)
        except StorageError as error:
            raise ListingIncompleteError(f"cannot list {prefix.text}: {error.message}", hint=error.hint) from error
        except _FAILURES as error:
            raise ListingIncompleteError(
                f"cannot list {prefix.text}: {self._cause(error)}",
                hint="nothing was concluded from the part that was read",
            ) from error

    def stat(self, location: Location) -> ObjectInfo | None:
        key = exact_key(location)
        try:
            return _info(location, obstore.head(self._client, key))
        except FileNotFoundError:
            self._prove_bucket()
            return None
        except _FAILURES as error:
            raise self._failed("stat", location, error) from error

    def read(self, location: Location, start: int, length: int | None) -> bytes:
        key = exact_key(location)
        try:
            if length is not None:
                return bytes(obstore.get_range(self._client, key, start=start, length=length))
            if start:
                return bytes(obstore.get(self._client, key, options={"range": {"offset": start}}).bytes())
            return bytes(obstore.get(self._client, key).bytes())
        except FileNotFoundError as error:
            raise NotFoundError(f"{location.text} does not exist") from error
        except _FAILURES as error:
            raise self._failed("read", location, error) from error

    def put_scratch(self, location: Location) -> None:
        try:
            obstore.put(self._client, exact_key(location), CONTENT)
        except _FAILURES as error:
            raise self._failed("write", location, error) from error

    def remove_scratch(self, location: Location) -> None:
        require_scratch(location)
        try:
            obstore.delete(self._client, exact_key(location))
        except _FAILURES as error:
            raise self._failed("remove", location, error) from error

    def _refuse_leading_slash(self) -> None:
        """`/x` would be listed as `x`. Such keys show up as a folder named nothing, in a listing of the top level.

        That listing holds the objects at the top level in memory; only listings of a whole bucket need it.
        """
        if "" in obstore.list_with_delimiter(self._client)["common_prefixes"]:
            raise StorageError("there are keys that begin with '/', which cannot be named exactly")

    def _prove_bucket(self) -> None:
        """A store that answers 404 for everything (no such bucket, a wrong endpoint) proves no object's absence."""
        if self._reachable:
            return
        try:
            next(iter(obstore.list(self._client, chunk_size=1)), None)
        except (*_FAILURES, StopIteration) as error:
            raise StorageError(
                f"cannot tell what exists in {self._root.text}: {self._cause(error)}",
                hint="the bucket must exist and be listable",
            ) from error
        self._reachable = True

    def _failed(self, what: str, location: Location, error: Exception) -> StorageError:
        return StorageError(f"cannot {what} {location.text}: {self._cause(error)}", hint=_hint(str(error)))

    def _cause(self, error: Exception) -> str:
        text = str(error).partition("\n\nDebug source")[0].strip()
        text = " ".join(self._clean(text).split())
        return text if len(text) <= _LONGEST_CAUSE else text[:_LONGEST_CAUSE] + " …"


def exact_key(location: Location) -> str:
    """The key for obstore. Raises StorageError where obstore would refuse or change it."""
    key = location.key
    odd = (
        not key
        or any(segment in ("", ".", "..") for segment in location.segments)
        or any(ord(char) < 0x20 or ord(char) == 0x7F for char in key)
    )
    if odd:
        raise StorageError(
            f"the key of {location.text!r} cannot be named exactly",
            hint="keys with empty, '.' or '..' segments, a '/' at an end or control characters are not supported here",
        )
    return key


class _SlashesPutBack:
    """Gives listed objects their exact keys: obstore shows the key `d/` as `d`.

    Three facts tell the two apart. What is named like the listed folder itself is its marker. Of two objects of one
    name, one is `d/`. And of an empty object, the usual marker, a request for `d` tells whether that exists: one
    request an empty object.
    Not told apart: a key that ends in `/`, holds data, and has no neighbour of the same name.
    """

    def __init__(self, prefix: Location, stat: Callable[[Location], ObjectInfo | None]) -> None:
        self._prefix = prefix
        self._folder = prefix.folder_key.removesuffix("/")
        self._stat = stat
        # Stores list in the order of keys, in which only names that begin with `d` lie between `d` and `d/`: (name,
        # exact key) of the names that begin the current one are all there is to remember.
        self._beginnings: list[tuple[str, str]] = []

    def exact(self, found: Sequence[ObjectMeta]) -> list[ObjectInfo]:
        empty = [meta["path"] for meta in found if meta["size"] == 0]
        exists = dict(map_ordered(self._exists_empty, empty, concurrency=16))
        return [
            _info(self._prefix.with_key(self._exact_key(meta["path"], meta["size"] > 0 or exists[meta["path"]])), meta)
            for meta in found
        ]

    def _exact_key(self, path: str, plain: bool) -> str:
        while self._beginnings and not path.startswith(self._beginnings[-1][0]):
            self._beginnings.pop()
        if path == self._folder or not plain:
            key = path + "/"
        elif self._beginnings and self._beginnings[-1][0] == path:
            key = path + "/" if self._beginnings[-1][1] == path else path
        else:
            key = path
        self._beginnings.append((path, key))
        return key

    def _exists_empty(self, path: str) -> bool:
        if not path or path == self._folder:
            return False
        info = self._stat(self._prefix.with_key(path))
        return info is not None and info.size == 0


def _info(location: Location, meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(location, meta["size"], meta["last_modified"], meta["e_tag"])


def _hint(error: str) -> str | None:
    if "403 Forbidden" in error or "401 Unauthorized" in error:
        return "check the credentials in the catalog's properties, and what they may read"
    if "error sending request" in error or "timed out" in error:
        return "check the endpoint in the catalog's properties, and that this machine reaches it"
    if "169.254.169.254" in error or "metadata" in error:
        return "no credentials were found: set them in the catalog's properties or in the environment"
    if "301 Moved" in error or "AuthorizationHeaderMalformed" in error:
        return "set the bucket's region in the catalog's properties"
    return None
