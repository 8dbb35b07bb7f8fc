"""The golden lakehouse from the command line: measured, planned, compacted and told, as a user's script would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance_tests.engine.conformance import (
    COMPACTED,
    TABLES,
    duckdb_sees,
    pyiceberg_sees,
    readable_by,
    recorded_rows,
    table_name,
    write_config,
)
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse, copy_catalog, upload
from lakehouse_maintenance_tests.services.s3 import S3Server


def call(folder: Path, *arguments: str) -> Any:
    """Runs a verb in a process of its own, with the folder's configuration; its result."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "lakehouse_maintenance", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def by_name(result: Any) -> dict[str, Any]:
    """Tables of a result by their golden name."""
    names = {str(table_name(name)): name for name in TABLES}
    return {names[table["table"]]: table for table in result["tables"]}


@pytest.fixture(scope="module")
def folder(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds lakehouse.yaml, the catalog and the state."""
    upload(s3)
    made = tmp_path_factory.mktemp("golden")
    copy_catalog(made / "golden.db")
    write_config(GoldenLakehouse(made / "golden.db", s3), made)
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """Of each verb, in the order that they were called."""
    found = {"health": call(folder, "health")}
    options = ("--action", "rewrite_data_files", "--option", "rewrite-all=true")
    found["plan"] = call(folder, "plan", *options, "--out", "plan.json")
    found["apply"] = call(folder, "apply", "plan.json")
    found["maintain"] = call(folder, "maintain")
    found["audit"] = call(folder, "audit")
    return found


def test_health_tells_spark_s_files(results: dict[str, Any]) -> None:
    before = by_name(results["health"])
    assert set(before) == set(TABLES)
    for name, recorded in TABLES.items():
        assert before[name]["error"] is None
        assert before[name]["data_files"] == recorded.files["data"]
        assert before[name]["deletion_vectors"] == recorded.files["deletion_vectors"]


def test_the_plan_says_what_apply_does(results: dict[str, Any], folder: Path, s3: S3Server) -> None:
    plan, applied = by_name(results["plan"]), by_name(results["apply"])
    assert results["plan"]["digest"] == results["apply"]["digest"]
    golden = GoldenLakehouse(folder / "golden.db", s3)
    before = by_name(results["health"])
    for name in COMPACTED:
        (planned,) = plan[name]["actions"]
        (done,) = applied[name]["actions"]
        assert (applied[name]["status"], done["verified"]) == ("done", True)
        assert done["actual"]["rewritten_data_files"] == planned["inputs"]["files"]
        assert done["actual"]["files"] == planned["expected"]["files"]
        assert planned["inputs"]["files"] - planned["expected"]["files"] == planned["expected"]["fewer_files"] > 0
        snapshot = golden.catalog().load_table(TABLES[name].identifier).current_snapshot()
        assert snapshot is not None
        assert snapshot.snapshot_id == done["snapshot_id"] != before[name]["snapshot_id"]


def test_a_second_run_does_nothing(results: dict[str, Any]) -> None:
    assert {table["status"] for table in results["maintain"]["tables"]} == {"skipped"}


def test_the_journal_names_each_table_s_commit(results: dict[str, Any]) -> None:
    outcomes = {event["table"]: event for event in results["audit"]["events"] if event["phase"] == "outcome"}
    assert set(outcomes) == {str(table_name(name)) for name in COMPACTED}
    assert {event["status"] for event in outcomes.values()} == {"done"}
    assert {event["digest"] for event in outcomes.values()} == {results["plan"]["digest"]}


@pytest.mark.parametrize("name", readable_by("pyiceberg", COMPACTED))
def test_pyiceberg_reads_every_snapshot_and_ref_as_before(
    results: dict[str, Any], folder: Path, s3: S3Server, name: str
) -> None:
    recorded = TABLES[name]
    table = GoldenLakehouse(folder / "golden.db", s3).catalog().load_table(recorded.identifier)
    assert pyiceberg_sees(table, recorded) == recorded_rows(recorded)
    assert set(table.metadata.refs) == set(recorded.refs)


@pytest.mark.parametrize("name", readable_by("duckdb", COMPACTED))
def test_duckdb_reads_every_snapshot_as_before(results: dict[str, Any], folder: Path, s3: S3Server, name: str) -> None:
    recorded = TABLES[name]
    table = GoldenLakehouse(folder / "golden.db", s3).catalog().load_table(recorded.identifier)
    assert duckdb_sees(table, recorded, s3) == recorded_rows(recorded, refs=False)
