"""One type for every path, so that both sides of a comparison go through the same normaliser.

A location is a scheme family, an authority and an exact key:

| written | family | authority | key |
|---|---|---|---|
| `s3://lake/t/a%20b`, `s3a://…`, `s3n://…` | `s3` | `lake` | `t/a%20b` |
| `abfss://c@acct.dfs.core.windows.net/t`, `abfs://…` | `abfs` | `c@acct.dfs.core.windows.net` | `t` |
| `wasbs://c@acct.blob.core.windows.net/t`, `wasb://…` | the same | the same | the same |
| `gs://lake/t`, `gcs://lake/t` | `gs` | `lake` | `t` |
| `/x/t`, `file:/x/t`, `file:///x/t`, `file://localhost/x/t` | `file` | (empty) | `x/t` |

Keys in object stores are exact: nothing is decoded, collapsed or stripped, since `a//b`, `a/b`, `a/b/`, `a%20b` and
`a b` are five objects. Iceberg's writers store locations undecoded, so `%20` in a path is three characters in the key.

Local paths follow the operating system instead, for which `a//b`, `a/./b` and `a/b/` are one file: empty and `.`
segments are dropped from the key. `..` is refused: where it leads depends on symbolic links, so no comparison of
text could tell what contains what.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from lakehouse_maintenance.model.errors import InputError

FAMILIES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "wasb": "abfs",
    "wasbs": "abfs",
    "file": "file",
}
"""Scheme → family. A scheme that is not here is its own family."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_NEEDS_AUTHORITY = frozenset({"s3", "gs", "abfs"})


@dataclass(frozen=True, slots=True)
class Location:
    """An object or a folder. Equal when family, authority and key are equal, however the text was written.

    `text`: as given. `root`: the part of the text before the key, as given (`s3a://lake/`, `file:/`), for building
    neighbours in the same spelling. `key`: exact, without a leading `/` of our own; empty for a bucket's root.
    """

    text: str = field(compare=False)
    root: str = field(compare=False, repr=False)
    family: str
    authority: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """Raises InputError for a text that is no absolute location, or a local path with a `..` segment."""
        if "\0" in text:
            raise InputError(f"{text!r} is not a location", field="location", hint="it holds a NUL character")
        if text.startswith("/"):
            return _local(text, "/", text[1:])
        # No urlparse: it would cut keys at "#" and "?".
        scheme, found, rest = text.partition("://")
        if not found or _SCHEME.fullmatch(scheme) is None:
            if text[:6].lower() == "file:/":
                return _local(text, text[:6], text[6:])
            raise InputError(
                f"{text!r} is not an absolute location",
                field="location",
                hint="write scheme://bucket/key, file:///path or /path",
            )
        authority, _, key = rest.partition("/")
        family = FAMILIES.get(scheme) or FAMILIES.get(scheme.lower(), scheme.lower())
        root = f"{scheme}://{authority}/"
        if family == "file" and authority in ("", "localhost"):
            return _local(text, root, key)
        if not authority and family in _NEEDS_AUTHORITY:
            raise InputError(
                f"{text!r} names no bucket or container",
                field="location",
                hint=f"write {scheme}://bucket/key",
            )
        return cls(text, root, family, _authority(family, authority), key)

    @property
    def scheme(self) -> str:
        """The scheme as written, in lower case; `file` for a bare path."""
        return self.root.split(":", 1)[0].lower() if ":" in self.root else "file"

    @property
    def segments(self) -> tuple[str, ...]:
        """The key between its slashes, empty segments included: `a//b/` → ("a", "", "b", "")."""
        return tuple(self.key.split("/")) if self.key else ()

    @property
    def name(self) -> str:
        """The last segment; empty for a key that ends in `/` and for a root."""
        return self.key.rpartition("/")[2]

    @property
    def folder_key(self) -> str:
        """The prefix of everything inside: the key with a `/` at its end, empty for a root."""
        return self.key if not self.key or self.key.endswith("/") else self.key + "/"

    @property
    def local_path(self) -> str:
        """The path for the operating system. Only for the family `file`."""
        if self.family != "file" or self.authority:
            raise InputError(f"{self.text!r} is not on this machine", field="location", hint="write file:///path")
        return "/" + self.key

    @property
    def collapsed(self) -> Location:
        """The same with empty segments dropped: what clients make of it that treat `//` as `/`."""
        return self.with_key("/".join(segment for segment in self.segments if segment))

    @property
    def resolved(self) -> Location:
        """Where the operating system finds it: on this machine, with symbolic links followed. Others as they are."""
        if self.family != "file" or self.authority:
            return self
        try:
            found = os.path.realpath(self.local_path)
        except ValueError:  # half of a surrogate pair: no file system has such a name
            return self
        return self.with_key(found.lstrip("/"))

    def equals(self, other: Location) -> bool:
        """Same as `==`: the same object, whatever the spelling of scheme and authority."""
        return self == other

    def contains(self, other: Location) -> bool:
        """True where `other` is this location or lies in the folder of that name, compared by whole segments.

        `t` contains `t`, `t/`, `t/x` and `t//x`, never `t_2` or `t-backup`. The one `/` that ends a folder's key
        does not count: `t/` and `t` contain the same, each other included. Other empty segments are segments like
        any other, as in the store: `t//` contains `t//x` and not `t/x`. Where a client may have collapsed them,
        ask `overlaps`.
        """
        if self.family != other.family or self.authority != other.authority:
            return False
        folder = self.folder_key
        return other.key.startswith(folder) or other.key == self.key or (other.key != "" and other.key + "/" == folder)

    def overlaps(self, other: Location) -> bool:
        """True where one contains the other, exactly or with `//` taken as `/`: the question before a deletion.

        Errs on the side of "yes", since clients disagree whether `t//x` lies in `t` or in a folder named nothing.
        """
        if self.contains(other) or other.contains(self):
            return True
        one, two = self.collapsed, other.collapsed
        return one.contains(two) or two.contains(one)

    def child(self, *segments: str) -> Location:
        """A location below this one, in its spelling. Raises ValueError for a segment that is empty or holds a `/`."""
        for segment in segments:
            if not segment or "/" in segment or (self.family == "file" and segment in (".", "..")):
                raise ValueError(f"{segment!r} is not one segment of a path")
        return self.with_key(self.folder_key + "/".join(segments)) if segments else self

    def with_key(self, key: str) -> Location:
        """Another exact key of the same bucket, in the same spelling of scheme and authority."""
        return Location(self.root + key, self.root, self.family, self.authority, key)

    def __str__(self) -> str:
        return self.text


def _local(text: str, root: str, path: str) -> Location:
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if ".." in segments:
        raise InputError(
            f"{text!r} has a '..' segment",
            field="location",
            hint="write the path without it: where '..' leads depends on symbolic links",
        )
    return Location(text, root, "file", "", "/".join(segments))


def _authority(family: str, authority: str) -> str:
    if family != "abfs" or "@" not in authority:
        return authority
    # Host names ignore case, and the blob endpoint (wasb) and the dfs endpoint (abfs) of an account are one store.
    container, _, host = authority.rpartition("@")
    account, dot, domain = host.lower().partition(".")
    if domain.startswith("blob."):
        domain = "dfs." + domain.removeprefix("blob.")
    return f"{container}@{account}{dot}{domain}"
