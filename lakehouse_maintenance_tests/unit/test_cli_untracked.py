"""The verb `untracked-folders`: its JSON, its report on the terminal, exit codes, and input that stops it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.lakehouse import Lakehouse
from lakehouse_maintenance.model.folders import FolderRun, RowStatus
from lakehouse_maintenance_tests.folder_results import candidate, result
from lakehouse_maintenance_tests.small_lakehouse import SmallLakehouse, call, make_lakehouse

DIGEST = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> SmallLakehouse:
    return make_lakehouse(tmp_path_factory.mktemp("lakehouse"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the verb asks for; `run`: what it gets."""
    found: dict[str, Any] = {}

    def untracked_folders(self: Lakehouse, file: Path, *, plan_digest: str | None = None) -> FolderRun:
        found.update(file=file, plan_digest=plan_digest)
        run: FolderRun = found["run"]
        return run

    monkeypatch.setattr(Lakehouse, "untracked_folders", untracked_folders, raising=False)
    return found


def run_of(*statuses: RowStatus, report: str = "## CLEANUP REPORT\n", is_audit_lost: bool = False) -> FolderRun:
    databases = tuple(result(status=status) for status in statuses)
    return FolderRun("run-1", DIGEST, databases, report, is_audit_lost)


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (run_of(RowStatus.SUCCESS), 0),
        (run_of(RowStatus.SUCCESS, RowStatus.SKIPPED, RowStatus.BLOCKED), 0),
        (run_of(RowStatus.SUCCESS, RowStatus.FAILED), 1),
        (run_of(RowStatus.SUCCESS, is_audit_lost=True), 1),
    ],
    ids=["success", "skipped and blocked", "failed", "audit lost"],
)
def test_exit_codes(
    lakehouse: SmallLakehouse, asked: dict[str, Any], capsys: pytest.CaptureFixture[str], run: FolderRun, code: int
) -> None:
    asked["run"] = run
    for flags in ([], ["--json"]):
        assert call(capsys, "--config", lakehouse.config, "untracked-folders", "a.json", *flags).code == code


def test_json(lakehouse: SmallLakehouse, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["run"] = run_of(RowStatus.SUCCESS)
    argv = ("--config", lakehouse.config, "untracked-folders", "a.json", "--plan-digest", DIGEST, "--json")
    found = call(capsys, *argv).json
    assert (asked["file"], asked["plan_digest"]) == (Path("a.json"), DIGEST)
    assert found.keys() >= {"run_id", "status", "digest", "databases", "report"}
    assert (found["run_id"], found["status"], found["digest"]) == ("run-1", "SUCCESS", DIGEST)
    assert found["databases"][0]["status"] == "SUCCESS"
    assert {"candidate_folders", "diagnostic_details", "digest"} <= found["databases"][0].keys()
    assert found["report"] == "## CLEANUP REPORT\n"


@pytest.mark.requirement("UF-25")
def test_the_report_on_the_terminal(
    lakehouse: SmallLakehouse, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from lakehouse_maintenance.execution.folder_report import run_report

    name = "_odd\x1b[31m|[b]*<i>&lt;\u202e"
    found = result(folders=(candidate(name),), digest=DIGEST)
    asked["run"] = FolderRun("run-1", DIGEST, (found,), run_report([found], False))
    ended = call(capsys, "--config", lakehouse.config, "untracked-folders", "a.json")
    assert ended.code == 0
    lines = ended.out.splitlines()
    for line in ("## CLEANUP REPORT", "Mode: dry run, nothing is deleted", "### UNTRACKED STORAGE FOLDERS"):
        assert line in lines
    assert "Dry run. No folder was deleted." in lines
    assert "/_oddU+001B[31m|[b]*<i>&lt;U+202E |" in ended.out, "readable, and harmless"
    assert not {"\x1b", "\u202e"} & set(ended.out)


def test_tables_stand_in_columns_on_the_terminal(
    lakehouse: SmallLakehouse, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "| table | why |\n| --- | --- |\n| 表 | &#124; in it |\n| longer |  |"
    asked["run"] = run_of(RowStatus.SUCCESS, report=f"before\n\n{rows}\n\nafter\n")
    out = call(capsys, "--config", lakehouse.config, "untracked-folders", "a.json").out
    assert out.splitlines() == [
        "before",
        "",
        "| table  | why     |",
        "| ------ | ------- |",
        "| 表     | | in it |",
        "| longer |         |",
        "",
        "after",
    ]


def test_no_reference_steers_the_terminal(
    lakehouse: SmallLakehouse, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked["run"] = run_of(RowStatus.SUCCESS, report="a\x1b[2J\n&#8238;b\n")
    out = call(capsys, "--config", lakehouse.config, "untracked-folders", "a.json").out
    assert out.splitlines() == [r"a\x1b[2J", r"\u202eb"]


def test_secrets_are_masked_in_the_report(
    tmp_path: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from lakehouse_maintenance.execution.folder_report import run_report

    made = make_lakehouse(tmp_path)
    made.config.write_text(made.config.read_text().replace("wh}", "wh, s3.secret-access-key: 'hid*den_[secret]'}"))
    told = "denied for hid*den_[secret]"
    found = result(status=RowStatus.FAILED, reason="unexpected_error", message=told, notes=(told,))
    asked["run"] = FolderRun("run-1", None, (found,), run_report([found], False))
    ended = call(capsys, "--config", made.config, "untracked-folders", "a.json")
    assert ended.code == 1
    assert "denied for ***" in ended.out
    assert "hid*den" not in ended.out
    ended = call(capsys, "--config", made.config, "untracked-folders", "a.json", "--json")
    assert ended.json["databases"][0]["error_message"] == "denied for ***"
    assert ended.json["databases"][0]["notes"] == ["denied for ***"]


# Input that stops it at startup


@pytest.fixture
def requests() -> Iterator[tuple[str, list[str]]]:
    """A catalog's address, and every request that reaches it."""
    seen: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815  # the base class calls it so

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # the base class's name

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


STOPPED = [
    pytest.param({"dry_run": False}, "delete_enabled", marks=pytest.mark.requirement("UF-03")),
    pytest.param({"dry_runs": True}, "dry_runs", marks=pytest.mark.requirement("UF-02")),
    pytest.param({"exclude_paths": ["/data/x"]}, "exclude_paths.0", marks=pytest.mark.requirement("UF-04")),
    pytest.param(
        {"exclude_database_folders": ["other.x"]},
        "exclude_database_folders.0",
        marks=pytest.mark.requirement("UF-05"),
    ),
    pytest.param({"databases": "all"}, "databases", marks=pytest.mark.requirement("UF-01")),
]


@pytest.mark.parametrize(("fields", "field"), STOPPED)
def test_a_wrong_file_stops_it_before_any_call(
    tmp_path: Path,
    requests: tuple[str, list[str]],
    capsys: pytest.CaptureFixture[str],
    fields: dict[str, Any],
    field: str,
) -> None:
    address, seen = requests
    config = tmp_path / "lakehouse.yaml"
    config.write_text(f"catalogs: {{main: {{type: rest, uri: '{address}', warehouse: s3://lake/wh}}}}\n")
    file = tmp_path / "application.json"
    file.write_text(json.dumps({"catalog": "main", "databases": ["analytics"], **fields}))
    ended = call(capsys, "--config", config, "--json", "untracked-folders", file)
    assert ended.code == 2
    assert (ended.error["code"], ended.error["field"]) == ("bad_configuration", field)
    assert seen == []
    call(capsys, "--config", config, "health")
    assert seen != [], "a call would have been seen"


def test_bad_input(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = ("--config", lakehouse.config, "--json", "untracked-folders")
    ended = call(capsys, *config, tmp_path / "missing.json")
    assert (ended.code, ended.error["field"]) == (2, "FILE.json")
    ended = call(capsys, *config, "a.json", "--plan-digest", "sha256:0")
    assert (ended.code, ended.error["field"]) == (2, "--plan-digest")
    assert call(capsys, *config).code == 2
