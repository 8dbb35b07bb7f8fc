"""When time alone makes something due, and which turn it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.config.policies import Policy
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.plans import TablePlan
from lakehouse_maintenance.model.snapshots import RefFact, SnapshotFact
from lakehouse_maintenance.planning.blocks import LOCK_PROPERTY
from lakehouse_maintenance.planning.expiring import ExpiryFacts
from lakehouse_maintenance.planning.expiry import expired_snapshots
from lakehouse_maintenance.planning.tables import Subject
from lakehouse_maintenance.planning.timing import due_since_ms, look_again_ms, turn_ms, turn_start_ms
from lakehouse_maintenance_tests.planning_facts import HOUR, NOW, table

DAY = 24 * HOUR
NOTHING = TablePlan("main.sales.orders", "u", 1)


def policy(**changes: object) -> Policy:
    """Snapshots older than two days go as soon as two of them can, but for the newest."""
    expire = {"older_than": "2 days", "retain_last": 1, "trigger": {"of": "expired_snapshots", "base": 2}}
    return Policy.model_validate({"expire_snapshots": {**expire, **changes}})


def subject(ages: list[int], chosen: Policy, *, refs: tuple[RefFact, ...] = (), now: int = NOW) -> Subject:
    """A main branch with snapshots of these ages in milliseconds at NOW, oldest first; looked at `now`."""
    snapshots = tuple(SnapshotFact(n, n - 1 or None, NOW - age) for n, age in enumerate(ages, 1))
    facts = ExpiryFacts(snapshots, (RefFact("main", "branch", len(ages)), *refs), {})
    gone = expired_snapshots(facts.snapshots, facts.refs, chosen.expire_snapshots, {}, now)
    health = TableHealth(
        "main.sales.orders",
        snapshot_id=len(ages),
        snapshots=len(ages),
        expired_snapshots=len(gone.snapshot_ids),
        newest_snapshot_ms=NOW - ages[-1],
    )
    return Subject(table().state, health, chosen, now, expiry=facts)


def test_a_quiet_table_is_looked_at_when_the_trigger_will_be_reached() -> None:
    young = subject([30 * HOUR, 20 * HOUR, 10 * HOUR, HOUR], policy())

    # The second snapshot is the second that can go.
    assert look_again_ms(young, NOTHING) == NOW + 28 * HOUR + 1


def test_without_retention_or_trigger_time_changes_nothing() -> None:
    ages = [30 * HOUR, 20 * HOUR, HOUR]

    assert look_again_ms(subject(ages, policy(trigger=[])), NOTHING) is None
    assert look_again_ms(subject(ages, policy(trigger={"of": "snapshots", "base": 9})), NOTHING) is None
    kept = replace(subject(ages, policy()), expiry=ExpiryFacts((), (), {"gc.enabled": "false"}))
    assert look_again_ms(kept, NOTHING) is None


def test_a_trigger_on_bytes_is_looked_at_when_the_next_snapshot_can_go() -> None:
    found = subject([30 * HOUR, 20 * HOUR, HOUR], policy(trigger={"of": "reclaimable_bytes", "base": 100}))

    assert look_again_ms(found, NOTHING) == NOW + 18 * HOUR + 1


def test_a_ref_with_ages_of_its_own_counts() -> None:
    tag = RefFact("t", "tag", 1, max_ref_age_ms=31 * HOUR)
    one = policy(trigger={"of": "expired_snapshots", "base": 1})

    assert look_again_ms(subject([30 * HOUR, HOUR], one, refs=(tag,)), NOTHING) == NOW + 18 * HOUR + 1
    kept_longer = RefFact("t", "tag", 1, max_ref_age_ms=60 * HOUR)
    assert look_again_ms(subject([30 * HOUR, HOUR], one, refs=(kept_longer,)), NOTHING) == NOW + 30 * HOUR + 1


def test_a_cooldown_and_a_settling_time_end() -> None:
    found = subject([HOUR], policy())
    sick = replace(found, health=replace(found.health, small_files=99, data_files=99))

    cooling = replace(sick, last_run_ms={Action.REWRITE_DATA_FILES: NOW - HOUR // 4})
    assert look_again_ms(cooling, NOTHING) == NOW + HOUR * 3 // 4
    assert look_again_ms(sick, NOTHING) is None, "what gains nothing now gains nothing later"
    settling = Policy.model_validate({"rewrite_data_files": {"settle": "30 minutes"}})
    assert look_again_ms(replace(sick, policy=settling), NOTHING) == NOW + HOUR // 2


def test_a_lock_of_another_program_is_looked_at_again_and_other_blocks_are_not() -> None:
    found = subject([HOUR], policy())
    off = replace(found.state, properties={"lakehouse-maintenance.enabled": "false"})
    assert look_again_ms(replace(found, state=off), NOTHING) is None

    locked = replace(found.state, properties={LOCK_PROPERTY: "unreadable"})
    again = look_again_ms(replace(found, state=locked), NOTHING)
    assert again is not None
    assert again > NOW


def test_the_moment_that_made_it_due_stays_the_same_while_time_passes() -> None:
    ages = [60 * HOUR, 50 * HOUR, 10 * HOUR, HOUR]
    crossed = NOW - 2 * HOUR + 1

    for later in (0, HOUR, 30 * HOUR):
        assert due_since_ms(subject(ages, policy(), now=NOW + later), Action.EXPIRE_SNAPSHOTS) == crossed
    assert due_since_ms(subject(ages[2:], policy(), now=NOW + 100 * HOUR), Action.EXPIRE_SNAPSHOTS) > crossed


def test_what_writing_made_due_has_been_due_since_the_newest_snapshot() -> None:
    found = subject([5 * HOUR, 2 * HOUR], policy(trigger={"of": "snapshots", "base": 2}))

    assert due_since_ms(found, Action.EXPIRE_SNAPSHOTS) == NOW - 2 * HOUR
    assert due_since_ms(found, Action.REWRITE_DATA_FILES) == NOW - 2 * HOUR


def test_turns_follow_one_another() -> None:
    found = subject([HOUR], Policy.model_validate({"rewrite_data_files": {"cooldown": "6h"}}))
    every = turn_ms(found, Action.REWRITE_DATA_FILES)

    assert every == 6 * HOUR
    assert turn_ms(found, Action.EXPIRE_SNAPSHOTS) == HOUR
    assert turn_start_ms(NOW, every, NOW + every - 1) == NOW
    assert turn_start_ms(NOW, every, NOW + every) == NOW + every
    assert turn_start_ms(NOW, every, NOW - 1) == NOW, "another machine's clock may be behind"


@given(
    ages=st.lists(st.integers(0, 10 * DAY), min_size=1, max_size=12).map(lambda found: sorted(found, reverse=True)),
    base=st.integers(1, 5),
    keep=st.integers(1, 3),
)
def test_it_is_due_from_the_told_moment_on_and_not_before(ages: list[int], base: int, keep: int) -> None:
    chosen = policy(retain_last=keep, trigger={"of": "expired_snapshots", "base": base})
    found = subject(ages, chosen)
    if found.health.expired_snapshots >= base:
        return
    again = look_again_ms(found, NOTHING)

    if again is None:
        assert subject(ages, chosen, now=NOW + 1000 * DAY).health.expired_snapshots < base
    else:
        assert again > NOW
        assert subject(ages, chosen, now=again - 1).health.expired_snapshots < base
        assert subject(ages, chosen, now=again).health.expired_snapshots >= base
        assert due_since_ms(subject(ages, chosen, now=again), Action.EXPIRE_SNAPSHOTS) == again


@pytest.mark.parametrize("older_than", ["1h", "23h"])
def test_what_is_refused_is_not_looked_at_again(older_than: str) -> None:
    found = subject([40 * HOUR, 35 * HOUR, 30 * HOUR, HOUR], policy(older_than=older_than))

    assert found.longest_reader > timedelta(hours=23)
    assert found.health.expired_snapshots == 3
    assert look_again_ms(found, NOTHING) is None
