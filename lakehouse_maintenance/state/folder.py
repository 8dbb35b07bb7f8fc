"""State in a folder: layout, its version, one lock, and values changed by compare-and-swap.

    version            number of the layout; there means that the layout is complete
    lock               held (flock) while a value is written
    values/<name>      one file a key: a line of JSON {"key", "version"}, then the value's bytes
    journal/<date>/    see journal.py
    cache/             disposable; see cache.py

The folder has to lie on a file system whose `flock` holds between all processes that use it: a local one, or a
network file system with locking switched on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.state.naming import file_name, key_of, name_prefix

LAYOUT_VERSION = 1
"""Grows when an older release could no longer read, or would damage, what a newer one wrote."""

FIELD = "state.url"
"""The configuration key that every error of this package names."""

LOCK_SECONDS = 30.0
"""How long a writer waits for the lock. It is held for a few writes to the disk, so longer means that its holder is
stopped, or the disk is stuck."""

_SETUP_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})


class FolderStore:
    """A state folder. Nothing is created before the first write; reading never creates anything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values = path / "values"

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See KeyValueStore. Takes no lock: a value is replaced by renaming, so a reader sees the old or the new."""
        self.check_version()
        return self._read(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """See KeyValueStore."""
        self.prepare()
        with self.errors("write to"), self._locked():
            self.check_version()
            stored = self._read(key)
            if (None if stored is None else stored[1]) != expected:
                return None
            version = uuid.uuid4().hex
            header = json.dumps({"key": key, "version": version}).encode("ascii")
            self._replace(self._values / file_name(key), header + b"\n" + value)
            return version

    def keys(self, prefix: str) -> Iterator[str]:
        """See KeyValueStore. Reads names, and the files of keys that are too long for a name."""
        self.check_version()
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

    def check_version(self) -> bool:
        """Whether there is a layout. Raises ConfigurationError unless it is one that this release can use."""
        with self.errors("read"):
            try:
                text = (self.path / "version").read_bytes()
            except FileNotFoundError:
                return False
        found = int(text) if text.strip().isdigit() and len(text) < 20 else None
        if found == LAYOUT_VERSION:
            return True
        if found is not None and found > LAYOUT_VERSION:
            raise ConfigurationError(
                f"the state in {self.path} has layout version {found}, this release knows {LAYOUT_VERSION}",
                field=FIELD,
                hint="a newer release has written it: use that release, or another folder",
            )
        raise ConfigurationError(
            f"{self.path / 'version'} holds no layout version that was ever in use",
            field=FIELD,
            hint="restore the file, or use another folder",
        )

    def prepare(self) -> None:
        """Create what is missing of the layout. Every writer calls it first.

        The version comes last and durably: a crash before leaves a folder that the next writer completes.
        """
        if self.check_version():
            return
        with self.errors("create"):
            make_folder(self.path)
            with self._locked():
                if self.check_version():
                    return
                make_folder(self._values)
                make_folder(self.path / "journal")
                self._replace(self.path / "version", b"%d\n" % LAYOUT_VERSION)

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


def _unreadable(path: Path, why: str) -> LakehouseError:
    return StorageError(
        f"{path} cannot be read: {why}",
        field=FIELD,
        hint="restore the file; or, when nothing runs on this state, remove it: what it remembered is lost then",
    )


@contextmanager
def file_lock(descriptor: int, path: Path) -> Iterator[None]:
    """Exclusive `flock` on an open file. The descriptor must be this call's own: that holds between threads too.

    Polled rather than blocked, so that a stopped holder ends in StorageError and not in a process that hangs.
    """
    give_up = time.monotonic() + LOCK_SECONDS
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() >= give_up:
                raise StorageError(
                    f"{path} has been locked by another process for {LOCK_SECONDS:.0f} seconds",
                    field=FIELD,
                    hint="a process that uses this state is stopped or its disk is stuck: end it",
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    try:
        yield
    finally:
        # Closing alone would not do: a child forked meanwhile shares the lock through its copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def write_all(descriptor: int, content: bytes) -> None:
    """`os.write` until everything is written: a single call may write less."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot, and say so; they order their names by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, durably."""
    if path.is_dir():
        return
    if path != path.parent:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)
