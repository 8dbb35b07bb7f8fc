"""A database as its catalog tells it, with nothing against cleaning it, for tests of what is decided over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakehouse_maintenance.planning.untracked_folders import DatabaseFacts, DatabaseStorage, FolderRules, TableFacts

WAREHOUSE = "s3://lake/wh"
HOME = f"{WAREHOUSE}/db"
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
RULES = FolderRules(NOW_MS - 24 * HOUR_MS, NOW_MS, (), "_kept")


def at(*locations: str) -> tuple[TableFacts, ...]:
    """Tables of the database at these places."""
    return tuple(TableFacts(f"main.db.t{number}", location) for number, location in enumerate(locations))


def facts(**changed: Any) -> DatabaseFacts:
    """A database with two tables in its own folder, and nothing against it."""
    sound = DatabaseFacts(
        "main.db",
        location=HOME,
        warehouse=WAREHOUSE,
        namespace_folder=HOME,
        tables=at(f"{HOME}/t0", f"{HOME}/t1"),
        others=(DatabaseStorage("main.x", (f"{WAREHOUSE}/x",)),),
    )
    return replace(sound, **changed)
