"""Avro's binary encoding, read by functions made once for a schema (Avro spec: Binary Encoding).

A general decoder looks at the schema again for every value and reads statistics only to drop them; measuring a table
reads little else. Here a schema becomes a tree of functions, and what is not wanted is passed over: a run of numbers
in one step. Values are raw: logical types are numbers and bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from lakehouse_maintenance.iceberg.fields import AvroType

Read = Callable[[bytes, int], tuple[Any, int]]
"""From bytes and a position: the value, and the position after it. Damaged bytes raise ValueError, IndexError, …"""


class Decoder:
    """Makes readers for the types of one schema.

    `names`: field id → the name that its values get. `opaque`: ids of fields inside which names stay as they are.
    `skip`: names of fields to leave out, wherever they are.
    """

    def __init__(self, names: Mapping[int, str], opaque: frozenset[int], skip: frozenset[str] = frozenset()) -> None:
        self._names = names
        self._opaque = opaque
        self._skip = skip
        self._defined: dict[str, Read] = {}

    def reader(self, schema: AvroType) -> Read:
        """A reader of values of this type. Raises ValueError for what is no Avro type."""
        return self._reader(schema, renamed=True)

    def _reader(self, schema: AvroType, *, renamed: bool) -> Read:
        if isinstance(schema, list):
            return _union([self._reader(branch, renamed=renamed) for branch in schema], schema)
        if isinstance(schema, str):
            found = _PRIMITIVES.get(schema) or self._defined.get(schema)
            if found is None:
                raise ValueError(f"unknown Avro type {schema!r}")
            return found
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._reader(kind, renamed=renamed)
        if kind == "array":
            return _array(self._reader(schema["items"], renamed=renamed))
        if kind == "map":
            return _map(self._reader(schema["values"], renamed=renamed))
        if kind == "record":
            return self._record(schema, renamed=renamed)
        if kind == "fixed":
            return self._define(schema, _fixed(int(schema["size"])))
        if kind == "enum":
            return self._define(schema, _enum(list(schema["symbols"])))
        return self._reader(kind, renamed=renamed)

    def _record(self, schema: AvroType, *, renamed: bool) -> Read:
        fields: list[tuple[str | None, Read]] = []
        read = self._define(schema, _record(fields))
        for field in schema["fields"]:
            field_id = field.get("field-id")
            name = self._names.get(field_id, field["name"]) if renamed else field["name"]
            reader = self._reader(field["type"], renamed=renamed and field_id not in self._opaque)
            if renamed and name in self._skip:
                fields.append((None, _passing(field["type"]) or reader))
            else:
                fields.append((name, reader))
        return read

    def _define(self, schema: AvroType, read: Read) -> Read:
        """Named types may be referred to by name further on, with and without their namespace."""
        name = str(schema.get("name", ""))
        self._defined[name] = self._defined[name.rpartition(".")[2]] = read
        if "namespace" in schema:
            self._defined[f"{schema['namespace']}.{name}"] = read
        return read


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of variable length."""
    byte = data[at]
    at += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes after their length."""
    size, at = read_long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError("cut short")
    return data[at:end], end


def _text(data: bytes, at: int) -> tuple[str, int]:
    value, at = read_bytes(data, at)
    return value.decode(), at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _float(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<f", data, at)[0], at + 4


def _double(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<d", data, at)[0], at + 8


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


_PRIMITIVES: dict[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": read_long,
    "long": read_long,
    "float": _float,
    "double": _double,
    "bytes": read_bytes,
    "string": _text,
}


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise ValueError("cut short")
        return data[at:end], end

    return read


def _enum(symbols: list[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(symbols):
            raise ValueError(f"no symbol {index}")
        return symbols[index], at

    return read


def _record(fields: list[tuple[str | None, Read]]) -> Read:
    """`fields` is filled in later: a record may hold itself. None as name: passed over."""

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for name, read_field in fields:
            value, at = read_field(data, at)
            if name is not None:
                values[name] = value
        return values, at

    return read


def _union(branches: list[Read], types: list[AvroType]) -> Read:
    if len(types) == 2 and "null" in types:
        null = types.index("null")
        # Branches 0 and 1 are written as the bytes 0 and 2.
        null_byte, other_byte, other = 2 * null, 2 - 2 * null, branches[1 - null]

        def read_optional(data: bytes, at: int) -> tuple[Any, int]:
            byte = data[at]
            if byte == other_byte:
                return other(data, at + 1)
            if byte == null_byte:
                return None, at + 1
            raise ValueError(f"no branch {byte}")

        return read_optional

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(branches):
            raise ValueError(f"no branch {index}")
        return branches[index](data, at)

    return read


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Items in the next block of an array or a map, of which a zero byte is the last.

    A negative number is followed by the block's size in bytes.
    """
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
        count = -count
    if count > len(data):
        raise ValueError(f"{count} items in {len(data)} bytes")
    return count, at


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while data[at]:
            count, at = _count(data, at)
            for _ in range(count):
                value, at = item(data, at)
                values.append(value)
        return values, at + 1

    return read


def _map(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        while data[at]:
            count, at = _count(data, at)
            for _ in range(count):
                key, at = _text(data, at)
                values[key], at = item(data, at)
        return values, at + 1

    return read


def passer(schema: AvroType, read: Read) -> Callable[[bytes, int], int]:
    """From bytes and a position to the position after a value of the type; `read`: a reader of such values."""
    if _is_number(schema):
        return _pass_number
    if schema in ("string", "bytes"):
        return _pass_bytes
    known = _passing(schema) or read
    return lambda data, at: known(data, at)[1]


def _pass_number(data: bytes, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _pass_bytes(data: bytes, at: int) -> int:
    size, at = read_long(data, at)
    if size < 0 or at + size > len(data):
        raise ValueError("cut short")
    return at + size


def _passing(schema: AvroType) -> Read | None:
    """Passes over lists of numbers, and maps from numbers to numbers or bytes, as Iceberg writes them (arrays of
    pairs), optional or not; None for other types, which are read and dropped.
    """
    if isinstance(schema, list):
        passing = [_null if branch == "null" else _passing(branch) for branch in schema]
        known = [found for found in passing if found is not None]
        return _union(known, schema) if len(known) == len(passing) else None
    if not isinstance(schema, dict) or schema.get("type") != "array":
        return None
    items = schema["items"]
    if _is_number(items):
        return _passing_items(_pass_numbers)
    if not isinstance(items, dict) or items.get("type") != "record" or len(items["fields"]) != 2:
        return None
    key, value = (field["type"] for field in items["fields"])
    if _is_number(key) and _is_number(value):
        return _passing_items(lambda data, at, count: _pass_numbers(data, at, 2 * count))
    if _is_number(key) and value == "bytes":
        return _passing_items(_pass_bounds)
    return None


def _is_number(schema: AvroType) -> bool:
    return schema in ("int", "long")


def _passing_items(pass_block: Callable[[bytes, int, int], int]) -> Read:
    def read(data: bytes, at: int) -> tuple[None, int]:
        while data[at]:
            count, at = _count(data, at)
            at = pass_block(data, at, count)
        return None, at + 1

    return read


@lru_cache(maxsize=256)
def _numbers(count: int) -> re.Pattern[bytes]:
    # The last byte of a number, and only that, is below 0x80.
    return re.compile(rb"(?:[\x80-\xff]*[\x00-\x7f]){%d}" % count)


def _pass_numbers(data: bytes, at: int, count: int) -> int:
    found = _numbers(count).match(data, at)
    if found is None:
        raise ValueError("cut short")
    return found.end()


_LENGTHS = (8, 4, 16, *(n for n in range(64) if n not in (4, 8, 16)))
"""Of bounds whose length takes one byte; the commonest first, since they are tried in this order."""


@lru_cache(maxsize=256)
def _bounds(count: int) -> re.Pattern[bytes]:
    one = b"|".join(re.escape(bytes((2 * length,))) + b".{%d}" % length for length in _LENGTHS)
    return re.compile(rb"(?:[\x80-\xff]*[\x00-\x7f](?:" + one + rb")){%d}" % count, re.DOTALL)


def _pass_bounds(data: bytes, at: int, count: int) -> int:
    found = _bounds(count).match(data, at)
    if found is not None:
        return found.end()
    for _ in range(count):
        at = _pass_bytes(data, _pass_number(data, at))
    return at
