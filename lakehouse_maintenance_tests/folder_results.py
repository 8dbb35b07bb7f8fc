"""Results of reconciliations for tests of what is made of them: reports, the verb, assets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.model.folders import (
    OPERATION,
    AuditRow,
    Content,
    DatabaseResult,
    Folder,
    RowStatus,
    Sign,
    Verdict,
)
from lakehouse_maintenance.model.locations import Location

ROOT = "s3://lake/wh/analytics"
NEWEST_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


def folder(name: str, verdict: Verdict, why: str = "why", content: Content | None = None) -> Folder:
    return Folder(Location.parse(f"{ROOT}/{name}/"), verdict, why, content)


def candidate(name: str, *, size: int = 2048, signs: Sequence[Sign] = ()) -> Folder:
    content = Content(objects=3, bytes=size, newest_ms=NEWEST_MS, signs=tuple(signs))
    return folder(name, Verdict.CANDIDATE, "no visible table owns it", content)


def result(
    *,
    status: RowStatus = RowStatus.SUCCESS,
    reason: str | None = None,
    message: str | None = None,
    dry_run: bool = True,
    folders: Sequence[Folder] = (),
    deleted: Sequence[str] = (),
    excluded: Sequence[str] = (),
    scanned: str | None = ROOT,
    details: dict[str, Any] | None = None,
    database: str = "analytics",
    **more: Any,
) -> DatabaseResult:
    """Of `main.analytics`. `more`: fields of DatabaseResult."""
    candidates = [one for one in folders if one.verdict is Verdict.CANDIDATE]
    now = datetime(2026, 1, 3, tzinfo=UTC)
    row = AuditRow(
        run_id="run-1",
        spark_app_id=None,
        runtime_compute_id=None,
        runtime_compute_namespace=None,
        runtime_domain=None,
        runtime_user=None,
        external_job_id=None,
        platform_started_by=None,
        catalog_name="main",
        database_name=database,
        operation=OPERATION,
        dry_run=dry_run,
        delete_enabled=not dry_run,
        older_than_hours=24,
        cutoff_time=now,
        max_candidate_folders_per_database=10,
        excluded_paths=tuple(excluded),
        status=status,
        status_reason=reason,
        error_message=message,
        discovered_database_location=ROOT,
        storage_scan_location=scanned,
        active_table_count=len(more.get("tables", ())),
        unresolved_table_count=len(more.get("unresolved", ())),
        storage_folder_count=len(folders),
        candidate_folder_count=len(candidates),
        potentially_untracked_folder_count=sum(one.verdict is Verdict.POTENTIALLY_UNTRACKED for one in folders),
        deleted_folder_count=len(deleted),
        candidate_folders=tuple(one.path for one in candidates),
        deleted_folders=tuple(deleted),
        candidate_object_count=sum((one.content or Content()).objects for one in candidates),
        candidate_total_size_bytes=sum((one.content or Content()).bytes for one in candidates),
        deleted_object_count=3 * len(deleted),
        deleted_total_size_bytes=2048 * len(deleted),
        diagnostic_details=details or {},
        start_time=now,
        end_time=now,
    )
    return DatabaseResult(row=row, folders=tuple(folders), **more)
