"""`maintain` works a table in the safe order, each action planned from what the one before left (IM-11)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import maintaining, making, orphan_search, rewriting, running
from lakehouse_maintenance.execution.work import Blocked
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import CommitUnknownError, StorageError
from lakehouse_maintenance.model.outcomes import Check
from lakehouse_maintenance.model.plans import Plan, Skip
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import append, before_commit, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

REWRITE, EXPIRE, ORPHANS = Action.REWRITE_DATA_FILES, Action.EXPIRE_SNAPSHOTS, Action.REMOVE_ORPHAN_FILES
COMMITS = 6
SPENT = Skip(EXPIRE, "budget: it is spent")
POLICY: dict[str, Any] = {
    "rewrite_data_files": {"trigger": {"of": "small_files", "base": 5}, "min_gain": "1 file"},
    # Of six commits five could go; compaction makes the sixth old as well.
    "expire_snapshots": {
        "trigger": {"of": "expired_snapshots", "base": COMMITS},
        "older_than": "0s",
        "retain_last": 1,
        "allow_short_retention": True,
    },
}
BOTH = Request(actions=(EXPIRE, REWRITE), expiry=ExpiryRequest(timedelta(0), retain_last=1, allow_short_retention=True))


def with_policy(folder: Path, properties: dict[str, str], **more: Any) -> Lakehouse:
    limits = {"removed_share": 1.0, "removed_files": 1000, "first_run_files": 1000}
    return lakehouse(folder, properties, policies={"default": {**POLICY, **more}}, limits=limits)


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    catalog, properties = sql_catalog()
    many_small_files(catalog, commits=COMMITS, partitioned=False)
    return catalog, with_policy(tmp_path, properties)


def days_later(patch: pytest.MonkeyPatch, days: int = 10) -> None:
    """For planning and for the search."""
    moved = days * 86_400_000
    for module in (making, orphan_search):
        patch.setattr(module, "now_ms", lambda: int(time.time() * 1000) + moved)


def snapshots(catalog: SqlCatalog) -> int:
    return len(catalog.load_table("db.t").metadata.snapshots)


@pytest.mark.requirement("IM-11")
def test_each_action_is_planned_from_what_the_one_before_left(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    stray = tmp_path / "warehouse" / "db" / "t" / "data" / "stray.parquet"
    stray.write_bytes(b"nobody's")
    days_later(monkeypatch)
    first = ours.due(())
    assert [action.action for action in first.tables[0].actions] == [REWRITE, ORPHANS]
    assert any(skip.action == EXPIRE and "5 < 6" in skip.reason for skip in first.tables[0].skipped)
    rows = ids(writer)
    (outcome,) = ours.maintain(()).tables
    assert outcome.status is Status.DONE, outcome
    assert [(action.action, action.status) for action in outcome.actions] == [
        (REWRITE, Status.DONE),
        (EXPIRE, Status.DONE),
        (ORPHANS, Status.DONE),
    ]
    assert outcome.actions[1].actual.expired_snapshots == COMMITS, "what compaction left behind went as well"
    assert snapshots(writer) == 1
    assert not stray.exists()
    assert ids(writer) == rows
    assert not ours.state.journal.open_intents("main.db.t")
    monkeypatch.undo()
    assert ours.maintain(()).tables[0].status is Status.SKIPPED


@pytest.mark.requirement("IM-11")
def test_a_reviewed_plan_stays_as_it_was_reviewed(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    (outcome,) = ours.apply(ours.plan(())).tables
    assert [action.action for action in outcome.actions] == [REWRITE]
    assert snapshots(writer) == COMMITS + 1


@pytest.mark.requirement("IM-11")
def test_the_order_is_the_safe_one_whatever_was_asked_first(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    assert [action.action for action in ours.plan((), BOTH).tables[0].actions] == [REWRITE, EXPIRE]
    (outcome,) = ours.maintain((), BOTH).tables
    assert [action.action for action in outcome.actions] == [REWRITE, EXPIRE]
    assert snapshots(writer) == 1


def test_an_append_between_two_actions_survives(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair

    def hook(attempt: int) -> None:
        if attempt == 2:
            append(writer, "db.t", 1000, 10)

    with before_commit(ours, hook):
        (outcome,) = ours.maintain((), BOTH).tables
    assert outcome.status is Status.DONE, outcome
    assert set(ids(writer)) == {*range(COMMITS * 10), *range(1000, 1010)}


def _ends_as(error: BaseException) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        raise error

    return run


@pytest.mark.requirement("IM-11")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CommitUnknownError("the answer was lost"), Status.UNKNOWN),
        (Blocked("somebody says no"), Status.BLOCKED),
        (StorageError("the network is gone"), Status.FAILED),
    ],
)
@pytest.mark.parametrize("verb", ["maintain", "apply"])
def test_nothing_is_done_after_an_action_that_did_not_end_well(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch, error: Exception, status: Status, verb: str
) -> None:
    writer, ours = pair
    monkeypatch.setitem(running._RUNNERS, REWRITE, _ends_as(error))
    result = ours.maintain((), BOTH) if verb == "maintain" else ours.apply(ours.plan((), BOTH))
    (outcome,) = result.tables
    assert (outcome.status, [action.action for action in outcome.actions]) == (status, [REWRITE])
    assert [(skip.action, skip.reason) for skip in outcome.skipped] == [
        (EXPIRE, f"not run: rewrite_data_files before it ended as {status}")
    ]
    assert snapshots(writer) == COMMITS


@pytest.mark.requirement("IM-11")
def test_nothing_expires_after_a_rewrite_that_was_not_verified(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    wrong = (Check("rows_unchanged", False, "a row is missing"),)
    monkeypatch.setattr(rewriting, "verify_commit", lambda *args: wrong)
    (outcome,) = ours.maintain((), BOTH).tables
    assert outcome.status is Status.FAILED
    assert "roll back to snapshot" in outcome.reason
    assert snapshots(writer) == COMMITS + 1, "the snapshot to go back to is there"


def test_stopped_between_two_actions_nothing_is_half_done(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    with monkeypatch.context() as patch:
        patch.setattr(maintaining, "plan_one", _ends_as(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ours.maintain((), BOTH)
    assert ours.state.leases.current("main.db.t") is None
    assert not ours.state.journal.open_intents("main.db.t")
    assert snapshots(writer) == COMMITS + 1
    (outcome,) = ours.maintain((), BOTH).tables
    assert [action.action for action in outcome.actions] == [EXPIRE]
    assert snapshots(writer) == 1


def test_a_table_that_cannot_be_planned_again_has_failed(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    monkeypatch.setattr(maintaining, "plan_one", _ends_as(StorageError("the network is gone")))
    (outcome,) = ours.maintain((), BOTH).tables
    assert outcome.status is Status.FAILED
    assert outcome.reason == "it could not be planned: the network is gone"
    assert snapshots(writer) == COMMITS + 1


def test_what_the_budget_refused_stays_refused(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer, commits=COMMITS + 1, partitioned=False)
    ours = with_policy(tmp_path, properties, budget={"bytes_per_day": "1 KB"}, remove_orphan_files={"every": None})
    (outcome,) = ours.maintain(()).tables
    assert [action.action for action in outcome.actions] == [EXPIRE]
    assert any(skip.action == REWRITE and skip.reason.startswith("budget:") for skip in outcome.skipped)
    assert snapshots(writer) == 1


def test_what_is_planned_later_is_held_against_the_budget_too(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    looked: list[Plan] = []

    def spent(self: Lakehouse, plan: Plan, asked: Request) -> Plan:
        looked.append(plan)
        if len(looked) == 1:
            return plan
        return replace(plan, tables=tuple(replace(t, actions=(), skipped=(SPENT,)) for t in plan.tables))

    monkeypatch.setattr(Lakehouse, "_affordable", spent)
    (outcome,) = ours.maintain((), BOTH).tables
    assert [action.action for action in outcome.actions] == [REWRITE]
    assert SPENT in outcome.skipped
    assert snapshots(writer) == COMMITS + 1
