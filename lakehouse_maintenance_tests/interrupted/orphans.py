"""Orphan files that are deleted, with everything beside them that has to stay: see driver.Scenario.

Beside the orphans of table `t` lie its own files, older than any cutoff where the store lets them be; a file that only
table `u` references; files in hidden folders; and, on local files, files that are too young.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import explaining
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.removal import Entry, entries, remover
from lakehouse_maintenance.state import State
from lakehouse_maintenance_tests.engine.tables import SCHEMA, many_small_files
from lakehouse_maintenance_tests.interrupted.driver import Course, Scenario
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.soundness import (
    NAME,
    TABLE,
    Expected,
    Problems,
    Seen,
    deletions_are_told,
    every_intent_has_an_outcome,
    expected,
    nothing_is_open,
    open_lake,
    referenced_files_are_there,
    rows_are_there,
    state_of,
    told_as,
    writer,
)

OTHER = "db.u"
ORPHANS = 60
BATCH = 25
OLD = timedelta(days=3)
LIMITS = {"removed_share": 1.0}
ODD = ("data/a b.parquet", "data/100%25.parquet", "data/ä+é.parquet", "data/p=a/deep/er.parquet", "metadata/lost.avro")
"""Names that are easily taken for others."""


@dataclass(frozen=True)
class Wanted:
    """Rows of each table; digests of the orphans, and of every other file, by location."""

    tables: dict[str, Expected]
    orphans: dict[str, str]
    stays: dict[str, str]


@dataclass(frozen=True)
class Sight(Seen):
    """Also what each file holds, the entries of the quarantine, and how many files the journal told as moved."""

    contents: dict[str, str]
    entries: tuple[Entry, ...]
    moved: int


def build(place: Place) -> Wanted:
    """With enough orphans for several batches."""
    return build_with(place, ORPHANS)


def build_with(place: Place, orphans: int) -> Wanted:
    """Two tables, orphans in the first one's folders, and what is none."""
    catalog = writer(place)
    table = many_small_files(catalog, TABLE, commits=2)
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "older").commit()
    folder = table.location()
    many_small_files(catalog, OTHER, commits=1, partitioned=False)
    place.write(f"{folder}/data/of_the_other.parquet", _parquet())
    catalog.load_table(OTHER).add_files([f"{folder}/data/of_the_other.parquet"])
    for name in ("data/_hidden/file.parquet", "data/.hidden.parquet"):
        place.write(f"{folder}/{name}", b"hidden")
    names = [*ODD, *(f"data/orphan-{number}.parquet" for number in range(orphans - len(ODD)))]
    lost = [f"{folder}/{name}" for name in names]
    for path in lost:
        place.write(path, f"of nobody: {path}".encode())
    _make_old(place)
    if not place.bucket:
        place.write(f"{folder}/data/young.parquet", b"young")
    contents = place.contents()
    return Wanted(
        tables={name: expected(place, name) for name in (TABLE, OTHER)},
        orphans={path: contents.pop(path) for path in lost},
        stays=contents,
    )


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table([[100], ["a"], [1.0]], schema=SCHEMA), stream)
    return stream.getvalue()


def _make_old(place: Place) -> None:
    """So that nothing but its owner protects a file. Objects are as old as they are: all are older than the cutoff."""
    then = time.time() - OLD.total_seconds()
    for path in place.files() if not place.bucket else ():
        os.utime(Path(path.removeprefix("file://")), (then, then))


def request(place: Place, removal: str) -> OrphanRequest:
    """Everything that is older than a day; in a bucket, everything that was there a moment ago."""
    if place.bucket:
        return OrphanRequest(older_than=timedelta(0), allow_short_retention=True, removal=removal)
    return OrphanRequest(older_than=timedelta(hours=24), removal=removal)


def lake(place: Place, batch: int = BATCH) -> Lakehouse:
    """With batches that are small, for the rest of this process's life."""
    for module in (remover, explaining):
        vars(module)["BATCH"] = batch
    return open_lake(place, limits=LIMITS)


def delete(place: Place) -> OrphanResult:
    """The orphans of `t`."""
    return lake(place).orphans((NAME,), request(place, "delete"), delete=True).tables[0]


def maintain(place: Place) -> TableOutcome:
    """A run in which nothing is due by itself."""
    return lake(place).maintain((NAME,)).tables[0]


def delete_and_maintain(place: Place) -> tuple[OrphanResult, TableOutcome]:
    """The next run."""
    return delete(place), maintain(place)


def maintain_and_delete(place: Place) -> tuple[OrphanResult, TableOutcome]:
    """The next run is another verb's."""
    maintained = maintain(place)
    return delete(place), maintained


def look(place: Place) -> Sight:
    """As things are now."""
    state = state_of(place)
    events = state.journal.events(table=NAME)
    contents = place.contents()
    snapshots = writer(place).load_table(TABLE).metadata.snapshots
    return Sight(
        files=frozenset(contents),
        snapshots=frozenset(snapshot.snapshot_id for snapshot in snapshots),
        events=len(events),
        deleted=told_as("deleted", events),
        contents=contents,
        entries=entries_of(state),
        moved=told_as("moved", events),
    )


def check(place: Place, wanted: Wanted, course: Course) -> list[str]:
    """The orphans are gone, everything else is as it was, and the journal says so."""
    problems = Problems()
    removed, maintained = course.told
    is_done(problems, removed, maintained)
    after = look(place)
    events = all_is_as_it_was(problems, place, wanted, after)
    left = sorted(wanted.orphans.keys() & after.contents.keys())
    problems.unless(not left, f"{len(left)} orphans are left: {left[:3]}")
    nothing_else_is_there(problems, after, wanted.stays)
    deletions_are_told(problems, state_of(place), events, course, after.files)
    told = told_as("deleted", events)
    problems.unless(told <= len(wanted.orphans), f"{told} files are told as deleted, of {len(wanted.orphans)}")
    is_explained(problems, place, wanted, events, "deleted")
    return problems.lines


def is_done(problems: Problems, *told: OrphanResult | TableOutcome) -> None:
    """The next run had nothing to complain of."""
    for one in told:
        well = one.status in (Status.DONE, Status.SKIPPED)
        problems.unless(well, f"the next run ended {one.status}: {one.reason}")


def all_is_as_it_was(problems: Problems, place: Place, wanted: Wanted, after: Sight) -> list[Event]:
    """Whatever becomes of the orphans: both tables, all other files, and nothing of ours left open. The events of t."""
    state = state_of(place)
    for name, rows in wanted.tables.items():
        table = writer(place).load_table(name)
        rows_are_there(problems, table, rows)
        referenced_files_are_there(problems, table, after.files)
    for path, digest in wanted.stays.items():
        found = after.contents.get(path, "nothing")
        problems.unless(found == digest, f"{path} holds {found}, not what it held")
    nothing_is_open(problems, state)
    events = state.journal.events(table=NAME)
    every_intent_has_an_outcome(problems, events)
    return events


def nothing_else_is_there(problems: Problems, after: Sight, there: Iterable[str]) -> None:
    """No file that nobody knows."""
    strange = sorted(after.files.difference(there))
    problems.unless(not strange, f"{len(strange)} files appeared: {strange[:3]}")


def is_explained(problems: Problems, place: Place, wanted: Wanted, events: list[Event], fate: str) -> None:
    """`explain` says what became of an orphan in the end, and whose the file beside it is."""
    ours = lake(place)
    for path in (min(wanted.orphans), max(wanted.orphans)):
        told = ours.explain(path)
        problems.unless(told.ownership.owned is False, f"explain: {path} is owned: {told.ownership}")
        fates = [decision.fate for decision in told.journal if decision.phase == "outcome"]
        problems.unless(fates[-1:] == [fate], f"explain: {path} ended {fates}, not {fate}")
        runs = {decision.run_id for decision in told.journal} - {event.run_id for event in events}
        problems.unless(not runs, f"explain: runs that the journal does not know: {runs}")
    path = next(path for path in wanted.stays if path.endswith("of_the_other.parquet"))
    told = ours.explain(path)
    owners = [owner.table for owner in told.ownership.by]
    problems.unless(owners == [f"main.{OTHER}"], f"explain: {path} is owned by {owners}")
    problems.unless(not told.journal, f"explain: {path} was decided about: {told.journal}")


def entries_of(state: State) -> tuple[Entry, ...]:
    """Those that can be read: a damaged one is missing where it is looked for."""
    return tuple(entry for entry in entries(state) if isinstance(entry, Entry))


def _scenario(name: str, follow: Any) -> Scenario:
    return Scenario(name, build, delete, look, check, follow, only_changing=True)


REMOVAL = _scenario("orphan-removal", delete_and_maintain)
REMOVAL_ENDED_BY_MAINTAIN = _scenario("orphan-removal-ended-by-maintain", maintain_and_delete)
