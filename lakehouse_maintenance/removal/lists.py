"""Durable lists of what is to be removed, in the state: written before the first call, closed after the last.

A list is a head and parts: `removals/<table>/<name>` and `removals/<table>/<name>/<number>`; its name is the run's id
and, since one run may have several lists on one table, a number of its own. The head is written last, so a list that is
found is whole. What is open is told by a small value for each table, `open-removals/<table>`, written before the head
and cleared after it is closed: it may name too much after a crash, never too little.

What a list says is done to what it names: an operation. Lists of restoring and of purging name nothing themselves: what
they are about is what the quarantine entry says.
"""

from __future__ import annotations

import json
import re
import uuid as uuids
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.state import State

_PART = 10_000
_PART_KEY = re.compile(r"/\d{6}$")


class Operation(StrEnum):
    """What is done to the objects of a list. RESTORE and PURGE: to the objects of a quarantine entry."""

    DELETE = "delete"
    QUARANTINE = "quarantine"
    RESTORE = "restore"
    PURGE = "purge"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be removed: its path as metadata or a listing names it, its kind, its size where known.

    `etag` and `modified_ms`: as the listing showed it; where they are known, another version of the object is kept.
    """

    path: str
    kind: str
    size: int | None = None
    etag: str | None = None
    modified_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RemovalList:
    """Head of a durable list. `at_ms`: when it was written; a file that is newer is not what was meant.

    `uuid`: of the table it was made for. Another table may have the name by now, and even the location.
    `operation`: one of Operation. `entry`: the id of the quarantine entry that is filled, restored or purged.
    `evidence`: what the decision was based on, as JSON. `list_id`: tells lists of one run on one table apart.
    """

    table: str
    run_id: str
    action: str
    digest: str
    at_ms: int
    parts: int
    files: int
    bytes: int
    uuid: str = ""
    operation: str = Operation.DELETE
    entry: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    list_id: str = ""

    @property
    def name(self) -> str:
        """The list's name among those of its table."""
        return f"{self.run_id}.{self.list_id}" if self.list_id else self.run_id

    @property
    def key(self) -> str:
        """The head's key in the state."""
        return f"removals/{self.table}/{self.name}"


def write_list(
    state: State,
    *,
    table: str,
    run_id: str,
    action: str,
    digest: str,
    at_ms: int,
    candidates: Iterable[Candidate],
    uuid: str = "",
    operation: Operation = Operation.DELETE,
    entry: str | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> RemovalList:
    """Writes parts, then the head. Raises StorageError where it could not be made durable."""
    list_id = uuids.uuid4().hex[:12]
    key = f"removals/{table}/{run_id}.{list_id}"
    pending = iter(candidates)
    parts = files = size = 0
    while batch := list(islice(pending, _PART)):
        rows = [(c.path, c.kind, c.size, c.etag, c.modified_ms) for c in batch]
        blob = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)
        put_value(state, f"{key}/{parts:06d}", blob)
        parts += 1
        files += len(batch)
        size += sum(c.size or 0 for c in batch)
    head = RemovalList(
        table=table,
        run_id=run_id,
        action=action,
        digest=digest,
        at_ms=at_ms,
        parts=parts,
        files=files,
        bytes=size,
        uuid=uuid,
        operation=operation,
        entry=entry,
        evidence=dict(evidence or {}),
        list_id=list_id,
    )
    _mark(state, table, head.name, is_open=True)
    put_value(state, head.key, json.dumps({**_fields(head), "open": True}).encode())
    return head


def read_list(state: State, head: RemovalList) -> Iterator[Sequence[Candidate]]:
    """The parts in their order. Raises StorageError for one that is missing or damaged."""
    for number in range(head.parts):
        stored = state.get(f"{head.key}/{number:06d}")
        if stored is None:
            raise StorageError(f"part {number} of the removal list {head.key} is missing", field="state.url")
        try:
            rows = json.loads(zlib.decompress(stored[0]))
            yield [Candidate(*row) for row in rows]
        except (ValueError, TypeError, zlib.error) as error:
            raise StorageError(f"part {number} of {head.key} cannot be read: {error}", field="state.url") from error


def close_list(state: State, head: RemovalList, result: dict[str, Any]) -> None:
    """Marks the list as finished; it stays, as a record."""
    stored = state.get(head.key)
    version = None if stored is None else stored[1]
    value = json.dumps({**_fields(head), "open": False, "result": result}).encode()
    if state.put(head.key, value, version) is None:
        raise StorageError(f"the removal list {head.key} was changed by another run", field="state.url")
    _mark(state, head.table, head.name, is_open=False)


def all_lists(state: State) -> Iterator[RemovalList]:
    """Every list of the state, finished ones too, in no order. Raises StorageError for one that is damaged."""
    for key in state.keys("removals/"):
        if _PART_KEY.search(key):
            continue
        stored = state.get(key)
        if stored is not None:
            yield _head(key, stored[0])[0]


def open_lists(state: State, table: str) -> list[RemovalList]:
    """Lists of the table that no run has finished, oldest first. One look where there is none."""
    found: list[RemovalList] = []
    for name in _marked(state, table)[0]:
        key = f"removals/{table}/{name}"
        stored = state.get(key)
        if stored is None:
            continue  # its run ended before the list was whole, and so before anything was done
        head, is_open = _head(key, stored[0])
        if is_open:
            found.append(head)
    return sorted(found, key=lambda head: head.at_ms)


def _head(key: str, value: bytes) -> tuple[RemovalList, bool]:
    """The head, and whether its list is open."""
    try:
        data = json.loads(value)
        is_open = bool(data.pop("open"))
        data.pop("result", None)
        return RemovalList(**data), is_open
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(f"the removal list {key} cannot be read: {error}", field="state.url") from error


def _marked(state: State, table: str) -> tuple[list[str], str | None]:
    stored = state.get(f"open-removals/{table}")
    if stored is None:
        return [], None
    try:
        return [str(name) for name in json.loads(stored[0])], stored[1]
    except (ValueError, TypeError) as error:
        raise StorageError(f"open-removals/{table} cannot be read: {error}", field="state.url") from error


def _mark(state: State, table: str, name: str, *, is_open: bool) -> None:
    names, version = _marked(state, table)
    others = [one for one in names if one != name]
    wanted = [*others, name] if is_open else others
    if state.put(f"open-removals/{table}", json.dumps(wanted).encode(), version) is None:
        raise StorageError(f"open-removals/{table} was changed by another run", field="state.url")


def _fields(head: RemovalList) -> dict[str, Any]:
    return {name: getattr(head, name) for name in RemovalList.__slots__}


def put_value(state: State, key: str, value: bytes) -> None:
    """Replaces a value of the lease's holder. Raises StorageError where somebody else changed it in between."""
    stored = state.get(key)
    if state.put(key, value, None if stored is None else stored[1]) is None:
        raise StorageError(f"the state's value {key} was changed by another run", field="state.url")
