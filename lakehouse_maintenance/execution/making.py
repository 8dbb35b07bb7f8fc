"""Making a plan for many tables: one that fails is an entry with its error, and never stops the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.memory import Memory
from lakehouse_maintenance.execution.observe import Observed, expiry_facts, health_of, observe
from lakehouse_maintenance.execution.progress import Progress
from lakehouse_maintenance.iceberg.commit import obstacle
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.model.plans import Skip, TablePlan
from lakehouse_maintenance.planning.moment import resolve_moments
from lakehouse_maintenance.planning.orphan_action import FindOrphans
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.tables import Request, Subject, Throughput, plan_table

if TYPE_CHECKING:
    from lakehouse_maintenance.config import Policy

_logger = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Target:
    """A table with what its catalog, policy and engine settings say."""

    catalog: Catalog
    name: TableName
    policy: Policy
    named_by_policy: bool
    default_engine: str
    longest_reader: timedelta = timedelta(hours=24)


def measure_tables(
    targets: Iterable[Target], memory: Memory, cache: BlobCache | None, progress: Progress, *, exact: bool = False
) -> Iterator[TableHealth]:
    """Health of each table, in their order."""

    def one(target: Target) -> TableHealth:
        name = str(target.name)
        try:
            observed = observe(target.catalog, target.name, cache)
            remembered = memory.table(name)
            last = remembered.last_run_ms
            return health_of(observed, target.policy, last, now_ms(), exact=exact, orphans=remembered.orphans)
        except LakehouseError as error:
            return TableHealth(table=name, score=0, error=describe(error))
        except Exception as error:
            # A fault of ours or of a library, met on this table: it must not stop the others.
            _logger.exception("%s: measuring failed", name)
            return TableHealth(table=name, score=0, error=f"unexpected {type(error).__name__}: {error}")

    return _each(targets, one, progress, "measuring")


def plan_tables(
    targets: Iterable[Target],
    memory: Memory,
    cache: BlobCache | None,
    progress: Progress,
    request: Request,
    orphans: Callable[[Target, OrphanRequest], OrphanResult] | None = None,
) -> Iterator[TablePlan]:
    """The plan of each table, in their order. `orphans`: looks for a table's orphan files; None: nobody looks now."""
    throughput = memory.throughput()

    def one(target: Target) -> TablePlan:
        try:
            observed = observe(target.catalog, target.name, cache)
            find = None if orphans is None else partial(orphans, target)
            plan = plan_one(observed, target, memory, request, throughput, orphans=find)
            left = tuple(Skip("recovery", text) for text in memory.pending(str(target.name)))
            return replace(plan, skipped=(*plan.skipped, *left))
        except LakehouseError as error:
            return TablePlan(str(target.name), None, None, error=describe(error))
        except Exception as error:
            _logger.exception("%s: planning failed", target.name)
            return TablePlan(str(target.name), None, None, error=f"unexpected {type(error).__name__}: {error}")

    return _each(targets, one, progress, "planning")


def plan_one(
    observed: Observed,
    target: Target,
    memory: Memory,
    request: Request,
    throughput: Throughput,
    *,
    orphans: FindOrphans | None = None,
    only: Collection[Action] | None = None,
) -> TablePlan:
    """The plan of a table that was just looked at. `only`: as for `plan_table`."""
    subject = subject_of(observed, target, memory)
    return plan_subject(observed, subject, request, throughput, orphans=orphans, only=only)


def subject_of(observed: Observed, target: Target, memory: Memory) -> Subject:
    """All that planning needs of a table that was just looked at, but for its files."""
    remembered = memory.table(str(target.name))
    now = now_ms()
    return Subject(
        state=observed.metadata.state(),
        cannot_commit=obstacle(target.catalog, observed.metadata),
        health=health_of(observed, target.policy, remembered.last_run_ms, now, orphans=remembered.orphans),
        policy=target.policy,
        now_ms=now,
        last_run_ms=remembered.last_run_ms,
        laid_out=remembered.laid_out,
        named_by_policy=target.named_by_policy,
        default_engine=target.default_engine,
        expiry=expiry_facts(observed.metadata),
        longest_reader=target.longest_reader,
    )


def plan_subject(
    observed: Observed,
    subject: Subject,
    request: Request,
    throughput: Throughput,
    *,
    orphans: FindOrphans | None = None,
    only: Collection[Action] | None = None,
) -> TablePlan:
    """The plan at the subject's moment. Raises InputError where a branch that is to be worked on does not exist."""
    considered = {action for action in request.actions or () if only is None or action in only}
    # Expiry of a branch is about the table's snapshots, and tells itself where there is no such branch.
    if request.branch is not None and considered - {Action.EXPIRE_SNAPSHOTS}:
        observed = observed.on(request.branch)
        subject = replace(subject, state=observed.metadata.state(request.branch))
    where = None if request.where is None else resolve_moments(request.where, subject.now_ms)
    return plan_table(
        subject,
        lambda options: observed.groups(options, subject.now_ms, where),
        request=replace(request, where=where),
        throughput=throughput,
        reach=observed.reach,
        orphans=orphans,
        only=only,
        versions=observed.versions,
        manifests=observed.manifest_facts,
        deletes=observed.delete_plan,
    )


def describe(error: LakehouseError) -> str:
    """Message and hint in one line."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _each(targets: Iterable[Target], one: Callable[[Target], R], progress: Progress, what: str) -> Iterator[R]:
    def work(target: Target) -> R:
        progress.begin(str(target.name), what, 0, 0)
        try:
            return one(target)
        finally:
            progress.end(str(target.name), "")

    return in_order(work, targets, _AT_ONCE)


def in_order(work: Callable[[T], R], items: Iterable[T], at_once: int) -> Iterator[R]:
    """`work` of each item, a few at a time, in their order; no more than twice that many are begun ahead."""
    pending = iter(items)
    with ThreadPoolExecutor(at_once, thread_name_prefix="tables") as pool:
        running: list[Future[R]] = [pool.submit(work, item) for item in islice(pending, 2 * at_once)]
        while running:
            done = running.pop(0)
            result = done.result()
            running += [pool.submit(work, item) for item in islice(pending, 1)]
            yield result
