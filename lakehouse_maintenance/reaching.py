"""Which storage and which catalogs a path or an entry is reached through, as the configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import InputError, LakehouseError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName, split_name
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from lakehouse_maintenance.catalogs import Catalog
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.evidence import DeltaPlaces, Evidence
    from lakehouse_maintenance.removal import Entry
    from lakehouse_maintenance.state import State


def evidence_of(config: LakehouseConfig, catalogs: Mapping[str, Catalog], state: State) -> Evidence:
    """All tables of the configured catalogs and Delta groups. Nothing is read yet."""
    from lakehouse_maintenance.evidence import Evidence

    return Evidence(catalogs, delta_places(config), state.cache)


def delta_places(config: LakehouseConfig) -> list[DeltaPlaces]:
    """The configured groups of Delta tables."""
    from lakehouse_maintenance.evidence import DeltaPlaces
    from lakehouse_maintenance.storage.options import from_storage_options

    return [
        DeltaPlaces(
            name,
            Storage.from_properties(from_storage_options(group.storage_options)),
            {table: Location.parse(text) for table, text in group.tables.items()},
            [Location.parse(text) for text in group.roots],
        )
        for name, group in config.delta.items()
    ]


def storage_for(config: LakehouseConfig, catalogs: Mapping[str, Catalog], location: Location) -> Storage:
    """Of the catalog, or the Delta group, that lies where the location does, or of the first: it is asked what lies
    around it."""
    for catalog in catalogs.values():
        warehouse = catalog.properties.get("warehouse", "")
        if "://" in warehouse and Location.parse(warehouse).authority == location.authority:
            return catalog.storage()
    groups = delta_places(config)
    for group in groups:
        if any(root.authority == location.authority for root in (*group.roots, *group.tables.values())):
            return group.storage
    first = next((catalog.storage() for catalog in catalogs.values()), None)
    return first or (groups[0].storage if groups else Storage({}))


def storage_of_entry(config: LakehouseConfig, catalogs: Mapping[str, Catalog], entry: Entry) -> Storage:
    """Under the properties of the catalog, or of the Delta group, that the entry's table or database belongs to.

    Raises InputError where it is not configured.
    """
    from lakehouse_maintenance.storage.options import from_storage_options

    first, *rest = split_name(entry.subject)
    group = config.delta.get(first)
    if group is not None:
        return Storage.from_properties(from_storage_options(group.storage_options))
    if first not in catalogs:
        raise InputError(
            f"the quarantine entry {entry.id} is of {entry.subject}, and no catalog {first} is configured",
            field="id",
            hint="use the configuration that it was moved with",
        )
    catalog = catalogs[first]
    if entry.action == "untracked_folders":
        return catalog.storage_for_listing(_tables(catalogs, first, rest))
    try:
        return catalog.storage(TableName(first, tuple(rest[:-1]), rest[-1]) if len(rest) > 1 else None)
    except LakehouseError:
        # No such table, or not any more: then under the catalog's own properties.
        return catalog.storage()


def _tables(catalogs: Mapping[str, Catalog], catalog: str, namespace: list[str]) -> list[TableName]:
    """Iceberg tables of the database, for credentials that a service vends for one of them."""
    from lakehouse_maintenance.catalogs import TableKind
    from lakehouse_maintenance.model.listing import Incomplete

    listed = catalogs[catalog].tables(tuple(namespace))
    if isinstance(listed, Incomplete):
        return []
    return [entry.name for entry in listed.items if entry.kind is TableKind.ICEBERG]
