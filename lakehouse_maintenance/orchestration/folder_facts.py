"""Metadata of table folders that no table owns: what a reconciliation found, what was said of it, what went.

`mask` takes secrets out of sentences, before they become Markdown: in Markdown a secret may be spelled otherwise. Paths
stay as they are, since people approve by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_maintenance.model.folders import DatabaseResult, Folder, Sign, Verdict
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.markdown import plain, table
from lakehouse_maintenance.model.reviews import Decision, PlannedFolder, Review, ReviewState
from lakehouse_maintenance.orchestration.drawing import Bar, bar_chart, image
from lakehouse_maintenance.orchestration.naming import CANDIDATES_REVIEWED, meta

if TYPE_CHECKING:
    from lakehouse_maintenance.removal import Entry

Facts = dict[str, dg.MetadataValue]
Mask = Callable[[str], str]

_MOST_BARS = 10
_MOST_ROWS = 1000
"""More folders than this are counted and not named; the plan and the audit row name all."""


def candidates_facts(result: DatabaseResult, report: str, mask: Mask) -> Facts:
    """Of `untracked_candidates`. `report`: of the run, in Markdown."""
    row = result.row
    facts = _common(result, report, mask) | {
        meta("folders"): dg.MetadataValue.md(_folders(result, mask)),
        meta("candidate_folders"): _whole(row.candidate_folder_count),
        meta("candidate_objects"): _whole(row.candidate_object_count),
        meta("candidate_bytes"): _real(row.candidate_total_size_bytes),
        meta("potentially_untracked_folders"): _whole(row.potentially_untracked_folder_count),
        meta("storage_folders"): _whole(row.storage_folder_count),
        meta("active_tables"): _whole(row.active_table_count),
        meta("unresolved_tables"): _whole(row.unresolved_table_count),
    }
    where = row.storage_scan_location or row.discovered_database_location
    return facts if where is None else facts | {"dagster/uri": _text(where)}


def removed_facts(result: DatabaseResult, report: str, entries: Sequence[Entry], mask: Mask) -> Facts:
    """Of `removed`. `entries`: of quarantine, that this run made."""
    row = result.row
    return _common(result, report, mask) | {
        meta("removed"): dg.MetadataValue.md(_removed(result, entries, mask)),
        meta("removed_folders"): _whole(row.deleted_folder_count),
        meta("removed_objects"): _whole(row.deleted_object_count),
        meta("removed_bytes"): _real(row.deleted_total_size_bytes),
        meta("quarantine_entries"): _text(", ".join(entry.id for entry in entries)),
    }


def review_facts(review: Review | None, now: datetime, mask: Mask) -> Facts:
    """Of `review`: the plan, and the last word on each of its folders."""
    if review is None:
        return {meta("state"): _text("none"), meta("review"): dg.MetadataValue.md("Nothing waits for a review.")}
    holding = review.may_go(now)
    return {
        meta("review"): dg.MetadataValue.md(_review(review, now, mask)),
        meta("state"): _text(review.state(now)),
        meta("digest"): _text(review.plan.digest),
        meta("by"): _text(review.by or ""),
        meta("at"): _text(_time(review.at)),
        meta("until"): _text(_time(review.until)),
        meta("folders"): _whole(len(review.plan.folders)),
        meta("approved_folders"): _whole(len(holding)),
        meta("approved_bytes"): _real(sum(folder.bytes for folder in holding)),
        meta("rejected_folders"): _whole(len(review.rejected)),
    }


def reviewed_check(
    key: dg.AssetKey, result: DatabaseResult, review: Review | None, now: datetime, mask: Mask, *, needs_review: bool
) -> dg.AssetCheckResult:
    """`candidates_reviewed`: passed where nothing waits for a word. `review`: of the database's latest plan."""
    candidates = result.of(Verdict.CANDIDATE)
    known = review if review is not None and review.plan.digest == result.digest else None
    holding = set() if known is None else {folder.path for folder in known.may_go(now)}
    waiting = [folder for folder in candidates if folder.path not in holding]
    if not candidates:
        told = "there is no candidate"
    elif not needs_review:
        told = f"{len(candidates):,} candidates; the policy asks for no review"
    else:
        told = f"{len(candidates) - len(waiting):,} of {len(candidates):,} candidates are approved"
        if known is not None and known.state(now) is ReviewState.EXPIRED:
            told += "; the approval has expired"
    return dg.AssetCheckResult(
        check_name=CANDIDATES_REVIEWED,
        asset_key=key,
        passed=not needs_review or not waiting,
        severity=dg.AssetCheckSeverity.ERROR,
        description=told,
        metadata={
            meta("digest"): _text(result.digest or ""),
            meta("candidates"): dg.MetadataValue.md(_checked(candidates, known, now, mask)),
            meta("waiting"): _whole(len(waiting)),
        },
    )


def _common(result: DatabaseResult, report: str, mask: Mask) -> Facts:
    row = result.row
    return {
        meta("report"): dg.MetadataValue.md(mask(report)),
        meta("status"): _text(row.status),
        meta("reason"): _text(row.status_reason or ""),
        meta("error"): _text(mask(row.error_message or "")),
        meta("digest"): _text(result.digest or ""),
    }


def _folders(result: DatabaseResult, mask: Mask) -> str:
    """Candidates by size, as bars and as a table."""
    found = sorted(
        result.of(Verdict.CANDIDATE, Verdict.POTENTIALLY_UNTRACKED),
        key=lambda folder: (folder.content is None, -_bytes(folder), folder.path),
    )
    if not found:
        return "No folder is without an owner."
    seen = [one for one in found[:_MOST_BARS] if one.content is not None]
    bars = [Bar(str(at), _bytes(one), _size(one)) for at, one in enumerate(seen, 1)]
    rows = (
        (at, one.path, one.verdict, _objects(one), _size(one), _newest(one), mask(_evidence(one)))
        for at, one in enumerate(found[:_MOST_ROWS], 1)
    )
    head = ("bar", "folder", "verdict", "objects", "size", "newest object", "evidence")
    chart = [image(bar_chart(bars), "bytes by folder, largest first; the table below names the bars")] if bars else []
    parts = [*chart, table(head, rows)]
    return "\n\n".join([*parts, *_more(len(found))])


def _checked(candidates: Sequence[Folder], review: Review | None, now: datetime, mask: Mask) -> str:
    decided = {} if review is None else {one.path: one for one in review.decisions}
    rows = (
        (
            one.path,
            _objects(one),
            "" if one.content is None else f"{one.content.bytes:,}",
            _newest(one),
            mask(_evidence(one)),
            _word(decided.get(one.path), now),
        )
        for one in candidates[:_MOST_ROWS]
    )
    if not candidates:
        return "none"
    head = ("folder", "objects", "bytes", "newest object", "evidence", "review")
    return "\n\n".join([table(head, rows), *_more(len(candidates))])


def _review(review: Review, now: datetime, mask: Mask) -> str:
    plan = review.plan
    decided = {one.path: one for one in review.decisions}
    rows = (
        (
            one.path,
            f"{one.objects:,}",
            format_size(one.bytes),
            _moment(one.newest_ms),
            mask(one.why),
            *_said(decided, one, now),
        )
        for one in plan.folders[:_MOST_ROWS]
    )
    head = ("folder", "objects", "size", "newest object", "evidence", "review", "by", "at", "until")
    return "\n\n".join(
        [
            f"**{plain(plan.subject)}**: {plain(review.state(now))}",
            f"Plan {plain(plan.digest)}, found {_time(plan.at)}.",
            table(head, rows),
            *_more(len(plan.folders)),
        ]
    )


def _said(decided: dict[str, Decision], folder: PlannedFolder, now: datetime) -> tuple[str, str, str, str]:
    one = decided.get(folder.path)
    if one is None:
        return _word(None, now), "", "", ""
    return _word(one, now), one.by, _time(one.at), _time(one.until)


def _word(one: Decision | None, now: datetime) -> str:
    if one is None:
        return "pending"
    if not one.is_approved:
        return "rejected"
    return "approved" if one.holds(now) else "expired"


def _removed(result: DatabaseResult, entries: Sequence[Entry], mask: Mask) -> str:
    row = result.row
    parts = [f"**{plain(f'{row.catalog_name}.{row.database_name}')}**: {plain(row.status)}"]
    if row.deleted_folders:
        parts.append(table(("folder that went",), ((path,) for path in row.deleted_folders[:_MOST_ROWS])))
        parts += _more(len(row.deleted_folders))
    else:
        parts.append("No folder went.")
    if entries:
        head = ("quarantine entry", "folder", "objects", "size", "purged after")
        rows = ((one.id, one.path, f"{one.objects:,}", format_size(one.bytes), one.purge_after) for one in entries)
        parts.append(table(head, rows))
        parts.append("To bring one back: `lakehouse-maintenance quarantine restore ID`.")
    if result.notes:
        parts.append("\n".join(f"- {plain(mask(note))}" for note in result.notes))
    return "\n\n".join(parts)


def _more(number: int) -> list[str]:
    return [f"{number - _MOST_ROWS:,} more are not shown."] if number > _MOST_ROWS else []


def _evidence(folder: Folder) -> str:
    signs = () if folder.content is None else folder.content.signs
    return "; ".join([folder.why, *map(_sign, signs)])


def _sign(sign: Sign) -> str:
    """What a reviewer can recognise it by."""
    parts = [f"{sign.format} metadata"]
    if sign.table_uuid is not None:
        parts.append(f"of table {sign.table_uuid}")
    if sign.last_commit_ms is not None:
        parts.append(f"last commit {_moment(sign.last_commit_ms)}")
    if sign.records is not None:
        parts.append(f"{sign.records:,} rows")
    if sign.bytes is not None:
        parts.append(format_size(sign.bytes))
    if sign.note is not None:
        parts.append(sign.note)
    return ", ".join(parts)


def _bytes(folder: Folder) -> int:
    return 0 if folder.content is None else folder.content.bytes


def _size(folder: Folder) -> str:
    return "" if folder.content is None else format_size(folder.content.bytes)


def _objects(folder: Folder) -> str:
    return "" if folder.content is None else f"{folder.content.objects:,}"


def _newest(folder: Folder) -> str:
    return "" if folder.content is None else _moment(folder.content.newest_ms)


def _moment(milliseconds: int | None) -> str:
    return "unknown" if milliseconds is None else _time(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")


def _text(value: object) -> dg.MetadataValue:
    return dg.MetadataValue.text(str(value))


def _whole(value: int) -> dg.MetadataValue:
    return dg.MetadataValue.int(value)


def _real(value: float) -> dg.MetadataValue:
    return dg.MetadataValue.float(float(value))
