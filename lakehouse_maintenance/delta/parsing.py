"""JSON objects of a Delta log to actions (Delta protocol: Actions). Everything wrong is a ValueError that says what.

Unknown actions and fields are ignored, as the protocol wants: what a reader must know stands in the protocol action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lakehouse_maintenance.delta.actions import (
    Action,
    AddFile,
    ChangeFile,
    DeletionVector,
    Protocol,
    RemoveFile,
    Sidecar,
    TableMetadata,
)
from lakehouse_maintenance.delta.listing import SIDECARS
from lakehouse_maintenance.delta.paths import LOG_FOLDER, decode, deletion_vector_file, resolve
from lakehouse_maintenance.model.locations import Location

RECORDS_FIRST = r'^\s*\{\s*"numRecords"\s*:\s*([0-9]{1,18})\s*[,}]'
"""Writers put it first; statistics are long, and read for nothing else."""
_RECORDS_FIRST = re.compile(RECORDS_FIRST)


def parse_lines(root: Location, lines: Iterable[bytes]) -> Iterator[Action]:
    """One action a line; blank lines are skipped. Raises ValueError that names the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield from parse_action(root, _document(json.loads(line.decode())))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: {_cause(error)}") from error


def parse_action(root: Location, document: dict[str, Any]) -> Iterator[Action]:
    """The known actions of one JSON object, usually one. Raises ValueError."""
    for name, value in document.items():
        parse = _PARSERS.get(name)
        if parse is not None and value is not None:
            try:
                yield parse(root, _document(value))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def deletion_vector(root: Location, document: dict[str, Any] | None) -> DeletionVector | None:
    """From the descriptor's fields as JSON has them. Raises ValueError."""
    if document is None:
        return None
    storage_type = _text(document, "storageType")
    path_or_data = _text(document, "pathOrInlineDv")
    offset = _number(document, "offset")
    try:
        location = deletion_vector_file(root, storage_type, path_or_data)
    except ValueError as error:
        raise ValueError(f"deletion vector {path_or_data[:200]!r}: {error}") from None
    identity = storage_type + path_or_data
    return DeletionVector(
        unique_id=identity if offset is None else f"{identity}@{offset}",
        location=location,
        offset=offset,
        size=_required(document, "sizeInBytes"),
        cardinality=_required(document, "cardinality"),
    )


def records_in(stats: object) -> int | None:
    """Rows by a file's statistics. Nothing is decided by them, so damaged ones are as good as none."""
    if not isinstance(stats, str):
        return None
    if (match := _RECORDS_FIRST.match(stats)) is not None:
        return int(match[1])
    try:
        document = json.loads(stats)
        return _number(document, "numRecords") if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        return None


def place(root: Location, path: str) -> Location:
    """`resolve`, with the path in the error."""
    try:
        return resolve(root, path)
    except ValueError as error:
        raise ValueError(f"path {path[:200]!r}: {error}") from None


def _add(root: Location, document: dict[str, Any]) -> AddFile:
    path = _text(document, "path")
    return AddFile(
        location=place(root, path),
        path=path,
        size=_required(document, "size"),
        modified_ms=_required(document, "modificationTime", negative=True),
        partition_values=_values(document, "partitionValues"),
        deletion_vector=deletion_vector(root, _optional(document, "deletionVector")),
        has_stats=document.get("stats") is not None,
        records=records_in(document.get("stats")),
    )


def _remove(root: Location, document: dict[str, Any]) -> RemoveFile:
    path = _text(document, "path")
    return RemoveFile(
        location=place(root, path),
        path=path,
        deleted_ms=_number(document, "deletionTimestamp", negative=True),
        size=_number(document, "size"),
        deletion_vector=deletion_vector(root, _optional(document, "deletionVector")),
    )


def _change(root: Location, document: dict[str, Any]) -> ChangeFile:
    path = _text(document, "path")
    return ChangeFile(place(root, path), path, _number(document, "size"))


def _sidecar(root: Location, document: dict[str, Any]) -> Sidecar:
    path = _text(document, "path")
    folder = root.with_key(f"{root.folder_key}{LOG_FOLDER}/{SIDECARS}")
    # Writers name the file alone; the protocol allows a whole path as well, to the same folder only.
    location = place(root, path) if "/" in path else folder.with_key(folder.folder_key + decode(path))
    if not folder.contains(location):
        raise ValueError(f"path {path[:200]!r}: it is not in {LOG_FOLDER}/{SIDECARS}")
    return Sidecar(location, _number(document, "sizeInBytes"))


def _protocol(root: Location, document: dict[str, Any]) -> Protocol:
    return Protocol(
        min_reader_version=_required(document, "minReaderVersion"),
        min_writer_version=_required(document, "minWriterVersion"),
        reader_features=frozenset(_texts(document, "readerFeatures")),
        writer_features=frozenset(_texts(document, "writerFeatures")),
    )


def _metadata(root: Location, document: dict[str, Any]) -> TableMetadata:
    configuration = _values(document, "configuration")
    name = document.get("name")
    return TableMetadata(
        id=_text(document, "id"),
        schema_string=_text(document, "schemaString"),
        partition_columns=tuple(_texts(document, "partitionColumns")),
        configuration={key: value for key, value in configuration.items() if value is not None},
        name=None if name is None else str(name),
        created_ms=_number(document, "createdTime", negative=True),
    )


_PARSERS: dict[str, Callable[[Location, dict[str, Any]], Action]] = {
    "add": _add,
    "remove": _remove,
    "cdc": _change,
    "sidecar": _sidecar,
    "protocol": _protocol,
    "metaData": _metadata,
}


def _document(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object was expected")
    return value


def _optional(document: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = document.get(name)
    return None if value is None else _document(value)


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _texts(document: dict[str, Any], name: str) -> list[str]:
    value = document.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name} is no list of texts")
    return value


def _number(document: dict[str, Any], name: str, *, negative: bool = False) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or (value < 0 and not negative):
        raise ValueError(f"{name} is no number")
    return value


def _required(document: dict[str, Any], name: str, *, negative: bool = False) -> int:
    value = _number(document, name, negative=negative)
    if value is None:
        raise ValueError(f"{name} is missing")
    return value


def _values(document: dict[str, Any], name: str) -> dict[str, str | None]:
    value = _optional(document, name) or {}
    if not all(one is None or isinstance(one, str) for one in value.values()):
        raise ValueError(f"{name} holds a value that is no text")
    return value


def _cause(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
