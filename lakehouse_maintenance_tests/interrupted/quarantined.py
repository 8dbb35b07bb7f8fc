"""Orphan files that are moved to quarantine, brought back, and purged: see driver.Scenario."""

from __future__ import annotations

from datetime import timedelta

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution.quarantining import Quarantined
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.removal import Entry, EntryState, read_list
from lakehouse_maintenance.removal.quarantine import put_part, read_part, record
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.interrupted import orphans
from lakehouse_maintenance_tests.interrupted.driver import Course, Scenario
from lakehouse_maintenance_tests.interrupted.orphans import Sight, Wanted, look
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.soundness import NAME, Problems, closed_lists, state_of, told_as

ORPHANS = 12
BATCH = 5


def lake(place: Place) -> Lakehouse:
    """With batches that are small."""
    return orphans.lake(place, BATCH)


def build(place: Place) -> Wanted:
    """Orphans at their places."""
    return orphans.build_with(place, ORPHANS)


def quarantine(place: Place) -> OrphanResult:
    """Moves them aside."""
    return lake(place).orphans((NAME,), orphans.request(place, "quarantine"), delete=True).tables[0]


def quarantine_and_maintain(place: Place) -> tuple[OrphanResult, TableOutcome]:
    """The next run."""
    return quarantine(place), orphans.maintain(place)


def build_quarantined(place: Place) -> Wanted:
    """Orphans in quarantine already; they are still expected under the names that they had."""
    wanted = build(place)
    moved = quarantine(place)
    assert (moved.status, moved.deleted_files) == (Status.DONE, ORPHANS), moved
    return wanted


def restore(place: Place) -> tuple[Quarantined, ...]:
    """Brings them back."""
    return (lake(place).restore(_only_entry(place).id),)


def purge(place: Place) -> tuple[Quarantined, ...]:
    """Deletes them, whatever their time."""
    return tuple(lake(place).purge(_only_entry(place).id, timedelta(0)))


def maintain_and_restore(place: Place) -> tuple[Quarantined | TableOutcome, ...]:
    """The next run is another verb's."""
    lake(place)
    return orphans.maintain(place), *restore(place)


def maintain_and_purge(place: Place) -> tuple[Quarantined | TableOutcome, ...]:
    """The next run is another verb's."""
    lake(place)
    return orphans.maintain(place), *purge(place)


def record_again(place: Place) -> None:
    """A bucket's objects have other times after they were put back; the entry has to know them by these."""
    if not place.bucket:
        return
    state, storage = state_of(place), Storage.from_properties(place.catalog)
    for entry in orphans.entries_of(state):
        for number in range(entry.parts):
            there = [(kept.rest, storage.stat(entry.aside(kept))) for kept in read_part(state, entry, number) or ()]
            put_part(state, entry, number, [record(rest, info) for rest, info in there if info is not None])


def check_quarantined(place: Place, wanted: Wanted, course: Course) -> list[str]:
    """Each orphan is in quarantine, and nowhere else; it never was nowhere."""
    problems = Problems()
    orphans.is_done(problems, *course.told)
    after = look(place)
    events = orphans.all_is_as_it_was(problems, place, wanted, after)
    states = [entry.state for entry in after.entries]
    problems.unless(states == [EntryState.QUARANTINED], f"the entries are {states}")
    _entries_fit(problems, state_of(place), wanted, after)
    _never_nowhere(problems, wanted, course.between)
    places = _aside(wanted, after)
    for path, aside in places.items():
        problems.unless(path not in after.contents, f"{path} is at its place")
        found = [after.contents.get(one) for one in aside if one in after.contents]
        problems.unless(found == [wanted.orphans[path]], f"{path} is in quarantine {len(found)} times, or differs")
    known = {one for aside in places.values() for one in aside}
    orphans.nothing_else_is_there(problems, after, known | wanted.stays.keys())
    _moves_are_told(problems, course, after, frozenset(wanted.orphans))
    _lists_end(problems, state_of(place), after)
    problems.unless(told_as("deleted", events) == 0, "files are told as deleted")
    orphans.is_explained(problems, place, wanted, events, "moved into quarantine")
    return problems.lines


def check_restored(place: Place, wanted: Wanted, course: Course) -> list[str]:
    """Each orphan is under its name again; nothing of the entry is left."""
    problems = Problems()
    _is_done(problems, course.told)
    after = look(place)
    events = orphans.all_is_as_it_was(problems, place, wanted, after)
    states = [entry.state for entry in after.entries]
    problems.unless(states == [EntryState.RESTORED], f"the entries are {states}")
    _entries_fit(problems, state_of(place), wanted, after)
    _never_nowhere(problems, wanted, course.between)
    for path, digest in wanted.orphans.items():
        problems.unless(after.contents.get(path) == digest, f"{path} is not what it was")
    orphans.nothing_else_is_there(problems, after, wanted.orphans.keys() | wanted.stays.keys())
    aside = frozenset(one for places in _aside(wanted, after).values() for one in places)
    _moves_are_told(problems, course, after, aside)
    _lists_end(problems, state_of(place), after)
    problems.unless(told_as("deleted", events) == 0, "files are told as deleted")
    orphans.is_explained(problems, place, wanted, events, "restored")
    return problems.lines


def check_purged(place: Place, wanted: Wanted, course: Course) -> list[str]:
    """The orphans are gone from both places."""
    problems = Problems()
    _is_done(problems, course.told)
    after = look(place)
    events = orphans.all_is_as_it_was(problems, place, wanted, after)
    states = [entry.state for entry in after.entries]
    problems.unless(states == [EntryState.PURGED], f"the entries are {states}")
    _entries_fit(problems, state_of(place), wanted, after)
    orphans.nothing_else_is_there(problems, after, wanted.stays)
    before: Sight = course.before
    between: Sight = course.between
    gone, told = len(before.files - between.files), between.deleted - before.deleted
    problems.unless(told <= gone, f"the killed run purged {gone}, told {told}")
    gone, told = len(between.files - after.files), after.deleted - between.deleted
    problems.unless(told == gone, f"the next run purged {gone}, told {told}")
    _lists_end(problems, state_of(place), after)
    orphans.is_explained(problems, place, wanted, events, "purged")
    return problems.lines


def _only_entry(place: Place) -> Entry:
    (entry,) = orphans.entries_of(state_of(place))
    return entry


def _is_done(problems: Problems, told: tuple[Quarantined | TableOutcome, ...]) -> None:
    for one in told:
        if isinstance(one, TableOutcome):
            orphans.is_done(problems, one)
        else:
            problems.unless(one.status == Status.DONE, f"the next run ended {one.status}: {one.why}")
            problems.unless(not one.notes or "before" in one.notes[0], f"the next run notes: {one.notes}")


def _aside(wanted: Wanted, seen: Sight) -> dict[str, list[str]]:
    """Where each orphan is in quarantine, by every entry that there is."""
    found: dict[str, list[str]] = {path: [] for path in wanted.orphans}
    for entry in seen.entries:
        for path, places in found.items():
            rest = entry.rest_of(Location.parse(path))
            if rest is not None:
                places.append(f"{entry.quarantined_path}/{rest}")
    return found


def _never_nowhere(problems: Problems, wanted: Wanted, seen: Sight) -> None:
    for path, aside in _aside(wanted, seen).items():
        held = [seen.contents[one] for one in (path, *aside) if one in seen.contents]
        whole = bool(held) and all(one == wanted.orphans[path] for one in held)
        problems.unless(whole, f"after the kill {path} was at {len(held)} places, or was another there")


def _entries_fit(problems: Problems, state: State, wanted: Wanted, seen: Sight) -> None:
    """Heads count what their parts hold, and together every orphan once."""
    named: list[str] = []
    for entry in seen.entries:
        kept = [one for number in range(entry.parts) for one in read_part(state, entry, number) or ()]
        counts = (len(kept), sum(one.size for one in kept))
        fits = counts == (entry.objects, entry.bytes)
        problems.unless(fits, f"{entry.id} counts {(entry.objects, entry.bytes)}, its parts hold {counts}")
        named += [entry.at_home(one).text for one in kept]
    problems.unless(sorted(named) == sorted(wanted.orphans), f"the entries name {len(named)} objects")


def _moves_are_told(problems: Problems, course: Course, after: Sight, leave: frozenset[str]) -> None:
    """Told as moved is what left its place: by the killed run no more than did, by the next one exactly that."""
    before: Sight = course.before
    between: Sight = course.between
    left, told = len(leave & before.files - between.files), between.moved - before.moved
    problems.unless(told <= left, f"the killed run moved {left}, told {told}")
    left, told = len(leave & between.files - after.files), after.moved - between.moved
    problems.unless(told == left, f"the next run moved {left}, told {told}")


def _lists_end(problems: Problems, state: State, seen: Sight) -> None:
    """Of each object of a list the end is told once."""
    objects = {entry.id: entry.objects for entry in seen.entries}
    for head, result in closed_lists(state):
        if "abandoned" in result:
            continue
        named = sum(len(part) for part in read_list(state, head)) if head.files else objects.get(str(head.entry))
        ended = sum(result.get(fate, 0) for fate in ("deleted", "moved", "gone")) + sum(result["kept"].values())
        problems.unless(ended == named, f"{head.key} ({head.operation}): {named} files, of {ended} the end is told")


QUARANTINE = Scenario(
    "quarantine", build, quarantine, look, check_quarantined, quarantine_and_maintain, only_changing=True
)
RESTORE = Scenario("restore", build_quarantined, restore, look, check_restored, again=record_again, only_changing=True)
RESTORE_ENDED_BY_MAINTAIN = Scenario(
    "restore-ended-by-maintain",
    build_quarantined,
    restore,
    look,
    check_restored,
    maintain_and_restore,
    record_again,
    only_changing=True,
)
PURGE = Scenario("purge", build_quarantined, purge, look, check_purged, again=record_again, only_changing=True)
PURGE_ENDED_BY_MAINTAIN = Scenario(
    "purge-ended-by-maintain",
    build_quarantined,
    purge,
    look,
    check_purged,
    maintain_and_purge,
    record_again,
    only_changing=True,
)
