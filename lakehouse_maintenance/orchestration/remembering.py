"""What the threshold sensor remembers of tables between its ticks, so that one that does not change costs nothing.

One value a database in the state, under `sensors/table_thresholds/`. It is a memory alone: without it, every table is
looked at once more.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.plans import Expected, Inputs, PlannedAction, TablePlan
from lakehouse_maintenance.orchestration.databases import Database
from lakehouse_maintenance.planning.timing import turn_start_ms

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.state import State

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PendingAction:
    """An action that is due and planned: what it reads, the files it gains, and its turns (see watching.Turn)."""

    action: str
    reason: str
    input_bytes: int
    gain: int
    since_ms: int
    every_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What was seen of a table. `pointer`: a hash of its metadata file's location.

    `again_ms`: when it is looked at again though it does not change (milliseconds since 1970); None: never.
    `nearness`: how much of its threshold the nearest trigger has reached, 1.0 and more is crossed. `why`: why nothing
    is due, or due and not started; empty where nothing is near.
    """

    pointer: str
    snapshot_id: str
    again_ms: int | None
    nearness: float
    why: str
    pending: tuple[PendingAction, ...] = ()

    def run_key(self, table: str, actions: Sequence[PendingAction], now_ms: int) -> str:
        """`actions:table:snapshot:start of the turn`: the same while one turn of the same state lasts."""
        names = "+".join(action.action for action in actions)
        start = max(turn_start_ms(action.since_ms, action.every_ms, now_ms) for action in actions)
        return f"{names}:{table}:{self.snapshot_id}:{start}"

    def as_plan(self, table: str) -> TablePlan:
        """As much of a plan as budgets and ranks look at."""
        return TablePlan(table, None, None, tuple(map(_planned, self.pending)))

    def kept(self, plan: TablePlan) -> tuple[PendingAction, ...]:
        """The pending actions that are still in the plan."""
        kept = {action.action for action in plan.actions}
        return tuple(action for action in self.pending if action.action in kept)


def _planned(pending: PendingAction) -> PlannedAction:
    return PlannedAction(
        action=Action(pending.action),
        engine=Engine.EMBEDDED,
        control=Control.EXACT,
        reason=pending.reason,
        inputs=Inputs(0, pending.input_bytes),
        expected=Expected(files=0, bytes=0, seconds=0.0, fewer_files=pending.gain),
        options={},
    )


class Memories:
    """Entries by table name inside a database. What was seen under other policies is forgotten."""

    def __init__(self, state: State, config: LakehouseConfig, version: str) -> None:
        self._state = state
        self._settings = _settings(config, version)

    def read(self, database: Database) -> tuple[dict[str, Entry], str | None]:
        """Entries, and the version of the stored value, for `write`."""
        stored = self._state.get(_key(database))
        if stored is None:
            return {}, None
        try:
            data = json.loads(zlib.decompress(stored[0]))
            if data["settings"] != self._settings:
                return {}, stored[1]
            return {str(table): _entry(row) for table, row in data["tables"].items()}, stored[1]
        except (ValueError, TypeError, KeyError, IndexError, zlib.error):
            return {}, stored[1]

    def write(self, database: Database, entries: Mapping[str, Entry], version: str | None) -> None:
        """Where somebody else wrote meanwhile, theirs stays: what is lost is looked at once more."""
        data = {"settings": self._settings, "tables": {table: astuple(entry) for table, entry in entries.items()}}
        self._state.put(_key(database), zlib.compress(json.dumps(data, separators=(",", ":")).encode()), version)


def pointer_hash(pointer: str) -> str:
    """Short, whatever the location."""
    return hashlib.sha256(pointer.encode()).hexdigest()[:16]


def _entry(row: Any) -> Entry:
    pointer, snapshot_id, again_ms, nearness, why, pending = row
    return Entry(
        str(pointer),
        str(snapshot_id),
        None if again_ms is None else int(again_ms),
        float(nearness),
        str(why),
        tuple(PendingAction(str(p[0]), str(p[1]), int(p[2]), int(p[3]), int(p[4]), int(p[5])) for p in pending),
    )


def _settings(config: LakehouseConfig, version: str) -> str:
    """Whatever could make another plan of the same table."""
    parts = [config.policies.model_dump_json(), config.readers.model_dump_json(), config.engine.model_dump_json()]
    return hashlib.sha256("\n".join([str(_FORMAT), version, *parts]).encode()).hexdigest()[:16]


def _key(database: Database) -> str:
    return f"sensors/table_thresholds/{database}"
