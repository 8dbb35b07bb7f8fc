"""A small lakehouse for Dagster's tests: a SQL catalog, a table with many small files, and a real instance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import dagster as dg

from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.naming import MAINTAINED_KEY, PLAN_KEY, STATE_KEY
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

PARTITIONS = 16
COMMITS = 2
CONFIG = """\
catalogs:
  main: {{type: sql, uri: "{uri}", warehouse: "{warehouse}"}}
databases: {{main: ["*"]}}
policies:
  default:
    rewrite_data_files: {{options: {{min-input-files: 2}}}}
"""
"""Two small files a partition are enough to rewrite."""

KEYS = {"state": STATE_KEY, "plan": PLAN_KEY, "maintained": MAINTAINED_KEY}


@dataclass(frozen=True)
class Lake:
    """`config`: path of lakehouse.yaml. `instance` keeps what Dagster records below `home`."""

    folder: Path
    config: Path
    catalog: SqlCatalog
    home: Path
    instance: dg.DagsterInstance

    def table_with_small_files(self, table: str = "events") -> TableName:
        """Writes `db.<table>`: every partition has one file of each commit."""
        import pyarrow as pa

        schema = pa.schema([("id", pa.int64()), ("kind", pa.string())])
        self.catalog.create_namespace_if_not_exists("db")
        made = self.catalog.create_table(("db", table), schema=schema)
        with made.update_spec() as spec:
            spec.add_identity("kind")
        for commit in range(COMMITS):
            ids = [commit * PARTITIONS + n for n in range(PARTITIONS)]
            made.append(pa.table({"id": ids, "kind": [f"k{n}" for n in range(PARTITIONS)]}, schema=schema))
        return TableName("main", ("db",), table)

    def rows(self, name: TableName) -> list[str]:
        """Canonical rows as PyIceberg reads them."""
        from lakehouse_maintenance_tests.readers import read_pyiceberg

        return read_pyiceberg(self.catalog.load_table(name.identifier))

    def truncate_metadata(self, name: TableName) -> None:
        """Cuts the table's current metadata file in half."""
        location = self.catalog.load_table(name.identifier).metadata_location
        file = Path(unquote(urlparse(location).path))
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    def latest(self, asset: str, name: TableName) -> dg.AssetMaterialization:
        """The newest materialization of `state`, `plan` or `maintained` for the table."""
        return self.materializations(asset, name)[0]

    def materializations(self, asset: str, name: TableName) -> list[dg.AssetMaterialization]:
        """Newest first."""
        wanted = dg.AssetRecordsFilter(KEYS[asset], asset_partitions=[name.partition_key])
        records = self.instance.fetch_materializations(wanted, limit=10).records
        return [record.asset_materialization for record in records if record.asset_materialization is not None]


def facts(materialization: dg.AssetMaterialization) -> dict[str, object]:
    """Metadata as plain values, our own prefix taken off."""
    return {key.removeprefix("lakehouse_maintenance/"): entry.value for key, entry in materialization.metadata.items()}


def make_home(folder: Path) -> Path:
    """A DAGSTER_HOME without telemetry, and without the processes that copy what steps print."""
    home = folder / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        "compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}\n"
    )
    return home


def make_lake(folder: Path) -> Lake:
    """Catalog, configuration and instance, all below the folder."""
    catalog, settings = make_sql_catalog(folder)
    config = folder / "lakehouse.yaml"
    config.write_text(CONFIG.format(uri=settings["uri"], warehouse=settings["warehouse"]))
    home = make_home(folder)
    return Lake(folder, config, catalog, home, dg.DagsterInstance.from_config(str(home)))
