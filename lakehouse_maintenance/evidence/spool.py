"""A listing on its way: on disk while references are read, which is after it was read and before it is used.

The order matters (known race): a file that is written, referenced and listed between reading references and listing
would look unreferenced. So the listing comes first, and has to wait somewhere.
"""

from __future__ import annotations

import marshal
import tempfile
from collections.abc import Iterator
from types import TracebackType

from lakehouse_maintenance.storage.base import Row

_ROWS = 1 << 15
"""Rows given out at once: asking for many paths at a time is several times faster than for a listing's page."""


class Spool:
    """Rows in batches, in an unnamed file. Written once, then read any number of times."""

    def __init__(self) -> None:
        self._pending: list[Row] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.rows = 0
        self.bytes = 0

    def add(self, rows: list[Row]) -> None:
        """Some more."""
        self._pending += rows
        self.rows += len(rows)
        self.bytes += sum(row[1] for row in rows)
        if len(self._pending) >= _ROWS:
            self._write()

    def _write(self) -> None:
        data = marshal.dumps(self._pending)
        self._file.seek(0, 2)
        self._file.write(len(data).to_bytes(8, "little"))
        self._file.write(data)
        self._pending = []

    def __iter__(self) -> Iterator[list[Row]]:
        if self._pending:
            self._write()
        self._file.seek(0)
        while head := self._file.read(8):
            yield marshal.loads(self._file.read(int.from_bytes(head, "little")))  # noqa: S302 - our own bytes

    def close(self) -> None:
        """Gives the disk back."""
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
