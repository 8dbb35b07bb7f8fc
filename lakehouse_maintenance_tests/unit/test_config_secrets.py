"""Secrets show nowhere: not in repr, str, dumps, errors, nor in text that repeats them."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from lakehouse_maintenance.config import LakehouseConfig, Masker, config_from_mapping, load_config, mask
from lakehouse_maintenance.config.secrets import is_secret_key, mask_url
from lakehouse_maintenance.model.errors import ConfigurationError

SECRETS = (
    "hunter2-hunter2",
    "AKIAEXAMPLEKEY",
    "p@ss/w'rd x",
    "oauth-secret",
    "storage-key-1",
    "conf-secret",
    "st4te",
    "state-key-1",
)


def config_loaded() -> LakehouseConfig:
    return config_from_mapping(
        {
            "catalogs": {
                "main": {
                    "type": "sql",
                    "uri": "postgresql://me:p%40ss%2Fw'rd%20x@db.example.com/catalog",
                    "s3.access-key-id": "AKIAEXAMPLEKEY",
                    "s3.secret-access-key": "hunter2-hunter2",
                    "s3.region": "eu-central-1",
                    "credential": "client:oauth-secret",
                    "auth": {"type": "basic", "basic": {"username": "me", "password": "oauth-secret"}},
                }
            },
            "delta": {"lake": {"storage_options": {"AWS_SECRET_ACCESS_KEY": "storage-key-1", "AWS_REGION": "eu"}}},
            "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": "conf-secret", "spark.x": "1"}},
            "state": {
                "url": "postgresql://me:st4te@db.example.com/state",
                "properties": {"s3.secret-access-key": "state-key-1", "s3.region": "eu"},
            },
        },
        environment={},
    )


def test_nothing_shown_holds_a_secret() -> None:
    loaded = config_loaded()
    shown = [repr(loaded), str(loaded), json.dumps(loaded.masked()), loaded.model_dump_json(), str(loaded.model_dump())]
    shown += [repr(loaded.catalogs["main"]), str(loaded.catalogs["main"]), repr(loaded.delta), repr(loaded.state)]
    for text in shown:
        assert not [secret for secret in SECRETS if secret in text]
        assert "p%40ss" not in text
    masked = loaded.masked()
    assert masked["catalogs"]["main"]["s3.region"] == "eu-central-1"
    assert masked["catalogs"]["main"]["s3.secret-access-key"] == "***"
    assert masked["catalogs"]["main"]["uri"] == "postgresql://me:***@db.example.com/catalog"
    assert masked["delta"]["lake"]["storage_options"] == {"AWS_SECRET_ACCESS_KEY": "***", "AWS_REGION": "eu"}
    assert masked["state"]["url"] == "postgresql://me:***@db.example.com/state"
    assert masked["state"]["properties"] == {"s3.secret-access-key": "***", "s3.region": "eu"}


def test_the_real_values_are_there_for_those_who_connect() -> None:
    loaded = config_loaded()
    assert loaded.catalogs["main"].properties()["s3.secret-access-key"] == "hunter2-hunter2"
    assert loaded.delta["lake"].storage_options["AWS_SECRET_ACCESS_KEY"] == "storage-key-1"
    assert loaded.state.url.startswith("postgresql://me:st4te@")
    assert loaded.state.properties["s3.secret-access-key"] == "state-key-1"


def test_text_that_repeats_a_secret_is_masked() -> None:
    loaded = config_loaded()
    for secret in SECRETS:
        text = mask(f"cannot sign with {secret}!", loaded)
        assert secret not in text
        assert "***" in text
    assert "p%40ss" not in mask("postgresql://me:p%40ss%2Fw'rd%20x@other/x", loaded)
    assert mask("401 for https://u:fresh@h/x?sig=abc&n=1", loaded) == "401 for https://u:***@h/x?sig=***&n=1"
    assert mask("eu-central-1 and analytics.events", loaded) == "eu-central-1 and analytics.events"


def test_short_secrets_are_masked_as_words_only() -> None:
    masker = Masker(["admin", "true", ""])
    assert masker.mask("user admin of admin_events is administrator: true") == (
        "user *** of admin_events is administrator: true"
    )
    assert "admin" not in repr(masker)


@pytest.mark.parametrize(
    "text",
    [
        "catalogs:\n  main:\n    type: sql\n    s3.secret-access-key: [hunter2-hunter2]\n",
        "catalogs:\n  main:\n    type: sql\n    s3.secret-access-key: {x: hunter2-hunter2}\n",
        "catalogs:\n  main:\n    type: hunter2-hunter2\n    token: hunter2-hunter2\n",
        "catalogs:\n  main: hunter2-hunter2\n",
        "catalog:\n  main:\n    s3.secret-access-key: hunter2-hunter2\n",
        "catalogs: {main: {type: sql}}\nsecret: hunter2-hunter2\n",
        "catalogs: {main: {type: sql}}\nengine: {use: '${PASSWORD}'}\n",
        "catalogs: {main: {type: sql}}\nengine: {memory_limit: '${PASSWORD}'}\n",
        "catalogs: {main: {type: sql}}\nspark: {conf: {a.password: [hunter2-hunter2]}}\n",
        "catalogs: {main: {type: sql}}\nengine: {use: 'postgresql://u:hunter2-hunter2@h'}\n",
        "catalogs:\n  main:\n    token: 'hunter2-hunter2\n",
        "catalogs:\n  main:\n    token: %hunter2-hunter2\n",
        "catalogs:\n  main:\n    token: !hunter2-hunter2 x\n",
    ],
)
def test_errors_do_not_repeat_secrets(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lakehouse.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_config(path, environment={"PASSWORD": SECRETS[0]})
    assert "hunter2" not in f"{caught.value.as_json()}"
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("s3.access-key-id", True),
        ("s3.secret-access-key", True),
        ("s3.session-token", True),
        ("gcs.oauth2.token", True),
        ("gcs.oauth2.token-expires-at", False),
        ("adls.account-key", True),
        ("adls.sas-token", True),
        ("adls.client-secret", True),
        ("adls.connection-string", True),
        ("adls.account-name", False),
        ("credential", True),
        ("token", True),
        ("password", True),
        ("header.Authorization", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("azure_storage_sas_key", True),
        ("fs.s3a.access.key", True),
        ("accessKeyId", True),
        ("oauth2-server-uri", False),
        ("s3.endpoint", False),
        ("s3.region", False),
        ("type", False),
        ("warehouse", False),
        ("key", False),
        ("saskatoon", False),
    ],
)
def test_which_keys_are_secret(key: str, expected: bool) -> None:
    assert is_secret_key(key) is expected


def test_urls() -> None:
    assert mask_url("postgresql://me:p@ss/w@h/db?password=x&a=b") == "postgresql://me:***@h/db?password=***&a=b"
    assert mask_url("https://h:8080/path") == "https://h:8080/path"
    assert mask_url("sqlite:////a/b.db") == "sqlite:////a/b.db"
    assert mask_url("abfss://container@account.dfs.core.windows.net/x") == (
        "abfss://container@account.dfs.core.windows.net/x"
    )
