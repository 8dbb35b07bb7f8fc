"""What has to hold after any kill and the next run, told by readers that are not the product's.

Rows are read by PyIceberg, files are counted in the store, and the journal is held against both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.removal import RemovalList, open_lists, read_list
from lakehouse_maintenance.removal.remover import REMOVE_FILES
from lakehouse_maintenance.state import State, open_state
from lakehouse_maintenance.state.leases import utc_now
from lakehouse_maintenance_tests.interrupted.driver import Course
from lakehouse_maintenance_tests.interrupted.places import Place

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

TABLE = "db.t"
NAME = f"main.{TABLE}"
RUN_ID = "lakehouse-maintenance.run-id"

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Expected:
    """Rows of each ref and of each snapshot, as they were built. `stays`: snapshots that no action may let go.

    `leftovers`: whether files may be left that nothing references. `attempts`: metadata files of commits that were
    killed before they were visible, as many as there are kills.
    """

    refs: dict[str, Rows]
    snapshots: dict[int, Rows]
    stays: frozenset[int]
    leftovers: bool = False
    attempts: int = 2


@dataclass(frozen=True)
class Seen:
    """The store, the table, and how many events and deletions the journal had told."""

    files: frozenset[str]
    snapshots: frozenset[int]
    events: int
    deleted: int


@dataclass
class Problems:
    """Lines for people."""

    lines: list[str] = field(default_factory=list)

    def unless(self, holds: bool, line: str) -> None:
        """Adds the line where something does not hold."""
        if not holds:
            self.lines.append(line)


def writer(place: Place) -> SqlCatalog:
    """PyIceberg's own catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {key: value for key, value in place.catalog.items() if key != "type"}
    return SqlCatalog("main", **properties)


def open_lake(place: Place, **config: Any) -> Lakehouse:
    """The product on the place; the clock of its leases is as far ahead as the place says."""
    settings = {"catalogs": {"main": place.catalog}, "state": {"url": str(place.folder / "state")}, **config}
    loaded = config_from_mapping(settings, base=place.folder)
    return Lakehouse(loaded, state_of(place))


def state_of(place: Place) -> State:
    """The state, with the place's clock."""
    ahead: timedelta = place.ahead
    return open_state(str(place.folder / "state"), now=lambda: utc_now() + ahead)


def expected(
    place: Place, name: str = TABLE, *, stays: Sequence[int] | None = None, leftovers: bool = False
) -> Expected:
    """What there is now, as what shall be there in the end. `stays`: all snapshots, unless told otherwise."""
    table = writer(place).load_table(name)
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    return Expected(
        refs={name: rows(table, ref.snapshot_id) for name, ref in table.metadata.refs.items()},
        snapshots={snapshot_id: rows(table, snapshot_id) for snapshot_id in ids},
        stays=frozenset(ids if stays is None else stays),
        leftovers=leftovers,
    )


def rows(table: Table, snapshot_id: int) -> Rows:
    """All rows of a snapshot, sorted."""
    arrow = table.scan(snapshot_id=snapshot_id).to_arrow()
    return sorted(zip(*(arrow[name].to_pylist() for name in arrow.column_names), strict=True))


def look(place: Place) -> Seen:
    """As things are now."""
    snapshots = writer(place).load_table(TABLE).metadata.snapshots
    events = state_of(place).journal.events(table=NAME)
    return Seen(
        files=frozenset(place.files()),
        snapshots=frozenset(snapshot.snapshot_id for snapshot in snapshots),
        events=len(events),
        deleted=_told_as_deleted(events),
    )


def check(place: Place, wanted: Expected, course: Course) -> list[str]:
    """Everything that holds for actions on one Iceberg table."""
    told: TableOutcome = course.told
    problems = Problems()
    table = writer(place).load_table(TABLE)
    state = state_of(place)
    files = frozenset(place.files())
    problems.unless(told.status in (Status.DONE, Status.SKIPPED), f"the next run ended {told.status}: {told.reason}")
    rows_are_there(problems, table, wanted)
    referenced = referenced_files_are_there(problems, table, files)
    nothing_is_open(problems, state)
    events = state.journal.events(table=NAME)
    every_intent_has_an_outcome(problems, events)
    commits_are_told(problems, events, table, course.between)
    deletions_are_told(problems, state, events, course, files)
    nothing_is_left(problems, files - referenced, wanted)
    return problems.lines


def rows_are_there(problems: Problems, table: Table, wanted: Expected) -> None:
    """Every ref and every snapshot reads the rows it had."""
    refs = table.metadata.refs
    problems.unless(set(refs) == set(wanted.refs), f"refs are {sorted(refs)}, not {sorted(wanted.refs)}")
    now = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    problems.unless(wanted.stays <= now, f"snapshots are gone that should stay: {sorted(wanted.stays - now)}")
    heads = {ref.snapshot_id: name for name, ref in refs.items() if name in wanted.refs}
    for snapshot_id in now:
        should = wanted.refs[heads[snapshot_id]] if snapshot_id in heads else wanted.snapshots.get(snapshot_id)
        try:
            found = rows(table, snapshot_id)
        except Exception as error:
            problems.lines.append(f"snapshot {snapshot_id} ({heads.get(snapshot_id)}) cannot be read: {error!r}")
            continue
        same = should is None or found == should
        problems.unless(same, f"snapshot {snapshot_id} ({heads.get(snapshot_id)}) has other rows")


def referenced_files_are_there(problems: Problems, table: Table, files: frozenset[str]) -> frozenset[str]:
    """Returns what the table references, its history of metadata files included."""
    needed = {table.metadata_location, *_snapshot_files(table)}
    needed |= {one.statistics_path for one in table.metadata.statistics}
    missing = sorted(needed - files)
    problems.unless(not missing, f"{len(missing)} referenced files are gone: {missing[:3]}")
    return frozenset(needed | {one.metadata_file for one in table.metadata.metadata_log})


def nothing_is_left(problems: Problems, unreferenced: frozenset[str], wanted: Expected) -> None:
    """No file that nothing references, but for metadata files of commits that did not come through."""
    # PyIceberg names a new metadata file inside of its `commit_table`, so nobody can announce it before it is written:
    # what a kill leaves between that and the pointer's move is for the removal of orphan files to find.
    left = sorted(path for path in unreferenced if not path.endswith(".metadata.json"))
    problems.unless(wanted.leftovers or not left, f"{len(left)} files are left that nothing references: {left[:3]}")
    attempts = len(unreferenced) - len(left)
    problems.unless(attempts <= wanted.attempts, f"{attempts} metadata files are left that nothing references")


def _snapshot_files(table: Table) -> Iterator[str]:
    """Manifest lists, manifests, and live files, each as often as it is named."""
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path


def nothing_is_open(problems: Problems, state: State) -> None:
    """No removal list, no intent, no lease."""
    lists = open_lists(state, NAME)
    problems.unless(not lists, f"removal lists are open: {[head.key for head in lists]}")
    intents = state.journal.open_intents(NAME)
    problems.unless(not intents, f"intents are open: {[(one.run_id, one.action) for one in intents]}")
    leases = state.leases.all()
    problems.unless(not leases, f"leases are held: {leases}")


def every_intent_has_an_outcome(problems: Problems, events: Sequence[Event]) -> None:
    """Of the same run and action, and after it."""
    last: dict[tuple[str, str], str] = {}
    for event in events:
        last[event.run_id, event.action] = event.phase
    without = [key for key, phase in last.items() if phase != "outcome"]
    problems.unless(not without, f"intents without an outcome: {without}")


def commits_are_told(problems: Problems, events: Sequence[Event], table: Table, seen: Seen) -> None:
    """What an outcome says of a commit is what the table showed when it was said."""
    outcomes = {(one.run_id, one.action): one for one in events if one.phase == "outcome"}
    summaries = {s.snapshot_id: s.summary for s in table.metadata.snapshots if s.summary is not None}
    ours = {one: summary[RUN_ID] for one, summary in summaries.items() if RUN_ID in summary.additional_properties}
    for snapshot_id, run_id in ours.items():
        told = outcomes.get((str(run_id), str(Action.REWRITE_DATA_FILES)))
        is_told = told is not None and _tells_of(told, snapshot_id)
        problems.unless(is_told, f"snapshot {snapshot_id} of run {run_id} is in the table, the journal says {told}")
    for (run_id, action), told in outcomes.items():
        if action == Action.REWRITE_DATA_FILES and told.status == Status.DONE:
            problems.unless(run_id in ours.values(), f"run {run_id} committed nothing, the journal says {told}")
    for told in events[seen.events :]:
        if told.action == Action.EXPIRE_SNAPSHOTS and told.details.get("recovered"):
            _recovered_expiry_is_told(problems, events, told, seen)


def _tells_of(told: Event, snapshot_id: int) -> bool:
    """Done, or not done to the end where the run was to make more commits than there are."""
    how = told.status == Status.DONE or "that were to be committed after it are not done" in told.details.get("why", "")
    return how and snapshot_id in told.details.get("snapshot_ids", ())


def _recovered_expiry_is_told(problems: Problems, events: Sequence[Event], told: Event, seen: Seen) -> None:
    asked = {int(i) for one in events if one.run_id == told.run_id for i in one.details.get("expires", ())}
    went = bool(asked) and not asked & seen.snapshots
    is_told = (told.status == Status.DONE) == went
    problems.unless(is_told, f"the killed run's snapshots {'are' if went else 'are not'} gone, the journal says {told}")


def _told_as_deleted(events: Sequence[Event]) -> int:
    return told_as("deleted", events)


def told_as(fate: str, events: Sequence[Event]) -> int:
    """Of how many files the journal tells this fate."""
    outcomes = [event for event in events if event.action == REMOVE_FILES and event.phase == "outcome"]
    return sum(event.details.get("fates", {}).get(fate, 0) for event in outcomes)


def deletions_are_told(
    problems: Problems, state: State, events: Sequence[Event], course: Course, after: frozenset[str]
) -> None:
    """A killed run told no more as deleted than is gone, the last one exactly that; lists end as their files did."""
    before: Seen = course.before
    between: Seen = course.between
    gone, told = len(before.files - between.files), between.deleted - before.deleted
    problems.unless(told <= gone, f"the killed run deleted {gone}, told {told}")
    gone, told = len(between.files - after), _told_as_deleted(events) - between.deleted
    problems.unless(told == gone, f"the next run deleted {gone}, told {told}")
    listed: dict[str, set[str]] = {}
    for head, result in sorted(closed_lists(state), key=lambda pair: pair[0].at_ms):
        paths = {candidate.path for part in read_list(state, head) for candidate in part}
        listed[head.key] = paths
        kept = sum(result.get("kept", {}).values())
        # What one list kept, since it was still needed, a later one may have let go.
        there = len(paths & after)
        problems.unless(kept >= there, f"{head.key}: {there} of its files are there, told as kept: {kept}")
        ended = kept + result.get("deleted", 0) + result.get("gone", 0)
        problems.unless(ended == len(paths), f"{head.key}: {len(paths)} files, of {ended} the end is told: {result}")
    unlisted = sorted((before.files - after).difference(*listed.values()))
    problems.unless(not unlisted, f"{len(unlisted)} files are gone that no list names: {unlisted[:3]}")
    _kept_files_are_there(problems, events, listed, after)


def _kept_files_are_there(
    problems: Problems, events: Sequence[Event], listed: dict[str, set[str]], after: frozenset[str]
) -> None:
    keys = list(listed)
    for event in events:
        key = event.details.get("removal_list")
        if event.action != REMOVE_FILES or key not in listed:
            continue
        later: set[str] = set().union(*(listed[one] for one in keys[keys.index(key) + 1 :]))
        told = {path for path, what in event.details.get("not_done", {}).items() if what.startswith("kept")}
        gone = sorted(told - after - later)
        problems.unless(not gone, f"{len(gone)} files are gone that were told as kept: {gone[:3]}")


def closed_lists(state: State) -> Iterator[tuple[RemovalList, dict[str, Any]]]:
    """Heads of the lists that are finished, with what became of each."""
    for key in state.keys("removals/"):
        stored = state.get(key)
        if stored is not None and key.count("/") == 2:
            data = json.loads(stored[0])
            if not data.pop("open"):
                result = data.pop("result")
                yield RemovalList(**data), result
