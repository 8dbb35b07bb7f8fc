"""Reading and writing the groups of a rewrite, several at once; nothing is committed here."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Demand, Group, Rewriter
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import Observed
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.replace import Replacement
from lakehouse_maintenance.model.plans import FileGroup
from lakehouse_maintenance.planning.compaction import recheck
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.sizing import MARGIN, expected_bytes
from lakehouse_maintenance.planning.sort_orders import parse


def fresh_groups(
    observed: Observed, groups: Sequence[FileGroup], options: RewriteOptions, skip: set[int]
) -> dict[int, FileGroup]:
    """Groups that still make sense at the fresh head, by their number in the plan and in its order."""
    pending = {index: group for index, group in enumerate(groups) if index not in skip}
    if not pending:
        return {}
    paths = frozenset(file.path for group in pending.values() for file in group.files)
    current = observed.data_files(paths)
    deletes = observed.delete_index()
    state = observed.metadata.state(observed.branch)
    checked = {index: recheck(group, current, deletes, state, options) for index, group in pending.items()}
    return {index: group for index, group in checked.items() if group is not None}


def rewritten_groups(
    run: Run,
    target: Target,
    observed: Observed,
    groups: Mapping[int, FileGroup],
    options: RewriteOptions,
    work: Work,
    announce: Callable[[Sequence[str]], None],
    check: Callable[[], None],
) -> Generator[tuple[int, Replacement | Exception]]:
    """Each group's number with its result, or with what it failed by, as they are done.

    `check` is called before each group begins; what it raises ends all. Closing the iterator does as well: groups that
    are going on are stopped and waited for.
    """
    if not groups:
        return
    name = str(target.name)
    rewriter = Rewriter(
        table=target.catalog.load(target.name),
        storage=observed.storage,
        memory_limit=run.memory_limit,
        progress=lambda files, size: run.progress.advance(name, files, size),
        announce=announce,
        written=work.written.append,
    )
    current = observed.data_files(frozenset(file.path for group in groups.values() for file in group.files))
    deletes = observed.delete_index()
    head = observed.metadata.head(observed.branch)
    assert head is not None, "groups were found, so there is a head"
    number = head.sequence_number if options.use_starting_sequence_number else None
    order = None if options.sort_order is None else parse(options.sort_order)
    jobs = {
        index: Group(
            tuple(current[file.path] for file in group.files),
            group.expected_files,
            number,
            roll_bytes(group, options),
            order,
            options.sort_order_id,
            group.moves_to,
        )
        for index, group in groups.items()
    }
    at_once = options.max_concurrent_groups
    waiting = deque((index, job, rewriter.demand(job)) for index, job in jobs.items())
    running: dict[Future[Replacement], tuple[int, Demand]] = {}
    pool = ThreadPoolExecutor(min(at_once, len(jobs)), thread_name_prefix="groups")
    try:
        while waiting or running:
            while waiting and _fits(waiting[0][2], [taken for _, taken in running.values()], at_once, rewriter):
                check()
                index, job, demand = waiting.popleft()
                running[pool.submit(rewriter.rewrite, job, deletes)] = index, demand
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(ended, key=lambda one: running[one][0]):
                index, _ = running.pop(future)
                error = future.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield index, future.result() if error is None else error
    finally:
        rewriter.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def roll_bytes(group: FileGroup, options: RewriteOptions) -> int:
    """Bytes at which an output is closed, whatever was expected.

    Half-way between target and maximum, as Iceberg's writers do: an estimate that was a little low costs no file. Where
    the plan asks for fewer and larger files than that, it is the plan that counts. Where order alone is the gain, no
    estimate may make more files than there were.
    """
    if options.sort_order is not None and group.expected_files >= len(group.files):
        return sys.maxsize
    more, fewer = MARGIN
    half_way = (options.target_file_size_bytes + options.max_file_size_bytes) // 2
    return max(half_way, expected_bytes(group.files) * more // (fewer * group.expected_files))


def _fits(demand: Demand, taken: Sequence[Demand], at_once: int, rewriter: Rewriter) -> bool:
    """Whether a group may begin beside those that are going on; one alone always may, and takes all it wants."""
    if not taken:
        return True
    if len(taken) >= at_once:
        return False
    memory = demand.memory + sum(other.memory for other in taken)
    workers = demand.workers + sum(other.workers for other in taken)
    # Groups of one output each go at once up to the option: small ones wait for storage more than for cores.
    return memory <= rewriter.memory_limit and workers <= max(2 * rewriter.threads, at_once)
