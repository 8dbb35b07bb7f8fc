"""Avro containers as Iceberg writes them, read and written with raw values and with our own field names.

fastavro resolves fields by name; Iceberg identifies them by id, and its writers disagree on some names. So the schema
in a container's header is replaced, before reading, by the same schema with our names and without logical types
(partition values stay numbers and bytes, and go back unchanged). Writing does the reverse: values go out through the
raw schema, and the header then declares the one with logical types.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro

from lakehouse_maintenance.iceberg.fields import DATA_FILE_ID, NAMES, PARTITION_ID, AvroType

_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)
_MAGIC = b"Obj\x01"


@dataclass(frozen=True, slots=True)
class Container:
    """`records` with our field names; `metadata` of the header; `partition`: Avro type of the partition tuple."""

    records: list[dict[str, Any]]
    metadata: dict[str, bytes]
    partition: AvroType


@dataclass(frozen=True, slots=True)
class _Schemas:
    writer: bytes
    reader: Any
    partition: AvroType


def read_container(data: bytes, skip: frozenset[str] = frozenset()) -> Container:
    """Reads a manifest or manifest list; `skip`: fields of `data_file` to leave out, cheaply.

    Raises ValueError where the bytes are no Avro container, are cut short, or have no schema of ours.
    """
    stream = io.BytesIO(data)
    try:
        header = fastavro.schemaless_reader(stream, _HEADER, None)
        if not isinstance(header, dict) or header["magic"] != _MAGIC:
            raise ValueError("not an Avro file")
        metadata: dict[str, bytes] = header["meta"]
        schemas = _schemas(metadata["avro.schema"], skip)
        swapped = io.BytesIO()
        fastavro.schemaless_writer(swapped, _HEADER, {**header, "meta": {**metadata, "avro.schema": schemas.writer}})
        swapped.write(data[stream.tell() :])
        swapped.seek(0)
        records: list[Any] = list(fastavro.reader(swapped, schemas.reader))
    except ValueError:
        raise
    except Exception as error:  # fastavro raises EOFError, IndexError, struct.error, zlib.error … on damaged input
        raise ValueError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
    return Container(records, metadata, schemas.partition)


def write_container(
    records: Iterable[dict[str, Any]], declared: AvroType, metadata: dict[str, str], *, codec: str = "deflate"
) -> bytes:
    """An Avro container whose header declares `declared` and whose values are raw (see module docstring)."""
    out = io.BytesIO()
    fastavro.writer(out, _parsed_raw(json.dumps(declared)), records, codec=codec, metadata=metadata)
    stream = io.BytesIO(out.getvalue())
    header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
    result = io.BytesIO()
    meta = {**header["meta"], "avro.schema": json.dumps(declared).encode()}
    fastavro.schemaless_writer(result, _HEADER, {**header, "meta": meta})
    result.write(out.getvalue()[stream.tell() :])
    return result.getvalue()


@lru_cache(maxsize=256)
def _parsed_raw(declared: str) -> Any:
    return fastavro.parse_schema(_raw(json.loads(declared), rename=False))


@lru_cache(maxsize=256)
def _schemas(schema_text: bytes, skip: frozenset[str]) -> _Schemas:
    schema = json.loads(schema_text)
    raw = _raw(schema, rename=True)
    data_file = _field_type(schema, DATA_FILE_ID)
    partition = _field_type(data_file, PARTITION_ID) if data_file is not None else None
    reader = fastavro.parse_schema(_without(raw, skip)) if skip and data_file is not None else None
    return _Schemas(json.dumps(raw).encode(), reader, partition)


def _field_type(record: AvroType, field_id: int) -> AvroType:
    for field in record.get("fields", ()):
        if field.get("field-id") == field_id:
            return field["type"]
    return None


def _raw(schema: AvroType, *, rename: bool) -> AvroType:
    """The schema without logical types, and with our names for the fields whose ids we know."""
    if isinstance(schema, list):
        return [_raw(branch, rename=rename) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if key != "logicalType"}
    if result.get("type") == "record":
        # A partition tuple's own fields have ids of the table's choice: they keep their names.
        result["fields"] = [
            {
                **field,
                "name": NAMES.get(field.get("field-id"), field["name"]) if rename else field["name"],
                "type": _raw(field["type"], rename=rename and field.get("field-id") != PARTITION_ID),
            }
            for field in result["fields"]
        ]
        return result
    for key in ("items", "values", "type"):
        if isinstance(result.get(key), dict | list):
            result[key] = _raw(result[key], rename=rename)
    return result


def _without(raw: AvroType, skip: frozenset[str]) -> AvroType:
    copy = json.loads(json.dumps(raw))
    data_file = _field_type(copy, DATA_FILE_ID)
    data_file["fields"] = [field for field in data_file["fields"] if field["name"] not in skip]
    return copy
