"""State on object storage: every write is a put under a condition, and nothing is ever deleted.

    version                             number of the layout, see layout.py
    probe                               shows that the store refuses what it has to
    values/<group>/<name>               one object a key: a line of JSON {"key", "version", "trail"}, then the bytes
    journal/<date>/<run>/<time>-<id>    one object an event; see objects_log.py
    runs/<run>/<date>                   the days on which a run wrote

A key's group is what stands before its first `/`, so that keys of one kind are listed alone. The store's own tags serve
for the condition; the version that callers see is in the object, never comes back, and tells after a lost answer
whether our write is there (see swapping.py). Needed of the store: puts with If-None-Match and If-Match (or the vendor's
own form of them), and reads that see the last write.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.state import layout
from lakehouse_maintenance.state.backend import FIELD
from lakehouse_maintenance.state.bucket import Bucket, Tag
from lakehouse_maintenance.state.naming import file_name, key_of, name_prefix
from lakehouse_maintenance.state.objects_log import ObjectsLog
from lakehouse_maintenance.state.swapping import Stamp, UnsureError, swap, trail_after

VERSION_SECONDS = 10.0
"""A reader looks for a newer layout at most that often; a writer looks each time."""

_VERSION = "version"
_ATTEMPTS = 20


class ObjectsStore:
    """A state in a bucket. Safe between threads, processes and machines."""

    def __init__(self, bucket: Bucket) -> None:
        self.log = ObjectsLog(bucket, self.prepare, self._check_again)
        self._bucket = bucket
        self._values = _Values(bucket)
        self._lock = threading.Lock()
        self._looked: float | None = None

    @property
    def location(self) -> str:
        """See Backend."""
        return self._bucket.location

    @property
    def cache_folder(self) -> None:
        """See Backend."""
        return

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See KeyValueStore. One request."""
        self._check_again()
        return self._values.get(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """See KeyValueStore. Raises StorageError where it cannot be told whether the value was written."""
        self.prepare()
        return self._values.put(key, value, expected)

    def keys(self, prefix: str) -> Iterator[str]:
        """See KeyValueStore. Lists the keys that are the same up to their first `/`, all where the prefix has none."""
        self._check_again()
        yield from self._values.keys(prefix)

    def check_version(self) -> int | None:
        """See Backend."""
        found = self._version()
        with self._lock:
            self._looked = time.monotonic()
        return None if found is None else found[0]

    def check_writable(self) -> None:
        """See Backend. Tries one put whose condition cannot hold: a store that refuses us says so then."""
        self.check_version()
        self._bucket.prove_conditions(may_write=False)

    def prepare(self) -> None:
        """Create the layout, or bring an older one up to date. Every writer calls it first.

        The version is written last. Who comes second in a race finds it, and goes on from there.
        """
        self._bucket.prove_conditions()
        for _ in range(_ATTEMPTS):
            found = self._version()
            if found is None:
                self._write_version(layout.latest(), None)
                continue
            number, tag = found
            if number == layout.latest():
                return
            step = layout.pending(number)[0]
            step.apply(self._values)
            self._write_version(step.to, tag)
        raise StorageError(f"the layout version in {self.location} cannot be written", field=FIELD)

    def _check_again(self) -> None:
        with self._lock:
            is_fresh = self._looked is not None and time.monotonic() - self._looked < VERSION_SECONDS
        if not is_fresh:
            self.check_version()

    def _version(self) -> tuple[int, Tag] | None:
        found = self._bucket.get(_VERSION)
        if found is None:
            return None
        content, tag = found
        return layout.usable(content, f"the object {_VERSION} in {self.location}", self.location), tag

    def _write_version(self, number: int, replaces: Tag | None) -> None:
        # Whatever became of it: the next look decides.
        with suppress(UnsureError):
            self._bucket.put_if(_VERSION, b"%d\n" % number, replaces)


@dataclass(frozen=True, slots=True)
class _Stored:
    key: str
    stamp: Stamp
    value: bytes
    tag: Tag


class _Values:
    """A KeyValueStore without any look at the layout's version."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def get(self, key: str) -> tuple[bytes, str] | None:
        stored = self._read(key)
        return None if stored is None else (stored.value, stored.stamp.version)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        version = uuid.uuid4().hex

        def attempt() -> bool:
            stored = None if expected is None else self._read(key)
            if expected is not None and (stored is None or stored.stamp.version != expected):
                return False
            trail = trail_after(None if stored is None else stored.stamp)
            header = json.dumps({"key": key, "version": version, "trail": trail}).encode("ascii")
            return self._bucket.put_if(_name(key), header + b"\n" + value, None if stored is None else stored.tag)

        def look() -> Stamp | None:
            stored = self._read(key)
            return None if stored is None else stored.stamp

        return swap(version, expected, attempt, look, repr(key))

    def keys(self, prefix: str) -> list[str]:
        group, slash, _ = prefix.partition("/")
        start = name_prefix(prefix)
        found: list[str] = []
        for listed in self._bucket.inside(f"values/{file_name(group)}" if slash else "values"):
            name = listed.name.rpartition("/")[2]
            if not name.startswith(start):
                continue
            key = key_of(name) if "~" not in name else self._key_inside(listed.name)
            if key is not None and key.startswith(prefix):
                found.append(key)
        return found

    def _key_inside(self, name: str) -> str | None:
        found = self._bucket.get(name)
        return None if found is None else self._parse(name, *found).key

    def _read(self, key: str) -> _Stored | None:
        name = _name(key)
        found = self._bucket.get(name)
        if found is None:
            return None
        stored = self._parse(name, *found)
        if stored.key != key:
            raise self._unreadable(name, f"it belongs to the key {stored.key!r}, not {key!r}")
        return stored

    def _parse(self, name: str, content: bytes, tag: Tag) -> _Stored:
        header, _, value = content.partition(b"\n")
        try:
            fields = json.loads(header)
            key, version, trail = fields["key"], fields["version"], tuple(fields["trail"])
        except (ValueError, TypeError, KeyError) as error:
            raise self._unreadable(name, "its first line is not ours") from error
        if not isinstance(key, str) or not isinstance(version, str):
            raise self._unreadable(name, "its first line is not ours")
        return _Stored(key, Stamp(version, trail), value, tag)

    def _unreadable(self, name: str, why: str) -> StorageError:
        return StorageError(
            f"the object {name} in {self._bucket.location} cannot be read: {why}",
            field=FIELD,
            hint="restore it; or, when nothing runs on this state, remove it: what it remembered is lost then",
        )


def _name(key: str) -> str:
    group = key.partition("/")[0] if "/" in key else ""
    return f"values/{file_name(group)}/{file_name(key)}"
