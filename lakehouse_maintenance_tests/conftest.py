"""What holds for every test: marks in the report, needs of the machine, work groups, and Hypothesis' profiles."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.database import DirectoryBasedExampleDatabase

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

pytest_plugins = [
    "lakehouse_maintenance_tests.golden.fixture",
    "lakehouse_maintenance_tests.services.catalogs",
    "lakehouse_maintenance_tests.services.postgres",
    "lakehouse_maintenance_tests.services.s3",
    "lakehouse_maintenance_tests.services.states",
    "lakehouse_maintenance_tests.services.rest",  # after s3, whose asserts could not be rewritten otherwise
    "lakehouse_maintenance_tests.services.spark.session",
]

ROOT = Path(__file__).parent.parent
REQUIREMENT_ID = re.compile(r"[A-Z]{2}-\d+")
IN_CI = os.environ.get("CI") == "true"


def _spark() -> str | None:
    # Not at the top: pytest must load the plugin first, to rewrite its asserts.
    from lakehouse_maintenance_tests.services.spark.session import why_unavailable

    return why_unavailable()


def _iceberg_rest() -> str | None:
    from lakehouse_maintenance_tests.services.rest import why_unavailable

    return why_unavailable()


def _command(name: str, package: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(name) else f"needs {package}: no {name} on PATH"


# Marker → says in one line what this machine lacks, or None.
NEEDS: dict[str, Callable[[], str | None]] = {
    "needs_java": functools.cache(_spark),
    "needs_iceberg_rest": functools.cache(_iceberg_rest),
    "needs_node": _command("npm", "Node.js"),
    "needs_go": _command("go", "Go"),
}


def _register_hypothesis_profiles() -> None:
    """`fast` for every change, `long` for `make test-long`; in CI the same examples each time, elsewhere new ones."""
    home = ROOT / "build" / "hypothesis"
    set_hypothesis_home_dir(home)
    # Hypothesis refuses a database beside derandomize: the examples follow from the test's source alone.
    source = {"derandomize": True} if IN_CI else {"database": DirectoryBasedExampleDatabase(home / "examples")}
    # No deadline: test servers and the other workers share the machine's cores.
    common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True, **source}
    settings.register_profile("fast", max_examples=60, **common)
    settings.register_profile("long", max_examples=2_000, **common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


_register_hypothesis_profiles()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before xdist appends group names to node ids and before `-m` selects by marks."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("needs_java")
        _record_requirements(item)
        _assign_group(item)
    # Groups are handed out in this order: Spark's, the longest, must not be the last to start.
    items.sort(key=lambda item: item.get_closest_marker("needs_java") is None)


def _record_requirements(item: pytest.Item) -> None:
    """Each id of the test's `requirement` marks, once, as a property of its case in the JUnit report."""
    ids = {one: None for mark in item.iter_markers("requirement") for one in mark.args}
    for one in ids:
        if not REQUIREMENT_ID.fullmatch(str(one)):
            raise pytest.UsageError(f"{item.nodeid}: {one!r} is no requirement id (two capitals, a dash, a number)")
        item.user_properties.append(("requirement", one))


def _assign_group(item: pytest.Item) -> None:
    """One worker a module, so that module fixtures are made once; one worker for all of Spark, so one session."""
    if item.get_closest_marker("xdist_group") is None:
        spark = item.get_closest_marker("needs_java") is not None
        item.add_marker(pytest.mark.xdist_group("spark" if spark else item.path.relative_to(ROOT).as_posix()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController, ids: list[str]) -> None:
    """Refuses a pytest that keeps xdist from adding groups to node ids: Spark would start in every worker, silently."""
    if node.config.getoption("dist") == "loadgroup" and not all("@" in one for one in ids):
        raise pytest.UsageError(f"pytest {pytest.__version__} drops xdist's groups: install requirements/dev.txt")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Takes off the group that xdist appended, so that reports and `--last-failed` name tests as they are called."""
    name, at, group = report.nodeid.rpartition("@")
    if at and "]" not in group and hasattr(report, "node"):
        report.nodeid = name


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose needs this machine lacks, before any of its fixtures start; in CI it fails."""
    for marker, missing in NEEDS.items():
        if item.get_closest_marker(marker) is not None and (reason := missing()) is not None:
            if IN_CI:
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
