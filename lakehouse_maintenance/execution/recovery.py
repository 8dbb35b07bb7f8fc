"""What an earlier run left open on a table: found, looked up by its snapshot ids, and told to the journal.

Called under the table's lease, so the earlier run is over: its lease ended, by release or by time. Nothing is cleaned
up here; whether files of an attempt that is not visible may go is a question of evidence, not of recovery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from lakehouse_maintenance.execution.clock import now_text
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.memory import Memory
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.removal.remover import REMOVE_FILES
from lakehouse_maintenance.state import State


def recover(state: State, memory: Memory, target: Target, cache: BlobCache | None) -> list[Event]:
    """Records an outcome for every open intent and every commit whose answer was lost; returns these outcomes."""
    name = str(target.name)
    intents = state.journal.open_intents(name)
    unresolved = memory.table(name).unresolved
    if not intents and not unresolved:
        return []
    attempted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for intent in intents:
        ids = attempted[intent.run_id, intent.action]
        ids += map(int, intent.details.get("expires", ()))
        if "snapshot_id" in intent.details:
            ids.append(int(intent.details["snapshot_id"]))
    for entry in unresolved:
        attempted[str(entry["run_id"]), str(entry["action"])] += [int(i) for i in entry["snapshot_ids"]]
    visible = observe(target.catalog, target.name, cache).metadata.snapshots
    outcomes = [_outcome(name, run, action, ids, visible) for (run, action), ids in attempted.items()]
    for outcome in outcomes:
        state.journal.record(outcome)
    if unresolved:
        memory.resolved(name)
    return outcomes


def _outcome(table: str, run_id: str, action: str, snapshot_ids: list[int], visible: Iterable[int]) -> Event:
    found = [snapshot_id for snapshot_id in snapshot_ids if snapshot_id in visible]
    if action == REMOVE_FILES:
        status, why = Status.FAILED, "the run ended before its files were deleted; the list it left is finished next"
    elif action == Action.EXPIRE_SNAPSHOTS:
        gone = len(snapshot_ids) - len(found)
        status = Status.DONE if gone else Status.FAILED
        why = f"{gone} of the {len(snapshot_ids)} snapshots that the run was to let go are not in the table"
        found = []
    elif found:
        status, why = Status.DONE, f"snapshot {found[0]} of this run is in the table"
    elif snapshot_ids:
        status, why = Status.FAILED, "none of the run's snapshots is in the table; what it wrote was left in place"
    else:
        status, why = Status.FAILED, "the run ended before it tried to commit; what it wrote was left in place"
    return Event(
        at=now_text(),
        run_id=run_id,
        table=table,
        action=action,
        phase="outcome",
        status=status,
        details={"recovered": True, "why": why, "snapshot_id": found[0] if found else None},
    )
