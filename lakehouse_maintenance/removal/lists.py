"""Durable lists of what is to be removed, in the state: written before the first call, closed after the last.

A list is a head and parts: `removals/<table>/<run>` and `removals/<table>/<run>/<number>`. The head is written last,
so a list that is found is whole. What is open is told by a small value for each table, `open-removals/<table>`, written
before the head and cleared after it is closed: it may name too much after a crash, never too little.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.state import State

_PART = 10_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be removed: its path as metadata or a listing names it, its kind, its size where known."""

    path: str
    kind: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class RemovalList:
    """Head of a durable list. `at_ms`: when it was written; a file that is newer is not what was meant.

    `uuid`: of the table it was made for. Another table may have the name by now, and even the location.
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

    @property
    def key(self) -> str:
        """The head's key in the state."""
        return f"removals/{self.table}/{self.run_id}"


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
) -> RemovalList:
    """Writes parts, then the head. Raises StorageError where it could not be made durable."""
    pending = iter(candidates)
    parts = files = size = 0
    while batch := list(islice(pending, _PART)):
        rows = [(c.path, c.kind, c.size) for c in batch]
        blob = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)
        _put(state, f"removals/{table}/{run_id}/{parts:06d}", blob)
        parts += 1
        files += len(batch)
        size += sum(c.size or 0 for c in batch)
    head = RemovalList(table, run_id, action, digest, at_ms, parts, files, size, uuid)
    _mark(state, table, run_id, is_open=True)
    _put(state, head.key, json.dumps({**_fields(head), "open": True}).encode())
    return head


def read_list(state: State, head: RemovalList) -> Iterator[Sequence[Candidate]]:
    """The parts in their order. Raises StorageError for one that is missing or damaged."""
    for number in range(head.parts):
        stored = state.get(f"{head.key}/{number:06d}")
        if stored is None:
            raise StorageError(f"part {number} of the removal list {head.key} is missing", field="state.url")
        try:
            rows = json.loads(zlib.decompress(stored[0]))
            yield [Candidate(path, kind, size) for path, kind, size in rows]
        except (ValueError, TypeError, zlib.error) as error:
            raise StorageError(f"part {number} of {head.key} cannot be read: {error}", field="state.url") from error


def close_list(state: State, head: RemovalList, result: dict[str, Any]) -> None:
    """Marks the list as finished; it stays, as a record."""
    stored = state.get(head.key)
    version = None if stored is None else stored[1]
    value = json.dumps({**_fields(head), "open": False, "result": result}).encode()
    if state.put(head.key, value, version) is None:
        raise StorageError(f"the removal list {head.key} was changed by another run", field="state.url")
    _mark(state, head.table, head.run_id, is_open=False)


def open_lists(state: State, table: str) -> list[RemovalList]:
    """Lists of the table that no run has finished, oldest first. One look where there is none."""
    found: list[RemovalList] = []
    for run_id in _marked(state, table)[0]:
        key = f"removals/{table}/{run_id}"
        stored = state.get(key)
        if stored is None:
            continue  # its run ended before the list was whole, and so before anything was done
        try:
            data = json.loads(stored[0])
            if data.pop("open"):
                data.pop("result", None)
                found.append(RemovalList(**data))
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"the removal list {key} cannot be read: {error}", field="state.url") from error
    return sorted(found, key=lambda head: head.at_ms)


def _marked(state: State, table: str) -> tuple[list[str], str | None]:
    stored = state.get(f"open-removals/{table}")
    if stored is None:
        return [], None
    try:
        return [str(run_id) for run_id in json.loads(stored[0])], stored[1]
    except (ValueError, TypeError) as error:
        raise StorageError(f"open-removals/{table} cannot be read: {error}", field="state.url") from error


def _mark(state: State, table: str, run_id: str, *, is_open: bool) -> None:
    run_ids, version = _marked(state, table)
    others = [one for one in run_ids if one != run_id]
    wanted = [*others, run_id] if is_open else others
    if state.put(f"open-removals/{table}", json.dumps(wanted).encode(), version) is None:
        raise StorageError(f"open-removals/{table} was changed by another run", field="state.url")


def _fields(head: RemovalList) -> dict[str, Any]:
    return {name: getattr(head, name) for name in RemovalList.__slots__}


def _put(state: State, key: str, value: bytes) -> None:
    stored = state.get(key)
    if state.put(key, value, None if stored is None else stored[1]) is None:
        raise StorageError(f"the state's value {key} was changed by another run", field="state.url")
