"""One database's row and result, as they come about: with everything that is known, whatever ended it (UF-31)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from lakehouse_maintenance.audit import runtime_identity
from lakehouse_maintenance.execution.reconciling import Found, planned
from lakehouse_maintenance.execution.removing_folders import Removed
from lakehouse_maintenance.model.folders import (
    BLOCKING,
    OPERATION,
    AuditRow,
    DatabaseResult,
    Folder,
    FolderRequest,
    HowToRemove,
    Reason,
    RowStatus,
    Verdict,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.untracked_folders import plan_digest

_logger = logging.getLogger(__name__)

_SAMPLE = 100
"""Paths of one kind in diagnostic details; a flag says where there are more."""


def told(draft: Draft) -> DatabaseResult:
    """Its result, whatever is wrong with what was found: folders may be gone, and a row has to say so (UF-20)."""
    try:
        return draft.result()
    except Exception as error:
        _logger.exception("%s: what was found cannot be told", draft.name)
        draft.found = None
        draft.fail(draft.error or f"unexpected {type(error).__name__}: {error}")
        return draft.result()


@dataclass
class Draft:
    """One database's result as it comes about."""

    request: FolderRequest
    run_id: str
    database: str
    name: str
    environ: Mapping[str, str]
    notes: list[str] = field(default_factory=list)
    start: datetime = field(default_factory=lambda: datetime.now(UTC))
    found: Found | None = None
    removed: Removed | None = None
    how: HowToRemove = field(default_factory=HowToRemove)
    error: str | None = None

    @property
    def cutoff(self) -> datetime:
        return self.start - timedelta(hours=self.request.older_than_hours)

    @property
    def digest(self) -> str | None:
        """Of what can be reviewed; None where something is against removing anything of it."""
        if self.found is None or self.found.reason is not None:
            return None
        return plan_digest(self.name, planned(self.found.candidates))

    def fail(self, error: str) -> None:
        self.error = error

    def result(self) -> DatabaseResult:
        """With everything that is known, whatever ended it."""
        found, removed = self.found, self.removed or Removed()
        status, reason, message = self._status()
        facts = None if found is None else found.facts
        assessment = None if found is None else found.assessment
        folders = () if found is None else tuple(found.folders)
        candidates = [folder for folder in folders if folder.verdict is Verdict.CANDIDATE]
        potential = [folder for folder in folders if folder.verdict is Verdict.POTENTIALLY_UNTRACKED]
        tables = () if facts is None else facts.tables
        resolved = [table for table in tables if table.unresolved is None]
        outside = () if assessment is None else assessment.outside
        row = AuditRow(
            run_id=self.run_id,
            **_identity(self.environ),
            catalog_name=self.request.catalog,
            database_name=self.database,
            operation=OPERATION,
            dry_run=self.request.dry_run,
            delete_enabled=self.request.delete_enabled,
            older_than_hours=self.request.older_than_hours,
            cutoff_time=self.cutoff,
            max_candidate_folders_per_database=self.request.max_candidates,
            excluded_paths=self._excluded(),
            status=status,
            status_reason=reason,
            error_message=message,
            discovered_database_location=None if facts is None else facts.location,
            storage_scan_location=None if assessment is None or assessment.root is None else assessment.root.text,
            active_table_count=len(resolved),
            unresolved_table_count=len(tables) - len(resolved),
            storage_folder_count=len(folders),
            candidate_folder_count=len(candidates),
            potentially_untracked_folder_count=len(potential),
            deleted_folder_count=len(removed.gone),
            candidate_folders=tuple(folder.path for folder in candidates),
            deleted_folders=tuple(folder.path for folder in removed.gone),
            candidate_object_count=_objects(candidates),
            candidate_total_size_bytes=_bytes(candidates),
            deleted_object_count=_objects(removed.gone),
            deleted_total_size_bytes=_bytes(removed.gone),
            diagnostic_details=self._details(candidates, potential, removed),
            start_time=self.start,
            end_time=datetime.now(UTC),
        )
        roots = () if found is None else tuple(found.roots)
        return DatabaseResult(
            row=row,
            digest=self.digest,
            folders=folders,
            roots=roots,
            tables=tuple((table.name, table.location or "") for table in resolved),
            unresolved=tuple((table.name, table.unresolved or "") for table in tables if table.unresolved is not None),
            outside_root=tuple((table.name, at.text) for table, at in outside),
            outside_every_root=_outside_every_root(found),
            notes=tuple(self.notes),
        )

    def _status(self) -> tuple[RowStatus, str | None, str | None]:
        found, removed = self.found, self.removed
        if removed is not None and removed.failed is not None:
            path, why = removed.failed
            return RowStatus.FAILED, Reason.DELETION_FAILED, f"{path}: {why}"
        if self.error is not None:
            return RowStatus.FAILED, Reason.UNEXPECTED_ERROR, self.error
        assert found is not None, "what was not looked at has an error"
        reason, message = found.reason, found.message
        if removed is not None and removed.stopped is not None:
            reason, message = removed.stopped
        if reason is not None:
            return RowStatus.BLOCKED if reason in BLOCKING else RowStatus.SKIPPED, reason, message
        partial = Reason.PARTIAL_SCAN_COVERAGE if found.assessment.outside else None
        return RowStatus.SUCCESS, partial, None

    def _excluded(self) -> tuple[str, ...]:
        """Both forms (UF-31); before the roots are known, as they are written."""
        if self.found is not None and self.found.rules is not None:
            return tuple(location.text for location in self.found.rules.excluded)
        pairs = (f"{of}.{name}" for of, name in self.request.exclude_database_folders if of == self.database)
        return (*self.request.exclude_paths, *pairs)

    def _details(self, candidates: Sequence[Folder], potential: Sequence[Folder], removed: Removed) -> dict[str, Any]:
        details: dict[str, Any] = {"notes": list(self.notes)}
        if self.found is None:
            return details
        details["database_location_inferred"] = self.found.facts.is_inferred
        details |= _sample("candidates", [folder.as_json() for folder in candidates])
        details |= _sample("potentially_untracked_folders", [folder.path for folder in potential])
        others = [
            {"path": folder.path, "verdict": folder.verdict, "why": folder.why}
            for folder in self.found.folders
            if folder not in candidates and folder not in potential
        ]
        details |= _sample("kept_folders", others)
        details |= _sample("storage_roots", [root.as_json() for root in self.found.roots])
        details |= _sample("outside_cleanup_root", [at.text for _, at in self.found.assessment.outside])
        if self.removed is not None:
            details["removal"] = self.how.removal
            details["quarantine"] = dict(removed.moved)
            details |= _sample("not_removed", [{"path": kept.path, "why": kept.why} for kept in removed.kept])
            if removed.failed is not None:
                details["deletion_failed_folder_path"] = removed.failed[0]
        return details


def _identity(environ: Mapping[str, str]) -> dict[str, Any]:
    return dict(runtime_identity(environ))


def _sample(name: str, items: Sequence[Any]) -> dict[str, Any]:
    """Some of them, and whether there are more (UF-31)."""
    return {name: list(items[:_SAMPLE]), f"{name}_truncated": len(items) > _SAMPLE}


def _outside_every_root(found: Found | None) -> tuple[tuple[str, str], ...]:
    if found is None:
        return ()
    listed = [Location.parse(root.path) for root in found.roots if root.status == "scanned"]
    return tuple(
        (table.name, at.text)
        for table, at in found.assessment.located
        if not any(root.contains(at) or root.collapsed.contains(at.collapsed) for root in listed)
    )


def _objects(folders: Iterable[Folder]) -> int:
    return sum(folder.content.objects for folder in folders if folder.content is not None)


def _bytes(folders: Iterable[Folder]) -> int:
    return sum(folder.content.bytes for folder in folders if folder.content is not None)
