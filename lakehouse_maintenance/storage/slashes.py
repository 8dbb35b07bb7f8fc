"""Puts back what listings change: the `/` that obstore strips, and control characters, which XML cannot carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage.base import ObjectInfo
from lakehouse_maintenance.storage.ordered import map_ordered

if TYPE_CHECKING:
    from obstore import ObjectMeta

CONCURRENCY = 16

REPLACED = "\N{REPLACEMENT CHARACTER}"
"""What some stores write for a character that XML does not know."""

MANY_TO_ASK = 100
"""Objects of one page whose names tell nothing, above which asking for each would slow a listing down."""


class SlashesPutBack:
    """Gives listed objects their exact keys: obstore shows the key `d/` as `d`.

    Three facts tell the two apart. What is named like the listed folder itself is its marker. Of two objects of one
    name, one is `d/`. And where a `/` is at all likely, a request for `d` tells whether that exists: for empty
    objects, the usual markers, and for names without a dot, which data and metadata files rarely have.
    Not told apart: a key like `x.parquet/` that ends in `/`, holds data, and has no neighbour of the same name; nor
    names without a dot, where a page has more than `MANY_TO_ASK` of them.
    """

    def __init__(self, prefix: Location, stat: Callable[[Location], ObjectInfo | None]) -> None:
        self._prefix = prefix
        self._folder = prefix.folder_key.removesuffix("/")
        self._stat = stat
        # Stores list in the order of keys, in which only names that begin with `d` lie between `d` and `d/`: (name,
        # exact key) of the names that begin the current one are all there is to remember.
        self._beginnings: list[tuple[str, str]] = []

    def are_doubtful(self, found: Sequence[ObjectMeta]) -> bool:
        """True where a listing through another client is cheaper than asking for each object, or the only way."""
        return _has_many_bare(found) or any(REPLACED in meta["path"] for meta in found)

    def exact(self, found: Sequence[ObjectMeta]) -> list[ObjectInfo]:
        """The page's objects under their exact keys. Raises StorageError where that cannot be found out."""
        bare = not _has_many_bare(found)
        doubtful = [
            at
            for at, meta in enumerate(found)
            if meta["size"] == 0 or REPLACED in meta["path"] or (bare and _is_bare(meta))
        ]
        asked = map_ordered(lambda at: self._is_there(found[at]), doubtful, concurrency=CONCURRENCY)
        missing = {at for at, is_there in asked if not is_there}
        if any(REPLACED in found[at]["path"] for at in missing):
            raise StorageError("there are keys with control characters, which the store's listing cannot show")
        return [
            to_info(self._prefix.with_key(self._exact_key(meta["path"], at in missing)), meta)
            for at, meta in enumerate(found)
        ]

    def _exact_key(self, path: str, missing: bool) -> str:
        while self._beginnings and not path.startswith(self._beginnings[-1][0]):
            self._beginnings.pop()
        if path == self._folder or missing:
            key = path + "/"
        elif self._beginnings and self._beginnings[-1][0] == path:
            key = path + "/" if self._beginnings[-1][1] == path else path
        else:
            key = path
        self._beginnings.append((path, key))
        return key

    def _is_there(self, meta: ObjectMeta) -> bool:
        """True where the plain name is this object. Beside an empty `d/`, `d` may hold data and was listed itself."""
        path = meta["path"]
        if not path or path == self._folder:
            return False
        info = self._stat(self._prefix.with_key(path))
        # A file with data may have been replaced by one of another size since it was listed.
        return info is not None and (meta["size"] > 0 or info.size == 0)


def _has_many_bare(found: Sequence[ObjectMeta]) -> bool:
    return sum(meta["size"] > 0 and _is_bare(meta) for meta in found) > MANY_TO_ASK


def _is_bare(meta: ObjectMeta) -> bool:
    return "." not in meta["path"].rpartition("/")[2]


def to_info(location: Location, meta: ObjectMeta) -> ObjectInfo:
    """The answer of obstore as ours."""
    return ObjectInfo(location, meta["size"], meta["last_modified"], meta["e_tag"])
