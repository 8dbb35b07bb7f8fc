"""What a search for orphan files found in one table, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.outcomes import Recovered


@dataclass(frozen=True, slots=True, order=True)
class OrphanFile:
    """A listed file that no table references. `modified_ms`: last change by the store's clock, ms since 1970."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Files that were looked at and stay, by reason."""

    reason: str
    files: int


@dataclass(frozen=True, slots=True)
class OrphanResult:
    """One table of the `orphans` verb. Counts are of objects; bytes are of their content.

    `digest`: over the table, what was asked for and every orphan; None where none could be looked for. `files`: the
    orphans, or as many of them as the limits would let go. `removed`: they were taken away (deleted, or moved where
    `quarantine` names the entry). `is_verified`: whether every file that the table needs was found afterwards; None
    where nothing was removed.
    """

    table: str
    status: Status
    reason: str
    digest: str | None = None
    objects_listed: int = 0
    bytes_listed: int = 0
    orphan_files: int = 0
    orphan_bytes: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    kept: tuple[KeptFiles, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()
    files: tuple[OrphanFile, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    quarantine: str | None = None
    dry_run: bool = True
    limit: str | None = None
    recovered: tuple[Recovered, ...] = ()
    is_verified: bool | None = None

    def as_json(self, *, with_files: bool) -> dict[str, Any]:
        """One entry of the verb's `tables`, with the names of Iceberg's procedure beside ours."""
        entry: dict[str, Any] = {
            "table": self.table,
            "digest": self.digest,
            "status": self.status,
            "reason": self.reason,
            "dry_run": self.dry_run,
            "objects_listed": self.objects_listed,
            "bytes_listed": self.bytes_listed,
            "orphan_files": self.orphan_files,
            "orphan_bytes": self.orphan_bytes,
            "deleted_files": self.deleted_files,
            "deleted_bytes": self.deleted_bytes,
            "kept": [{"reason": kept.reason, "files": kept.files} for kept in self.kept],
            "failed": [{"path": path, "error": error} for path, error in self.failed],
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "quarantine": self.quarantine,
            "limit": self.limit,
            "recovered": [asdict(one) for one in self.recovered],
            "orphan_files_count": self.orphan_files,
        }
        if with_files:
            entry["files"] = [{"path": f.path, "bytes": f.size, "modified_ms": f.modified_ms} for f in self.files]
            entry["orphan_file_locations"] = [f.path for f in self.files]
        return entry


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """All tables of one `orphans` run."""

    run_id: str
    tables: tuple[OrphanResult, ...]

    @property
    def ok(self) -> bool:
        """False where anything failed, is blocked or unknown (exit code 1)."""
        return all(table.status in (Status.DONE, Status.SKIPPED) for table in self.tables)

    def as_json(self, *, with_files: bool = False) -> dict[str, Any]:
        """The verb's result."""
        return {"run_id": self.run_id, "tables": [table.as_json(with_files=with_files) for table in self.tables]}


def kept_of(reasons: Iterable[tuple[str, int]]) -> tuple[KeptFiles, ...]:
    """Sorted by how many they are."""
    return tuple(KeptFiles(reason, files) for reason, files in sorted(reasons, key=lambda pair: (-pair[1], pair[0])))
