"""One warm process a worker, and scenarios built once a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lakehouse_maintenance_tests.interrupted.driver import Prepared, Scenario
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.warm import WarmProcess
from lakehouse_maintenance_tests.services.s3 import S3Server

Prepare = Callable[[Scenario], Prepared]


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmProcess]:
    process = WarmProcess()
    yield process
    process.close()


@pytest.fixture(scope="module")
def prepare(warm: WarmProcess, tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Builds a scenario on local files, once however often it is asked for."""
    made: dict[str, Prepared] = {}

    def built(scenario: Scenario) -> Prepared:
        if scenario.name not in made:
            made[scenario.name] = Prepared(scenario, Place(tmp_path_factory.mktemp(scenario.name)), warm)
            made[scenario.name].build()
        return made[scenario.name]

    return built


@pytest.fixture(scope="module")
def prepare_on_s3(warm: WarmProcess, tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Prepare:
    """As `prepare`, with the tables in a bucket of the scenario's own; state and catalog stay local."""
    made: dict[str, Prepared] = {}

    def built(scenario: Scenario) -> Prepared:
        if scenario.name not in made:
            place = Place(tmp_path_factory.mktemp(f"{scenario.name}-on-s3"), s3.bucket(), s3.properties)
            made[scenario.name] = Prepared(scenario, place, warm)
            made[scenario.name].build()
        return made[scenario.name]

    return built
