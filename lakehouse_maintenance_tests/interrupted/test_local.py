"""Every action on local files, killed at its calls: a sample for every change, all of them in the long run."""

from __future__ import annotations

import pytest

from lakehouse_maintenance_tests.interrupted import orphans, quarantined
from lakehouse_maintenance_tests.interrupted.conftest import Prepare
from lakehouse_maintenance_tests.interrupted.driver import Scenario
from lakehouse_maintenance_tests.interrupted.orphans import REMOVAL
from lakehouse_maintenance_tests.interrupted.quarantined import QUARANTINE
from lakehouse_maintenance_tests.interrupted.scenarios import (
    ENDED_BY_ANOTHER_VERB,
    MORE_RECOVERIES,
    ON_LOCAL_FILES,
    RECOVERIES,
)

Point = tuple[str, int, str]
SAMPLE = 4
SAMPLE_OF_ENDS = 1
SAMPLE_OF_RECOVERY = 2
HOURS = 2 * 3600
"""Seconds; all calls of one scenario take some minutes where nothing else runs."""

each = pytest.mark.parametrize("scenario", ON_LOCAL_FILES, ids=lambda scenario: scenario.name)

each_ended_by_another_verb = pytest.mark.parametrize(
    "scenario", ENDED_BY_ANOTHER_VERB, ids=lambda scenario: scenario.name
)


def _named(recoveries: list[tuple[Scenario, Point]]) -> pytest.MarkDecorator:
    names = [f"{scenario.name}-{' '.join(map(str, point))}" for scenario, point in recoveries]
    return pytest.mark.parametrize(("scenario", "point"), recoveries, ids=names)


each_recovery = _named(RECOVERIES)
every_recovery = _named(RECOVERIES + MORE_RECOVERIES)


@each
def test_killed_at_a_sample_of_its_calls(prepare: Prepare, scenario: Scenario) -> None:
    made = prepare(scenario)
    found = made.interrupt_all(made.sample(SAMPLE))
    assert not found, "\n".join(map(str, found))


def test_copies_and_deletions_count(prepare: Prepare) -> None:
    """Each of them, by which an orphan goes its way: what does not count is never killed."""
    calls = prepare(QUARANTINE).calls
    assert [calls.count(name) for name in ("storage: copy", "storage: link")] == [quarantined.ORPHANS] * 2
    assert calls.count("delete: unlink") == 2 * quarantined.ORPHANS, "of the copy's first name, and of the source"
    assert prepare(REMOVAL).calls.count("delete: unlink") == orphans.ORPHANS


@pytest.mark.long
@pytest.mark.timeout(HOURS)
@pytest.mark.requirement("RS-02")
@each
def test_killed_at_each_of_its_calls(prepare: Prepare, scenario: Scenario) -> None:
    made = prepare(scenario)
    found = made.interrupt_all(made.kills())
    assert not found, "\n".join(map(str, found))


@each_ended_by_another_verb
def test_another_verb_ends_what_was_killed_at_a_sample_of_its_calls(prepare: Prepare, scenario: Scenario) -> None:
    made = prepare(scenario)
    found = made.interrupt_all(made.sample(SAMPLE_OF_ENDS))
    assert not found, "\n".join(map(str, found))


@pytest.mark.long
@pytest.mark.timeout(HOURS)
@each_ended_by_another_verb
def test_another_verb_ends_what_was_killed_at_each_of_its_calls(prepare: Prepare, scenario: Scenario) -> None:
    made = prepare(scenario)
    found = made.interrupt_all(made.kills())
    assert not found, "\n".join(map(str, found))


@each_recovery
def test_the_recovery_is_killed_at_a_sample_of_its_calls(prepare: Prepare, scenario: Scenario, point: Point) -> None:
    made = prepare(scenario)
    recovery = made.recovery(made.point(*point))
    found = recovery.interrupt_all(recovery.sample(SAMPLE_OF_RECOVERY))
    assert not found, "\n".join(map(str, found))


@pytest.mark.long
@pytest.mark.timeout(HOURS)
@pytest.mark.requirement("RS-02")
@every_recovery
def test_the_recovery_is_killed_at_each_of_its_calls(prepare: Prepare, scenario: Scenario, point: Point) -> None:
    made = prepare(scenario)
    recovery = made.recovery(made.point(*point))
    found = recovery.interrupt_all(recovery.kills())
    assert not found, "\n".join(map(str, found))
