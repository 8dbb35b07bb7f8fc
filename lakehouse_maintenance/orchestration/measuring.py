"""One look at one table, for the state asset: its health, and where its metadata stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.names import TableName

if TYPE_CHECKING:
    from lakehouse_maintenance.lakehouse import Lakehouse


MOST_COLUMNS = 1_000
"""Columns that are told; a table may have more than anybody reads."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table's current schema. `type`: Iceberg's name of it, `struct` and the like without its parts."""

    name: str
    type: str
    doc: str | None
    is_required: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """`metadata_location`: the metadata file that the health was measured from. `location`: the table's own."""

    health: TableHealth
    metadata_location: str
    location: str
    columns: tuple[Column, ...] = ()

    @property
    def data_version(self) -> str:
        """The same while the table does not change: snapshot id, and a hash of the metadata file's location.

        A location is unbounded and may hold any character, which a tag in Dagster's storage should not.
        """
        pointer = hashlib.sha256(self.metadata_location.encode()).hexdigest()[:12]
        return f"{self.health.snapshot_id or 'empty'}-{pointer}"


def measure(lakehouse: Lakehouse, name: TableName) -> Measured:
    """Reads the table's metadata and manifests. Raises LakehouseError.

    Not `Lakehouse.health`: here the kind of an error decides about retries, and snapshot and pointer have to be of
    the same look at the table.
    """
    from lakehouse_maintenance.execution.clock import now_ms
    from lakehouse_maintenance.execution.memory import Memory
    from lakehouse_maintenance.execution.observe import health_of, observe
    from lakehouse_maintenance.model.errors import UnknownTableError

    if name.catalog not in lakehouse.catalogs:
        known = ", ".join(lakehouse.catalogs)
        raise UnknownTableError(
            f"no catalog {name.catalog} is configured for {name}", field="table", hint=f"the configured are: {known}"
        )
    observed = observe(lakehouse.catalogs[name.catalog], name, lakehouse.state.cache)
    remembered = Memory(lakehouse.state).table(str(name))
    policy = lakehouse.config.policy_for(name)
    health = health_of(observed, policy, remembered.last_run_ms, now_ms(), orphans=remembered.orphans)
    columns = tuple(_columns(observed.metadata.raw))
    return Measured(health, observed.metadata.location, observed.metadata.table_location, columns)


def _columns(raw: Mapping[str, Any]) -> Iterator[Column]:
    """Of the current schema (Iceberg spec: Schemas and Data Types); format version 1 may have one schema alone."""
    current = raw.get("current-schema-id")
    schemas = [schema for schema in raw.get("schemas") or () if schema.get("schema-id") == current]
    schema = schemas[0] if schemas else raw.get("schema") or {}
    for field in list(schema.get("fields") or ())[:MOST_COLUMNS]:
        kind = field.get("type")
        doc = field.get("doc")
        yield Column(
            name=str(field.get("name")),
            type=str(kind.get("type")) if isinstance(kind, dict) else str(kind),
            doc=None if doc is None else str(doc),
            is_required=field.get("required") is True,
        )
