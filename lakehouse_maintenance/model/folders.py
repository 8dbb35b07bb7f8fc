"""Untracked table folders: what a reconciliation of storage with its catalog found in one database, and what became of
it. Names of statuses, reasons and columns are those of the job that this replaces (seed 000), to the letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from lakehouse_maintenance.model.locations import Location

OPERATION = "cleanup_untracked_table_folders"
"""The audit table's `operation`."""

AUDIT_TABLE = "cleanup_untracked_table_folder_runs"
"""The audit table's name, in the namespace that `audit` of lakehouse.yaml names."""


@dataclass(frozen=True, slots=True)
class HowToRemove:
    """What becomes of a candidate of one database. `removal`: delete or quarantine. `needs_review`: only folders that
    somebody approved go."""

    removal: str = "delete"
    purge_after: timedelta = timedelta(days=30)
    needs_review: bool = False


@dataclass(frozen=True, slots=True)
class FolderRequest:
    """One run over databases of one catalog: the fields of the source's `application.json`, and how to remove.

    `databases`: names inside the catalog, as written. `exclude_database_folders`: (database, folder). `approved_roots`:
    `report_only_storage_roots`. `how`: by database; one that is missing has the defaults. `plan_digest`: of the plan
    that was reviewed, of the run or of one database: only folders that are still what it says go.
    """

    catalog: str
    databases: tuple[str, ...]
    exclude_paths: tuple[str, ...] = ()
    exclude_database_folders: tuple[tuple[str, str], ...] = ()
    older_than_hours: float = 24
    dry_run: bool = True
    delete_enabled: bool = False
    max_candidates: int = 10
    approved_roots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    how: Mapping[str, HowToRemove] = field(default_factory=dict)
    plan_digest: str | None = None

    @property
    def removes(self) -> bool:
        """Both words are needed (UF-03)."""
        return self.delete_enabled and not self.dry_run


class RowStatus(StrEnum):
    """SKIPPED: refused on purpose. BLOCKED: looked at, and a safety condition prevents removal. FAILED: unexpected."""

    SUCCESS = "SUCCESS"
    SKIPPED = "SKIPPED"
    BLOCKED = "BLOCKED"
    FAILED = "FAILED"


class Reason(StrEnum):
    """`status_reason`. Of those from DATABASE_NOT_FOUND to AUDIT_INTEGRITY_LOST, the first that holds, in the order in
    which they stand here, is told (UF-30)."""

    DATABASE_NOT_FOUND = "database_not_found"
    DATABASE_LOCATION_MISSING = "database_location_missing"
    INVALID_STORAGE_LOCATION = "invalid_storage_location"
    CATALOG_WAREHOUSE_UNKNOWN = "catalog_warehouse_unknown"
    DATABASE_LOCATION_IS_BUCKET_ROOT = "database_location_is_bucket_root"
    DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT = "database_location_contains_warehouse_root"
    NO_ACTIVE_TABLES_IN_DATABASE = "no_active_tables_in_database"
    OTHER_DATABASE_STORAGE_UNKNOWN = "other_database_storage_unknown"
    SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY = "scan_root_outside_database_boundary"
    CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE = "cleanup_root_has_no_visible_table"
    UNRESOLVED_CATALOG_OWNERSHIP = "unresolved_catalog_ownership"
    TOO_MANY_CANDIDATE_FOLDERS = "too_many_candidate_folders"
    AUDIT_INTEGRITY_LOST = "audit_integrity_lost"
    PARTIAL_SCAN_COVERAGE = "partial_scan_coverage"
    DELETION_FAILED = "deletion_failed"
    UNEXPECTED_ERROR = "unexpected_error"


BLOCKING = frozenset(
    {
        Reason.OTHER_DATABASE_STORAGE_UNKNOWN,
        Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE,
        Reason.UNRESOLVED_CATALOG_OWNERSHIP,
        Reason.AUDIT_INTEGRITY_LOST,
    }
)
"""Reasons of BLOCKED rows; the other refusals are SKIPPED."""

ROOTS_SHOWN = frozenset(
    {
        Reason.DATABASE_LOCATION_IS_BUCKET_ROOT,
        Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT,
        Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY,
    }
)
"""SKIPPED reasons under which report-only roots are listed all the same, under a STORAGE ROOT REPORT (UF-24)."""


class ClaimKind(StrEnum):
    """Through what a folder belongs to somebody. FILES: files there that metadata names, outside the table's folders
    (`add_files`, an earlier location, a snapshot of another table, absolute paths in a Delta log)."""

    LOCATION = "table location"
    WRITE_PATH = "write path"
    FILES = "files that it references"
    VIEW = "view location"
    DATABASE = "storage of another database"
    EXCLUDED = "exclusion"
    OURS = "storage of this product"


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody's word for a folder. `by`: the full name of the table, or of the database."""

    where: Location
    by: str
    kind: ClaimKind

    def __str__(self) -> str:
        return f"{self.kind} of {self.by}: {self.where.text}"


class Verdict(StrEnum):
    """The one end of each folder."""

    TABLE = "table"
    EXCLUDED = "excluded"
    WRITE_PATH = "write_path"
    REFERENCED = "referenced"
    OTHER_DATABASE = "other_database"
    WORKING_FOLDER = "working_folder"
    TOO_YOUNG = "too_young"
    UNKNOWN_AGE = "unknown_age"
    POTENTIALLY_UNTRACKED = "potentially_untracked"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Sign:
    """Metadata of a table that lies in a folder: what a reviewer can recognise it by (UF-42).

    `format`: iceberg or delta. `path`: the newest metadata file, or the log's folder. Times in ms since 1970; what
    could not be read is None, and `note` says why.
    """

    format: str
    path: str
    table_uuid: str | None = None
    last_commit_ms: int | None = None
    records: int | None = None
    bytes: int | None = None
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Content:
    """What a full listing of a folder found. `newest_ms`: of the newest object; None where an object's time is missing
    or impossible, so that the folder's age cannot be established. Markers of folders count as objects."""

    objects: int = 0
    bytes: int = 0
    newest_ms: int | None = None
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True, slots=True)
class Folder:
    """One immediate child of a cleanup root, with its one verdict and the evidence. `content`: None where nobody had to
    look inside."""

    location: Location
    verdict: Verdict
    why: str
    content: Content | None = None

    @property
    def path(self) -> str:
        """Without a `/` at its end."""
        return self.location.text.rstrip("/")

    def as_json(self) -> dict[str, Any]:
        """For diagnostic details and metadata."""
        content = self.content or Content()
        return {
            "path": self.path,
            "verdict": self.verdict,
            "why": self.why,
            "objects": content.objects,
            "bytes": content.bytes,
            "newest_ms": content.newest_ms,
            "signs": [sign.as_json() for sign in content.signs],
        }


class RootStatus(StrEnum):
    """What became of a storage root."""

    SCANNED = "scanned"
    ABSENT = "absent"
    LISTING_FAILED = "listing_failed"
    NOT_SCANNED = "not_scanned"


class NotScanned(StrEnum):
    """Why a root was not listed."""

    OUTSIDE_DATABASE_BOUNDARY = "outside_database_boundary"
    BUCKET_ROOT = "bucket_root"
    CONTAINS_WAREHOUSE_ROOT = "contains_warehouse_root"
    INSIDE_TABLE_LOCATION = "inside_table_location"
    CONTAINS_DATABASE_STORAGE = "contains_database_storage"
    NO_VISIBLE_TABLE = "no_visible_table"
    INVALID_LOCATION = "invalid_location"
    ROOT_LIMIT_REACHED = "root_limit_reached"


@dataclass(frozen=True, slots=True)
class StorageRoot:
    """A root of the report. `origin`: cleanup_root, table_parent, database_location, namespace_folder, approved.

    `unmatched`: folders in it that no visible table owns; empty for the cleanup root, whose folders have verdicts.
    """

    path: str
    origin: str
    status: RootStatus
    reason: NotScanned | None = None
    error: str | None = None
    unmatched: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "origin": self.origin,
            "status": self.status,
            "reason": self.reason,
            "error": self.error,
            "unmatched": list(self.unmatched),
        }


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of `cleanup_untracked_table_folder_runs`, in the order of the source's columns. Times in UTC.

    `diagnostic_details`: an object in JSON results, its JSON text in the table.
    """

    run_id: str
    spark_app_id: str | None
    runtime_compute_id: str | None
    runtime_compute_namespace: str | None
    runtime_domain: str | None
    runtime_user: str | None
    external_job_id: str | None
    platform_started_by: str | None
    catalog_name: str
    database_name: str
    operation: str
    dry_run: bool
    delete_enabled: bool
    older_than_hours: float
    cutoff_time: datetime
    max_candidate_folders_per_database: int
    excluded_paths: tuple[str, ...]
    status: RowStatus
    status_reason: str | None
    error_message: str | None
    discovered_database_location: str | None
    storage_scan_location: str | None
    active_table_count: int
    unresolved_table_count: int
    storage_folder_count: int
    candidate_folder_count: int
    potentially_untracked_folder_count: int
    deleted_folder_count: int
    candidate_folders: tuple[str, ...]
    deleted_folders: tuple[str, ...]
    candidate_object_count: int
    candidate_total_size_bytes: int
    deleted_object_count: int
    deleted_total_size_bytes: int
    diagnostic_details: dict[str, Any] = field(hash=False)
    start_time: datetime
    end_time: datetime

    def as_json(self) -> dict[str, Any]:
        """Columns by name; times in ISO 8601."""
        found: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, datetime):
                value = value.isoformat()
            found[name] = list(value) if isinstance(value, tuple) else value
        return found


@dataclass(frozen=True, slots=True)
class DatabaseResult:
    """One database of a run: its audit row, and what the report shows beside it.

    `digest`: over the database, what decided, and every candidate with its objects, bytes and newest time; None where
    there is no candidate. `tables`: (name, location) of verified tables; `unresolved`: (name, why).
    `is_recorded`: the row is in the audit table; None where nobody tried.
    """

    row: AuditRow
    digest: str | None = None
    folders: tuple[Folder, ...] = ()
    roots: tuple[StorageRoot, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()
    unresolved: tuple[tuple[str, str], ...] = ()
    outside_root: tuple[tuple[str, str], ...] = ()
    outside_every_root: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    is_recorded: bool | None = None

    def of(self, *verdicts: Verdict) -> tuple[Folder, ...]:
        """Folders that ended so."""
        return tuple(folder for folder in self.folders if folder.verdict in verdicts)

    def masked(self, mask: Callable[[str], str]) -> DatabaseResult:
        """With every secret out of its sentences. Names and paths, which scripts compare, stay as they are.

        It has to be done before a report is made: there, a secret may hold character references and is not found.
        """
        told = self.row.error_message
        row = replace(
            self.row,
            error_message=None if told is None else mask(told),
            diagnostic_details=_masked(self.row.diagnostic_details, mask),
        )
        return replace(
            self,
            row=row,
            folders=tuple(replace(folder, why=mask(folder.why)) for folder in self.folders),
            roots=tuple(replace(root, error=None if root.error is None else mask(root.error)) for root in self.roots),
            unresolved=tuple((name, mask(why)) for name, why in self.unresolved),
            notes=tuple(map(mask, self.notes)),
        )

    def as_json(self) -> dict[str, Any]:
        """One of the verb's `databases`."""
        return {**self.row.as_json(), "digest": self.digest, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class FolderRun:
    """One run over all its databases. `digest`: over those of the databases; None where nothing was found.

    `is_audit_lost`: a row could not be written; then the run has failed.
    """

    run_id: str
    digest: str | None
    databases: tuple[DatabaseResult, ...]
    report: str
    is_audit_lost: bool = False

    @property
    def ok(self) -> bool:
        """False where a database failed, or the audit was lost (exit code 1)."""
        return not self.is_audit_lost and all(one.row.status is not RowStatus.FAILED for one in self.databases)

    def as_json(self) -> dict[str, Any]:
        """The verb's result."""
        return {
            "run_id": self.run_id,
            "status": "SUCCESS" if self.ok else "FAILED",
            "digest": self.digest,
            "databases": [one.as_json() for one in self.databases],
            "report": self.report,
        }


def _masked(value: Any, mask: Callable[[str], str], *, is_sentence: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _masked(item, mask, is_sentence=is_sentence or key in ("error", "notes", "why"))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, mask, is_sentence=is_sentence) for item in value]
    return mask(value) if is_sentence and isinstance(value, str) else value
