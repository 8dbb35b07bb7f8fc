"""The command line against tables on a real S3 server: from `init` to a verified rewrite, without a secret shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.small_lakehouse import SmallLakehouse, call


@pytest.fixture
def on_s3(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLakehouse:
    """A SQLite catalog in the working directory, its one sick table in a bucket of its own."""
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = f"s3://{s3.bucket()}/warehouse"
    catalog = SqlCatalog("main", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse, **s3.properties)
    catalog.create_namespace("db")
    lakehouse = SmallLakehouse(tmp_path, catalog)
    lakehouse.add("db.sick", files=25)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEHOUSE_MAINTENANCE_CONFIG", raising=False)
    return lakehouse


def test_from_init_to_a_verified_rewrite(
    on_s3: SmallLakehouse, s3: S3Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = s3.secret_key
    before = on_s3.catalog.load_table("db.sick").scan().to_arrow().sort_by("id")
    warehouse = on_s3.catalog.properties["warehouse"]
    properties = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": warehouse, **s3.properties}
    options = [part for key, value in properties.items() for part in ("--property", f"{key}={value}")]
    started = call(capsys, "init", "--catalog", "main", *options, "--json")
    assert started.code == 0
    assert secret not in on_s3.config.read_text() + started.out + started.err
    for name in started.json["environment"]:
        monkeypatch.setenv(name, s3.access_key if "ACCESS_KEY_ID" in name else secret)

    doctor = call(capsys, "doctor", "--write-test", "--json")
    assert doctor.code == 0, doctor.out
    checks = {check["name"]: check for check in doctor.json["checks"]}
    assert checks[f"store {warehouse}: write"]["ok"]
    objects = s3.client().list_objects_v2(Bucket=warehouse.split("/")[2])["Contents"]
    assert not [one["Key"] for one in objects if "write_test" in one["Key"]]

    assert call(capsys, "plan", "--out", "plan.json").code == 0
    applied = call(capsys, "apply", "plan.json", "--json")
    assert applied.code == 0
    (table,) = applied.json["tables"]
    assert [(action["status"], action["verified"]) for action in table["actions"]] == [("done", True)]
    assert on_s3.catalog.load_table("db.sick").scan().to_arrow().sort_by("id") == before
    assert call(capsys, "maintain", "--json").json["tables"][0]["status"] == "skipped"
    for verb in ("health", "audit"):
        assert secret not in call(capsys, verb, "--json").out


def test_wrong_credentials(on_s3: SmallLakehouse, s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    on_s3.config.write_text(
        "catalogs:\n"
        f"  main: {{type: sql, uri: 'sqlite:///catalog.db', warehouse: '{on_s3.catalog.properties['warehouse']}',\n"
        f"         s3.endpoint: '{s3.endpoint}', s3.region: us-east-1,\n"
        f"         s3.access-key-id: {s3.access_key}, s3.secret-access-key: not-the-secret-1}}\n"
    )
    ended = call(capsys, "health", "--json")
    assert ended.code == 1
    (table,) = ended.json["tables"]
    assert "main.db.sick" in table["error"] or "s3://" in table["error"]
    doctor = call(capsys, "doctor", "--json")
    assert doctor.code == 1
    failed = [check["name"] for check in doctor.json["checks"] if not check["ok"]]
    assert "catalog main: read" in failed
    for said in (ended.out, ended.err, doctor.out, doctor.err):
        assert "not-the-secret-1" not in said
