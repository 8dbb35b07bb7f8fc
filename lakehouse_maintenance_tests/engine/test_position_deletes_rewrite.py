"""Position delete files merged, and freed of what dangles: the same rows stay deleted, whatever others commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import ActionOutcome, TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.killed import killed_at_commit
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.engine.test_lost_answers import commits
from lakehouse_maintenance_tests.readers import read_duckdb
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]


def asked(**options: str) -> Request:
    by_action = {Action.REWRITE_POSITION_DELETE_FILES: {k.replace("_", "-"): v for k, v in options.items()}}
    return Request(actions=(Action.REWRITE_POSITION_DELETE_FILES,), by_action=by_action)


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A writer with an unpartitioned table of three files of 10 rows, and our lakehouse."""
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    catalog, properties = sql_catalog()
    many_small_files(catalog, commits=3, partitioned=False)
    return catalog, lakehouse(tmp_path, properties)


def by_first_id(writer: SqlCatalog) -> dict[int, str]:
    """First id of a data file → its path."""
    return {pq.read_table(path.removeprefix("file://"))["id"][0].as_py(): path for path in data_paths(writer)}


def delete_in_turns(writer: SqlCatalog, turns: int, *, per_file: bool = False) -> set[int]:
    """One id of each file in each turn; returns them."""
    paths = by_first_id(writer)
    for turn in range(turns):
        delete_rows(writer, "db.t", {path: [turn] for path in paths.values()}, per_file=per_file)
    return {first + turn for first in paths for turn in range(turns)}


def rewrite(ours: Lakehouse, request: Request | None = None) -> TableOutcome:
    return ours.maintain((), request or asked()).tables[0]


def done(outcome: TableOutcome) -> ActionOutcome:
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].verified, outcome
    return outcome.actions[0]


def delete_files(writer: SqlCatalog) -> list[Mapping[str, object]]:
    table = writer.load_table("db.t").inspect.delete_files()
    return list(table.to_pylist())


def agree(writer: SqlCatalog, expected: list[int]) -> None:
    """PyIceberg and DuckDB."""
    assert ids(writer) == expected
    rows = read_duckdb(writer.load_table("db.t").metadata_location, {})
    assert len(rows) == len(expected)


@pytest.mark.requirement("IM-10", "IM-13", "IM-20")
def test_files_of_a_partition_become_one(pair: Pair) -> None:
    writer, ours = pair
    gone = delete_in_turns(writer, 6)
    action = done(rewrite(ours))
    assert action.results["rewritten_delete_files_count"] == 6
    assert action.results["added_delete_files_count"] == 1
    assert 0 < action.results["added_bytes_count"] < action.results["rewritten_bytes_count"]
    (only,) = delete_files(writer)
    written = pq.read_table(str(only["file_path"]).removeprefix("file://"))
    pairs = list(zip(written["file_path"].to_pylist(), written["pos"].to_pylist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert len(pairs) == len(gone) == 18
    agree(writer, sorted({*range(30)} - gone))
    assert rewrite(ours).status is Status.SKIPPED, "what it leaves, it leaves alone"
    assert "nothing to gain" in rewrite(ours).reason


@pytest.mark.requirement("IM-10")
def test_files_of_one_data_file_each_stay_such(pair: Pair) -> None:
    writer, ours = pair
    gone = delete_in_turns(writer, 2, per_file=True)
    action = done(rewrite(ours))
    assert action.results["rewritten_delete_files_count"] == 6
    files = delete_files(writer)
    assert {one["record_count"] for one in files} == {2}
    bounds = [one["readable_metrics"] for one in files]
    assert len(files) == len(bounds) == 3
    agree(writer, sorted({*range(30)} - gone))
    health = ours.health(())[0]
    assert (health.position_delete_files, health.dangling_delete_files) == (3, 0)
    assert rewrite(ours).status is Status.SKIPPED


@pytest.mark.requirement("IM-10")
@pytest.mark.parametrize(("granularity", "files"), [("file", 3), ("partition", 1)])
def test_the_table_says_what_a_file_is_for(pair: Pair, granularity: str, files: int) -> None:
    writer, ours = pair
    with writer.load_table("db.t").transaction() as change:
        change.set_properties({"write.delete.granularity": granularity})
    gone = delete_in_turns(writer, 3) | delete_in_turns(writer, 4, per_file=True)
    done(rewrite(ours))
    assert len(delete_files(writer)) == files
    agree(writer, sorted({*range(30)} - gone))


@pytest.mark.requirement("IM-10")
def test_what_dangles_goes(pair: Pair) -> None:
    """A data file that leaves by a rewrite of another engine leaves its deletes behind."""
    writer, ours = pair
    paths = by_first_id(writer)
    gone = delete_in_turns(writer, 2, per_file=True)
    delete_rows(writer, "db.t", {path: [9] for path in paths.values()}, per_file=False)
    writer.load_table("db.t").delete("id < 10")
    assert ours.health(())[0].dangling_delete_files == 2
    action = done(rewrite(ours, asked(min_input_files="1")))
    assert action.results["rewritten_delete_files_count"] == 6
    assert action.results["added_delete_files_count"] == 2
    agree(writer, sorted({*range(10, 29)} - gone - {19}))
    assert ours.health(())[0].dangling_delete_files == 0


@pytest.mark.requirement("IM-10", "IM-26")
@pytest.mark.parametrize("turns", [1, 4])
def test_too_few_are_left_alone(pair: Pair, turns: int) -> None:
    writer, ours = pair
    delete_in_turns(writer, turns)
    assert rewrite(ours).status is Status.SKIPPED
    assert len(delete_files(writer)) == turns


@pytest.mark.requirement("IM-10")
def test_an_option_that_is_none_of_its_own_is_refused(pair: Pair) -> None:
    _, ours = pair
    with pytest.raises(Exception, match="delete-file-threshold"):
        ours.plan((), asked(delete_file_threshold="1"))
    (plan,) = ours.plan((), asked(**{"partial-progress.enabled": "true"})).tables
    assert plan.skipped[0].reason.startswith("unsupported")


MEANWHILE: dict[str, tuple[Callable[[SqlCatalog, dict[int, str]], object], set[int], set[int]]] = {
    "append": (lambda writer, paths: append(writer, "db.t", 100, 10), {*range(100, 110)}, set()),
    "delete of rows": (lambda writer, paths: delete_rows(writer, "db.t", {paths[0]: [8]}), set(), {8}),
    "delete of a file": (lambda writer, paths: writer.load_table("db.t").delete("id < 10"), set(), {*range(10)}),
}


@pytest.mark.requirement("RS-04", "IM-12", "IM-10")
@pytest.mark.parametrize(("what", "attempt"), [*((what, 1) for what in MEANWHILE), ("delete of rows", 2)])
def test_what_others_commit_meanwhile_holds(pair: Pair, what: str, attempt: int) -> None:
    writer, ours = pair
    paths = by_first_id(writer)
    gone = delete_in_turns(writer, 6)
    work, more, fewer = MEANWHILE[what]

    def meanwhile(number: int) -> None:
        if number < attempt:
            append(writer, "db.t", 1000, 1)
        if number == attempt:
            work(writer, paths)

    with before_commit(ours, meanwhile):
        action = done(rewrite(ours))
    assert action.actual.attempts == attempt + 1
    agree(writer, sorted(({*range(30)} | more) - gone - fewer) + [1000] * (attempt - 1))


@pytest.mark.requirement("RS-04", "IM-12", "IM-10")
def test_delete_files_that_a_compaction_applied_meanwhile_are_not_brought_back(pair: Pair) -> None:
    writer, ours = pair
    gone = delete_in_turns(writer, 6)
    plan = ours.plan((), asked())
    ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"}))
    assert ours.apply(plan).tables[0].status is Status.SKIPPED
    assert not delete_files(writer)
    agree(writer, sorted({*range(30)} - gone))


@pytest.mark.requirement("RS-04", "IM-10")
def test_an_input_that_left_meanwhile_is_redone_without_it(pair: Pair, tmp_path: Path) -> None:
    """The rewrite of another run takes the same delete files first."""
    writer, ours = pair
    gone = delete_in_turns(writer, 6)
    properties = {"type": "sql", **{k: v for k, v in writer.properties.items() if k in ("uri", "warehouse")}}
    (tmp_path / "other").mkdir()
    other = lakehouse(tmp_path / "other", properties)
    with before_commit(ours, lambda attempt: rewrite(other) if attempt == 1 else None):  # type: ignore[arg-type,return-value]
        outcome = rewrite(ours)
    assert outcome.status is Status.SKIPPED, outcome
    assert len(delete_files(writer)) == 1
    agree(writer, sorted({*range(30)} - gone))


@pytest.mark.requirement("IM-12", "IM-10")
def test_a_lost_answer_is_looked_up(pair: Pair) -> None:
    writer, ours = pair
    gone = delete_in_turns(writer, 6)

    def lose(attempt: int, real: Callable[[], object]) -> object:
        real()
        raise CommitStateUnknownException("the connection was closed")

    with commits(ours, lose):
        action = done(rewrite(ours))
    assert action.snapshot_id == ours.health(())[0].snapshot_id
    agree(writer, sorted({*range(30)} - gone))


@pytest.mark.requirement("IM-10", "IM-12")
def test_a_killed_run_leaves_nothing_behind(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    gone = delete_in_turns(writer, 6)
    before = {path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()}
    killed_at_commit(ours, asked())
    append(writer, "db.t", 100, 1)  # nothing of the killed run can become visible any more
    assert set((tmp_path / "warehouse").rglob("*deletes*")) <= before
    outcome = ours.maintain(()).tables[0]
    assert outcome.recovered[0].removed_files >= 3, "a delete file, a manifest, a list"
    assert not outcome.recovered[0].kept
    agree(writer, [*sorted({*range(30)} - gone), 100])
