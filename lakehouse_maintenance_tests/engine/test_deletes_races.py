"""Deletes that are committed while files are rewritten: no row comes back, and none goes that nobody deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import ActionOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import (
    append,
    append_as_of,
    before_commit,
    data_paths,
    delete_keys,
    delete_rows,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.readers import read_duckdb
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,))
Pair = tuple[SqlCatalog, Lakehouse]


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> Pair:
    """The writer's catalog with an unpartitioned table of ids 0 to 59 in six files, and ours on the same tables."""
    catalog, properties = sql_catalog()
    many_small_files(catalog, partitioned=False)
    return catalog, lakehouse(tmp_path, properties)


def compact(ours: Lakehouse, work: Callable[[], object] = lambda: None) -> ActionOutcome:
    """Compacts; `work` comes right before the first attempt to commit."""
    with before_commit(ours, lambda attempt: work() if attempt == 1 else None):
        outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.DONE, outcome
    return outcome.actions[0]


def deleted(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def seen(catalog: SqlCatalog) -> list[int]:
    """Ids that DuckDB reads."""
    rows = read_duckdb(catalog.load_table("db.t").metadata_location)
    return sorted(json.loads(row)["id"] for row in rows)


def is_redone(action: ActionOutcome) -> bool:
    return any("redone" in note for note in action.notes)


def live_deletes(ours: Lakehouse) -> int:
    return ours.health()[0].delete_files


@pytest.mark.requirement("IM-03")
def test_equality_deletes_are_applied_and_gone(pair: Pair) -> None:
    writer, ours = pair
    delete_rows(writer, "db.t", {data_paths(writer)[0]: [0]})
    delete_keys(writer, "db.t", deleted(3, 14, 900))
    delete_keys(writer, "db.t", pa.table({"p": ["a"], "x": [0.5]}))
    append(writer, "db.t", 3, 1)
    before = seen(writer)
    assert len(before) == 57
    action = compact(ours)
    assert (action.actual.rows, action.actual.removed_delete_files) == (57, 3)
    assert seen(writer) == before
    assert (ours.health()[0].data_files, live_deletes(ours)) == (1, 0)
    assert ours.maintain((), COMPACT).tables[0].status is Status.SKIPPED


@pytest.mark.requirement("IM-03")
def test_an_equality_delete_committed_first_reaches_the_new_file_too(pair: Pair) -> None:
    writer, ours = pair
    delete_keys(writer, "db.t", deleted(1))
    action = compact(ours, lambda: delete_keys(writer, "db.t", deleted(2, 33)))
    assert not is_redone(action), "outputs keep the number of what was read: the delete applies to them"
    assert action.actual.removed_delete_files == 1
    assert live_deletes(ours) == 1
    left = [n for n in range(60) if n not in (1, 2, 33)]
    assert seen(writer) == left
    append(writer, "db.t", 33, 1)
    for n in range(5):
        append(writer, "db.t", 100 + n, 1)
    compact(ours)
    assert seen(writer) == sorted([*left, 33, *range(100, 105)]), "what was inserted again stays"
    assert live_deletes(ours) == 0


@pytest.mark.requirement("IM-03")
def test_a_position_delete_committed_first_beside_equality_deletes(pair: Pair) -> None:
    writer, ours = pair
    path = data_paths(writer)[2]
    delete_keys(writer, "db.t", deleted(1, 13))
    action = compact(ours, lambda: delete_rows(writer, "db.t", {path: [4, 5]}, per_file=False))
    assert is_redone(action)
    assert len(seen(writer)) == 56
    assert live_deletes(ours) == 0


def test_an_equality_delete_that_was_rolled_back_is_not_applied(pair: Pair) -> None:
    writer, ours = pair
    head = writer.load_table("db.t").metadata.current_snapshot_id
    assert head is not None
    delete_keys(writer, "db.t", deleted(1, 13))
    action = compact(ours, lambda: writer.load_table("db.t").manage_snapshots().set_current_snapshot(head).commit())
    assert is_redone(action)
    assert seen(writer) == [*range(60)]


@pytest.mark.requirement("IM-26")
def test_a_delete_stays_while_an_older_file_needs_it(pair: Pair) -> None:
    """A file with an older number may come at any time: another compaction that began earlier commits one."""
    writer, ours = pair
    delete_keys(writer, "db.t", deleted(1, 1001))
    action = compact(ours, lambda: append_as_of(writer, "db.t", 1000, 10, 2))
    assert not is_redone(action)
    assert action.actual.removed_delete_files == 0
    assert live_deletes(ours) == 1
    assert seen(writer) == [n for n in (*range(60), *range(1000, 1010)) if n not in (1, 1001)]
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    assert ours.maintain((), asked).tables[0].status is Status.DONE
    assert live_deletes(ours) == 0
    assert seen(writer) == [n for n in (*range(60), *range(1000, 1010)) if n not in (1, 1001)]


@pytest.mark.requirement("IM-26")
def test_files_are_rewritten_for_their_deletes_alone_where_the_threshold_says_so(pair: Pair) -> None:
    writer, ours = pair
    compact(ours)
    delete_keys(writer, "db.t", deleted(5))
    delete_keys(writer, "db.t", deleted(6))
    for threshold, expected in (("3", Status.SKIPPED), ("2", Status.DONE)):
        asked = Request(actions=(Action.REWRITE_DATA_FILES,), options={"delete-file-threshold": threshold})
        assert ours.maintain((), asked).tables[0].status is expected
    assert seen(writer) == [n for n in range(60) if n not in (5, 6)]
    assert live_deletes(ours) == 0
