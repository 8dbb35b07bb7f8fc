"""Metadata of materializations: numbers that Dagster plots over time, and a page of Markdown for people.

Sizes are floats: Dagster's interface shows whole numbers beyond 32 bits, and does not plot them. Snapshot ids are
text: as numbers, browsers would round them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dagster as dg

from lakehouse_maintenance.model.actions import LEAVES_DATA
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.model.plans import Plan, TablePlan
from lakehouse_maintenance.orchestration.measuring import Column, Measured
from lakehouse_maintenance.orchestration.naming import meta
from lakehouse_maintenance.orchestration.rendering import health_report, outcome_report, plan_report
from lakehouse_maintenance.planning.shrinking import WORDS

Facts = dict[str, dg.MetadataValue]

_COUNTS = (
    "score",
    "data_files",
    "small_files",
    "delete_files",
    "position_delete_files",
    "equality_delete_files",
    "deletion_vectors",
    "deleted_rows",
    "dangling_delete_files",
    "snapshots",
    "expired_snapshots",
    "refs",
    "manifests",
    "metadata_files",
    "partitions",
    "largest_partition_files",
    "partition_skew_percent",
    "small_files_percent",
    "deleted_rows_percent",
    "manifests_after",
    "opened_manifests_worst",
    "opened_files_worst",
)
_SIZES = ("data_bytes", "delete_bytes", "manifest_bytes", "reclaimable_bytes")
_WHERE_KNOWN = ("overlapping_files", "overlap_depth_percent", "orphan_files")


def health_facts(measured: Measured) -> Facts:
    """Of `maintenance_state`."""
    health = measured.health
    facts: Facts = {
        "dagster/table_name": _text(health.table),
        "dagster/row_count": _whole(health.records),
        "dagster/uri": _text(measured.location),
        "dagster/column_schema": dg.MetadataValue.table_schema(_schema(measured.columns)),
        meta("health"): dg.MetadataValue.md(health_report(health)),
        meta("snapshot_id"): _snapshot(health.snapshot_id),
        meta("metadata_location"): _text(measured.metadata_location),
        meta("due"): _text(", ".join(due.action for due in health.due)),
        meta("advice"): _text(", ".join(f"{one.property}={one.value}" for one in health.advice)),
    }
    facts |= _numbers(health)
    return facts


def _schema(columns: Sequence[Column]) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(
                column.name, column.type, column.doc, dg.TableColumnConstraints(nullable=not column.is_required)
            )
            for column in columns
        ]
    )


def observed_facts(health: TableHealth) -> Facts:
    """Of a table that the inventory of its database met with another snapshot than before."""
    return {
        "dagster/table_name": _text(health.table),
        "dagster/row_count": _whole(health.records),
        meta("snapshot_id"): _snapshot(health.snapshot_id),
        meta("due"): _text(", ".join(due.action for due in health.due)),
    } | _numbers(health)


def _numbers(health: TableHealth) -> Facts:
    counts: Facts = {meta(name): _whole(getattr(health, name)) for name in _COUNTS}
    counts |= {meta(name): _real(getattr(health, name)) for name in _SIZES}
    counts |= {meta(name): _whole(getattr(health, name)) for name in _WHERE_KNOWN if getattr(health, name) is not None}
    if health.orphan_bytes is not None:
        counts[meta("orphan_bytes")] = _real(health.orphan_bytes)
    return counts


def plan_facts(plan: Plan, table: TablePlan) -> Facts:
    """Of `maintenance_plan`."""
    actions = table.actions
    return {
        "dagster/table_name": _text(table.table),
        meta("plan"): dg.MetadataValue.md(plan_report(table)),
        meta("digest"): _text(plan.digest),
        meta("snapshot_id"): _snapshot(table.snapshot_id),
        meta("actions"): _text(", ".join(action.action for action in actions)),
        meta("input_files"): _whole(sum(action.inputs.files for action in actions)),
        meta("input_bytes"): _real(sum(action.inputs.bytes for action in actions)),
        meta("expected_files"): _whole(sum(action.expected.files for action in actions)),
        meta("expected_bytes"): _real(sum(action.expected.bytes for action in actions)),
        meta("expected_fewer_files"): _whole(
            sum(action.expected.fewer_files + action.expected.fewer_deletes for action in actions)
        ),
        meta("expected_seconds"): _real(sum(action.expected.seconds for action in actions)),
    }


def outcome_facts(outcome: TableOutcome, plan: Plan, mask: Callable[[str], str]) -> Facts:
    """Of `maintained`, and of its failure. `mask` takes secrets out of a text."""
    actions = outcome.actions
    # Files that expiry and the removal of orphans delete are no files that a rewrite left.
    rewrites = [action for action in actions if action.action not in LEAVES_DATA]
    facts: Facts = {
        "dagster/table_name": _text(outcome.table),
        meta("outcome"): dg.MetadataValue.md(mask(outcome_report(outcome))),
        meta("status"): _text(outcome.status),
        meta("reason"): _text(mask(outcome.reason)),
        meta("digest"): _text(plan.digest),
        meta("expected_files"): _whole(sum(a.expected["files"] for a in rewrites)),
        meta("actual_files"): _whole(sum(a.actual.files for a in rewrites)),
        meta("expected_bytes"): _real(sum(a.expected["bytes"] for a in rewrites)),
        meta("actual_bytes"): _real(sum(a.actual.bytes for a in rewrites)),
        meta("expected_seconds"): _real(sum(a.expected["seconds"] for a in actions)),
        meta("actual_seconds"): _real(sum(a.actual.seconds for a in actions)),
        meta("rewritten_data_files"): _whole(sum(a.actual.rewritten_data_files for a in actions)),
        meta("removed_delete_files"): _whole(sum(a.actual.removed_delete_files for a in actions)),
        meta("expired_snapshots"): _whole(sum(a.actual.expired_snapshots for a in actions)),
        meta("deleted_files"): _whole(sum(a.actual.deleted_files for a in actions)),
        meta("deleted_bytes"): _real(sum(a.actual.deleted_bytes for a in actions)),
        meta("kept_files"): _whole(sum(a.actual.kept_files for a in actions)),
        meta("failed_files"): _whole(sum(a.actual.failed_files for a in actions)),
        meta("unknown_files"): _whole(sum(a.actual.unknown_files for a in actions)),
    }
    shrinks = [note for action in actions for note in action.notes if note.startswith(WORDS)]
    if shrinks:
        facts[meta("storage_shrinks")] = _text(shrinks[-1])
    committed = [action for action in actions if action.snapshot_id is not None]
    if committed:
        facts[meta("snapshot_id")] = _snapshot(committed[-1].snapshot_id)
        facts[meta("previous_snapshot_id")] = _snapshot(committed[0].previous_snapshot_id)
    return facts


def _snapshot(snapshot_id: int | None) -> dg.MetadataValue:
    return _text("" if snapshot_id is None else snapshot_id)


def _text(value: object) -> dg.MetadataValue:
    # Dagster stores plain text alone, and no enumeration's member that is text as well.
    return dg.MetadataValue.text(str(value))


def _whole(value: int) -> dg.MetadataValue:
    return dg.MetadataValue.int(value)


def _real(value: float) -> dg.MetadataValue:
    return dg.MetadataValue.float(float(value))
