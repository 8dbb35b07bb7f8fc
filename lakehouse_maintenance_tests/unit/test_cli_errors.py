"""Bad input ends in exit 2 with one message that names what is wrong; a broken table in exit 1, beside its sound ones.

Nothing is written in either case.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance_tests.small_lakehouse import Ended, SmallLakehouse, call, call_process, make_lakehouse


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SmallLakehouse:
    lakehouse = make_lakehouse(tmp_path_factory.mktemp("sound"))
    lakehouse.add("db.orders", files=25)
    return lakehouse


@pytest.fixture(scope="module")
def to_break(tmp_path_factory: pytest.TempPathFactory) -> SmallLakehouse:
    """One table to break, and a sound one beside it."""
    made = make_lakehouse(tmp_path_factory.mktemp("to_break"))
    made.add("db.broken", files=25)
    made.add("db.sound", files=25)
    return made


@pytest.fixture
def lakehouse(to_break: SmallLakehouse) -> Iterator[SmallLakehouse]:
    """The same with nothing remembered of it; what the test breaks is whole again after it."""
    whole = {path: path.read_bytes() for path in to_break.metadata_files("db.broken").values()}
    yield to_break
    for path, content in whole.items():
        path.write_bytes(content)
    shutil.rmtree(to_break.folder / "state", ignore_errors=True)


def both_ways(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[dict[str, Any], str]:
    """The error object with --json, and the message without; both with exit 2 and nothing else said."""
    with_json = call(capsys, "--json", *argv)
    assert with_json.code == 2
    plain = call(capsys, *argv)
    assert (plain.code, plain.out) == (2, "")
    error = with_json.error
    assert f"error: {error['message']}" in plain.err
    for key in ("field", "hint"):
        if error[key]:
            assert f"  {key}: {error[key]}" in plain.err
    assert "Traceback" not in plain.err + with_json.err
    return error, plain.err


def test_a_missing_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, _ = both_ways(capsys, "health", "--config", tmp_path / "nowhere.yaml")
    assert error["code"] == "bad_configuration"
    assert error["field"] == "config"
    assert "nowhere.yaml" in error["message"]
    assert "init" in error["hint"]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "lakehouse.yaml"
    config.write_text("catalogs: {main: {type: sql, uri: 'sqlite:///x.db'}}\nengin: {use: auto}\n")
    error, _ = both_ways(capsys, "plan", "--config", config)
    assert (error["code"], error["field"]) == ("bad_configuration", "engin")
    assert "'engine'" in error["hint"]


@pytest.mark.parametrize("verb", ["health", "plan", "maintain"])
def test_a_missing_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    config = tmp_path / "lakehouse.yaml"
    config.write_text("catalogs: {main: {type: sql, uri: 'sqlite:///gone.db', warehouse: wh}}\n")
    error, _ = both_ways(capsys, verb, "--config", config)
    assert (error["code"], error["field"]) == ("catalog_unavailable", "catalogs.main.uri")
    assert "gone.db" in error["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["lakehouse.yaml"]


def test_a_rest_catalog_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = tmp_path / "lakehouse.yaml"
    config.write_text(
        f"catalogs: {{main: {{type: rest, uri: 'http://127.0.0.1:{port}', credential: 'me:hidden-secret-1'}}}}\n"
    )
    error, said = both_ways(capsys, "health", "--config", config)
    assert (error["code"], error["field"]) == ("catalog_unavailable", "catalogs.main.uri")
    assert "hidden-secret-1" not in json.dumps(error) + said


@pytest.mark.parametrize("verb", ["health", "plan", "maintain"])
def test_an_unknown_table(sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    before = sound.listing()
    error, _ = both_ways(capsys, "--config", sound.config, verb, "db.order")
    assert (error["code"], error["field"]) == ("unknown_table", "table")
    assert "db.order" in error["message"]
    assert "main.db.orders" in error["hint"]
    assert sound.listing() == before


@pytest.mark.parametrize(
    ("argv", "field", "said"),
    [
        (["plan", "orders"], "table", "names no database"),
        (["plan", "db..orders"], "table", "not a table name"),
        (["plan", "--action", "rewrite_data_file"], "--action", "'rewrite_data_files'"),
        (["plan", "--option", "min-input-files"], "--option", "name=value"),
        (["plan", "--option", "a=1", "--option", "a=2"], "--option a", "twice"),
        (["plan", "--option", "min-input-file=3"], "option.min-input-file", "'min-input-files'"),
        (["plan", "--option", "min-input-files=three"], "option.min-input-files", "'three'"),
        (["plan", "--strategy", "binpak"], "--strategy", "'binpack'"),
        (["plan", "--engine", "sparc"], "--engine", "'spark'"),
        (["plan", "--where", " "], "--where", "is empty"),
        (["plan", "--action", "rewrite_data_files", "--older-than", "5 days"], "--older-than", "expire_snapshots"),
        (["maintain", "--action", "rewrite_data_files", "--retain-last", "3"], "--retain-last", "expire_snapshots"),
        (
            ["maintain", "--action", "rewrite_data_files", "--allow-short-retention"],
            "--allow-short-retention",
            "expire_snapshots",
        ),
        (["plan", "--action", "rewrite_manifests", "--option", "min-input-files=3"], "--option", "rewrite_data_files"),
        (["plan", "--action", "rewrite_manifests", "--strategy", "sort"], "--strategy", "rewrite_data_files"),
        (["audit", "--last", "0"], "--last", "greater than or equal to 1"),
        (["audit", "--last", "many"], "--last", "valid integer"),
        (["audit", "--table", "a..b"], "table", "not a table name"),
        (["apply"], "plan", "Missing argument"),
        (["health", "--exactly"], "--exactly", "--exact"),
        (["healt"], None, "healt"),
        (["health", "--config"], "--config", "needs a value"),
    ],
)
def test_wrong_arguments(
    sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], argv: list[str], field: str | None, said: str
) -> None:
    before = sound.listing()
    error, _ = both_ways(capsys, "--config", sound.config, *argv)
    assert error["field"] == field
    assert said in error["message"] + (error["hint"] or "")
    assert sound.listing() == before


def test_usage_errors_do_not_repeat_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("init", "--catalog", "main", "s3.secret-access-key=hidden-secret-1")
    _, said = both_ways(capsys, *argv)
    assert "hidden-secret-1" not in said


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (None, "plan"),
        (b"", "plan"),
        (b"\xff\xfe", "plan"),
        (b"[" * 100_000, "plan"),
        (b"[]", "plan"),
        (b'{"format": 99}', "format"),
        (b'{"format": 2, "created_at": "x", "tables": [{}], "digest": ""}', "plan"),
        (b'{"format": 2, "created_at": "x", "tables": [], "digest": "sha256:0"}', "digest"),
    ],
)
def test_a_file_that_is_no_plan(
    sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None, field: str
) -> None:
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_bytes(content)
    before = sound.listing()
    error, _ = both_ways(capsys, "--config", sound.config, "apply", file)
    assert error["field"] == field
    assert sound.listing() == before


def test_a_plan_that_was_changed(sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert call(capsys, "--config", sound.config, "plan", "--out", file).code == 0
    plan = json.loads(file.read_text())
    plan["tables"][0]["actions"][0]["groups"][0]["files"].pop()
    file.write_text(json.dumps(plan))
    before = sound.listing()
    error, _ = both_ways(capsys, "--config", sound.config, "apply", file)
    assert error["field"] == "digest"
    assert "was changed" in error["message"]
    assert sound.listing() == before


def test_a_plan_for_another_configuration(
    sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    assert call(capsys, "--config", sound.config, "plan", "--out", file).code == 0
    other = tmp_path / "lakehouse.yaml"
    other.write_text(
        sound.config.read_text().replace("main", "another").replace("sqlite:///", f"sqlite:///{sound.folder}/")
    )
    error, _ = both_ways(capsys, "--config", other, "apply", file)
    assert "no catalog main" in error["message"]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xffgarbage" * 40)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _other_json(path: Path) -> None:
    path.write_bytes(b'{"format-version": "two", "snapshots": 7}')


@pytest.mark.parametrize("damage", [_truncate, _garbage, _empty, _other_json, Path.unlink])
@pytest.mark.parametrize("kind", ["metadata", "manifest_list", "manifest"])
def test_a_broken_table_stops_nobody_else(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], kind: str, damage: Callable[[Path], None]
) -> None:
    damage(lakehouse.metadata_files("db.broken")[kind])
    before = lakehouse.listing()
    for verb in ("health", "plan"):
        ended = call(capsys, "--config", lakehouse.config, verb, "--json")
        assert ended.code == 1, ended
        tables = {table["table"]: table for table in ended.json["tables"]}
        assert "main.db.broken" in tables["main.db.broken"]["error"]
        assert tables["main.db.sound"]["error"] is None
        assert "Traceback" not in ended.err
    assert lakehouse.listing() == before

    told = call(capsys, "--config", lakehouse.config, "health")
    assert told.code == 1
    assert "main.db.broken" in told.out.partition("Not measured:")[2]


def test_maintenance_goes_on_beside_a_broken_table(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    _garbage(lakehouse.metadata_files("db.broken")["manifest"])
    before = {path: stat for path, stat in lakehouse.listing().items() if "broken" in path}
    ended = call(capsys, "--config", lakehouse.config, "maintain", "--json")
    assert ended.code == 1
    statuses = {table["table"]: table["status"] for table in ended.json["tables"]}
    assert statuses == {"main.db.broken": "failed", "main.db.sound": "done"}
    assert {path: stat for path, stat in lakehouse.listing().items() if "broken" in path} == before


def test_errors_as_a_user_meets_them(sound: SmallLakehouse) -> None:
    ended: Ended = call_process("health", "db.order", "--json", folder=sound.folder)
    assert ended.code == 2
    assert ended.error["code"] == "unknown_table"
    ended = call_process("helth", folder=sound.folder)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")


def test_an_unexpected_error_is_told_in_one_line(
    sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("it is https://me:hidden-secret-1@host")

    monkeypatch.setattr("lakehouse_maintenance.lakehouse.Lakehouse.health", broken)
    ended = call(capsys, "--config", sound.config, "health")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[0] == "error: internal error: RuntimeError: it is https://me:***@host"
    assert "Traceback" not in ended.err
    verbose = call(capsys, "--config", sound.config, "health", "-v", "--json")
    assert verbose.code == 1
    assert verbose.error["code"] == "internal_error"
    assert "Traceback" in verbose.err
    assert "hidden-secret-1" not in verbose.err + verbose.out


def test_a_stopped_call_says_so_by_its_exit_code(
    sound: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):

        def stop(*_: object, number: signal.Signals = number, **__: object) -> None:
            # Where a finalizer happens to run in that moment, it swallows what the handler raises: then once more.
            for _attempt in range(100):
                signal.raise_signal(number)
                time.sleep(0.01)

        monkeypatch.setattr("lakehouse_maintenance.lakehouse.Lakehouse.health", stop)
        assert call(capsys, "--config", sound.config, "health").code == code
    assert signal.getsignal(signal.SIGTERM) is before
