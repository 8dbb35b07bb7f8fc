"""Looking at the tables of one database that changed, or whose time has come: a few at once, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from itertools import islice
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import LakehouseError, UnknownTableError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.orchestration.remembering import Entry, PendingAction, pointer_hash
from lakehouse_maintenance.planning.triggers import POLICY_ACTIONS, near, triggers_of

if TYPE_CHECKING:
    from lakehouse_maintenance.execution.watching import Watched
    from lakehouse_maintenance.lakehouse import Lakehouse

FAILED_MS = 15 * 60 * 1000
"""A table that could not be measured is tried again after this time, or when it changes."""
NEAR = 0.5
"""Share of a threshold from which on a table counts as near."""
_AT_ONCE = 4
_LONGEST_WHY = 300


class OutOfTime(Exception):
    """The deadline came; `table` was being looked at."""

    def __init__(self, table: TableName) -> None:
        super().__init__(str(table))
        self.table = table


class Looker:
    """`now_ms`: the tick's moment. `deadline`: on the clock of `time.monotonic`."""

    def __init__(self, lakehouse: Lakehouse, now_ms: int, deadline: float) -> None:
        self._lakehouse = lakehouse
        self._now_ms = now_ms
        self._deadline = deadline
        self.looked = 0

    def look(
        self, names: Iterable[TableName], pointers: Mapping[TableName, str], entries: dict[str, Entry]
    ) -> list[TableName]:
        """Brings `entries` up to date; returns tables that the catalog does not know.

        `pointers`: of all tables of the database; empty where the catalog tells them only one by one, which then is
        asked for each. Raises OutOfTime; what was seen until then is in `entries`.
        """
        gone: list[TableName] = []
        wanted = iter([name for name in names if self._is_wanted(name, pointers, entries)])
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="looks")
        running: list[tuple[TableName, Future[Entry | None]]] = []
        try:
            while True:
                running += [
                    (name, pool.submit(self._one, name, pointers.get(name), entries.get(name.table)))
                    for name in islice(wanted, _AT_ONCE - len(running))
                ]
                if not running:
                    return gone
                name, future = running[0]
                try:
                    entry = future.result(max(self._deadline - time.monotonic(), 0))
                except NotInTime:
                    raise OutOfTime(name) from None
                running.pop(0)
                if entry is None:
                    gone.append(name)
                    entries.pop(name.table, None)
                else:
                    entries[name.table] = entry
        finally:
            # Not waited for: what a slow look reads is in the cache of manifests when its turn comes again.
            pool.shutdown(wait=False, cancel_futures=True)

    def _is_wanted(self, name: TableName, pointers: Mapping[TableName, str], entries: Mapping[str, Entry]) -> bool:
        pointer = pointers.get(name)
        return pointer is None or not self._is_fresh(entries.get(name.table), pointer)

    def _is_fresh(self, entry: Entry | None, pointer: str) -> bool:
        if entry is None or entry.pointer != pointer_hash(pointer):
            return False
        return entry.again_ms is None or self._now_ms < entry.again_ms

    def _one(self, name: TableName, pointer: str | None, known: Entry | None) -> Entry | None:
        """What is seen of the table now; None where it is gone."""
        try:
            pointer = pointer or self._lakehouse.catalogs[name.catalog].pointer(name)
            if known is not None and self._is_fresh(known, pointer):
                return known
            self.looked += 1
            return self._entry(self._lakehouse.watch(name))
        except UnknownTableError:
            return None
        except LakehouseError as error:
            why = self._lakehouse.config.masker.mask(f"cannot be measured: {_without_name(error.message, name)}")
            return Entry(pointer_hash(pointer or ""), "", self._now_ms + FAILED_MS, 1.0, why[:_LONGEST_WHY])

    def _entry(self, seen: Watched) -> Entry:
        pending = tuple(
            PendingAction(
                action=action.action,
                reason=action.reason,
                input_bytes=action.inputs.bytes,
                gain=action.expected.fewer_files + action.expected.fewer_deletes,
                since_ms=seen.turns[action.action].since_ms,
                every_ms=seen.turns[action.action].every_ms,
            )
            for action in seen.plan.actions
        )
        nearness, why = self._nearest(seen)
        return Entry(
            pointer=pointer_hash(seen.pointer),
            snapshot_id=str(seen.plan.snapshot_id or "empty"),
            again_ms=seen.look_again_ms,
            nearness=nearness,
            why=why if nearness >= NEAR or seen.plan.error else "",
            pending=pending,
        )

    def _nearest(self, seen: Watched) -> tuple[float, str]:
        """The action that came nearest to its threshold without being planned, and why it is not."""
        if seen.plan.error is not None:
            return 1.0, seen.plan.error[:_LONGEST_WHY]
        policy = self._lakehouse.config.policy_for(TableName.parse(seen.plan.table))
        reasons = {skip.action: skip.reason for skip in seen.plan.skipped}
        ranked = [
            (max((near(trigger, seen.health) for trigger in triggers_of(action, policy)), default=0.0), action)
            for action in POLICY_ACTIONS
            if action in reasons
        ]
        if not ranked:
            return 0.0, ""
        nearness, action = max(ranked)
        return nearness, f"{action}: {reasons[action]}"[:_LONGEST_WHY]


def _without_name(text: str, name: TableName) -> str:
    return text.removeprefix(f"{name}: ")
