"""The golden lakehouse through Dagster: each table's `maintained` is materialized in a real instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.local import PartitionRun, maintain_with_dagster
from lakehouse_maintenance.orchestration.naming import LIVE_FILES_PRESENT, MAINTAINED_KEY, ROWS_UNCHANGED
from lakehouse_maintenance_tests.engine.conformance import (
    COMPACTED,
    TABLES,
    duckdb_sees,
    pyiceberg_sees,
    readable_by,
    recorded_rows,
    table_name,
    write_config,
)
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse, copy_catalog, upload
from lakehouse_maintenance_tests.orchestration.lake import facts, make_home
from lakehouse_maintenance_tests.services.s3 import S3Server


@dataclass(frozen=True)
class _Maintained:
    golden: GoldenLakehouse
    config: Path
    instance: dg.DagsterInstance
    runs: dict[TableName, PartitionRun]


@pytest.fixture(scope="module")
def maintained(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Maintained]:
    upload(s3)
    folder = tmp_path_factory.mktemp("golden")
    copy_catalog(folder / "golden.db")
    golden = GoldenLakehouse(folder / "golden.db", s3)
    config = write_config(golden, folder)
    with dg.DagsterInstance.from_config(str(make_home(folder))) as instance:
        runs = maintain_with_dagster(config, instance, list(map(table_name, TABLES)))
        yield _Maintained(golden, config, instance, runs)


@pytest.mark.parametrize("name", COMPACTED)
def test_every_table_is_compacted_by_policy(maintained: _Maintained, name: str) -> None:
    run = maintained.runs[table_name(name)]
    assert (run.status, run.ok) == (Status.DONE, True), run
    wanted = dg.AssetRecordsFilter(MAINTAINED_KEY, asset_partitions=[table_name(name).partition_key])
    (record,) = maintained.instance.fetch_materializations(wanted, limit=10).records
    assert record.asset_materialization is not None
    assert facts(record.asset_materialization)["status"] == "done"
    logs = maintained.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    checks = [entry.get_dagster_event().asset_check_evaluation_data for entry in logs]
    assert {check.check_name for check in checks if check.passed} >= {ROWS_UNCHANGED, LIVE_FILES_PRESENT}


@pytest.mark.parametrize("name", readable_by("pyiceberg", COMPACTED))
def test_pyiceberg_reads_every_snapshot_and_ref_as_before(maintained: _Maintained, name: str) -> None:
    recorded = TABLES[name]
    table = maintained.golden.catalog().load_table(recorded.identifier)
    assert pyiceberg_sees(table, recorded) == recorded_rows(recorded)


@pytest.mark.parametrize("name", readable_by("duckdb", COMPACTED))
def test_duckdb_reads_every_snapshot_as_before(maintained: _Maintained, name: str) -> None:
    recorded = TABLES[name]
    table = maintained.golden.catalog().load_table(recorded.identifier)
    assert duckdb_sees(table, recorded, maintained.golden.s3) == recorded_rows(recorded, refs=False)


def test_a_second_materialization_does_nothing(maintained: _Maintained) -> None:
    names = ["db.v2_mor", "sales.eu.order items"]
    before = [maintained.golden.metadata_location(name) for name in names]
    runs = maintain_with_dagster(maintained.config, maintained.instance, list(map(table_name, names)))
    assert {run.status for run in runs.values()} == {Status.SKIPPED}
    assert [maintained.golden.metadata_location(name) for name in names] == before
