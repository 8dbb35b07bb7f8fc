"""Tables that Spark wrote, compacted on S3: what becomes of files, deletes, refs, summaries, bounds and places.

That rows read as before is shown where the command line, Dagster and Spark meet these tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance_tests.engine.bounds import added_files, check_statistics
from lakehouse_maintenance_tests.engine.conformance import (
    COMPACTED,
    TABLES,
    CompactedLakehouse,
    compact,
    compacted_lakehouse,
    open_golden,
    readable_by,
    seen,
    table_name,
)
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse
from lakehouse_maintenance_tests.readers import read_duckdb, read_pyiceberg
from lakehouse_maintenance_tests.services.s3 import S3Server


@pytest.fixture(scope="module")
def lakehouse(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> CompactedLakehouse:
    return compacted_lakehouse(s3, tmp_path_factory.mktemp("compacted"))


def _assert_done(outcome: TableOutcome) -> None:
    assert outcome.status is Status.DONE, outcome
    action = outcome.actions[0]
    assert action.verified, action.checks
    assert {check.name for check in action.checks} == {"rows_unchanged", "live_files_present"}


@pytest.mark.parametrize("name", COMPACTED)
def test_a_compacted_table_has_fewer_files_and_says_who_did_it(lakehouse: CompactedLakehouse, name: str) -> None:
    compacted = lakehouse[name]
    _assert_done(compacted.outcome)
    action, before, table = compacted.outcome.actions[0], compacted.before, compacted.table
    after = lakehouse.ours.health([str(table_name(name))])[0]

    assert after.data_files == before.data_files - action.actual.rewritten_data_files + action.actual.files
    assert after.data_files < before.data_files
    assert after.delete_files == after.dangling_delete_files == 0, "every delete applied to a file that was rewritten"
    assert after.records == compacted.recorded.current.rows
    assert after.snapshots == before.snapshots + 1
    assert after.snapshot_id == action.snapshot_id
    assert action.previous_snapshot_id == before.snapshot_id
    assert compact(lakehouse.ours, name, rewrite_all="true").status is Status.SKIPPED, "what it leaves, it leaves alone"
    assert lakehouse.ours.health([str(table_name(name))])[0].snapshot_id == action.snapshot_id

    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    told = snapshot.summary.additional_properties
    assert told["lakehouse-maintenance.action"] == "rewrite_data_files"
    assert told["lakehouse-maintenance.run-id"] == lakehouse.ours.audit(table=str(table_name(name)))[0].run_id
    assert told["lakehouse-maintenance.plan"].startswith("sha256:")


def test_other_refs_and_their_retention_stay(lakehouse: CompactedLakehouse, golden: GoldenLakehouse) -> None:
    identifier = TABLES["db.v2_branches"].identifier
    before = golden.catalog().load_table(identifier).metadata.refs
    after = lakehouse["db.v2_branches"].table.metadata.refs
    assert {name: ref for name, ref in after.items() if name != "main"} == {
        name: ref for name, ref in before.items() if name != "main"
    }
    assert after["main"].snapshot_id != before["main"].snapshot_id


@pytest.mark.parametrize("name", [name for name in readable_by("pyiceberg", COMPACTED) if "v1" not in name])
def test_the_summary_counts_what_is_there(lakehouse: CompactedLakehouse, name: str) -> None:
    table = lakehouse[name].table
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    told = snapshot.summary.additional_properties
    files = table.inspect.files().to_pylist()
    data = [file for file in files if file["content"] == 0]
    assert int(told["total-data-files"]) == len(data)
    assert int(told["total-records"]) == sum(file["record_count"] for file in data)
    assert int(told["total-delete-files"]) == len(files) - len(data) == 0
    assert int(told["total-position-deletes"]) == 0
    assert int(told["total-files-size"]) == sum(file["file_size_in_bytes"] for file in files)


def test_default_options_apply_deletes_and_merge(golden: GoldenLakehouse, tmp_path: Path) -> None:
    ours = open_golden(golden, tmp_path)
    recorded = TABLES["db.v2_mor"]
    _assert_done(compact(ours, "db.v2_mor"))
    table = golden.catalog().load_table(recorded.identifier)
    assert seen(read_pyiceberg(table)) == recorded.current
    health = ours.health(["golden.db.v2_mor"])[0]
    assert (health.data_files, health.delete_files) == (2, 0), "one for each of the two buckets"


@pytest.mark.parametrize("name", ["db.v2_types", "db.v2_branches"])
def test_a_small_target_gives_several_files(golden: GoldenLakehouse, s3: S3Server, tmp_path: Path, name: str) -> None:
    """By runs of neighbouring files: none of these holds enough to be closed at the target."""
    ours = open_golden(golden, tmp_path)
    total = ours.health([f"golden.{name}"])[0].data_bytes
    outcome = compact(ours, name, rewrite_all="true", target_file_size_bytes=str(total // 3))
    _assert_done(outcome)
    assert outcome.actions[0].actual.files > 1
    location = golden.metadata_location(name)
    assert seen(read_duckdb(location, s3.properties)) == TABLES[name].current


def test_the_view_is_no_table(golden: GoldenLakehouse, tmp_path: Path) -> None:
    ours = open_golden(golden, tmp_path)
    assert {str(name) for name in ours.tables()} == {str(table_name(name)) for name in TABLES}


def test_files_that_are_not_parquet_stay_beside_the_rewritten(lakehouse: CompactedLakehouse) -> None:
    paths = [file["file_path"] for file in lakehouse["db.v2_formats"].table.inspect.data_files().to_pylist()]
    assert sorted(path.rpartition(".")[2] for path in paths) == ["avro", "orc", "parquet"]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("sales.orders_2", "s3://golden/elsewhere/orders_2/"),
        ("sales.orders", "s3://golden/wh/sales/orders/data/day_month=2024-02/"),
        ("db.v2_required", "s3://golden/wh/db/v2_required/data/region="),
    ],
)
def test_outputs_lie_where_the_table_wants_them(lakehouse: CompactedLakehouse, name: str, prefix: str) -> None:
    added = added_files(lakehouse[name].table)
    assert added
    assert all(path.startswith(prefix) for path in added), added


@pytest.mark.parametrize("name", [name for name in COMPACTED if name != "db.v2_formats"])
def test_bounds_and_counts_of_outputs_hold(lakehouse: CompactedLakehouse, name: str) -> None:
    """Readers skip files by them: a wrong one loses rows without a word."""
    assert check_statistics(lakehouse[name].table)
