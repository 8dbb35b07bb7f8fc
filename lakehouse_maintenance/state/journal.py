"""The journal: what was about to be done, and what became of it. Append-only; nothing here removes or changes a line.

One file a run and UTC day of its events, `journal/<date>/<run>.jsonl`, a JSON object a line. A line counts once its
newline is there. What a crash leaves of a line has none; a writer that comes later closes it and says so in the next
line (`TORN`), so that it cannot be taken for damage.

What is open is known without reading the history: a small value per table, `open/<table>`, names the runs and actions
to look at. It is written before the intent and cleared after the outcome, so it may name too much after a crash, never
too little; the lines decide. A run does one thing to a table at a time (it holds the table's lease), and this rests
on it.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lakehouse_maintenance.model.errors import LakehouseError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state.folder import FIELD, FolderStore, file_lock, make_folder, sync_folder, write_all
from lakehouse_maintenance.state.naming import file_name

TORN = b'{"torn_line_above": true}'

INTENT = "intent"
OUTCOME = "outcome"

_SKEW = timedelta(seconds=10)
"""How far an event's time may lie after its file's: the clocks of a machine and of a file server differ. With more,
`last` could miss an event that is hardly newer than those it gives."""

_ATTEMPTS = 1000

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_EVENT_FIELDS = frozenset(field.name for field in fields(Event))

_logger = logging.getLogger(__name__)


class Journal:
    """The journal in a state folder. Safe between threads and processes."""

    def __init__(self, folder: FolderStore) -> None:
        self._folder = folder
        self._root = folder.path / "journal"
        self._named: set[Path] = set()

    def record(self, event: Event) -> None:
        """Write one event; it survives a crash once this returns.

        `event.at`: ISO 8601 with an offset (ValueError otherwise). Secrets in `event.details` are the caller's to
        keep out. Raises StorageError or ConfigurationError where it could not be made durable: what the intent
        announces must not begin then.
        """
        day = _time_of(event.at).date().isoformat()
        line = json.dumps(event.as_json(), separators=(",", ":")).encode("ascii")
        self._folder.prepare()
        if event.phase == INTENT:
            self._mark(event, is_open=True)
        with self._folder.errors("write to"):
            self._append(day, event.run_id, line)
        if event.phase == OUTCOME:
            try:
                self._mark(event, is_open=False)
            except LakehouseError as error:
                # The outcome is durable. A marker that stays behind costs the next reader one look at this file.
                _logger.warning("%s", error)

    def events(self, *, table: str | None = None, last: int | None = None, run_id: str | None = None) -> list[Event]:
        """Events by time, oldest first; `last`: only so many of the newest.

        With `last`, newest files are read first, and no more than needed. Raises StorageError naming file and line
        where a line that was once written is damaged.
        """
        if last is not None and last <= 0:
            return []
        found: list[tuple[datetime, Event]] = []
        for day in self._days():
            missing = None if last is None else last - len(found)
            if missing is not None and missing <= 0:
                break
            found += self._events_of_day(day, table, run_id, missing)
        found.sort(key=lambda pair: pair[0])
        return [event for _, event in (found if last is None else found[-last:])]

    def open_intents(self, table: str) -> list[Event]:
        """Intents on the table that no outcome of the same run and action followed; oldest first.

        Cost grows with what is open, not with the history.
        """
        pairs, _ = self._marked(table)
        if not pairs:
            return []
        still_open: list[Event] = []
        days = self._days()[::-1]
        for run_id in dict.fromkeys(run for run, _ in pairs):
            unfinished: dict[str, list[Event]] = {}
            for day in days:
                for event in self._events_of_file(self._file(day, run_id)):
                    if event.table != table:
                        continue
                    if event.phase == INTENT:
                        unfinished.setdefault(event.action, []).append(event)
                    elif event.phase == OUTCOME:
                        unfinished.pop(event.action, None)
            for intents in unfinished.values():
                still_open += intents
        return sorted(still_open, key=lambda event: _time_of(event.at))

    def _append(self, day: str, run_id: str, line: bytes) -> None:
        path = self._file(day, run_id)
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

    def _mark(self, event: Event, *, is_open: bool) -> None:
        pair = (event.run_id, event.action)
        for _ in range(_ATTEMPTS):
            pairs, version = self._marked(event.table)
            if (pair in pairs) is is_open:
                return
            changed = [*pairs, pair] if is_open else [other for other in pairs if other != pair]
            if self._folder.put(_marker(event.table), json.dumps(changed).encode("ascii"), version) is not None:
                return
        raise StorageError(f"the open intents of {event.table} keep changing; gave up", field=FIELD)

    def _marked(self, table: str) -> tuple[list[tuple[str, str]], str | None]:
        stored = self._folder.get(_marker(table))
        if stored is None:
            return [], None
        value, version = stored
        try:
            return [(str(run_id), str(action)) for run_id, action in json.loads(value)], version
        except (ValueError, TypeError) as error:
            raise StorageError(
                f"the list of open intents of {table} in {self._folder.path} is damaged",
                field=FIELD,
                hint=f"restore the value {_marker(table)!r} from a backup of the state folder",
            ) from error

    def _days(self) -> list[str]:
        """Newest first."""
        self._folder.check_version()
        with self._folder.errors("list"):
            try:
                return sorted(filter(_DAY.fullmatch, os.listdir(self._root)), reverse=True)
            except FileNotFoundError:
                return []

    def _file(self, day: str, run_id: str) -> Path:
        return self._root / day / f"{file_name(run_id)}.jsonl"

    def _events_of_day(
        self, day: str, table: str | None, run_id: str | None, last: int | None
    ) -> list[tuple[datetime, Event]]:
        """At least the newest `last` of the day that fit, where there are so many."""
        found: list[tuple[datetime, Event]] = []
        newest: list[datetime] = []
        for path, written in self._files_of_day(day, run_id):
            # A file's events are not newer than its last write, so older files cannot hold one of the newest `last`.
            if last is not None and len(newest) == last and newest[0] > written + _SKEW:
                break
            for event in self._events_of_file(path):
                if (table is not None and event.table != table) or (run_id is not None and event.run_id != run_id):
                    continue
                at = _time_of(event.at)
                found.append((at, event))
                if last is None:
                    continue
                if len(newest) < last:
                    heapq.heappush(newest, at)
                else:
                    heapq.heappushpop(newest, at)
        return found

    def _files_of_day(self, day: str, run_id: str | None) -> list[tuple[Path, datetime]]:
        """Files with the time of their last write, newest first."""
        if run_id is not None:
            return [(self._file(day, run_id), datetime.max.replace(tzinfo=UTC) - _SKEW)]
        found: list[tuple[Path, datetime]] = []
        with self._folder.errors("list"):
            for entry in _scan(self._root / day):
                written = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                found.append((Path(entry.path), written))
        return sorted(found, key=lambda pair: (pair[1], pair[0].name), reverse=True)

    def _events_of_file(self, path: Path) -> Iterator[Event]:
        """In the order of the lines. A file that is not there has none."""
        with self._folder.errors("read"):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                return
        *lines, _unfinished = content.split(b"\n")
        for index, line in enumerate(lines):
            was_torn = index + 1 < len(lines) and lines[index + 1] == TORN
            if line == TORN or was_torn:
                continue
            yield _event(line, path, index + 1)


def _event(line: bytes, path: Path, number: int) -> Event:
    try:
        data: dict[str, Any] = json.loads(line)
        # Fields that a later release added are none of our business.
        event = Event(**{name: value for name, value in data.items() if name in _EVENT_FIELDS})
        _time_of(event.at)
        return event
    except (ValueError, TypeError, AttributeError) as error:
        raise StorageError(
            f"{path} line {number} is not a journal entry: the file is damaged",
            field=FIELD,
            hint="restore the file from a backup, or correct the line by hand",
        ) from error


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.endswith(".jsonl")]
    except FileNotFoundError:
        return []


def _marker(table: str) -> str:
    return f"open/{table}"


def _time_of(at: str) -> datetime:
    time = datetime.fromisoformat(at)
    if time.tzinfo is None:
        raise ValueError(f"an event's time needs an offset: {at!r}")
    return time.astimezone(UTC)
