"""What all catalogs tell about storage at one moment, read once for all databases of a run, and of it the facts about
one database."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_maintenance.catalogs import Catalog, DatabaseStorage, database_storages
from lakehouse_maintenance.evidence import ClaimIndex, Evidence, Look, claims_of
from lakehouse_maintenance.evidence.iceberg_owners import ICEBERG
from lakehouse_maintenance.execution.progress import Progress
from lakehouse_maintenance.execution.view_folders import Views, view_claims, view_places
from lakehouse_maintenance.model.errors import CatalogUnavailableError, InputError, UnknownTableError
from lakehouse_maintenance.model.folders import Claim, ClaimKind
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName, split_name
from lakehouse_maintenance.planning import untracked_folders as planning

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class World:
    """All tables and databases of all catalogs. `storages`: by full name of the database. `gaps`: why there may be
    databases that are not in it, by catalog. `hidden`: why a catalog may hold tables that it does not list."""

    look: Look
    storages: Mapping[str, DatabaseStorage]
    gaps: Mapping[str, str]
    claims: ClaimIndex
    catalogs: Mapping[str, Catalog] = field(default_factory=dict)
    views: Views = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def see(cls, evidence: Evidence, catalogs: Mapping[str, Catalog], progress: Progress) -> World:
        """Reads everything: each database once, each table's pointer, and metadata that has not been read before."""
        began = time.monotonic()
        storages: dict[str, DatabaseStorage] = {}
        gaps: dict[str, str] = {}
        hidden: dict[str, str] = {}
        for name, catalog in catalogs.items():
            progress.begin(name, "reading databases", 0, 0)
            listed = database_storages(catalog, lambda read, of, name=name: progress.advance(name, 1, 0))  # type: ignore[misc]
            progress.end(name, "read")
            if isinstance(listed, Incomplete):
                gaps[name] = listed.why
            else:
                storages |= {storage.name: storage for storage in listed.items}
            if not catalog.shows_every_kind:
                hidden[name] = (
                    f"catalog {name} does not list tables of other formats, nor their partitions, and they may own any "
                    "folder: its kind is not supported for this yet"
                )
        look = evidence.look()
        views = view_places(look, catalogs, {})
        _logger.info(
            "%s databases of %s catalogs and %s tables were read in %.1f s",
            len(storages),
            len(catalogs),
            len(look.owners) + len(look.unread),
            time.monotonic() - began,
        )
        return cls(look, storages, gaps, ClaimIndex(_claims(look, storages, views)), catalogs, views, hidden)

    def again(self, evidence: Evidence, near: Sequence[Location]) -> World:
        """As it is now: tables that are new, and those that may reach these places, are asked again; the others as
        `Evidence.look` says, and databases not at all. For the moment between two batches, after `see`."""
        look = evidence.look(near)
        views = view_places(look, self.catalogs, self.views, near)
        if _moved(look) == _moved(self.look) and views == self.views:
            return replace(self, look=look)
        return replace(self, look=look, views=views, claims=ClaimIndex(_claims(look, self.storages, views)))

    def facts(self, catalog: Catalog, database: str) -> planning.DatabaseFacts:
        """About one database, by its name inside the catalog. Raises LakehouseError where its own tables could not be
        listed, or the catalog does not answer for it."""
        namespace = split_name(database)
        name = catalog.database_name(namespace)
        own = self._own(catalog, namespace, name)
        if own is None:
            return planning.DatabaseFacts(name, exists=False)
        gap = next((gap for gap in self.look.gaps if gap.database == name), None)
        if gap is not None:
            raise CatalogUnavailableError(gap.why, field="database")
        # Without its databases, nobody has looked for the tables of this one either.
        unlisted = next(
            (gap.why for gap in self.look.gaps if (gap.catalog, gap.database) == (catalog.name, None)), None
        )
        return planning.DatabaseFacts(
            name,
            location=own.location or next(iter(own.inferred), None),
            is_inferred=own.location is None and bool(own.inferred),
            warehouse=catalog.warehouse(),
            namespace_folder=catalog.default_location(namespace),
            tables=tuple(sorted(self._tables(name), key=lambda table: table.name)),
            others=tuple(
                planning.DatabaseStorage(one.name, one.locations, one.unknown)
                for one in self.storages.values()
                if one.name != name
            ),
            strangers=tuple(self._strangers(name)),
            gaps=(*(gap.why for gap in self.look.gaps), *self.gaps.values(), *self.hidden.values()),
            unlisted=unlisted,
        )

    def tables_of(self, database: str) -> list[TableName]:
        """Readable Iceberg tables, by the full name of their database."""
        return [
            TableName.parse(owner.name)
            for owner in self.look.owners
            if owner.database == database and owner.table_format == ICEBERG
        ]

    def _own(self, catalog: Catalog, namespace: tuple[str, ...], name: str) -> DatabaseStorage | None:
        """None: there is no such database. Where the listing left open what it is, it is asked again by itself."""
        found = self.storages.get(name)
        if found is None and catalog.name not in self.gaps:
            return None
        if found is not None and found.unknown is None:
            return found
        try:
            location = catalog.database_location(namespace)
        except UnknownTableError:
            return None
        inferred = () if location is not None else catalog.default_locations(namespace)
        return DatabaseStorage(namespace, name, location, inferred)

    def _tables(self, database: str) -> Iterator[planning.TableFacts]:
        for owner in self.look.owners:
            if owner.database == database and owner.table_format == ICEBERG:
                yield planning.TableFacts(owner.name, owner.location_text, owner.unresolved)
        for table in self.look.unread:
            if table.database == database:
                yield planning.TableFacts(table.name, table.location, table.why, table.is_unparsable)

    def _strangers(self, database: str) -> Iterator[planning.Stranger]:
        """Unresolved tables of others, each with where its files may lie: if nothing else is known, where its database
        does (UF-15)."""
        for owner in self.look.owners:
            if owner.unresolved is not None and owner.database != database:
                yield planning.Stranger(owner.name, owner.unresolved, (*owner.folders, *owner.elsewhere))
        for table in self.look.unread:
            if table.database != database:
                told = _parsed([table.location] if table.location else [])
                home = self.storages.get(table.database)
                places = told or ([] if home is None else _parsed(home.locations))
                yield planning.Stranger(table.name, table.why, (*table.places, *places))
        for name, view in self.views.items():
            if view.unknown is not None:
                home = self.storages.get(name.database)
                places = [] if home is None else _parsed(home.locations)
                yield planning.Stranger(f"the view {name}", view.unknown, tuple(places))


def _claims(look: Look, storages: Mapping[str, DatabaseStorage], views: Views) -> list[Claim]:
    found = claims_of(look) + view_claims(views)
    for storage in storages.values():
        found += [Claim(where, storage.name, ClaimKind.DATABASE) for where in _parsed(storage.locations)]
    return found


def _moved(look: Look) -> object:
    """Differs as soon as anybody may own something else."""
    return [(owner.name, owner.token) for owner in look.owners], look.unread, look.gaps


def _parsed(texts: Sequence[str]) -> list[Location]:
    found: list[Location] = []
    for text in texts:
        try:
            found.append(Location.parse(text))
        except InputError:
            continue
    return found
