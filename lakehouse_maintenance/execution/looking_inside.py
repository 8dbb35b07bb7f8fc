"""A look inside a folder that nobody owns: one listing of it all, and what of a table can be recognised in it (UF-42).

Nothing is decided by what the signs say: they are for the reader of a report. So a sign that cannot be read keeps its
path and tells why, while a listing that fails fails the look.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from lakehouse_maintenance.delta import find_log
from lakehouse_maintenance.delta.paths import LOG_FOLDER, log_folder
from lakehouse_maintenance.evidence.spool import Spool
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.folders import Content, Sign
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.ages import EARLIEST_MS
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage.base import rows_of

MOST_SIGNS = 20
"""Tables of one folder that are told; more are told as "more"."""

LARGEST_METADATA = 64 * 1024**2
"""Bytes. A larger metadata file is named, and not read."""

_METADATA_FOLDER = "metadata"
_METADATA = re.compile(r"(?:v?([0-9]{1,18})(?=[.-]))?.*\.metadata\.json(?:\.gz)?")
"""`00012-<uuid>.metadata.json`, `v12.metadata.json`, both with `.gz` before or after (Iceberg: TableMetadataParser)."""

Progress = Callable[[int, int], None]
"""Objects and bytes listed since the last call."""


def look_inside(
    storage: Storage,
    folder: Location,
    *,
    progress: Progress = lambda objects, size: None,
    spool: Spool | None = None,
) -> Content:
    """Lists everything in the folder once; memory does not grow with the number of objects.

    `spool`: takes (path, bytes, modified in ms) of every object. Folder markers are objects like any other. The newest
    time is None where an object has none, or one before 2000.
    Raises ListingIncompleteError or another StorageError where the listing failed: nothing is known of the folder then.
    """
    objects = size = 0
    newest: int | None = None
    is_aged = True
    tables = _Tables(folder)
    for infos in storage.list(folder):
        rows = rows_of(infos)
        for info, (_, _, modified) in zip(infos, rows, strict=True):
            if modified is None or modified < EARLIEST_MS:
                is_aged = False
            elif newest is None or modified > newest:
                newest = modified
            tables.meet(info, modified)
        listed = sum(row[1] for row in rows)
        objects += len(rows)
        size += listed
        if spool is not None:
            spool.add(rows)
        progress(len(rows), listed)
    return Content(objects, size, newest if is_aged else None, tables.signs(storage))


@dataclass(frozen=True, slots=True)
class _Found:
    """What stands for one table. `folder`: its metadata or log. `file`: the newest metadata file, None for a log and
    where only manifests were met."""

    format: str
    folder: Location
    file: ObjectInfo | None = None
    rank: tuple[int, int, str] = (-1, -1, "")


class _Tables:
    """Tables met on the way through a listing: the first `MOST_SIGNS` by name, whatever order they come in."""

    def __init__(self, folder: Location) -> None:
        # The folder may be a log itself; one further up is none of its own.
        self._own = max(0, len(folder.folder_key.split("/")) - 2)
        self._found: dict[tuple[str, str], _Found] = {}
        self._is_more = False

    def meet(self, info: ObjectInfo, modified: int | None) -> None:
        """One listed object."""
        found = self._part_of_table(info, modified)
        if found is None:
            return
        key = found.folder.key, found.format
        before = self._found.get(key)
        if before is None or found.rank > before.rank:
            self._found[key] = found
        if len(self._found) > MOST_SIGNS:
            # What is dropped is behind all that stay, now and later: it cannot come back.
            del self._found[max(self._found)]
            self._is_more = True

    def signs(self, storage: Storage) -> tuple[Sign, ...]:
        """Each read, in the order of names."""
        read = [_SIGNS[found.format](storage, found) for _, found in sorted(self._found.items())]
        if self._is_more:
            more = f"there are more tables in the folder than the {MOST_SIGNS} that are shown"
            last = read[-1]
            read[-1] = replace(last, note=more if last.note is None else f"{last.note}; {more}")
        return tuple(read)

    def _part_of_table(self, info: ObjectInfo, modified: int | None) -> _Found | None:
        key = info.location.key
        if LOG_FOLDER not in key and _METADATA_FOLDER not in key:
            return None
        *above, name = key.split("/")
        if LOG_FOLDER in above[self._own :]:
            # Of several the first: whatever lies in a log belongs to that log.
            end = above.index(LOG_FOLDER, self._own) + 1
            return _Found("delta", info.location.with_key("/".join(above[:end])))
        if not above or above[-1] != _METADATA_FOLDER:
            return None
        folder = info.location.with_key("/".join(above))
        if (match := _METADATA.fullmatch(name)) is not None:
            version = -1 if match[1] is None else int(match[1])
            return _Found("iceberg", folder, info, (version, modified or 0, name))
        return _Found("iceberg", folder) if name.endswith(".avro") else None


def _iceberg(storage: Storage, found: _Found) -> Sign:
    if found.file is None:
        return Sign("iceberg", found.folder.text, note="there are manifests and no metadata file")
    path = found.file.location.text
    sign = Sign("iceberg", path)
    if found.file.size > LARGEST_METADATA:
        return replace(sign, note=f"its {found.file.size} bytes were not read")
    try:
        metadata = read_metadata(storage, path, path)
    except LakehouseError as error:
        return replace(sign, note=error.message)
    head = metadata.head()
    summary = {} if head is None else head.summary
    return replace(
        sign,
        table_uuid=_text(metadata.raw.get("table-uuid")),
        last_commit_ms=_number(metadata.raw.get("last-updated-ms")),
        records=0 if head is None else _number(summary.get("total-records")),
        bytes=0 if head is None else _number(summary.get("total-files-size")),
    )


def _delta(storage: Storage, found: _Found) -> Sign:
    """Rows without those that deletion vectors take away; None where one file's statistics do not tell."""
    sign = Sign("delta", found.folder.text)
    root = found.folder.with_key(found.folder.key.removesuffix(LOG_FOLDER).removesuffix("/"))
    if log_folder(root) != found.folder:
        return replace(sign, note="its table's folder is named nothing")
    try:
        log = find_log(storage, root)
        if log is None:
            return replace(sign, note="the log is empty")
        sign = replace(sign, last_commit_ms=log.last_commit_ms())
        snapshot = log.snapshot()
        sign = replace(sign, table_uuid=snapshot.metadata.id)
        if snapshot.unsupported:
            return replace(sign, note=f"it uses {', '.join(snapshot.unsupported)}")
        size = 0
        records: int | None = 0
        for file in snapshot.active():
            size += file.size
            gone = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
            records = None if records is None or file.records is None else records + file.records - gone
    except LakehouseError as error:
        return replace(sign, note=error.message)
    return replace(sign, records=records, bytes=size)


_SIGNS: dict[str, Callable[[Storage, _Found], Sign]] = {"iceberg": _iceberg, "delta": _delta}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    """From JSON, or from a summary, where numbers are text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else None
