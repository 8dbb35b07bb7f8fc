"""A run that was stopped between its list and the deletion: the next one goes on only where everything still holds."""

from __future__ import annotations

from typing import Any

import pytest

from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake, reference


def stopped(lake: Lake, **asked: Any) -> None:
    """The list is durable, and nothing is deleted yet."""

    def fail(*args: Any, **options: Any) -> Any:
        raise StorageError("the network is gone")

    there = lake.objects()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deletion, "remove", fail)
        result = lake.orphans(**asked)
    assert result.status is Status.FAILED
    assert "the next run goes on" in result.reason
    assert lake.objects() == there
    assert open_lists(lake.open().state, "main.db.t")


def test_the_next_run_finishes_it(lake: Lake) -> None:
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    there = lake.objects()
    assert lake.orphans().status is Status.DONE
    assert there - lake.objects() == {orphan}
    assert not open_lists(lake.open().state, "main.db.t")


def test_who_only_looks_is_told(lake: Lake) -> None:
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    ours = lake.open()
    assert any("killed amid a list of 1 files" in note for note in lake.orphans(ours, delete=False).notes)
    (plan,) = ours.plan(["main.db.t"]).tables
    assert any(skip.action == "recovery" and "killed amid" in skip.reason for skip in plan.skipped)
    (check,) = (check for check in ours.doctor() if check.name == "state: unfinished")
    assert (check.ok, "main.db.t" in check.detail) == (True, True)


@pytest.mark.parametrize("asked", [{"plan_digest": "sha256:" + "0" * 64}, {"removal": "quarantine"}])
def test_what_was_not_asked_for_is_not_finished(lake: Lake, asked: dict[str, str]) -> None:
    """A digest and a quarantine are words on what goes, and how: an earlier run's list to delete is another."""
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    there = lake.objects()
    result = lake.orphans(**asked)
    assert (result.status, result.deleted_files) == (Status.BLOCKED, 0)
    assert "That list comes first" in result.reason
    assert lake.objects() == there
    done = lake.orphans()
    assert done.status is Status.DONE
    assert [one.removed_files for one in done.recovered if "a list of" in one.found] == [1]
    assert lake.orphans(removal="quarantine").status is Status.DONE


def test_a_verb_that_finishes_it_tells_how_much(lake: Lake) -> None:
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    (outcome,) = lake.open().maintain(["main.db.t"]).tables
    assert orphan not in lake.objects()
    (finished,) = (one for one in outcome.recovered if "a list of" in one.found)
    assert (finished.removed_files, finished.done) == (1, "it was finished: 1 deleted")


def test_what_was_committed_since_then_stays(lake: Lake) -> None:
    """By this table under a name that was declared equal, and by one elsewhere."""
    table, other = lake.table(), lake.table("x.u", location=f"{lake.root}elsewhere/u")
    names = ("spelled", "referenced", "orphan")
    spelled, referenced, orphan = (lake.put(f"{table.location()}/data/{name}") for name in names)
    stopped(lake, equal_schemes={"oss": "file" if lake.is_local else "s3"})
    reference(table, spelled.replace("file://" if lake.is_local else "s3://", "oss://"))
    reference(other, referenced)
    there = lake.objects()
    lake.orphans(prefix_mismatch_mode="IGNORE")
    assert there - lake.objects() == {orphan}


def test_a_table_that_came_into_the_place_since_then(lake: Lake) -> None:
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    lake.writer.create_table("db.u", SCHEMA, location=table.location())
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.BLOCKED
    assert "main.db.u" in result.reason
    assert lake.objects() == there


def test_another_table_under_the_name(lake: Lake) -> None:
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    lake.writer.drop_table("db.t")
    lake.writer.create_table("db.t", SCHEMA, location=table.location())
    there = lake.objects()
    assert lake.orphans().status is Status.BLOCKED
    assert lake.objects() == there


def test_a_forgotten_table_that_came_into_the_place_since_then(lake: Lake) -> None:
    """It took over a file that was an orphan: its metadata, which no catalog shows, is a sign."""
    table = lake.table()
    path = lake.put(f"{table.location()}/data/taken.parquet")
    stopped(lake)
    other = lake.writer.create_table("db.u", SCHEMA, location=f"{table.location()}/nested")
    reference(other, path)
    lake.writer.drop_table("db.u")
    lake.orphans()
    assert path in lake.objects()
