"""Two runs on one table, each a process of its own: one works, the other is kept out by the lease."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from lakehouse_maintenance.orchestration.partitions import register
from lakehouse_maintenance_tests.orchestration.lake import Lake, facts
from lakehouse_maintenance_tests.orchestration.test_definitions import DAGSTER, environment

# A run as Dagster starts it, that stops in the middle of its rewrite until the file `go` is there.
SLOW = """
import sys, time
from pathlib import Path
from lakehouse_maintenance.execution import running
from lakehouse_maintenance.model.actions import Action

real = running._RUNNERS[Action.REWRITE_DATA_FILES]
folder = Path(sys.argv[1])

def slow(*args):
    (folder / "working").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    return real(*args)

running._RUNNERS[Action.REWRITE_DATA_FILES] = slow
from dagster._cli import cli
cli(sys.argv[2:], prog_name="dagster")
"""
MATERIALIZE = ["asset", "materialize", "-m", "lakehouse_maintenance.definitions"]


def test_two_runs_on_one_table_never_work_at_once(lake: Lake) -> None:
    name = lake.table_with_small_files()
    rows = lake.rows(name)
    register(lake.instance, [name])
    snapshots = len(lake.catalog.load_table(name.identifier).snapshots())
    arguments = [*MATERIALIZE, "--select", "group:lakehouse_maintenance", "--partition", name.partition_key]
    env = environment(LAKEHOUSE_MAINTENANCE_CONFIG=str(lake.config), DAGSTER_HOME=str(lake.home))

    first = subprocess.Popen(
        [sys.executable, "-c", SLOW, lake.folder, *arguments],
        env=env,
        cwd=lake.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lake.folder / "working", first)
        second = subprocess.run(
            [DAGSTER, *arguments], env=env, cwd=lake.folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert second.returncode != 0
        assert f"{name} is held by" in second.stdout + second.stderr
        assert len(lake.catalog.load_table(name.identifier).snapshots()) == snapshots
        (lake.folder / "go").touch()
        assert first.wait(120) == 0
    finally:
        first.kill()
        first.wait()

    assert facts(lake.latest("maintained", name))["status"] == "done"
    assert len(lake.catalog.load_table(name.identifier).snapshots()) == snapshots + 1
    assert lake.rows(name) == rows


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(2_400):
        if path.exists():
            return
        assert process.poll() is None, "the first run ended before it worked"
        time.sleep(0.05)
    raise TimeoutError(path)
