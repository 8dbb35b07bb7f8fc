"""The threshold sensor: what it starts, what it does not, and what it says of that."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._grpc.client import DEFAULT_SENSOR_GRPC_TIMEOUT

from lakehouse_maintenance.lakehouse import Lakehouse
from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration import looking, thresholds
from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.jobs import RETRIES
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME, register
from lakehouse_maintenance.orchestration.thresholds import Ticked, threshold_tick
from lakehouse_maintenance_tests.orchestration.lake import Lake
from lakehouse_maintenance_tests.orchestration.ticking import (
    copies,
    counting,
    message,
    point,
    requested,
    run,
    tick,
)

THRESHOLDS = "table_thresholds"
DAY_MS = 24 * 3_600_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time that ticks, plans and runs see, milliseconds since 1970; a test moves it on."""
    now = [int(datetime.now(UTC).timestamp() * 1000)]
    for module in ("clock", "making", "expiring", "rewriting", "running", "deleting"):
        monkeypatch.setattr(f"lakehouse_maintenance.execution.{module}.now_ms", lambda: now[0], raising=False)
    return now


def policies(lake: Lake, text: str) -> None:
    """More lines below `policies.default`."""
    lake.config.write_text(lake.config.read_text() + "".join(f"    {line}\n" for line in text.splitlines()))


def registered(lake: Lake, *tables: str) -> list[TableName]:
    """Sick tables with partitions."""
    names = [lake.table_with_small_files(table) for table in tables]
    register(lake.instance, names)
    return names


def judged(lake: Lake, cursor: str | None = None, **given: object) -> Ticked:
    """A tick without Dagster's context."""
    keys = lake.instance.get_dynamic_partitions(TABLES_NAME)
    now = int(datetime.now(UTC).timestamp() * 1000)
    return threshold_tick(Lakehouse.open(lake.config), keys, cursor, **{"now_ms": now, **given})  # type: ignore[arg-type]


def test_both_sensors_are_off_until_somebody_switches_them_on(lake: Lake) -> None:
    repository = build_definitions(lake.config).get_repository_def()

    assert {sensor.name for sensor in repository.sensor_defs} == {"discover_tables", "table_thresholds"}
    for sensor in repository.sensor_defs:
        assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
        assert sensor.description


def test_a_tick_gives_its_connections_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Lakehouse] = []
    closed: list[Lakehouse] = []
    real_open, real_close = Lakehouse.open.__func__, Lakehouse.close  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Lakehouse, "open", classmethod(lambda cls, *a, **k: opened.append(real_open(cls, *a, **k)) or opened[-1])
    )
    monkeypatch.setattr(Lakehouse, "close", lambda self: (closed.append(self), real_close(self))[1])
    registered(lake, "events")

    for sensor in ("discover_tables", THRESHOLDS):
        tick(lake, sensor)

    assert len(opened) == 2
    assert closed == opened


def test_a_sick_table_gets_one_run_and_then_none(lake: Lake) -> None:
    (name,) = registered(lake, "events")
    rows = lake.rows(name)

    first = tick(lake, THRESHOLDS)
    (request,) = first.run_requests or ()
    head = lake.catalog.load_table(name.identifier).current_snapshot()
    assert head is not None
    assert request.partition_key == name.partition_key
    assert request.run_key == f"rewrite_data_files:{name}:{head.snapshot_id}:{head.timestamp_ms}"
    assert request.tags["lakehouse_maintenance/table"] == str(name)
    assert request.tags["lakehouse_maintenance/action"] == "rewrite_data_files"
    dg.validate_run_config(build_definitions(lake.config).resolve_job_def("maintain_tables"), request.run_config)
    assert requested(tick(lake, THRESHOLDS)) == requested(first), "until a run with this key exists"

    (result,) = run(lake, first)
    assert result.success
    second = tick(lake, THRESHOLDS)

    assert requested(second) == {}
    assert "nothing to start" in message(second)
    assert lake.rows(name) == rows


def test_an_expiry_runs_alone_and_its_outcome_is_shown(lake: Lake) -> None:
    trigger = "trigger: {of: expired_snapshots, base: 1}"
    policies(lake, f"expire_snapshots: {{older_than: 0s, retain_last: 1, allow_short_retention: true, {trigger}}}")
    lake.config.write_text(lake.config.read_text().replace("options: {min-input-files: 2}", "trigger: []"))
    (name,) = registered(lake, "events")

    first = tick(lake, THRESHOLDS)
    (result,) = run(lake, first)

    assert next(iter(requested(first).values())).startswith(f"expire_snapshots:{name}:")
    assert result.success
    assert all(check.passed for check in result.get_asset_check_evaluations())
    assert len(lake.catalog.load_table(name.identifier).snapshots()) == 1
    outcome = str(lake.latest("maintained", name).metadata["lakehouse_maintenance/outcome"].value)
    assert "| snapshots let go |" in outcome
    assert requested(tick(lake, THRESHOLDS)) == {}


def test_a_quiet_table_gets_its_next_turn_when_it_is_due(lake: Lake, clock: list[int]) -> None:
    policies(lake, "expire_snapshots: {older_than: 2 days, retain_last: 1, trigger: {of: expired_snapshots, base: 1}}")
    lake.config.write_text(lake.config.read_text().replace("options: {min-input-files: 2}", "trigger: []"))
    (name,) = registered(lake, "events")
    born = [snapshot.timestamp_ms for snapshot in lake.catalog.load_table(name.identifier).snapshots()]

    assert requested(tick(lake, THRESHOLDS)) == {}
    with counting() as calls:
        clock[0] = born[0] + 2 * DAY_MS
        assert requested(tick(lake, THRESHOLDS)) == {}
    assert calls == Counter(catalog=1), "an unchanged table costs nothing"

    clock[0] = born[0] + 2 * DAY_MS + 1
    first = tick(lake, THRESHOLDS)
    assert list(requested(first).values()) == [
        f"expire_snapshots:{name}:{lake.catalog.load_table(name.identifier).current_snapshot().snapshot_id}:{clock[0]}"  # type: ignore[union-attr]
    ]
    assert all(result.success for result in run(lake, first))
    assert requested(tick(lake, THRESHOLDS)) == {}

    table = lake.catalog.load_table(name.identifier)
    with table.manage_snapshots() as manage:
        manage.create_tag(table.snapshots()[0].snapshot_id, "kept", max_ref_age_ms=30 * DAY_MS)
    assert len(table.snapshots()) == 1
    assert requested(tick(lake, THRESHOLDS)) == {}


def test_a_run_that_failed_gets_its_next_turn_and_the_message_says_why(lake: Lake, clock: list[int]) -> None:
    (name,) = registered(lake, "events")
    first = tick(lake, THRESHOLDS)
    key = requested(first)[name.partition_key]
    lake.instance.add_run(
        dg.DagsterRun(
            job_name="maintain_tables",
            run_id="0" * 36,
            status=dg.DagsterRunStatus.FAILURE,
            tags={"dagster/run_key": key, "dagster/partition": name.partition_key},
        )
    )

    told = message(tick(lake, THRESHOLDS))
    assert "FAILURE" in told
    assert "rewrite_data_files is due" in told

    clock[0] += 2 * 3_600_000
    again = requested(tick(lake, THRESHOLDS))
    assert again.keys() == {name.partition_key}
    assert again[name.partition_key] != key


def test_a_run_in_flight_keeps_the_table_from_a_second_one(lake: Lake) -> None:
    (name,) = registered(lake, "events")
    assert requested(tick(lake, THRESHOLDS))
    lake.instance.add_run(
        dg.DagsterRun(
            job_name="__ASSET_JOB",
            run_id="1" * 36,
            status=dg.DagsterRunStatus.STARTED,
            tags={"dagster/partition": name.partition_key},
        )
    )

    told = message(tick(lake, THRESHOLDS))

    assert f"{name}: a run of it is queued or under way" in told


def test_a_held_lease_a_closed_window_and_a_cooldown_are_said(lake: Lake) -> None:
    name, _ = registered(lake, "events", "other")
    now = datetime.now(UTC)
    closed = f"{(now.hour + 6) % 24:02}:00"
    lake.config.write_text(
        lake.config.read_text()
        + f'  tables: {{main.db.other: {{window: {{start: "{closed}", duration: 1h, timezone: UTC}}}}}}\n'
    )
    lakehouse = Lakehouse.open(lake.config)

    ttl = timedelta(minutes=5)
    with lakehouse.state.leases.acquire(str(name), run_id="r", owner="nightly@worker-7", ttl=ttl):
        told = message(tick(lake, THRESHOLDS))

    assert "nightly@worker-7" in told
    assert f"its maintenance window is closed (it opens at {closed} UTC)" in told
    assert requested(tick(lake, THRESHOLDS)).keys() == {name.partition_key}

    lakehouse._memory.ran(str(name), "rewrite_data_files", int(now.timestamp() * 1000))
    lake.catalog.load_table(name.identifier).append(lake.catalog.load_table(name.identifier).scan().to_arrow())
    assert "the cooldown is 1 hour" in message(tick(lake, THRESHOLDS))


def test_the_budget_goes_to_the_best_gain_for_its_cost(lake: Lake) -> None:
    many, few = registered(lake, "many", "few")
    table = lake.catalog.load_table(many.identifier)
    table.append(table.scan().to_arrow())
    sizes = {
        name: sum(lake.catalog.load_table(name.identifier).inspect.data_files()["file_size_in_bytes"].to_pylist())
        for name in (many, few)
    }
    policies(lake, f"budget: {{bytes_per_day: {sizes[many] + 10}}}")

    ticked = judged(lake)

    assert [wanted.table for wanted in ticked.wanted] == [many]
    (left,) = ticked.not_started
    assert left.table == few
    assert "budget" in left.why
    # What a run was started for counts as spent while the run is under way.
    assert judged(lake, in_flight={many.partition_key}).wanted == []


def test_a_tick_starts_fifty_runs_at_most_and_the_next_one_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(lake, "a", "b", "c")
    assert thresholds.MOST_REQUESTS == 50
    monkeypatch.setattr(thresholds, "MOST_REQUESTS", 2)

    first = judged(lake)
    second = judged(lake, find_runs=lambda keys: {w.run_key: "it runs" for w in first.wanted if w.run_key in keys})

    assert (len(first.wanted), first.waiting) == (2, 1)
    assert "1 more are due and wait for the next tick" in first.message()
    assert len(second.wanted) == 1
    assert {w.table for w in first.wanted} | {w.table for w in second.wanted} == {
        TableName("main", ("db",), t) for t in "abc"
    }


def test_one_broken_table_and_one_catalog_out_of_reach_stop_nobody(lake: Lake) -> None:
    sick, broken = registered(lake, "sick", "broken")
    lake.truncate_metadata(broken)
    lake.config.write_text(
        lake.config.read_text()
        .replace("catalogs:\n", "catalogs:\n  away: {type: sql, uri: 'sqlite:///no.db', warehouse: w}\n")
        .replace('databases: {main: ["*"]}', 'databases: {main: [db], away: ["*"]}')
    )
    elsewhere = [
        TableName("away", ("x",), "y"),
        TableName("main", ("unlisted",), "y"),
        TableName("main", ("db",), "no"),
    ]
    register(lake.instance, elsewhere)
    lake.instance.add_dynamic_partitions(TABLES_NAME, ["no-table-at-all"])

    ticked = judged(lake)

    assert [wanted.table for wanted in ticked.wanted] == [sick]
    told = ticked.message()
    assert f"{broken}: cannot be measured" in told
    assert "no.db" in told
    assert "main.db does not have, such as main.db.no" in told
    assert "keys of no table" in told
    assert "unlisted" not in told
    again = judged(lake)
    assert again.looked == 0, "a table that cannot be read is tried again later"


def test_a_damaged_memory_or_cursor_costs_a_look_and_nothing_else(lake: Lake) -> None:
    (name,) = registered(lake, "events")
    assert judged(lake).looked == 1
    assert judged(lake).looked == 0
    state = Lakehouse.open(lake.config).state
    stored = state.get("sensors/table_thresholds/main.db")
    assert stored is not None
    assert state.put("sensors/table_thresholds/main.db", b"\0garbage", stored[1])

    ticked = judged(lake, "no cursor of ours")

    assert ticked.looked == 1
    assert [wanted.table for wanted in ticked.wanted] == [name]


def test_another_policy_is_another_look(lake: Lake) -> None:
    registered(lake, "events")
    assert judged(lake).looked == 1

    policies(lake, "expire_snapshots: {retain_last: 3}")

    assert judged(lake).looked == 1


def test_a_table_that_takes_too_long_does_not_keep_others_waiting(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = registered(lake, "a_slow", "b")
    real = Lakehouse.watch

    def watch(self: Lakehouse, name: TableName) -> object:
        if name == slow:
            time.sleep(3)
        return real(self, name)

    monkeypatch.setattr(Lakehouse, "watch", watch)
    monkeypatch.setattr(looking, "_AT_ONCE", 1)
    first = judged(lake, seconds=0.5)
    assert first.wanted == []
    assert f"{slow} could not be measured in the time of a tick" in first.message()
    assert json.loads(first.cursor or "") == ["main", ["db"], "a_slow", True]

    second = judged(lake, first.cursor, seconds=2.5)

    assert [wanted.table for wanted in second.wanted] == [other]


def test_only_what_may_pass_by_itself_is_retried(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(lake, "events")
    real, failures = Lakehouse.apply, [1]

    def apply(self: Lakehouse, *args: object, **kwargs: object) -> object:
        if failures:
            failures.pop()
            raise StorageError("the store is slow down")
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Lakehouse, "apply", apply)
    real_sleep = time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: real_sleep(min(seconds, 0.05)))
    (result,) = run(lake, tick(lake, THRESHOLDS))

    assert result.success
    assert result.retry_attempts_for_node("lakehouse__maintained") == 1
    assert RETRIES.max_retries == 3

    broken = lake.table_with_small_files("broken")
    register(lake.instance, [broken])
    request = tick(lake, THRESHOLDS)
    lake.truncate_metadata(broken)
    (result,) = run(lake, request)
    assert not result.success
    assert result.retry_attempts_for_node("lakehouse__maintenance_state") == 0


@pytest.mark.requirement("DG-16")
def test_of_a_thousand_tables_only_changed_ones_are_read(lake: Lake) -> None:
    import pyarrow as pa

    sick = lake.table_with_small_files("sick")
    quiet = lake.catalog.create_table(("db", "quiet"), pa.schema([("id", pa.int64())]))
    tables = [f"t{number:04}" for number in range(1_000)]
    point(lake, copies(lake, quiet.metadata_location, tables))
    names = [TableName("main", ("db",), table) for table in tables]
    register(lake.instance, names)
    # Of databases that nobody listed: they are loaded with every tick, and never looked at.
    register(lake.instance, [TableName("other", ("db",), f"t{number}") for number in range(9_000)])

    cursor = None
    while True:
        first = tick(lake, THRESHOLDS, cursor)
        cursor = first.cursor
        if not cursor:
            break
    with counting() as calls:
        assert requested(tick(lake, THRESHOLDS)) == {}
    assert calls == Counter(catalog=1)

    changed = copies(lake, lake.catalog.load_table(sick.identifier).metadata_location, ["t0007", "t0500", "t0999"])
    point(lake, changed)
    with counting() as calls:
        found = tick(lake, THRESHOLDS)
    assert requested(found).keys() == {f"main.db.{table}" for table in changed}
    assert calls["catalog"] == 1 + 3
    assert calls["storage"] <= 3 * 8, "metadata, manifest list and manifests of the three"
    with counting() as calls:
        assert requested(tick(lake, THRESHOLDS)) == requested(found)
    assert calls == Counter(catalog=1)

    assert len(lake.instance.get_dynamic_partitions(TABLES_NAME)) == 10_000
    assert all(result.success for result in run(lake, found))
    # Looking ends at a deadline, whatever there is to read (see the test of a slow table); the rest takes little.
    assert thresholds.SECONDS <= DEFAULT_SENSOR_GRPC_TIMEOUT / 3
