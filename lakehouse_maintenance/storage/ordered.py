"""A map over threads that keeps the order and reads only so far ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ordered(
    function: Callable[[Item], Result], items: Iterable[Item], *, concurrency: int
) -> Iterator[tuple[Item, Result]]:
    """(item, function(item)) in the order of `items`; at most `concurrency` results are computed or waiting.

    An error is raised in its item's place, after everything before it was given out. Closing the iterator early
    waits for the calls that run and starts no further one.
    """
    if concurrency < 1:
        raise ValueError("concurrency is at least 1")
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    executor: ThreadPoolExecutor | None = None
    try:
        for item in items:
            if executor is None:
                executor = ThreadPoolExecutor(concurrency, thread_name_prefix="storage")
            if len(waiting) >= concurrency:
                first, result = waiting.popleft()
                yield first, result.result()
            waiting.append((item, executor.submit(function, item)))
        while waiting:
            first, result = waiting.popleft()
            yield first, result.result()
    finally:
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """As `itertools.batched`, which Python 3.11 does not have."""
    pending = iter(items)
    while batch := tuple(islice(pending, size)):
        yield batch
