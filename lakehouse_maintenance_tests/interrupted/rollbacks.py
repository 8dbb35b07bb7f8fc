"""A branch that is set back to an earlier snapshot: see driver.Scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakehouse_maintenance.execution.work import ROLLBACK
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance_tests.engine.tables import many_small_files
from lakehouse_maintenance_tests.interrupted import soundness
from lakehouse_maintenance_tests.interrupted.driver import Course, Scenario
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.soundness import (
    NAME,
    TABLE,
    Expected,
    Problems,
    Seen,
    every_intent_has_an_outcome,
    expected,
    nothing_is_left,
    nothing_is_open,
    open_lake,
    referenced_files_are_there,
    rows_are_there,
    state_of,
    writer,
)

MAIN = "main"


@dataclass(frozen=True)
class Sight(Seen):
    """Also where the branch stands."""

    head: int


def build(place: Place) -> Expected:
    """Four snapshots; the second is where the branch shall stand, whatever happens on the way."""
    table = many_small_files(writer(place), TABLE, commits=4)
    table.manage_snapshots().create_tag(table.metadata.snapshots[2].snapshot_id, "kept").commit()
    wanted = expected(place)
    return replace(wanted, refs={**wanted.refs, MAIN: wanted.snapshots[_target(place)]})


def roll_back(place: Place) -> TableOutcome | None:
    """None where the branch stands there already."""
    try:
        return open_lake(place).rollback(NAME, to=_target(place)).tables[0]
    except InputError as error:
        if "stands at snapshot" not in error.message:
            raise
        return None


def look(place: Place) -> Sight:
    """As things are now."""
    return Sight(**vars(soundness.look(place)), head=_head(place))


def check(place: Place, wanted: Expected, course: Course) -> list[str]:
    """The branch stands where it should, every snapshot reads as ever, and one run is told to have moved it."""
    problems = Problems()
    told: TableOutcome | None = course.told
    if told is not None:
        problems.unless(told.status == Status.DONE, f"the next run ended {told.status}: {told.reason}")
    stood_there = course.between.head == _target(place)
    problems.unless((told is None) == stood_there, f"before the next run the branch stood at {course.between.head}")
    problems.unless(_head(place) == _target(place), f"the branch stands at {_head(place)}")
    table = writer(place).load_table(TABLE)
    rows_are_there(problems, table, wanted)
    files = frozenset(place.files())
    referenced = referenced_files_are_there(problems, table, files)
    nothing_is_left(problems, files - referenced, wanted)
    lost = sorted(course.before.files - files)
    problems.unless(not lost, f"{len(lost)} files are gone: {lost[:3]}")
    state = state_of(place)
    nothing_is_open(problems, state)
    events = state.journal.events(table=NAME)
    every_intent_has_an_outcome(problems, events)
    _one_run_moved_it(problems, events, course, _target(place))
    return problems.lines


def _one_run_moved_it(problems: Problems, events: Sequence[Event], course: Course, target: int) -> None:
    ends = {event.run_id: event.status for event in events if (event.action, event.phase) == (ROLLBACK, "outcome")}
    killed = {event.run_id for event in events[: course.between.events]}
    moved = [run_id for run_id, status in ends.items() if status == Status.DONE]
    problems.unless(len(moved) == 1, f"the journal says that the branch was moved by {len(moved)} runs: {ends}")
    stood_there = course.between.head == target
    fits = set(moved) <= killed if stood_there else not set(moved) & killed
    problems.unless(fits, f"the killed runs {'moved' if stood_there else 'did not move'} it, the journal says {ends}")


def _target(place: Place) -> int:
    return writer(place).load_table(TABLE).metadata.snapshots[1].snapshot_id


def _head(place: Place) -> int:
    return writer(place).load_table(TABLE).metadata.refs[MAIN].snapshot_id


ROLLING_BACK = Scenario("rollback", build, roll_back, look, check)
