"""Builds the demo lakehouse in a folder: a SQLite catalog, a warehouse, and the `lakehouse.yaml` that maintains it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance.demo.tables import CATALOG, TABLES, Workshop
from lakehouse_maintenance.model.errors import LeaseHeldError

if TYPE_CHECKING:
    from lakehouse_maintenance.state import State

DATABASES = ("analytics", "sales", "ops")

LOCKED_TABLE = f"{CATALOG}.ops.device_state"
OTHER_RUN = "nightly-backfill"
_LOCKED_FOR = timedelta(days=30)
_LOCKED_SINCE = timedelta(hours=3)

CONFIGURATION = """\
# The demo lakehouse: eleven Iceberg tables in three databases. Relative paths start from this file's folder.

# Catalogs, with PyIceberg's properties.
catalogs:
  {catalog}:
    type: sql
    uri: sqlite:///catalog.db
    warehouse: warehouse

# The databases that Dagster shows and that are maintained where no table is named.
databases: {{{catalog}: [{databases}]}}

# Who does the data work. The embedded engine needs no Java.
engine: {{use: {engine}}}

# What is remembered between runs: the journal, the leases, what was measured.
state: {{url: .lakehouse-maintenance}}

# When tables are maintained: default, then database, then table; the nearest wins, key by key. Where a policy sets
# nothing, the table's own property counts (such as write.target-file-size-bytes), then Iceberg's default.
policies:
  default:
    rewrite_data_files:
      trigger:                      # due when `of` reaches base + scale * size
        - {{of: small_files, base: 20, scale: 0.1, size: data_files}}
        - {{of: delete_files, base: 10, scale: 0.05, size: data_files}}
      min_gain: 5 files
      cooldown: 1h
    expire_snapshots:
      trigger: {{of: expired_snapshots, base: 10}}
      older_than: 5 days
      retain_last: 10
    rewrite_manifests:
      trigger: {{of: manifests, base: 100}}
    budget: {{bytes_per_day: 10GB}}
"""


def configuration(engine: str) -> str:
    """The text of `lakehouse.yaml`."""
    return CONFIGURATION.format(catalog=CATALOG, databases=", ".join(DATABASES), engine=engine)


def build_tables(into: Path, *, now: datetime, scale: float, on_table: Callable[[str, str], None]) -> None:
    """Writes `catalog.db` and `warehouse/` into the folder (absolute), which must not hold them yet.

    `now`: the injected clock; every commit lies in the two weeks before it. `scale`: of the file counts, 1 for about
    3,000 files. `on_table` hears of each table when it is done: name, and what it shows.
    """
    warehouse = into / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{into / 'catalog.db'}", warehouse=f"file://{warehouse}")
    try:
        for database in DATABASES:
            catalog.create_namespace(database)
        shop = Workshop(catalog, warehouse, now, scale)
        for identifier, build in TABLES.items():
            build(shop)
            on_table(f"{CATALOG}.{identifier}", (build.__doc__ or "").strip())
    finally:
        catalog.close()


def lock_by_other_run(state: State, now: datetime) -> None:
    """Sees to it that the locked table is locked: its lease is held by a run that never ends within the demo."""
    try:
        # Never released, on purpose: it ends by itself.
        state.leases.acquire(
            LOCKED_TABLE, run_id=OTHER_RUN, owner="etl@backfill-01:4711", ttl=_LOCKED_FOR, now=now - _LOCKED_SINCE
        )
    except LeaseHeldError:
        return
