"""The three assets on real tables, in a real instance."""

from __future__ import annotations

import json
from datetime import timedelta

import dagster as dg
import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.local import PartitionRun, maintain_with_dagster
from lakehouse_maintenance.orchestration.naming import HEALTHY, LIVE_FILES_PRESENT, MAINTAINED_KEY, ROWS_UNCHANGED
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME, register
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.orchestration.lake import COMMITS, PARTITIONS, Lake, facts

HOSTILE = "we.ird \"'`|<b>%2E…ü"
FILES = PARTITIONS * COMMITS
STEP_OF = "lakehouse__{}".format


def run(
    lake: Lake, name: TableName, assets: str = "*", config: dict[str, object] | None = None
) -> dg.ExecuteInProcessResult:
    """Materializes some of the assets of one table, in this process."""
    definitions = build_definitions(lake.config)
    selection = dg.AssetSelection.all() if assets == "*" else dg.AssetSelection.assets(f"lakehouse/{assets}")
    chosen = selection.resolve(definitions.resolve_asset_graph())
    return dg.materialize(
        [asset for asset in definitions.assets or () if asset.key in chosen],
        instance=lake.instance,
        resources=definitions.resources,
        partition_key=name.partition_key,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}, **(config or {})},
        raise_on_error=False,
    )


def failure(result: dg.ExecuteInProcessResult, step: str) -> dg.Failure:
    """The failure of a step, as the event log keeps it."""
    data = result.failure_data_for_node(STEP_OF(step))
    assert data is not None
    assert data.user_failure_data is not None
    return data.user_failure_data


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Check → passed, of one run."""
    return {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}


def test_a_sick_table_gets_well_and_then_is_left_alone(lake: Lake) -> None:
    name = lake.table_with_small_files()
    rows = lake.rows(name)
    register(lake.instance, [name])

    first = run(lake, name)

    assert first.success
    assert checks(first) == {HEALTHY: True, ROWS_UNCHANGED: True, LIVE_FILES_PRESENT: True}
    assert lake.rows(name) == rows
    assert len(lake.catalog.load_table(name.identifier).inspect.data_files()) == PARTITIONS

    state, plan, maintained = (lake.latest(asset, name) for asset in ("state", "plan", "maintained"))
    assert facts(state)["data_files"] == FILES
    assert state.metadata["dagster/row_count"].value == len(rows)
    assert state.metadata["dagster/table_name"].value == str(name)
    assert state.metadata["dagster/uri"].value == lake.catalog.load_table(name.identifier).location()
    assert facts(plan)["expected_files"] == PARTITIONS
    assert "rewrite_data_files" in str(facts(plan)["plan"])
    assert facts(plan)["digest"] == facts(maintained)["digest"] == plan.tags["dagster/data_version"]
    assert facts(maintained)["status"] == "done"
    assert (facts(maintained)["expected_files"], facts(maintained)["actual_files"]) == (PARTITIONS, PARTITIONS)
    assert "| expected | actual |" in str(facts(maintained)["outcome"])
    head = lake.catalog.load_table(name.identifier).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["lakehouse-maintenance.run-id"] == first.run_id
    assert facts(maintained)["snapshot_id"] == str(head.snapshot_id)

    second = run(lake, name)

    assert second.success
    assert facts(lake.latest("maintained", name))["status"] == "skipped"
    assert "not due" in str(facts(lake.latest("maintained", name))["reason"])
    assert checks(second) == {HEALTHY: True, ROWS_UNCHANGED: True, LIVE_FILES_PRESENT: True}
    assert lake.catalog.load_table(name.identifier).current_snapshot() == head


def test_the_data_version_of_the_state_moves_with_the_table_alone(lake: Lake) -> None:
    import pyarrow as pa

    name = lake.table_with_small_files()
    register(lake.instance, [name])
    for _ in range(2):
        assert run(lake, name, "maintenance_state").success
    table = lake.catalog.load_table(name.identifier)
    table.append(pa.table({"id": pa.array([99], pa.int64()), "kind": ["k1"]}))
    assert run(lake, name, "maintenance_state").success

    versions = [made.tags["dagster/data_version"] for made in lake.materializations("state", name)]

    assert versions[0] != versions[1] == versions[2]


def test_one_table_fails_alone_and_hostile_names_are_tables_like_others(lake: Lake) -> None:
    broken, hostile = lake.table_with_small_files("broken"), lake.table_with_small_files(HOSTILE)
    lake.truncate_metadata(broken)
    heard: list[PartitionRun] = []

    runs = maintain_with_dagster(lake.config, lake.instance, [broken, hostile], heard.append)

    assert heard == list(runs.values())
    assert not runs[broken].ok
    assert runs[broken].status is Status.FAILED
    assert runs[broken].step == STEP_OF("maintenance_state")
    assert str(broken) in runs[broken].reason
    assert runs[hostile].ok
    assert runs[hostile].status is Status.DONE
    assert set(lake.instance.get_dynamic_partitions(TABLES_NAME)) == {broken.partition_key, hostile.partition_key}
    assert lake.latest("maintained", hostile).metadata["dagster/table_name"].value == str(hostile)
    assert "<b>" not in str(facts(lake.latest("maintained", hostile))["outcome"])


def test_a_held_lease_blocks_and_the_failure_names_the_holder(lake: Lake) -> None:
    name = lake.table_with_small_files()
    head = lake.catalog.load_table(name.identifier).current_snapshot()
    register(lake.instance, [name])
    leases = open_state(str(lake.folder / ".lakehouse-maintenance")).leases

    with leases.acquire(str(name), run_id="other-run", owner="nightly@worker-7", ttl=timedelta(minutes=5)):
        result = run(lake, name)

    assert not result.success
    told = failure(result, "maintained")
    assert "nightly@worker-7" in (told.description or "")
    assert told.metadata["lakehouse_maintenance/status"].value == "blocked"
    assert ROWS_UNCHANGED not in checks(result), "nothing was verified, so nothing may look verified"
    assert lake.catalog.load_table(name.identifier).current_snapshot() == head


def test_a_dry_run_and_named_actions_come_from_the_run_s_configuration(lake: Lake) -> None:
    name = lake.table_with_small_files()
    head = lake.catalog.load_table(name.identifier).current_snapshot()
    register(lake.instance, [name])
    ops = {
        STEP_OF("maintenance_plan"): {"config": {"actions": ["rewrite_data_files"]}},
        STEP_OF("maintained"): {"config": {"dry_run": True}},
    }

    assert run(lake, name, config={"ops": ops}).success

    assert "requested" in str(facts(lake.latest("plan", name))["plan"])
    assert "dry run" in str(facts(lake.latest("maintained", name))["reason"])
    assert lake.catalog.load_table(name.identifier).current_snapshot() == head


def test_only_the_plan_that_was_shown_is_applied(lake: Lake) -> None:
    name = lake.table_with_small_files()
    head = lake.catalog.load_table(name.identifier).current_snapshot()
    register(lake.instance, [name])
    state = open_state(str(lake.folder / ".lakehouse-maintenance"))
    key = f"plans/{name}"

    without = run(lake, name, "maintained")
    assert "no plan was made" in (failure(without, "maintained").description or "")

    assert run(lake, name, "maintenance_plan").success
    shown, version = state.get(key) or (b"", "")
    other = json.loads(shown)
    other["tables"][0]["actions"][0]["options"]["target-file-size-bytes"] = "1"
    assert (version := state.put(key, json.dumps(other).encode(), version) or "")
    changed = run(lake, name, "maintained")
    assert "does not fit its digest" in (failure(changed, "maintained").description or "")

    empty = {"format": other["format"], "created_at": other["created_at"], "tables": []}
    from lakehouse_maintenance.model.plans import Plan

    empty["digest"] = Plan("", ()).digest
    assert (version := state.put(key, json.dumps(empty).encode(), version) or "")
    newer = run(lake, name, "maintained")
    assert "planned again meanwhile" in (failure(newer, "maintained").description or "")
    assert lake.catalog.load_table(name.identifier).current_snapshot() == head

    assert state.put(key, shown, version)
    assert run(lake, name, "maintained").success
    assert facts(lake.latest("maintained", name))["status"] == "done"


def test_a_failed_verification_fails_the_check_and_the_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse_maintenance.execution import rewriting_commit
    from lakehouse_maintenance.model.outcomes import Check

    name = lake.table_with_small_files()
    register(lake.instance, [name])
    found = (Check(ROWS_UNCHANGED, True, "as before"), Check(LIVE_FILES_PRESENT, False, "1 of 16 files is missing"))
    monkeypatch.setattr(rewriting_commit, "verify_rewrite", lambda *_: found)

    result = run(lake, name)

    assert not result.success
    assert checks(result) == {HEALTHY: True, ROWS_UNCHANGED: True, LIVE_FILES_PRESENT: False}
    assert "roll back to snapshot" in (failure(result, "maintained").description or "")
    assert failure(result, "maintained").metadata["lakehouse_maintenance/status"].value == "failed"
    assert lake.materializations("maintained", name) == []
    assert MAINTAINED_KEY not in {event.asset_key for event in result.get_asset_materialization_events()}


def test_the_registering_job_adds_new_tables_and_drops_none(lake: Lake) -> None:
    names = [lake.table_with_small_files(table) for table in ("one", "two")]
    lake.instance.add_dynamic_partitions(TABLES_NAME, ["main.db.gone"])
    job = build_definitions(lake.config).resolve_job_def("register_tables")
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

    for _ in range(2):
        assert job.execute_in_process(instance=lake.instance, run_config=quiet).success

    expected = {"main.db.gone", *(name.partition_key for name in names)}
    assert set(lake.instance.get_dynamic_partitions(TABLES_NAME)) == expected


def test_the_registering_job_fails_and_adds_nothing_where_a_catalog_is_away(lake: Lake) -> None:
    lake.config.write_text(
        "catalogs:\n  away: {type: rest, uri: 'http://127.0.0.1:9'}\n  main: {type: sql, uri: 'sqlite:///main.db'}\n"
    )
    lake.table_with_small_files()
    job = build_definitions(lake.config).resolve_job_def("register_tables")
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

    result = job.execute_in_process(instance=lake.instance, run_config=quiet, raise_on_error=False)

    assert not result.success
    data = result.failure_data_for_node("add_table_partitions")
    assert data is not None
    assert data.user_failure_data is not None
    assert "away" in (data.user_failure_data.description or "")
    assert lake.instance.get_dynamic_partitions(TABLES_NAME) == []
