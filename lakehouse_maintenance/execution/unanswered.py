"""Commits of ours that nobody answered: while one of them can still become visible, what it needs is no orphan.

Its data files and manifests were announced to the journal, but with some catalogs the client also writes a metadata
file, under a name that nobody told. So it is the time that protects: such a run counts as one that is still at work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from lakehouse_maintenance.execution.traces import trace
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.events import Event


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An action whose commit may still appear. `since_ms`: when it began, ms since 1970. `why`: it may appear."""

    run_id: str
    action: str
    since_ms: int
    why: str

    def note(self) -> str:
        """For people who wonder why files stay."""
        return (
            f"{self.action} of run {self.run_id} was never answered: {self.why}; "
            "files that are not older than that run stay"
        )


def unanswered(run: Run, name: str, metadata: Metadata) -> list[Unanswered]:
    """Of a table. One small read of the state, and a look for open intents, where nothing is left."""
    remembered = run.memory.table(name)
    keys = [(str(entry["run_id"]), str(entry["action"])) for entry in (*remembered.unresolved, *remembered.leftovers)]
    keys += [(intent.run_id, intent.action) for intent in run.state.journal.open_intents(name)]
    found: list[Unanswered] = []
    for run_id, action in dict.fromkeys(keys):
        if run_id == run.run_id:
            continue
        events = [event for event in run.state.journal.events(table=name, run_id=run_id) if event.action == action]
        why = trace(events, run_id, action).may_appear(metadata)
        if why is not None:
            found.append(Unanswered(run_id, action, _began(events), why))
    return found


def _began(events: Iterable[Event]) -> int:
    return min(int(datetime.fromisoformat(event.at).timestamp() * 1000) for event in events)
