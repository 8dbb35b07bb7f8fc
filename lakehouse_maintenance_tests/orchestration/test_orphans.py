"""Orphan files of a database in Dagster: counted unless the run says otherwise, removed where a policy says so."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dagster as dg
import pytest

from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.naming import ALL_TABLES_SEARCHED
from lakehouse_maintenance_tests.orchestration.lake import Lake, facts

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
KEY = dg.AssetKey(["lakehouse", "main", "db", "orphans"])


def run(lake: Lake, **config: bool) -> dg.ExecuteInProcessResult:
    """Executes the job `orphan_files` on the database `db`."""
    lake.config.write_text(lake.config.read_text().replace('["*"]', '["db"]'))
    job = build_definitions(lake.config).resolve_job_def("orphan_files")
    run_config = {"ops": {"orphans__main__db": {"config": config}}, **QUIET}
    return job.execute_in_process(instance=lake.instance, run_config=run_config, raise_on_error=False)


def told(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    (event,) = [event for event in result.all_events if event.is_step_materialization]
    return facts(event.step_materialization_data.materialization)


def stray(lake: Lake, name: TableName) -> Path:
    """An old file in the table's folder that nothing references."""
    path = lake.folder / "warehouse" / "db" / name.table / "data" / "stray.parquet"
    path.write_bytes(b"12345")
    old = time.time() - 10 * 24 * 3600
    os.utime(path, (old, old))
    return path


def test_files_are_counted_and_go_only_where_the_run_says_so(lake: Lake) -> None:
    one, other = (lake.table_with_small_files(name) for name in ("one", "other"))
    strays = stray(lake, one), stray(lake, other)
    rows = lake.rows(one), lake.rows(other)

    counted = run(lake)
    assert counted.success
    assert all(path.exists() for path in strays)
    shown = told(counted)
    assert (shown["orphan_files"], shown["orphan_bytes"], shown["removed_files"]) == (2, 10, 0)
    assert "main.db.one" in str(shown["orphans"])
    assert "data:image/png" in str(shown["orphans"])

    removed = run(lake, delete=True)
    assert removed.success
    assert not any(path.exists() for path in strays)
    assert told(removed)["removed_files"] == 2
    assert (lake.rows(one), lake.rows(other)) == rows
    assert [check.passed for check in removed.get_asset_check_evaluations()] == [True]


def test_a_table_that_cannot_be_searched_is_a_warning_beside_the_others(lake: Lake) -> None:
    broken = lake.table_with_small_files("broken")
    lake.truncate_metadata(broken)
    ended = run(lake)
    assert ended.success
    (check,) = ended.get_asset_check_evaluations()
    assert (check.check_name, check.passed, check.severity) == (ALL_TABLES_SEARCHED, False, dg.AssetCheckSeverity.WARN)
    assert "main.db.broken" in str(check.metadata["lakehouse_maintenance/failures"].value)


@pytest.mark.parametrize(("policy", "goes"), [("every: 7 days", True), ("every: null", False), ("review: true", False)])
def test_the_schedule_removes_where_the_policy_makes_it_due(lake: Lake, policy: str, goes: bool) -> None:
    path = stray(lake, lake.table_with_small_files("one"))
    lake.config.write_text(
        lake.config.read_text().replace('["*"]', '["db"]') + f"    remove_orphan_files: {{{policy}}}\n"
    )
    definitions = build_definitions(lake.config)
    schedule = definitions.resolve_schedule_def("orphan_files_schedule")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    context = dg.build_schedule_context(instance=lake.instance)
    (request,) = schedule.evaluate_tick(context).run_requests or ()
    ended = definitions.resolve_job_def("orphan_files").execute_in_process(
        instance=lake.instance, run_config={**request.run_config, **QUIET}
    )
    assert ended.success
    assert path.exists() is not goes
    if goes:
        again = stray(lake, TableName("main", ("db",), "one"))
        definitions.resolve_job_def("orphan_files").execute_in_process(
            instance=lake.instance, run_config={**request.run_config, **QUIET}
        )
        assert again.exists(), "it ran a moment ago, and is not due before seven days have passed"
