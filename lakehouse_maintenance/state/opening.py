"""Opens the state that `state.url` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from lakehouse_maintenance.model.errors import ConfigurationError
from lakehouse_maintenance.state.cache import ManifestCache, SqliteBlobCache
from lakehouse_maintenance.state.folder import FIELD, FolderStore
from lakehouse_maintenance.state.journal import Journal
from lakehouse_maintenance.state.leases import Leases, utc_now

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


class State:
    """What we remember, in one place. `cache` is disposable; everything else is durable."""

    def __init__(self, store: FolderStore, now: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self.journal = Journal(store)
        self.leases = Leases(store, now)
        self.cache: ManifestCache = SqliteBlobCache(store.path / "cache" / "manifests.db")

    @property
    def location(self) -> str:
        """Where the state lies, for people."""
        return str(self._store.path)

    def check_writable(self) -> None:
        """Raise ConfigurationError naming `state.url` where a write would be refused. Creates nothing."""
        self._store.check_writable()

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See KeyValueStore. Keys that begin with `leases/` and `open/` are taken."""
        return self._store.get(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """See KeyValueStore."""
        return self._store.put(key, value, expected)

    def keys(self, prefix: str) -> Iterable[str]:
        """See KeyValueStore."""
        return self._store.keys(prefix)


def open_state(url: str, *, now: Callable[[], datetime] = utc_now) -> State:
    """The state in a folder: a path (absolute, or relative to the working folder) or a `file:` URL, taken literally
    (nothing is percent-decoded). Creates nothing.

    `now`: the clock of leases. Raises ConfigurationError naming `state.url` for another scheme, for something that is
    not a folder, and for a layout that a newer release wrote.
    """
    store = FolderStore(_folder_of(url))
    store.check_version()
    return State(store, now)


def _folder_of(url: str) -> Path:
    if not url.strip():
        raise ConfigurationError("state.url is empty", field=FIELD, hint="name a folder")
    if "\0" in url:
        raise ConfigurationError("state.url holds a NUL character", field=FIELD, hint="name a folder")
    match = _SCHEME.match(url)
    if match is None:
        return Path(url).absolute()
    scheme = match.group(1).lower()
    if scheme != "file":
        # The URL itself stays out of the message: it may hold a password.
        raise ConfigurationError(
            f"state cannot be kept under a {scheme}: URL by this release",
            field=FIELD,
            hint="name a folder: a path or a file: URL",
        )
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise ConfigurationError("the file: URL names a host", field=FIELD, hint="write file:///path/to/folder")
        rest = "/" + path
    return Path(rest)
