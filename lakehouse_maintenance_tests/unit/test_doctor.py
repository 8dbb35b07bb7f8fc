"""`doctor` makes every check, whatever the others found, and changes nothing but its own scratch object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance_tests.engine.tables import lakehouse as open_lakehouse
from lakehouse_maintenance_tests.engine.tables import many_small_files
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog
from lakehouse_maintenance_tests.small_lakehouse import Ended, SmallLakehouse, call, make_lakehouse


@pytest.fixture
def lakehouse(tmp_path: Path) -> SmallLakehouse:
    made = make_lakehouse(tmp_path)
    made.add("db.orders", files=3)
    return made


def doctor(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    ended: Ended = call(capsys, "--config", lakehouse.config, "doctor", "--json", *flags)
    checks = ended.json["checks"]
    assert all(set(check) == {"name", "ok", "detail", "hint"} for check in checks)
    assert len({check["name"] for check in checks}) == len(checks)
    return ended.code, {check["name"]: check for check in checks}


def failed(checks: dict[str, Any]) -> list[str]:
    return [name for name, check in checks.items() if not check["ok"]]


def test_all_is_well(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    before = lakehouse.listing()
    code, checks = doctor(lakehouse, capsys)
    assert (code, failed(checks)) == (0, [])
    assert "main.db.orders" in checks["catalog main: read"]["detail"]
    assert "pyiceberg" in checks["versions"]["detail"] or "not installed" in checks["versions"]["detail"]
    assert {"configuration", "catalog main: reach", "catalog main: list", "state: write"} <= set(checks)
    assert lakehouse.listing() == before


def test_the_write_test_leaves_nothing(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    before = lakehouse.listing()
    code, checks = doctor(lakehouse, capsys, "--write-test")
    assert code == 0
    assert checks[f"store {lakehouse.folder}/wh: write"]["ok"]
    assert lakehouse.listing() == before


def test_a_catalog_that_is_not_there(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    (lakehouse.folder / "catalog.db").rename(lakehouse.folder / "other.db")
    code, checks = doctor(lakehouse, capsys)
    assert (code, failed(checks)) == (1, ["catalog main: reach"])
    assert "catalog.db" in checks["catalog main: reach"]["detail"]
    assert checks["state: write"]["ok"]


def test_a_database_that_nobody_has(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    lakehouse.config.write_text(lakehouse.config.read_text().replace("[db]", "[dv]"))
    code, checks = doctor(lakehouse, capsys)
    assert (code, failed(checks)) == (1, ["catalog main: databases"])
    assert "dv" in checks["catalog main: databases"]["detail"]
    assert "'db'" in checks["catalog main: databases"]["hint"]


def test_a_table_that_cannot_be_read(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    lakehouse.metadata_files("db.orders")["metadata"].write_bytes(b"garbage")
    code, checks = doctor(lakehouse, capsys)
    assert (code, failed(checks)) == (1, ["catalog main: read"])
    assert "main.db.orders" in checks["catalog main: read"]["detail"]
    assert checks[f"store {lakehouse.folder}/wh: list"]["ok"]


def test_a_state_that_cannot_be_written(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    (lakehouse.folder / "blocked").write_text("a file where a folder should be")
    lakehouse.config.write_text(lakehouse.config.read_text().replace("url: state", "url: blocked/state"))
    ended = call(capsys, "--config", lakehouse.config, "doctor", "--json")
    # Already opening it may tell; then nothing else is examined.
    if ended.code == 2:
        assert ended.error["field"] == "state.url"
    else:
        assert "state: write" in failed({check["name"]: check for check in ended.json["checks"]})


def test_people_see_what_to_do(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    assert "all checks passed" in call(capsys, "--config", lakehouse.config, "doctor").out
    lakehouse.config.write_text(lakehouse.config.read_text().replace("[db]", "[dv]"))
    said = call(capsys, "--config", lakehouse.config, "doctor").out
    assert "FAIL catalog main: databases" in said
    assert "1 check failed" in said


def test_a_policy_for_a_name_that_is_mistyped(tmp_path: Path) -> None:
    catalog, properties = make_sql_catalog(tmp_path)
    catalog.create_namespace("db")
    many_small_files(catalog, "db.t", commits=1)
    policies = {"tables": {"main.db.tt": {"engine": "embedded"}}, "databases": {"main.db": {"engine": "auto"}}}
    told = {check.name: check for check in open_lakehouse(tmp_path, properties, policies=policies).doctor()}
    wrong = told["catalog main: policies"]
    assert not wrong.ok
    assert "policies.tables.main.db.tt names no table" in wrong.detail
    assert "main.db.t" in str(wrong.hint)


def test_a_sql_catalog_under_another_name(tmp_path: Path) -> None:
    catalog, properties = make_sql_catalog(tmp_path, name="theirs")
    many_small_files(catalog, "db.t", commits=1)
    told = {check.name: check for check in open_lakehouse(tmp_path, properties).doctor()}
    assert not told["catalog main: list"].ok
    assert "theirs" in told["catalog main: list"].detail
