"""Our side of benchmarks: the whole command on one table, through the Python interface."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def start(
    config: str,
    table: str,
    action: str,
    options: dict[str, str] | None = None,
    strategy: str | None = None,
    sort_order: str | None = None,
) -> Callable[[], dict[str, Any]]:
    """`maintain` with one action: plan, carry out, commit, verify. What spills, spills beside the configuration."""
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    import lakehouse_maintenance.execution.running  # noqa: F401
    from lakehouse_maintenance import Lakehouse
    from lakehouse_maintenance.model.actions import Action
    from lakehouse_maintenance.planning.tables import Request

    os.environ["TMPDIR"] = str(Path(config).parent)
    lakehouse = Lakehouse.open(config)
    lakehouse.catalogs["main"].databases()
    asked = Action(action)
    given = options or {}
    request = Request(
        actions=(asked,),
        options=given if asked is Action.REWRITE_DATA_FILES else {},
        by_action={} if asked is Action.REWRITE_DATA_FILES else {asked: given},
        strategy=strategy,
        sort_order=sort_order,
    )

    def work() -> dict[str, Any]:
        outcome = lakehouse.maintain([table], request).tables[0]
        if outcome.status != "done":
            raise RuntimeError(f"{outcome.status}: {outcome.reason} {outcome.actions}")
        done = outcome.actions[0]
        actual = done.actual
        return {
            "files": actual.files,
            "bytes": actual.bytes,
            "rows": actual.rows,
            "action_seconds": actual.seconds,
            **done.results,
        }

    return work
