"""Runs the demo: build the lakehouse or find it again, measure, maintain through Dagster, measure again, compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance.demo import folder
from lakehouse_maintenance.demo.result import DemoResult, LeftAlone, Maintained
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.outcomes import Check

if TYPE_CHECKING:
    from lakehouse_maintenance.demo.rows import Fingerprint
    from lakehouse_maintenance.execution.progress import Progress
    from lakehouse_maintenance.lakehouse import Lakehouse
    from lakehouse_maintenance.model.plans import Plan
    from lakehouse_maintenance.orchestration.local import PartitionRun

__all__ = ["DemoResult", "run_demo"]

EVENTS, HEALTHY = "demo.analytics.events", "demo.analytics.sessions"
_FILES_LEFT = 0.05
_ENGINES = ("auto", "embedded")

Refs = dict[str, "Fingerprint"]


def run_demo(
    into: Path,
    *,
    engine: str = "embedded",
    say: Callable[[str], None],
    progress: Progress,
    scale: float = 1.0,
) -> DemoResult:
    """Builds the demo lakehouse in this folder unless it is there, and maintains it by its policies.

    `say` takes a line for people. `scale`: of the file counts, when it is built. Raises InputError for a folder that
    holds something else, and for an engine that this release does not have; nothing is written then.
    """
    if engine not in _ENGINES:
        raise InputError(
            f"the demo does not run on engine {engine} in this release",
            field="--engine",
            hint=f"one of {', '.join(_ENGINES)}",
        )
    into = into.expanduser().resolve()
    built = folder.existing(into)
    is_new = built is None
    if built is None:
        built = _build(into, engine, scale, say)
    else:
        say(f"The demo lakehouse in {into} was built at {built.at}: maintaining it again.")

    from lakehouse_maintenance.demo.generator import lock_by_other_run
    from lakehouse_maintenance.lakehouse import Lakehouse

    lakehouse = Lakehouse.open(into / "lakehouse.yaml", progress=progress)
    lock_by_other_run(lakehouse.state, datetime.now(UTC))
    names = lakehouse.tables()
    say("Measuring every table, and reading the rows of every branch and tag, to compare them afterwards.")
    before = lakehouse.health()
    rows_before = _read_rows(lakehouse, names, progress)
    plan = lakehouse.plan()
    say("Maintaining by policy, table by table, through the Dagster assets.")
    runs = _maintain(into, names, say)
    say("Measuring and reading everything again.")
    after = lakehouse.health()
    rows_after = _read_rows(lakehouse, names, progress)
    return DemoResult(
        config=into / "lakehouse.yaml",
        built=is_new,
        before=tuple(before),
        after=tuple(after),
        left_alone=_left_alone(plan, runs),
        tables=tuple(map(_maintained, runs.values())),
        rows_equal=rows_before == rows_after,
        checks=(*_checks(built, before, after, rows_before, rows_after, runs), _files_there(lakehouse, names)),
    )


def _build(into: Path, engine: str, scale: float, say: Callable[[str], None]) -> folder.Built:
    from lakehouse_maintenance.demo.generator import build_tables, configuration
    from lakehouse_maintenance.lakehouse import Lakehouse

    folder.begin(into, configuration(engine))
    say(f"Building a lakehouse of eleven tables in {into}")
    started, now = time.monotonic(), datetime.now(UTC)
    build_tables(into, now=now, scale=scale, on_table=lambda table, shows: say(f"  {_short(table):24}{shows}"))
    tables = Lakehouse.open(into / "lakehouse.yaml").health()
    files = {table.table: table.data_files for table in tables}
    say(f"Built {sum(files.values()):,} data files in {time.monotonic() - started:.0f} s.")
    return folder.complete(into, now, files)


def _read_rows(lakehouse: Lakehouse, names: Sequence[TableName], progress: Progress) -> dict[str, Refs]:
    """Table → branch or tag → what a reader sees."""
    from lakehouse_maintenance.demo.rows import refs_of

    found: dict[str, Refs] = {}
    for name in names:
        progress.begin(str(name), "reading rows", 0, 0)
        found[str(name)] = refs_of(lakehouse.catalogs[name.catalog].load(name))
        progress.end(str(name), "")
    return found


def _maintain(into: Path, names: Sequence[TableName], say: Callable[[str], None]) -> Mapping[TableName, PartitionRun]:
    import dagster as dg

    from lakehouse_maintenance.orchestration.local import maintain_with_dagster

    def tell(run: PartitionRun) -> None:
        say(f"  {_short(str(run.table)):24}{_WORDS.get(run.status, run.status)}")

    # Kept in the folder, so that the web interface shows these very runs.
    with dg.DagsterInstance.from_config(str(folder.dagster_home(into))) as instance:
        return maintain_with_dagster(into / "lakehouse.yaml", instance, names, tell)


_WORDS = {Status.DONE: "maintained", Status.SKIPPED: "left alone", Status.BLOCKED: "blocked by another run"}


def _left_alone(plan: Plan, runs: Mapping[TableName, PartitionRun]) -> tuple[LeftAlone, ...]:
    """Of a table left alone, why its files were not rewritten; of each, what else is due and not done."""
    found: list[LeftAlone] = []
    by_name = {table.table: table for table in plan.tables}
    for name, run in runs.items():
        table = by_name[str(name)]
        if run.status is not Status.DONE and table.actions:
            found.append(LeftAlone(table.table, table.actions[0].action, f"{run.status}: {_reason(run)}"))
        told: set[str] = set()
        for skip in table.skipped:
            matters = skip.action == Action.REWRITE_DATA_FILES or not skip.reason.startswith("not due")
            if matters and skip.reason not in told:
                told.add(skip.reason)
                found.append(LeftAlone(table.table, skip.action, skip.reason))
    return tuple(found)


def _maintained(run: PartitionRun) -> Maintained:
    return Maintained(
        str(run.table),
        run.status,
        run.run_id,
        _reason(run),
        run.expired_snapshots,
        run.deleted_files,
        run.deleted_bytes,
    )


def _files_there(lakehouse: Lakehouse, names: Sequence[TableName]) -> Check:
    """Looks for every file that any snapshot of any table reaches."""
    from lakehouse_maintenance.execution.observe import observe
    from lakehouse_maintenance.iceberg.references import references
    from lakehouse_maintenance.model.locations import Location
    from lakehouse_maintenance.model.references import ReferenceKind

    needed, missing = 0, list[str]()
    for name in names:
        observed = observe(lakehouse.catalogs[name.catalog], name)
        found = references(observed.metadata, observed.reader)
        # No engine without a catalog writes here, and so nobody writes a version hint.
        paths = {reference.path for reference in found if reference.kind is not ReferenceKind.VERSION_HINT}
        needed += len(paths)
        there = observed.storage.stat_many(Location.parse(path) for path in sorted(paths))
        missing += [location.text for location, info in there if info is None]
    return Check(
        "needed_files_present",
        not missing,
        f"all {needed:,} files that a snapshot needs are there" if not missing else f"missing: {', '.join(missing)}",
    )


def _reason(run: PartitionRun) -> str:
    # A failed run in Dagster has to say by itself which table it is about.
    return run.reason.removeprefix(f"{run.table}: {run.status}: ")


def _checks(
    built: folder.Built,
    before: Sequence[TableHealth],
    after: Sequence[TableHealth],
    rows_before: Mapping[str, Refs],
    rows_after: Mapping[str, Refs],
    runs: Mapping[TableName, PartitionRun],
) -> tuple[Check, ...]:
    then, now = {table.table: table for table in before}, {table.table: table for table in after}
    changed = [table for table in rows_before if rows_before[table] != rows_after.get(table)]
    rows = sum(one.rows for refs in rows_after.values() for one in refs.values())
    refs = sum(len(refs) for refs in rows_after.values())
    files, files_built = now[EVENTS].data_files, built.data_files.get(EVENTS, 0)
    healthy = now[HEALTHY].snapshot_id
    failed = [f"{run.table}: {_reason(run)}" for run in runs.values() if run.status in (Status.FAILED, Status.UNKNOWN)]
    errors = [f"{table.table}: {table.error}" for table in (*before, *after) if table.error is not None]
    untouched = [
        str(name)
        for name, run in runs.items()
        if run.status is not Status.DONE and then[str(name)].snapshot_id != now[str(name)].snapshot_id
    ]
    return (
        Check(
            "rows_equal",
            not changed,
            f"{rows:,} rows in {refs} branches and tags of {len(rows_after)} tables read the same as before"
            if not changed
            else f"rows differ in {', '.join(changed)}",
        ),
        Check(
            "events_compacted",
            files < _FILES_LEFT * files_built,
            f"{_short(EVENTS)} has {files:,} of the {files_built:,} data files it was built with",
        ),
        Check(
            "healthy_untouched",
            healthy == then[HEALTHY].snapshot_id,
            f"{_short(HEALTHY)}, healthy as it is, still stands at snapshot {healthy}",
        ),
        Check(
            "left_alone_untouched",
            not untouched,
            "no table that was left alone has changed" if not untouched else f"changed: {', '.join(untouched)}",
        ),
        Check(
            "nothing_failed",
            not failed and not errors,
            "no run failed" if not failed and not errors else "; ".join((*failed, *errors)),
        ),
    )


def _short(table: str) -> str:
    return table.partition(".")[2]
