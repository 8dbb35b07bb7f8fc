"""A failed verification names a snapshot, and `rollback` brings the table back to it, or says why it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import rewriting, rolling_back
from lakehouse_maintenance.iceberg import replacing
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.iceberg.rollback import RollbackCommit
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CatalogUnavailableError, InputError
from lakehouse_maintenance.model.outcomes import ApplyResult, TableOutcome
from lakehouse_maintenance_tests.engine.killed import Killed, after_the_lease, being_killed, files_below
from lakehouse_maintenance_tests.engine.tables import append, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_lost_answers import COMPACT, commits
from lakehouse_maintenance_tests.readers import read_duckdb, read_pyiceberg
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A writer with a table of 60 rows in small files, and our lakehouse."""
    for commit in (ReplaceCommit, RollbackCommit):
        monkeypatch.setattr(commit, "pause", staticmethod(lambda attempt: None))
    catalog, properties = sql_catalog()
    many_small_files(catalog)
    return catalog, lakehouse(tmp_path, properties)


def head(writer: SqlCatalog, branch: str = "main") -> int:
    return int(writer.load_table("db.t").metadata.refs[branch].snapshot_id)


def earlier(writer: SqlCatalog, steps: int = 1) -> int:
    return int(writer.load_table("db.t").history()[-1 - steps].snapshot_id)


def only(result: ApplyResult) -> TableOutcome:
    assert len(result.tables) == 1
    return result.tables[0]


# A failed verification


def _lose_an_output(patch: pytest.MonkeyPatch) -> None:
    def spoil(path: Path) -> None:
        path.unlink()

    _spoil_before_verifying(patch, spoil)


def _cut_an_output(patch: pytest.MonkeyPatch) -> None:
    def spoil(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-100])

    _spoil_before_verifying(patch, spoil)


def _spoil_before_verifying(patch: pytest.MonkeyPatch, spoil: Callable[[Path], None]) -> None:
    real = rewriting.verify_commit

    def verify(run: Any, target: Any, committed: Any, groups: Any) -> Any:
        spoil(Path(committed.added_files[0].removeprefix("file://")))
        return real(run, target, committed, groups)

    patch.setattr(rewriting, "verify_commit", verify)


def _commit_fewer_rows(patch: pytest.MonkeyPatch) -> None:
    """A fault of ours: an output does not get into the snapshot."""
    real = replacing._add

    def add(writer: Any, groups: Any, *rest: Any) -> Any:
        first = groups[0]
        short = type(first)(first.inputs, first.applied, first.outputs[1:], first.sequence_number, first.rows)
        return real(writer, [short, *groups[1:]], *rest)

    patch.setattr(replacing, "_add", add)


def _commit_another_row_count(patch: pytest.MonkeyPatch) -> None:
    real = replacing._add

    def add(writer: Any, groups: Any, *rest: Any) -> Any:
        first = groups[0]
        changed = ({**first.outputs[0], "record_count": first.outputs[0]["record_count"] + 1}, *first.outputs[1:])
        wrong = type(first)(first.inputs, first.applied, changed, first.sequence_number, first.rows)
        return real(writer, [wrong, *groups[1:]], *rest)

    patch.setattr(replacing, "_add", add)


@pytest.mark.requirement("IM-13")
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (_lose_an_output, "live_files_present"),
        (_cut_an_output, "live_files_present"),
        (_commit_fewer_rows, "rows_unchanged"),
        (_commit_another_row_count, "rows_unchanged"),
    ],
)
def test_a_failed_verification_is_a_failed_operation_that_can_be_rolled_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], check: str
) -> None:
    writer, ours = pair
    before = writer.load_table("db.t")
    rows, by_duckdb = read_pyiceberg(before), read_duckdb(before.metadata_location)
    good = head(writer)
    with monkeypatch.context() as patch:
        fault(patch)
        result = ours.maintain((), COMPACT)
    outcome = only(result)
    assert outcome.status is Status.FAILED
    assert not result.ok
    assert f"verification failed: {check}" in outcome.reason
    assert f"roll back to snapshot {good}" in outcome.reason
    assert outcome.actions[0].verified is False
    bad = head(writer)
    assert bad == outcome.actions[0].snapshot_id != good

    back = only(ours.rollback("db.t"))
    assert back.status is Status.DONE, back
    action = back.actions[0]
    assert (action.action, action.snapshot_id, action.previous_snapshot_id) == ("rollback", good, bad)
    assert action.verified is True
    after = writer.load_table("db.t")
    assert head(writer) == good
    assert read_pyiceberg(after) == rows
    assert read_duckdb(after.metadata_location) == by_duckdb == rows
    with pytest.raises(InputError, match="does not hold"):
        ours.rollback("db.t")


def test_without_a_failed_verification_a_snapshot_has_to_be_named(pair: Pair) -> None:
    writer, ours = pair
    ours.maintain((), COMPACT)
    with pytest.raises(InputError, match="no failed verification") as caught:
        ours.rollback("db.t")
    assert str(earlier(writer)) in str(caught.value.hint)


# To a snapshot that is named


def test_back_and_forward_again(pair: Pair) -> None:
    writer, ours = pair
    new, old = head(writer), earlier(writer, 2)
    back = only(ours.rollback("db.t", to=old))
    assert back.status is Status.DONE, back
    assert ids(writer) == [*range(40)]
    notes = back.actions[0].notes
    assert notes[0].startswith("out of view: 2 snapshots")
    assert str(new) in notes[0]
    assert notes[1].startswith("rows: 60 before, 40 after")
    assert f"rollback main.db.t --to {new}" in notes[2]
    forward = only(ours.rollback("db.t", to=new))
    assert forward.status is Status.DONE, forward
    assert not any("out of view" in note for note in forward.actions[0].notes)
    assert ids(writer) == [*range(60)]


def test_it_is_journaled_before_and_after(pair: Pair) -> None:
    writer, ours = pair
    new, old = head(writer), earlier(writer)
    result = ours.rollback("db.t", to=old, run_id="run")
    intent, outcome = ours.audit()
    assert (intent.action, intent.phase, outcome.phase, outcome.status) == ("rollback", "intent", "outcome", "done")
    assert (intent.details["from"], intent.details["to"]) == (new, old)
    assert intent.digest == outcome.digest == result.digest
    assert not ours.state.journal.open_intents("main.db.t")


def test_a_dry_run_changes_nothing(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    before, new = files_below(tmp_path / "warehouse"), head(writer)
    outcome = only(ours.rollback("db.t", to=earlier(writer), dry_run=True))
    assert (outcome.status, head(writer)) == (Status.SKIPPED, new)
    assert outcome.actions[0].snapshot_id == earlier(writer)
    assert outcome.actions[0].notes
    assert files_below(tmp_path / "warehouse") == before
    assert ours.audit() == []


def test_a_branch_keeps_its_retention(pair: Pair) -> None:
    writer, ours = pair
    table = writer.load_table("db.t")
    old, main = earlier(writer), head(writer)
    table.manage_snapshots().create_branch(
        main, "dev", max_ref_age_ms=7_000_000, max_snapshot_age_ms=8_000_000, min_snapshots_to_keep=3
    ).commit()
    outcome = only(ours.rollback("db.t", to=old, branch="dev"))
    assert outcome.status is Status.DONE, outcome
    ref = writer.load_table("db.t").metadata.refs["dev"]
    assert (ref.snapshot_id, ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (
        old,
        7_000_000,
        8_000_000,
        3,
    )
    assert head(writer) == main


# Refused


def test_what_does_not_exist_is_bad_input(pair: Pair) -> None:
    writer, ours = pair
    table = writer.load_table("db.t")
    table.manage_snapshots().create_tag(head(writer), "tagged").commit()
    with pytest.raises(InputError, match="no snapshot 12345") as caught:
        ours.rollback("db.t", to=12345)
    assert str(earlier(writer)) in str(caught.value.hint)
    for branch in ("tagged", "absent"):
        with pytest.raises(InputError, match=f"no branch {branch}") as caught:
            ours.rollback("db.t", to=earlier(writer), branch=branch)
        assert "main" in str(caught.value.hint)
    with pytest.raises(InputError, match=r"stands at snapshot \d+ already"):
        ours.rollback("db.t", to=head(writer))
    assert ours.audit() == []


def test_a_snapshot_whose_files_are_gone_is_refused(pair: Pair) -> None:
    writer, ours = pair
    old, new = earlier(writer), head(writer)
    files = [task.file.file_path for task in writer.load_table("db.t").scan(snapshot_id=old).plan_files()]
    Path(files[0].removeprefix("file://")).unlink()
    outcome = only(ours.rollback("db.t", to=old))
    assert outcome.status is Status.FAILED
    assert "cannot be read any more: 1 of" in outcome.reason
    assert head(writer) == new


def test_a_snapshot_whose_manifests_are_gone_is_refused(pair: Pair) -> None:
    writer, ours = pair
    old, new = earlier(writer), head(writer)
    snapshot = writer.load_table("db.t").snapshot_by_id(old)
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    outcome = only(ours.rollback("db.t", to=old))
    assert (outcome.status, head(writer)) == (Status.FAILED, new)


def test_a_table_whose_owner_says_no_is_blocked(pair: Pair) -> None:
    writer, ours = pair
    with writer.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"lakehouse-maintenance.enabled": "false"})
    new = head(writer)
    outcome = only(ours.rollback("db.t", to=earlier(writer)))
    assert (outcome.status, head(writer)) == (Status.BLOCKED, new)
    assert "lakehouse-maintenance.enabled" in outcome.reason


def test_a_table_that_another_run_holds_is_blocked(pair: Pair) -> None:
    writer, ours = pair
    with ours.state.leases.acquire("main.db.t", run_id="other", owner="somebody", ttl=timedelta(minutes=1)):
        outcome = only(ours.rollback("db.t", to=earlier(writer)))
    assert outcome.status is Status.BLOCKED
    assert "somebody" in outcome.reason


# Others, and answers that are lost


def test_what_somebody_commits_meanwhile_is_never_hidden(pair: Pair) -> None:
    writer, ours = pair
    old = earlier(writer)

    def late(attempt: int, real: Callable[[], Any]) -> Any:
        append(writer, "db.t", 100, 10)
        return real()

    with commits(ours, late):
        outcome = only(ours.rollback("db.t", to=old))
    assert outcome.status is Status.FAILED
    assert "it was not moved" in outcome.reason
    assert ids(writer) == sorted([*range(60), *range(100, 110)])


def test_a_lease_that_ended_stops_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    new, old = head(writer), earlier(writer)
    real = rolling_back._describe

    def describe(*args: Any) -> Any:
        after_the_lease(ours)
        with ours.state.leases.acquire("main.db.t", run_id="other", owner="somebody", ttl=timedelta(minutes=1)):
            return real(*args)

    monkeypatch.setattr(rolling_back, "_describe", describe)
    outcome = only(ours.rollback("db.t", to=old))
    assert (outcome.status, head(writer)) == (Status.FAILED, new)
    assert "lease" in outcome.reason


@pytest.mark.parametrize("error", [TimeoutError("no answer"), ForbiddenError("of the second try")])
@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_is_looked_up(pair: Pair, error: Exception, after: bool) -> None:
    writer, ours = pair
    old = earlier(writer)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        real()
        if after:
            append(writer, "db.t", 100, 10)
        raise error

    with commits(ours, lose):
        outcome = only(ours.rollback("db.t", to=old))
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == sorted([*range(50), *(range(100, 110) if after else ())])


def test_a_request_that_never_arrived_is_made_again(pair: Pair) -> None:
    writer, ours = pair
    old = earlier(writer)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        if attempt == 1:
            raise ConnectionResetError("reset")
        return real()

    with commits(ours, lose):
        outcome = only(ours.rollback("db.t", to=old))
    assert (outcome.status, outcome.actions[0].actual.attempts) == (Status.DONE, 2)
    assert head(writer) == old


def test_a_refusal_is_a_failure(pair: Pair) -> None:
    writer, ours = pair
    new = head(writer)

    def refuse(attempt: int, real: Callable[[], Any]) -> Any:
        raise ForbiddenError("not you")

    with commits(ours, refuse):
        outcome = only(ours.rollback("db.t", to=earlier(writer)))
    assert (outcome.status, head(writer)) == (Status.FAILED, new)
    assert "not you" in outcome.reason


@pytest.mark.parametrize("arrived", [True, False])
def test_an_answer_that_stays_unknown_is_told_by_the_next_run(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    writer, ours = pair
    old = earlier(writer)
    catalog = ours.catalogs["main"]
    real_load = catalog.load
    away = False

    def load(name: Any) -> Any:
        if away:
            raise CatalogUnavailableError("away", field="main")
        return real_load(name)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        nonlocal away
        if arrived:
            real()
        away = True
        raise TimeoutError("no answer")

    monkeypatch.setattr(catalog, "load", load)
    with commits(ours, lose):
        outcome = only(ours.rollback("db.t", to=old, run_id="lost"))
    assert outcome.status is Status.UNKNOWN
    away = False
    told = ours.maintain(()).tables[0].recovered
    assert [(r.run_id, r.action, r.status) for r in told] == [
        ("lost", "rollback", Status.DONE if arrived else Status.FAILED)
    ]
    assert (head(writer) == old) is arrived
    statuses = [e.status for e in ours.audit() if e.run_id == "lost" and e.phase == "outcome"]
    assert statuses == ["unknown", "done" if arrived else "failed"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_rollback_is_told_by_the_next_run(pair: Pair, when: str) -> None:
    writer, ours = pair
    old = earlier(writer)

    with pytest.MonkeyPatch.context() as patch:

        def die(attempt: int, real: Callable[[], Any]) -> Any:
            if when == "after":
                real()
            # The process is gone: nothing is journaled on the way out.
            patch.setattr(ours.state.journal, "record", _kill)
            raise Killed

        with commits(ours, die), being_killed():
            ours.rollback("db.t", to=old, run_id="killed")
    after_the_lease(ours)
    told = ours.maintain(()).tables[0].recovered
    assert [(r.run_id, r.action, r.status) for r in told] == [
        ("killed", "rollback", Status.DONE if when == "after" else Status.FAILED)
    ]


def _kill(*args: Any, **kwargs: Any) -> Any:
    raise Killed


# On the command line


def test_the_command_line_shows_both_ends(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lakehouse_maintenance.cli.running import main

    writer, ours = pair
    new, old = head(writer), earlier(writer)
    catalog = ours.config.catalogs["main"]
    config = {"catalogs": {"main": dict(catalog)}, "state": {"url": str(tmp_path / "state")}}
    path = tmp_path / "lakehouse.yaml"
    path.write_text(json.dumps(config))

    def call(*arguments: str) -> tuple[int, str]:
        code = main(["--config", str(path), *arguments])
        return code, capsys.readouterr().out

    code, out = call("rollback", "db.t", "--to", str(old), "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["tables"][0]["status"] == "skipped"
    code, out = call("rollback", "main.db.t", "--to", str(old))
    assert code == 0
    assert f"from snapshot {new} to {old}, verified" in out
    assert f"rollback main.db.t --to {new}" in out
    assert call("rollback", "db.t", "--to", "x")[0] == 2
    assert call("rollback", "db.t", "--to", "1")[0] == 2
    assert call("rollback", "db.*", "--to", "1")[0] == 2
    code, out = call("rollback", "db.t", "--to", str(new), "--json")
    action = json.loads(out)["tables"][0]["actions"][0]
    assert (action["snapshot_id"], action["previous_snapshot_id"], action["verified"]) == (new, old, True)
    assert head(writer) == new
