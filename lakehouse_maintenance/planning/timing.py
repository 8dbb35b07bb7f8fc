"""When time alone changes what is due: snapshots get old though nobody writes (DG-06). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.plans import TablePlan
from lakehouse_maintenance.planning.blocks import block, lock_held
from lakehouse_maintenance.planning.expiring import ExpiryFacts, refusal
from lakehouse_maintenance.planning.expiry import FOREVER_MS, expired_snapshots, retention
from lakehouse_maintenance.planning.triggers import POLICY_ACTIONS, cooling, crossed, triggers_of

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import Trigger
    from lakehouse_maintenance.planning.tables import Subject

AGEING = ("expired_snapshots", "reclaimable_bytes")
"""Numbers of a table's health that grow while nothing is written."""

LOCKED_MS = 15 * 60 * 1000
"""A table under another program's lock is looked at again after this time."""

LEAST_TURN = timedelta(hours=1)
"""An action that stays due, whatever came of its run, gets its next turn no sooner."""


def expiry_times(facts: ExpiryFacts, subject: Subject) -> list[int]:
    """Moments from which one more snapshot or ref may go, sorted; milliseconds since 1970."""
    rules = retention(subject.policy.expire_snapshots, facts.properties)
    if rules is None:
        return []
    born = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in facts.snapshots}
    own = (ref.max_snapshot_age_ms for ref in facts.refs if ref.max_snapshot_age_ms is not None)
    times = {time + age + 1 for age in {rules.max_snapshot_age_ms, *own} for time in born.values()}
    for ref in facts.refs:
        age = rules.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        if ref.snapshot_id in born:
            times.add(born[ref.snapshot_id] + age + 1)
    return sorted(time for time in times if time < FOREVER_MS // 2)


def look_again_ms(subject: Subject, plan: TablePlan) -> int | None:
    """When the table has to be looked at again though it does not change; None: only when it does.

    Milliseconds since 1970, after `subject.now_ms`. What is planned already is no reason to look again.
    """
    now = subject.now_ms
    if block(subject.state, now_ms=now, named_by_policy=subject.named_by_policy) is not None:
        return now + LOCKED_MS if lock_held(subject.state.properties, now_ms=now) is not None else None
    planned = {action.action for action in plan.actions}
    found = [_next_turn(subject, action) for action in POLICY_ACTIONS if action not in planned]
    return min((time for time in found if time is not None), default=None)


def _next_turn(subject: Subject, action: Action) -> int | None:
    policy, health, now = subject.policy, subject.health, subject.now_ms
    triggers = triggers_of(action, policy)
    if crossed(triggers, health) is None:
        return _becomes_due(subject, triggers)
    # Due and yet not planned: what holds it back may end with time.
    if action == Action.REWRITE_DATA_FILES:
        rewrite = policy.rewrite_data_files
        if cooling(action, policy, subject.last_run_ms, now) is not None:
            last = subject.last_run_ms[action]
            return max(last + rewrite.cooldown // timedelta(milliseconds=1), now + 1)
        settle = rewrite.settle // timedelta(milliseconds=1)
        return now + settle if settle else None
    if action == Action.EXPIRE_SNAPSHOTS and subject.expiry is not None:
        if refusal(policy.expire_snapshots, subject.expiry.properties, subject.longest_reader) is not None:
            return None
        return _more_expires(subject)
    return None


def _becomes_due(subject: Subject, triggers: Sequence[Trigger]) -> int | None:
    ageing = [trigger for trigger in triggers if set(trigger.measures) & set(AGEING)]
    if not ageing or subject.expiry is None:
        return None
    if any(trigger.of != "expired_snapshots" or trigger.size in AGEING for trigger in ageing):
        # How many bytes more are let go is told by manifests alone, so each change is looked at.
        return _more_expires(subject)
    times = [time for time in expiry_times(subject.expiry, subject) if time > subject.now_ms]
    return _first(times, lambda time: crossed(ageing, _aged(subject, time)) is not None)


def _more_expires(subject: Subject) -> int | None:
    assert subject.expiry is not None, "callers look at it first"
    times = [time for time in expiry_times(subject.expiry, subject) if time > subject.now_ms]
    return _first(times, lambda time: _expired(subject, time) > subject.health.expired_snapshots)


def due_since_ms(subject: Subject, action: Action) -> int:
    """Since when the action, which is due now, has been due; milliseconds since 1970.

    Where age made it due: the moment at which it did. Else the time of the newest snapshot. The same facts give the
    same moment, so that it can name a turn.
    """
    newest = subject.health.newest_snapshot_ms or 0
    triggers = triggers_of(action, subject.policy)
    young = replace(subject.health, expired_snapshots=0, reclaimable_bytes=0)
    if subject.expiry is None or crossed(triggers, young) is not None:
        return newest
    times = expiry_times(subject.expiry, subject)
    times = times[: bisect_right(times, subject.now_ms)]
    since = _first(times, lambda time: crossed(triggers, _aged(subject, time)) is not None)
    return newest if since is None else since


def turn_ms(subject: Subject, action: Action) -> int:
    """How long a turn is: an action that stays due is started once in it."""
    cooldown = subject.policy.rewrite_data_files.cooldown if action == Action.REWRITE_DATA_FILES else timedelta(0)
    return max(cooldown, LEAST_TURN) // timedelta(milliseconds=1)


def turn_start_ms(since_ms: int, every_ms: int, now_ms: int) -> int:
    """Start of the turn that `now_ms` lies in; turns follow one another from `since_ms` on."""
    return since_ms + max(now_ms - since_ms, 0) // every_ms * every_ms


def _aged(subject: Subject, time: int) -> TableHealth:
    return replace(subject.health, expired_snapshots=_expired(subject, time))


def _expired(subject: Subject, time: int) -> int:
    facts = subject.expiry
    assert facts is not None, "callers look at it first"
    gone = expired_snapshots(facts.snapshots, facts.refs, subject.policy.expire_snapshots, facts.properties, time)
    return len(gone.snapshot_ids)


def _first(times: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """The first of the sorted times at which `holds`; it stays true once it is: more snapshots get old, never fewer."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if holds(times[middle]):
            high = middle
        else:
            low = middle + 1
    return times[low] if low < len(times) else None
