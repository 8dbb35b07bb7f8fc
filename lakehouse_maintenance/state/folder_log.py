"""The log of a state folder: one file a run and UTC day, `journal/<date>/<run>.jsonl`.

A line counts once its newline is there. What a crash leaves of a line has none; a writer that comes later closes it
and says so in the next line (`TORN`), so that it cannot be taken for damage.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from lakehouse_maintenance.state.backend import Line, Page
from lakehouse_maintenance.state.files import file_lock, make_folder, sync_folder, write_all
from lakehouse_maintenance.state.naming import file_name

TORN = b'{"torn_line_above": true}'

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class FolderLog:
    """A Log in `root`. `prepare` runs before a write, `check` before a read, `errors` around both."""

    def __init__(
        self,
        root: Path,
        prepare: Callable[[], None],
        check: Callable[[], object],
        errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._root = root
        self._prepare = prepare
        self._check = check
        self._errors = errors
        self._named: set[Path] = set()

    def append(self, day: str, run_id: str, content: bytes) -> None:
        """See Log."""
        self._prepare()
        with self._errors("write to"):
            self._append(self._file(day, run_id), content)

    def days(self) -> list[str]:
        """See Log."""
        self._check()
        with self._errors("list"):
            try:
                return sorted(filter(_DAY.fullmatch, os.listdir(self._root)), reverse=True)
            except FileNotFoundError:
                return []

    def pages(self, day: str) -> Iterator[Page]:
        """See Log. A page is a file."""
        with self._errors("list"):
            entries = _scan(self._root / day)
            found = [(datetime.fromtimestamp(entry.stat().st_mtime, UTC), entry.name) for entry in entries]
        for written, name in sorted(found, reverse=True):
            yield Page(written, self._lines(self._root / day / name))

    def of_run(self, run_id: str) -> Iterator[Line]:
        """See Log."""
        for day in reversed(self.days()):
            yield from self._lines(self._file(day, run_id))

    def _file(self, day: str, run_id: str) -> Path:
        return self._root / day / f"{file_name(run_id)}.jsonl"

    def _append(self, path: Path, line: bytes) -> None:
        make_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with file_lock(descriptor, path):
                size = os.fstat(descriptor).st_size
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                write_all(descriptor, (b"\n" + TORN + b"\n" if is_torn else b"") + line + b"\n")
                os.fsync(descriptor)
                if path not in self._named:
                    # Also for a file that is there already: who created it may have been killed before this.
                    sync_folder(path.parent)
                    sync_folder(self._root)
                    self._named.add(path)
        finally:
            os.close(descriptor)

    def _lines(self, path: Path) -> Iterator[Line]:
        """A file that is not there has none."""
        with self._errors("read"):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                return
        *lines, _unfinished = content.split(b"\n")
        for index, line in enumerate(lines):
            was_torn = index + 1 < len(lines) and lines[index + 1] == TORN
            if line == TORN or was_torn:
                continue
            yield Line(f"{path} line {index + 1}", line)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.endswith(".jsonl")]
    except FileNotFoundError:
        return []
