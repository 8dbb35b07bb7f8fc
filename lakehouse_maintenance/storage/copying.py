"""Copies inside one store that never overwrite, and the look afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from lakehouse_maintenance.model.errors import AlreadyExistsError, NotFoundError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage.base import ObjectInfo, Store

_MD5 = re.compile(r'"?[0-9a-f]{32}"?')

STEP = 8 * 1024**2
"""Bytes of each of two objects in memory while they are compared."""


def copy_checked(store: Store, source: Location, target: Location) -> ObjectInfo:
    """As `Storage.copy`."""
    info = store.stat(source)
    if info is None:
        raise NotFoundError(f"{source.text} does not exist")
    if store.stat(target) is not None:
        raise AlreadyExistsError(f"{target.text} exists already and was not overwritten")
    try:
        store.copy(info, target)
    except StorageError:
        # Its answer may have been lost, or the client's second try been refused because the first one had copied.
        if not _has_same_checksum(store, info, target):
            raise
    copied = store.stat(target)
    if copied is None:
        raise StorageError(f"{target.text} is not there, though the store said that it was copied")
    why = store.why_not_copied(info, copied)
    if why is not None:
        raise StorageError(
            f"the copy {target.text} cannot be trusted: {why}",
            hint="the original is untouched; remove the copy by hand",
        )
    return copied


def _has_same_checksum(store: Store, source: ObjectInfo, target: Location) -> bool:
    if not has_md5(source):
        return False
    with suppress(StorageError):
        there = store.stat(target)
        return there is not None and there.etag == source.etag
    return False


def has_md5(info: ObjectInfo) -> bool:
    """The ETag looks like the checksum of the content; of objects written in parts it does not."""
    return info.etag is not None and _MD5.fullmatch(info.etag) is not None


def have_same_bytes(read: Callable[[Location, int, int], bytes], source: ObjectInfo, target: Location) -> bool:
    """Reads both, `STEP` bytes at a time. They are of one size."""
    for start in range(0, source.size, STEP):
        length = min(STEP, source.size - start)
        if read(source.location, start, length) != read(target, start, length):
            return False
    return True
