"""What the journal holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal. `phase`: intent (before anything is written) or outcome.

    `status`: of an outcome, done, failed, skipped, blocked or unknown. `details`: JSON-ready facts that a later run
    needs to finish or explain this one: snapshot id of each attempt, files written, input paths by count, error.
    """

    at: str
    run_id: str
    table: str
    action: str
    phase: str
    status: str | None = None
    digest: str | None = None
    files: int = 0
    bytes: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """One object of the `audit` verb's result."""
        return asdict(self)
