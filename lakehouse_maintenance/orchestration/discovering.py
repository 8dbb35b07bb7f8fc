"""One tick of discovery: which partitions are missing, and which are of tables that are gone (DG-05).

A partition goes only where a complete listing says that its table is not there: the listing of its database, or the
catalog's list of databases where that no longer has its database. What could not be listed to the end changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.listing import Complete, Incomplete, Listed
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.databases import Database, ListedDatabases
from lakehouse_maintenance.orchestration.partitions import by_database

if TYPE_CHECKING:
    from lakehouse_maintenance.catalogs import Catalog, CatalogEntry
    from lakehouse_maintenance.lakehouse import Lakehouse

MOST_CHANGES = 500
"""Partitions that one tick adds, and that it removes."""
SECONDS = 20.0
"""After so many seconds a tick looks at no further database; the next one goes on there."""
_COUNTED = 20
_NAMED = 10


@dataclass
class Discovered:
    """Partition keys to add and to remove; `cursor`: where the next tick goes on, None: at the start."""

    add: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    cursor: str | None = None
    databases: int = 0
    tables: int = 0
    unlisted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def message(self) -> str:
        """What the tick found, for people."""
        parts = [f"{self.tables:,} tables in {self.databases:,} databases: {len(self.add):,} new"]
        parts[0] += f", {len(self.remove):,} gone"
        if self.cursor is not None:
            parts.append("the next tick goes on")
        if self.problems:
            parts.append("not known: " + _some(self.problems))
        if self.unlisted:
            parts.append(f"not listed under databases in lakehouse.yaml: {_some(self.unlisted)}")
        return "; ".join(parts)


def discover_tick(
    lakehouse: Lakehouse,
    known: Collection[str],
    cursor: str | None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Discovered:
    """`known`: partition keys that are registered. Asks catalogs alone, and never raises for what one of them does."""
    found = Discovered()
    tick = _Tick(lakehouse, known, found, clock)
    start = _position(cursor)
    for catalog in tick.listed.catalogs:
        if (catalog,) < start[:1]:
            continue
        after = tuple(start[1:]) if start[:1] == (catalog,) else ()
        if not tick.catalog(catalog, after):
            break
    return found


class _Tick:
    def __init__(
        self, lakehouse: Lakehouse, known: Collection[str], found: Discovered, clock: Callable[[], float]
    ) -> None:
        self.listed = ListedDatabases(lakehouse.config)
        self._lakehouse = lakehouse
        self._found = found
        self._clock = clock
        self._ends = clock() + SECONDS
        self._registered = set(known)
        self._partitions, _ = by_database(known)

    def catalog(self, name: str, start: tuple[str, ...]) -> bool:
        """One catalog from the database `start` on; False where the tick ends inside it."""
        mask = self._lakehouse.config.masker.mask
        try:
            opened = self._lakehouse.catalogs[name]
        except LakehouseError as error:
            self._found.problems.append(mask(error.message))
            return True
        listing = opened.databases()
        if isinstance(listing, Incomplete):
            self._found.problems.append(mask(listing.why))
        present = None if isinstance(listing, Incomplete) else {Database(name, part) for part in listing.items}
        if present is not None and not start:
            self._report_unlisted(opened, present)
        for database in self._databases(name, present):
            if database.namespace < start:
                continue
            if self._clock() > self._ends or not self._database(opened, database, present):
                self._found.cursor = json.dumps([name, *database.namespace])
                return False
        return True

    def _databases(self, catalog: str, present: set[Database] | None) -> list[Database]:
        """Listed ones, and listed ones that have partitions and may be gone."""
        wanted = set(self.listed.written(catalog))
        if self.listed.is_whole(catalog):
            wanted |= present or set()
        wanted |= {one for one in self._partitions if one.catalog == catalog and one in self.listed}
        return sorted(wanted)

    def _database(self, catalog: Catalog, database: Database, present: set[Database] | None) -> bool:
        """False where it has more changes than the tick has room for."""
        listing: Listed[CatalogEntry] = (
            Complete(()) if present is not None and database not in present else catalog.tables(database.namespace)
        )
        mask = self._lakehouse.config.masker.mask
        if isinstance(listing, Incomplete):
            self._found.problems.append(mask(listing.why))
            return True
        tables = _iceberg(listing.items)
        if present is not None and database not in present:
            self._found.problems.append(f"the catalog has no database {database}")
        there = set(tables)
        gone = [one.partition_key for one in self._partitions.get(database, ()) if one not in there]
        new = [one.partition_key for one in tables if one.partition_key not in self._registered]
        room = MOST_CHANGES - len(self._found.add), MOST_CHANGES - len(self._found.remove)
        self._found.add += new[: room[0]]
        self._found.remove += gone[: room[1]]
        if len(new) > room[0] or len(gone) > room[1]:
            return False
        self._found.databases += 1
        self._found.tables += len(tables)
        return True

    def _report_unlisted(self, catalog: Catalog, present: set[Database]) -> None:
        unlisted = sorted(one for one in present if one not in self.listed)
        for database in unlisted[:_COUNTED]:
            if self._clock() > self._ends:
                break
            listing = catalog.tables(database.namespace)
            count = "" if isinstance(listing, Incomplete) else f" ({len(_iceberg(listing.items)):,} tables)"
            self._found.unlisted.append(f"{database}{count}")
        self._found.unlisted += [str(database) for database in unlisted[len(self._found.unlisted) :]]


def _iceberg(entries: Collection[CatalogEntry]) -> list[TableName]:
    from lakehouse_maintenance.catalogs import TableKind

    return [entry.name for entry in entries if entry.kind is TableKind.ICEBERG]


def _position(cursor: str | None) -> tuple[str, ...]:
    """Catalog and namespace; a cursor that cannot be read starts anew, which costs a round and nothing else."""
    try:
        parts = json.loads(cursor or "[]")
    except ValueError:
        return ()
    return tuple(map(str, parts)) if isinstance(parts, list) else ()


def _some(texts: list[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
