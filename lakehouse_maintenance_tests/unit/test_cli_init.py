"""`init` writes a file that works, for the catalog that it tried, without a secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.config import load_config
from lakehouse_maintenance_tests.small_lakehouse import Ended, SmallLakehouse, call, call_process, make_lakehouse


@pytest.fixture
def lakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLakehouse:
    """Its own configuration is out of the way, and the working directory is its folder."""
    made = make_lakehouse(tmp_path, databases=("sales", "analytics"))
    made.config.unlink()
    made.add("sales.orders", files=25)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEHOUSE_MAINTENANCE_CONFIG", raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return made


def init(capsys: pytest.CaptureFixture[str], *properties: str, flags: tuple[object, ...] = ()) -> Ended:
    options = [part for text in properties for part in ("--property", text)]
    return call(capsys, "init", "--catalog", "main", *options, *flags)


RELATIVE = ("type=sql", "uri=sqlite:///catalog.db", "warehouse=wh")


def test_what_it_writes_works(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = init(capsys, *RELATIVE, flags=("--json",))
    assert ended.code == 0
    assert ended.json["config"] == str(lakehouse.config)
    assert ended.json["databases"] == ["analytics", "sales"]
    assert ended.json["environment"] == []
    config = load_config(lakehouse.config)
    assert config.databases == {"main": ("analytics", "sales")}
    # Still relative, so that the folder can be moved as a whole.
    assert "sqlite:///catalog.db" in lakehouse.config.read_text()
    (table,) = call(capsys, "health", "--json").json["tables"]
    assert (table["table"], table["error"]) == ("main.sales.orders", None)


def test_it_says_what_comes_next(lakehouse: SmallLakehouse) -> None:
    argv = [part for text in RELATIVE for part in ("--property", text)]
    ended = call_process("init", "--catalog", "main", *argv, folder=lakehouse.folder)
    assert ended.code == 0
    assert "catalog main has 2 databases: analytics, sales" in ended.out
    assert "lakehouse-maintenance doctor" in ended.out


def test_paths_are_the_working_directorys(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    (lakehouse.folder / "etc").mkdir()
    config = lakehouse.folder / "etc" / "mine.yaml"
    ended = init(capsys, *RELATIVE, flags=("--config", config, "--json"))
    assert ended.code == 0
    assert all(f"--config {config}" in command for command in ended.json["next"])
    properties = load_config(config).catalogs["main"].properties()
    assert properties["uri"] == f"sqlite:///{lakehouse.folder}/catalog.db"
    assert properties["warehouse"] == f"{lakehouse.folder}/wh"
    assert call(capsys, "health", "--config", config).code == 0


def test_it_writes_where_the_other_verbs_look(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = lakehouse.folder / "elsewhere.yaml"
    monkeypatch.setenv("LAKEHOUSE_MAINTENANCE_CONFIG", str(elsewhere))
    assert init(capsys, *RELATIVE).code == 0
    assert elsewhere.exists()
    assert not lakehouse.config.exists()
    assert call(capsys, "health").code == 0


def test_it_never_overwrites(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    lakehouse.config.write_text("precious: true\n")
    ended = init(capsys, *RELATIVE, flags=("--json",))
    assert (ended.code, ended.error["field"]) == (2, "config")
    assert "never overwritten" in ended.error["message"]
    assert lakehouse.config.read_text() == "precious: true\n"


def test_secrets_become_references(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = init(capsys, *RELATIVE, "s3.secret-access-key=hidden-secret-1")
    assert ended.code == 0
    text = lakehouse.config.read_text()
    assert "hidden-secret-1" not in text + ended.out + ended.err
    name = "LAKEHOUSE_MAIN_S3_SECRET_ACCESS_KEY"
    assert name in ended.out
    assert call(capsys, "health").code == 2
    monkeypatch.setenv(name, "hidden-secret-1")
    assert load_config(lakehouse.config).catalogs["main"].properties()["s3.secret-access-key"] == "hidden-secret-1"
    assert call(capsys, "health").code == 0


def test_references_stay_references(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hidden-secret-1")
    ended = init(
        capsys, *RELATIVE, "s3.secret-access-key=${MY_KEY}", "s3.region=${REGION:-eu-central-1}", flags=("--json",)
    )
    assert ended.code == 0
    assert ended.json["environment"] == []
    text = lakehouse.config.read_text()
    assert "${MY_KEY}" in text
    assert "hidden-secret-1" not in text
    properties = load_config(lakehouse.config).catalogs["main"].properties()
    assert (properties["s3.secret-access-key"], properties["s3.region"]) == ("hidden-secret-1", "eu-central-1")


def test_without_properties_pyicebergs_own_configuration_counts(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    (lakehouse.folder / ".pyiceberg.yaml").write_text(
        "catalog:\n  main:\n    type: sql\n"
        f"    uri: sqlite:///{lakehouse.folder}/catalog.db\n    warehouse: {lakehouse.folder}/wh\n"
    )
    assert init(capsys).code == 0
    assert load_config(lakehouse.config).catalogs["main"].type == "sql"


@pytest.mark.parametrize(
    ("properties", "field", "said"),
    [
        ((), "--property", "there is no --property"),
        (("type",), "--property", "name=value"),
        (("type=sql", "type=rest"), "--property type", "twice"),
        (("warehouse=wh",), "catalogs.main", "neither type nor uri"),
        (("type=sqll", "uri=sqlite:///catalog.db"), "catalogs.main.type", "sqll"),
        (("type=sql", "uri=sqlite:///gone.db"), "catalogs.main.uri", "gone.db"),
        (("type=sql", "uri=sqlite:///${NOT_SET_ANYWHERE}"), "catalogs.main.uri", "NOT_SET_ANYWHERE"),
        (("type=rest", "uri=http://127.0.0.1:9", "token=hidden-secret-1"), "catalogs.main.uri", "cannot be reached"),
    ],
)
def test_a_catalog_that_does_not_answer_writes_nothing(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], properties: tuple[str, ...], field: str, said: str
) -> None:
    before = lakehouse.listing()
    ended = init(capsys, *properties, flags=("--json",))
    assert ended.code == 2
    assert ended.error["field"] == field
    assert said in ended.error["message"]
    assert "hidden-secret-1" not in ended.out + ended.err
    assert lakehouse.listing() == before
