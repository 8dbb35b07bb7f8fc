"""From one state into another, empty one: for a move between a folder, object storage and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import ConfigurationError, InputError, StorageError
from lakehouse_maintenance.state.backend import FIELD, Backend
from lakehouse_maintenance.state.leases import Leases
from lakehouse_maintenance.state.opening import open_store


@dataclass(frozen=True, slots=True)
class Copied:
    """How much went over."""

    values: int
    lines: int


def copy_state(source: str, target: str, *, properties: Mapping[str, str] | None = None) -> Copied:
    """Copies the state at one URL to another, as `copy_store`. `properties`: as in `open_state`."""
    known = {} if properties is None else properties
    return copy_store(open_store(source, known), open_store(target, known))


def copy_store(source: Backend, target: Backend) -> Copied:
    """Copies the journal, then every value, leases with their fences included. The source stays as it is.

    Nothing may run on either. Raises InputError while a lease is held, which would mean that something does;
    ConfigurationError where the target is not empty, or the source is; StorageError where something cannot be read or
    written: the target is incomplete then, and must be thrown away.
    """
    if target.check_version() is not None:
        raise ConfigurationError(f"the state in {target.location} is not empty", field=FIELD, hint="name an empty one")
    if source.check_version() is None:
        raise ConfigurationError(f"there is no state in {source.location}", field=FIELD, hint="name the old one")
    _refuse_held(source)
    lines = 0
    for day in reversed(source.log.days()):
        for page in reversed(list(source.log.pages(day))):
            for line in page.lines:
                target.log.append(day, _run_of(line.content, line.where), line.content)
                lines += 1
    values = 0
    for key in source.keys(""):
        stored = source.get(key)
        if stored is None or target.put(key, stored[0], None) is None:
            raise StorageError(f"{key!r} changed while it was copied", field=FIELD, hint="let nothing run meanwhile")
        values += 1
    return Copied(values, lines)


def _refuse_held(source: Backend) -> None:
    held = Leases(source).all()
    if held:
        raise InputError(
            f"{held[0].table} is held by {held[0].owner} until {held[0].expires_at.isoformat(timespec='seconds')}",
            field=held[0].table,
            hint="let every run end first; the lease of a run that crashed ends by itself",
        )


def _run_of(line: bytes, where: str) -> str:
    try:
        return str(json.loads(line)["run_id"])
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{where} is not a journal entry: it is damaged", field=FIELD) from error
