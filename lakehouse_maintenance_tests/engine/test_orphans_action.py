"""Removal of orphan files as an action of `plan`, `apply`, `maintain`: when it is due, what it may remove (IM-08)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import making
from lakehouse_maintenance.model.actions import Action, Control, Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.plans import Plan
from lakehouse_maintenance.planning.orphan_action import BLOCKED
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.stores import LIMITS, Lake

ORPHANS = Action.REMOVE_ORPHAN_FILES
ASKED = Request(actions=(ORPHANS,))


def sick(lake: Lake, name: str = "db.t") -> tuple[Table, str]:
    table = lake.table(name)
    return table, lake.put(f"{table.location()}/data/orphan.parquet")


def reasons(ours: Lakehouse, plan: Plan | None = None) -> str:
    (table,) = (plan or ours.plan(())).tables
    return "; ".join(skip.reason for skip in table.skipped if skip.action == ORPHANS)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Planning's clock, in days from now: ten, as the search's."""
    days = [10.0]
    monkeypatch.setattr(making, "now_ms", lambda: int((time.time() + days[0] * 86_400) * 1000))
    return days


def test_a_reviewed_plan_removes_what_was_reviewed(lake: Lake) -> None:
    _, orphan = sick(lake)
    ours = lake.open()
    there = lake.objects()
    plan = ours.plan((), ASKED)
    (action,) = plan.tables[0].actions
    assert (action.control, action.inputs.files, action.inputs.bytes) == (Control.EXACT, 1, 8)
    assert action.options["orphan-digest"] == lake.orphans(ours, delete=False).digest
    assert lake.objects() == there, "planning changes nothing"
    plan = Plan.from_json(plan.as_json())
    (outcome,) = ours.apply(plan).tables
    assert outcome.status is Status.DONE, outcome
    (done,) = outcome.actions
    assert (done.actual.deleted_files, done.actual.deleted_bytes, done.verified) == (1, 8, True)
    assert done.results == {"orphan_files_count": 1}
    assert there - lake.objects() == {orphan}
    phases = [e.phase for e in ours.audit() if e.action == ORPHANS]
    assert phases == ["intent", "outcome"], "told once"


def test_what_was_not_reviewed_is_not_removed(local_lake: Lake) -> None:
    table, _ = sick(local_lake)
    ours = local_lake.open()
    plan = ours.plan((), ASKED)
    local_lake.put(f"{table.location()}/data/another.parquet")
    there = local_lake.objects()
    (outcome,) = ours.apply(plan).tables
    assert outcome.status is Status.BLOCKED
    assert "not what was reviewed" in outcome.reason
    assert local_lake.objects() == there


def test_a_plan_that_names_no_files_is_refused(local_lake: Lake) -> None:
    sick(local_lake)
    ours = local_lake.open()
    told: list[Plan] = []
    there = local_lake.objects()

    def stop(plan: Plan) -> None:
        told.append(plan)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ours.maintain((), ASKED, told=stop)
    with pytest.raises(InputError, match="which orphan files of"):
        ours.apply(told[0])
    assert local_lake.objects() == there


def test_when_the_policy_makes_it_due(local_lake: Lake, later: list[float]) -> None:
    _, orphan = sick(local_lake)
    ours = local_lake.open()
    later[0] = 2.5
    assert "younger than older_than, 3 days" in reasons(ours)
    assert ours.maintain(()).tables[0].status is Status.SKIPPED
    later[0] = 10
    (outcome,) = ours.maintain(()).tables
    assert outcome.status is Status.DONE, outcome
    assert orphan not in local_lake.objects()
    # The run is remembered at the real time: planning is ten days later.
    assert ours.plan(()).tables[0].actions == (), "nothing is found"
    later[0] = 6.9
    assert "it ran 6 days 21 hours" in reasons(ours)
    later[0] = 7.1
    (outcome,) = ours.maintain(()).tables
    assert any("no orphan files among" in note for note in outcome.actions[0].notes)


def test_the_verb_counts_as_a_run(local_lake: Lake, later: list[float]) -> None:
    sick(local_lake)
    ours = local_lake.open()
    local_lake.orphans(ours)
    later[0] = 6
    assert "not due: it ran 6 days" in reasons(ours)


def test_never_by_itself(local_lake: Lake, later: list[float]) -> None:
    sick(local_lake)
    ours = local_lake.open(policies={"default": {"remove_orphan_files": {"every": None}}})
    assert "`every` is not set" in reasons(ours)


def test_a_policy_that_asks_for_review(local_lake: Lake, later: list[float]) -> None:
    _, orphan = sick(local_lake)
    ours = local_lake.open(policies={"default": {"remove_orphan_files": {"review": True}}})
    for request in (None, ASKED):
        (outcome,) = ours.maintain((), request).tables
        assert outcome.status is Status.SKIPPED
        assert "then `apply FILE`" in outcome.reason
        assert orphan in local_lake.objects()
    plan = ours.plan(())
    assert any("asks for review" in note for note in plan.tables[0].actions[0].notes)
    assert ours.apply(plan).tables[0].status is Status.DONE
    assert orphan not in local_lake.objects()


def test_what_a_policy_run_cannot_conclude_fails_nobody(local_lake: Lake, later: list[float]) -> None:
    """A tripped limit is told; the run had nothing to do with it, and does not list the table again at once."""
    _, orphan = sick(local_lake)
    ours = local_lake.open(limits={**LIMITS, "removed_share": 0.01})
    assert "removed_share" in reasons(ours), "a plan that would be refused is not made"
    result = ours.maintain(())
    assert result.ok
    (outcome,) = result.tables
    assert (outcome.status, outcome.actions[0].status) == (Status.SKIPPED, Status.SKIPPED)
    assert "removed_share" in outcome.reason
    later[0] = 0.5
    assert BLOCKED in ours._memory.table("main.db.t").last_run_ms
    assert "tried again after 1 day" in reasons(ours)
    (asked,) = ours.maintain((), ASKED).tables
    assert asked.status is Status.BLOCKED, "who asked for it is told that it could not be"
    assert orphan in local_lake.objects()


def test_moved_aside(local_lake: Lake) -> None:
    _, orphan = sick(local_lake)
    ours = local_lake.open(policies={"default": {"remove_orphan_files": {"removal": "quarantine"}}})
    (outcome,) = ours.maintain((), ASKED).tables
    assert outcome.status is Status.DONE, outcome
    (entry,) = ours.quarantined()
    assert any(entry.entry.id in note for note in outcome.actions[0].notes)
    assert ours.restore(entry.entry.id).ok
    assert orphan in local_lake.objects()


@pytest.mark.parametrize("verb", ["plan", "maintain"])
def test_one_folder_alone(local_lake: Lake, verb: str) -> None:
    table, orphan = sick(local_lake)
    other = local_lake.put(f"{table.location()}/elsewhere/orphan.parquet")
    ours = local_lake.open()
    asked: dict[str, Any] = {"location": f"{table.location()}/elsewhere", "max_concurrent_deletes": 1}
    request = Request(actions=(ORPHANS,), orphans=OrphanRequest(**asked))
    if verb == "plan":
        ours.apply(ours.plan((), request))
    else:
        ours.maintain((), request)
    assert orphan in local_lake.objects()
    assert other not in local_lake.objects()


def test_gc_enabled_false_and_a_short_age_are_refused(local_lake: Lake) -> None:
    table, _ = sick(local_lake)
    ours = local_lake.open()
    short = Request(actions=(ORPHANS,), orphans=OrphanRequest(older_than=timedelta(hours=1)))
    assert "nearer than 1 day" in reasons(ours, ours.plan((), short))
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    assert "gc.enabled=false" in reasons(ours, ours.plan((), ASKED))
