"""Advice by symptoms, what a policy makes of it, and which versions of the metadata may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lakehouse_maintenance.config.policies import Policy, SetProperties
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.advice import Advice
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.planning.advice import advise, to_set
from lakehouse_maintenance.planning.metadata_history import (
    MetadataVersions,
    PruneRequest,
    Pruning,
    leaving,
    plan_prune,
    prunable,
    pruning,
)
from lakehouse_maintenance.planning.orphan_action import plan_orphans
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.tables import Subject
from lakehouse_maintenance.planning.triggers import POLICY_ACTIONS, due_actions, triggers_of
from lakehouse_maintenance_tests.planning_facts import HOUR, NOW, table

DELETE, MAX = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"
MERGE, COUNT, SIZE = (
    "commit.manifest-merge.enabled",
    "commit.manifest.min-count-to-merge",
    "commit.manifest.target-size-bytes",
)
TARGET = "write.target-file-size-bytes"
AGE, LEAST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
MB = 1 << 20
WELL = TableHealth(
    "t", records=10, data_files=10, data_bytes=10 * 512 * MB, snapshots=5, manifests=3, manifests_after=2
)


def advised(health: TableHealth, **properties: str) -> dict[str, Advice]:
    found = advise(health, properties, Policy())
    assert len({one.property for one in found}) == len(found)
    return {one.property: one for one in found}


@pytest.mark.requirement("IM-18")
def test_a_table_that_is_well_gets_none() -> None:
    assert advised(WELL) == {}
    assert advised(TableHealth("t", error="gone", metadata_files=500)) == {}


@pytest.mark.requirement("IM-18")
def test_metadata_files() -> None:
    sick = replace(WELL, metadata_files=101, metadata_bytes=5 * MB)
    found = advised(sick)
    assert list(found) == [DELETE, MAX]
    assert (found[DELETE].value, found[MAX].value) == ("true", "20")
    assert "101 metadata files (5 MB)" in found[DELETE].reason
    assert advised(sick, **{DELETE: "TRUE", MAX: "20"}) == {}
    assert list(advised(sick, **{DELETE: "true", MAX: "200"})) == [MAX]
    assert advised(replace(sick, metadata_files=20)) == {}


@pytest.mark.requirement("IM-18")
@pytest.mark.requirement("IM-21")
def test_manifests() -> None:
    sick = replace(WELL, manifests=150, manifests_after=3, manifest_bytes=MB, opened_manifests_worst=140)
    found = advised(sick)
    assert list(found) == [MERGE, COUNT]
    assert found[MERGE].reason == (
        "150 manifests (1 MB) where about 3 would do; a query on one partition opens up to 140; "
        "unset, Iceberg's Java writers merge and PyIceberg's do not"
    )
    assert "switched off" in advised(sick, **{MERGE: "false"})[MERGE].reason
    assert list(advised(sick, **{MERGE: "true"})) == [COUNT]
    assert advised(sick, **{MERGE: "true", COUNT: "20"}) == {}
    # Fewer than gather before a merge: merging may well be on.
    assert list(advised(replace(sick, manifests=60))) == [COUNT]
    assert list(advised(sick, **{MERGE: "true", COUNT: "10", SIZE: "65536"})) == [SIZE]
    assert advised(replace(sick, manifests_after=100)) == {}, "they are as few as their size lets them be"


@pytest.mark.requirement("IM-18")
def test_target_file_size() -> None:
    sick = replace(WELL, data_files=1000, data_bytes=1000 * 4 * MB)
    assert advised(sick, **{TARGET: str(4 * MB)})[TARGET].value == str(512 * MB)
    assert advised(sick) == {}, "what is small though the target is large is compaction's work"


@pytest.mark.requirement("IM-18")
def test_retention() -> None:
    sick = replace(WELL, snapshots=300, expired_snapshots=200, reclaimable_bytes=MB)
    found = advised(sick)
    assert (found[AGE].value, found[LEAST].value) == (str(5 * 24 * 3_600_000), "10")
    assert found[AGE].reason.startswith("200 of 300 snapshots have outlived the policy and hold 1 MB")
    longer = advised(replace(sick, expired_snapshots=0), **{AGE: str(10**12), LEAST: "5"})
    assert list(longer) == [AGE]
    assert longer[AGE].current == str(10**12)


@pytest.mark.requirement("IM-18")
def test_what_a_policy_sets() -> None:
    advice = (Advice(MERGE, "true", None, ""), Advice(AGE, "5", "9", ""), Advice(LEAST, "5", None, ""))
    every = Policy(set_properties={"advised": True})
    assert to_set(every, advice, {AGE: "9"}) == {MERGE: "true", LEAST: "5"}, (
        "an owner's retention is not advice's to change"
    )
    some = Policy(set_properties={"advised": [LEAST], "values": {MERGE: False, AGE: 7}})
    assert to_set(some, advice, {AGE: "9"}) == {LEAST: "5", MERGE: "false", AGE: "7"}
    assert to_set(some, advice, {LEAST: "5", MERGE: "false", AGE: "7"}) == {}
    assert to_set(Policy(), advice, {}) == {}


@pytest.mark.parametrize(
    "name", ["format-version", "gc.enabled", "location", "write.data.path", "write.location-provider.impl", "owner"]
)
def test_properties_of_another_meaning_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="is no property that is set by policy"):
        SetProperties(values={name: "1"})


@pytest.mark.requirement("IM-15")
def test_each_symptom_has_its_trigger() -> None:
    symptoms = {
        Action.REWRITE_DATA_FILES: replace(WELL, small_files=40),
        Action.REWRITE_POSITION_DELETE_FILES: replace(WELL, position_delete_files=60, delete_files=5),
        Action.REWRITE_MANIFESTS: replace(WELL, manifests=1000),
        Action.EXPIRE_SNAPSHOTS: replace(WELL, expired_snapshots=10),
        Action.SET_PROPERTIES: replace(WELL, properties_to_set=1),
        Action.PRUNE_METADATA: replace(WELL, prunable_metadata_files=10),
    }
    assert tuple(symptoms) == POLICY_ACTIONS
    for action, health in symptoms.items():
        assert [due.action for due in due_actions(health, Policy(), {}, 0)] == [action]
    assert due_actions(WELL, Policy(), {}, 0) == ()
    # Many deletes are for compaction as well, which applies them.
    deletes = replace(WELL, delete_files=60, position_delete_files=60)
    assert [due.action for due in due_actions(deletes, Policy(), {}, 0)] == list(POLICY_ACTIONS[:2])


@pytest.mark.requirement("IM-15")
def test_files_out_of_order_make_sorting_due_and_nothing_else() -> None:
    shuffled = replace(WELL, data_files=100, overlapping_files=80, overlap_depth_percent=2000)
    for rewrite, is_due in (
        ({}, False),
        ({"strategy": "sort"}, True),
        ({"strategy": "zorder", "sort_order": "a, b"}, True),
        ({"strategy": "sort", "trigger": []}, False),
    ):
        found = due_actions(shuffled, Policy(rewrite_data_files=rewrite), {}, 0)
        assert [due.action for due in found] == ([Action.REWRITE_DATA_FILES] if is_due else []), rewrite
    assert [trigger.of for trigger in triggers_of(Action.REMOVE_ORPHAN_FILES, Policy())] == ["orphan_bytes"]


@pytest.mark.requirement("IM-15")
def test_counted_orphans_make_their_removal_due_before_its_time() -> None:
    last = NOW - HOUR
    much = replace(WELL, orphan_bytes=2 << 30, orphan_files=9)
    for counted, size, is_due in ((last + 1, 2 << 30, True), (last - 1, 2 << 30, False), (last + 1, 5, False)):
        health = replace(much, orphans_counted_ms=counted, orphan_bytes=size)
        subject = Subject(table().state, health, Policy(), NOW, {Action.REMOVE_ORPHAN_FILES: last})
        planned = plan_orphans(subject, OrphanRequest(), None, requested=None)
        assert isinstance(planned, str) is not is_due, planned


class TestMetadataHistory:
    @given(st.lists(st.integers(0, 30).map(str), max_size=20), st.integers(1, 25))
    @pytest.mark.requirement("IM-07")
    def test_what_leaves_is_never_the_current_nor_the_newest_previous(self, log: list[str], keep: int) -> None:
        gone = leaving("now", log, keep)
        assert set(gone).isdisjoint([*log, "now"][-keep:])
        assert set(gone) | set([*log, "now"][-keep:]) == {*log, "now"}
        assert len(set(gone)) == len(gone)

    @pytest.mark.requirement("IM-07")
    def test_fewer_stay_only_where_the_property_may_say_so(self) -> None:
        policy = Policy(prune_metadata={"keep": 5}).prune_metadata
        assert "set_properties" in str(pruning(policy, PruneRequest(), {}))
        assert pruning(policy, PruneRequest(set_properties=True), {}) == Pruning(5, {MAX: "5"}, {DELETE: "true"})
        assert pruning(policy, PruneRequest(), {MAX: "3"}) == Pruning(3, {MAX: "3"}, {})
        assert "gc.enabled" in str(pruning(policy, PruneRequest(set_properties=True), {"gc.enabled": "false"}))
        allowed = Policy(prune_metadata={"keep": 5, "set_properties": True}).prune_metadata
        assert prunable(allowed, {}, 60) == 55
        assert prunable(allowed, {}, 4) == 0
        assert prunable(policy, {}, 60) == 0
        assert prunable(policy, {MAX: "20"}, 60) == 0
        assert prunable(Policy().prune_metadata, {MAX: "20"}, 60) == 40, "what a writer left untrimmed"

    @pytest.mark.requirement("IM-07")
    def test_the_plan_reports_count_and_size(self) -> None:
        log = tuple(f"v{n}" for n in range(9))
        versions = MetadataVersions("v9", log, {f"v{n}": 1 << 20 for n in range(1, 10)})
        policy = Policy(prune_metadata={"keep": 4, "set_properties": True}).prune_metadata
        planned = plan_prune(policy, PruneRequest(), {}, lambda: versions, "why")
        assert not isinstance(planned, str)
        assert [file.path for file in planned.files] == [f"v{n}" for n in range(6)]
        assert (planned.inputs.files, planned.inputs.bytes) == (6, 5 << 20)
        assert planned.notes[0].startswith("10 metadata files (9 MB, 1 of them gone already); 6 (5 MB) leave the log")
        done = {MAX: "4", DELETE: "true"}
        short = MetadataVersions("v4", log[:4], {})
        assert "nothing to prune" in str(plan_prune(policy, PruneRequest(), done, lambda: short, "why"))
        only_properties = plan_prune(policy, PruneRequest(), {MAX: "4"}, lambda: short, "why")
        assert not isinstance(only_properties, str), "the other property is still to be set"

    @pytest.mark.parametrize(
        "options", [{"previous-versions-max": "0"}, {"previous-versions-max": "x"}, {"set-properties": "1"}]
    )
    def test_bad_options(self, options: dict[str, str]) -> None:
        with pytest.raises(InputError) as raised:
            PruneRequest.from_options(options)
        assert raised.value.field in options
        assert PruneRequest.from_options({"previous-versions-max": "7", "set-properties": "TRUE"}) == PruneRequest(
            7, True
        )
