"""Other writers between our look at a table and our commit: who commits first wins, and no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,))


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


def compact(ours: Lakehouse, hook: Callable[[int], None]) -> TableOutcome:
    with before_commit(ours, hook):
        return ours.maintain((), COMPACT).tables[0]


def once(work: Callable[[], object]) -> Callable[[int], None]:
    """Only before the first attempt."""
    return lambda attempt: work() if attempt == 1 else None  # type: ignore[return-value,func-returns-value]


def roll_back(writer: SqlCatalog, snapshot_id: int) -> None:
    writer.load_table("db.t").manage_snapshots().set_current_snapshot(snapshot_id).commit()


def test_an_append_between_plan_and_apply_survives(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    plan = ours.plan((), COMPACT)
    append(writer, "db.t", 1000, 10)
    outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60), *range(1000, 1010)]
    assert len(data_paths(writer)) == 4, "two outputs, two files of the append"


def test_an_append_before_the_commit_survives_and_costs_no_rewrite(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    outcome = compact(ours, once(lambda: append(writer, "db.t", 1000, 10)))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60), *range(1000, 1010)]
    assert outcome.actions[0].actual.attempts == 2
    assert not any("redone" in note for note in outcome.actions[0].notes), "an append outdates no group"


@pytest.mark.parametrize("per_file", [True, False], ids=["file-scoped", "partition-scoped"])
def test_a_position_delete_committed_first_fails_its_group_alone(
    pair: tuple[SqlCatalog, Lakehouse], per_file: bool
) -> None:
    writer, ours = pair
    many_small_files(writer)
    victim = next(path for path in data_paths(writer) if "p=a" in path)
    outcome = compact(ours, once(lambda: delete_rows(writer, "db.t", {victim: [0, 2]}, per_file=per_file)))
    assert outcome.status is Status.DONE, outcome
    redone = [note for note in outcome.actions[0].notes if "redone" in note]
    assert len(redone) == 1, "the other partition's group was kept as it was"
    assert len(ids(writer)) == 58
    health = ours.health()[0]
    assert (health.data_files, health.delete_files) == (2, 0), "applied, and dropped with the files they were for"


def test_deletes_of_one_file_in_a_partition_leave_those_of_another(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer, commits=4, partitioned=False)
    first, second = data_paths(writer)[:2]
    delete_rows(writer, "db.t", {first: [1], second: [3]}, per_file=False)
    before = ids(writer)
    outcome = compact(ours, lambda attempt: None)
    assert outcome.status is Status.SKIPPED, "four files are too few"
    append(writer, "db.t", 100, 10)
    assert compact(ours, lambda attempt: None).status is Status.DONE
    assert ids(writer) == sorted([*before, *range(100, 110)])
    assert ours.health()[0].delete_files == 0


def test_a_commit_to_another_branch_does_no_harm(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    outcome = compact(ours, once(lambda: append(writer, "db.t", 1000, 10, branch="audit")))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60)]
    branch = writer.load_table("db.t").metadata.refs["audit"].snapshot_id
    assert ids(writer, snapshot_id=branch) == [*range(60), *range(1000, 1010)]
    numbers = [snapshot.sequence_number for snapshot in writer.load_table("db.t").metadata.snapshots]
    assert len(set(numbers)) == len(numbers)


def test_the_refs_own_retention_is_kept(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(
        head.snapshot_id, "main", max_ref_age_ms=None, max_snapshot_age_ms=123456789, min_snapshots_to_keep=7
    ).commit()
    assert compact(ours, lambda attempt: None).status is Status.DONE
    ref = writer.load_table("db.t").metadata.refs["main"]
    assert (ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (123456789, 7)


def test_an_overwrite_of_a_rewritten_file_wins(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    outcome = compact(ours, once(lambda: writer.load_table("db.t").delete("id < 3")))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(3, 60)]


def test_a_rollback_in_between_brings_no_row_back(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    earlier = table.metadata.snapshots[-2].snapshot_id
    outcome = compact(
        ours, once(lambda: writer.load_table("db.t").manage_snapshots().set_current_snapshot(earlier).commit())
    )
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(50)]


def test_a_rollback_past_deletes_that_were_applied_is_seen(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    before_deletes = table.metadata.snapshots[-1].snapshot_id
    delete_rows(writer, "db.t", {data_paths(writer)[0]: [0, 1]})
    outcome = compact(ours, once(lambda: roll_back(writer, before_deletes)))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60)], "the deletes were rolled back, so their rows are there"


def test_a_column_added_in_between_reads_null(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)

    def evolve() -> None:
        with writer.load_table("db.t").update_schema() as update:
            from pyiceberg.types import StringType

            update.add_column("late", StringType())
            update.rename_column("x", "y")

    outcome = compact(ours, once(evolve))
    assert outcome.status is Status.DONE, outcome
    rows = writer.load_table("db.t").scan().to_arrow()
    assert rows["late"].null_count == 60
    assert sorted(rows["y"].to_pylist()) == [i / 2 for i in range(60)]


def test_the_partition_spec_changed_in_between(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)

    def evolve() -> None:
        with writer.load_table("db.t").update_spec() as update:
            update.add_identity("id")
        append(writer, "db.t", 1000, 2)

    outcome = compact(ours, once(evolve))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60), 1000, 1001]


def test_another_table_under_the_name_is_left_alone(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    plan = ours.plan((), COMPACT)
    writer.drop_table("db.t")
    many_small_files(writer, "db.u")
    writer.rename_table("db.u", "db.t")
    outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.FAILED
    assert "another table" in str(outcome.reason)
    assert len(data_paths(writer)) == 12


def test_two_compactions_of_the_same_files(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    """Without a lease between them, as two deployments with a state each would be."""
    writer, ours = pair
    many_small_files(writer)
    other = Lakehouse(ours.config, open_state(str(tmp_path / "other")))
    outcome = compact(ours, once(lambda: other.maintain((), COMPACT)))
    assert outcome.status is Status.SKIPPED, outcome
    assert "nothing of the plan is worth doing" in str(outcome.reason)
    assert ids(writer) == [*range(60)]
    assert len(data_paths(writer)) == 2


def test_writers_that_win_every_time_end_in_a_clear_error(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    many_small_files(writer)
    monkeypatch.setattr("lakehouse_maintenance.iceberg.commit.ReplaceCommit.attempts", 2)
    starts = iter(range(1000, 10**6, 10))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    outcome = compact(ours, lambda attempt: append(writer, "db.t", next(starts), 10))
    assert outcome.status is Status.FAILED
    assert "other writers won" in str(outcome.reason)
    failed = next(event for event in ours.audit() if event.status == "failed")
    assert failed.details["written"]["files"] > 0, "the journal names what was written"
    left = [path for path in failed.details["written"]["paths"] if Path(path.removeprefix("file://")).exists()]
    assert left == [], "each attempt is void, since its branch moved: its files were removed"
    assert sum(one.removed_files for one in outcome.recovered) == failed.details["written"]["files"]
    assert set(range(60)) <= set(ids(writer))
