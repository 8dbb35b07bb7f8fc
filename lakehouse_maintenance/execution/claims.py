"""Does anybody reach what lies in quarantine: asked before it is purged, and again before each batch.

A table may have come to reference an object after it was moved, by the name that it had: then its copy in quarantine is
the last there is, and has to be restored, not purged. So may a table that somebody registered in the quarantine. Logs
and metadata that lie in quarantine themselves, such as a dropped table's, claim nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_maintenance.evidence import Evidence, ask
from lakehouse_maintenance.model.errors import TableError
from lakehouse_maintenance.model.forms import FormIndex
from lakehouse_maintenance.model.names import quote_part, split_name
from lakehouse_maintenance.removal import Candidate, Entry
from lakehouse_maintenance.removal.quarantine import Kept, read_parts
from lakehouse_maintenance.state import State


@dataclass
class Claims:
    """Of one entry. Memory grows with its objects; owners whose metadata has not moved are not read again."""

    state: State
    evidence: Evidence
    entry: Entry
    _paths: FormIndex | None = None
    _asked: dict[str, str] = field(default_factory=dict)
    _claimed: dict[str, str] = field(default_factory=dict)

    def __call__(self, batch: Sequence[Candidate]) -> Mapping[str, str]:
        """A recheck of objects in quarantine."""
        claimed = self.all()
        found: dict[str, str] = {}
        for candidate in batch:
            rest = candidate.path.removeprefix(self.entry.quarantined.text).removeprefix("/")
            for path in (candidate.path, self.entry.at_home(Kept(rest, 0)).text):
                if path in claimed:
                    found[candidate.path] = f"{claimed[path]}: restore it"
        return found

    def all(self) -> Mapping[str, str]:
        """Path, original or in quarantine → who references it now. Raises TableError where that cannot be known."""
        look = self.evidence.look()
        places = self.entry.territory
        why = look.refusal(_database(self.entry.subject), places)
        if why is not None:
            raise TableError(f"nothing was purged: {why}", field=self.entry.id)
        ask(look.reaching(places), self._index(), self._asked, self._claimed)
        return self._claimed

    def _index(self) -> FormIndex:
        if self._paths is None:
            self._paths = FormIndex(
                location.text
                for part in read_parts(self.state, self.entry)
                for kept in part
                for location in (self.entry.at_home(kept), self.entry.aside(kept))
            )
        return self._paths


def _database(subject: str) -> str:
    """Of a table, its database; a database is its own."""
    parts = split_name(subject)
    return ".".join(quote_part(part) for part in (parts if len(parts) < 3 else parts[:-1]))
