"""The order in which actions on one table are done (IM-11). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_maintenance.model.actions import Action

SAFE_ORDER = (
    Action.REWRITE_DATA_FILES,
    Action.REWRITE_POSITION_DELETE_FILES,
    Action.REWRITE_MANIFESTS,
    Action.EXPIRE_SNAPSHOTS,
    Action.SET_PROPERTIES,
    Action.PRUNE_METADATA,
    Action.REMOVE_ORPHAN_FILES,
)
"""Each action leaves the next one less to do, and nothing to undo.

Data files come first: they make delete files and manifests void. Expiry comes after everything that leaves old
snapshots behind, and frees what these held. Old metadata files name snapshots that expiry took out; setting
properties is a commit as well, and leaves one more. Orphan files are
looked for last: whatever a step before should have deleted and could not is one by then.
"""


def in_safe_order(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Each action once, in the safe order; others after them, as they came."""
    asked = tuple(dict.fromkeys(actions))
    return (*(a for a in SAFE_ORDER if a in asked), *(a for a in asked if a not in SAFE_ORDER))
