"""What the verbs do: ask the lakehouse, show what it answers, and say by the exit code how it went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lakehouse_maintenance.cli import rendering
from lakehouse_maintenance.cli.requests import Asked, check_out, engine_name, read_plan, write_plan
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.model.plans import Plan


def measure(session: Session, tables: Sequence[str], *, exact: bool) -> int:
    """`health`: 1 where a table cannot be measured."""
    with session.lakehouse() as lakehouse:
        found = lakehouse.health(tables, exact=exact)
    session.show({"tables": [table.as_json() for table in found]}, rendering.health)
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
        plan = lakehouse.due(tables, request)
        if dry_run:
            return _show_plan(session, plan, out)
        if out is not None:
            write_plan(plan, out)
        result = lakehouse.apply(plan)
    session.show(result.as_json(), rendering.outcome)
    return int(not result.ok)


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


def _show_plan(session: Session, plan: Plan, out: Path | None) -> int:
    if out is not None:
        write_plan(plan, out)
        session.say(f"plan {plan.digest} is in {out}")
    session.show(plan.as_json(), rendering.plan)
    return int(any(table.error is not None for table in plan.tables))
