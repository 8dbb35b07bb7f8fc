"""Manifest lists: decoded one after the other, each row once, and remembered within bounds.

Every snapshot's list names nearly all the manifests that the one before it named, so that the lists of a table hold
rows by the square of its manifests. A row whose bytes are those of a row already read is that row.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakehouse_maintenance.iceberg.avro import Body, read_body
from lakehouse_maintenance.iceberg.decoding import read_bytes

_PATH_ID = 500
_MOST_KNOWN = 100_000
_TRIES = 4
_ROW_BYTES = 2000
_POINTER_BYTES = 8
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class _Read(Generic[Row]):
    """The list before: its rows, and where each begins; the last offset is the end."""

    data: bytes
    rows: list[Row]
    offsets: list[int]
    index: dict[bytes, int]


class ListDecoder(Generic[Row]):
    """Decodes one table's manifest lists. `make`: a row from its record; must not depend on anything else.

    Avro's encoding delimits itself: where bytes begin like a known row of the same schema, they are that row.
    Not for use by several threads at once.
    """

    def __init__(self, make: Callable[[dict[str, Any]], Row]) -> None:
        self._make = make
        self._schema: bytes | None = None
        self._known: dict[bytes, tuple[bytes, Row]] = {}
        self._before: _Read[Row] = _Read(b"", [], [0], {})

    def decode(self, data: bytes) -> tuple[list[Row], int]:
        """The rows in their order, and how many of them were not known. Raises ValueError, KeyError, TypeError."""
        body = read_body(data)
        if body.schema != self._schema or len(self._known) > _MOST_KNOWN:
            self._schema = body.schema
            self._known = {}
            self._before = _Read(b"", [], [0], {})
        if body.first_field_id != _PATH_ID:
            return [self._make(record) for record in body.records()], body.count
        try:
            read, fresh = self._rows(body)
            body.check(read.offsets)
        except (IndexError, OverflowError, struct.error) as error:
            raise ValueError("cut short") from error
        self._before = read
        return read.rows, fresh

    def _rows(self, body: Body) -> tuple[_Read[Row], int]:
        data, before, known = body.data, self._before, self._known
        rows: list[Row] = []
        offsets: list[int] = []
        index: dict[bytes, int] = {}
        at = fresh = 0
        tries = _TRIES
        expected: int | None = None
        while at < len(data):
            path, _ = read_bytes(data, at)
            position = before.index.get(path)
            if position is not None and position != expected and tries:
                # Most often all that follows is as it was.
                tries -= 1
                start = before.offsets[position]
                if data.startswith(before.data[start:], at):
                    first = len(rows)
                    rows += before.rows[position:]
                    offsets += [at - start + offset for offset in before.offsets[position:-1]]
                    for path_again, number in before.index.items():
                        if number >= position:
                            index[path_again] = first + number - position
                    at += len(before.data) - start
                    expected = None
                    continue
            expected = None if position is None else position + 1
            index[path] = len(rows)
            offsets.append(at)
            seen = known.get(path)
            if seen is not None and data.startswith(seen[0], at):
                rows.append(seen[1])
                at += len(seen[0])
                continue
            record, end = body.read(data, at)
            row = self._make(record)
            rows.append(row)
            known[path] = (data[at:end], row)
            at = end
            fresh += 1
        offsets.append(at)
        return _Read(data, rows, offsets, index), fresh


class RememberedLists(Generic[Row]):
    """Lists by table and path, the least recently used forgotten beyond about `limit` bytes. Safe between threads.

    A list never changes under its path.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._lists: OrderedDict[tuple[str, str], tuple[Sequence[Row], int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get_many(self, table: str, paths: Iterable[str]) -> Mapping[str, Sequence[Row]]:
        """Those that are remembered."""
        found: dict[str, Sequence[Row]] = {}
        with self._lock:
            for path in paths:
                remembered = self._lists.get((table, path))
                if remembered is not None:
                    self._lists.move_to_end((table, path))
                    found[path] = remembered[0]
        return found

    def length(self, table: str, path: str) -> int | None:
        """Bytes of the list's file; None where it is not remembered."""
        with self._lock:
            remembered = self._lists.get((table, path))
            return None if remembered is None else remembered[2]

    def put(self, table: str, path: str, rows: Sequence[Row], fresh: int, length: int = 0) -> None:
        """`fresh`: rows that no other list shares yet. `length`: bytes of its file."""
        size = _ROW_BYTES * fresh + _POINTER_BYTES * len(rows)
        with self._lock:
            _, old, _ = self._lists.pop((table, path), ((), 0, 0))
            self._lists[table, path] = (rows, size, length)
            self._size += size - old
            while self._size > self._limit:
                _, (_, gone, _) = self._lists.popitem(last=False)
                self._size -= gone
