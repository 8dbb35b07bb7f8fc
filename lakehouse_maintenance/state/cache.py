"""A disposable memory of bytes by key, for what is costly to read again and never changes under its key: manifests.

Whatever goes wrong with it, callers just find less in it.
"""

from __future__ import annotations

import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

MAX_BYTES = 512 * 1024 * 1024
"""Bytes of values kept; the file is a little larger."""

_FORMAT = 1
_KEYS_A_QUERY = 500
_BUSY_SECONDS = 2.0
_USE_GRAIN_SECONDS = 3600
"""A use is noted at most once in so many seconds, so that reading rarely writes."""

_SCHEMA = f"""
CREATE TABLE blobs (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL, used INTEGER NOT NULL
);
CREATE INDEX blobs_used ON blobs (used, size);
PRAGMA user_version = {_FORMAT};
"""

_logger = logging.getLogger(__name__)


class ManifestCache(Protocol):
    """Bytes by key. Neither call ever fails because of the cache."""

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """What is there of these."""
        ...

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """Remember these, perhaps."""
        ...


class SqliteBlobCache:
    """A ManifestCache in one SQLite file, which is created at the first `put_many`. Safe between threads and processes.

    Least recently used values go first. A damaged file is replaced, a locked one passed over. Each call has its own
    connection: nothing to close, and nothing that a fork could inherit.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """What is there of these keys and whole: a value that does not fit its checksum is left out."""
        if not self._path.exists():
            return {}
        wanted = list(dict.fromkeys(keys))
        return self._attempt(lambda connection: self._get(connection, wanted)) or {}

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """Remember these; values larger than the whole cache are left out."""
        fitting = {key: value for key, value in items.items() if len(value) <= self._max_bytes}
        if not fitting:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _logger.debug("no cache at %s: %s", self._path, error)
            return
        self._attempt(lambda connection: self._put(connection, fitting))

    def _get(self, connection: sqlite3.Connection, keys: list[str]) -> dict[str, bytes]:
        now = int(time.time())
        found: dict[str, bytes] = {}
        stale: list[tuple[int, str]] = []
        for chunk in _chunks(keys):
            marks = ",".join("?" * len(chunk))
            query = f"SELECT key, value, checksum, used FROM blobs WHERE key IN ({marks})"  # noqa: S608 - question marks alone
            for key, value, checksum, used in connection.execute(query, chunk):
                if checksum != _checksum(key, value):
                    continue
                found[key] = value
                if abs(now - used) > _USE_GRAIN_SECONDS:
                    stale.append((now, key))
        if stale:
            try:
                with connection:
                    connection.executemany("UPDATE blobs SET used = ? WHERE key = ?", stale)
            except sqlite3.OperationalError as error:
                _logger.debug("uses not noted in %s: %s", self._path, error)
        return found

    def _put(self, connection: sqlite3.Connection, items: Mapping[str, bytes]) -> None:
        now = int(time.time())
        with connection:
            connection.executemany(
                "INSERT OR REPLACE INTO blobs (key, value, checksum, size, used) VALUES (?, ?, ?, ?, ?)",
                ((key, value, _checksum(key, value), len(value), now) for key, value in items.items()),
            )
            self._evict(connection)

    def _evict(self, connection: sqlite3.Connection) -> None:
        """Some more than needed goes at once, so that a full cache does not evict at each call."""
        (total,) = connection.execute("SELECT coalesce(sum(size), 0) FROM blobs").fetchone()
        if total <= self._max_bytes:
            return
        excess = total - self._max_bytes * 9 // 10
        rows: list[tuple[int]] = []
        for row, size in connection.execute("SELECT rowid, size FROM blobs ORDER BY used, rowid"):
            if excess <= 0:
                break
            rows.append((row,))
            excess -= size
        connection.executemany("DELETE FROM blobs WHERE rowid = ?", rows)

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do the work, once more on a new file where the old one is damaged; None where that fails too."""
        for is_last in (False, True):
            try:
                with closing(self._connect()) as connection:
                    return work(connection)
            except (sqlite3.Error, OSError, UnicodeError) as error:
                # Damage has the plain class; its subclasses say locked, full, not to be opened, or a value that does
                # not fit, and leave the file for the next call.
                is_damaged = type(error) is sqlite3.DatabaseError
                _logger.debug("cache %s %s: %s", self._path, "is damaged" if is_damaged else "passed over", error)
                if is_last or not is_damaged or not self._discard():
                    return None
        return None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # A crash of the machine may damage the file; then it is replaced. Checksums catch what SQLite does not.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_size_limit = 16777216")
            if _format_of(connection) == 0:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    if _format_of(connection) == 0:
                        for statement in filter(str.strip, _SCHEMA.split(";")):
                            connection.execute(statement)
            if _format_of(connection) != _FORMAT:
                raise sqlite3.DatabaseError("written by another release")
        except BaseException:
            connection.close()
            raise
        return connection

    def _discard(self) -> bool:
        """Another process may still have the old file open: it goes on with what it has, and checksums do the rest."""
        try:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            _logger.debug("cache %s cannot be replaced: %s", self._path, error)
            return False
        return True


def _format_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _checksum(key: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key.encode("utf-8", "replace")))


def _chunks(keys: list[str]) -> Iterator[list[str]]:
    rest = iter(keys)
    while chunk := list(islice(rest, _KEYS_A_QUERY)):
        yield chunk
