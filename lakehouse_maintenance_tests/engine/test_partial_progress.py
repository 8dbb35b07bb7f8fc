"""Partial progress: groups are committed in several snapshots as they are done; what was committed stays (IM-01)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Group, Rewriter
from lakehouse_maintenance.execution import rewriting
from lakehouse_maintenance.execution.work import Work
from lakehouse_maintenance.iceberg.commit import Committed, ReplaceCommit
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CommitConflictError
from lakehouse_maintenance.model.outcomes import Check, TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.killed import Killed, after_the_lease, being_killed
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
)
from lakehouse_maintenance_tests.engine.test_leftovers import there
from lakehouse_maintenance_tests.engine.test_lost_answers import commits
from lakehouse_maintenance_tests.engine.test_rewrite_options import asked, partitions
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]
GROUPS = 6
NAME = "main.db.t"

pytestmark = pytest.mark.requirement("IM-01")


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A writer with a table of six partitions of two small files, and our lakehouse."""
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    catalog, properties = sql_catalog()
    partitions(catalog, GROUPS, commits=2)
    return catalog, lakehouse(tmp_path, properties)


ROWS = [*range(10 * GROUPS * 2)]


def partial(commits: int = 3, **options: Any) -> Request:
    """In the order of the plan, one group at a time, so that it is known which commit holds which."""
    named = {"max_concurrent_file_group_rewrites": 1, **options}
    return asked(**{"partial-progress.enabled": True, "partial-progress.max-commits": commits}, **named)


def compact(ours: Lakehouse, request: Request, **how: Any) -> TableOutcome:
    return ours.maintain((), request, **how).tables[0]


def ours_in(writer: SqlCatalog) -> list[int]:
    """Our snapshots, oldest first."""
    found = sorted(writer.load_table("db.t").metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    return [s.snapshot_id for s in found if s.summary is not None and s.summary.operation.value == "replace"]


def failing(monkeypatch: pytest.MonkeyPatch, fail: Callable[[int], None]) -> None:
    """`fail` gets the number of each group that begins, from 1."""
    real = Rewriter.rewrite
    begun = 0
    lock = threading.Lock()

    def rewrite(rewriter: Rewriter, group: Group, *args: Any) -> Any:
        nonlocal begun
        with lock:
            begun += 1
            number = begun
        fail(number)
        return real(rewriter, group, *args)

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)


@pytest.mark.parametrize(("most", "made"), [(1, 1), (2, 2), (3, 3), (4, 3), (10, 6)])
def test_groups_are_committed_as_they_are_done(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, most: int, made: int
) -> None:
    """Six groups in commits of as many as it takes for `max-commits`."""
    writer, ours = pair
    seen: list[int] = []
    verified: list[int] = []
    real = rewriting.verify_commit

    def verify(*args: Any) -> Any:
        verified.append(1)
        return real(*args)

    monkeypatch.setattr(rewriting, "verify_commit", verify)
    with before_commit(ours, lambda attempt: seen.append(len(data_paths(writer)))):
        outcome = compact(ours, partial(most, max_concurrent_file_group_rewrites=5))
    assert outcome.status is Status.DONE, outcome
    (action,) = outcome.actions
    assert len(seen) == len(action.snapshot_ids) == made
    assert list(action.snapshot_ids) == ours_in(writer)
    assert action.snapshot_id == action.snapshot_ids[-1]
    first = writer.load_table("db.t").metadata.snapshot_by_id(action.snapshot_ids[0])
    assert first is not None
    assert action.previous_snapshot_id == first.parent_snapshot_id, "to go back before all of them"
    assert (action.actual.groups_done, action.actual.attempts) == (GROUPS, made)
    assert (action.actual.rewritten_data_files, action.actual.added_data_files) == (2 * GROUPS, GROUPS)
    assert action.actual.rows == len(ROWS)
    assert action.verified
    assert len(verified) == made, "each commit is verified"
    assert [check.name for check in action.checks] == ["rows_unchanged", "live_files_present"]
    assert ids(writer) == ROWS
    assert len(data_paths(writer)) == GROUPS
    assert not ours._memory.table(NAME).leftovers


def test_a_commit_comes_before_the_other_groups_are_done(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    committed = threading.Event()

    def fail(number: int) -> None:
        if number == GROUPS:
            assert committed.wait(20), "the first commit does not wait for the last group"

    failing(monkeypatch, fail)
    with before_commit(ours, lambda attempt: committed.set()):
        outcome = compact(ours, partial(6, max_concurrent_file_group_rewrites=5))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == ROWS


@pytest.mark.requirement("IM-12")
def test_a_conflict_redoes_its_group_alone(pair: Pair) -> None:
    """A delete of a file of the second commit: the other group of that commit goes in, this one is read anew."""
    writer, ours = pair
    plan = ours.plan((), partial())
    group = plan.tables[0].actions[0].groups[2]
    begun: list[int] = []

    def hook(attempt: int) -> None:
        begun.append(attempt)
        if attempt == 2:
            delete_rows(writer, "db.t", {group.files[0].path: [0]})

    with before_commit(ours, hook):
        outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.DONE, outcome
    (action,) = outcome.actions
    assert len([note for note in action.notes if "redone" in note]) == 1
    assert (action.actual.groups_done, len(action.snapshot_ids)) == (GROUPS, 3)
    assert len(ids(writer)) == len(ROWS) - 1
    assert len(data_paths(writer)) == GROUPS


@pytest.mark.requirement("IM-12")
def test_appends_between_the_commits_survive(pair: Pair) -> None:
    writer, ours = pair
    with before_commit(ours, lambda attempt: append(writer, "db.t", attempt * 1000, 2) if attempt % 2 else None):
        outcome = compact(ours, partial())
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].verified
    assert not any("redone" in note for note in outcome.actions[0].notes)
    assert set(ids(writer)) >= set(ROWS)
    assert len(ids(writer)) == len(ROWS) + 2 * -(-outcome.actions[0].actual.attempts // 2)


@pytest.mark.parametrize("error", [ValueError("a fault"), OSError("the disk is full")], ids=["fault", "storage"])
def test_a_failed_group_loses_nothing_of_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    writer, ours = pair

    def fail(number: int) -> None:
        if number == 4:
            raise error

    failing(monkeypatch, fail)
    outcome = compact(ours, partial(6))
    assert outcome.status is Status.FAILED, "a group that was not done is no success"
    (action,) = outcome.actions
    assert (action.actual.groups_done, action.actual.groups_failed) == (GROUPS - 1, 1)
    assert str(error) in str(action.error)
    assert "5 of 6 groups are committed" in str(action.error)
    assert action.verified
    assert list(action.snapshot_ids) == ours_in(writer)
    assert ids(writer) == ROWS
    assert len(data_paths(writer)) == GROUPS + 1
    monkeypatch.undo()
    again = compact(ours, partial(6))
    assert again.status is Status.DONE
    assert again.actions[0].actual.groups_done == 1
    assert ids(writer) == ROWS


def test_a_damaged_file_fails_its_group_alone(pair: Pair) -> None:
    writer, ours = pair
    victim = Path(data_paths(writer)[0].removeprefix("file://"))
    content = victim.read_bytes()
    victim.write_bytes(content[:100] + bytes(len(content) - 108) + content[-8:])
    outcome = compact(ours, partial(2))
    assert outcome.status is Status.FAILED
    (action,) = outcome.actions
    assert (action.actual.groups_done, action.actual.groups_failed) == (GROUPS - 1, 1)
    victim.write_bytes(content)
    assert ids(writer) == ROWS


def refuse(ours: Lakehouse, monkeypatch: pytest.MonkeyPatch, which: set[int]) -> None:
    """Commits of these numbers are refused for good, as after many lost races."""
    real = ReplaceCommit.run
    made = 0

    def run(commit: ReplaceCommit, change: Any) -> Any:
        nonlocal made
        made += 1
        if made in which:
            raise CommitConflictError("other writers won 12 times in a row", field="db.t")
        return real(commit, change)

    monkeypatch.setattr(ReplaceCommit, "run", run)


def test_failed_commits_are_let_pass_up_to_the_option(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    refuse(ours, monkeypatch, {2})
    outcome = compact(ours, partial(3))
    assert outcome.status is Status.DONE, outcome
    (action,) = outcome.actions
    assert (action.actual.groups_done, action.actual.groups_failed, action.actual.failed_commits) == (4, 2, 1)
    assert sum("was not rewritten: other writers won" in note for note in action.notes) == 2
    assert ids(writer) == ROWS
    assert len(data_paths(writer)) == GROUPS + 2


def test_more_failed_commits_than_the_option_lets_pass_end_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    refuse(ours, monkeypatch, {2})
    outcome = compact(ours, partial(6, **{"partial-progress.max-failed-commits": 0}))
    assert outcome.status is Status.FAILED, outcome
    (action,) = outcome.actions
    assert "1 commits failed, more than partial-progress.max-failed-commits (0)" in str(action.error)
    assert (action.actual.groups_done, len(ours_in(writer))) == (1, 1)
    assert action.verified
    assert ids(writer) == ROWS


def test_no_commit_at_all_is_a_failure(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    refuse(ours, monkeypatch, {*range(1, 10)})
    outcome = compact(ours, partial(3))
    assert outcome.status is Status.FAILED, outcome
    assert outcome.actions[0].actual.failed_commits == 3
    assert outcome.actions[0].snapshot_id is None
    assert ours_in(writer) == []
    assert ids(writer) == ROWS


def test_a_failed_verification_ends_it_and_names_its_own_snapshot(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    real = rewriting.verify_commit
    looks: list[int] = []

    def verify(*args: Any) -> Any:
        looks.append(1)
        return (Check("rows_unchanged", False, "made up"),) if len(looks) == 2 else real(*args)

    monkeypatch.setattr(rewriting, "verify_commit", verify)
    outcome = compact(ours, partial(3))
    assert outcome.status is Status.FAILED
    (action,) = outcome.actions
    first, second = ours_in(writer)
    assert action.snapshot_ids == (first, second)
    assert (action.snapshot_id, action.previous_snapshot_id, action.verified) == (second, first, False)
    assert f"roll back to snapshot {first}" in str(action.error)
    assert ours.rollback(NAME).tables[0].status is Status.DONE, "to what the failed verification named"
    head = writer.load_table("db.t").current_snapshot()
    assert head is not None
    assert head.snapshot_id == first


@pytest.mark.requirement("IM-12")
@pytest.mark.parametrize("arrived", [True, False])
def test_after_an_unknown_commit_no_other_is_made_and_nothing_cleaned(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    writer, ours = pair
    lost: list[int] = []
    catalog = ours.catalogs["main"]
    real_load = catalog.load

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        if attempt == 1:
            return real()
        lost.append(attempt)
        if arrived:
            real()
        monkeypatch.setattr(catalog, "load", unreachable)
        raise CommitStateUnknownException("the connection was closed")

    def unreachable(name: Any) -> Any:
        from lakehouse_maintenance.model.errors import CatalogUnavailableError

        raise CatalogUnavailableError("no route", field="main")

    with commits(ours, lose):
        outcome = compact(ours, partial(3), run_id="lost")
    assert outcome.status is Status.UNKNOWN, outcome
    assert lost == [2]
    (action,) = outcome.actions
    assert action.snapshot_ids == tuple(ours_in(writer)[:1])
    assert "2 of 6 groups are committed" in str(action.error)
    written = there(ours, "lost")
    assert outcome.recovered == ()
    monkeypatch.setattr(catalog, "load", real_load)
    assert ids(writer) == ROWS
    told = ours.maintain(()).tables[0].recovered[0]
    assert (told.run_id, told.status) == ("lost", Status.FAILED)
    assert "not done" in told.done
    if arrived:
        assert all(str(snapshot) in told.done for snapshot in ours_in(writer))
        live = {path.removeprefix("file://") for path in data_paths(writer)}
        assert live <= {str(path) for path in Path(writer.load_table("db.t").location()[7:]).rglob("*.parquet")}
    else:
        assert "could still arrive" in told.done, "the branch stands where the lost request needs it"
        assert there(ours, "lost") == written
    assert ids(writer) == ROWS
    done = compact(ours, partial(3))
    assert done.status is Status.DONE, done
    assert ids(writer) == ROWS
    assert len(data_paths(writer)) == GROUPS


@pytest.mark.parametrize(
    ("at", "when"),
    [(1, "after"), (1, "between"), (2, "before"), (2, "after"), (2, "between"), (3, "before"), (3, "between")],
)
def test_a_kill_around_any_of_the_commits(pair: Pair, monkeypatch: pytest.MonkeyPatch, at: int, when: str) -> None:
    """`between`: while the groups after that commit are read. The next run keeps what is committed, and goes on."""
    writer, ours = pair
    catalog = ours.catalogs["main"].pyiceberg
    real = catalog.commit_table
    made = 0

    def commit_table(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        if made == at and when == "before":
            raise Killed
        result = real(*args, **kwargs)
        if made == at and when == "after":
            raise Killed
        return result

    def fail(number: int) -> None:
        if made == at and when == "between":
            raise Killed

    failing(monkeypatch, fail)
    monkeypatch.setattr(catalog, "commit_table", commit_table)
    if (at, when) == (3, "between"):
        # Nothing is read after the last commit: it is killed in the verification instead.
        real_verify = rewriting.verify_commit

        def verify(*args: Any) -> Any:
            if made == at:
                raise Killed
            return real_verify(*args)

        monkeypatch.setattr(rewriting, "verify_commit", verify)
    with being_killed():
        compact(ours, partial(3), run_id="killed")
    monkeypatch.undo()
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    visible = ours_in(writer)
    assert len(visible) == (at - 1 if when == "before" else at)
    assert ids(writer) == ROWS
    after_the_lease(ours)
    outcome = ours.maintain(()).tables[0]
    (told,) = outcome.recovered
    assert told.status is (Status.DONE if len(visible) == 3 else Status.FAILED), told
    assert all(str(snapshot) in told.done for snapshot in visible)
    assert ("not done" in told.done) == (0 < len(visible) < 3)
    assert ours_in(writer) == visible
    assert ids(writer) == ROWS
    again = compact(ours, partial(3))
    assert again.status is (Status.SKIPPED if len(visible) == 3 else Status.DONE), again
    assert again.actions == () or again.actions[0].actual.groups_done == GROUPS - 2 * len(visible)
    assert ids(writer) == ROWS
    assert len(data_paths(writer)) == GROUPS
    # Once our own commit has moved the branch, nothing of the dead run's can arrive any more.
    live = set(data_paths(writer))
    outputs = {path for path in there(ours, "killed") if path.endswith(".parquet")}
    assert outputs <= live, "what was committed stays, and all else that the dead run wrote is gone"
    events = [e for e in ours.audit() if e.run_id == "killed" and e.phase == "outcome" and e.action != "remove_files"]
    assert [event.status for event in events if event.action == "rewrite_data_files"] == [told.status]


def test_a_cancel_between_two_commits(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C: the first commit stays and is told, of the rest nothing is left."""
    writer, ours = pair

    def fail(number: int) -> None:
        if number == 4:
            raise KeyboardInterrupt

    failing(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        compact(ours, partial(3), run_id="cancelled")
    monkeypatch.undo()
    (snapshot,) = ours_in(writer)
    outcome = next(e for e in ours.audit() if e.run_id == "cancelled" and e.phase == "outcome")
    assert (outcome.status, outcome.details["snapshot_ids"]) == ("failed", [snapshot])
    assert outcome.details["error"] == f"committed as snapshot {snapshot}, and then ended: interrupted"
    ours.maintain(())
    outcomes = [e for e in ours.audit() if e.run_id == "cancelled" and e.phase == "outcome"]
    assert not [e for e in outcomes if e.details.get("recovered")], "its end was told, and nothing came after it"
    assert len(ids(writer)) == len(ROWS)
    assert {p for p in there(ours, "cancelled") if p.endswith(".parquet")} <= set(data_paths(writer))


def test_a_cancel_amid_a_later_commit_is_unknown(pair: Pair) -> None:
    """Nobody told how the second one ended: it is looked for, and nothing is removed until it is found."""
    writer, ours = pair

    def cancel(attempt: int, real: Callable[[], Any]) -> Any:
        result = real()
        if attempt == 2:
            raise KeyboardInterrupt
        return result

    with commits(ours, cancel), pytest.raises(KeyboardInterrupt):
        compact(ours, partial(3), run_id="cancelled")
    first, second = ours_in(writer)
    outcome = next(e for e in ours.audit() if e.run_id == "cancelled" and e.phase == "outcome")
    assert (outcome.status, outcome.details["snapshot_ids"]) == ("unknown", [first])
    (told,) = ours.maintain(()).tables[0].recovered
    assert told.status is Status.FAILED
    assert f"snapshots {first}, {second} of this run are in the table; 2 groups" in told.done
    assert ids(writer) == ROWS


def test_what_any_of_the_commits_holds_is_no_leftover() -> None:
    def commit(number: int) -> Committed:
        return Committed(number, number - 1, 1, 0, (f"data-{number}",), (f"manifest-{number}",))

    work = Work(announced=["data-1"], written=["data-1", "manifest-1", "data-2", "manifest-2"])
    assert work.left_files()
    work.committed = commit(1)
    assert work.left_files()
    work.committed = commit(2)
    assert not work.left_files()
    work.written.append("data-3")
    assert work.left_files()


def test_writers_that_outdate_one_group_every_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are committed, and the action tells that one is not."""
    writer, ours = pair
    monkeypatch.setattr(rewriting, "ROUNDS", 1)
    plan = ours.plan((), partial(6))
    victim = plan.tables[0].actions[0].groups[0].files[0].path
    with before_commit(ours, lambda n: delete_rows(writer, "db.t", {victim: [0]}) if n == 1 else None):
        outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.FAILED, outcome
    assert "outdated the rewritten files 1 times" in str(outcome.reason)
    assert outcome.actions[0].actual.groups_done == GROUPS - 1
    assert len(ids(writer)) == len(ROWS) - 1
    assert len(data_paths(writer)) == GROUPS + 1
