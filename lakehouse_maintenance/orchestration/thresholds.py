"""One tick of the threshold sensor: which tables are due, and which of them are started now (DG-06).

A tick asks each database for the pointers of its tables, reads those that changed or whose time has come, and ranks
all that are due by gain for cost. Whatever it leaves undone, for time or number, the next tick goes on with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import LakehouseError, LeaseHeldError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.databases import Database, ListedDatabases
from lakehouse_maintenance.orchestration.looking import NEAR, Looker, OutOfTime
from lakehouse_maintenance.orchestration.partitions import by_database
from lakehouse_maintenance.orchestration.remembering import Entry, Memories, PendingAction
from lakehouse_maintenance.orchestration.rendering import told_with_name
from lakehouse_maintenance.planning.budget import value, within_budget
from lakehouse_maintenance.planning.window import is_open

if TYPE_CHECKING:
    from lakehouse_maintenance.lakehouse import Lakehouse

MOST_REQUESTS = 50
"""Runs that one tick asks for."""
SECONDS = 20.0
"""After so many seconds a tick looks at no further table."""
_KEYS_A_QUESTION = 100
_NAMED = 10

FindRuns = Callable[[Collection[str]], dict[str, str]]
"""Run keys → for those that a run was started for, how it stands."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run to start. `value`: files gained for each byte read."""

    table: TableName
    run_key: str
    actions: tuple[PendingAction, ...]
    value: float


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A table that came near or is due, and why no run of it is started."""

    table: TableName
    nearness: float
    why: str


@dataclass
class Ticked:
    """`cursor`: where the next tick goes on looking; None: at the start. `waiting`: due, and left for the next tick."""

    wanted: list[Wanted] = field(default_factory=list)
    not_started: list[NotStarted] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cursor: str | None = None
    tables: int = 0
    looked: int = 0
    waiting: int = 0

    def message(self) -> str:
        """What came near and did not start, nearest first, for people."""
        started = f"{len(self.wanted):,} to start, " if self.wanted else "nothing to start: "
        parts = [f"{started}{self.tables:,} tables, {self.looked:,} of them looked at"]
        if self.waiting:
            parts.append(f"{self.waiting:,} more are due and wait for the next tick")
        ranked = sorted(self.not_started, key=lambda one: (-one.nearness, one.table))
        parts += [told_with_name(str(one.table), one.why) for one in ranked[:_NAMED]]
        if len(ranked) > _NAMED:
            parts.append(f"{len(ranked) - _NAMED:,} more came near")
        if self.problems:
            parts.append("not known: " + ", ".join(self.problems[:_NAMED]))
        if self.cursor is not None:
            parts.append("the next tick goes on")
        return "; ".join(parts)


def threshold_tick(
    lakehouse: Lakehouse,
    partitions: Collection[str],
    cursor: str | None,
    *,
    in_flight: Collection[str] = (),
    find_runs: FindRuns = lambda keys: {},
    now_ms: int,
    seconds: float = SECONDS,
) -> Ticked:
    """`partitions`: keys that are registered. `in_flight`: those of them that a run is queued or works for.

    Starts nothing itself. Never raises for what one table or one catalog does.
    """
    tick = _Tick(lakehouse, set(in_flight), now_ms, seconds)
    tick.see(partitions, cursor)
    tick.choose(find_runs)
    return tick.ticked


class _Tick:
    def __init__(self, lakehouse: Lakehouse, in_flight: set[str], now_ms: int, seconds: float) -> None:
        from lakehouse_maintenance import __version__

        self.ticked = Ticked()
        self._lakehouse = lakehouse
        self._in_flight = in_flight
        self._now_ms = now_ms
        self._deadline = time.monotonic() + seconds
        self._memories = Memories(lakehouse.state, lakehouse.config, __version__)
        self._looker = Looker(lakehouse, now_ms, self._deadline)
        self._tables: dict[Database, list[TableName]] = {}
        self._due: dict[TableName, Entry] = {}
        self._reserved = 0

    def see(self, partitions: Collection[str], cursor: str | None) -> None:
        """Looks at what changed, from the cursor on and round to it."""
        listed = ListedDatabases(self._lakehouse.config)
        found, strange = by_database(partitions)
        if strange:
            self.ticked.problems.append(f"{len(strange):,} partitions have keys of no table")
        tables = {database: names for database, names in found.items() if database in listed}
        self._tables = tables
        self.ticked.tables = sum(map(len, tables.values()))
        for database, names in _round(tables, cursor):
            if time.monotonic() > self._deadline:
                self._go_on_at(database, names[0], is_done=False)
                break
            try:
                self._database(database, names)
            except OutOfTime as late:
                # Past it: a table that alone takes longer than a tick must not keep all others waiting.
                self._go_on_at(database, late.table, is_done=True)
                self.ticked.problems.append(f"{late.table} could not be measured in the time of a tick")
                break
        self.ticked.looked = self._looker.looked

    def _go_on_at(self, database: Database, name: TableName, *, is_done: bool) -> None:
        self.ticked.cursor = json.dumps([database.catalog, list(database.namespace), name.table, is_done])

    def _database(self, database: Database, names: list[TableName]) -> None:
        try:
            catalog = self._lakehouse.catalogs[database.catalog]
            pointers = catalog.pointers(database.namespace)
            entries, version = self._memories.read(database)
        except LakehouseError as error:
            self.ticked.problems.append(self._lakehouse.config.masker.mask(error.message))
            return
        before = dict(entries)
        registered = {name.table for name in self._tables[database]}
        entries = {table: entry for table, entry in entries.items() if table in registered}
        # A table that a run works on changes under our eyes: it is looked at when the run is over.
        idle = [name for name in names if name.partition_key not in self._in_flight]
        there = [name for name in idle if not pointers or name in pointers]
        try:
            gone = self._looker.look(there, pointers, entries)
            gone += [name for name in idle if pointers and name not in pointers]
            if gone:
                self.ticked.problems.append(f"{len(gone):,} tables that {database} does not have, such as {gone[0]}")
            for name in gone:
                entries.pop(name.table, None)
        finally:
            if entries != before:
                self._memories.write(database, entries, version)
            self._remember(names, entries)

    def _remember(self, names: list[TableName], entries: dict[str, Entry]) -> None:
        for name in names:
            entry = entries.get(name.table)
            if entry is None:
                continue
            if name.partition_key in self._in_flight:
                # What it was started for may not be spent yet.
                plan = entry.as_plan(str(name))
                self._reserved += sum(a.inputs.bytes for a in plan.actions if a.action == "rewrite_data_files")
                if entry.pending:
                    self._leave(name, 2.0, "a run of it is queued or under way")
            elif entry.pending:
                self._due[name] = entry
            elif entry.nearness >= NEAR and entry.why:
                self._leave(name, entry.nearness, entry.why)

    def _leave(self, name: TableName, nearness: float, why: str) -> None:
        self.ticked.not_started.append(NotStarted(name, nearness, why))

    def choose(self, find_runs: FindRuns) -> None:
        """Of what is due: what window, budget, leases and earlier runs of the same turn let start, best first."""
        ranked = sorted(self._affordable(), key=lambda wanted: (-wanted.value, wanted.table))
        while ranked and len(self.ticked.wanted) < MOST_REQUESTS:
            batch, ranked = ranked[:_KEYS_A_QUESTION], ranked[_KEYS_A_QUESTION:]
            started = find_runs([wanted.run_key for wanted in batch])
            for wanted in batch:
                if wanted.run_key in started:
                    self._leave(wanted.table, 2.0, f"{_due(wanted.actions)}, and {started[wanted.run_key]}")
                elif (held := self._held(wanted.table)) is not None:
                    self._leave(wanted.table, 2.0, f"{_due(wanted.actions)}, and {held}")
                elif len(self.ticked.wanted) < MOST_REQUESTS:
                    self.ticked.wanted.append(wanted)
                else:
                    self.ticked.waiting += 1
        self.ticked.waiting += len(ranked)

    def _affordable(self) -> Iterator[Wanted]:
        open_now = [name for name in sorted(self._due) if self._is_open(name)]
        plans = [self._due[name].as_plan(str(name)) for name in open_now]
        budget = self._lakehouse.config.policies.default.budget
        limit = None if budget is None else budget.bytes_per_day
        spent = 0 if limit is None else self._lakehouse.spent_today() + self._reserved
        kept, refused = within_budget(plans, limit, spent)
        for over in refused:
            self._leave(TableName.parse(over.table), 1.5, f"{over.action} is due, and {over.reason}")
        for name, plan in zip(open_now, kept, strict=True):
            if plan.actions:
                entry = self._due[name]
                actions = entry.kept(plan)
                key = entry.run_key(str(name), actions, self._now_ms)
                yield Wanted(name, key, actions, max(map(value, plan.actions)))

    def _is_open(self, name: TableName) -> bool:
        window = self._lakehouse.config.policy_for(name).window
        if is_open(window, datetime.fromtimestamp(self._now_ms / 1000, UTC)):
            return True
        assert window is not None, "what is not set is always open"
        opens = f"it opens at {window.start:%H:%M} {window.timezone}"
        self._leave(name, 1.5, f"{_due(self._due[name].pending)}, and its maintenance window is closed ({opens})")
        return False

    def _held(self, name: TableName) -> str | None:
        try:
            info = self._lakehouse.state.leases.current(str(name))
        except LeaseHeldError as error:
            return error.message
        if info is None:
            return None
        until = info.expires_at.isoformat(timespec="seconds")
        return f"it is held by {info.owner} (run {info.run_id}) until {until} unless renewed"


def _due(actions: Collection[PendingAction]) -> str:
    return ", ".join(f"{action.action} is due ({action.reason})" for action in actions)


def _round(tables: dict[Database, list[TableName]], cursor: str | None) -> Iterator[tuple[Database, list[TableName]]]:
    """Every table once, by database: from the cursor's on, and at the end those before it."""
    at = _position(cursor)
    databases = sorted(tables)
    if at is None:
        yield from ((database, tables[database]) for database in databases)
        return
    first, table, is_done = at
    later = [name for name in tables.get(first, ()) if name.table > table or (name.table == table and not is_done)]
    earlier = [name for name in tables.get(first, ()) if name not in set(later)]
    chunks = [(first, later)]
    chunks += [(database, tables[database]) for database in databases if database > first]
    chunks += [(database, tables[database]) for database in databases if database < first]
    chunks.append((first, earlier))
    yield from (chunk for chunk in chunks if chunk[1])


def _position(cursor: str | None) -> tuple[Database, str, bool] | None:
    """A cursor that cannot be read starts anew: what is remembered of the tables is not in it."""
    if not cursor:
        return None
    try:
        catalog, namespace, table, is_done = json.loads(cursor)
        return Database(str(catalog), tuple(map(str, namespace))), str(table), bool(is_done)
    except (ValueError, TypeError):
        return None
