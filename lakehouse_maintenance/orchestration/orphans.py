"""`lakehouse/<catalog>/<database>/orphans`: files that no table references, found and on request removed (IM-08).

The job `orphan_files` runs all of them; its schedule (off until switched on) removes in tables whose policy makes it
due and asks for no review. What it removes: objects in the folders of the database's own Iceberg tables that no visible
table references, older than the policy's age, within the limits of lakehouse.yaml.
"""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.markdown import plain, table
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.orchestration.databases import Database, written_databases
from lakehouse_maintenance.orchestration.drawing import Bar, bar_chart, image
from lakehouse_maintenance.orchestration.failing import failure
from lakehouse_maintenance.orchestration.inventory import tables_of
from lakehouse_maintenance.orchestration.naming import ALL_TABLES_SEARCHED, meta
from lakehouse_maintenance.orchestration.rendering import told_with_name
from lakehouse_maintenance.orchestration.resources import LakehouseResource

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.lakehouse import Lakehouse

ASSET = "orphans"
JOB = "orphan_files"
DAILY = "0 4 * * *"
_CODE_VERSION = "1"
_MOST_ROWS = 200
_MOST_BARS = 10


class OrphansConfig(dg.Config):
    """Run config of one database's search."""

    delete: bool = Field(default=False, description="Remove what is found. False: count it, and change nothing.")
    only_due: bool = Field(
        default=False,
        description="Only tables whose policy makes it due (remove_orphan_files.every) and asks for no review.",
    )


def orphan_searches(config: "LakehouseConfig | None") -> list[dg.AssetsDefinition]:
    """One asset for each database that `databases` names."""
    return [] if config is None else [_search(database) for database in written_databases(config)]


def orphan_schedules(config: "LakehouseConfig | None") -> list[dg.ScheduleDefinition]:
    """The job over all of them, with its schedule, which is off until switched on: once a day; which tables are due
    the policies say. None where there is no database."""
    if config is None or not written_databases(config):
        return []
    ops = {op_name(database): {"config": {"delete": True, "only_due": True}} for database in written_databases(config)}
    return [
        dg.ScheduleDefinition(
            name=f"{JOB}_schedule",
            job=_job(config),
            cron_schedule=DAILY,
            run_config={"ops": ops},
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Removes orphan files of tables whose policy makes it due (remove_orphan_files.every) and asks "
            "for no review.",
        )
    ]


def op_name(database: Database) -> str:
    """Name of the step, for run config."""
    return f"{ASSET}__{database.group}"


def _job(config: "LakehouseConfig") -> dg.JobDefinition:
    keys = [database.key(ASSET) for database in written_databases(config)]
    return dg.define_asset_job(  # type: ignore[return-value]
        name=JOB,
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,
        description="Looks for files that no table references, in every database that lakehouse.yaml names. Counts "
        "them; removes them where the run's configuration says so.",
    )


def _search(database: Database) -> dg.AssetsDefinition:
    key = database.key(ASSET)

    @dg.multi_asset(
        name=op_name(database),
        outs={
            ASSET: dg.AssetOut(
                key=key,
                dagster_type=dg.Nothing,
                group_name=database.group,
                kinds={"iceberg"},
                code_version=_CODE_VERSION,
                tags={"lakehouse_maintenance/step": "orphans"},
                metadata={meta("database"): str(database)},
                description=f"Files in the folders of the tables of `{plain(database)}` that no visible table of any "
                "catalog references: how many, how large, what was kept and why. Removed where the run says `delete`. "
                "A table that cannot be searched is told beside the others and fails nothing.",
            )
        },
        check_specs=[
            dg.AssetCheckSpec(
                name=ALL_TABLES_SEARCHED,
                asset=key,
                description="Every table could be searched, and what was to go is gone. Else it is a warning.",
            )
        ],
    )
    def searched(
        context: dg.AssetExecutionContext, config: OrphansConfig, lakehouse: LakehouseResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        opened = lakehouse.open()
        try:
            names = tables_of(opened, database)
        except LakehouseError as error:
            raise failure(error, opened.config) from None
        if config.only_due:
            names = [name for name in names if _is_due(opened, name)]
        context.log.info("%s: %s tables to look at", database, len(names))
        found: list[OrphanResult] = []
        for result in opened.iter_orphans(names, delete=config.delete, run_id=context.run.run_id):
            # Files are many; the journal and the verb `orphans --list` name them.
            found.append(replace(result, files=(), reason=opened.config.masker.mask(result.reason)))
            context.log.info(
                "%s: %s, %s orphan files, %s removed%s",
                result.table,
                result.status,
                result.orphan_files,
                result.deleted_files,
                f": {found[-1].reason}" if result.reason else "",
            )
        yield dg.MaterializeResult(
            asset_key=key, metadata=_facts(database, found), check_results=[_all_searched(key, found)]
        )

    return searched


def _is_due(lakehouse: "Lakehouse", name: TableName) -> bool:
    from lakehouse_maintenance.execution.clock import now_ms

    policy = lakehouse.config.policy_for(name).remove_orphan_files
    if policy.every is None or policy.review:
        return False
    last = lakehouse.last_run_ms(name, Action.REMOVE_ORPHAN_FILES)
    return last is None or now_ms() - last >= policy.every.total_seconds() * 1000


def _facts(database: Database, found: list[OrphanResult]) -> dict[str, dg.MetadataValue]:
    return {
        meta("orphans"): dg.MetadataValue.md(_report(database, found)),
        meta("tables"): dg.MetadataValue.int(len(found)),
        meta("orphan_files"): dg.MetadataValue.float(float(sum(one.orphan_files for one in found))),
        meta("orphan_bytes"): dg.MetadataValue.float(float(sum(one.orphan_bytes for one in found))),
        meta("removed_files"): dg.MetadataValue.float(float(sum(one.deleted_files for one in found))),
        meta("removed_bytes"): dg.MetadataValue.float(float(sum(one.deleted_bytes for one in found))),
        meta("objects_listed"): dg.MetadataValue.float(float(sum(one.objects_listed for one in found))),
    }


def _report(database: Database, found: list[OrphanResult]) -> str:
    """Markdown: sums, the largest as bars, then table by table what was found, removed and kept."""
    size = sum(one.orphan_bytes for one in found)
    sums = [
        ("tables", f"{len(found):,}"),
        ("orphan files", f"{sum(one.orphan_files for one in found):,} ({format_size(size)})"),
        ("removed", f"{sum(one.deleted_files for one in found):,}"),
        ("objects listed", f"{sum(one.objects_listed for one in found):,}"),
    ]
    parts = [f"**{plain(database)}**", table(("database", "now"), sums)]
    ranked = sorted(found, key=lambda one: (-one.orphan_bytes, one.table))
    largest = [one for one in ranked if one.orphan_bytes][:_MOST_BARS]
    if largest:
        bars = [Bar(str(at), one.orphan_bytes, format_size(one.orphan_bytes)) for at, one in enumerate(largest, 1)]
        parts.append(image(bar_chart(bars), "bytes of orphan files, largest first; the table below names the bars"))
    head = ("bar", "table", "status", "orphan files", "size", "removed", "kept", "why", "digest")
    parts.append(table(head, (_row(at, one) for at, one in enumerate(ranked[:_MOST_ROWS], 1))))
    if len(ranked) > _MOST_ROWS:
        parts.append(f"{len(ranked) - _MOST_ROWS:,} tables with fewer bytes are not shown.")
    return "\n\n".join(parts)


def _row(at: int, one: OrphanResult) -> tuple[object, ...]:
    kept = "; ".join(f"{kept.files:,} {kept.reason}" for kept in one.kept)
    return (
        at if one.orphan_bytes else "",
        one.table,
        one.status,
        f"{one.orphan_files:,}",
        format_size(one.orphan_bytes),
        f"{one.deleted_files:,}",
        kept,
        one.reason,
        one.digest or "",
    )


def _all_searched(key: dg.AssetKey, found: list[OrphanResult]) -> dg.AssetCheckResult:
    wrong = [one for one in found if one.status not in (Status.DONE, Status.SKIPPED)]
    told = [told_with_name(one.table, f"{one.status}: {one.reason}") for one in wrong[:_MOST_ROWS]]
    return dg.AssetCheckResult(
        check_name=ALL_TABLES_SEARCHED,
        asset_key=key,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(found) - len(wrong):,} of {len(found):,} tables were searched to the end",
        metadata={
            meta("tables_failed"): len(wrong),
            meta("failures"): dg.MetadataValue.md("\n".join(f"- {plain(text)}" for text in told) or "none"),
        },
    )
