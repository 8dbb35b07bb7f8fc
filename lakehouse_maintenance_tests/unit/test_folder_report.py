"""The CLEANUP REPORT: the source's sections, titles and mode lines, each where the source shows it."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from lakehouse_maintenance.config import Masker
from lakehouse_maintenance.execution.folder_report import MOST_SHOWN, report_of, run_report
from lakehouse_maintenance.model.folders import (
    DatabaseResult,
    NotScanned,
    Reason,
    RootStatus,
    RowStatus,
    Sign,
    StorageRoot,
    Verdict,
)
from lakehouse_maintenance.planning.untracked_folders import run_digest
from lakehouse_maintenance_tests.folder_results import ROOT, candidate, folder, result

ALWAYS = (
    "CATALOG",
    "STORAGE",
    "STORAGE FOLDERS PROTECTED BY A VERIFIED CATALOG TABLE",
    "STORAGE FOLDERS EXCLUDED BY CONFIGURATION",
    "TABLE LOCATIONS OUTSIDE THE SCANNED ROOT",
    "STORAGE ROOTS",
    "FOLDERS IN REPORT-ONLY ROOTS NOT MATCHED TO A VISIBLE TABLE",
    "TABLE LOCATIONS OUTSIDE EVERY LISTED ROOT",
    "UNTRACKED STORAGE FOLDERS",
    "DELETION",
)
UNRESOLVED = "TABLES WHOSE STORAGE LOCATION COULD NOT BE RESOLVED"
OTHERS = "STORAGE FOLDERS PROTECTED OR SKIPPED FOR OTHER REASONS"
POTENTIAL = "POTENTIALLY UNTRACKED STORAGE FOLDERS"
BLOCKED = "UNTRACKED STORAGE FOLDERS (DELETION BLOCKED)"
DRY_RUN = "Mode: dry run, nothing is deleted"
DELETING = "Mode: deletion enabled"
NOTHING = "Dry run. No folder was deleted."
DIGEST = "sha256:" + "a" * 64
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def sections(report: str) -> dict[str, str]:
    """By title, in their order, what is told under it; of one database."""
    parts = re.split(r"^### (.+)$", report, flags=re.MULTILINE)[1:]
    titles, bodies = parts[::2], parts[1::2]
    assert len(set(titles)) == len(titles)
    return {title: body.strip() for title, body in zip(titles, bodies, strict=True)}


def full(**more: object) -> DatabaseResult:
    """Something in every section."""
    sign = Sign("iceberg", f"{ROOT}/dropped/metadata/2.metadata.json", UUID, 1_767_139_200_000, 1_200, 1 << 20)
    found = {
        "folders": (
            folder("orders", Verdict.TABLE),
            folder("kept", Verdict.EXCLUDED, "excluded by configuration: s3://lake/wh/analytics/kept"),
            folder("paths", Verdict.WRITE_PATH, "write path of main.analytics.orders: s3://lake/x"),
            folder("imported", Verdict.REFERENCED, "files that it references of main.sales.t: s3://lake/y"),
            folder("sales.db", Verdict.OTHER_DATABASE, "storage of another database of main.sales: s3://lake/z"),
            folder("_temporary", Verdict.WORKING_FOLDER, "a working folder of a framework"),
            folder("new", Verdict.TOO_YOUNG, "an object in it is younger"),
            folder("empty", Verdict.UNKNOWN_AGE, "its age cannot be established"),
            candidate("dropped", signs=[sign]),
            candidate("large", size=5 << 20),
        ),
        "tables": (("main.analytics.orders", f"{ROOT}/orders"), ("main.analytics.far", "s3://other/far")),
        "excluded": (f"{ROOT}/kept",),
        "outside_root": (("main.analytics.far", "s3://other/far"),),
        "outside_every_root": (("main.analytics.far", "s3://other/far"),),
        "roots": (
            StorageRoot(ROOT, "cleanup_root", RootStatus.SCANNED),
            StorageRoot("s3://lake/wh/analytics.db", "database_location", RootStatus.ABSENT),
            StorageRoot("s3://lake/x", "approved", RootStatus.LISTING_FAILED, error="403 Forbidden"),
            StorageRoot("s3://other", "table_parent", RootStatus.NOT_SCANNED, NotScanned.BUCKET_ROOT),
            StorageRoot("s3://lake/ns", "namespace_folder", RootStatus.SCANNED, unmatched=("s3://lake/ns/odd",)),
        ),
        "reason": Reason.PARTIAL_SCAN_COVERAGE,
        "digest": DIGEST,
    }
    return result(**{**found, **more})  # type: ignore[arg-type]


@pytest.mark.requirement("UF-25")
def test_a_dry_run_with_something_in_every_section() -> None:
    report = report_of(full())
    assert report.startswith(f"## CLEANUP REPORT\n\n{DRY_RUN}\n\n")
    assert "Status: SUCCESS partial_scan_coverage" in report
    found = sections(report)
    assert list(found) == [
        "CATALOG",
        "STORAGE",
        "STORAGE FOLDERS PROTECTED BY A VERIFIED CATALOG TABLE",
        "STORAGE FOLDERS EXCLUDED BY CONFIGURATION",
        OTHERS,
        "TABLE LOCATIONS OUTSIDE THE SCANNED ROOT",
        "STORAGE ROOTS",
        "FOLDERS IN REPORT-ONLY ROOTS NOT MATCHED TO A VISIBLE TABLE",
        "TABLE LOCATIONS OUTSIDE EVERY LISTED ROOT",
        "UNTRACKED STORAGE FOLDERS",
        "DELETION",
    ]
    assert found["CATALOG"].splitlines() == [
        "- Tables found: 2",
        "- Tables with verified storage locations: 2",
        "- Tables whose storage location could not be read: 0",
    ]
    assert found["STORAGE"].splitlines() == [
        f"- Folders under {ROOT}: 10",
        "- Folders of verified catalog tables: 1",
        "- Folders protected or skipped for other reasons: 7",
        "- Folders with no verified owner: 2",
    ]
    protected = found["STORAGE FOLDERS PROTECTED BY A VERIFIED CATALOG TABLE"]
    assert f"| main.analytics.orders | {ROOT}/orders |" in protected
    assert "| main.analytics.far | s3://other/far |" in protected
    assert found["STORAGE FOLDERS EXCLUDED BY CONFIGURATION"] == f"- {ROOT}/kept"
    others = html.unescape(found[OTHERS])
    for name, what in (
        ("kept", "excluded"),
        ("paths", "write path"),
        ("imported", "referenced"),
        ("sales.db", "other database"),
        ("_temporary", "working folder"),
        ("new", "too new"),
        ("empty", "unknown age"),
    ):
        assert f"| {ROOT}/{name} | {what} | " in others
    assert "| main.analytics.far | s3://other/far |" in found["TABLE LOCATIONS OUTSIDE THE SCANNED ROOT"]
    assert "not checked" in found["TABLE LOCATIONS OUTSIDE THE SCANNED ROOT"]
    roots = found["STORAGE ROOTS"]
    assert f"| {ROOT} | cleanup root | scanned |  |" in roots
    assert "| s3://lake/wh/analytics.db | database location | absent |  |" in roots
    assert "| s3://lake/x | approved | listing_failed | 403 Forbidden |" in roots
    assert "| s3://other | table parent | not_scanned | bucket_root |" in roots
    unmatched = found["FOLDERS IN REPORT-ONLY ROOTS NOT MATCHED TO A VISIBLE TABLE"]
    assert "| s3://lake/ns/odd | s3://lake/ns |" in unmatched
    assert "never deleted" in unmatched
    assert "main.analytics.far" in found["TABLE LOCATIONS OUTSIDE EVERY LISTED ROOT"]
    assert found["DELETION"] == NOTHING


@pytest.mark.requirement("UF-42")
def test_candidates_with_their_evidence_and_how_to_approve_them() -> None:
    told = sections(report_of(full()))["UNTRACKED STORAGE FOLDERS"]
    assert told.startswith("2 folders, 6 objects, 5 MB\n")
    rows = [row for row in told.splitlines() if row.startswith(f"| {ROOT}/")]
    assert [row.split(" | ")[0] for row in rows] == [f"| {ROOT}/large", f"| {ROOT}/dropped"], "the largest first"
    assert rows[1] == f"| {ROOT}/dropped | 3 | 2 KB | 2026-01-01T00:00:00+00:00 |"
    assert told.count("Why: no visible table owns it") == 1, "it is the same for all"
    assert (
        f"Recognised by:\n\n- {ROOT}/dropped/metadata/2.metadata.json: iceberg table {UUID}, "
        "last commit 2025-12-31T00:00:00+00:00, 1,200 rows, 1 MB"
    ) in told
    assert f"`{DIGEST}`" in told
    assert f"`lakehouse-maintenance review approve {DIGEST} --by NAME`" in told
    assert f"`--plan-digest {DIGEST}`" in told


@pytest.mark.requirement("UF-25")
def test_sections_that_are_shown_only_when_there_is_something() -> None:
    found = sections(report_of(result()))
    assert tuple(found) == ALWAYS
    for title in ALWAYS[2:-1]:
        assert found[title] == "None.", title
    assert "review approve" not in report_of(result())
    unresolved = (("main.analytics.broken", "its metadata cannot be read"),)
    blocked = result(
        status=RowStatus.BLOCKED,
        reason=Reason.UNRESOLVED_CATALOG_OWNERSHIP,
        message="1 table may own any folder",
        unresolved=unresolved,
        tables=(("main.analytics.orders", f"{ROOT}/orders"),),
        folders=(folder("maybe", Verdict.POTENTIALLY_UNTRACKED), folder("new", Verdict.TOO_YOUNG)),
    )
    report = report_of(blocked)
    found = sections(report)
    assert list(found)[:2] == ["CATALOG", UNRESOLVED]
    assert "| main.analytics.broken | its metadata cannot be read |" in found[UNRESOLVED]
    assert "Tables found: 2" in found["CATALOG"]
    assert "could not be read: 1" in found["CATALOG"]
    assert list(found)[-2:] == [POTENTIAL, "DELETION"]
    assert f"{ROOT}/maybe" in found[POTENTIAL]
    assert "UNTRACKED STORAGE FOLDERS" not in found
    assert OTHERS in found
    assert "review approve" not in report
    # Nothing unmatched: the section is there all the same, in place of the other.
    found = sections(report_of(replace(blocked, folders=())))
    assert found[POTENTIAL] == "None."
    assert not {BLOCKED, "UNTRACKED STORAGE FOLDERS"} & set(found)


@pytest.mark.requirement("UF-25")
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (RowStatus.BLOCKED, Reason.OTHER_DATABASE_STORAGE_UNKNOWN),
        (RowStatus.BLOCKED, Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE),
        (RowStatus.BLOCKED, Reason.AUDIT_INTEGRITY_LOST),
        (RowStatus.SKIPPED, Reason.TOO_MANY_CANDIDATE_FOLDERS),
    ],
)
def test_deletion_that_is_blocked(dry_run: bool, status: RowStatus, reason: Reason) -> None:
    report = report_of(full(status=status, reason=reason, message="because of it", dry_run=dry_run))
    found = sections(report)
    assert BLOCKED in found
    assert "UNTRACKED STORAGE FOLDERS" not in found
    assert f"{ROOT}/dropped" in found[BLOCKED]
    assert "review approve" not in report
    assert f"BLOCKED: {reason}: because of it" in found["DELETION"]
    assert (NOTHING in found["DELETION"]) is dry_run
    assert (DRY_RUN if dry_run else DELETING) in report.splitlines()


@pytest.mark.requirement("UF-25")
def test_deletion() -> None:
    gone = (f"{ROOT}/dropped", f"{ROOT}/large")
    report = report_of(full(dry_run=False, deleted=gone))
    assert report.splitlines()[2] == DELETING
    assert DRY_RUN not in report
    found = sections(report)
    assert found["DELETION"] == f"2 folders deleted: 6 objects, 4 KB\n\n- {gone[0]}\n- {gone[1]}"
    assert "review approve" not in report
    details = {
        "removal": "quarantine",
        "quarantine": {gone[0]: "entry-1", gone[1]: "entry-2"},
        "not_removed": [{"path": f"{ROOT}/late", "why": "a table lies there now"}],
    }
    moved = sections(report_of(full(dry_run=False, deleted=gone, details=details)))["DELETION"]
    assert moved.startswith("2 folders moved to quarantine: ")
    assert f"| {gone[1]} | entry-2 |" in moved
    assert "quarantine restore" in moved
    assert f"| {ROOT}/late | a table lies there now |" in moved
    none = report_of(full(dry_run=False))
    assert sections(none)["DELETION"] == "No folder was deleted."
    assert "review approve" not in none, "such a run leaves no plan that could be approved"


@pytest.mark.requirement("UF-25")
def test_deletion_that_failed() -> None:
    failed = full(
        dry_run=False,
        status=RowStatus.FAILED,
        reason=Reason.DELETION_FAILED,
        message="503 Slow Down",
        deleted=(f"{ROOT}/large",),
        details={"deletion_failed_folder_path": f"{ROOT}/dropped"},
    )
    told = sections(report_of(failed))["DELETION"]
    assert f"- {ROOT}/large" in told
    assert "FAILED: deletion_failed: 503 Slow Down" in told
    assert f"{ROOT}/dropped" in told


@pytest.mark.requirement("UF-24")
@pytest.mark.parametrize(
    "reason",
    [
        Reason.DATABASE_LOCATION_IS_BUCKET_ROOT,
        Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT,
        Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY,
    ],
)
def test_roots_of_a_database_that_is_skipped(reason: Reason) -> None:
    skipped = full(status=RowStatus.SKIPPED, reason=reason, message="refused", folders=(), scanned=None, digest=None)
    report = report_of(skipped)
    assert report.startswith("## STORAGE ROOT REPORT\n")
    assert "CLEANUP REPORT" not in report
    assert f"SKIPPED {reason}" in report
    assert "Message: refused" in report
    assert "Nothing is deleted." in report.splitlines()
    found = sections(report)
    assert list(found) == [
        "STORAGE ROOTS",
        "FOLDERS IN REPORT-ONLY ROOTS NOT MATCHED TO A VISIBLE TABLE",
        "TABLE LOCATIONS OUTSIDE EVERY LISTED ROOT",
    ]
    assert "| s3://lake/ns/odd | s3://lake/ns |" in report


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (RowStatus.SKIPPED, Reason.DATABASE_NOT_FOUND),
        (RowStatus.SKIPPED, Reason.DATABASE_LOCATION_MISSING),
        (RowStatus.SKIPPED, Reason.INVALID_STORAGE_LOCATION),
        (RowStatus.SKIPPED, Reason.CATALOG_WAREHOUSE_UNKNOWN),
        (RowStatus.SKIPPED, Reason.NO_ACTIVE_TABLES_IN_DATABASE),
        (RowStatus.FAILED, Reason.UNEXPECTED_ERROR),
    ],
)
def test_what_was_never_looked_at_has_no_empty_sections(status: RowStatus, reason: Reason) -> None:
    report = report_of(result(status=status, reason=reason, message="the cause", scanned=None))
    assert report.startswith("## CLEANUP REPORT\n")
    assert list(sections(report)) == ["DELETION"]
    assert NOTHING in report
    assert f"{'FAILED' if status is RowStatus.FAILED else 'BLOCKED'}: {reason}: the cause" in report


def rendered(report: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(report)


HOSTILE = "a|b\n\n## DELETION\n<script>x</script>[l](javascript:x)![i](http://x)`c`*b*_u_~~s~~\\|\r&lt;\u202e\x1b[2J$x$"


@pytest.mark.requirement("UF-25")
def test_hostile_names_stay_text() -> None:
    sign = Sign("delta", HOSTILE, HOSTILE, 1 << 62, None, None, HOSTILE)
    found = full(
        folders=(candidate(HOSTILE.replace("/", ":"), signs=[sign]), folder("x", Verdict.TOO_YOUNG, HOSTILE)),
        tables=((HOSTILE, HOSTILE),),
        excluded=(HOSTILE,),
        outside_root=((HOSTILE, HOSTILE),),
        outside_every_root=((HOSTILE, HOSTILE),),
        roots=(StorageRoot(HOSTILE, HOSTILE, RootStatus.LISTING_FAILED, error=HOSTILE, unmatched=(HOSTILE,)),),
        notes=(HOSTILE,),
        deleted=(HOSTILE,),
        details={
            "deletion_failed_folder_path": HOSTILE,
            "removal": "quarantine",
            "quarantine": {HOSTILE: HOSTILE},
            "not_removed": [{"path": HOSTILE, "why": HOSTILE}],
        },
        status=RowStatus.FAILED,
        reason=HOSTILE,
        message=HOSTILE,
        dry_run=False,
        database=HOSTILE,
    )
    report = run_report([found, found], False)
    page = rendered(report)
    assert set(re.findall(r"</?([a-z0-9]+)", page)) == {
        *("h2", "h3", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code"),
    }
    assert page.count("<h2>") == 2
    assert page.count("<h3>DELETION</h3>") == 2
    assert page.count(DIGEST) == page.count("<code>" + DIGEST)
    assert all(char.isprintable() or char == "\n" for char in report)
    for row in re.findall(r"<tr>.*?</tr>", page, flags=re.DOTALL):
        assert len(re.findall(r"<t[dh]>", row)) in (2, 3, 4, 5, 6)
    read = html.unescape(re.sub(r"</?[a-z0-9]+>", "", page))
    assert (
        "a|b  ## DELETION <script>x</script>[l](javascript:x)![i](http://x)`c`*b*_u_~~s~~\\| &lt;U+202EU+001B[2J$x$"
        in read
    )


def test_very_many_are_cut_and_counted() -> None:
    number = MOST_SHOWN + 1_234
    found = full(
        folders=tuple(candidate(f"c{at:04}") for at in range(number)),
        tables=tuple((f"main.analytics.t{at}", f"{ROOT}/t{at}") for at in range(number)),
        excluded=tuple(f"{ROOT}/e{at}" for at in range(number)),
        roots=(
            StorageRoot(ROOT, "approved", RootStatus.SCANNED, unmatched=tuple(f"s3://b/{at}" for at in range(number))),
        ),
        dry_run=False,
        deleted=tuple(f"{ROOT}/d{at}" for at in range(number)),
    )
    told = sections(report_of(found))
    for title, things in (
        ("UNTRACKED STORAGE FOLDERS", "folders"),
        ("STORAGE FOLDERS PROTECTED BY A VERIFIED CATALOG TABLE", "tables"),
        ("STORAGE FOLDERS EXCLUDED BY CONFIGURATION", "paths"),
        ("FOLDERS IN REPORT-ONLY ROOTS NOT MATCHED TO A VISIBLE TABLE", "folders"),
        ("DELETION", "folders"),
    ):
        assert f"1,234 more {things} are not shown." in told[title], title
        assert told[title].count("s3://") in (MOST_SHOWN, 2 * MOST_SHOWN), title
    assert told["UNTRACKED STORAGE FOLDERS"].startswith(f"{number:,} folders, {3 * number:,} objects, ")


def test_a_run_over_several_databases() -> None:
    first = full()
    second = result(
        database="sales",
        status=RowStatus.BLOCKED,
        reason=Reason.AUDIT_INTEGRITY_LOST,
        message="lost",
        is_recorded=False,
    )
    report = run_report([first, second], True)
    assert "| main.analytics | SUCCESS | partial_scan_coverage | 2 | 0 |" in report
    assert "| main.sales | BLOCKED | audit_integrity_lost | 0 | 0 |" in report
    assert f"Digest of the run: `{run_digest([DIGEST])}`" in report
    assert report_of(first) in report
    assert report_of(second) in report
    assert "the audit row of this database could not be written" in report_of(second)
    assert "An audit row could not be written" in report
    alone = run_report([first], False)
    assert alone == report_of(first) + "\n"


def test_secrets_are_taken_out_before_they_become_references() -> None:
    secret = "hid*den_[secret]"
    found = full(
        status=RowStatus.FAILED,
        reason=Reason.UNEXPECTED_ERROR,
        message=f"denied for {secret}",
        notes=(secret,),
        details={"not_removed": [{"path": f"{ROOT}/hidden", "why": secret}], "kept_folders": [{"error": secret}]},
        unresolved=(("main.analytics.broken", f"as {secret}"),),
        folders=(folder("x", Verdict.TOO_YOUNG, secret),),
        roots=(StorageRoot(ROOT, "approved", RootStatus.LISTING_FAILED, error=secret),),
    )
    report = report_of(found.masked(Masker([secret]).mask))
    assert "den" not in report.replace("denied", "").replace("hidden", "")
    assert report.count("&#42;&#42;&#42;") == 7, "the message stands twice"
    assert secret not in str(found.masked(Masker([secret]).mask).as_json())
    assert f"{ROOT}/hidden" in report
    assert report_of(found.masked(str)) == report_of(found)
