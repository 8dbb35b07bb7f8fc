"""Opens the state that `state.url` names."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs

from lakehouse_maintenance.config.settings import StateSettings
from lakehouse_maintenance.model.errors import ConfigurationError, InputError
from lakehouse_maintenance.model.locations import FAMILIES, Location
from lakehouse_maintenance.state.backend import FIELD, Backend
from lakehouse_maintenance.state.cache import ManifestCache, SqliteBlobCache
from lakehouse_maintenance.state.folder import FolderStore
from lakehouse_maintenance.state.journal import Journal
from lakehouse_maintenance.state.leases import Leases, utc_now
from lakehouse_maintenance.state.reviews import Reviews

SCHEMA = "lakehouse_maintenance"
"""Where a PostgreSQL URL names no schema."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg2")
_KINDS = "name a folder, s3://bucket/path, gs://…, abfss://… or postgresql://user@host/database"


class State:
    """What we remember, in one place. `cache` is disposable; everything else is durable.

    `cache`: the folder that it is in, where that is not the state's own or below the user's cache folder.
    """

    def __init__(self, store: Backend, now: Callable[[], datetime] = utc_now, cache: Path | None = None) -> None:
        self._store = store
        self.journal = Journal(store)
        self.leases = Leases(store, now)
        self.reviews = Reviews(store)
        folder = cache or store.cache_folder or _users_cache(store.location)
        self.cache: ManifestCache = SqliteBlobCache(folder / "manifests.db")

    @property
    def location(self) -> str:
        """Where the state lies, for people; without secrets."""
        return self._store.location

    def check_writable(self) -> None:
        """Raise ConfigurationError naming `state.url` where a write would be refused. Creates nothing."""
        self._store.check_writable()

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See KeyValueStore. Keys that begin with `leases/`, `open/` and `reviews` are taken."""
        return self._store.get(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """See KeyValueStore. Raises StorageError where it cannot be told whether the value was written."""
        return self._store.put(key, value, expected)

    def keys(self, prefix: str) -> Iterable[str]:
        """See KeyValueStore."""
        return self._store.keys(prefix)


def open_configured(settings: StateSettings) -> State:
    """The state of a configuration. Raises as `open_state`."""
    cache = None if settings.cache is None else Path(settings.cache)
    return open_state(settings.url, properties=settings.properties, cache=cache)


def open_state(
    url: str,
    *,
    properties: Mapping[str, str] | None = None,
    cache: Path | None = None,
    now: Callable[[], datetime] = utc_now,
) -> State:
    """The state in a folder, on object storage or in PostgreSQL. Creates nothing.

    `url`: a path (absolute, or relative to the working folder) or a `file:` URL, taken literally (nothing is
    percent-decoded); `s3://`, `gs://` or `abfss://` with a path; or `postgresql://user@host/database`, with the schema
    as `?schema=` and libpq's other parameters beside it.
    `properties`: credentials of an object store by PyIceberg's names (`s3.access-key-id`); without any, where the
    vendor's tools look. `cache`: a folder for what is disposable. `now`: the clock of leases.

    Raises ConfigurationError naming `state.url` for another scheme, for something that cannot be used as a state, and
    for a layout that a newer release wrote; StorageError where a store or a server does not answer.
    """
    store = open_store(url, {} if properties is None else properties)
    store.check_version()
    return State(store, now, cache)


def open_store(url: str, properties: Mapping[str, str]) -> Backend:
    """The store below the state, as `open_state` says; no I/O."""
    if not url.strip():
        raise ConfigurationError("state.url is empty", field=FIELD, hint=_KINDS)
    if "\0" in url:
        raise ConfigurationError("state.url holds a NUL character", field=FIELD, hint=_KINDS)
    match = _SCHEME.match(url)
    scheme = "file" if match is None else match.group(1).lower()
    if match is None:
        return FolderStore(Path(url).absolute())
    if scheme == "file":
        return FolderStore(_folder_of(url))
    if scheme in _POSTGRES:
        return _postgres(url)
    if scheme in FAMILIES:
        return _objects(url, properties)
    # The URL itself stays out of the message: it may hold a password.
    raise ConfigurationError(f"state cannot be kept under a {scheme}: URL", field=FIELD, hint=_KINDS)


def _folder_of(url: str) -> Path:
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise ConfigurationError("the file: URL names a host", field=FIELD, hint="write file:///path/to/folder")
        rest = "/" + path
    return Path(rest)


def _objects(url: str, properties: Mapping[str, str]) -> Backend:
    try:
        Location.parse(url)
    except InputError as error:
        raise ConfigurationError("state.url names no bucket or container", field=FIELD, hint=error.hint) from None
    # obstore takes 50 ms to import; a folder never needs it.
    from lakehouse_maintenance.state.bucket import Bucket
    from lakehouse_maintenance.state.objects import ObjectsStore

    return ObjectsStore(Bucket(url, {key: str(value) for key, value in properties.items()}))


def _postgres(url: str) -> Backend:
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError

    from lakehouse_maintenance.state.database import Database
    from lakehouse_maintenance.state.postgres import PostgresStore

    try:
        parsed = make_url(url).set(drivername="postgresql+psycopg2")
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "state.url is no URL of a PostgreSQL database",
            field=FIELD,
            hint="write postgresql://user:password@host:5432/database, with %-escapes in the password",
        ) from None
    named = parse_qs(url.partition("?")[2], keep_blank_values=True).get("schema", [SCHEMA])
    schema = named[0]
    if len(named) != 1 or not schema or "\0" in schema or len(schema.encode()) > 63:
        raise ConfigurationError("?schema= of state.url is no schema's name", field=FIELD, hint="name one schema")
    target = parsed.difference_update_query(["schema"])
    shown = URL.create("postgresql", target.username, None, target.host, target.port, target.database)
    return PostgresStore(Database(target, f"{shown.render_as_string()}, schema {schema}"), schema)


def _users_cache(location: str) -> Path:
    """Below the user's cache folder, one a state: a different password makes no different state."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # By the XDG specification, a relative path is to be ignored.
    base = named if named.is_absolute() else Path("~/.cache").expanduser()
    return base / "lakehouse-maintenance" / hashlib.sha256(location.encode("utf-8", "surrogatepass")).hexdigest()[:32]
