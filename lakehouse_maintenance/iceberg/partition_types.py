"""The Avro type of a spec's partition tuples (Iceberg spec: Manifests, `partition`; Appendix A: Avro).

Files that stay in their partition keep the type of the manifest they come from; files that come under another spec
need one that may not be in any manifest yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakehouse_maintenance.iceberg.fields import AvroType

_PLAIN: dict[str, AvroType] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    "timestamptz_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    "string": "string",
    "uuid": {"type": "fixed", "size": 16, "name": "uuid_fixed", "logicalType": "uuid"},
    "binary": "bytes",
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")
_TRANSFORM = re.compile(r"identity|void|(?:bucket|truncate)\[\d+\]|year|month|day|hour")


def partition_avro_type(schema: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> AvroType:
    """A record with a field for each of the spec's, null allowed; `schema` and `fields` as in table metadata.

    Raises ValueError where a tuple cannot be computed (`why_unwritable` says it beforehand).
    """
    why = why_unwritable(schema, fields)
    if why is not None:
        raise ValueError(why)
    taken: set[str] = set()
    result = []
    for field in fields:
        name = avro_name(field["name"], taken)
        kind = _result_type(field["transform"], _source_type(schema, field) or "int")
        made = {"name": name, "type": ["null", kind], "default": None, "field-id": field["field-id"]}
        if name != field["name"]:
            made["iceberg-field-name"] = field["name"]
        result.append(made)
    return {"type": "record", "name": "r102", "fields": result}


def why_unwritable(schema: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> str | None:
    """Why no rows of the schema can be written under the spec; None where they can."""
    for field in fields:
        transform = field["transform"]
        if transform == "void":
            continue
        if not _TRANSFORM.fullmatch(transform):
            return f"its field {field['name']!r} has the transform {transform!r}"
        source = _source_type(schema, field)
        if source is None:
            return f"its field {field['name']!r} is of a column that the table no longer has, or of several"
        if source not in _PLAIN and not _DECIMAL.fullmatch(source) and not _FIXED.fullmatch(source):
            return f"its field {field['name']!r} is of type {source}"
    return None


def avro_name(name: str, taken: set[str]) -> str:
    """The name as Iceberg's Java writers make it fit for Avro (AvroSchemaUtil.sanitize), and never twice."""
    made = "".join(
        char
        if char == "_" or (char.isascii() and (char.isalpha() or (char.isdigit() and position)))
        else (f"_{char}" if char.isascii() and char.isdigit() else f"_x{ord(char):X}")
        for position, char in enumerate(name)
    )
    unique, number = made or "_", 1
    while unique in taken:
        unique, number = f"{made}_{number}", number + 1
    taken.add(unique)
    return unique


def decimal_size(precision: int) -> int:
    """Bytes that a decimal of so many digits needs (Appendix A: minimum number of bytes)."""
    return int(10**precision).bit_length() // 8 + 1


def _source_type(schema: Mapping[str, Any], field: Mapping[str, Any]) -> str | None:
    """The type of the field's one source column, in Iceberg's spelling; None where there is none, or no single one."""
    sources = field.get("source-ids") or [field.get("source-id")]
    if len(sources) != 1:
        return None
    pending: list[Any] = list(schema.get("fields") or ())
    while pending:
        one = pending.pop()
        if one["id"] == sources[0]:
            return str(one["type"]) if isinstance(one["type"], str) else "a nested type"
        # Values in lists and maps are no source of a partition: a row has several.
        if isinstance(one["type"], dict) and one["type"].get("type") == "struct":
            pending += one["type"]["fields"]
    return None


def _result_type(transform: str, source: str) -> AvroType:
    if transform.startswith("bucket") or transform in ("year", "month", "hour"):
        return "int"
    if transform == "day":
        return _PLAIN["date"]
    decimal = _DECIMAL.fullmatch(source)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return {
            "type": "fixed",
            "size": decimal_size(precision),
            "name": f"decimal_{precision}_{scale}",
            "logicalType": "decimal",
            "precision": precision,
            "scale": scale,
        }
    fixed = _FIXED.fullmatch(source)
    if fixed is not None:
        return {"type": "fixed", "size": int(fixed[1]), "name": f"fixed_{fixed[1]}"}
    return _PLAIN[source]
