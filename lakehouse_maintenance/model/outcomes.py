"""What became of a plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.plans import Skip

NOT_RUN = "not run: "
"""Begins the reason of an action that was planned and not begun, for what came before it."""


@dataclass(frozen=True, slots=True)
class Actual:
    """What an action did: files and bytes that now stand in place of the inputs, rows in them, seconds of work.

    `rewritten_bytes`: of the inputs. `failed_data_files`: inputs of groups that were given up. `deleted_kinds`: kind of
    file (as ReferenceKind names it) → how many were deleted.
    """

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rewritten_data_files: int = 0
    added_data_files: int = 0
    removed_delete_files: int = 0
    rows: int = 0
    expired_snapshots: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    kept_files: int = 0
    failed_files: int = 0
    unknown_files: int = 0
    groups_done: int = 0
    groups_dropped: int = 0
    attempts: int = 0
    rewritten_bytes: int = 0
    failed_data_files: int = 0
    deleted_kinds: dict[str, int] = field(default_factory=dict)
    groups_failed: int = 0
    failed_commits: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """One verification after an action: `rows_unchanged`, `live_files_present`."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """`verified`: every check passed; None where nothing was committed. `snapshot_id`: the one we committed.

    `results`: the action's numbers by the names of Iceberg's procedures (IM-20); empty where it changed nothing.
    `snapshot_ids`: of all our commits, oldest first, where partial progress made several. `previous_snapshot_id`:
    before the first of them; where a verification failed, before that one.
    """

    action: str
    status: Status
    expected: dict[str, Any]
    actual: Actual
    snapshot_id: int | None = None
    previous_snapshot_id: int | None = None
    verified: bool | None = None
    checks: tuple[Check, ...] = ()
    error: str | None = None
    notes: tuple[str, ...] = ()
    results: dict[str, int] = field(default_factory=dict)
    snapshot_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a run left on a table, and what was done about it: a run that was killed or failed, or this one.

    `status`: how its action is known by now to have ended. `found`, `done`: a sentence each. `removed_files`,
    `removed_bytes`: of its files that never became part of the table. `kept`: why files stay → how many.
    """

    run_id: str
    action: str
    status: Status
    found: str
    done: str
    removed_files: int = 0
    removed_bytes: int = 0
    kept: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What became of one table of a plan. `recovered`: what runs had left on it. `skipped`: what was not done, why."""

    table: str
    status: Status
    reason: str
    actions: tuple[ActionOutcome, ...] = ()
    recovered: tuple[Recovered, ...] = ()
    skipped: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What became of a plan, table by table."""

    digest: str
    run_id: str
    tables: tuple[TableOutcome, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """False where anything failed, is blocked or unknown (exit code 1)."""
        return all(table.status in (Status.DONE, Status.SKIPPED) for table in self.tables)

    def as_json(self) -> dict[str, Any]:
        """The result of `apply` and `maintain`."""
        return asdict(self)
