"""One look at a table for those who start work by themselves: what is due, since when, and when to look again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse_maintenance.execution.making import Target, plan_subject, subject_of
from lakehouse_maintenance.execution.memory import Memory
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.plans import TablePlan
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.planning.timing import due_since_ms, look_again_ms, turn_ms

BY_DATABASE = frozenset({Action.REMOVE_ORPHAN_FILES})
"""Not started table by table: each search asks every table of every catalog, which a run over all tables of a database
does once, and a run of each table would do over and over."""


@dataclass(frozen=True, slots=True)
class Turn:
    """`since_ms`: since when the action has been due. `every_ms`: while it stays due, it is started once in this time.

    Both in milliseconds, the first since 1970.
    """

    since_ms: int
    every_ms: int


@dataclass(frozen=True, slots=True)
class Watched:
    """`pointer`: the metadata file that all is of. `turns`: of each planned action.

    `look_again_ms`: when time alone may have changed what is due (milliseconds since 1970); None: never.
    """

    pointer: str
    health: TableHealth
    plan: TablePlan
    turns: Mapping[str, Turn]
    look_again_ms: int | None


def watch(target: Target, memory: Memory, cache: BlobCache | None) -> Watched:
    """Measures and plans one table, from one metadata file. Raises LakehouseError."""
    observed = observe(target.catalog, target.name, cache)
    subject = subject_of(observed, target, memory)
    plan = plan_subject(observed, subject, Request(leave_out=BY_DATABASE), memory.throughput())
    turns = {
        str(action.action): Turn(due_since_ms(subject, action.action), turn_ms(subject, action.action))
        for action in plan.actions
    }
    return Watched(observed.metadata.location, subject.health, plan, turns, look_again_ms(subject, plan))
