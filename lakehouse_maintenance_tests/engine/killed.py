"""A run that ends as if its process were killed: no outcome, no lease given back; and the time after its lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import running
from lakehouse_maintenance.state.leases import Lease


class Killed(BaseException):
    """Stands in for SIGKILL."""


@contextmanager
def being_killed() -> Iterator[None]:
    """What a run does on its way out does not happen: its process is gone. Expects `Killed` inside."""

    def nothing(*args: Any, **kwargs: Any) -> None:
        raise Killed

    def stop(self: Lease) -> None:
        self._stop.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_record_outcome", nothing)
        patch.setattr(Lease, "release", stop)
        with pytest.raises(Killed):
            yield


def after_the_lease(ours: Lakehouse, hours: int = 1) -> None:
    """From now on it is so much later, for leases."""
    ours.state.leases._now = lambda: datetime.now(UTC) + timedelta(hours=hours)


def killed_at_commit(ours: Lakehouse, request: Any, **how: Any) -> Callable[[], Any]:
    """A run that is killed when its commit is on its way; the request, which nobody carried out yet."""
    catalog = ours.catalogs["main"].pyiceberg
    held: list[Callable[[], Any]] = []
    real = catalog.commit_table

    def commit_table(*args: Any, **kwargs: Any) -> Any:
        held.append(lambda: real(*args, **kwargs))
        raise Killed

    catalog.commit_table = commit_table  # type: ignore[method-assign]
    try:
        with being_killed():
            ours.maintain((), request, **how)
    finally:
        catalog.commit_table = real  # type: ignore[method-assign]
    after_the_lease(ours)
    return held[0]


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
