"""What the demo found and did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.outcomes import Check


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Something that was not done, and why."""

    table: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class Maintained:
    """How a table's run in Dagster ended, and what its snapshots' expiry freed."""

    table: str
    status: Status
    run_id: str
    reason: str
    expired_snapshots: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """`config`: the lakehouse.yaml to go on with. `built`: False where the folder held the demo already.

    `tables`: how each table's run ended. `rows_equal`: every branch and tag of every table reads the same as before.
    `checks`: what was promised, and whether it holds.
    """

    config: Path
    built: bool
    before: tuple[TableHealth, ...]
    after: tuple[TableHealth, ...]
    left_alone: tuple[LeftAlone, ...]
    tables: tuple[Maintained, ...]
    rows_equal: bool
    checks: tuple[Check, ...]

    @property
    def maintained(self) -> tuple[Maintained, ...]:
        """The tables that were changed."""
        return tuple(table for table in self.tables if table.status is Status.DONE)

    @property
    def ok(self) -> bool:
        """True where the demo shows what it promises. A table that another run holds is one of those promises."""
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The result of the `demo` verb."""
        return {
            "config": str(self.config),
            "built": self.built,
            "before": {"tables": [health.as_json() for health in self.before]},
            "after": {"tables": [health.as_json() for health in self.after]},
            "maintained": [asdict(table) for table in self.maintained],
            "left_alone": [asdict(left) for left in self.left_alone],
            "rows_equal": self.rows_equal,
            "checks": [asdict(check) for check in self.checks],
            "ok": self.ok,
        }
