"""The text of a new `lakehouse.yaml`, commented for people, without a secret in clear."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_maintenance.config.environment import escape
from lakehouse_maintenance.config.secrets import is_secret_key, url_secrets

_PLAIN = re.compile(r"[A-Za-z0-9_./$][A-Za-z0-9_./$:@+=~{}-]*")
_NULLS = {"null", "~", ""}

_REST = """\
# Who does the data work: auto | embedded | spark. The embedded engine needs no Java.
engine: {use: auto, memory_limit: 4GB}

# What is remembered between runs: the journal and the leases. A folder or a URL.
state: {url: .lakehouse-maintenance}

# How long the longest query reads one snapshot; expiry never cuts nearer without an explicit word.
readers: {longest: 24h}

# When tables are maintained, and how: default, then database, then table; the nearest wins, key by key. These are the
# values that count anyway. Where a policy sets nothing, the table's own property counts, then the format's default.
# policies:
#   default:
#     rewrite_data_files:
#       trigger:
#         - {of: small_files, base: 20, scale: 0.1, size: data_files}
#         - {of: delete_files, base: 10, scale: 0.05, size: data_files}
#       min_gain: 5 files
#       cooldown: 1h
#       settle: 0s
#     expire_snapshots:
#       trigger: {of: expired_snapshots, base: 10}
#       older_than: 5 days
#       retain_last: 10
#     rewrite_manifests:
#       trigger: {of: manifests, base: 100}
#     engine: auto
"""


@dataclass(frozen=True, slots=True)
class Scaffold:
    """`text`: of the file. `environment`: variables that must be set for it, with the secrets that they hold."""

    text: str
    environment: dict[str, str] = field(repr=False)


def render_config(
    catalog_name: str,
    properties: Mapping[str, str],
    databases: Sequence[str],
    *,
    references: Mapping[str, str] | None = None,
) -> Scaffold:
    """A configuration for one catalog. Secrets become references such as `${LAKEHOUSE_MAIN_S3_SECRET_ACCESS_KEY}`.

    `properties`: PyIceberg's. `databases`: dotted names as the catalog gives them; with none, all are taken.
    `references`: by property, values that hold references already; they are written as they are.
    """
    environment: dict[str, str] = {}
    given = references or {}
    lines = [f"  {_scalar(catalog_name)}:"]
    for key, value in properties.items():
        text = given[key] if key in given else _referring(catalog_name, key, value, environment)
        lines.append(f"    {_scalar(key)}: {_scalar(text)}")
    listed = ", ".join(_scalar(database, flow=True) for database in databases) if databases else '"*"'
    names = "".join(f"#   {name}\n" for name in environment)
    needed = f"# These environment variables must be set:\n{names}\n" if names else ""
    text = (
        "# Configuration of lakehouse-maintenance. Every key is described in docs/configuration.md.\n"
        "# ${NAME} and ${NAME:-default} come from the environment; relative paths start from this file's folder.\n"
        "\n" + needed + "# Catalogs, with PyIceberg's properties.\n"
        "catalogs:\n" + "\n".join(lines) + "\n"
        "\n"
        '# The databases that Dagster shows and sensors may touch; ["*"]: all of them.\n'
        f"databases: {{{_scalar(catalog_name, flow=True)}: [{listed}]}}\n"
        "\n" + _REST
    )
    return Scaffold(text, environment)


def _referring(catalog: str, key: str, value: str, environment: dict[str, str]) -> str:
    """The value as it is written: secrets as references, everything else escaped."""
    if is_secret_key(key) and value:
        return _reference(environment, value, catalog, key)
    text = escape(value)
    for secret in sorted(set(_written_secrets(value)), key=len, reverse=True):
        text = text.replace(escape(secret), _reference(environment, secret, catalog, key, "password"))
    return text


def _written_secrets(value: str) -> Iterator[str]:
    return (secret for secret in url_secrets(value) if secret and secret in value)


def _reference(environment: dict[str, str], secret: str, *parts: str) -> str:
    base = re.sub(r"[^A-Z0-9]+", "_", "_".join(("LAKEHOUSE", *parts)).upper()).strip("_")
    name, number = base, 2
    while environment.get(name, secret) != secret:
        name, number = f"{base}_{number}", number + 1
    environment[name] = secret
    return f"${{{name}}}"


def _scalar(text: str, *, flow: bool = False) -> str:
    """The text as a YAML scalar, in quotes where it needs them; inside [ ] and { } more does."""
    needs_quotes = not _PLAIN.fullmatch(text) or text.endswith(":") or text.lower() in _NULLS
    if flow and re.search(r"[{}:]", text):
        needs_quotes = True
    return json.dumps(text, ensure_ascii=False) if needs_quotes else text
