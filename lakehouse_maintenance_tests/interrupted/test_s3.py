"""The same actions on a real S3 server."""

from __future__ import annotations

import pytest

from lakehouse_maintenance_tests.interrupted.conftest import Prepare
from lakehouse_maintenance_tests.interrupted.driver import Scenario
from lakehouse_maintenance_tests.interrupted.scenarios import ON_S3

SAMPLE = 1
HOURS = 2 * 3600
"""Seconds."""

each = pytest.mark.parametrize("scenario", ON_S3, ids=lambda scenario: scenario.name)


@each
def test_killed_at_a_sample_of_its_calls(prepare_on_s3: Prepare, scenario: Scenario) -> None:
    made = prepare_on_s3(scenario)
    found = made.interrupt_all(made.sample(SAMPLE))
    assert not found, "\n".join(map(str, found))


@pytest.mark.long
@pytest.mark.timeout(HOURS)
@pytest.mark.requirement("RS-02")
@each
def test_killed_at_each_of_its_calls(prepare_on_s3: Prepare, scenario: Scenario) -> None:
    made = prepare_on_s3(scenario)
    found = made.interrupt_all(made.kills())
    assert not found, "\n".join(map(str, found))
