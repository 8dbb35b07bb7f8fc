"""The demo's folder: made where there is none, used again where it holds a demo, refused where it holds more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lakehouse_maintenance.model.errors import InputError

MARKER = ".demo.json"
_FORMAT = 1
# PyIceberg takes locations apart like URLs, and would end a path at the first two of these.
_NOT_IN_LOCATIONS = "#?%"


@dataclass(frozen=True, slots=True)
class Built:
    """A demo that is complete. `at`: when it was built. `data_files`: by table, at that time."""

    at: str
    data_files: dict[str, int]


def existing(into: Path) -> Built | None:
    """The demo in this folder (absolute), None where one can be built. Raises InputError for any other folder."""
    if not into.exists():
        odd = [char for char in _NOT_IN_LOCATIONS if char in str(into)]
        if odd:
            raise _refused(into, f"its path holds {odd[0]!r}, which locations of tables cannot", "name another folder")
        return None
    if not into.is_dir():
        raise _refused(into, "it is not a folder", "name a folder that is empty or does not exist")
    if not any(into.iterdir()):
        return None
    marker = _read(into / MARKER)
    if marker is None:
        raise _refused(into, "it is not empty, and holds no demo", "name a folder that is empty or does not exist")
    if not marker.get("complete"):
        raise _refused(into, "building the demo there was interrupted", "remove the folder, or name another one")
    if marker.get("folder") != str(into):
        hint = "move it back, or build the demo anew in another folder: tables hold absolute paths"
        raise _refused(into, f"the demo there was built in {marker.get('folder')}", hint)
    return Built(str(marker.get("built_at")), dict(marker.get("data_files") or {}))


def begin(into: Path, lakehouse_yaml: str) -> None:
    """Makes the folder with everything but tables. Raises InputError where it cannot be written."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        _write(into, {"complete": False})
        (into / "lakehouse.yaml").write_text(lakehouse_yaml, encoding="utf-8")
        home = dagster_home(into)
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    except OSError as error:
        raise _refused(into, f"it cannot be written: {error}", "name a folder that you may write to") from error


def complete(into: Path, now: datetime, data_files: dict[str, int]) -> Built:
    """Marks the demo as built."""
    at = now.isoformat(timespec="seconds")
    _write(into, {"complete": True, "folder": str(into), "built_at": at, "data_files": data_files})
    return Built(at, data_files)


def dagster_home(into: Path) -> Path:
    """Where Dagster keeps the demo's runs."""
    return into / ".dagster"


def _write(into: Path, values: dict[str, Any]) -> None:
    (into / MARKER).write_text(json.dumps({"format": _FORMAT, **values}, indent=2) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == _FORMAT else None


def _refused(into: Path, why: str, hint: str) -> InputError:
    return InputError(f"the demo cannot go into {into}: {why}", field="--into", hint=hint)
