"""Table folders that no table owns, in Dagster: found, reviewed from its interface, removed by its sensor, undone."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse_maintenance.lakehouse import Lakehouse
from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.folders import DatabaseResult, FolderRun, RowStatus
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.reviews import FolderPlan, PlannedFolder, Review, ReviewState
from lakehouse_maintenance.orchestration import reviewed
from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.databases import Database
from lakehouse_maintenance.orchestration.naming import CANDIDATES_REVIEWED
from lakehouse_maintenance.orchestration.reviewed import Cleaned, cleanup_tick
from lakehouse_maintenance.planning.untracked_folders import plan_digest
from lakehouse_maintenance_tests.orchestration.lake import Lake, facts
from lakehouse_maintenance_tests.orchestration.ticking import message, tick

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
SUBJECT = "main.db"
SENSOR = "reviewed_cleanup"
EVENTS = TableName("main", ("db",), "events")
OLD = 10 * 24 * 3600


def key(asset: str, database: str = "db") -> dg.AssetKey:
    return dg.AssetKey(["lakehouse", "main", database, asset])


@pytest.fixture
def folders(lake: Lake) -> Lake:
    """A lakehouse whose database `db` is named, with a table in use; folders of its own make nobody's candidates."""
    lake.config.write_text(lake.config.read_text().replace('["*"]', '["db"]'))
    lake.table_with_small_files("events")
    return lake


def left(lake: Lake, name: str, database: str = "db") -> Path:
    """What a table that was dropped without purge leaves: ten days old, in the database's folder."""
    folder = lake.folder / "warehouse" / database / name
    (folder / "data").mkdir(parents=True)
    for file, content in (("data/1.parquet", b"x" * 100), ("data/2.parquet", b"y" * 50)):
        (folder / file).write_bytes(content)
        old = time.time() - OLD
        os.utime(folder / file, (old, old))
    return folder


def run(lake: Lake, asset: str, *, database: str = "db", **config: object) -> dg.ExecuteInProcessResult:
    """Materializes one of the three assets, as the interface's launchpad does."""
    definitions = build_definitions(lake.config)
    wanted = key(asset, database)
    (made,) = [one for one in definitions.assets or () if isinstance(one, dg.AssetsDefinition) and wanted in one.keys]
    ops = {"ops": {f"{asset}__main__{database}": {"config": config}}} if config else {}
    return dg.materialize(
        [made],
        instance=lake.instance,
        resources=definitions.resources,
        run_config={**QUIET, **ops},
        raise_on_error=False,
    )


def told(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Metadata of the run's one materialization."""
    (event,) = [event for event in result.all_events if event.is_step_materialization]
    return facts(event.step_materialization_data.materialization)


def why_failed(result: dg.ExecuteInProcessResult) -> str:
    (step,) = [event for event in result.all_events if event.is_step_failure]
    data = step.step_failure_data.user_failure_data
    return "" if data is None else data.description or ""


def check_of(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (check,) = result.get_asset_check_evaluations()
    assert check.check_name == CANDIDATES_REVIEWED
    return check


def ours(lake: Lake) -> Lakehouse:
    return Lakehouse.open(lake.config)


def latest(lake: Lake) -> Review:
    review = ours(lake).review_of(SUBJECT)
    assert review is not None
    return review


def path_of(lake: Lake, folder: Path) -> str:
    """The folder as the plan has it."""
    (path,) = [one.path for one in latest(lake).plan.folders if one.path.endswith("/" + folder.name)]
    return path


def requests(result: dg.SensorResult) -> Sequence[dg.RunRequest]:
    return list(result.run_requests or ())


def execute(lake: Lake, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """As the daemon would start it."""
    job = build_definitions(lake.config).resolve_job_def("remove_reviewed_folders")
    return job.execute_in_process(
        instance=lake.instance,
        asset_selection=list(request.asset_selection or ()),
        tags={**request.tags, "dagster/run_key": str(request.run_key)},
        run_config=QUIET,
        raise_on_error=False,
    )


# What was found


def test_a_database_without_candidates_passes(folders: Lake) -> None:
    result = run(folders, "untracked_candidates")
    assert result.success
    assert check_of(result).passed
    found = told(result)
    assert (found["status"], found["candidate_folders"], found["digest"]) == ("SUCCESS", 0, "")
    assert "CLEANUP REPORT" in found["report"]
    gone = run(folders, "removed")
    assert gone.success
    assert (told(gone)["removed_folders"], told(gone)["quarantine_entries"]) == (0, "")


def test_candidates_wait_for_a_review_and_the_check_names_every_one(folders: Lake) -> None:
    one, two = left(folders, "left_one"), left(folders, "left_two")

    result = run(folders, "untracked_candidates")

    assert not result.success, "the check is blocking"
    check = check_of(result)
    assert (check.passed, check.blocking, check.severity) == (False, True, dg.AssetCheckSeverity.ERROR)
    plan = latest(folders).plan
    named = {name.removeprefix("lakehouse_maintenance/"): value.value for name, value in check.metadata.items()}
    assert named["digest"] == plan.digest
    rows = [line for line in str(named["candidates"]).splitlines() if "/left_" in line.replace("&#95;", "_")]
    assert len(rows) == 2
    newest = datetime.fromtimestamp(plan.folders[0].newest_ms / 1000, UTC).isoformat(timespec="seconds")
    for row in rows:
        assert "| 150 |" in row
        assert newest[:16] in row
        assert "no visible table" in row
        assert row.endswith("| pending |")
    found = told(result)
    assert (found["candidate_folders"], found["candidate_objects"], found["candidate_bytes"]) == (2, 4, 300.0)
    assert found["digest"] == plan.digest
    assert "CLEANUP REPORT" in found["report"]
    assert "data:image/png" in found["folders"]
    assert one.exists()
    assert two.exists()


def test_the_approval_of_another_plan_is_none_of_this_one(folders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else reconciles meanwhile, finds the same folder with other content, and that gets approved."""
    left(folders, "left")
    run(folders, "untracked_candidates")
    said = approve(folders)
    other = replace(said, plan=replace(said.plan, digest="sha256:" + "1" * 64))
    assert other.may_go(datetime.now(UTC))
    monkeypatch.setattr(Lakehouse, "review_of", lambda self, database: other)
    assert not check_of(run(folders, "untracked_candidates")).passed


def test_the_check_blocks_what_follows_in_the_same_run(folders: Lake) -> None:
    folder = left(folders, "left")
    definitions = build_definitions(folders.config)
    three = [key(name) for name in ("untracked_candidates", "review", "removed")]
    made = [one for one in definitions.assets or () if isinstance(one, dg.AssetsDefinition) and {*three} & {*one.keys}]
    result = dg.materialize(
        made, instance=folders.instance, resources=definitions.resources, run_config=QUIET, raise_on_error=False
    )
    assert not result.success
    assert {event.asset_key for event in result.all_events if event.is_step_materialization} == {three[0]}
    assert folder.exists()


def test_a_policy_without_review_has_nothing_to_wait_for(folders: Lake) -> None:
    left(folders, "left")
    folders.config.write_text(folders.config.read_text() + "    untracked_folders: {review: false}\n")
    result = run(folders, "untracked_candidates")
    assert result.success
    assert check_of(result).passed
    assert "asks for no review" in (check_of(result).description or "")


# The review


@pytest.mark.requirement("DG-10")
def test_review_from_the_interface_then_removal_then_undo(folders: Lake) -> None:
    one, two = left(folders, "left_one"), left(folders, "left_two")
    before = {path: path.read_bytes() for path in one.rglob("*.parquet")}
    rows = folders.rows(EVENTS)
    run(folders, "untracked_candidates")
    plan = latest(folders).plan

    looked = run(folders, "review")
    assert looked.success
    assert (told(looked)["state"], told(looked)["approved_folders"]) == ("pending", 0)
    assert latest(folders).decisions == (), "without configuration nothing is decided"

    chosen = {"approve": [path_of(folders, one)], "reject": [path_of(folders, two)], "by": "ann", "until": "2 days"}
    said = run(folders, "review", digest=plan.digest, **chosen)
    assert said.success
    shown = told(said)
    assert (shown["state"], shown["digest"], shown["by"]) == ("partly_approved", plan.digest, "ann")
    assert (shown["approved_folders"], shown["rejected_folders"]) == (1, 1)
    review = latest(folders)
    assert review.at is not None
    assert review.until is not None
    assert timedelta(days=2) - timedelta(minutes=5) < review.until - datetime.now(UTC) <= timedelta(days=2)

    gone = run(folders, "removed")
    assert gone.success, why_failed(gone)
    assert not one.exists()
    assert two.exists()
    found = told(gone)
    assert (found["removed_folders"], found["removed_objects"], found["removed_bytes"]) == (1, 2, 150.0)
    assert "CLEANUP REPORT" in found["report"]
    assert found["quarantine_entries"] in found["removed"]
    assert "quarantine restore" in found["removed"]
    assert folders.rows(EVENTS) == rows

    assert ours(folders).restore(found["quarantine_entries"]).ok
    assert {path: path.read_bytes() for path in one.rglob("*.parquet")} == before


def test_all_but_one_are_approved_and_the_check_passes_when_all_are(folders: Lake) -> None:
    for name in ("left_one", "left_two"):
        left(folders, name)
    run(folders, "untracked_candidates")
    plan = latest(folders).plan
    first = plan.folders[0].path
    assert run(folders, "review", digest=plan.digest, approve=["all"], reject=[first], by="ann").success
    assert latest(folders).rejected == (first,)
    assert not check_of(run(folders, "untracked_candidates")).passed
    assert run(folders, "review", digest=plan.digest[:19], approve=["all"], by="ann").success
    again = run(folders, "untracked_candidates")
    assert again.success
    assert check_of(again).passed
    assert run(folders, "review", digest=plan.digest, reject=["all"], by="ben").success
    assert latest(folders).state(datetime.now(UTC)) is ReviewState.REJECTED


@pytest.mark.requirement("DG-10")
@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"approve": ["all"], "by": "ann"}, "names no plan"),
        ({"digest": "sha256:" + "0" * 64, "approve": ["all"], "by": "ann"}, "no plan has the digest"),
        ({"digest": "{}", "approve": ["all"]}, "nobody is named"),
        ({"digest": "{}", "approve": ["file:///elsewhere"], "by": "ann"}, "is not in the plan"),
        ({"digest": "{}", "approve": ["all"], "reject": ["file:///elsewhere"], "by": "ann"}, "is not in the plan"),
        ({"digest": "{}", "approve": ["all"], "until": "yesterday", "by": "ann"}, "is no time"),
        ({"digest": "{}", "approve": ["all"], "until": "2020-01-01", "by": "ann"}, "over already"),
    ],
)
def test_a_review_that_cannot_be_meant_decides_nothing(folders: Lake, config: dict[str, Any], named: str) -> None:
    left(folders, "left")
    run(folders, "untracked_candidates")
    digest = latest(folders).plan.digest
    filled = {**config, **({"digest": config["digest"].format(digest)} if "digest" in config else {})}
    result = run(folders, "review", **filled)
    assert not result.success
    assert named in why_failed(result)
    assert latest(folders).decisions == ()


@pytest.mark.parametrize("wrong", [{"approve": ["file:///elsewhere"]}, {"until": "2020-01-01"}, {"by": " "}])
def test_of_two_words_neither_is_recorded_where_one_is_wrong(folders: Lake, wrong: dict[str, Any]) -> None:
    one, two = left(folders, "left_one"), left(folders, "left_two")
    run(folders, "untracked_candidates")
    words = {"approve": [path_of(folders, one)], "reject": [path_of(folders, two)], "by": "ann"}
    result = run(folders, "review", digest=latest(folders).plan.digest, **{**words, **wrong})
    assert not result.success
    assert latest(folders).decisions == ()


def test_a_folder_is_not_approved_and_rejected_at_once(folders: Lake) -> None:
    path = path_of_one(folders)
    result = run(folders, "review", digest=latest(folders).plan.digest, approve=[path], reject=[path], by="ann")
    assert "approved and rejected at once" in why_failed(result)
    assert latest(folders).decisions == ()


def path_of_one(lake: Lake) -> str:
    """Of the one candidate that there is now."""
    folder = left(lake, "left")
    run(lake, "untracked_candidates")
    return path_of(lake, folder)


def test_the_plan_of_another_database_is_refused(folders: Lake) -> None:
    folders.config.write_text(folders.config.read_text().replace('["db"]', '["db", "other"]'))
    folders.catalog.create_namespace("other")
    folders.catalog.create_table(("other", "t"), folders.catalog.load_table(("db", "events")).schema())
    left(folders, "left", "other")
    run(folders, "untracked_candidates", database="other")
    review = ours(folders).review_of("main.other")
    assert review is not None
    result = run(folders, "review", digest=review.plan.digest, approve=["all"], by="ann")
    assert "is not of main.db alone" in why_failed(result)
    assert ours(folders).review_of("main.other") == review


# Removal


def approve(lake: Lake, *, until: datetime | None = None, now: datetime | None = None) -> Review:
    """As somebody said it at another time."""
    review = latest(lake)
    moment = now or datetime.now(UTC)
    (said,) = ours(lake).state.reviews.approve(review.plan.digest, None, by="ann", until=until, now=moment)
    return said


def nothing_goes(lake: Lake, folder: Path) -> None:
    """Neither the step, started by hand, nor the sensor removes anything."""
    gone = run(lake, "removed")
    assert folder.exists()
    assert (folder / "data" / "1.parquet").read_bytes() == b"x" * 100
    if gone.success:
        assert told(gone)["removed_folders"] == 0
    assert requests(tick(lake, SENSOR)) == []
    assert ours(lake).quarantined() == []


@pytest.mark.requirement("DG-07")
def test_the_sensor_starts_removal_of_what_was_approved_once(folders: Lake) -> None:
    folder = left(folders, "left")
    sensor = build_definitions(folders.config).get_repository_def().get_sensor_def(SENSOR)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert "may delete" in (sensor.description or "")
    assert requests(tick(folders, SENSOR)) == []
    run(folders, "untracked_candidates")
    waiting = tick(folders, SENSOR)
    assert requests(waiting) == []
    assert "main.db: 1 candidates wait for a review" in message(waiting)

    said = approve(folders)
    assert said.at is not None
    (request,) = requests(tick(folders, SENSOR))
    assert request.run_key == f"untracked_folders:main.db:{said.plan.digest}:{said.at.isoformat()}"
    assert request.asset_selection == [key("removed")]
    assert request.tags["lakehouse_maintenance/database"] == SUBJECT
    assert folder.exists(), "the tick itself removes nothing"
    ended = execute(folders, request)
    assert ended.success, why_failed(ended)
    assert not folder.exists()
    assert requests(tick(folders, SENSOR)) == []
    assert [entry.entry.path for entry in ours(folders).quarantined()] == [said.plan.folders[0].path]


@pytest.mark.requirement("DG-07")
def test_without_a_word_nothing_goes(folders: Lake) -> None:
    folder = left(folders, "left")
    run(folders, "untracked_candidates")
    nothing_goes(folders, folder)


@pytest.mark.requirement("DG-07")
def test_an_expired_approval_removes_nothing(folders: Lake) -> None:
    folder = left(folders, "left")
    run(folders, "untracked_candidates")
    yesterday = datetime.now(UTC) - timedelta(days=1)
    approve(folders, now=yesterday, until=yesterday + timedelta(hours=1))
    nothing_goes(folders, folder)
    assert "has expired" in message(tick(folders, SENSOR))


@pytest.mark.requirement("DG-07")
def test_an_approval_of_a_superseded_plan_removes_nothing(folders: Lake) -> None:
    folder = left(folders, "left")
    run(folders, "untracked_candidates")
    approve(folders)
    left(folders, "another")
    run(folders, "untracked_candidates")
    nothing_goes(folders, folder)
    assert "2 candidates wait for a review" in message(tick(folders, SENSOR))


@pytest.mark.requirement("DG-07")
def test_a_rejection_takes_the_approval_back(folders: Lake) -> None:
    folder = left(folders, "left")
    run(folders, "untracked_candidates")
    digest = approve(folders).plan.digest
    assert run(folders, "review", digest=digest, reject=["all"], by="ben").success
    nothing_goes(folders, folder)
    assert "were rejected" in message(tick(folders, SENSOR))


@pytest.mark.requirement("DG-07")
def test_a_folder_that_is_not_what_was_approved_any_more_stays(folders: Lake) -> None:
    """The plan's digest does not match any more when the step looks again."""
    folder = left(folders, "left")
    run(folders, "untracked_candidates")
    approve(folders)
    (request,) = requests(tick(folders, SENSOR))
    new = folder / "data" / "3.parquet"
    new.write_bytes(b"z")
    old = time.time() - OLD
    os.utime(new, (old, old))
    execute(folders, request)
    assert sorted(path.name for path in folder.rglob("*.parquet")) == ["1.parquet", "2.parquet", "3.parquet"]
    assert ours(folders).quarantined() == []


def test_a_new_approval_starts_another_run(folders: Lake) -> None:
    one, two = left(folders, "left_one"), left(folders, "left_two")
    run(folders, "untracked_candidates")
    digest = latest(folders).plan.digest
    assert run(folders, "review", digest=digest, approve=[path_of(folders, one)], by="ann").success
    (first,) = requests(tick(folders, SENSOR))
    assert execute(folders, first).success
    assert (one.exists(), two.exists()) == (False, True)
    run(folders, "untracked_candidates")
    digest = latest(folders).plan.digest
    assert run(folders, "review", digest=digest, approve=[path_of(folders, two)], by="ann").success
    (second,) = requests(tick(folders, SENSOR))
    assert second.run_key != first.run_key
    assert execute(folders, second).success
    assert not two.exists()


# Ticks over many databases


def judged(lake: Lake, cursor: str | None = None, **given: Any) -> Cleaned:
    return cleanup_tick(ours(lake), cursor, **{"now": datetime.now(UTC), **given})


def approved_plans(lake: Lake, number: int) -> list[Database]:
    """So many databases with an approved plan each, in the state alone."""
    names = [f"d{at:03}" for at in range(number)]
    lake.config.write_text(lake.config.read_text().replace('["db"]', f"[{', '.join(names)}]"))
    reviews = ours(lake).state.reviews
    now = datetime.now(UTC)
    for name in names:
        entries = (PlannedFolder(f"file:///{name}/left", 1, 1, 1),)
        digest = plan_digest(f"main.{name}", entries)
        assert digest is not None
        reviews.record(FolderPlan(digest, f"main.{name}", now, "r", entries))
        reviews.approve(digest, None, by="ann", now=now)
    return [Database("main", (name,)) for name in names]


def test_a_tick_asks_for_fifty_runs_and_the_next_goes_on(folders: Lake) -> None:
    databases = approved_plans(folders, 60)
    first = judged(folders)
    assert [one.database for one in first.wanted] == databases[:50]
    assert first.cursor == "main.d049"
    second = judged(folders, first.cursor)
    assert [one.database for one in second.wanted] == [*databases[50:], *databases[:40]]
    started = {one.run_key: "run r of this turn is STARTED" for one in first.wanted}
    third = judged(folders, first.cursor, find_runs=lambda keys: {k: started[k] for k in keys if k in started})
    assert [one.database for one in third.wanted] == databases[50:]
    assert third.cursor == ""
    assert "run r of this turn is STARTED" in third.message()


def test_a_tick_ends_in_time_and_one_database_stops_no_other(folders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    databases = approved_plans(folders, 3)
    assert [one.database for one in judged(folders, seconds=-1).wanted] == databases[:1]
    real = Lakehouse.review_of

    def review_of(self: Lakehouse, database: str) -> Review | None:
        if database == "main.d001":
            raise StorageError("it is damaged")
        return real(self, database)

    monkeypatch.setattr(Lakehouse, "review_of", review_of)
    found = judged(folders)
    assert [one.database for one in found.wanted] == [databases[0], databases[2]]
    assert "main.d001: it is damaged" in found.message()


def test_a_policy_without_review_is_not_the_sensors(folders: Lake) -> None:
    approved_plans(folders, 1)
    folders.config.write_text(folders.config.read_text() + "    untracked_folders: {review: false}\n")
    found = judged(folders)
    assert found.wanted == []
    assert "asks for no review" in found.message()


# How a step ends


@pytest.mark.parametrize("asset", ["untracked_candidates", "removed"])
@pytest.mark.parametrize("how", ["failed", "audit lost"])
def test_a_failed_database_and_a_lost_audit_fail_the_step(
    folders: Lake, monkeypatch: pytest.MonkeyPatch, asset: str, how: str
) -> None:
    left(folders, "left")
    method = {"untracked_candidates": "reconcile", "removed": "remove_folders"}[asset]
    real = getattr(Lakehouse, method)

    def broken(self: Lakehouse, database: str, *, run_id: str | None = None) -> FolderRun:
        found: FolderRun = real(self, database, run_id=run_id)
        if how == "audit lost":
            return replace(found, is_audit_lost=True)
        (one,) = found.databases
        row = replace(one.row, status=RowStatus.FAILED, status_reason="unexpected_error", error_message="no listing")
        return replace(found, databases=(DatabaseResult(row),))

    monkeypatch.setattr(Lakehouse, method, broken)
    result = run(folders, asset)
    assert not result.success
    assert ("unexpected_error: no listing" if how == "failed" else "audit row") in why_failed(result)
    assert not any(event.is_step_materialization for event in result.all_events)


# The job


def test_the_job_reconciles_every_database_where_no_file_is_named(folders: Lake) -> None:
    folder = left(folders, "left")
    definitions = build_definitions(folders.config)
    schedule = definitions.resolve_schedule_def("untracked_table_folders_schedule")
    assert (schedule.cron_schedule, schedule.default_status) == ("0 3 * * *", dg.DefaultScheduleStatus.STOPPED)
    job = definitions.resolve_job_def("untracked_table_folders")
    result = job.execute_in_process(instance=folders.instance, run_config=QUIET, raise_on_error=False)
    assert told(result)["candidate_folders"] == 1
    assert folder.exists()


def with_file(lake: Lake, **fields: object) -> None:
    (lake.folder / "application.json").write_text(json.dumps({"catalog": "main", "databases": ["db"], **fields}))
    job = "{file: application.json, schedule: '5 4 * * *'}"
    lake.config.write_text(lake.config.read_text() + f"jobs: {{untracked_table_folders: {job}}}\n")


@pytest.mark.parametrize("deletes", [False, True])
def test_the_job_runs_the_file_by_its_own_rules(folders: Lake, deletes: bool) -> None:
    folder = left(folders, "left")
    with_file(folders, dry_run=not deletes, delete_enabled=deletes)
    definitions = build_definitions(folders.config)
    schedule = definitions.resolve_schedule_def("untracked_table_folders_schedule")
    assert (schedule.cron_schedule, schedule.default_status) == ("5 4 * * *", dg.DefaultScheduleStatus.STOPPED)
    job = definitions.resolve_job_def("untracked_table_folders")
    result = job.execute_in_process(instance=folders.instance, run_config=QUIET, raise_on_error=False)
    assert result.success
    (event,) = [event for event in result.all_events if event.is_step_materialization]
    assert event.asset_key == key("untracked_candidates")
    found = told(result)
    assert found["candidate_folders"] == 1
    assert "CLEANUP REPORT" in found["report"]
    assert folder.exists() is not deletes


def test_a_wrong_file_is_named(folders: Lake) -> None:
    with_file(folders, dryrun=True)
    job = build_definitions(folders.config).resolve_job_def("untracked_table_folders")
    result = job.execute_in_process(instance=folders.instance, run_config=QUIET, raise_on_error=False)
    assert re.search("dryrun.*dry_run", why_failed(result), re.DOTALL)


def test_names_are_static_and_whole_catalogs_have_none(tmp_path: Path) -> None:
    config = tmp_path / "lakehouse.yaml"
    config.write_text(
        'catalogs: {main: {type: rest, uri: "http://127.0.0.1:9"}, whole: {type: rest, uri: "http://127.0.0.1:9"}}\n'
        'databases: {main: [sales, "we/ird é"], whole: ["*"]}\n'
    )
    definitions = build_definitions(config)
    graph = definitions.resolve_asset_graph()
    found = {found.to_user_string() for found in graph.get_all_asset_keys()}
    assert {f"lakehouse/main/sales/{name}" for name in ("untracked_candidates", "review", "removed")} < found
    assert not any(name.startswith("lakehouse/whole/") for name in found)
    repository = definitions.get_repository_def()
    assert {sensor.name for sensor in repository.sensor_defs} >= {SENSOR}
    assert reviewed.MOST_REQUESTS == 50
