"""What is planned for one table, and the reason where nothing is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakehouse_maintenance.config.policies import MinGain, Policy, RewriteDataFiles
from lakehouse_maintenance.model.actions import Action, Control, Engine
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.manifests import ManifestFacts
from lakehouse_maintenance.model.plans import Expected, Inputs, Plan, PlannedAction, Skip, TablePlan
from lakehouse_maintenance.planning.blocks import LOCK_PROPERTY, block, lock_held
from lakehouse_maintenance.planning.budget import within_budget
from lakehouse_maintenance.planning.compaction import GroupPlan
from lakehouse_maintenance.planning.tables import Request, Subject, Throughput, plan_table
from lakehouse_maintenance_tests.planning_facts import HOUR, NOW, Table, data_file, delete_file

REWRITE = "rewrite_data_files"
ASKED = Request(actions=(Action.REWRITE_DATA_FILES,))
SICK = Table(tuple(data_file(f"f{n:03}", 5) for n in range(40)))


def subject(files: Table = SICK, *, rewrite: dict | None = None, policy: dict | None = None, **more: object) -> Subject:
    chosen = {"rewrite_data_files": RewriteDataFiles(**(rewrite or {})), **(policy or {})}
    health = TableHealth("main.sales.orders", data_files=len(files.data), small_files=len(files.data))
    return replace(Subject(files.state, health, Policy(**chosen), NOW), **more)  # type: ignore[arg-type]


def plan(about: Subject, files: Table = SICK, request: Request | None = None, **more: object) -> TablePlan:
    return plan_table(about, files.plan, request=request, **more)  # type: ignore[arg-type]


def with_properties(about: Subject, **properties: str) -> Subject:
    return replace(about, state=replace(about.state, properties=properties))


def no_look(_options: object) -> GroupPlan:
    raise AssertionError("the table's files were read although nothing speaks for a rewrite")


def why(about: Subject, request: Request | None = None) -> str:
    """The reason against rewriting, found without a look at the files."""
    made = plan_table(about, no_look, request=request)
    assert not made.actions
    (reason,) = [skip.reason for skip in made.skipped if skip.action == REWRITE]
    return reason


class TestDue:
    def test_a_due_table_is_planned_with_the_numbers(self):
        made = plan(subject(), throughput=Throughput(2**20, "history"))
        (action,) = made.actions
        assert action.action == Action.REWRITE_DATA_FILES
        assert (action.engine, action.control) == (Engine.EMBEDDED, Control.EXACT)
        assert action.reason == "small_files 40 ≥ 20 + 0.1 × 40 data_files = 24"
        assert action.inputs == Inputs(40, 40 * 5 * 2**20)
        assert action.expected == Expected(1, 200 * 2**20, 200.08, 39, 0, 2**20, "history")
        assert action.options["target-file-size-bytes"] == str(512 * 2**20)
        assert [skip.action for skip in made.skipped] == ["rewrite_manifests", "expire_snapshots"]
        assert made.skipped[0].reason == "not due: manifests 0 < 100"

    def test_the_same_findings_give_the_same_plan(self):
        first, again = (Plan(at, (plan(subject()),)) for at in ("2026-01-01", "2026-02-02"))
        assert first.digest == again.digest
        assert Plan.from_json(json.loads(json.dumps(first.as_json()))) == first

    def test_not_due_says_how_near_it_came(self):
        few = subject(Table(SICK.data[:20]))
        assert why(few) == "not due: small_files 20 < 20 + 0.1 × 20 data_files = 22"
        assert why(subject(rewrite={"trigger": []})) == "not due: no trigger is set"

    def test_cooldown(self):
        ran = subject(last_run_ms={REWRITE: NOW - HOUR // 2})
        assert why(ran).startswith("cooldown: it ran 30 minutes ago, and the cooldown is 1 hour; due: small_files 40")
        assert plan(subject(last_run_ms={REWRITE: NOW - HOUR})).actions
        # A clock ahead of ours holds it back for the cooldown, not for ever.
        assert why(subject(last_run_ms={REWRITE: NOW + HOUR // 2})).startswith("cooldown: it ran 0 seconds ago")
        assert plan(subject(last_run_ms={REWRITE: NOW + 5 * HOUR})).actions

    def test_min_gain_in_files(self):
        made = plan(subject(rewrite={"min_gain": MinGain(files=40)}))
        assert not made.actions
        assert made.skipped[0].reason == (
            "gain below min_gain: 39 fewer data files and 0 fewer delete files, "
            "by rewriting 40 files (200 MB); min_gain is 40 files"
        )
        assert plan(subject(rewrite={"min_gain": MinGain(files=39)})).actions

    def test_min_gain_in_bytes(self):
        assert not plan(subject(rewrite={"min_gain": "1GB"})).actions
        assert plan(subject(rewrite={"min_gain": "200MB"})).actions

    def test_delete_files_count_as_gain(self):
        files = Table((data_file("f", 600),), tuple(delete_file(f"d{n}", of="f", records=100) for n in range(6)))
        about = subject(files)
        about = replace(about, health=replace(about.health, small_files=0, delete_files=30))
        (action,) = plan(about, files).actions
        assert (action.expected.fewer_files, action.expected.fewer_deletes) == (0, 6)

    def test_nothing_to_gain_says_what_was_left(self):
        files = Table(tuple(data_file(f"f{n}", 5, partition=f"[{n}]") for n in range(40)))
        about = subject(files)
        about = replace(about, health=replace(about.health, dangling_delete_files=3))
        made = plan(about, files)
        assert not made.actions
        assert made.skipped[0].reason.startswith("nothing to gain: 40 files: too few")
        assert made.skipped[0].reason.endswith("3 delete files that reach no data file go with the next rewrite")


class TestRequest:
    def test_goes_past_trigger_cooldown_and_min_gain(self):
        few = Table(SICK.data[:6])
        about = subject(few, rewrite={"min_gain": "50 files"}, last_run_ms={REWRITE: NOW})
        made = plan(about, few, ASKED)
        assert made.actions[0].reason == "requested"
        assert not made.skipped

    def test_but_not_past_a_plan_that_gains_nothing(self):
        one = Table(SICK.data[:1])
        made = plan(subject(one), one, Request(ASKED.actions, {"rewrite-all": "true"}))
        assert not made.actions
        assert made.skipped[0].reason.startswith("nothing to gain")

    def test_options_go_over_the_policys(self):
        about = subject(rewrite={"options": {"target-file-size-bytes": "64MB", "min-input-files": "2"}})
        made = plan(about, request=Request(options={"target-file-size-bytes": "32MB"}))
        options = made.actions[0].options
        assert (options["target-file-size-bytes"], options["min-input-files"]) == (str(32 * 2**20), "2")

    def test_check_names_the_option(self):
        Request(options={"min-input-files": "2", "min-file-size-bytes": "900MB"}).check()
        for options in (
            {"target-file-size": "1MB"},
            {"min-input-files": "few"},
            {"target-file-size-bytes": "1MB", "min-file-size-bytes": "1MB"},
        ):
            with pytest.raises(InputError):
                Request(options=options).check()

    def test_options_that_do_not_fit_the_table_are_its_error(self):
        about = with_properties(subject(), **{"write.target-file-size-bytes": "16777216"})
        made = plan(about, request=Request(options={"min-file-size-bytes": "64MB"}))
        assert not made.actions
        assert made.error is not None
        assert made.error.startswith("rewrite_data_files: min-file-size-bytes (67108864) is not below the target")

    def test_a_broken_property_is_the_tables_error(self):
        made = plan(with_properties(subject(), **{"write.target-file-size-bytes": "large"}))
        assert "'large' is not a size" in str(made.error)


class TestOtherActions:
    def test_when_asked_for(self):
        made = plan(subject(), request=Request((Action.VACUUM,)))
        assert made.skipped == (Skip("vacuum", "vacuum is not available in this release"),)

    def test_manifests_when_due(self):
        about = subject()
        assert plan(about).skipped[0].reason.startswith("not due: manifests")
        about = replace(about, health=replace(about.health, manifests=120))
        assert plan(about).skipped[0].reason == "nothing to do: branch main has no manifests"
        listed = [ManifestFacts(f"m{n}", 1000, 0, False, 10, ()) for n in range(120)]
        made = plan_table(about, lambda options: GroupPlan(), manifests=lambda branch: listed)
        assert [action.action for action in made.actions] == ["rewrite_manifests"]
        (action,) = made.actions
        assert action.reason == "manifests 120 ≥ 100; 120 small manifests fit into 1"
        assert (action.inputs.files, action.expected.files, action.expected.fewer_files) == (120, 1, 119)
        assert Plan.from_json(Plan("", (made,)).as_json()).tables == (made,)

    def test_delete_files_on_request(self):
        asked = Request((Action.REWRITE_POSITION_DELETE_FILES,))
        assert plan(subject(), request=asked).skipped[0].reason.startswith("nothing to gain")
        v3 = subject()
        v3 = replace(v3, state=replace(v3.state, format_version=3))
        assert plan(v3, request=asked).skipped[0].reason.startswith("unsupported: format version 3 forbids")
        v3 = replace(v3, cannot_commit="this catalog takes no version 3")
        for action in (Action.REWRITE_POSITION_DELETE_FILES, Action.REWRITE_MANIFESTS):
            made = plan(v3, request=Request((action,)))
            assert made.skipped[0].reason == "unsupported: this catalog takes no version 3"


class TestUnsupported:
    def test_where_no_commit_can_be_made(self):
        about = replace(subject(), cannot_commit="its metadata has no next-row-id")
        assert why(about, ASKED) == "unsupported: its metadata has no next-row-id"
        (skip,) = plan(about, request=Request((Action.EXPIRE_SNAPSHOTS,))).skipped
        assert skip.reason == "unsupported: its metadata has no next-row-id"

    def test_features_are_named(self):
        about = subject()
        odd = replace(about, state=replace(about.state, features=("encryption", "variant columns")))
        assert why(odd) == "unsupported: the embedded engine cannot keep: encryption, variant columns"

    @pytest.mark.parametrize(
        ("about", "request_"),
        [
            (subject(), Request(engine="spark")),
            (subject(policy={"engine": "spark"}), Request(engine="auto")),
            (subject(default_engine="spark"), None),
        ],
        ids=["request", "policy", "default"],
    )
    def test_spark(self, about, request_):
        assert why(about, request_) == "unsupported: the spark engine is not part of this release"

    def test_the_nearest_word_on_the_engine_counts(self):
        assert plan(subject(policy={"engine": "embedded"}, default_engine="spark")).actions
        assert plan(subject(policy={"engine": "spark"}), request=Request(engine="embedded")).actions

    def test_orders_that_the_table_cannot_have(self):
        for about, asked in (
            (subject(rewrite={"strategy": "sort"}), None),
            (subject(), Request(strategy="zorder")),
            (subject(), Request(sort_order="a")),
            (subject(), Request(strategy="sort", sort_order="a")),
            (subject(rewrite={"strategy": "zorder", "sort_order": "a, b"}), None),
        ):
            made = plan_table(about, no_look, request=asked)
            assert not made.actions
            assert "(" in str(made.error), "with a hint"
            assert str(made.error).startswith("rewrite_data_files: ")

    def test_the_order_of_a_policy_belongs_to_its_strategy(self):
        about = subject(rewrite={"strategy": "zorder", "sort_order": "a, b"})
        about = replace(about, state=replace(about.state, column_types={"a": "int", "b": "int"}))
        (action,) = plan(about).actions
        assert (action.options["strategy"], action.options["sort-order"]) == ("zorder", "zorder(a, b)")
        (action,) = plan(about, request=Request(strategy="sort", sort_order="b DESC")).actions
        assert (action.options["strategy"], action.options["sort-order"]) == ("sort", "b DESC NULLS LAST")
        (action,) = plan(about, request=Request(strategy="binpack")).actions
        assert "sort-order" not in action.options

    def test_binpack_over_a_sorting_policy(self):
        assert plan(subject(rewrite={"strategy": "sort"}), request=Request(strategy="binpack")).actions


class TestBlocks:
    def test_every_considered_action_is_blocked(self):
        off = with_properties(subject(), **{"lakehouse-maintenance.enabled": "False"})
        made = plan_table(replace(off, named_by_policy=True), no_look)
        assert [skip.action for skip in made.skipped] == [REWRITE, "rewrite_manifests", "expire_snapshots"]
        assert {skip.reason for skip in made.skipped} == {
            "switched off by the table's property lakehouse-maintenance.enabled=false"
        }
        assert why(off, ASKED)

    @pytest.mark.parametrize(
        "properties",
        [
            {"self-optimizing.enabled": "true"},
            {"openhouse.tableUri": "cluster.db.t"},
            {"flink-maintenance.rewrite.enabled": "true"},
        ],
    )
    def test_other_services(self, properties):
        managed = with_properties(subject(), **properties)
        assert why(managed, ASKED).startswith("maintained by ")
        assert plan(replace(managed, named_by_policy=True)).actions

    def test_s3_tables(self):
        about = subject()
        bucket = replace(about.state, location="s3://63a8e430-6e0b-46f5-k833abtwr6s8tmtsycedn8s4yc3xhuse1b--table-s3")
        assert "S3 Tables" in str(block(bucket, now_ms=NOW))
        path = replace(about.state, location="s3://lake/a--table-s3/t")
        assert block(path, now_ms=NOW) is None

    def test_what_is_switched_off_elsewhere_is_ours(self):
        assert plan(with_properties(subject(), **{"self-optimizing.enabled": "false"})).actions
        assert plan(with_properties(subject(), **{"flink-maintenance.rewrite.max-bytes": "1"})).actions

    def test_metadata_generated_from_delta_is_never_touched(self):
        uniform = with_properties(subject(), **{"delta-version": "12"})
        assert "generated by" in why(replace(uniform, named_by_policy=True), ASKED)

    def test_the_empty_table(self):
        empty = Table((), times={})
        about = subject(empty)
        assert why(replace(about, state=replace(about.state, snapshot_id=None)), ASKED) == (
            "nothing to do: the table is empty"
        )

    def test_a_table_that_could_not_be_measured(self):
        made = plan_table(replace(subject(), health=TableHealth("t", error="manifest list is truncated")), no_look)
        assert (made.error, made.actions, made.skipped) == ("manifest list is truncated", (), ())


class TestLock:
    def lock(self, **changes: object) -> dict[str, str]:
        value = {
            "owner": "spark-job",
            "run_id": "r7",
            "acquired_at": "2026-09-21T13:00:00+00:00",
            "expires_at": "2026-09-21T14:13:21+00:00",
        }
        return {LOCK_PROPERTY: json.dumps({**value, **changes})}

    def test_held(self):
        # NOW is 2026-09-21T14:13:20Z.
        reason = why(with_properties(subject(), **self.lock()), ASKED)
        assert reason.startswith(
            "locked by spark-job (run r7) since 2026-09-21T13:00:00+00:00 until 2026-09-21T14:13:2"
        )

    def test_expired(self):
        assert plan(with_properties(subject(), **self.lock(expires_at="2026-09-21T14:13:20+00:00"))).actions

    @pytest.mark.parametrize("expires", ["2026-09-21T14:13:21", "2026-09-21T14:13:21Z", "2026-09-21T16:13:21+02:00"])
    def test_forms_of_time(self, expires):
        assert lock_held(self.lock(expires_at=expires), now_ms=NOW)
        assert lock_held(self.lock(expires_at=expires), now_ms=NOW + 1000) is None

    @pytest.mark.parametrize(
        "value",
        [
            *("", "x", "[]", "null", "{}", '{"owner": "a", "run_id": "b"}'),
            '{"owner":"a","run_id":"b","expires_at":12}',
            '{"owner":"a","run_id":"b","expires_at":"soon"}',
        ],
    )
    def test_unreadable_counts_as_held(self, value):
        assert str(lock_held({LOCK_PROPERTY: value}, now_ms=NOW)).startswith("locked: the value of")


def action(gain: int, size: int) -> PlannedAction:
    return PlannedAction(
        Action.REWRITE_DATA_FILES,
        Engine.EMBEDDED,
        Control.EXACT,
        "due",
        Inputs(gain + 1, size),
        Expected(1, size, 1.0, fewer_files=gain),
        {},
    )


class TestBudget:
    plans = (
        TablePlan("a", "u", 1, (action(10, 100),)),
        TablePlan("b", "u", 1, (action(100, 100),), (Skip("expire_snapshots", "not due"),)),
        TablePlan("c", "u", 1, (action(1, 40),)),
        TablePlan("d", "u", 1),
    )

    def test_no_limit(self):
        assert within_budget(self.plans, None, 10**15) == (self.plans, ())

    def test_the_best_gain_for_its_cost_goes_first(self):
        kept, left = within_budget(self.plans, 150, 0)
        assert [plan.table for plan in kept] == ["a", "b", "c", "d"]
        assert [len(plan.actions) for plan in kept] == [0, 1, 1, 0]
        assert kept[0].skipped == (
            Skip(REWRITE, "budget: it reads 100 bytes, and 50 bytes of today's 150 bytes are left"),
        )
        assert [(over.table, over.action) for over in left] == [("a", REWRITE)]
        assert kept[1] == self.plans[1]

    def test_what_was_spent_counts(self):
        kept, _ = within_budget(self.plans, 150, 60)
        assert [len(plan.actions) for plan in kept] == [0, 0, 1, 0]
        assert not any(plan.actions for plan in within_budget(self.plans, 150, 200)[0])

    def test_more_than_a_whole_day(self):
        _, left = within_budget(self.plans, 90, 0)
        assert left[0].reason == "budget: it reads 100 bytes, more than a whole day's budget of 90 bytes"
