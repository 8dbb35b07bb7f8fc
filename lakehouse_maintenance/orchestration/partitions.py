"""Tables as dynamic partitions. The key of a table is `TableName.partition_key`: `catalog.database.table`, encoded."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import dagster as dg

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.databases import Database

TABLES_NAME = "lakehouse_tables"
"""Name of the set of partitions in Dagster's instance."""

tables_partitions = dg.DynamicPartitionsDefinition(name=TABLES_NAME)

_BATCH = 500


def register(instance: dg.DagsterInstance, tables: Iterable[TableName]) -> tuple[str, ...]:
    """Adds the partitions of tables that have none yet, some hundred at a time; returns the new keys.

    Takes none away: a table that is not among `tables` may be one that a listing missed.
    """
    known = set(instance.get_dynamic_partitions(TABLES_NAME))
    new = tuple(dict.fromkeys(key for table in tables if (key := table.partition_key) not in known))
    pending = iter(new)
    while batch := list(islice(pending, _BATCH)):
        instance.add_dynamic_partitions(TABLES_NAME, batch)
    return new


def by_database(keys: Iterable[str]) -> tuple[dict[Database, list[TableName]], list[str]]:
    """Tables of these partition keys by database, sorted; and keys that are no table's."""
    found: dict[Database, list[TableName]] = {}
    strange: list[str] = []
    for key in keys:
        try:
            name = TableName.from_partition_key(key)
        except InputError:
            strange.append(key)
            continue
        found.setdefault(Database.of(name), []).append(name)
    return {database: sorted(found[database]) for database in sorted(found)}, strange
