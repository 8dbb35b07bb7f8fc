"""Files made from the models: the editors' schema, the page of every key, and the new configuration of `init`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakehouse_maintenance.config import load_config, render_config
from lakehouse_maintenance.config.schema import configuration_page, json_schema, main, schema_text
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance_tests.unit.test_config_loading import EVERYTHING

DOCS = Path(__file__).parents[2] / "docs"
REFRESH = "run: python -m lakehouse_maintenance.config.schema"


def test_the_checked_in_schema_is_fresh() -> None:
    assert (DOCS / "lakehouse.schema.json").read_text(encoding="utf-8") == schema_text(), REFRESH


def test_the_page_of_every_key_is_fresh() -> None:
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == configuration_page(), REFRESH


def test_every_key_is_described_and_every_value_has_an_example() -> None:
    schema = json_schema()
    for name, model in {"lakehouse.yaml": schema, **schema["$defs"]}.items():
        for key, node in model.get("properties", {}).items():
            assert node.get("description"), f"{name}.{key}"
            assert "$ref" in node or node.get("examples"), f"{name}.{key}"


def test_the_schema_accepts_what_the_loader_accepts() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def errors(data: Any) -> list[str]:
        return [error.message for error in validator.iter_errors(data)]

    everything = yaml.safe_load(EVERYTHING)
    assert errors(everything) == []
    assert errors(everything | {"limits": {"removed_files": "${N}"}, "engine": {"use": "${ENGINE:-auto}"}}) == []
    assert errors({"catalogs": {"main": {"type": "sql", "s3.timeout": 5, "x": True}}}) == []
    assert errors({"policies": {"default": {"rewrite_manifests": {"trigger": []}}}}) == []
    assert errors({"engin": {}}) != []
    assert errors({"limits": {"removed_files": "many"}}) != []
    assert errors({"policies": {"default": {"rewrite_manifests": {"trigger": {"of": "nothing", "base": 1}}}}}) != []


def test_the_module_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configuration.md", "lakehouse.schema.json"]
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no folder" in capsys.readouterr().err


PROPERTIES = {
    "type": "sql",
    "uri": "postgresql://me:p%40ss word@db.example.com/catalog",
    "warehouse": "s3://lake/warehouse",
    "s3.endpoint": "http://127.0.0.1:8333",
    "s3.access-key-id": "AKIAEXAMPLE",
    "s3.secret-access-key": "hunter2: #'\"${X}",
    "s3.region": "us-east-1",
    "odd": "a ${B} 'c' \"d\" # e: f\n\tg",
    "null-like": "null",
    "number": "007",
    "empty": "",
}


def test_a_new_configuration_loads_and_holds_no_secret(tmp_path: Path) -> None:
    scaffold = render_config("main", PROPERTIES, ["analytics", "a.`b.c`", "null", "x{y}"])
    assert scaffold.environment == {
        "LAKEHOUSE_MAIN_URI_PASSWORD": "p%40ss word",
        "LAKEHOUSE_MAIN_S3_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "LAKEHOUSE_MAIN_S3_SECRET_ACCESS_KEY": "hunter2: #'\"${X}",
    }
    assert not [secret for secret in ("p%40ss", "AKIA", "hunter2") if secret in scaffold.text + repr(scaffold)]
    assert all(f"#   {name}\n" in scaffold.text for name in scaffold.environment)
    assert scaffold.text.startswith("# ")
    path = tmp_path / "lakehouse.yaml"
    path.write_text(scaffold.text, encoding="utf-8")
    config = load_config(path, environment=scaffold.environment)
    assert config.catalogs["main"].properties() == PROPERTIES
    assert config.databases == {"main": ("analytics", "a.`b.c`", "null", "x{y}")}


@pytest.mark.parametrize("name", ["main", "prod-eu", "ein Katalog", "1", "yes", "a:b", "[x]"])
def test_any_catalog_name(tmp_path: Path, name: str) -> None:
    scaffold = render_config(name, {"type": "sql", "token": "secret-1"}, [])
    (variable,) = scaffold.environment
    assert re.fullmatch(r"LAKEHOUSE_[A-Z0-9_]+", variable)
    path = tmp_path / "lakehouse.yaml"
    path.write_text(scaffold.text, encoding="utf-8")
    config = load_config(path, environment=scaffold.environment)
    assert config.catalogs[name].properties()["token"] == "secret-1"
    assert config.databases == {name: ("*",)}


def test_the_commented_policies_are_the_defaults(tmp_path: Path) -> None:
    text = render_config("main", {"type": "sql"}, ["a"]).text
    head, _, commented = text.partition("# policies:\n")
    path = tmp_path / "lakehouse.yaml"
    path.write_text(head + "policies:\n" + commented.replace("# ", ""), encoding="utf-8")
    written = load_config(path, environment={})
    path.write_text(text, encoding="utf-8")
    default = load_config(path, environment={})
    name = TableName("main", ("a",), "t")
    assert written.policies.default.model_fields_set
    assert written.policy_for(name) == default.policy_for(name)
    assert written.masked()["engine"] == default.masked()["engine"]


def test_two_different_secrets_never_share_a_variable() -> None:
    scaffold = render_config("main", {"type": "rest", "a.token": "one-secret", "a-token": "two-secret"}, [])
    assert sorted(scaffold.environment.values()) == ["one-secret", "two-secret"]
