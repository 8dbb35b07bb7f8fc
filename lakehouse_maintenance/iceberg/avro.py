"""Avro containers as Iceberg writes them, read and written with raw values and with our own field names.

Readers by name would not do: Iceberg identifies fields by id, and its writers disagree on some names. So values are
read under our names by field id, and without logical types (partition values stay numbers and bytes, and go back
unchanged). Writing does the reverse: values go out through the schema without logical types, and the header then
declares the one with them.
"""

from __future__ import annotations

import io
import json
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro

from lakehouse_maintenance.iceberg.decoding import Decoder, Read, read_bytes, read_long
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
_SYNC_SIZE = 16
_read_meta = Decoder({}, frozenset()).reader({"type": "map", "values": "bytes"})


@dataclass(frozen=True, slots=True)
class Container:
    """`records` with our field names; `metadata` of the header; `partition`: Avro type of the partition tuple."""

    records: list[dict[str, Any]]
    metadata: dict[str, bytes]
    partition: AvroType


@dataclass(frozen=True, slots=True)
class _Schema:
    read: Read
    partition: AvroType
    first_field_id: int | None


def read_container(data: bytes, skip: frozenset[str] = frozenset()) -> Container:
    """Reads a manifest or manifest list; `skip`: fields of `data_file` to leave out, cheaply.

    Raises ValueError where the bytes are no Avro container, are cut short, or have no schema of ours.
    """
    records: list[dict[str, Any]] = []
    metadata, schema, blocks = _open(data, skip)
    with _damage():
        for count, block in blocks:
            records += _block(block, count, schema.read)
    return Container(records, metadata, schema.partition)


@dataclass(frozen=True, slots=True)
class Body:
    """A container's blocks as one. `read`: a record at a position. `ends`: records and bytes up to each block's end."""

    schema: bytes
    data: bytes
    read: Read
    first_field_id: int | None
    ends: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """Records."""
        return self.ends[-1][0] if self.ends else 0

    def records(self) -> list[dict[str, Any]]:
        """All of them, decoded. Raises ValueError."""
        with _damage():
            return _block(self.data, self.count, self.read)

    def check(self, offsets: Sequence[int]) -> None:
        """`offsets`: where each record was found to begin, and the end. Raises ValueError where blocks differ."""
        fits = len(offsets) == self.count + 1 and all(offsets[count] == end for count, end in self.ends)
        if not fits or offsets[-1] != len(self.data):
            raise ValueError("damaged: records do not end where their blocks do")


def read_body(data: bytes) -> Body:
    """As `read_container`, but for decoding."""
    metadata, schema, blocks = _open(data, frozenset())
    parts: list[bytes] = []
    ends: list[tuple[int, int]] = []
    records = size = 0
    with _damage():
        for count, block in blocks:
            parts.append(block)
            records, size = records + count, size + len(block)
            ends.append((records, size))
    return Body(metadata["avro.schema"], b"".join(parts), schema.read, schema.first_field_id, tuple(ends))


def _open(data: bytes, skip: frozenset[str]) -> tuple[dict[str, bytes], _Schema, Iterator[tuple[int, bytes]]]:
    """Header, schema, and each block's number of records and bytes."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not an Avro file")
    with _damage():
        metadata, at = _read_meta(data, len(_MAGIC))
        schema = _schema(metadata["avro.schema"], skip)
        decompress = _decompressor(metadata.get("avro.codec", b"null").decode())
    sync = data[at : at + _SYNC_SIZE]
    if len(sync) < _SYNC_SIZE:
        raise ValueError("cut short")
    return metadata, schema, _blocks(data, at + _SYNC_SIZE, sync, decompress)


def _blocks(data: bytes, at: int, sync: bytes, decompress: Callable[[bytes], bytes]) -> Iterator[tuple[int, bytes]]:
    while at < len(data):
        count, at = read_long(data, at)
        compressed, at = read_bytes(data, at)
        if data[at : at + _SYNC_SIZE] != sync:
            raise ValueError("cut short, or damaged between blocks")
        at += _SYNC_SIZE
        yield count, decompress(compressed)


@contextmanager
def _damage() -> Iterator[None]:
    """IndexError, struct.error, zlib.error, RecursionError … on damaged input become ValueError."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error


def _block(data: bytes, count: int, read: Read) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    at = 0
    for _ in range(count):
        record, at = read(data, at)
        records.append(record)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes too many for {count} records")
    return records


def _decompressor(codec: str) -> Callable[[bytes], bytes]:
    if codec == "null":
        return bytes
    if codec == "deflate":
        return lambda data: zlib.decompress(data, -15)
    if codec in ("zstandard", "snappy"):
        import pyarrow

        if codec == "zstandard":
            return lambda data: bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd").read())
        # A checksum of four bytes follows the data, which begins with its size.
        return lambda data: pyarrow.decompress(data[:-4], _snappy_size(data), codec="snappy", asbytes=True)
    raise ValueError(f"compressed with {codec}")


def _snappy_size(data: bytes) -> int:
    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return size


def write_container(
    records: Iterable[dict[str, Any]], declared: AvroType, metadata: dict[str, str], *, codec: str = "deflate"
) -> bytes:
    """An Avro container whose header declares `declared` and whose values are raw (see module docstring)."""
    declared = _defined_once(declared, set())
    out = io.BytesIO()
    fastavro.writer(out, _parsed_raw(json.dumps(declared)), records, codec=codec, metadata=metadata)
    stream = io.BytesIO(out.getvalue())
    header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
    result = io.BytesIO()
    meta = {**header["meta"], "avro.schema": json.dumps(declared).encode()}
    fastavro.schemaless_writer(result, _HEADER, {**header, "meta": meta})
    result.write(out.getvalue()[stream.tell() :])
    return result.getvalue()


_BLOCK_BYTES = 64_000
"""Java's default of Avro's sync interval."""


class ContainerWriter:
    """A container of records that are encoded already, under the schema `declared`."""

    def __init__(self, declared: AvroType, metadata: dict[str, str]) -> None:
        self._out = io.BytesIO()
        self._sync = secrets.token_bytes(_SYNC_SIZE)
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._records = 0
        meta = {key: value.encode() for key, value in metadata.items()}
        meta |= {"avro.codec": b"deflate", "avro.schema": json.dumps(_defined_once(declared, set())).encode()}
        fastavro.schemaless_writer(self._out, _HEADER, {"magic": _MAGIC, "meta": meta, "sync": self._sync})

    @property
    def size(self) -> int:
        """Bytes so far, but for those of a block that is not full yet."""
        return self._out.tell()

    def add(self, *encoded: bytes) -> None:
        """A record, in parts."""
        self._block += encoded
        self._block_bytes += sum(map(len, encoded))
        self._records += 1
        if self._block_bytes >= _BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._records:
            return
        packed = zlib.compressobj(wbits=-15)
        data = packed.compress(b"".join(self._block)) + packed.flush()
        self._out.write(encoded_long(self._records) + encoded_long(len(data)) + data + self._sync)
        self._block, self._block_bytes, self._records = [], 0, 0

    def finish(self) -> bytes:
        """The container."""
        self._flush()
        return self._out.getvalue()


def encoded_long(value: int) -> bytes:
    """As Avro writes an int or a long: zigzag, of variable length."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encoded(values: Any, declared: AvroType) -> bytes:
    """One value as raw Avro of a type, without logical types (see module docstring)."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parsed_raw(json.dumps(declared)), values)
    return out.getvalue()


@lru_cache(maxsize=256)
def _parsed_raw(declared: str) -> Any:
    return fastavro.parse_schema(_raw(json.loads(declared)))


@lru_cache(maxsize=256)
def _schema(text: bytes, skip: frozenset[str]) -> _Schema:
    schema = json.loads(text)
    data_file = field_type(schema, DATA_FILE_ID)
    partition = field_type(data_file, PARTITION_ID) if data_file is not None else None
    if partition is not None:
        partition = spelled_out(partition, definitions_of(schema))
    decoder = Decoder(NAMES, frozenset({PARTITION_ID}), skip if data_file is not None else frozenset())
    fields: AvroType = schema.get("fields") or [{}]
    first = fields[0].get("field-id") if fields[0].get("type") == "string" else None
    return _Schema(decoder.reader(schema), partition, first)


def field_type(record: AvroType, field_id: int) -> AvroType:
    """Type of the record's field with this id; None where it has none."""
    for field in record.get("fields", ()):
        if field.get("field-id") == field_id:
            return field["type"]
    return None


def definitions_of(schema: AvroType) -> dict[str, AvroType]:
    """Fixed types and enums of a schema by name: a second use may be the bare name, as Java's Avro writes it."""
    found: dict[str, AvroType] = {}
    pending = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        elif isinstance(item, dict):
            if item.get("type") in ("fixed", "enum"):
                found[str(item["name"])] = found[str(item["name"]).rpartition(".")[2]] = item
                if "namespace" in item:
                    found[f"{item['namespace']}.{item['name']}"] = item
            pending += [item[key] for key in ("fields", "items", "values", "type") if key in item]
    return found


def spelled_out(schema: AvroType, definitions: dict[str, AvroType]) -> AvroType:
    """The type with names replaced by what they stand for: who looks at a field sees its logical type."""
    if isinstance(schema, str):
        return definitions.get(schema, schema)
    if isinstance(schema, list):
        return [spelled_out(branch, definitions) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    if result.get("type") == "record":
        result["fields"] = [{**f, "type": spelled_out(f["type"], definitions)} for f in result["fields"]]
    elif isinstance(result.get("type"), dict | list):
        result["type"] = spelled_out(result["type"], definitions)
    return result


def _defined_once(schema: AvroType, taken: set[str]) -> AvroType:
    """Every fixed type and enum under a name of its own: Java and DuckDB refuse a name that is defined again, and
    PyIceberg cannot look up one that is not.
    """
    if isinstance(schema, list):
        return [_defined_once(branch, taken) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    if result.get("type") in ("fixed", "enum"):
        name = str(result["name"])
        number = 1
        while name in taken:
            name = f"{result['name']}_{number}"
            number += 1
        taken.add(name)
        return {**result, "name": name}
    if result.get("type") == "record":
        result["fields"] = [{**field, "type": _defined_once(field["type"], taken)} for field in result["fields"]]
        return result
    for key in ("items", "values", "type"):
        if isinstance(result.get(key), dict | list):
            result[key] = _defined_once(result[key], taken)
    return result


def _raw(schema: AvroType) -> AvroType:
    """The schema without logical types."""
    if isinstance(schema, list):
        return [_raw(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if key != "logicalType"}
    if result.get("type") == "record":
        result["fields"] = [{**field, "type": _raw(field["type"])} for field in result["fields"]]
        return result
    for key in ("items", "values", "type"):
        if isinstance(result.get(key), dict | list):
            result[key] = _raw(result[key])
    return result
