"""When an action is due: `base + scale × size`, as PostgreSQL's autovacuum decides for a table (DG-06, IM-15). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import ConfigurationError
from lakehouse_maintenance.model.health import Due, TableHealth
from lakehouse_maintenance.model.intervals import format_duration
from lakehouse_maintenance.planning.order import SAFE_ORDER

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import Policy, Trigger

POLICY_ACTIONS = tuple(action for action in SAFE_ORDER if action is not Action.REMOVE_ORPHAN_FILES)
"""Actions on an Iceberg table that a trigger can make due, in the order in which they are done (IM-11)."""


OVERLAP_MEASURES = frozenset({"overlapping_files", "overlap_depth_percent"})
"""Numbers of the health that tell how far files overlap in the columns of their order."""


def measure(health: TableHealth, name: str) -> int:
    """A number of the health by its name; 0 where it is not known. Raises ConfigurationError for any other name."""
    value = getattr(health, name, None) if name in TableHealth.__dataclass_fields__ else None
    if name not in TableHealth.__dataclass_fields__ or not (value is None or isinstance(value, int)):
        raise ConfigurationError(
            f"{name!r} is no number of a table's health", field="trigger", hint="such as small_files or delete_files"
        )
    return value or 0


def threshold(trigger: Trigger, health: TableHealth) -> float:
    """What `trigger.of` has to reach on this table."""
    return trigger.base + (trigger.scale * measure(health, trigger.size) if trigger.size else 0.0)


def crossed(triggers: Iterable[Trigger], health: TableHealth) -> str | None:
    """The numbers of the first trigger that is reached, or None. What is not there at all reaches no threshold."""
    for trigger in triggers:
        value = measure(health, trigger.of)
        if value > 0 and value >= threshold(trigger, health):
            return _comparison(trigger, health, "≥")
    return None


def near(trigger: Trigger, health: TableHealth) -> float:
    """How much of its threshold a trigger has reached: 1.0 and more is crossed."""
    value = measure(health, trigger.of)
    needed = threshold(trigger, health)
    if value <= 0:
        return 0.0
    return value / needed if needed > 0 else 1.0


def nearest_miss(triggers: Iterable[Trigger], health: TableHealth) -> str:
    """The numbers of the trigger that came nearest, for the reason why nothing is done."""
    ranked = sorted(triggers, key=lambda trigger: near(trigger, health), reverse=True)
    return _comparison(ranked[0], health, "<") if ranked else "no trigger is set"


def triggers_of(action: str, policy: Policy) -> tuple[Trigger, ...]:
    """The policy's triggers of an action; none where nothing makes it due by itself."""
    # Here, so that who only loads this module does not load pydantic.
    from lakehouse_maintenance.config.policies import ANY_TO_SET, OVERLAP

    if action == Action.REWRITE_DATA_FILES:
        rewrite = policy.rewrite_data_files
        if rewrite.strategy != "binpack" and "trigger" not in rewrite.model_fields_set:
            # Well-sized files in no order are what sorting is for; packing does nothing about them.
            return (*rewrite.trigger, OVERLAP)
        return rewrite.trigger
    if action == Action.REWRITE_POSITION_DELETE_FILES:
        return policy.rewrite_position_delete_files.trigger
    if action == Action.EXPIRE_SNAPSHOTS:
        return policy.expire_snapshots.trigger
    if action == Action.REWRITE_MANIFESTS:
        return policy.rewrite_manifests.trigger
    if action == Action.PRUNE_METADATA:
        return policy.prune_metadata.trigger
    if action == Action.SET_PROPERTIES:
        return (ANY_TO_SET,)
    if action == Action.REMOVE_ORPHAN_FILES:
        return policy.remove_orphan_files.trigger
    return ()


def cooling(action: str, policy: Policy, last_run_ms: Mapping[str, int], now_ms: int) -> str | None:
    """Why the action has to wait after its last run, or None. Only rewriting data files has a cooldown.

    `last_run_ms`: action → when it last ran on the table, milliseconds since 1970. A last run that lies in the
    future (another machine's clock) holds the action back no longer than its cooldown is.
    """
    last = last_run_ms.get(action)
    if action != Action.REWRITE_DATA_FILES or last is None:
        return None
    cooldown = policy.rewrite_data_files.cooldown
    since = timedelta(milliseconds=now_ms - last)
    if not -cooldown < since < cooldown:
        return None
    ago = format_duration(timedelta(seconds=max(since, timedelta(0)) // timedelta(seconds=1)))
    return f"it ran {ago} ago, and the cooldown is {format_duration(cooldown)}"


def due_actions(health: TableHealth, policy: Policy, last_run_ms: Mapping[str, int], now_ms: int) -> tuple[Due, ...]:
    """Actions whose trigger is crossed and whose cooldown is over, in the order in which they are done."""
    due = []
    for action in POLICY_ACTIONS:
        reason = crossed(triggers_of(action, policy), health)
        if reason is not None and cooling(action, policy, last_run_ms, now_ms) is None:
            due.append(Due(action, reason))
    return tuple(due)


def _comparison(trigger: Trigger, health: TableHealth, sign: str) -> str:
    text = f"{trigger.of} {measure(health, trigger.of)} {sign} {trigger.base:g}"
    if trigger.size and trigger.scale:
        size = measure(health, trigger.size)
        text += f" + {trigger.scale:g} × {size} {trigger.size} = {threshold(trigger, health):g}"
    return text
