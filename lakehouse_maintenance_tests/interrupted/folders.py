"""Table folders that nobody owns, deleted or moved to quarantine, with a row in the audit table: see driver.Scenario.

Beside the folders lie a live table, a folder whose only file that table reaches by `add_files`, another database, and,
on local files, a folder that is too young.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.folders import AUDIT_TABLE, FolderRun
from lakehouse_maintenance.removal import Entry, EntryState, Operation, open_lists, remover
from lakehouse_maintenance_tests.engine.tables import SCHEMA, many_small_files
from lakehouse_maintenance_tests.interrupted.driver import Course, Scenario
from lakehouse_maintenance_tests.interrupted.orphans import entries_of
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.soundness import (
    Expected,
    Problems,
    closed_lists,
    every_intent_has_an_outcome,
    expected,
    open_lake,
    referenced_files_are_there,
    rows_are_there,
    state_of,
    told_as,
    writer,
)

SUBJECT = "main.db"
LIVE = ("db.live", "other.t")
AUDIT_DATABASE = "iomete_system_db"
BATCH = 3
OLD = timedelta(days=3)


@dataclass(frozen=True)
class Wanted:
    """Rows of each table; digests of what nobody owns, by folder and path, and of every other file."""

    tables: dict[str, Expected]
    folders: dict[str, dict[str, str]]
    stays: dict[str, str]


@dataclass(frozen=True)
class Sight:
    """What each file holds, but for the audit's; rows of the audit; what the journal told; what is being moved."""

    contents: dict[str, str]
    rows: tuple[dict[str, Any], ...]
    deleted: int
    moved: int
    moving: frozenset[str]
    entries: tuple[Entry, ...]

    def of(self, folder: str) -> dict[str, str]:
        """Files in a folder."""
        return {path: digest for path, digest in self.contents.items() if path.startswith(f"{folder}/")}


def build(place: Place) -> Wanted:
    """Two dropped tables' folders, and what has to stay. No audit table yet."""
    catalog = writer(place)
    table = many_small_files(catalog, LIVE[0], commits=1, partitioned=False)
    many_small_files(catalog, LIVE[1], commits=1, partitioned=False)
    root = table.location().rpartition("/")[0]
    place.write(f"{root}/imported/file.parquet", _parquet())
    catalog.load_table(LIVE[0]).add_files([f"{root}/imported/file.parquet"])
    many_small_files(catalog, "db.gone", commits=1, partitioned=False)
    catalog.drop_table("db.gone")
    place.write(f"{root}/odd/a b/100%25 ä+é", b"of nobody")
    _make_old(place)
    if not place.bucket:
        place.write(f"{root}/young/file", b"young")
    contents = place.contents()
    folders = {f"{root}/{name}": _take(contents, f"{root}/{name}/") for name in ("gone", "odd")}
    _job(place)
    return Wanted({name: expected(place, name) for name in LIVE}, folders, contents)


def build_with_audit(place: Place) -> Wanted:
    """As `build`, after a dry run, so that the audit table is there."""
    wanted = build(place)
    run = lake(place, "delete").untracked_folders(_job(place, dry_run=True, delete_enabled=False))
    assert set(run.databases[0].row.candidate_folders) == set(wanted.folders), run.databases[0].row
    _job(place)
    return wanted


def lake(place: Place, removal: str) -> Lakehouse:
    """With batches that are small, for the rest of this process's life."""
    vars(remover)["BATCH"] = BATCH
    return open_lake(place, policies={"default": {"untracked_folders": {"removal": removal}}})


def delete(place: Place) -> FolderRun:
    """The job, as the source has it."""
    return lake(place, "delete").untracked_folders(place.folder / "application.json")


def quarantine(place: Place) -> FolderRun:
    """The same job where the policy says so."""
    return lake(place, "quarantine").untracked_folders(place.folder / "application.json")


def look(place: Place) -> Sight:
    """As things are now."""
    state = state_of(place)
    events = state.journal.events(table=SUBJECT)
    entries = entries_of(state)
    filled = {entry.id for entry in entries}
    # Of a list whose entry is not there yet nothing was moved: it is given up, and its folder begun anew.
    lists = [head for head in open_lists(state, SUBJECT) if head.entry in filled]
    contents = place.contents()
    return Sight(
        contents={path: digest for path, digest in contents.items() if f"/{AUDIT_DATABASE}/" not in path},
        rows=_audit_rows(place),
        deleted=told_as("deleted", events),
        moved=told_as("moved", events),
        moving=frozenset(str(head.evidence["folder"]) for head in lists),
        entries=entries,
    )


def check_deleted(place: Place, wanted: Wanted, course: Course) -> list[str]:
    """The folders are gone, for good."""
    problems = Problems()
    after = _all_is_well(problems, place, wanted, course)
    _told_is_true(problems, wanted, course, after, lambda seen: seen.deleted, "deleted")
    problems.unless(not after.entries and after.moved == 0, f"there are entries: {after.entries}")
    strange = after.contents.keys() - wanted.stays.keys()
    problems.unless(not strange, f"{len(strange)} files are there: {sorted(strange)[:3]}")
    return problems.lines


def check_quarantined(place: Place, wanted: Wanted, course: Course) -> list[str]:
    """The folders are in quarantine, each whole, and come back byte by byte."""
    problems = Problems()
    after = _all_is_well(problems, place, wanted, course)
    _told_is_true(problems, wanted, course, after, lambda seen: seen.moved, "moved")
    problems.unless(after.deleted == 0, f"{after.deleted} files are told as deleted")
    between: Sight = course.between
    for folder, files in wanted.folders.items():
        for seen in (between, after):
            places = [entry.quarantined_path for entry in seen.entries if entry.path == folder]
            held = [_under(seen, folder, files), *(_under(seen, folder, files, aside) for aside in places)]
            nowhere = [path for path in files if not any(one.get(path) == files[path] for one in held)]
            problems.unless(not nowhere, f"{nowhere} was at no place, or was another there")
    states = sorted((entry.path, entry.state) for entry in after.entries)
    should = sorted((folder, EntryState.QUARANTINED) for folder in wanted.folders)
    problems.unless(states == should, f"the entries are {states}")
    ours = lake(place, "quarantine")
    for entry in after.entries:
        restored = ours.restore(entry.id)
        problems.unless(restored.ok, f"{entry.path} does not come back: {restored.why}")
    back = look(place).contents
    files = {path: digest for folder in wanted.folders.values() for path, digest in folder.items()}
    differs = {path for path in {*back, *files, *wanted.stays} if back.get(path) != {**wanted.stays, **files}.get(path)}
    problems.unless(not differs, f"after the restoration {len(differs)} files differ: {sorted(differs)[:3]}")
    return problems.lines


def _all_is_well(problems: Problems, place: Place, wanted: Wanted, course: Course) -> Sight:
    """Tables, all other files, the folders themselves, and nothing of ours left open."""
    run: FolderRun = course.told
    for told in run.databases:
        is_clean = (told.row.status, told.row.status_reason, told.is_recorded) == ("SUCCESS", None, True)
        problems.unless(run.ok and is_clean, f"the next run ended {told.row.status}: {told.row.error_message}")
    after = look(place)
    for name, rows in wanted.tables.items():
        table = writer(place).load_table(name)
        rows_are_there(problems, table, rows)
        referenced_files_are_there(problems, table, frozenset(after.contents))
    for path, digest in wanted.stays.items():
        problems.unless(after.contents.get(path) == digest, f"{path} is gone, or differs")
    for folder in wanted.folders:
        problems.unless(not after.of(folder), f"{folder} still holds {sorted(after.of(folder))[:3]}")
        is_there = not place.bucket and Path(folder.removeprefix("file://")).exists()
        problems.unless(not is_there, f"{folder} is still a directory")
    state = state_of(place)
    lists = open_lists(state, SUBJECT)
    problems.unless(not lists, f"removal lists are open: {[head.key for head in lists]}")
    intents = state.journal.open_intents(SUBJECT)
    problems.unless(not intents, f"intents are open: {[(one.run_id, one.action) for one in intents]}")
    problems.unless(not state.leases.all(), f"leases are held: {state.leases.all()}")
    every_intent_has_an_outcome(problems, state.journal.events(table=SUBJECT))
    for head, result in closed_lists(state):
        ended = sum(result.get(fate, 0) for fate in ("deleted", "moved", "gone", "left")) + sum(
            result.get("kept", {}).values()
        )
        is_told = ended == head.files or (head.operation == Operation.QUARANTINE and "abandoned" in result)
        problems.unless(is_told, f"{head.key}: {head.files} files, of {ended} the end is told: {result}")
    return after


def _told_is_true(
    problems: Problems, wanted: Wanted, course: Course, after: Sight, counted: Callable[[Sight], int], what: str
) -> None:
    """The journal, and the audit table: each run tells what it removed itself."""
    before: Sight = course.before
    between: Sight = course.between
    run: FolderRun = course.told
    left, told = _gone(wanted, before, between), counted(between) - counted(before)
    problems.unless(told <= left, f"the killed run {what} {left}, told {told}")
    left, told = _gone(wanted, between, after), counted(after) - counted(between)
    problems.unless(told == left, f"the next run {what} {left}, told {told}")
    earlier = [row for row in between.rows if row not in before.rows]
    problems.unless(between.rows[: len(before.rows)] == before.rows, "rows of the audit were lost")
    problems.unless(len(earlier) <= 1, f"the killed run has {len(earlier)} rows")
    for row in earlier:
        _row_is_true(problems, row, wanted, before, between)
    latest = [row for row in after.rows if row not in between.rows]
    is_own = [(row["run_id"], row["database_name"]) for row in latest] == [(run.run_id, "db")]
    problems.unless(is_own, f"the next run has rows {latest}")
    for row in latest:
        _row_is_true(problems, row, wanted, between, after)


def _row_is_true(problems: Problems, row: dict[str, Any], wanted: Wanted, start: Sight, end: Sight) -> None:
    """What was moved by going on with a killed run's list is told by a note, and counts for nobody."""
    went = {folder for folder in wanted.folders if start.of(folder) and not end.of(folder)}
    own = went - start.moving
    told = set(row["deleted_folders"])
    problems.unless(row["status"] == "SUCCESS", f"a row says {row['status']}: {row['error_message']}")
    problems.unless(told == own, f"the run {row['run_id']} removed {sorted(own)}, its row says {sorted(told)}")
    objects = sum(len(start.of(folder)) for folder in own)
    counts = (row["deleted_folder_count"], row["deleted_object_count"])
    problems.unless(counts == (len(own), objects), f"{(len(own), objects)} were removed, the row counts {counts}")
    details = json.loads(row["diagnostic_details"])
    for folder in start.moving:
        is_noted = any(folder in note for note in details["notes"])
        problems.unless(is_noted, f"no note tells that {folder} was moved on: {details['notes']}")
    entries = {entry.path: entry.id for entry in end.entries if entry.path in own}
    problems.unless(
        details["quarantine"] == entries, f"the entries are {entries}, the row says {details['quarantine']}"
    )


def _gone(wanted: Wanted, start: Sight, end: Sight) -> int:
    return sum(len(start.of(folder).keys() - end.of(folder).keys()) for folder in wanted.folders)


def _under(seen: Sight, folder: str, files: dict[str, str], aside: str | None = None) -> dict[str, str]:
    """Digests by the paths at home, of what lies there or in the entry."""
    base = folder if aside is None else aside
    return {path: seen.contents.get(f"{base}{path.removeprefix(folder)}", "") for path in files}


def _audit_rows(place: Place) -> tuple[dict[str, Any], ...]:
    """As PyIceberg reads them, oldest first."""
    catalog = writer(place)
    name = (AUDIT_DATABASE, AUDIT_TABLE)
    if not catalog.table_exists(name):
        return ()
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return tuple(sorted(rows, key=lambda row: (row["start_time"], row["run_id"])))


def _job(place: Place, **fields: Any) -> Path:
    hours = 0 if place.bucket else 24
    switches = {"dry_run": False, "delete_enabled": True, **fields}
    path = place.folder / "application.json"
    path.write_text(json.dumps({"catalog": "main", "databases": ["db"], "older_than_hours": hours, **switches}))
    return path


def _take(contents: dict[str, str], prefix: str) -> dict[str, str]:
    return {path: contents.pop(path) for path in sorted(contents) if path.startswith(prefix)}


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table([[100], ["a"], [1.0]], schema=SCHEMA), stream)
    return stream.getvalue()


def _make_old(place: Place) -> None:
    """So that nothing but its owner protects a file. Objects are as old as they are, and the job takes them at 0 h."""
    then = time.time() - OLD.total_seconds()
    for path in place.files() if not place.bucket else ():
        os.utime(Path(path.removeprefix("file://")), (then, then))


FOLDERS_DELETED = Scenario("folders-deleted", build, delete, look, check_deleted, only_changing=True)
FOLDERS_QUARANTINED = Scenario(
    "folders-quarantined", build_with_audit, quarantine, look, check_quarantined, only_changing=True
)
