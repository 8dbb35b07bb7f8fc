"""What runs leave for later runs: when an action last ran on a table, how fast, and commits whose answer was lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.planning.tables import Throughput
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance.state import State

_SPEED = "throughput/rewrite_data_files"
_LEAST_BYTES = 8 << 20
"""Smaller rewrites measure start-up, not speed."""
_MOST_LEFTOVERS = 100


@dataclass(frozen=True, slots=True)
class OrphanCount:
    """Orphan files of the table with this uuid as they were counted at `at_ms` (milliseconds since 1970)."""

    files: int
    bytes: int
    at_ms: int
    uuid: str


@dataclass(frozen=True, slots=True)
class TableMemory:
    """`last_run_ms`: action → milliseconds since 1970. `unresolved`: commits that may or may not be visible.

    `leftovers`: runs and actions whose files may lie about; which files, their journal says.
    `orphans`: as last counted over all of the table's folders; None where they never were.
    `laid_out`: order → the sequence number up to which files were brought into it because they overlapped.
    """

    last_run_ms: Mapping[str, int] = field(default_factory=dict)
    unresolved: tuple[Mapping[str, Any], ...] = ()
    leftovers: tuple[Mapping[str, Any], ...] = ()
    orphans: OrphanCount | None = None
    laid_out: Mapping[str, int] = field(default_factory=dict)


class Memory:
    """Small values in the state, changed by compare-and-swap."""

    def __init__(self, state: State) -> None:
        self._state = state

    def table(self, name: str) -> TableMemory:
        """What is remembered of a table; empty where nothing is."""
        data = self._read(_table_key(name))
        return TableMemory(
            {str(action): int(at) for action, at in data.get("last_run_ms", {}).items()},
            tuple(data.get("unresolved", ())),
            tuple(data.get("leftovers", ())),
            _orphans(data.get("orphans")),
            {str(order): int(number) for order, number in data.get("laid_out", {}).items()},
        )

    def ran(self, name: str, action: str, at_ms: int) -> None:
        """An action ended on a table, whatever it changed."""
        self._change(_table_key(name), lambda d: {**d, "last_run_ms": {**d.get("last_run_ms", {}), action: at_ms}})

    def brought_into_order(self, name: str, order: str, sequence_number: int) -> None:
        """Overlapping files up to this data sequence number were rewritten in this order; others are forgotten."""
        self._change(_table_key(name), lambda d: {**d, "laid_out": {order: sequence_number}})

    def counted_orphans(self, name: str, count: OrphanCount) -> None:
        """All of a table's folders were searched, or some of what was found is gone."""
        self._change(_table_key(name), lambda d: {**d, "orphans": asdict(count)})

    def left_unresolved(self, name: str, run_id: str, action: str, snapshot_ids: list[int]) -> None:
        """A commit's answer was lost."""
        entry = {"run_id": run_id, "action": action, "snapshot_ids": snapshot_ids}
        self._change(_table_key(name), lambda d: {**d, "unresolved": [*d.get("unresolved", []), entry]})

    def resolved(self, name: str) -> None:
        """All unresolved commits of the table have been looked up."""
        self._change(_table_key(name), lambda d: {**d, "unresolved": []})

    def left_files(self, name: str, entry: Mapping[str, Any]) -> None:
        """Remembers, or changes, an entry of `leftovers`; the oldest go where there are too many."""
        self._change(
            _table_key(name), lambda d: {**d, "leftovers": [*_others(d, entry), dict(entry)][-_MOST_LEFTOVERS:]}
        )

    def cleared(self, name: str, entry: Mapping[str, Any]) -> None:
        """Nothing of this run and action lies about any more, or nobody will look for it again."""
        self._change(_table_key(name), lambda d: {**d, "leftovers": _others(d, entry)})

    def pending(self, name: str) -> list[str]:
        """Lists of files that killed runs left on a table, for people who only look."""
        return [
            f"run {head.run_id} was killed amid a list of {head.files} files ({head.action}, {head.operation}); the "
            "next run on the table finishes it, after checking each file again"
            for head in open_lists(self._state, name)
        ]

    def throughput(self) -> Throughput:
        """Bytes a second of past rewrites, or the default."""
        speed = self._read(_SPEED).get("bytes_per_second")
        return Throughput(float(speed), "history") if speed else Throughput()

    def took(self, size: int, seconds: float) -> None:
        """A rewrite read `size` bytes in `seconds`; recent ones count more."""
        if size < _LEAST_BYTES or seconds <= 0:
            return
        fresh = size / seconds

        def mix(data: dict[str, Any]) -> dict[str, Any]:
            old = data.get("bytes_per_second")
            return {"bytes_per_second": round(fresh if not old else 0.7 * float(old) + 0.3 * fresh)}

        self._change(_SPEED, mix)

    def spent_today(self) -> int:
        """Bytes that were read for rewriting since midnight UTC."""
        return int(self._read(_spent_key()).get("bytes", 0))

    def spend(self, size: int) -> None:
        """Counts against today's budget."""
        self._change(_spent_key(), lambda d: {"bytes": int(d.get("bytes", 0)) + size})

    def _read(self, key: str) -> dict[str, Any]:
        return self._parse(self._state.get(key))

    def _parse(self, stored: tuple[bytes, str] | None) -> dict[str, Any]:
        if stored is None:
            return {}
        try:
            data = json.loads(stored[0])
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}

    def _change(self, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for _ in range(100):
            stored = self._state.get(key)
            value = json.dumps(change(self._parse(stored))).encode()
            if self._state.put(key, value, None if stored is None else stored[1]) is not None:
                return
        raise StorageError(f"the state's value {key} was changed by others 100 times in a row", field="state.url")


def _orphans(data: Any) -> OrphanCount | None:
    try:
        return OrphanCount(int(data["files"]), int(data["bytes"]), int(data["at_ms"]), str(data["uuid"]))
    except (TypeError, KeyError, ValueError):
        return None


def _others(data: Mapping[str, Any], entry: Mapping[str, Any]) -> list[Any]:
    same = (entry["run_id"], entry["action"])
    return [other for other in data.get("leftovers", []) if (other["run_id"], other["action"]) != same]


def _table_key(name: str) -> str:
    return f"tables/{name}"


def _spent_key() -> str:
    return f"spent/{datetime.now(UTC).date().isoformat()}"
