"""Every action of the embedded engine as a step of the conformance suite, and what it does with each golden table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.order import SAFE_ORDER
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.conformance import TABLES, table_name
from lakehouse_maintenance_tests.golden.fixture import CATALOG

ALL = {"rewrite-all": "true"}
NEWEST_ALONE = ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True)
OF_ANY_AGE = OrphanRequest(older_than=timedelta(0), allow_short_retention=True)
BY_ACTION: Mapping[Action, Mapping[str, str]] = {
    Action.REWRITE_POSITION_DELETE_FILES: ALL,
    Action.PRUNE_METADATA: {"previous-versions-max": "1", "set-properties": "true"},
}
LIMITS = {"removed_share": 1.0, "removed_files": 100_000, "first_run_files": 100_000}


def asked(*actions: Action, strategy: str | None = None, sort_order: str | None = None) -> Request:
    """These actions with the strongest options: everything is rewritten, only the newest snapshots are kept, and
    nothing is too young."""
    return Request(
        actions=actions,
        options=ALL if Action.REWRITE_DATA_FILES in actions else {},
        strategy=strategy,
        sort_order=sort_order,
        expiry=NEWEST_ALONE,
        orphans=OF_ANY_AGE,
        by_action={action: options for action, options in BY_ACTION.items() if action in actions},
    )


STEPS: dict[str, Request] = {
    "binpack": asked(Action.REWRITE_DATA_FILES),
    "sort": asked(Action.REWRITE_DATA_FILES, strategy="sort", sort_order="id DESC NULLS FIRST"),
    "zorder": asked(Action.REWRITE_DATA_FILES, strategy="sort", sort_order="zorder(id, {other})"),
    "position deletes": asked(Action.REWRITE_POSITION_DELETE_FILES),
    "manifests": asked(Action.REWRITE_MANIFESTS),
    "expiry": asked(Action.EXPIRE_SNAPSHOTS),
    "metadata and orphans": asked(Action.PRUNE_METADATA, Action.REMOVE_ORPHAN_FILES),
    "maintain": asked(*(action for action in SAFE_ORDER if action is not Action.SET_PROPERTIES)),
}
"""What is done to each table, each time as Spark left it; `maintain`: all of it, in the safe order."""

NOTHING_TO_MERGE = "no position delete file is too small or needed by nothing"
V1_HAS_NONE = "a table of format version 1 has no delete files"
VECTORS = "unsupported: format version 3 forbids new position delete files"
OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "position deletes": {
        **dict.fromkeys(TABLES, NOTHING_TO_MERGE),
        **{name: V1_HAS_NONE for name in TABLES if TABLES[name].format_version == 1},
        **{name: VECTORS for name in TABLES if TABLES[name].format_version == 3},
        "db.v2_mor": "",
    }
}
"""Step → table → part of the reason why nothing is done; all others are done."""


def take(ours: Lakehouse, name: str, step: str) -> TableOutcome:
    """One step on one golden table."""
    request = STEPS[step]
    if "{other}" in (request.sort_order or ""):
        schema = ours.catalogs[CATALOG].load(table_name(name)).schema()
        other = next(field.name for field in schema.fields if field.field_type.is_primitive and field.name != "id")
        request = replace(request, sort_order=f"zorder(id, {other})")
    return ours.maintain([str(table_name(name))], request).tables[0]
