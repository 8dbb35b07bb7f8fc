"""Tables that Spark wrote, compacted on S3: every snapshot and ref reads as before, in PyIceberg and in DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance_tests.engine.conformance import (
    COMPACTED,
    TABLES,
    compact,
    open_golden,
    pyiceberg_sees,
    readable_by,
    recorded_rows,
)
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse


def _assert_done(outcome: TableOutcome) -> None:
    assert outcome.status is Status.DONE, outcome
    action = outcome.actions[0]
    assert action.verified, action.checks
    assert {check.name for check in action.checks} == {"rows_unchanged", "live_files_present"}


@pytest.mark.parametrize("name", readable_by("pyiceberg", COMPACTED))
def test_pyiceberg_reads_every_snapshot_and_ref_as_before(golden: GoldenLakehouse, tmp_path: Path, name: str) -> None:
    recorded = TABLES[name]
    identifier = recorded.identifier
    assert pyiceberg_sees(golden.catalog().load_table(identifier), recorded) == recorded_rows(recorded)

    _assert_done(compact(open_golden(golden, tmp_path), name, rewrite_all="true"))

    after = golden.catalog().load_table(identifier)
    assert pyiceberg_sees(after, recorded) == recorded_rows(recorded)
    assert {snapshot.snapshot_id for snapshot in after.metadata.snapshots} > set(recorded.snapshots)
