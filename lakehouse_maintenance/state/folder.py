"""State in a folder: layout, its version, one lock, and values changed by compare-and-swap.

    version            number of the layout, see layout.py; there means that the layout is complete
    lock               held (flock) while a value is written
    values/<name>      one file a key: a line of JSON {"key", "version"}, then the value's bytes
    journal/<date>/    see folder_log.py
    cache/             disposable; see cache.py

The folder has to lie on a file system whose `flock` holds between all processes that use it: a local one, or a
network file system with locking switched on.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.state import layout
from lakehouse_maintenance.state.backend import FIELD
from lakehouse_maintenance.state.files import file_lock, make_folder, sync_folder, write_all
from lakehouse_maintenance.state.folder_log import FolderLog
from lakehouse_maintenance.state.naming import file_name, key_of, name_prefix

_SETUP_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})


class FolderStore:
    """A state folder. Nothing is created before the first write; reading never creates anything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = FolderLog(path / "journal", self.prepare, self.check_version, self.errors)
        self._values = path / "values"

    @property
    def location(self) -> str:
        """See Backend."""
        return str(self.path)

    @property
    def cache_folder(self) -> Path:
        """See Backend."""
        return self.path / "cache"

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See KeyValueStore. Takes no lock: a value is replaced by renaming, so a reader sees the old or the new."""
        self.check_version()
        return self._read(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """See KeyValueStore."""
        self.prepare()
        with self.errors("write to"), self._locked():
            self.check_version()
            return self._swap(key, value, expected)

    def keys(self, prefix: str) -> Iterator[str]:
        """See KeyValueStore. Reads names, and the files of keys that are too long for a name."""
        self.check_version()
        yield from self._keys(prefix)

    def check_version(self) -> int | None:
        """See Backend."""
        with self.errors("read"):
            try:
                text = (self.path / "version").read_bytes()
            except FileNotFoundError:
                return None
        return layout.usable(text, str(self.path / "version"), str(self.path))

    def prepare(self) -> None:
        """Create what is missing of the layout, and bring an older one up to date. Every writer calls it first.

        The version comes last and durably: a crash before leaves a folder that the next writer completes.
        """
        if self.check_version() == layout.latest():
            return
        with self.errors("create"):
            make_folder(self.path)
            with self._locked():
                found = self.check_version()
                make_folder(self._values)
                make_folder(self.path / "journal")
                if found is None:
                    self._write_version(layout.latest())
                    return
                for step in layout.pending(found):
                    step.apply(_UnderLock(self._read, self._swap, self._keys))
                    self._write_version(step.to)

    def check_writable(self) -> None:
        """Raise ConfigurationError where the first write would be refused, as far as that shows without writing."""
        self.check_version()
        existing = self.path
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"cannot write to the state folder {self.path}: {existing} is not a folder we may write to",
                field=FIELD,
                hint="name a folder that this user may write to",
            )

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turns the operating system's errors into ours: ConfigurationError for what stays wrong, else StorageError."""
        try:
            yield
        except OSError as error:
            where = error.filename or str(self.path)
            message = f"cannot {doing} the state folder {self.path}: {error.strerror or error} ({where})"
            if error.errno in _SETUP_ERRORS:
                hint = "name a folder that this user may write to"
                raise ConfigurationError(message, field=FIELD, hint=hint) from error
            raise StorageError(message, field=FIELD, hint="look at the disk that holds the folder") from error

    def _write_version(self, number: int) -> None:
        self._replace(self.path / "version", b"%d\n" % number)

    def _swap(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Under the lock only."""
        stored = self._read(key)
        if (None if stored is None else stored[1]) != expected:
            return None
        version = uuid.uuid4().hex
        header = json.dumps({"key": key, "version": version}).encode("ascii")
        self._replace(self._values / file_name(key), header + b"\n" + value)
        return version

    def _keys(self, prefix: str) -> Iterator[str]:
        start = name_prefix(prefix)
        with self.errors("list"):
            try:
                names = [name for name in os.listdir(self._values) if name.startswith(start)]
            except FileNotFoundError:
                return
        for name in names:
            if name.startswith("."):
                continue
            key = key_of(name) if "~" not in name else self._parse(self._values / name)[0]
            if key is not None and key.startswith(prefix):
                yield key

    def _read(self, key: str) -> tuple[bytes, str] | None:
        path = self._values / file_name(key)
        try:
            found, version, value = self._parse(path)
        except FileNotFoundError:
            return None
        if found != key:
            raise _unreadable(path, f"it belongs to the key {found!r}, not {key!r}")
        return value, version

    def _parse(self, path: Path) -> tuple[str, str, bytes]:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
        header, _, value = content.partition(b"\n")
        try:
            fields = json.loads(header)
            key, version = fields["key"], fields["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(path, "its first line is not ours") from error
        if not isinstance(key, str) or not isinstance(version, str):
            raise _unreadable(path, "its first line is not ours")
        return key, version, value

    def _replace(self, path: Path, content: bytes) -> None:
        """Durable replacement, under the lock only.

        There is one writer at a time, so one fixed temporary name does, and a killed writer leaves nothing to clean.
        """
        temporary = self.path / ".new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        sync_folder(path.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with file_lock(descriptor, self.path / "lock"):
                yield
        finally:
            os.close(descriptor)


class _UnderLock:
    """The values for a migration, which runs under the lock already."""

    def __init__(
        self,
        get: Callable[[str], tuple[bytes, str] | None],
        put: Callable[[str, bytes, str | None], str | None],
        keys: Callable[[str], Iterable[str]],
    ) -> None:
        self._get = get
        self._put = put
        self._keys = keys

    def get(self, key: str) -> tuple[bytes, str] | None:
        return self._get(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        return self._put(key, value, expected)

    def keys(self, prefix: str) -> list[str]:
        # All names before the step writes the first.
        return list(self._keys(prefix))


def _unreadable(path: Path, why: str) -> LakehouseError:
    return StorageError(
        f"{path} cannot be read: {why}",
        field=FIELD,
        hint="restore the file; or, when nothing runs on this state, remove it: what it remembered is lost then",
    )
