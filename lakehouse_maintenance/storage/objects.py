"""Buckets and containers, with exact keys or not at all: obstore for almost everything, boto3 for what it refuses.

obstore parses keys into paths and thereby changes some: it refuses `//`, `.` and `..` segments and control
characters, and it silently strips a `/` at either end. Such keys are never handed to it: on S3 they go to the
vendor's own client, and without one they are a StorageError. What obstore's listings show is checked: a `/` that it
stripped is put back, and where it meets a key that it refuses, the vendor's client goes on; without one that is an
error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import obstore
from obstore.exceptions import AlreadyExistsError as Occupied
from obstore.exceptions import BaseError, InvalidPathError

from lakehouse_maintenance.model.errors import (
    AlreadyExistsError,
    ListingIncompleteError,
    NotFoundError,
    StorageError,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage.base import ObjectInfo, Rows, rows_of
from lakehouse_maintenance.storage.causes import shortened
from lakehouse_maintenance.storage.copying import has_md5, have_same_bytes
from lakehouse_maintenance.storage.keys import exact_key, is_refused
from lakehouse_maintenance.storage.scratch import CONTENT, require_scratch
from lakehouse_maintenance.storage.slashes import REPLACED, SlashesPutBack, to_info
from lakehouse_maintenance.storage.vendor import VendorS3, is_large

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_FAILURES = (BaseError, OSError, ValueError)
"""What obstore raises: its own errors, FileNotFoundError for 404, ValueError for keys and ranges it refuses."""

Batches: TypeAlias = Iterator[list[ObjectInfo]]


class ObjectsStore:
    """One bucket or container. `open_vendor`: the vendor's client for it, or None; asked at most once, when needed.

    `clean` masks secrets in text that comes from a client.
    """

    def __init__(
        self,
        client: ObjectStore,
        root: Location,
        clean: Callable[[str], str],
        open_vendor: Callable[[], VendorS3 | None] = lambda: None,
    ) -> None:
        self.client = client
        self._root = root
        self._clean = clean
        self._reachable = False
        self._open_vendor = open_vendor
        self._vendor: VendorS3 | None = None
        self._vendor_asked = False
        self._lock = threading.Lock()

    def vendor(self) -> VendorS3 | None:
        """The vendor's client, opened when first asked for. None: not installed, or not a store of that vendor."""
        with self._lock:
            if not self._vendor_asked:
                self._vendor = self._open_vendor()
                self._vendor_asked = True
            return self._vendor

    def list(self, prefix: Location, batch_size: int) -> Batches:
        with self._listing(prefix):
            yield from self._list(prefix, batch_size)

    @contextmanager
    def _listing(self, prefix: Location) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise ListingIncompleteError(f"cannot list {prefix.text}: {error.message}", hint=error.hint) from error
        except _FAILURES as error:
            raise ListingIncompleteError(
                f"cannot list {prefix.text}: {self._cause(error)}",
                hint="nothing was concluded from the part that was read",
            ) from error

    def rows(self, prefix: Location, batch_size: int) -> Iterator[Rows]:
        """As `list`, as rows; there are no links."""
        for batch in self.list(prefix, batch_size):
            yield rows_of(batch), []

    def _list(self, prefix: Location, batch_size: int) -> Batches:
        folder = prefix.folder_key.removesuffix("/")
        # obstore shows `/x` as `x`: in a listing of the whole bucket such keys could be anywhere.
        hides = not prefix.key and self._hides_leading_slashes()
        if hides or (prefix.key and is_refused(folder)):
            yield from self._list_exactly(prefix, None, batch_size)
            return
        names = SlashesPutBack(prefix, self.stat)
        pages = iter(obstore.list(self.client, prefix=folder or None, chunk_size=batch_size))
        last: str | None = None
        in_order = True
        while True:
            try:
                found = next(pages, None)
            except _FAILURES as error:
                if not _is_about_a_key(error) or self.vendor() is None:
                    raise
                if last is not None and not in_order:
                    raise StorageError("the store does not list in the order of keys, and holds odd keys") from error
                break
            if found is None:
                return
            self._reachable = True
            continues = last is None or (in_order and _is_in_order(last, [meta["path"] for meta in found]))
            if continues and names.are_doubtful(found) and self.vendor() is not None:
                break
            batch = names.exact(found)
            in_order = in_order and _is_in_order(last, [info.location.key for info in batch])
            last = batch[-1].location.key if batch else last
            yield batch
        yield from self._list_exactly(prefix, last, batch_size)

    def _list_exactly(self, prefix: Location, after: str | None, batch_size: int) -> Batches:
        """Through the vendor's client, from behind the key `after` on."""
        vendor = self.vendor()
        if vendor is None:
            exact_key(prefix)
            raise StorageError(
                "there are keys that begin with '/', which cannot be named exactly",
                hint="install the extra `aws` (boto3); other stores than S3 cannot be listed then",
            )
        for page in vendor.pages(prefix.folder_key, after):
            for start in range(0, len(page), batch_size):
                batch = page[start : start + batch_size]
                yield [_in_spelling(info, prefix) for info in batch]

    def folders(self, prefix: Location) -> Sequence[str]:
        """As the store writes them: `db//x` makes a folder named nothing."""
        with self._listing(prefix):
            return [self._name_in(prefix, found) for found in self._folders(prefix)]

    def _folders(self, prefix: Location) -> Sequence[str]:
        folder = prefix.folder_key.removesuffix("/")
        if not prefix.key or not is_refused(folder):
            try:
                # Pages to the end: a page that fails is an error.
                found = obstore.list_with_delimiter(self.client, folder or None)["common_prefixes"]
            except _FAILURES as error:
                # One key that obstore refuses, of a folder or of an object beside them, hides all others.
                if not _is_about_a_key(error) or self.vendor() is None:
                    raise
            else:
                self._reachable = True
                if not any(REPLACED in path for path in found):
                    return found
        vendor = self.vendor()
        if vendor is None:
            exact_key(prefix)
            raise StorageError("there are folders with control characters, which the store's listing cannot show")
        return vendor.folders(prefix.folder_key)

    def _name_in(self, prefix: Location, found: str) -> str:
        """`found`: a folder's key, with or without the `/` at its end; obstore shows `/` as nothing."""
        name = found.removeprefix(prefix.folder_key).removesuffix("/")
        if "/" in name or not (found + "/").startswith(prefix.folder_key):
            raise StorageError(f"the store's listing names {found!r}, which is no folder directly in it")
        return name

    def is_absent(self, folder: Location) -> bool:
        return next(iter(self.list(folder, 1)), None) is None

    def stat(self, location: Location) -> ObjectInfo | None:
        if (vendor := self._vendor_for(location)) is not None:
            info = vendor.stat(location)
            if info is None:
                self._prove_bucket()
            return info
        key = exact_key(location)
        try:
            return to_info(location, obstore.head(self.client, key))
        except FileNotFoundError:
            self._prove_bucket()
            return None
        except _FAILURES as error:
            raise self._failed("stat", location, error) from error

    def read(self, location: Location, start: int, length: int | None) -> bytes:
        if (vendor := self._vendor_for(location)) is not None:
            return vendor.read(location, start, length)
        key = exact_key(location)
        try:
            if length is not None:
                return bytes(obstore.get_range(self.client, key, start=start, length=length))
            if start:
                return bytes(obstore.get(self.client, key, options={"range": {"offset": start}}).bytes())
            return bytes(obstore.get(self.client, key).bytes())
        except FileNotFoundError as error:
            raise NotFoundError(f"{location.text} does not exist") from error
        except _FAILURES as error:
            raise self._failed("read", location, error) from error

    def copy(self, source: ObjectInfo, target: Location) -> None:
        large = self._root.family == "s3" and is_large(source)
        if large or is_refused(source.location.key) or is_refused(target.key):
            self._copy_through_vendor(source, target, large)
            return
        keys = exact_key(source.location), exact_key(target)
        try:
            try:
                obstore.copy(self.client, *keys, overwrite=False)
            except _FAILURES as error:
                if not _is_unknown_condition(error):
                    raise
                obstore.copy(self.client, *keys, overwrite=True)
        except Occupied as error:
            raise AlreadyExistsError(f"{target.text} exists already and was not overwritten") from error
        except FileNotFoundError as error:
            raise NotFoundError(f"{source.location.text} does not exist") from error
        except _FAILURES as error:
            raise self._failed("copy", source.location, error) from error

    def why_not_copied(self, source: ObjectInfo, target: ObjectInfo) -> str | None:
        if source.size != target.size:
            return f"{target.size} of {source.size} bytes are there"
        if self._root.family == "abfs" and source.size:
            # A copy that is still on its way shows its full size, and cannot be read.
            self.read(target.location, source.size - 1, 1)
        if not has_md5(source) or not has_md5(target) or source.etag == target.etag:
            return None
        vendor = self.vendor()
        if vendor is not None and vendor.is_encrypted_with_own_key(target.location):
            return None
        same = have_same_bytes(self.read, source, target.location)
        return None if same else "its bytes are not the same"

    def _copy_through_vendor(self, source: ObjectInfo, target: Location, large: bool) -> None:
        vendor = self.vendor()
        if vendor is not None:
            vendor.copy(source, target)
            return
        if large:
            raise StorageError(
                f"cannot copy {source.location.text}: {source.size} bytes are more than one call may copy on S3",
                hint="install the extra `aws` (boto3), which copies in parts",
            )
        exact_key(source.location)
        exact_key(target)

    def keeps_versions(self, location: Location) -> bool | None:
        """The vendor's client asks the bucket; without it, an object at `location` shows whether it has a version."""
        if (vendor := self.vendor()) is not None and (told := vendor.keeps_versions()) is not None:
            return told
        if self._root.family == "gs":  # every object there has a generation, kept or not
            return None
        try:
            return True if obstore.head(self.client, exact_key(location)).get("version") not in (None, "null") else None
        except (*_FAILURES, StorageError):
            return None

    def put_scratch(self, location: Location) -> None:
        try:
            obstore.put(self.client, exact_key(location), CONTENT)
        except _FAILURES as error:
            raise self._failed("write", location, error) from error

    def remove_scratch(self, location: Location) -> None:
        require_scratch(location)
        try:
            obstore.delete(self.client, exact_key(location))
        except _FAILURES as error:
            raise self._failed("remove", location, error) from error

    def _vendor_for(self, location: Location) -> VendorS3 | None:
        return self.vendor() if location.key and is_refused(location.key) else None

    def _hides_leading_slashes(self) -> bool:
        """`/x` would be listed as `x`. Such keys show up as a folder named nothing, in a listing of the top level.

        That listing holds the objects at the top level in memory; only listings of a whole bucket need it.
        """
        return "" in obstore.list_with_delimiter(self.client)["common_prefixes"]

    def _prove_bucket(self) -> None:
        """A store that answers 404 for everything (no such bucket, a wrong endpoint) proves no object's absence."""
        if self._reachable:
            return
        try:
            next(iter(obstore.list(self.client, chunk_size=1)), None)
        except (*_FAILURES, StopIteration) as error:
            if not _is_about_a_key(error):
                raise StorageError(
                    f"cannot tell what exists in {self._root.text}: {self._cause(error)}",
                    hint="the bucket must exist and be listable",
                ) from error
        self._reachable = True

    def _failed(self, what: str, location: Location, error: Exception) -> StorageError:
        return StorageError(f"cannot {what} {location.text}: {self._cause(error)}", hint=_hint(str(error)))

    def _cause(self, error: Exception) -> str:
        return shortened(self._clean(str(error)))


def _is_about_a_key(error: Exception) -> bool:
    """A listing that ended because obstore cannot name the next key: the store did answer."""
    return isinstance(error, InvalidPathError)


def _is_unknown_condition(error: Exception) -> bool:
    """S3-compatible stores that refuse a condition on CopyObject instead of ignoring it."""
    return "status code: 501" in str(error) or "NotImplemented" in str(error)


def _is_in_order(last: str | None, keys: Sequence[str]) -> bool:
    """Whether the keys go on behind `last` in the order of their bytes; only so can a listing be continued."""
    for key in keys:
        if last is not None and key.encode() < last.encode():
            return False
        last = key
    return True


def _in_spelling(info: ObjectInfo, prefix: Location) -> ObjectInfo:
    return ObjectInfo(prefix.with_key(info.location.key), info.size, info.modified, info.etag)


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
