"""The golden Delta tables: written by Spark with Delta, checked in with what Spark itself says of each version."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
WRITTEN_AT = str(Path("/", "tmp", "golden_delta"))
"""Where the tables were written: absolute paths in the logs of shallow clones begin so."""


@cache
def expected() -> dict[str, dict[str, Any]]:
    """Per table what Spark recorded (see generate); paths are decoded and relative to WRITTEN_AT."""
    tables: dict[str, dict[str, Any]] = json.loads((FOLDER / "tables.json").read_text())["tables"]
    return tables


def table_folder(name: str) -> Path:
    """The table's root here."""
    return FOLDER / "warehouse" / name
