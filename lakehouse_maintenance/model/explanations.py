"""Who owns a path, and what was ever done to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OwnedBy:
    """One owner. `via`: what the path is to it, such as data, manifest, location. `snapshot_ids`: that reach it."""

    table: str
    via: str
    snapshot_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ownership:
    """The evidence on a path now. `owned`: None where it is not known, and `why` tells what is in the way."""

    path: str
    owned: bool | None
    by: tuple[OwnedBy, ...]
    why: str


@dataclass(frozen=True, slots=True)
class PastDecision:
    """One line of the journal about a path. `fate`: what became of the path in it, of an outcome; None where its batch
    alone is told, and `why` says between what that leaves it.

    `evidence`: what the decision was based on when it was made: metadata and owners as they were then.
    """

    at: str
    run_id: str
    table: str
    action: str
    phase: str
    status: str | None
    digest: str | None
    path: str
    fate: str | None = None
    why: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `explain`."""

    ownership: Ownership
    journal: tuple[PastDecision, ...] = ()
    folder: dict[str, Any] | None = None
    """The verdict on the table folder that the path is or lies in, where it lies under a database's cleanup root."""

    @property
    def ok(self) -> bool:
        """False where it is not known who owns the path (exit code 1)."""
        return self.ownership.owned is not None

    def as_json(self) -> dict[str, Any]:
        """The verb's result."""
        journal = [asdict(decision) for decision in self.journal]
        return {**asdict(self.ownership), "journal": journal, "folder": self.folder}
