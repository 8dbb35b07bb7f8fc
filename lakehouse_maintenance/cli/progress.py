"""How far running work is, on standard error: drawn where it is a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from lakehouse_maintenance.cli.text import count, files_and_bytes, printable
from lakehouse_maintenance.execution.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def showing(stream: TextIO) -> Iterator[Progress]:
    """Progress on this stream, taken away again at the end where it was drawn."""
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(file=stream), transient=True) as bars:
        yield Drawn(bars)


@dataclass
class _Work:
    """One table's rewrite."""

    files: int
    size: int
    done_files: int = 0
    done_bytes: int = 0


@dataclass
class Lines:
    """Progress where nothing can be drawn. Tables that are only looked at are counted, not named."""

    stream: TextIO
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _work: dict[str, _Work] = field(default_factory=dict)
    _looked_at: int = 0
    _last_line: float = field(default_factory=time.monotonic)

    def begin(self, table: str, what: str, files: int, size: int) -> None:
        """See Progress."""
        if not files:
            return
        with self._lock:
            self._work[table] = _Work(files, size)
            self._print(f"{table}: {what}: {files_and_bytes(files, size)}")

    def advance(self, table: str, files: int, size: int) -> None:
        """See Progress."""
        with self._lock:
            work = self._work.get(table)
            if work is None:
                return
            work.done_files += files
            work.done_bytes += size
            if self._is_time():
                done = files_and_bytes(work.done_files, work.done_bytes)
                self._print(f"{table}: {done} of {files_and_bytes(work.files, work.size)}")

    def end(self, table: str, what: str) -> None:
        """See Progress."""
        with self._lock:
            if self._work.pop(table, None) is not None:
                self._print(f"{table}: {what}")
                return
            self._looked_at += 1
            if self._is_time():
                self._print(f"looked at {count(self._looked_at, 'table')}")

    def _is_time(self) -> bool:
        return time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES

    def _print(self, text: str) -> None:
        self._last_line = time.monotonic()
        print(printable(text), file=self.stream, flush=True)


class Drawn:
    """Progress on a terminal: a bar for each rewrite, one spinner for all tables that are looked at."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        self._looking: TaskID | None = None
        self._looked_at = 0

    def begin(self, table: str, what: str, files: int, size: int) -> None:
        """See Progress."""
        with self._lock:
            if files:
                self._tasks[table] = self._bars.add_task(printable(f"{table}: {what}"), total=size)
            elif self._looking is None:
                self._looking = self._bars.add_task(what, total=None)

    def advance(self, table: str, files: int, size: int) -> None:
        """See Progress."""
        with self._lock:
            task = self._tasks.get(table)
            if task is not None:
                self._bars.advance(task, size)

    def end(self, table: str, what: str) -> None:
        """See Progress."""
        with self._lock:
            task = self._tasks.pop(table, None)
            if task is not None:
                self._bars.remove_task(task)
                self._bars.console.print(printable(f"{table}: {what}"), markup=False, highlight=False)
            elif self._looking is not None:
                self._looked_at += 1
                self._bars.update(self._looking, description=f"looked at {count(self._looked_at, 'table')}")
