"""The CLEANUP REPORT of untracked table folders, as Markdown: the same text for the log, the asset and the terminal.

Titles, mode lines, and when each section is shown are the source's (seed 000, "Understanding Summary Logs"). Names come
from users' systems, and none of them becomes markup. Lists are cut at `MOST_SHOWN`; the audit table has them whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from lakehouse_maintenance.model.folders import (
    ROOTS_SHOWN,
    Content,
    DatabaseResult,
    Folder,
    RootStatus,
    RowStatus,
    Sign,
    StorageRoot,
    Verdict,
)
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.markdown import plain, table
from lakehouse_maintenance.planning.untracked_folders import run_digest

MOST_SHOWN = 200
"""Entries of one list."""

_MOST_SIGNS = 3

_OTHER_REASONS = (
    Verdict.EXCLUDED,
    Verdict.OTHER_DATABASE,
    Verdict.WRITE_PATH,
    Verdict.REFERENCED,
    Verdict.WORKING_FOLDER,
    Verdict.TOO_YOUNG,
    Verdict.UNKNOWN_AGE,
)
_VERDICTS = {
    Verdict.EXCLUDED: "excluded",
    Verdict.OTHER_DATABASE: "other database",
    Verdict.WRITE_PATH: "write path",
    Verdict.REFERENCED: "referenced",
    Verdict.WORKING_FOLDER: "working folder",
    Verdict.TOO_YOUNG: "too new",
    Verdict.UNKNOWN_AGE: "unknown age",
}


def run_report(results: Sequence[DatabaseResult], is_audit_lost: bool) -> str:
    """Every database of a run, after one another. `is_audit_lost`: a row could not be written, and the run fails."""
    parts = []
    if len(results) > 1:
        head = ("database", "status", "reason", "candidates", "removed")
        rows = [
            (_name(one), one.row.status, one.row.status_reason or "", _candidates(one), one.row.deleted_folder_count)
            for one in results
        ]
        parts.append(_cut_table(head, rows, "databases"))
        digest = run_digest(one.digest for one in results)
        if digest is not None:
            parts.append(f"Digest of the run: `{digest}`")
    parts += [report_of(one) for one in results]
    if is_audit_lost:
        parts.append(
            "## AUDIT\n\nAn audit row could not be written. From then on no folder was removed, and the run has failed."
        )
    return "\n\n".join(parts) + "\n"


def report_of(result: DatabaseResult) -> str:
    """The report of one database."""
    row = result.row
    if row.status is RowStatus.SKIPPED and row.status_reason in ROOTS_SHOWN:
        return _joined([*_header(result, "STORAGE ROOT REPORT"), "Nothing is deleted.", *_roots(result)])
    parts = _header(result, "CLEANUP REPORT")
    if _was_looked_at(result):
        parts += [*_catalog(result), *_storage(result), *_roots(result), *_untracked(result)]
    else:
        parts += _unresolved(result)
    return _joined([*parts, *_deletion(result)])


def _was_looked_at(result: DatabaseResult) -> bool:
    """False for a database that was refused before anything of its storage was listed."""
    row = result.row
    return bool(row.storage_scan_location or result.folders or result.roots) or row.status in (
        RowStatus.SUCCESS,
        RowStatus.BLOCKED,
    )


def _header(result: DatabaseResult, title: str) -> list[str]:
    row = result.row
    status = row.status if row.status_reason is None else f"{row.status} {row.status_reason}"
    mode = "Mode: dry run, nothing is deleted" if row.dry_run else "Mode: deletion enabled"
    lines = [
        f"Database: {plain(_name(result))}",
        f"Status: {plain(status)}",
    ]
    if row.error_message:
        lines.append(f"Message: {plain(row.error_message)}")
    lines += [f"Note: {plain(note)}" for note in result.notes]
    if result.is_recorded is False:
        lines.append("Note: the audit row of this database could not be written")
    return [f"## {title}", mode, _lines(lines)]


def _catalog(result: DatabaseResult) -> list[str]:
    unresolved = {name for name, _ in result.unresolved}
    verified = {name for name, _ in result.tables} - unresolved
    counts = [
        f"Tables found: {len(verified | unresolved):,}",
        f"Tables with verified storage locations: {len(verified):,}",
        f"Tables whose storage location could not be read: {len(unresolved):,}",
    ]
    return [_section("CATALOG", _lines(counts)), *_unresolved(result)]


def _unresolved(result: DatabaseResult) -> list[str]:
    if not result.unresolved:
        return []
    body = _cut_table(("table", "why"), result.unresolved, "tables")
    return [_section("TABLES WHOSE STORAGE LOCATION COULD NOT BE RESOLVED", body)]


def _storage(result: DatabaseResult) -> list[str]:
    row = result.row
    others = result.of(*_OTHER_REASONS)
    unowned = result.of(Verdict.CANDIDATE, Verdict.POTENTIALLY_UNTRACKED)
    counts = [
        f"Folders under {plain(row.storage_scan_location or 'the cleanup root')}: {row.storage_folder_count:,}",
        f"Folders of verified catalog tables: {len(result.of(Verdict.TABLE)):,}",
        f"Folders protected or skipped for other reasons: {len(others):,}",
        f"Folders with no verified owner: {len(unowned):,}",
    ]
    sections = [
        _section("STORAGE", _lines(counts)),
        _section(
            "STORAGE FOLDERS PROTECTED BY A VERIFIED CATALOG TABLE",
            _cut_table(("table", "location"), result.tables, "tables"),
        ),
        _section("STORAGE FOLDERS EXCLUDED BY CONFIGURATION", _cut_list(row.excluded_paths, "paths")),
    ]
    if others:
        rows = [(folder.path, _VERDICTS[folder.verdict], folder.why) for folder in others]
        body = _cut_table(("folder", "what", "why"), rows, "folders")
        sections.append(_section("STORAGE FOLDERS PROTECTED OR SKIPPED FOR OTHER REASONS", body))
    outside = _cut_table(("table", "location"), result.outside_root, "tables")
    if result.outside_root:
        outside = "Storage around them was not checked in this run.\n\n" + outside
    return [*sections, _section("TABLE LOCATIONS OUTSIDE THE SCANNED ROOT", outside)]


def _roots(result: DatabaseResult) -> list[str]:
    unmatched = [(folder, root.path) for root in result.roots for folder in root.unmatched]
    folders = _cut_table(("folder", "root"), unmatched, "folders")
    if unmatched:
        folders = "A table that cannot be seen may own them. They are never deleted.\n\n" + folders
    head = ("root", "origin", "status", "why")
    return [
        _section("STORAGE ROOTS", _cut_table(head, [_root(root) for root in result.roots], "roots")),
        _section("FOLDERS IN REPORT-ONLY ROOTS NOT MATCHED TO A VISIBLE TABLE", folders),
        _section(
            "TABLE LOCATIONS OUTSIDE EVERY LISTED ROOT",
            _cut_table(("table", "location"), result.outside_every_root, "tables"),
        ),
    ]


def _root(root: StorageRoot) -> tuple[str, str, str, str]:
    why = root.error if root.status is RootStatus.LISTING_FAILED else root.reason
    return root.path, root.origin.replace("_", " "), root.status, why or ""


def _untracked(result: DatabaseResult) -> list[str]:
    sections = []
    candidates = result.of(Verdict.CANDIDATE)
    potential = result.of(Verdict.POTENTIALLY_UNTRACKED)
    if candidates or not (potential or result.unresolved):
        title = "UNTRACKED STORAGE FOLDERS" + (" (DELETION BLOCKED)" if _is_blocked(result) else "")
        body = [_folder_table(candidates)]
        if result.digest is not None and candidates:
            body.append(f"Digest: `{result.digest}`")
            if result.row.dry_run and not _is_blocked(result):  # a run that removes leaves no plan to approve
                body.append(
                    "To approve exactly these folders: "
                    f"`lakehouse-maintenance review approve {result.digest} --by NAME`"
                )
                body.append(f"To let a run of the file remove no others: `--plan-digest {result.digest}`")
        sections.append(_section(title, _joined(body)))
    if potential or (result.unresolved and not candidates):
        sections.append(_section("POTENTIALLY UNTRACKED STORAGE FOLDERS", _folder_table(potential)))
    return sections


def _folder_table(folders: Sequence[Folder]) -> str:
    if not folders:
        return "None."
    # The largest first: where not all are shown, those are shown that cost most.
    ordered = sorted(folders, key=lambda folder: (-(folder.content or Content()).bytes, folder.path))
    head = ("folder", "objects", "size", "newest object")
    sizes = [folder.content for folder in folders if folder.content is not None]
    total = f"{_count(len(folders), 'folder')}"
    if sizes:
        objects = sum(content.objects for content in sizes)
        total += f", {_count(objects, 'object')}, {format_size(sum(content.bytes for content in sizes))}"
    body = [total, _cut_table(head, map(_folder, ordered[:MOST_SHOWN]), "folders", of=len(ordered))]
    reasons = list(dict.fromkeys(folder.why for folder in ordered[:MOST_SHOWN]))
    body.append("Why: " + plain(reasons[0]) if len(reasons) == 1 else _why_each(ordered[:MOST_SHOWN]))
    signs = [line for folder in ordered[:MOST_SHOWN] for line in _recognised(folder)]
    if signs:
        body.append("Recognised by:\n\n" + _lines(signs))
    return _joined(body)


def _folder(folder: Folder) -> tuple[str, str, str, str]:
    content = folder.content
    if content is None:
        return folder.path, "", "", ""
    return folder.path, f"{content.objects:,}", format_size(content.bytes), _time(content.newest_ms)


def _why_each(folders: Sequence[Folder]) -> str:
    return table(("folder", "why"), [(folder.path, folder.why) for folder in folders])


def _recognised(folder: Folder) -> list[str]:
    """What was found in the folder, for those who may know the table; its path tells the folder."""
    signs = () if folder.content is None else folder.content.signs
    lines = [plain(_sign(sign)) for sign in signs[:_MOST_SIGNS]]
    if len(signs) > _MOST_SIGNS:
        lines.append(plain(f"{folder.path}: {len(signs) - _MOST_SIGNS:,} more"))
    return lines


def _sign(sign: Sign) -> str:
    told = [f"{sign.format} table" + ("" if sign.table_uuid is None else f" {sign.table_uuid}")]
    if sign.last_commit_ms is not None:
        told.append(f"last commit {_time(sign.last_commit_ms)}")
    if sign.records is not None:
        told.append(_count(sign.records, "row"))
    if sign.bytes is not None:
        told.append(format_size(sign.bytes))
    if sign.note:
        told.append(sign.note)
    return f"{sign.path}: {', '.join(told)}"


def _deletion(result: DatabaseResult) -> list[str]:
    row, details = result.row, result.row.diagnostic_details
    body = []
    if row.dry_run:
        body.append("Dry run. No folder was deleted.")
    elif row.deleted_folders:
        how = "moved to quarantine" if details.get("removal") == "quarantine" else "deleted"
        size = format_size(row.deleted_total_size_bytes)
        body.append(
            f"{_count(row.deleted_folder_count, 'folder')} {how}: {_count(row.deleted_object_count, 'object')}, {size}"
        )
        entries = details.get("quarantine") or {}
        if entries:
            rows = [(path, entries.get(path, "")) for path in row.deleted_folders]
            body.append(_cut_table(("folder", "quarantine entry"), rows, "folders"))
            body.append("To take one back: `lakehouse-maintenance quarantine restore ENTRY`")
        else:
            body.append(_cut_list(row.deleted_folders, "folders"))
    elif row.status is RowStatus.SUCCESS:
        body.append("No folder was deleted.")
    if row.status is not RowStatus.SUCCESS:
        word = "BLOCKED" if row.status is not RowStatus.FAILED else "FAILED"
        body.append(f"{word}: " + plain(": ".join(filter(None, (row.status_reason, row.error_message)))))
    kept = [(one["path"], one["why"]) for one in details.get("not_removed", ())]
    if kept:
        body.append("Kept all the same:\n\n" + _cut_table(("folder", "why"), kept, "folders"))
        body.append("The next dry run finds what is there now, as a plan that can be approved.")
    failed = details.get("deletion_failed_folder_path")
    if failed:
        body.append(f"Look at this folder before the next run: {plain(failed)}")
    return [_section("DELETION", _joined(body))]


def _is_blocked(result: DatabaseResult) -> bool:
    return result.row.status in (RowStatus.BLOCKED, RowStatus.SKIPPED)


def _candidates(result: DatabaseResult) -> str:
    potential = result.row.potentially_untracked_folder_count
    return f"{result.row.candidate_folder_count:,}" + (
        f" (and {potential:,} potentially untracked)" if potential else ""
    )


def _name(result: DatabaseResult) -> str:
    return f"{result.row.catalog_name}.{result.row.database_name}"


def _section(title: str, body: str) -> str:
    return f"### {title}\n\n{body}"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _cut_list(texts: Sequence[str], things: str) -> str:
    if not texts:
        return "None."
    shown = _lines(plain(text) for text in texts[:MOST_SHOWN])
    return shown + _not_shown(len(texts), things)


def _cut_table(head: Sequence[str], rows: Iterable[Sequence[object]], things: str, *, of: int | None = None) -> str:
    found = list(rows)
    if not found:
        return "None."
    return table(head, found[:MOST_SHOWN]) + _not_shown(len(found) if of is None else of, things)


def _not_shown(found: int, things: str) -> str:
    return "" if found <= MOST_SHOWN else f"\n\n{found - MOST_SHOWN:,} more {things} are not shown."


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "not known"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"no possible time ({milliseconds} ms)"
