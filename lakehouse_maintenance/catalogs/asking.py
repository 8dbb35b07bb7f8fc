"""Several questions to one catalog at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lakehouse_maintenance.catalogs.catalog import Catalog

_AT_ONCE = 8

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def ask_each(catalog: Catalog, ask: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """The answers in the order of the items, several at once where the catalog's client may be shared by threads.

    What one question raises, all raise.
    """
    if len(items) < 2 or not catalog.is_shareable:
        return [ask(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="catalog") as pool:
        return list(pool.map(ask, items))
