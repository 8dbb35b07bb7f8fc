"""Metadata that names files which are not there proves nothing: the one that it meant may look like an orphan."""

from __future__ import annotations

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.stores import Lake, reference


def renamed(lake: Lake, path: str) -> str:
    """The file under another name, as one flipped bit in the metadata would have it."""
    other = lake.put(path.replace("live", "mive"), lake.read(path))
    lake.remove(path)
    return other


@pytest.mark.parametrize("whose", ["the table's", "an old snapshot's", "a neighbour's"])
def test_a_file_that_is_named_and_not_there_keeps_all(lake: Lake, whose: str) -> None:
    table = lake.table()
    path = lake.put(f"{table.location()}/data/live.parquet")
    other = lake.table("x.u")
    owner = other if whose == "a neighbour's" else table
    reference(owner, path)
    if whose == "an old snapshot's":
        table.refresh()
        table.delete()
    there = renamed(lake, path)
    lake.pass_days(4)
    result = lake.orphans()
    assert (result.status, result.deleted_files) == (Status.BLOCKED, 0), result
    assert path in result.reason
    assert ("main.x.u" in result.reason) is (owner is other)
    assert there in lake.objects()
    lake.put(path)
    assert lake.orphans().status is Status.DONE
    assert there not in lake.objects()


def test_a_dry_run_asks_nothing_of_files(lake: Lake) -> None:
    table = lake.table()
    path = lake.put(f"{table.location()}/data/live.parquet")
    reference(table, path)
    there = renamed(lake, path)
    lake.pass_days(4)
    assert [file.path for file in lake.orphans(delete=False).files] == [there]
