"""Paths in a Delta log: from what is written to a Location, percent-decoded exactly once (Delta protocol: Add File).

What no reader could place is refused with ValueError rather than guessed: the caller names the file that says so.
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache
from urllib.parse import unquote

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location

LOG_FOLDER = "_delta_log"

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUES = {char: value for value, char in enumerate(_Z85)}
_ENCODED_UUID_LENGTH = 20


def resolve(root: Location, path: str) -> Location:
    """Where an action's `path` leads: relative to the table's root, or absolute. Raises ValueError.

    `..` and `.` segments are refused: clients disagree whether they are names or directions.
    """
    if not path:
        raise ValueError("it is empty")
    if _ABSOLUTE.match(path):
        return _absolute(path)
    key = decode(path)
    if key.startswith("/"):
        # Without a scheme it stays in the table's own bucket or file system.
        return _inside(root, key[1:])
    return _inside(root, root.folder_key + key)


def decode(path: str) -> str:
    """The path with `%XX` decoded once, as UTF-8; `+` stays, and so does a `%` that begins no escape."""
    if "%" in path:
        # No escape spans a slash, and the files of one partition share their folder.
        folder, slash, name = path.rpartition("/")
        path = _decoded(folder) + slash + (_decoded(name) if "%" in name else name)
    return _checked(path)


def deletion_vector_file(root: Location, storage_type: str, path_or_data: str) -> Location | None:
    """The file of a deletion vector, None for an inline one. Raises ValueError for anything the protocol lacks."""
    if storage_type == "i":
        return None
    if storage_type == "p":
        if _ABSOLUTE.match(path_or_data) is None and not path_or_data.startswith("/"):
            raise ValueError("it is not absolute")
        return resolve(root, path_or_data)
    if storage_type != "u":
        raise ValueError(f"its storage type {storage_type!r} is unknown")
    prefix, encoded = path_or_data[:-_ENCODED_UUID_LENGTH], path_or_data[-_ENCODED_UUID_LENGTH:]
    name = f"deletion_vector_{decode_uuid(encoded)}.bin"
    return _inside(root, root.folder_key + (f"{_checked(prefix)}/{name}" if prefix else name))


def decode_uuid(encoded: str) -> uuid.UUID:
    """The UUID of 20 characters in Z85 (https://rfc.zeromq.org/spec/32/). Raises ValueError."""
    if len(encoded) != _ENCODED_UUID_LENGTH:
        raise ValueError("its UUID is too short")
    data = bytearray()
    for start in range(0, _ENCODED_UUID_LENGTH, 5):
        value = 0
        for char in encoded[start : start + 5]:
            if char not in _Z85_VALUES:
                raise ValueError("its UUID is not Z85")
            value = value * 85 + _Z85_VALUES[char]
        if value >= 1 << 32:
            raise ValueError("its UUID is not Z85")
        data += value.to_bytes(4, "big")
    return uuid.UUID(bytes=bytes(data))


def log_folder(root: Location) -> Location:
    """`_delta_log` of the table at `root`."""
    return root.with_key(root.folder_key + LOG_FOLDER)


def is_delta_log_marker(location: Location) -> bool:
    """True for objects in a folder `_delta_log`, its own folder marker included: a Delta table is or was there."""
    return LOG_FOLDER in location.segments[:-1]


def table_root_of(location: Location) -> Location | None:
    """The root of the table to whose log an object belongs; None where `is_delta_log_marker` is false.

    Of several `_delta_log` segments the first counts: whatever lies in a log belongs to that log.
    """
    segments = location.segments
    if LOG_FOLDER not in segments[:-1]:
        return None
    return location.with_key("/".join(segments[: segments.index(LOG_FOLDER)]))


@lru_cache(4096)
def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("its escapes are not UTF-8") from None


def _checked(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair") from None
    return text


def _absolute(path: str) -> Location:
    scheme, _, rest = path.partition(":")
    if rest.startswith("//"):
        authority, slash, key = rest[2:].partition("/")
        text = f"{scheme}://{authority}{slash}{decode(key)}"
    else:
        text = f"{scheme}:{decode(rest)}"
    try:
        location = Location.parse(text)
    except InputError as error:
        raise ValueError(error.message) from None
    return _inside(location, location.key)


def _inside(root: Location, key: str) -> Location:
    segments = key.split("/")
    if "." in segments or ".." in segments:
        raise ValueError("it has a '.' or '..' segment")
    if root.family == "file" and "" in segments:
        # As everywhere for local paths: the operating system takes `a//b` for `a/b`.
        key = "/".join(segment for segment in segments if segment)
    if not key:
        raise ValueError("it names no file")
    return root.with_key(key)
