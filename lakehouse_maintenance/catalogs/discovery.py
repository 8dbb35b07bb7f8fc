"""Every entry of the chosen databases, or an error value."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_maintenance.catalogs.catalog import Catalog, CatalogEntry, Namespace
from lakehouse_maintenance.model.listing import Complete, Incomplete, Listed
from lakehouse_maintenance.model.names import split_name

EVERY_DATABASE = "*"


def discover(catalog: Catalog, databases: Sequence[str]) -> Listed[CatalogEntry]:
    """Tables and views of these databases (names inside the catalog, `["*"]` for all), sorted by name.

    Incomplete as soon as one listing is, a written database that does not exist included. Raises InputError for a
    text that is no name.
    """
    namespaces: Sequence[Namespace]
    if EVERY_DATABASE in databases:
        listed = catalog.databases()
        if isinstance(listed, Incomplete):
            return listed
        namespaces = listed.items
    else:
        namespaces = [split_name(database) for database in dict.fromkeys(databases)]

    found: list[CatalogEntry] = []
    for namespace in namespaces:
        entries = catalog.tables(namespace)
        if isinstance(entries, Incomplete):
            return Incomplete(entries.why, len(found) + entries.seen)
        found += entries.items
    return Complete(tuple(sorted(found)))
