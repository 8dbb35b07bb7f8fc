"""The journal: what was about to be done, and what became of it. Append-only; nothing here removes or changes a line.

A JSON object a line, in the log of the state (see backend.py).

What is open is known without reading the history: a small value per table, `open/<table>`, names the runs and actions
to look at. It is written before the intent and cleared after the outcome, so it may name too much after a crash, never
too little; the lines decide. A run does one thing to a table at a time (it holds the table's lease), and this rests
on it.
"""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from lakehouse_maintenance.model.errors import LakehouseError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state.backend import FIELD, Backend, Line

INTENT = "intent"
OUTCOME = "outcome"

_SKEW = timedelta(seconds=10)
"""How far an event's time may lie after the store's time of its line: the clocks of a machine and of its store differ.
With more, `last` could miss an event that is hardly newer than those it gives."""

_ATTEMPTS = 1000

_EVENT_FIELDS = frozenset(field.name for field in fields(Event))

_logger = logging.getLogger(__name__)

Timed = tuple[datetime, Event]


class Journal:
    """The journal of a state. Safe between threads and processes."""

    def __init__(self, store: Backend) -> None:
        self._store = store

    def record(self, event: Event) -> None:
        """Write one event; it survives a crash once this returns.

        `event.at`: ISO 8601 with an offset (ValueError otherwise). Secrets in `event.details` are the caller's to
        keep out. Raises StorageError or ConfigurationError where it could not be made durable: what the intent
        announces must not begin then.
        """
        day = _time_of(event.at).date().isoformat()
        line = json.dumps(event.as_json(), separators=(",", ":")).encode("ascii")
        if event.phase == INTENT:
            self._mark(event, is_open=True)
        self._store.log.append(day, event.run_id, line)
        if event.phase == OUTCOME:
            try:
                self._mark(event, is_open=False)
            except LakehouseError as error:
                # The outcome is durable. A marker that stays behind costs the next reader one look at this run.
                _logger.warning("%s", error)

    def events(self, *, table: str | None = None, last: int | None = None, run_id: str | None = None) -> list[Event]:
        """Events by time, oldest first; `last`: only so many of the newest.

        With `last`, what was written last is read first, and no more than needed. Raises StorageError naming the line
        where one that was once written is damaged.
        """
        if last is not None and last <= 0:
            return []
        found = self._of_days(table, last) if run_id is None else self._of_run(run_id, table)
        found.sort(key=lambda pair: pair[0])
        return [event for _, event in (found if last is None else found[-last:])]

    def open_intents(self, table: str) -> list[Event]:
        """Intents on the table that no outcome of the same run and action followed; oldest first.

        Cost grows with what is open, not with the history.
        """
        pairs, _ = self._marked(table)
        still_open: list[Event] = []
        for run_id in dict.fromkeys(run for run, _ in pairs):
            unfinished: dict[str, list[Event]] = {}
            for _, event in self._of_run(run_id, table):
                if event.phase == INTENT:
                    unfinished.setdefault(event.action, []).append(event)
                elif event.phase == OUTCOME:
                    unfinished.pop(event.action, None)
            for intents in unfinished.values():
                still_open += intents
        return sorted(still_open, key=lambda event: _time_of(event.at))

    def _of_run(self, run_id: str, table: str | None) -> list[Timed]:
        """In the order they were written."""
        return _fitting(self._store.log.of_run(run_id), table, run_id)

    def _of_days(self, table: str | None, last: int | None) -> list[Timed]:
        """At least the newest `last` that fit, where there are so many; of one time, in the order of writing."""
        days: list[list[Timed]] = []
        count = 0
        for day in self._store.log.days():
            if last is not None and count >= last:
                break
            days.append(self._of_day(day, table, None if last is None else last - count))
            count += len(days[-1])
        return [pair for day in reversed(days) for pair in day]

    def _of_day(self, day: str, table: str | None, last: int | None) -> list[Timed]:
        pages: list[list[Timed]] = []
        newest: list[datetime] = []
        for page in self._store.log.pages(day):
            # Events are not newer than the writing of their page, so older pages cannot hold one of the newest `last`.
            if last is not None and len(newest) == last and newest[0] > page.written + _SKEW:
                break
            pages.append(_fitting(page.lines, table, None))
            if last is None:
                continue
            for at, _ in pages[-1]:
                if len(newest) < last:
                    heapq.heappush(newest, at)
                else:
                    heapq.heappushpop(newest, at)
        return [pair for page in reversed(pages) for pair in page]

    def _mark(self, event: Event, *, is_open: bool) -> None:
        pair = (event.run_id, event.action)
        for _ in range(_ATTEMPTS):
            pairs, version = self._marked(event.table)
            if (pair in pairs) is is_open:
                return
            changed = [*pairs, pair] if is_open else [other for other in pairs if other != pair]
            if self._store.put(_marker(event.table), json.dumps(changed).encode("ascii"), version) is not None:
                return
        raise StorageError(f"the open intents of {event.table} keep changing; gave up", field=FIELD)

    def _marked(self, table: str) -> tuple[list[tuple[str, str]], str | None]:
        stored = self._store.get(_marker(table))
        if stored is None:
            return [], None
        value, version = stored
        try:
            return [(str(run_id), str(action)) for run_id, action in json.loads(value)], version
        except (ValueError, TypeError) as error:
            raise StorageError(
                f"the list of open intents of {table} in {self._store.location} is damaged",
                field=FIELD,
                hint=f"restore the value {_marker(table)!r} from a backup of the state",
            ) from error


def _fitting(lines: Iterable[Line], table: str | None, run_id: str | None) -> list[Timed]:
    """Events of the table and run (None: of all) with their times, in the order of the lines."""
    found: list[Timed] = []
    for line in lines:
        event = _event(line)
        if table in (None, event.table) and run_id in (None, event.run_id):
            found.append((_time_of(event.at), event))
    return found


def _event(line: Line) -> Event:
    try:
        data: dict[str, Any] = json.loads(line.content)
        # Fields that a later release added are none of our business.
        event = Event(**{name: value for name, value in data.items() if name in _EVENT_FIELDS})
        _time_of(event.at)
        return event
    except (ValueError, TypeError, AttributeError) as error:
        raise StorageError(
            f"{line.where} is not a journal entry: it is damaged",
            field=FIELD,
            hint="restore it from a backup, or correct it by hand",
        ) from error


def _marker(table: str) -> str:
    return f"open/{table}"


def _time_of(at: str) -> datetime:
    time = datetime.fromisoformat(at)
    if time.tzinfo is None:
        raise ValueError(f"an event's time needs an offset: {at!r}")
    return time.astimezone(UTC)
