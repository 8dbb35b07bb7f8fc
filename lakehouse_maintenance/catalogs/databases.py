"""Where the databases of a catalog lie: of each what the catalog keeps, or where its engines put it by default."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from lakehouse_maintenance.catalogs.asking import ask_each
from lakehouse_maintenance.catalogs.catalog import Catalog, Namespace
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.listing import Complete, Incomplete, Listed


@dataclass(frozen=True, slots=True)
class DatabaseStorage:
    """One database. `name`: `catalog.database`. `location`: as the catalog keeps it, whatever it says.

    `inferred`: where it keeps none, each folder that engines take by default (UF-29). `unknown`: why there is neither.
    """

    namespace: Namespace
    name: str
    location: str | None = None
    inferred: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def locations(self) -> tuple[str, ...]:
        """Everything that may be its storage."""
        return self.inferred if self.location is None else (self.location,)


def database_storages(
    catalog: Catalog, progress: Callable[[int, int], None] = lambda read, of: None
) -> Listed[DatabaseStorage]:
    """All databases of the catalog, sorted; a question each, several at once.

    One that does not answer says so in its `unknown`; Incomplete where the databases themselves cannot be listed.
    `progress`: (databases read, databases), called from several threads, one after the other.
    """
    listed = catalog.databases()
    if isinstance(listed, Incomplete):
        return listed
    read, lock = 0, threading.Lock()

    def ask(namespace: Namespace) -> DatabaseStorage:
        nonlocal read
        found = database_storage(catalog, namespace)
        with lock:
            read += 1
            progress(read, len(listed.items))
        return found

    return Complete(tuple(ask_each(catalog, ask, listed.items)))


def database_storage(catalog: Catalog, namespace: Namespace) -> DatabaseStorage:
    """One database. Never raises: it may have gone, or be hidden from us."""
    name = catalog.database_name(namespace)
    try:
        location = catalog.database_location(namespace)
    except LakehouseError as error:
        return DatabaseStorage(namespace, name, unknown=error.message)
    if location is not None:
        return DatabaseStorage(namespace, name, location)
    inferred = catalog.default_locations(namespace)
    why = None if inferred else "the catalog keeps no location for it, and its warehouse is not known"
    return DatabaseStorage(namespace, name, inferred=inferred, unknown=why)
