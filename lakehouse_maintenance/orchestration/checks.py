"""Asset checks: what verification found after a table was maintained, and a warning for a table that is not well.

They are evaluated by the step that makes their asset, so that each result is of that very run and look.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.outcomes import Check, TableOutcome
from lakehouse_maintenance.orchestration.naming import (
    HEALTHY,
    LIVE_FILES_PRESENT,
    MAINTAINED_KEY,
    ROWS_UNCHANGED,
    STATE_KEY,
    meta,
)

LEAST_SCORE = 50
"""Health scores below it are warned about."""

STATE_CHECKS = [
    dg.AssetCheckSpec(
        name=HEALTHY,
        asset=STATE_KEY,
        description=f"The health score is {LEAST_SCORE} of 100 or more. A lower one is a warning.",
    )
]

MAINTAINED_CHECKS = [
    dg.AssetCheckSpec(
        name=ROWS_UNCHANGED,
        asset=MAINTAINED_KEY,
        description="The table holds the same rows as before: rewritten files hold those of their inputs less what "
        "was deleted, and every other file is untouched.",
    ),
    dg.AssetCheckSpec(
        name=LIVE_FILES_PRESENT,
        asset=MAINTAINED_KEY,
        description="Every live data and delete file exists, with the size that metadata tells.",
    ),
]


def health_check(health: TableHealth) -> dg.AssetCheckResult:
    """The warning for a low score."""
    due = "; ".join(f"{due.action}: {due.reason}" for due in health.due)
    return dg.AssetCheckResult(
        check_name=HEALTHY,
        asset_key=STATE_KEY,
        passed=health.score >= LEAST_SCORE,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{health.table}: score {health.score} of 100; " + (f"due: {due}" if due else "nothing is due"),
        metadata={meta("score"): health.score, meta("table"): health.table},
    )


def outcome_checks(outcome: TableOutcome) -> Iterator[dg.AssetCheckResult]:
    """Each check of `maintained`, worst result of all actions.

    None at all where nothing was verified because nothing could be done: Dagster then shows the checks as not
    executed, and not as passed. Actions that write no data file, as expiry, leave rows as they are.
    """
    found = [check for action in outcome.actions for check in action.checks]
    if outcome.status is Status.SKIPPED and not found:
        for name in (ROWS_UNCHANGED, LIVE_FILES_PRESENT):
            yield _result(outcome, Check(name, True, "nothing was changed"))
        return
    for name in (ROWS_UNCHANGED, LIVE_FILES_PRESENT):
        named = [check for check in found if check.name == name]
        if named:
            yield _result(outcome, next((check for check in named if not check.passed), named[-1]))
        elif outcome.status in (Status.DONE, Status.SKIPPED):
            yield _result(outcome, Check(name, True, "no action wrote or replaced a data file"))


def _result(outcome: TableOutcome, check: Check) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=check.name,
        asset_key=MAINTAINED_KEY,
        passed=check.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{outcome.table}: {check.detail}",
        metadata={meta("table"): outcome.table},
    )
