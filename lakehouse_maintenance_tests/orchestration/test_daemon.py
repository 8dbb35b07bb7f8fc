"""The sensors in a real instance with its daemon: from a table that gets sick to a table that is well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pyarrow as pa
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME
from lakehouse_maintenance_tests.orchestration.lake import PARTITIONS, Lake
from lakehouse_maintenance_tests.orchestration.test_definitions import environment

BIN = Path(sys.executable).parent
AGE = 10
DEFINITIONS = """\
import dagster as dg
from lakehouse_maintenance.orchestration.building import build_definitions

defs = dg.Definitions.merge(build_definitions(sensor_seconds=1), dg.Definitions(executor=dg.in_process_executor))
"""
WORKSPACE = "load_from:\n  - python_file: {relative_path: defs.py, location_name: lakehouse_maintenance}\n"
QUEUE = "run_coordinator: {module: dagster, class: QueuedRunCoordinator, config: {dequeue_interval_seconds: 1}}\n"
POLICIES = f"""\
  tables:
    main.db.busy: {{expire_snapshots: {{trigger: []}}}}
    main.db.quiet:
      rewrite_data_files: {{trigger: []}}
      expire_snapshots:
        {{older_than: {AGE}s, retain_last: 1, allow_short_retention: true, trigger: {{of: expired_snapshots, base: 2}}}}
"""


@contextmanager
def daemon(lake: Lake) -> Iterator[None]:
    """Dagster's daemon with both sensors switched on, ended as Ctrl-C ends it."""
    (lake.folder / "defs.py").write_text(DEFINITIONS)
    (lake.folder / "workspace.yaml").write_text(WORKSPACE)
    with (lake.home / "dagster.yaml").open("a") as file:
        file.write(QUEUE)
    env = environment(LAKEHOUSE_MAINTENANCE_CONFIG=str(lake.config), DAGSTER_HOME=str(lake.home))
    log = (lake.folder / "daemon.log").open("wb")
    process = subprocess.Popen(
        [BIN / "dagster-daemon", "run", "-w", "workspace.yaml"],
        env=env,
        cwd=lake.folder,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        subprocess.run(
            [BIN / "dagster", "sensor", "start", "-w", "workspace.yaml", "--start-all"],
            env=env,
            cwd=lake.folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        yield
    finally:
        log.close()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(what: str, holds: Callable[[], object], lake: Lake) -> None:
    for _ in range(1_500):
        if holds():
            return
        time.sleep(0.1)
    raise TimeoutError(f"{what}\n{(lake.folder / 'daemon.log').read_text()[-4000:]}")


def runs(lake: Lake, name: TableName) -> list[dg.DagsterRun]:
    """Runs that the sensor started for the table, oldest first."""
    filters = dg.RunsFilter(tags={"dagster/partition": name.partition_key, "dagster/sensor_name": "table_thresholds"})
    return list(reversed(lake.instance.get_runs(filters=filters)))


def ticks(lake: Lake) -> list[InstigatorTick]:
    """Finished ticks of the threshold sensor, newest first."""
    states = lake.instance.all_instigator_state()
    state = next((state for state in states if state.instigator_name == "table_thresholds"), None)
    if state is None:
        return []
    found = lake.instance.get_ticks(state.instigator_origin_id, state.selector_id)
    return [tick for tick in found if tick.status is not TickStatus.STARTED]


def ended(lake: Lake, name: TableName, count: int) -> bool:
    found = runs(lake, name)
    return len(found) >= count and all(run.is_finished for run in found)


def test_the_daemon_starts_what_is_due_once_and_nothing_else(lake: Lake) -> None:
    busy, quiet = TableName("main", ("db",), "busy"), TableName("main", ("db",), "quiet")
    lake.config.write_text(lake.config.read_text() + POLICIES)
    lake.catalog.create_namespace("db")
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string())])
    made = lake.catalog.create_table(busy.identifier, schema=schema)
    with made.update_spec() as spec:
        spec.add_identity("kind")
    rows = pa.table({"id": list(range(PARTITIONS)), "kind": [f"k{n}" for n in range(PARTITIONS)]}, schema=schema)
    made.append(rows)

    with daemon(lake):
        wait_until("tables are discovered", lambda: lake.instance.get_dynamic_partitions(TABLES_NAME), lake)
        other = lake.catalog.create_table(quiet.identifier, schema=schema)
        for _ in range(3):
            other.append(rows.slice(0, 1))
        head = other.current_snapshot()
        assert head is not None
        assert runs(lake, busy) == [], "16 small files are fewer than the policy's threshold"
        lake.catalog.load_table(busy.identifier).append(rows)
        before = lake.rows(busy)

        wait_until("the busy table is maintained", lambda: ended(lake, busy, 1), lake)
        wait_until("the quiet table's snapshots expire with time", lambda: ended(lake, quiet, 1), lake)
        seen = len(ticks(lake))
        wait_until("two ticks more", lambda: len(ticks(lake)) >= seen + 2, lake)
        last = ticks(lake)[0]

    (rewrite,), (expiry,) = runs(lake, busy), runs(lake, quiet)
    assert (rewrite.status, expiry.status) == (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.SUCCESS)
    assert rewrite.tags["lakehouse_maintenance/action"] == "rewrite_data_files"
    assert expiry.tags["lakehouse_maintenance/action"] == "expire_snapshots"
    assert len(lake.catalog.load_table(busy.identifier).inspect.data_files()) == PARTITIONS
    assert lake.rows(busy) == before
    well = lake.catalog.load_table(quiet.identifier)
    assert [snapshot.snapshot_id for snapshot in well.snapshots()] == [head.snapshot_id]
    assert last.status is TickStatus.SKIPPED
    assert "nothing to start: 2 tables, 0 of them looked at" in (last.skip_reason or "")
