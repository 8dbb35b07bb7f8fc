"""Markdown for Dagster's metadata. Names and reasons come from users' systems: none of them may become markup."""

from __future__ import annotations

from lakehouse_maintenance.model.actions import LEAVES_DATA, Action
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.markdown import plain, table
from lakehouse_maintenance.model.outcomes import NOT_RUN, ActionOutcome, TableOutcome
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan


def told_with_name(table: str, text: str) -> str:
    """`table: text`, the name once where the text begins with it."""
    return text if text.startswith(f"{table}:") else f"{table}: {text}"


def health_report(health: TableHealth) -> str:
    """The numbers of one table, what is due, and how large its files are."""
    numbers = [
        ("score", f"{health.score} of 100"),
        ("records", f"{health.records:,}"),
        ("data files", f"{health.data_files:,} ({format_size(health.data_bytes)})"),
        ("small files", f"{health.small_files:,}"),
        ("delete files", f"{health.delete_files:,} ({health.deleted_rows:,} rows)"),
        ("snapshots", f"{health.snapshots:,} ({health.expired_snapshots:,} could expire)"),
        ("manifests", f"{health.manifests:,} ({format_size(health.manifest_bytes)})"),
        ("metadata files", f"{health.metadata_files:,}"),
        ("partitions", f"{health.partitions:,} (at most {health.largest_partition_files:,} files in one)"),
        ("reclaimable", format_size(health.reclaimable_bytes)),
        ("a query on one partition opens", _opened(health)),
    ]
    if health.overlapping_files is not None:
        numbers.append(("files out of order", f"{health.overlapping_files:,}"))
    if health.orphan_files is not None and health.orphan_bytes is not None:
        numbers.append(
            ("orphan files, as last counted", f"{health.orphan_files:,} ({format_size(health.orphan_bytes)})")
        )
    if health.features:
        numbers.append(("not to be rewritten, for", ", ".join(health.features)))
    parts = [f"**{plain(health.table)}**", table(("health", "now"), numbers)]
    if health.histogram:
        parts.append(table(("file size", "files"), health.histogram.items()))
    if health.due:
        parts.append(table(("due", "why"), ((due.action, due.reason) for due in health.due)))
    else:
        parts.append("Nothing is due.")
    if health.advice:
        rows = ((one.property, one.current or "unset", one.value, one.reason) for one in health.advice)
        parts.append(table(("table property", "now", "better", "why"), rows))
    return "\n\n".join(parts)


def _opened(health: TableHealth) -> str:
    now = f"up to {health.opened_manifests_worst:,} manifests and {health.opened_files_worst:,} files"
    then = f"about {health.opened_manifests_worst_after:,} and {health.opened_files_worst_after:,}"
    return f"{now}; after maintenance {then}"


def plan_report(plan: TablePlan) -> str:
    """What would be done, why, and what is expected of it; what is left alone, and why."""
    parts = [f"**{plain(plan.table)}**"]
    if plan.actions:
        head = ("action", "why", "reads", "should leave", "gain", "takes", "engine")
        parts.append(table(head, (_planned(action) for action in plan.actions)))
    else:
        parts.append("Nothing would be done.")
    notes = [note for action in plan.actions for note in action.notes]
    if notes:
        parts.append("\n".join(f"- {plain(note)}" for note in notes))
    if plan.skipped:
        parts.append(table(("left alone", "why"), ((skip.action, skip.reason) for skip in plan.skipped)))
    return "\n\n".join(parts)


def _planned(action: PlannedAction) -> tuple[str, ...]:
    expected = action.expected
    if action.action == Action.EXPIRE_SNAPSHOTS:
        return (
            action.action,
            action.reason,
            "metadata",
            f"{len(action.snapshots):,} snapshots and {len(action.refs):,} refs fewer",
            f"{action.inputs.files:,} files, {format_size(action.inputs.bytes)} freed",
            f"{expected.seconds:.1f} s",
            f"{action.engine} ({action.control})",
        )
    if action.action == Action.REMOVE_ORPHAN_FILES:
        return (
            action.action,
            action.reason,
            "a listing",
            "what a table references",
            f"{action.inputs.files:,} files, {format_size(action.inputs.bytes)} freed",
            f"{expected.seconds:.1f} s",
            f"{action.engine} ({action.control})",
        )
    if action.action in LEAVES_DATA:
        return (
            action.action,
            action.reason,
            "metadata",
            ", ".join(f"{name}={value}" for name, value in action.options.items()),
            f"{action.inputs.files:,} files, {format_size(action.inputs.bytes)} freed",
            f"{expected.seconds:.1f} s",
            f"{action.engine} ({action.control})",
        )
    return (
        action.action,
        action.reason,
        f"{action.inputs.files:,} files, {format_size(action.inputs.bytes)}",
        f"{expected.files:,} files, {format_size(expected.bytes)}",
        f"{expected.fewer_files:,} fewer data files, {expected.fewer_deletes:,} fewer delete files",
        f"{expected.seconds:.1f} s at {format_size(int(expected.bytes_per_second))}/s ({expected.basis})",
        f"{action.engine} ({action.control})",
    )


def outcome_report(outcome: TableOutcome) -> str:
    """How it ended, and what was expected beside what came of it."""
    parts = [f"**{plain(outcome.table)}**: {plain(outcome.status)}"]
    if outcome.reason:
        parts.append(f"Reason: {plain(outcome.reason)}")
    for action in outcome.actions:
        parts.append(f"{plain(action.action)}: {plain(action.status)}")
        parts.append(table(("", "expected", "actual"), _beside(action)))
        if action.snapshot_id is not None:
            parts.append(f"Snapshot {action.snapshot_id} follows {action.previous_snapshot_id}.")
        if action.error is not None and action.error != outcome.reason:
            parts.append(f"Error: {plain(action.error)}")
        if action.checks:
            checks = ((check.name, "passed" if check.passed else "failed", check.detail) for check in action.checks)
            parts.append(table(("check", "result", "detail"), checks))
        if action.notes:
            parts.append("\n".join(f"- {plain(note)}" for note in action.notes))
    not_run = [skip for skip in outcome.skipped if skip.reason.startswith(NOT_RUN)]
    if not_run:
        parts.append(table(("left alone", "why"), ((skip.action, skip.reason) for skip in not_run)))
    return "\n\n".join(parts)


def _beside(action: ActionOutcome) -> list[tuple[str, str, str]]:
    expected, actual = action.expected, action.actual
    if action.action in (Action.EXPIRE_SNAPSHOTS, Action.REMOVE_ORPHAN_FILES):
        let_go = [("snapshots let go", "", f"{actual.expired_snapshots:,}")]
        return [
            *(let_go if action.action == Action.EXPIRE_SNAPSHOTS else ()),
            ("files deleted", f"{expected['fewer_files']:,}", f"{actual.deleted_files:,}"),
            ("size of them", "", format_size(actual.deleted_bytes)),
            ("files kept", "", f"{actual.kept_files:,}"),
            ("files not deleted", "0", f"{actual.failed_files + actual.unknown_files:,}"),
            ("seconds", f"{expected['seconds']:.1f}", f"{actual.seconds:.1f}"),
        ]
    if action.action in LEAVES_DATA:
        return [
            ("files deleted", f"{expected['fewer_files']:,}", f"{actual.deleted_files:,}"),
            ("size of them", "", format_size(actual.deleted_bytes)),
            ("files kept", "", f"{actual.kept_files:,}"),
            ("seconds", f"{expected['seconds']:.1f}", f"{actual.seconds:.1f}"),
        ]
    if action.action in (Action.REWRITE_MANIFESTS, Action.REWRITE_POSITION_DELETE_FILES):
        counted = [(name.replace("_", " "), "", f"{value:,}") for name, value in action.results.items()]
        seconds = (f"{expected['seconds']:.1f}", f"{actual.seconds:.1f}")
        return [("files written", f"{expected['files']:,}", f"{actual.files:,}"), *counted, ("seconds", *seconds)]
    fewer = actual.rewritten_data_files - actual.added_data_files
    return [
        ("files written", f"{expected['files']:,}", f"{actual.files:,}"),
        ("size of them", format_size(expected["bytes"]), format_size(actual.bytes)),
        ("fewer data files", f"{expected['fewer_files']:,}", f"{fewer:,}"),
        ("fewer delete files", f"{expected['fewer_deletes']:,}", f"{actual.removed_delete_files:,}"),
        ("seconds", f"{expected['seconds']:.1f}", f"{actual.seconds:.1f}"),
        ("rows written", "", f"{actual.rows:,}"),
    ]
