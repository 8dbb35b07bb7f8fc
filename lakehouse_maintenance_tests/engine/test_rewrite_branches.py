"""Compaction of a named branch: its head is read, rewritten, committed to and verified; main stays as it is (IM-23)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.model.plans import Plan
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import (
    SCHEMA,
    append,
    before_commit,
    data_paths,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]
pytestmark = pytest.mark.requirement("IM-23")


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> Pair:
    """Main has 20 rows; the branch `audit`, which keeps three snapshots, has 30 more; `release` is a tag."""
    catalog, properties = sql_catalog()
    table = many_small_files(catalog, commits=2)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    catalog.load_table("db.t").manage_snapshots().create_tag(head.snapshot_id, "release").commit()
    for start in (100, 110, 120):
        append(catalog, "db.t", start, 10, branch="audit")
    table = catalog.load_table("db.t")
    # PyIceberg's append forgets it.
    table.manage_snapshots().create_branch(
        table.metadata.refs["audit"].snapshot_id, "audit", min_snapshots_to_keep=3
    ).commit()
    return catalog, lakehouse(tmp_path, properties)


MAIN_ROWS = [*range(20)]
ROWS = [*MAIN_ROWS, *range(100, 130)]


def on(branch: str | None, **options: str) -> Request:
    return Request(actions=(Action.REWRITE_DATA_FILES,), branch=branch, options=options)


def compact(ours: Lakehouse, request: Request, hook: Callable[[int], None] = lambda attempt: None) -> TableOutcome:
    with before_commit(ours, hook):
        return ours.maintain((), request).tables[0]


def rows(catalog: SqlCatalog, branch: str) -> list[int]:
    return ids(catalog, snapshot_id=catalog.load_table("db.t").metadata.refs[branch].snapshot_id)


def files(catalog: SqlCatalog, branch: str) -> int:
    table = catalog.load_table("db.t")
    return len(list(table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).plan_files()))


def test_a_branch_is_compacted_and_main_stays(pair: Pair) -> None:
    writer, ours = pair
    before = writer.load_table("db.t").metadata.refs
    main_files = data_paths(writer)
    outcome = compact(ours, on("audit"))
    assert outcome.status is Status.DONE, outcome
    (action,) = outcome.actions
    after = writer.load_table("db.t").metadata.refs
    assert action.snapshot_id == after["audit"].snapshot_id
    assert action.previous_snapshot_id == before["audit"].snapshot_id
    assert action.verified
    assert after["audit"].min_snapshots_to_keep == 3
    assert (after["main"], after["release"]) == (before["main"], before["release"])
    assert (files(writer, "audit"), data_paths(writer)) == (2, main_files)
    assert (rows(writer, "audit"), ids(writer)) == (ROWS, MAIN_ROWS)
    assert not ours.plan((), on("audit")).tables[0].actions
    assert "rewrite_data_files" not in ours._memory.table("main.db.t").last_run_ms, "no cooldown for main"


def test_main_is_what_is_meant_where_no_branch_is_named(pair: Pair) -> None:
    writer, ours = pair
    head = writer.load_table("db.t").metadata.refs["audit"].snapshot_id
    assert compact(ours, on(None, **{"min-input-files": "2"})).status is Status.DONE
    assert writer.load_table("db.t").metadata.refs["audit"].snapshot_id == head
    assert len(data_paths(writer)) == 2
    assert not ours.plan((), on("main", **{"min-input-files": "2"})).tables[0].actions


def test_the_branch_is_part_of_the_plan_and_its_digest(pair: Pair) -> None:
    writer, ours = pair
    plan = ours.plan((), on("audit"))
    (action,) = plan.tables[0].actions
    assert action.branch == "audit"
    assert plan.tables[0].snapshot_id == writer.load_table("db.t").metadata.refs["audit"].snapshot_id
    again = Plan.from_json(plan.as_json())
    assert again == plan
    assert ours.apply(again).tables[0].status is Status.DONE
    assert (files(writer, "audit"), rows(writer, "audit"), ids(writer)) == (2, ROWS, MAIN_ROWS)


@pytest.mark.parametrize(("branch", "what"), [("nobody", "does not exist"), ("release", "is a tag")])
def test_a_branch_that_is_none_is_refused_by_name(pair: Pair, branch: str, what: str) -> None:
    writer, ours = pair
    location = writer.load_table("db.t").metadata_location
    plan = ours.plan((), on(branch)).tables[0]
    assert f"branch '{branch}' {what}" in str(plan.error)
    assert "audit, main" in str(plan.error), "those that there are"
    outcome = compact(ours, on(branch))
    assert (outcome.status, outcome.actions) == (Status.FAILED, ())
    assert writer.load_table("db.t").metadata_location == location


@pytest.mark.parametrize("actions", [None, (Action.REWRITE_DATA_FILES, Action.REMOVE_ORPHAN_FILES)])
def test_what_is_not_about_a_branch_is_refused_before_anything(pair: Pair, actions: tuple[Action, ...] | None) -> None:
    _, ours = pair
    with pytest.raises(InputError) as wrong:
        ours.maintain((), Request(actions=actions, branch="audit"))
    assert wrong.value.field == "branch"
    assert wrong.value.hint


def test_a_branch_of_an_empty_table(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    catalog, properties = sql_catalog()
    many_small_files(catalog, commits=0)
    ours = lakehouse(tmp_path, properties)
    (skip,) = ours.plan((), on("main")).tables[0].skipped
    assert "the table is empty" in skip.reason


def test_a_branch_is_planned_by_its_own_files_where_main_has_none(pair: Pair) -> None:
    """Health is of main, and says nothing about what a branch holds."""
    writer, ours = pair
    writer.load_table("db.t").delete("id >= 0")
    assert ids(writer) == []
    assert compact(ours, on("audit")).status is Status.DONE
    assert (files(writer, "audit"), rows(writer, "audit"), ids(writer)) == (2, ROWS, [])


@pytest.mark.requirement("IM-12", "RS-04")
def test_commits_to_both_branches_in_between(pair: Pair) -> None:
    writer, ours = pair

    def both(attempt: int) -> None:
        if attempt == 1:
            append(writer, "db.t", 500, 10)
        if attempt == 2:
            append(writer, "db.t", 600, 10, branch="audit")

    outcome = compact(ours, on("audit"), both)
    assert outcome.status is Status.DONE, outcome
    assert not any("redone" in note for note in outcome.actions[0].notes)
    assert (rows(writer, "audit"), ids(writer)) == ([*ROWS, *range(600, 610)], [*MAIN_ROWS, *range(500, 510)])
    numbers = [snapshot.sequence_number for snapshot in writer.load_table("db.t").metadata.snapshots]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.requirement("IM-12", "RS-04")
def test_an_overwrite_on_the_branch_wins(pair: Pair) -> None:
    writer, ours = pair
    outcome = compact(
        ours,
        on("audit", **{"min-input-files": "2"}),
        lambda attempt: writer.load_table("db.t").delete("id == 105", branch="audit") if attempt == 1 else None,
    )
    assert outcome.status is Status.DONE, outcome
    assert any("redone" in note for note in outcome.actions[0].notes)
    assert (rows(writer, "audit"), ids(writer)) == ([row for row in ROWS if row != 105], MAIN_ROWS)


@pytest.mark.parametrize("when", ["after the plan", "before the commit"])
def test_the_branch_is_dropped_meanwhile(pair: Pair, when: str) -> None:
    writer, ours = pair

    def drop() -> None:
        writer.load_table("db.t").manage_snapshots().remove_branch("audit").commit()

    plan = ours.plan((), on("audit"))
    if when == "after the plan":
        drop()
        outcome = ours.apply(plan).tables[0]
    else:
        with before_commit(ours, lambda attempt: drop() if attempt == 1 else None):
            outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.FAILED, outcome
    assert "audit" in str(outcome.reason)
    assert set(writer.load_table("db.t").metadata.refs) == {"main", "release"}
    assert ids(writer) == MAIN_ROWS


def test_columns_added_on_main_are_in_the_branch_too(pair: Pair) -> None:
    """A branch is read with the table's current schema."""
    from pyiceberg.types import LongType

    writer, ours = pair
    with writer.load_table("db.t").update_schema() as update:
        update.add_column("late", LongType())
    wide = SCHEMA.append(pa.field("late", pa.int64()))
    writer.load_table("db.t").append(
        pa.table([[900, 901], ["a", "b"], [0.0, 1.0], [7, 8]], schema=wide), branch="audit"
    )
    assert compact(ours, on("audit")).status is Status.DONE
    table = writer.load_table("db.t")
    found = table.scan(snapshot_id=table.metadata.refs["audit"].snapshot_id).to_arrow()
    assert sorted(found["id"].to_pylist()) == [*ROWS, 900, 901]
