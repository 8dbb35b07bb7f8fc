"""Fixtures of Dagster's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse_maintenance_tests.orchestration.lake import Lake, make_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty lakehouse with an instance of its own."""
    made = make_lake(tmp_path)
    with made.instance:
        yield made
    made.catalog.close()
