"""`lakehouse/<catalog>/<database>/untracked_candidates` → `review` → `removed`: folders that no table owns (DG-10).

The first reconciles storage with the catalog and changes nothing; the second records what a person says of the plan;
the third removes what was approved, after it has looked at everything again. Each reads what it needs from the state,
so they need not run together: a review takes days.

The job `untracked_table_folders` runs the file that `jobs.untracked_table_folders` names, by that file's own rules, or
reconciles every database where none is named. Its schedule is off until switched on.
"""

# Dagster reads the annotations of `context` itself and takes no text for them: no `from __future__ import annotations`.

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError, LakehouseError
from lakehouse_maintenance.model.folders import DatabaseResult, FolderRun, RowStatus
from lakehouse_maintenance.model.intervals import parse_until
from lakehouse_maintenance.model.markdown import plain
from lakehouse_maintenance.model.names import split_name
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.orchestration.databases import Database, written_databases
from lakehouse_maintenance.orchestration.failing import failed, failure
from lakehouse_maintenance.orchestration.folder_facts import (
    candidates_facts,
    removed_facts,
    review_facts,
    reviewed_check,
)
from lakehouse_maintenance.orchestration.naming import CANDIDATES_REVIEWED, meta
from lakehouse_maintenance.orchestration.rendering import told_with_name
from lakehouse_maintenance.orchestration.resources import LakehouseResource

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.lakehouse import Lakehouse
    from lakehouse_maintenance.removal import Entry

CANDIDATES = "untracked_candidates"
REVIEW = "review"
REMOVED = "removed"
JOB = "untracked_table_folders"
DAILY = "0 3 * * *"
ALL = "all"
"""In place of paths: every folder of the plan."""

_CODE_VERSION = "1"


class ReviewConfig(dg.Config):
    """What somebody says of a plan. Without it `review` shows what was said, and decides nothing."""

    digest: str = Field(
        default="",
        description="Digest of the plan, as untracked_candidates shows it. Needed to approve or reject anything: what "
        "is approved is what that plan lists, and nothing that was found since.",
    )
    approve: list[str] = Field(
        default=[],
        description="Paths of folders that may be removed, as the plan has them; [all]: every folder that is not "
        "rejected here.",
    )
    reject: list[str] = Field(
        default=[],
        description="Paths of folders that stay; [all]: every one. An earlier approval of them is taken back.",
    )
    by: str = Field(default="", description="Who decides. Needed to approve or reject anything.")
    until: str = Field(
        default="",
        description="How long the approval holds: 3 days, or a date or time in ISO 8601 (UTC where it names no zone). "
        "Empty: 7 days.",
    )


def untracked_assets(config: "LakehouseConfig | None") -> list[dg.AssetsDefinition]:
    """Three assets for each database that `databases` names."""
    if config is None:
        return []
    return [
        asset
        for database in written_databases(config)
        for asset in (_candidates(database), _review(database), _removed(database))
    ]


def op_name(asset: str, database: Database) -> str:
    """Name of the step, for run config."""
    return f"{asset}__{database.group}"


def untracked_schedules(config: "LakehouseConfig | None") -> list[dg.ScheduleDefinition]:
    """The job with its schedule, which is off until switched on. None where there is no database and no file."""
    if config is None:
        return []
    settings = config.jobs.untracked_table_folders
    keys = [database.key(CANDIDATES) for database in written_databases(config)]
    if settings is None and not keys:
        return []
    return [
        dg.ScheduleDefinition(
            name=f"{JOB}_schedule",
            job=_reconciling_job(keys) if settings is None else _file_job(),
            cron_schedule=DAILY if settings is None else settings.schedule,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Reconciles the storage of every database with its catalog, and removes nothing."
            if settings is None
            else "Runs the file that jobs.untracked_table_folders names; it removes folders only where that file says "
            "delete_enabled and no dry_run.",
        )
    ]


def _candidates(database: Database) -> dg.AssetsDefinition:
    key = database.key(CANDIDATES)

    @dg.multi_asset(
        name=op_name(CANDIDATES, database),
        outs={
            CANDIDATES: _out(
                database,
                CANDIDATES,
                "reconcile",
                f"Folders beside the tables of `{plain(database)}` that no visible table of any catalog owns: how "
                "large, how old, what lies in them, and why the others stay. Changes nothing.",
            )
        },
        check_specs=[
            dg.AssetCheckSpec(
                name=CANDIDATES_REVIEWED,
                asset=key,
                blocking=True,
                description="There is no candidate, or somebody has approved every one and that has not expired. "
                "Until then nothing that follows in the same run is done.",
            )
        ],
    )
    def reconciled(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it by its bare name
        opened = lakehouse.open()
        try:
            run = opened.reconcile(str(database), run_id=context.run.run_id)
            review = opened.review_of(str(database))
        except LakehouseError as error:
            raise failure(error, opened.config) from None
        mask = opened.config.masker.mask
        result = _only(run, database)
        context.log.info(mask(run.report))
        facts = candidates_facts(result, run.report, mask)
        _refuse_failed(run, result, opened, facts)
        policy = opened.config.policy_for_database(str(database)).untracked_folders
        return dg.MaterializeResult(
            asset_key=key,
            metadata=facts,
            data_version=dg.DataVersion(result.digest or "no candidate"),
            check_results=[reviewed_check(key, result, review, datetime.now(UTC), mask, needs_review=policy.review)],
        )

    return reconciled


def _review(database: Database) -> dg.AssetsDefinition:
    key = database.key(REVIEW)

    @dg.multi_asset(
        name=op_name(REVIEW, database),
        outs={
            REVIEW: _out(
                database,
                REVIEW,
                "review",
                f"What somebody said of the folders of `{plain(database)}` that may go: who, when, until when. "
                "Materialize it with a digest to approve or reject, without one to see how things stand.",
            )
        },
        deps=[database.key(CANDIDATES)],
    )
    def reviewed(
        context: dg.AssetExecutionContext, config: ReviewConfig, lakehouse: LakehouseResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        opened = lakehouse.open()
        try:
            if config.approve or config.reject:
                _decide(opened, database, config)
            review = opened.review_of(str(database))
        except LakehouseError as error:
            raise failure(error, opened.config) from None
        now = datetime.now(UTC)
        said = "none" if review is None else f"{review.plan.digest} {review.state(now)} {review.at}"
        context.log.info("%s: %s", database, said)
        return dg.MaterializeResult(
            asset_key=key,
            metadata=review_facts(review, now, opened.config.masker.mask),
            data_version=dg.DataVersion(said),
        )

    return reviewed


def _removed(database: Database) -> dg.AssetsDefinition:
    key = database.key(REMOVED)

    @dg.multi_asset(
        name=op_name(REMOVED, database),
        outs={
            REMOVED: _out(
                database,
                REMOVED,
                "remove",
                f"Folders of `{plain(database)}` that were approved, removed as the policy says (moved to quarantine "
                "by default). Everything is looked at again first: what is owned by now, or is not what the plan says "
                "any more, stays. Without an approval that holds nothing is removed.",
            )
        },
        deps=[database.key(REVIEW)],
    )
    def gone(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        opened = lakehouse.open()
        run_id = context.run.run_id
        try:
            run = opened.remove_folders(str(database), run_id=run_id)
            entries = _entries(opened, database, run_id)
        except LakehouseError as error:
            raise failure(error, opened.config) from None
        mask = opened.config.masker.mask
        result = _only(run, database)
        context.log.info(mask(run.report))
        facts = removed_facts(result, run.report, entries, mask)
        _refuse_failed(run, result, opened, facts)
        return dg.MaterializeResult(
            asset_key=key, metadata=facts, data_version=dg.DataVersion(result.digest or "no candidate")
        )

    return gone


def _out(database: Database, asset: str, step: str, description: str) -> dg.AssetOut:
    return dg.AssetOut(
        key=database.key(asset),
        dagster_type=dg.Nothing,
        group_name=database.group,
        kinds={"iceberg"},
        code_version=_CODE_VERSION,
        tags={"lakehouse_maintenance/step": step},
        metadata={meta("database"): str(database)},
        description=description,
    )


def _decide(lakehouse: "Lakehouse", database: Database, config: ReviewConfig) -> None:
    """Raises InputError, and then nothing is decided."""
    if not config.digest.strip():
        raise InputError(
            "an approval or a rejection names no plan", field="digest", hint="untracked_candidates shows the digest"
        )
    (*others, review) = lakehouse.state.reviews.find(config.digest)
    if others or review.plan.subject != str(database):
        raise InputError(
            f"{config.digest} is not of {database} alone", field="digest", hint="untracked_candidates shows its digest"
        )
    known = [folder.path for folder in review.plan.folders]
    rejected = _meant(config.reject, known, "reject")
    approved = _meant(config.approve, known, "approve")
    if config.approve == [ALL]:
        approved = [path for path in approved if path not in set(rejected)]
    both = sorted({*approved} & {*rejected})
    if both:
        raise InputError(f"{both[0]} is approved and rejected at once", field="approve", hint="keep one of the two")
    now = datetime.now(UTC)
    until = parse_until(config.until, now, field="until") if config.until.strip() else None
    # The approval first: what can be wrong with a rejection is wrong with it as well, and then neither is recorded.
    if approved:
        lakehouse.approve(config.digest, approved, by=config.by, until=until)
    if rejected:
        lakehouse.reject(config.digest, rejected, by=config.by)


def _meant(paths: Sequence[str], known: Sequence[str], field: str) -> list[str]:
    if list(paths) == [ALL]:
        return list(known)
    for path in paths:
        if path.rstrip("/") not in known:
            raise InputError(f"{path} is not in the plan", field=field, hint=suggestion(path, known))
    return [path.rstrip("/") for path in paths]


def _entries(lakehouse: "Lakehouse", database: Database, run_id: str) -> "list[Entry]":
    """What the run moved to quarantine."""
    from lakehouse_maintenance.removal import Entry

    found = (one.entry for one in lakehouse.quarantined())
    return [
        entry
        for entry in found
        if isinstance(entry, Entry) and entry.run_id == run_id and entry.subject == str(database)
    ]


def _only(run: FolderRun, database: Database) -> DatabaseResult:
    if len(run.databases) != 1:
        raise failed(f"{database}: {len(run.databases)} results of one database", Status.FAILED, None)
    return run.databases[0]


def _refuse_failed(
    run: FolderRun, result: DatabaseResult, lakehouse: "Lakehouse", facts: dict[str, dg.MetadataValue]
) -> None:
    """A step whose database failed, or whose audit was lost, fails, with all that it would have shown."""
    if run.ok:
        return
    row = result.row
    name = f"{row.catalog_name}.{row.database_name}"
    if row.status is RowStatus.FAILED:
        told = told_with_name(name, f"{row.status_reason}: {row.error_message or 'see the report'}")
    else:
        told = f"{name}: the audit row could not be written: nothing more is removed in such a run"
    raise failed(told, Status.FAILED, lakehouse.config, facts)


def _reconciling_job(keys: Sequence[dg.AssetKey]) -> dg.JobDefinition:
    return dg.define_asset_job(  # type: ignore[return-value]
        name=JOB,
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,
        description="Reconciles the storage of every database that lakehouse.yaml names with its catalog. Removes "
        "nothing.",
    )


def _file_job() -> dg.JobDefinition:
    @dg.job(
        name=JOB,
        executor_def=dg.in_process_executor,
        description="Runs the file that jobs.untracked_table_folders names, by its own rules. Fails where a database "
        "failed or an audit row could not be written.",
    )
    def untracked_table_folders() -> None:
        run_untracked_table_folders()

    return untracked_table_folders


@dg.op(
    out=dg.Out(dg.Nothing),
    description="Reconciles every database that the file names, and removes folders where the file says so. Tells the "
    "report, and what it found of each database that lakehouse.yaml names on its untracked_candidates.",
)
def run_untracked_table_folders(context: dg.OpExecutionContext, lakehouse: LakehouseResource) -> None:
    """The file is the one that the configuration names when it runs."""
    opened = lakehouse.open()
    settings = opened.config.jobs.untracked_table_folders
    try:
        if settings is None:
            raise InputError("no file is configured", field="jobs.untracked_table_folders", hint="name one, and reload")
        run = opened.untracked_folders(settings.file, run_id=context.run.run_id)
    except LakehouseError as error:
        raise failure(error, opened.config) from None
    mask = opened.config.masker.mask
    context.log.info(mask(run.report))
    shown = set(written_databases(opened.config))
    for result in run.databases:
        row = result.row
        database = Database(row.catalog_name, split_name(row.database_name))
        if database in shown:
            context.log_event(
                dg.AssetMaterialization(database.key(CANDIDATES), metadata=candidates_facts(result, run.report, mask))
            )
    context.add_output_metadata({meta("report"): dg.MetadataValue.md(mask(run.report))})
    if not run.ok:
        wrong = [one.row for one in run.databases if one.row.status is RowStatus.FAILED]
        told = [f"{row.catalog_name}.{row.database_name}: {row.status_reason}: {row.error_message}" for row in wrong]
        if run.is_audit_lost:
            told.append("an audit row could not be written")
        raise failed("; ".join(told), Status.FAILED, opened.config)
