"""What the verbs do: ask the lakehouse, show what it answers, and say by the exit code how it went."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance.cli import rendering
from lakehouse_maintenance.cli.requests import Asked, check_out, engine_name, read_plan, whole_number, write_plan
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.model.plans import Plan

if TYPE_CHECKING:
    from lakehouse_maintenance.execution.quarantining import Quarantined


def measure(session: Session, tables: Sequence[str], *, exact: bool) -> int:
    """`health`: 1 where a table cannot be measured."""
    with session.lakehouse() as lakehouse:
        found = lakehouse.health(tables, exact=exact)
    in_full = session.verbosity > 0
    session.show({"tables": [table.as_json() for table in found]}, partial(rendering.health, in_full=in_full))
    return int(any(table.error is not None for table in found))


def make_plan(session: Session, tables: Sequence[str], asked: Asked, out: Path | None) -> int:
    """`plan`: 1 where a table cannot be planned; nothing to do is 0."""
    request = asked.request()
    check_out(out)
    with session.lakehouse() as lakehouse:
        plan = lakehouse.plan(tables, request)
    return _show_plan(session, plan, out)


def apply_plan(session: Session, source: str) -> int:
    """`apply`: 1 where a table failed, is blocked, or its commit's result is unknown."""
    plan = read_plan(source)
    with session.lakehouse() as lakehouse:
        result = lakehouse.apply(plan)
    session.show(result.as_json(), rendering.outcome)
    return int(not result.ok)


def run_maintenance(session: Session, tables: Sequence[str], asked: Asked, out: Path | None, *, dry_run: bool) -> int:
    """`maintain`: as `apply`, with `--dry-run` as `plan`. With `--out` the plan is written before it is run."""
    request = asked.request()
    check_out(out)
    with session.lakehouse() as lakehouse:
        if dry_run:
            return _show_plan(session, lakehouse.due(tables, request), out)
        result = lakehouse.maintain(tables, request, told=lambda plan: _write(plan, out))
    session.show(result.as_json(), rendering.outcome)
    return int(not result.ok)


def move_back(session: Session, table: str, to: str | None, branch: str, *, dry_run: bool) -> int:
    """`rollback`: 1 where it is blocked, failed, or nobody knows."""
    wanted = None if to is None else whole_number(to, "--to")
    with session.lakehouse() as lakehouse:
        result = lakehouse.rollback(table, to=wanted, branch=branch, dry_run=dry_run)
    session.show(result.as_json(), rendering.outcome)
    return int(not result.ok)


def show_quarantine(session: Session) -> int:
    """`quarantine list`: 1 where an entry is damaged."""
    with session.lakehouse() as lakehouse:
        found = lakehouse.quarantined()
    return _show_entries(session, found)


def restore_entry(session: Session, entry_id: str) -> int:
    """`quarantine restore`: 1 where its place is occupied, or anything of it could not be brought back."""
    with session.lakehouse() as lakehouse:
        found = lakehouse.restore(entry_id)
    return _show_entries(session, [found])


def purge_entries(session: Session, entry_id: str | None, older_than: str | None) -> int:
    """`quarantine purge`: 1 where anything stays that was to go."""
    from lakehouse_maintenance.model.intervals import parse_duration

    age = None if older_than is None else parse_duration(older_than, field="--older-than")
    with session.lakehouse() as lakehouse:
        found = lakehouse.purge(entry_id, age)
    return _show_entries(session, found)


def show_events(session: Session, *, last: int | None, table: str | None) -> int:
    """`audit`."""
    with session.lakehouse() as lakehouse:
        events = lakehouse.audit(last=last, table=table)
    session.show({"events": [event.as_json() for event in events]}, rendering.events)
    return 0


def examine(session: Session, *, write_test: bool) -> int:
    """`doctor`: 1 where a check is not passed."""
    with session.lakehouse() as lakehouse:
        checks = lakehouse.doctor(write_test=write_test)
    session.show({"checks": [check.as_json() for check in checks]}, rendering.checks)
    return int(not all(check.ok for check in checks))


def demonstrate(session: Session, into: Path, engine: str | None) -> int:
    """`demo`: 1 where the lakehouse did not get well as it should."""
    from lakehouse_maintenance.demo import run_demo
    from lakehouse_maintenance.demo.report import draw

    name = "embedded" if engine is None else engine_name(engine)
    with session.progress() as progress:
        result = run_demo(into, engine=name, say=session.say, progress=progress)
    session.show(result.as_json(), draw)
    return int(not result.ok)


def _show_entries(session: Session, found: Sequence[Quarantined]) -> int:
    session.show({"entries": [one.as_json() for one in found]}, rendering.entries)
    return int(not all(one.ok for one in found))


def _write(plan: Plan, out: Path | None) -> None:
    if out is not None:
        write_plan(plan, out)


def _show_plan(session: Session, plan: Plan, out: Path | None) -> int:
    _write(plan, out)
    if out is not None:
        session.say(f"plan {plan.digest} is in {out}")
    session.show(plan.as_json(), rendering.plan)
    return int(any(table.error is not None for table in plan.tables))
