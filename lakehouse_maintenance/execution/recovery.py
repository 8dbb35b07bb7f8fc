"""What runs left on a table: found, named, finished or rolled back, and reported.

Under the table's lease, so an earlier run is over: its lease ended, by release or by time. First its intents without
outcome and its commits whose answer was lost get the outcome that the table shows. Then the files that it wrote and
that never became part of the table are removed, after a proof (leftovers). What cannot be proven yet is remembered and
looked at again, at the end of this run and by later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse_maintenance.execution.clock import now_text
from lakehouse_maintenance.execution.deleting import finish_open_lists
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.leftovers import Cleaned, StillOwned, clean
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.traces import GROUPS_LEFT, Attempt, Trace, ending, trace
from lakehouse_maintenance.execution.work import ROLLBACK, Blocked, Run
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.iceberg.properties import are_set
from lakehouse_maintenance.iceberg.rollback import stands_behind
from lakehouse_maintenance.model.actions import LEAVES_DATA, Action, Status
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import Recovered
from lakehouse_maintenance.removal import Operation, Removal, open_lists
from lakehouse_maintenance.removal.remover import REMOVE_FILES
from lakehouse_maintenance.state import Lease, State

MOST_LOOKS = 50
"""So many runs look for the files of one action; after that they are left to the removal of orphan files."""

Key = tuple[str, str]
"""Run id and action."""

_WRITE_NOTHING = frozenset({REMOVE_FILES, ROLLBACK, Action.REMOVE_ORPHAN_FILES, *LEAVES_DATA})
"""Actions that write no file of their own, and so leave none."""


def anything_left(run: Run, name: str) -> bool:
    """Whether a run may have left anything on the table; a few small reads of the state."""
    remembered = run.memory.table(name)
    return bool(
        remembered.unresolved
        or remembered.leftovers
        or run.state.journal.open_intents(name)
        or open_lists(run.state, name)
    )


@dataclass
class Recovery:
    """The recovery of one table by the run that holds its lease. `still_owned`: see leftovers; None: its own."""

    run: Run
    target: Target
    lease: Lease
    still_owned: StillOwned | None = None
    _told: dict[Key, Recovered] = field(default_factory=dict)
    _endings: dict[Key, str] = field(default_factory=dict)
    """What is told of an action before its files are spoken of, which may happen twice in a run."""

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """What was found and done so far."""
        return tuple(self._told.values())

    def tell_outcomes(self) -> None:
        """Records an outcome for every open intent and every commit whose answer was lost."""
        name = str(self.target.name)
        intents = self.run.state.journal.open_intents(name)
        unresolved = self.run.memory.table(name).unresolved
        if not intents and not unresolved:
            return
        metadata = observe(self.target.catalog, self.target.name, self.run.cache).metadata
        by_key: dict[Key, list[Event]] = {}
        for intent in intents:
            by_key.setdefault((intent.run_id, intent.action), []).append(intent)
        lost = {(str(e["run_id"]), str(e["action"])): [int(i) for i in e["snapshot_ids"]] for e in unresolved}
        for key in dict.fromkeys([*by_key, *lost]):
            # The outcome "unknown" has closed the intents of a lost answer.
            known = by_key.get(key) or self._intents(name, key)
            status, why, ids = _ended(key[1], known, lost.get(key, []), metadata)
            self._told[key] = Recovered(*key, status, _found(key, known, is_lost=key in lost), why)
            if key[1] not in _WRITE_NOTHING:
                # Remembered before the outcome closes the intents: killed in between, it is found either way.
                self.run.memory.left_files(name, {"run_id": key[0], "action": key[1], "looks": 0})
            self.run.state.journal.record(_event(name, key, status, why, ids))
        if unresolved:
            self.run.memory.resolved(name)

    def _intents(self, name: str, key: Key) -> list[Event]:
        events = self.run.state.journal.events(table=name, run_id=key[0])
        return [event for event in events if event.action == key[1] and event.phase == "intent"]

    def finish_lists(self) -> list[str]:
        """Finishes lists of files half removed; returns what could not be finished, and why."""
        name = str(self.target.name)
        before = {head.key: head for head in open_lists(self.run.state, name)}
        if not before:
            return []
        ended: dict[str, Removal] = {}
        problems = finish_open_lists(self.run, self.target, self.lease, ended)
        still_open = {head.key for head in open_lists(self.run.state, name)}
        for key, head in before.items():
            status = Status.FAILED if key in still_open else Status.DONE
            found = f"a list of {head.files} files for {head.action}, not worked off to the end"
            removal = ended.get(key, Removal())
            done = "it stays open for a later run" if key in still_open else "it was finished"
            if head.operation in (Operation.DELETE, Operation.QUARANTINE):
                done += f": {_became(removal)}"
            files, size = removal.deleted + removal.moved, removal.deleted_bytes + removal.moved_bytes
            self._told[head.run_id, REMOVE_FILES] = Recovered(
                head.run_id, REMOVE_FILES, status, found, done, files, size, dict(removal.kept)
            )
        return problems

    def clean(self) -> None:
        """Removes what runs, this one included, wrote and did not commit, as far as it is proven."""
        name = str(self.target.name)
        entries = self.run.memory.table(name).leftovers
        if not entries:
            return
        observed = observe(self.target.catalog, self.target.name, self.run.cache)
        try:
            refuse_blocked(observed.metadata, None, self.target)
        except Blocked:
            return  # its owner says no by now: they wait for another word
        for entry in entries:
            run_id, action = str(entry["run_id"]), str(entry["action"])
            left = trace(self.run.state.journal.events(table=name, run_id=run_id), run_id, action)
            self._tell_late(name, left, observed.metadata)
            result = clean(self.run, self.target, self.lease, observed, left, self.still_owned)
            given_up = self._remember(name, entry, left, result, observed.metadata)
            self._tell_files(left, result, given_up, observed.metadata)

    def _remember(self, name: str, entry: Any, left: Trace, result: Cleaned, metadata: Metadata) -> bool:
        """Whether nobody will look again though files stay."""
        looks = int(entry.get("looks", 0)) + 1
        given_up = bool(result.kept) and (looks >= MOST_LOOKS or left.uuid != metadata.uuid)
        if result.kept and not given_up:
            self.run.memory.left_files(name, {**entry, "looks": looks})
        else:
            self.run.memory.cleared(name, entry)
        return given_up

    def _tell_late(self, name: str, left: Trace, metadata: Metadata) -> None:
        """A commit may appear after an earlier run looked for it in vain: the journal has to say so."""
        visible = left.visible(metadata)
        key = (left.run_id, left.action)
        if not visible or left.run_id == self.run.run_id or key in self._told:
            return
        last, known = _told_before(self.run.state, name, key)
        if last == Status.DONE or visible[-1].snapshot_id in known:
            return
        status, why, ids = ending(visible, len(left.attempts))
        self.run.state.journal.record(_event(name, key, status, why, ids))
        self._told[key] = Recovered(*key, status, "a commit of this run, seen only now", why)

    def _tell_files(self, left: Trace, result: Cleaned, given_up: bool, metadata: Metadata) -> None:
        key = (left.run_id, left.action)
        told = self._told.get(key)
        if told is None:
            if not result.removed and not result.kept:
                return
            status = ending(left.visible(metadata), len(left.attempts))[0]
            told = Recovered(*key, status, "files that were written and not committed", "")
        removed = told.removed_files + result.removed
        before = self._endings.setdefault(key, told.done)
        parts = [before] if before else []
        if removed:
            parts.append(f"{removed} files that were not committed were removed")
        if result.kept:
            parts.append(f"{sum(result.kept.values())} files that it announced stay: {'; '.join(result.kept)}")
            parts.append("they are left to the removal of orphan files" if given_up else "a later run looks again")
        self._told[key] = replace(
            told,
            done="; ".join(parts),
            removed_files=removed,
            removed_bytes=told.removed_bytes + result.removed_bytes,
            kept=dict(result.kept),
        )


def _found(key: Key, intents: list[Event], *, is_lost: bool) -> str:
    left = trace(intents, *key)
    ended = "the answer to its commit was lost" if is_lost else "it ended without telling how"
    if not left.paths and not left.attempts:
        return ended
    return f"{ended}, after {len(left.attempts)} attempts to commit and {len(left.paths)} announced files"


def _became(removal: Removal) -> str:
    """Of a list's files, in this run."""
    counts = {
        "deleted": removal.deleted,
        "moved aside": removal.moved,
        "gone before": removal.gone,
        "kept": sum(removal.kept.values()),
        "failed": len(removal.failed),
        "unknown": len(removal.unknown),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "no file was left"


def _ended(action: str, intents: Iterable[Event], lost: list[int], metadata: Metadata) -> tuple[Status, str, list[int]]:
    """How the action ended, by what the table shows: status, why, and the snapshots of it that are there."""
    details = [intent.details for intent in intents]
    if action in (REMOVE_FILES, Action.REMOVE_ORPHAN_FILES):
        return Status.FAILED, "the run was killed amid it; what it left of its list is told beside this", []
    if action == ROLLBACK:
        return _rolled_back(details, metadata)
    if action == Action.EXPIRE_SNAPSHOTS:
        ids = list(dict.fromkeys([*(int(i) for one in details for i in one.get("expires", ())), *lost]))
        gone = sum(1 for i in ids if i not in metadata.snapshots)
        why = f"{gone} of the {len(ids)} snapshots that the run was to let go are not in the table"
        return Status.DONE if gone else Status.FAILED, why, []
    if action in (Action.SET_PROPERTIES, Action.PRUNE_METADATA):
        wanted = {str(k): str(v) for one in details for k, v in dict(one.get("sets", {})).items()}
        if are_set(metadata, wanted):
            return Status.DONE, f"the table has the properties that the run was to set: {', '.join(wanted)}", []
        return Status.FAILED, "the properties that the run was to set are not those of the table", []
    told = {int(one["snapshot_id"]): int(one.get(GROUPS_LEFT, 0)) for one in details if "snapshot_id" in one}
    attempts = [Attempt(i, None, told.get(i, 0)) for i in dict.fromkeys([*told, *lost])]
    return ending([one for one in attempts if one.snapshot_id in metadata.snapshots], len(attempts))


def _rolled_back(details: Iterable[dict[str, Any]], metadata: Metadata) -> tuple[Status, str, list[int]]:
    for one in details:
        branch, old, new = str(one["branch"]), int(one["from"]), int(one["to"])
        if stands_behind(metadata, branch, old, new):
            return Status.DONE, f"branch {branch} goes back to snapshot {new}", [new]
    return Status.FAILED, "the branch does not go back to the snapshot that it was to be set to", []


def _told_before(state: State, name: str, key: Key) -> tuple[str | None, set[int]]:
    """The last status that the journal tells of an action, and the snapshots that it says are in the table."""
    events = [e for e in state.journal.events(table=name, run_id=key[0]) if e.action == key[1] and e.phase == "outcome"]
    ids = [i for e in events for i in (e.details.get("snapshot_id"), *e.details.get("snapshot_ids", ()))]
    return events[-1].status if events else None, {int(i) for i in ids if i is not None}


def _event(table: str, key: Key, status: Status, why: str, ids: list[int]) -> Event:
    return Event(
        at=now_text(),
        run_id=key[0],
        table=table,
        action=key[1],
        phase="outcome",
        status=status,
        details={"recovered": True, "why": why, "snapshot_id": ids[-1] if ids else None, "snapshot_ids": ids},
    )
