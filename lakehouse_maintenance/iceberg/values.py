"""Values that metadata holds as bytes, made comparable (Iceberg spec: Binary single-value serialization)."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

_WHOLE = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_FLOATS = {4: "<f", 8: "<d"}


def comparable(iceberg_type: str, data: bytes) -> Any:
    """A bound as a value that compares as Iceberg compares; None where it cannot be told (other types, NaN, damage).

    Numbers that were widened since are as short as they were written.
    """
    base = iceberg_type.split("(", maxsplit=1)[0].split("[", maxsplit=1)[0].strip()
    if base == "boolean":
        return data != b"\x00" if len(data) == 1 else None
    if base in _WHOLE:
        return int.from_bytes(data, "little", signed=True) if len(data) in (4, 8) else None
    if base in ("float", "double"):
        form = _FLOATS.get(len(data))
        value = None if form is None else float(struct.unpack(form, data)[0])
        return None if value is None or math.isnan(value) else value
    if base == "decimal":
        return int.from_bytes(data, "big", signed=True) if data else None
    if base == "string":
        # Bounds are cut between characters; a damaged one must not stop the measuring.
        return data.decode("utf-8", "replace")
    return bytes(data) if base in ("uuid", "fixed", "binary") else None


def partition_values(spelled: str) -> tuple[Any, ...]:
    """The values of a canonical partition tuple (LiveFile.partition), comparable with those of `comparable`."""
    return tuple(map(_value, json.loads(spelled)))


def _value(spelled: Any) -> Any:
    if not isinstance(spelled, dict):
        return spelled
    ((kind, value),) = spelled.items()
    if kind == "bytes":
        return bytes.fromhex(value)
    return float(value) if kind == "float" else value


def column_types(raw: Mapping[str, Any]) -> dict[int, str]:
    """Type of every primitive column, by field id, of all schemas of a table's metadata; the current one's where
    several have it."""
    found: dict[int, str] = {}
    for schema in _schemas(raw):
        pending: list[Any] = list(schema.get("fields") or ())
        while pending:
            field = pending.pop()
            kind = field.get("type")
            if isinstance(kind, str):
                found[int(field["id"])] = kind
            elif isinstance(kind, dict):
                pending += kind.get("fields") or ()
                for part in ("element", "key", "value"):
                    if part in kind:
                        pending.append({"id": kind[f"{part}-id"], "type": kind[part]})
    return found


def column_ids(raw: Mapping[str, Any]) -> dict[str, int]:
    """Field id of every column of the current schema by its name, with dots inside of structs."""
    found: dict[str, int] = {}
    *_, current = _schemas(raw)
    pending = [("", field) for field in current.get("fields") or ()]
    while pending:
        above, field = pending.pop()
        name = above + str(field["name"])
        found[name] = int(field["id"])
        kind = field.get("type")
        if isinstance(kind, dict):
            pending += [(f"{name}.", inner) for inner in kind.get("fields") or ()]
    return found


def _schemas(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The current one last. Format version 1 may have one schema alone."""
    current = raw.get("current-schema-id")
    schemas = list(raw.get("schemas") or [raw.get("schema") or {}])
    return sorted(schemas, key=lambda schema: schema.get("schema-id") == current)
