"""Conformance: after every action on every table that Spark wrote, PyIceberg and DuckDB read what Spark had written.

At the head, at each ref, and at each snapshot that is kept. Spark itself is asked in `test_conformance_spark`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.bounds import check_statistics
from lakehouse_maintenance_tests.engine.conformance import (
    CURRENT,
    TABLES,
    duckdb_sees,
    golden_of,
    kept,
    open_golden,
    pyiceberg_sees,
    readable_by,
    recorded_rows,
)
from lakehouse_maintenance_tests.engine.steps import LIMITS, OTHERWISE, STEPS, take
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse
from lakehouse_maintenance_tests.services.s3 import S3Server

HERE = [step for step in STEPS if step not in ("binpack", "expiry")]
"""Of those two, `test_golden_command_line` and `test_golden_expiry` show the same; `maintain` does both here."""
DELETING = ("metadata and orphans", "maintain")

Lake = tuple[GoldenLakehouse, Lakehouse]


@pytest.fixture(scope="module")
def lake_of(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    """Step → a catalog of the step's own. What an earlier step deleted of the bucket is put back."""
    made: dict[str, Lake] = {}

    def lake(step: str) -> Lake:
        if step not in made:
            folder: Path = tmp_path_factory.mktemp("conformance")
            golden = golden_of(s3, folder)
            made[step] = golden, open_golden(golden, folder, limits=LIMITS)
        return made[step]

    return lake


@pytest.mark.requirement("IM-02", "IM-04", "IM-06", "IM-07", "IM-08", "IM-10", "IM-11")
@pytest.mark.parametrize(("step", "name"), list(product(HERE, TABLES)))
def test_readers_see_what_spark_wrote(lake_of: Callable[[str], Lake], s3: S3Server, step: str, name: str) -> None:
    golden, ours = lake_of(step)
    recorded = TABLES[name]
    before = golden.metadata_location(name)
    outcome = take(ours, name, step)
    table = golden.catalog().load_table(recorded.identifier)
    why = OTHERWISE.get(step, {}).get(name)
    if why:
        assert outcome.status is Status.SKIPPED, outcome
        assert why in outcome.reason
        assert table.metadata_location == before, "nothing is changed"
        return
    assert outcome.status is Status.DONE, outcome
    assert all(action.status is Status.DONE and action.verified for action in outcome.actions), outcome
    wanted = kept(recorded_rows(recorded), table)
    assert set(recorded.refs) <= set(wanted)
    if step != "maintain":
        assert len(wanted) == len(recorded_rows(recorded)), "nothing expired"
    if name in readable_by("duckdb"):
        there = {at: rows for at, rows in wanted.items() if at == CURRENT or isinstance(at, int)}
        assert duckdb_sees(table, recorded, s3, wanted) == there
    if name in readable_by("pyiceberg"):
        # All snapshots where objects were deleted; elsewhere DuckDB reads them all the same, in a quarter of the time.
        places = [at for at in wanted if step in DELETING or not isinstance(at, int)]
        assert pyiceberg_sees(table, recorded, places) == {at: wanted[at] for at in places}
    if step in ("sort", "zorder") and name != "db.v2_formats":
        assert check_statistics(table)
