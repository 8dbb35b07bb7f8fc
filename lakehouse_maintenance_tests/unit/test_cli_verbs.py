"""The verbs on a real lakehouse: JSON alone on standard output, exit codes, and what the results hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance_tests.small_lakehouse import (
    Ended,
    SmallLakehouse,
    call,
    call_process,
    make_lakehouse,
)

HEALTH_KEYS = {
    *("table", "format", "snapshot_id", "records", "data_files", "data_bytes", "small_files", "delete_files"),
    *("position_delete_files", "equality_delete_files", "deletion_vectors", "deleted_rows", "snapshots", "refs"),
    *("manifests", "manifest_bytes", "metadata_files", "reclaimable_bytes", "score", "due", "error"),
}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> SmallLakehouse:
    """For verbs that change nothing."""
    lakehouse = make_lakehouse(tmp_path_factory.mktemp("quiet"), databases=("db", "other"))
    lakehouse.add("db.sick", files=30)
    lakehouse.add("db.fine", files=1)
    lakehouse.add("other.also", files=2)
    return lakehouse


@pytest.fixture
def sick(tmp_path: Path) -> SmallLakehouse:
    """For verbs that write."""
    lakehouse = make_lakehouse(tmp_path)
    lakehouse.add("db.sick", files=30)
    return lakehouse


def rows(lakehouse: SmallLakehouse, name: str) -> list[dict[str, Any]]:
    table = lakehouse.catalog.load_table(name)
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return found


def on(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], *argv: object) -> Ended:
    return call(capsys, "--config", lakehouse.config, *argv)


def test_health_of_everything(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(quiet, capsys, "--json", "health")
    assert ended.code == 0
    tables = {table["table"]: table for table in ended.json["tables"]}
    assert set(tables) == {"main.db.sick", "main.db.fine", "main.other.also"}
    assert all(set(table) >= HEALTH_KEYS for table in tables.values())
    assert tables["main.db.sick"]["data_files"] >= 30
    assert [due["action"] for due in tables["main.db.sick"]["due"]] == ["rewrite_data_files"]
    assert tables["main.db.fine"]["due"] == []
    assert tables["main.db.sick"]["score"] < tables["main.db.fine"]["score"]


def test_health_for_people_shows_the_worst_first(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(quiet, capsys, "health", "db.*")
    assert ended.code == 0
    lines = [line.split()[0] for line in ended.out.splitlines() if line.strip().startswith("main.")]
    assert lines[:2] == ["main.db.sick", "main.db.fine"]
    assert "rewrite_data_files: small_files" in ended.out


def test_exact_health_looks_metadata_files_up(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    (table,) = on(quiet, capsys, "health", "main.db.fine", "--exact", "--json").json["tables"]
    assert table["metadata_bytes"] > 0


def test_a_plan_shows_what_why_and_what_is_expected(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(quiet, capsys, "plan", "--json")
    assert ended.code == 0
    assert ended.json["digest"].startswith("sha256:")
    tables = {table["table"]: table for table in ended.json["tables"]}
    (action,) = tables["main.db.sick"]["actions"]
    assert {"action", "engine", "control", "reason", "inputs", "expected"} <= set(action)
    assert (action["engine"], action["control"]) == ("embedded", "exact")
    assert action["expected"]["files"] == 1
    assert tables["main.db.fine"]["actions"] == []
    assert {skip["action"] for skip in tables["main.db.fine"]["skipped"]} >= {"rewrite_data_files"}

    told = on(quiet, capsys, "plan")
    assert told.code == 0
    assert "main.db.sick" in told.out
    assert action["reason"] in told.out
    assert "Left alone:" in told.out


def test_the_same_findings_have_the_same_digest(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    digests = {on(quiet, capsys, "plan", "--json").json["digest"] for _ in range(2)}
    assert len(digests) == 1


def test_nothing_to_do_is_success(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(quiet, capsys, "plan", "db.fine")
    assert ended.code == 0
    assert "nothing to do on 1 table" in ended.out


def test_an_action_that_is_asked_for_is_planned_due_or_not(
    quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("plan", "other.also", "--json", "--action", "rewrite_data_files", "--option", "min-input-files=2")
    (table,) = on(quiet, capsys, *argv).json["tables"]
    (action,) = table["actions"]
    assert action["reason"] == "requested"


def test_verbs_that_only_look_change_nothing(quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    before = quiet.listing()
    for verb in (["health"], ["health", "--exact"], ["plan"], ["maintain", "--dry-run"], ["audit"], ["doctor"]):
        assert on(quiet, capsys, *verb).code == 0
    assert quiet.listing() == before


def test_plan_apply_audit_as_a_user_calls_them(sick: SmallLakehouse) -> None:
    before = rows(sick, "db.sick")
    planned = call_process("plan", "--out", "plan.json", "--json", folder=sick.folder)
    assert planned.code == 0
    assert json.loads((sick.folder / "plan.json").read_text()) == planned.json

    applied = call_process("apply", "plan.json", "--json", folder=sick.folder)
    assert applied.code == 0
    assert applied.json["digest"] == planned.json["digest"]
    (table,) = applied.json["tables"]
    assert (table["table"], table["status"]) == ("main.db.sick", "done")
    (action,) = table["actions"]
    assert {"action", "status", "expected", "actual", "snapshot_id", "verified", "error"} <= set(action)
    assert action["verified"] is True
    assert action["actual"]["files"] == 1
    # Progress and logs stay off standard output.
    assert "main.db.sick: rewrite_data_files:" in applied.err

    assert sick.catalog.load_table("db.sick").current_snapshot().snapshot_id == action["snapshot_id"]
    assert rows(sick, "db.sick") == before

    told = call_process("audit", "--json", folder=sick.folder).json["events"]
    assert {"at", "run_id", "table", "action", "phase", "status", "digest", "files", "bytes"} <= set(told[0])
    # The action, its output, manifests and list, and the commit are announced; then it is told how it ended.
    assert [event["phase"] for event in told] == ["intent", "intent", "intent", "intent", "outcome"]
    assert {event["run_id"] for event in told} == {applied.json["run_id"]}


def test_a_plan_from_standard_output_is_applied_as_well(
    sick: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = sick.folder / "from_stdout.json"
    file.write_text(on(sick, capsys, "plan", "--json").out)
    assert on(sick, capsys, "apply", file).code == 0
    # Once more from standard input: the plan is stale by now, which is told and is no failure.
    monkeypatch.setattr("sys.stdin", file.open())
    stale = on(sick, capsys, "apply", "-", "--json")
    assert stale.code == 0
    (table,) = stale.json["tables"]
    assert table["status"] == "skipped"
    assert "changed since it was planned" in table["reason"]


def test_maintain_does_what_is_due_and_then_nothing(sick: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    before = rows(sick, "db.sick")
    dry = on(sick, capsys, "maintain", "--dry-run", "--json")
    assert dry.code == 0
    assert "digest" in dry.json
    assert "run_id" not in dry.json

    first = on(sick, capsys, "maintain", "--json")
    assert (first.code, first.json["digest"]) == (0, dry.json["digest"])
    assert [table["status"] for table in first.json["tables"]] == ["done"]
    snapshot = sick.catalog.load_table("db.sick").current_snapshot().snapshot_id

    second = on(sick, capsys, "maintain")
    assert second.code == 0
    assert "Left alone:" in second.out
    assert sick.catalog.load_table("db.sick").current_snapshot().snapshot_id == snapshot
    assert rows(sick, "db.sick") == before


def test_a_table_that_another_run_holds_is_blocked(sick: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    from datetime import timedelta

    from lakehouse_maintenance.state import open_state

    state = open_state(str(sick.folder / "state"))
    with state.leases.acquire("main.db.sick", run_id="other", owner="somebody", ttl=timedelta(minutes=5)):
        ended = on(sick, capsys, "maintain", "--json")
        checks = {check["name"]: check for check in on(sick, capsys, "doctor", "--json").json["checks"]}
    assert ended.code == 1
    assert [table["status"] for table in ended.json["tables"]] == ["blocked"]
    assert "somebody" in ended.json["tables"][0]["reason"]
    assert "main.db.sick: somebody" in checks["state: leases"]["detail"]


def test_audit_by_number_and_table(sick: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    assert on(sick, capsys, "audit", "--json").json == {"events": []}
    assert on(sick, capsys, "maintain").code == 0
    everything = on(sick, capsys, "audit", "--json").json["events"]
    assert on(sick, capsys, "audit", "--json", "--last", 1).json["events"] == everything[-1:]
    for name in ("main.db.sick", "db.sick", "db.*"):
        assert on(sick, capsys, "audit", "--json", "--table", name).json["events"] == everything
        assert on(sick, capsys, "audit", "--json", "--table", name, "--last", 2).json["events"] == everything[-2:]
    assert on(sick, capsys, "audit", "--json", "--table", "db.gone").json == {"events": []}
    assert "rewrite_data_files" in on(sick, capsys, "audit").out


def test_out_replaces_a_plan_and_nothing_else(
    quiet: SmallLakehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    assert on(quiet, capsys, "plan", "db.fine", "--out", out).code == 0
    assert on(quiet, capsys, "plan", "db.sick", "--out", out).code == 0
    assert [table["table"] for table in json.loads(out.read_text())["tables"]] == ["main.db.sick"]

    precious = tmp_path / "lakehouse.yaml"
    shutil.copy(quiet.config, precious)
    ended = on(quiet, capsys, "plan", "--out", precious, "--json")
    assert (ended.code, ended.error["field"]) == (2, "--out")
    assert precious.read_bytes() == quiet.config.read_bytes()


def test_the_help_needs_nothing_heavy(tmp_path: Path) -> None:
    ended = call_process(
        "--help", folder=tmp_path, PYTHONPROFILEIMPORTTIME="1", LAKEHOUSE_MAINTENANCE_CONFIG="nowhere.yaml"
    )
    assert ended.code == 0
    for verb in ("init", "doctor", "demo", "health", "plan", "apply", "maintain", "audit"):
        assert f"  {verb} " in ended.out
    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines()}
    heavy = {
        "pyarrow",
        "pyiceberg",
        "dagster",
        "pydantic",
        "rich",
        "sqlalchemy",
        "obstore",
        "fastavro",
        "numpy",
        "yaml",
    }
    assert not heavy & loaded


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    from lakehouse_maintenance import __version__

    ended = call(capsys, "--version")
    assert (ended.code, ended.out.strip()) == (0, f"lakehouse-maintenance {__version__}")
