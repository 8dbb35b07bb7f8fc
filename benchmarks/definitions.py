"""What starting costs: loading our Dagster definitions beside a bare Dagster project's, and the command line's help."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.running import Benchmark, Contender, Ratio

BARE = '''"""The least that is a Dagster project."""

import dagster


@dagster.asset
def one() -> None: ...


defs = dagster.Definitions(assets=[one])
'''

CONFIGURATION = """
catalogs:
  main: {type: sql, uri: "sqlite:///catalog.db", warehouse: "warehouse"}
databases: {main: [shop, web, warehouse]}
state: {url: state}
policies:
  default:
    rewrite_data_files: {options: {target-file-size-bytes: 128MB}}
"""


def benchmark(work: Path) -> Benchmark:
    """No sizes: both projects are small."""
    folder = work / "definitions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "bare_dagster_project.py").write_text(BARE)
    (folder / "lakehouse.yaml").write_text(CONFIGURATION)
    loading = {"path": str(folder), "config": str(folder / "lakehouse.yaml")}
    return Benchmark(
        name="definitions",
        title="Loading Dagster definitions, and --help",
        sizes={"databases": 3},
        contenders=(
            Contender("ours", __name__, "start_loading", {"module": "lakehouse_maintenance.definitions", **loading}),
            Contender("bare Dagster project", __name__, "start_loading", {"module": "bare_dagster_project", **loading}),
            Contender("lakehouse-maintenance --help", __name__, "start_help"),
        ),
        ratios=(Ratio("ours / bare Dagster project", "ours", ("bare Dagster project",), at_most=1.5),),
    )


def start_loading(module: str, path: str, config: str) -> Callable[[], dict[str, Any]]:
    """Import and resolution of everything a code location serves; nothing is imported before."""
    sys.path.insert(0, path)
    os.environ["LAKEHOUSE_MAINTENANCE_CONFIG"] = config

    def work() -> dict[str, Any]:
        import importlib

        repository = importlib.import_module(module).defs.get_repository_def()
        assets = len(repository.asset_graph.get_all_asset_keys())
        return {"assets": assets, "jobs": len(repository.get_all_jobs()), "heavy": _heavy()}

    return work


def _heavy() -> list[str]:
    """Libraries that loading definitions should not need."""
    return [
        name for name in ("pyarrow", "pyiceberg", "duckdb", "pyspark", "fastavro", "obstore") if name in sys.modules
    ]


def start_help() -> Callable[[], dict[str, Any]]:
    """The whole process, interpreter included."""

    def work() -> dict[str, Any]:
        command = [sys.executable, "-c", "from lakehouse_maintenance.cli import main; main()", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {"lines": len(done.stdout.splitlines())}

    return work
