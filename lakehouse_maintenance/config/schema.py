"""The JSON schema of `lakehouse.yaml` for editors, and the page that describes every key; both made from the models.

`python -m lakehouse_maintenance.config.schema [FOLDER]` writes both files, by default into the checkout's `docs/`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import time, timedelta
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from lakehouse_maintenance.config.models import LakehouseConfig
from lakehouse_maintenance.config.policies import MinGain
from lakehouse_maintenance.model.intervals import CalendarInterval, format_duration, write_size

SCHEMA_FILE = "lakehouse.schema.json"
PAGE_FILE = "configuration.md"

_REFERENCE = r"\$\{.+\}"
_TRIGGER = {"$ref": "#/$defs/Trigger"}
_PLACES = {
    "catalogs": "NAME",
    "databases": "NAME",
    "delta": "NAME",
    "sources": "NAME",
    "shared_locations": "N",
    "policies.databases": "NAME",
    "policies.tables": "NAME",
}
_INTRODUCTION = """\
# Configuration

Everything stands in one file, `lakehouse.yaml`. It is found at `--config`, else where the environment variable
`LAKEHOUSE_MAINTENANCE_CONFIG` points, else in the working directory. `lakehouse-maintenance init` writes one.

- Relative paths, also in `sqlite:///relative.db`, start from the file's folder.
- `${NAME}` and `${NAME:-default}` in values come from the environment; a plain `${` is written `$${`.
- Durations are written as `30s`, `15 minutes`, `36h`, `7 days`, `1 day 12 hours`.
- Sizes are written as `64KB`, `512MB`, `1.5GB`, or in bytes. 1 KB is 1024 bytes, as Iceberg counts.
- Unknown keys, keys that stand twice, and values of the wrong kind are errors that name the key.
- Passwords, tokens, keys and key ids are shown as `***` wherever the product shows its configuration.
- Editors check the file by `docs/lakehouse.schema.json`.

Policies are merged key by key: `policies.default`, then the database's, then the table's. The keys below
`policies.default` may stand below `policies.databases.NAME` and `policies.tables.NAME` as well. Mappings merge,
a `trigger` and a list are replaced as a whole, and `null` takes a `window` or `budget` away. Where a policy sets
nothing, the table's own property counts, then the default of Iceberg or Delta.

This page is made from the models by `python -m lakehouse_maintenance.config.schema`.
"""


def json_schema() -> dict[str, Any]:
    """The schema of `lakehouse.yaml`, JSON Schema draft 2020-12."""
    schema = _models_schema()
    tolerant = {key: _tolerant(value) for key, value in schema.items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "lakehouse.yaml", **tolerant}


def configuration_page() -> str:
    """The Markdown page of every key: meaning, default, example."""
    schema = _models_schema()
    lines = [_INTRODUCTION]
    for name, section in schema["properties"].items():
        lines += [f"## {name}", ""]
        rows = list(_rows(name, section, schema, is_required=False))
        lines += ["| key | meaning | default | example |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def write_files(folder: Path) -> list[Path]:
    """Writes both files into the folder."""
    schema, page = folder / SCHEMA_FILE, folder / PAGE_FILE
    schema.write_text(schema_text(), encoding="utf-8")
    page.write_text(configuration_page(), encoding="utf-8")
    return [schema, page]


def schema_text() -> str:
    """The content of the schema's file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


class _Written(GenerateJsonSchema):
    """Defaults as people write them, keys in the order of the models, no titles that only repeat the keys."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return format_duration(dft)
        if isinstance(dft, time):
            return dft.strftime("%H:%M")
        if isinstance(dft, CalendarInterval | MinGain):
            return str(dft)
        return super().encode_default(dft)

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _models_schema() -> dict[str, Any]:
    schema = LakehouseConfig.model_json_schema(by_alias=True, mode="validation", schema_generator=_Written)
    definitions = schema["$defs"]
    for model in (schema, *definitions.values()):
        for node in model.get("properties", {}).values():
            # pydantic leaves a description out where the model's own is the same.
            if "$ref" in node and "description" not in node:
                node["description"] = definitions[node["$ref"].rpartition("/")[2]]["description"]
            if node.get("type") == ["string", "integer"] and isinstance(node.get("default"), int):
                node["default"] = write_size(node["default"])
    return schema


def _tolerant(node: Any) -> Any:
    """What the loader takes beside the models' own types, so that an editor does not object to it.

    A reference to the environment where a number, a flag or a choice stands; one trigger without a list around it;
    numbers and flags among the properties of other libraries.
    """
    if isinstance(node, list):
        return [_tolerant(item) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {key: value if key in ("default", "examples") else _tolerant(value) for key, value in node.items()}
    kind = changed.get("type")
    if kind in ("integer", "number", "boolean"):
        return changed | {"type": [kind, "string"], "pattern": _REFERENCE}
    if kind == "string" and "enum" in changed:
        choices = {"enum": changed.pop("enum")}
        del changed["type"]
        return changed | {"anyOf": [choices, {"type": "string", "pattern": _REFERENCE}]}
    if changed.get("items") == _TRIGGER:
        listed = {"type": changed.pop("type"), "items": changed.pop("items")}
        return changed | {"anyOf": [_TRIGGER, listed]}
    if changed.get("additionalProperties") == {"type": "string"}:
        return changed | {"additionalProperties": {"type": ["string", "number", "boolean"]}}
    return changed


def _rows(key: str, node: dict[str, Any], schema: dict[str, Any], *, is_required: bool) -> Iterator[str]:
    yield f"| `{key}` | {_cell(node.get('description', ''))} | {_default(node, is_required)} | {_example(node)} |"
    if key in ("policies.databases", "policies.tables"):
        return
    inner = _model(node, schema)
    if inner is None:
        return
    place = f"{key}.{_PLACES[key]}" if key in _PLACES else key
    if key.endswith(".trigger") and not key.startswith("policies.default.rewrite_data_files"):
        return
    required = inner.get("required", [])
    for name, child in inner["properties"].items():
        yield from _rows(f"{place}.{name}", child, schema, is_required=name in required)


def _model(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    """The mapping with known keys behind a key: itself, what a name or number leads to, or the choice beside null."""
    if "$ref" in node:
        model = schema["$defs"][node["$ref"].rpartition("/")[2]]
        return model if "properties" in model else None
    nested = [node.get("items"), node.get("additionalProperties"), *node.get("anyOf", [])]
    found = (_model(child, schema) for child in nested if isinstance(child, dict))
    return next((model for model in found if model is not None), None)


def _default(node: dict[str, Any], is_required: bool) -> str:
    if is_required:
        return "required"
    if "default" not in node:
        return "`{}`" if node.get("type") == "object" else ""
    return _code(node["default"])


def _example(node: dict[str, Any]) -> str:
    return ", ".join(_code(example) for example in node.get("examples", []))


def _code(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else _flow(value)
    return f"`{_cell(text)}`"


def _flow(value: Any) -> str:
    """A value as YAML in one line, as people write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dict):
        shown = ((key, item) for key, item in value.items() if item is not None)
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in shown) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    text = str(value)
    return f'"{text}"' if re.search(r"^\*|\$\{|: |[0-9]:[0-9]", text) else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(arguments: list[str]) -> int:
    """Writes the files and names them."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2] / "docs"
    if not folder.is_dir():
        sys.stderr.write(f"there is no folder {folder}: name the one to write to\n")
        return 2
    for path in write_files(folder):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
