"""The calls that delete: one batch in, the fate of every key out. This module is the only one that has them.

A batch call answers for the whole batch or fails somewhere in it. After a failure each key is looked up: what is not
there counts as deleted, what is there has failed, what cannot be told is unknown. Object stores answer "deleted" for a
key that was not there too; where that matters, because an earlier run may have deleted it, the remover looks first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class Fate(StrEnum):
    """What became of one key."""

    DELETED = "deleted"
    GONE = "gone"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Told:
    """A key's fate and, where it is not deleted, why."""

    fate: Fate
    why: str = ""


def delete_batch(
    storage: Storage, client: Callable[[Location], ObjectStore], locations: Sequence[Location]
) -> dict[Location, Told]:
    """Deletes objects of one or several stores. `client`: the store's own client for a remote location."""
    local = [location for location in locations if location.family == "file"]
    fates = {location: _unlink(location) for location in local}
    by_store: dict[tuple[str, str], list[Location]] = {}
    for location in locations:
        if location.family != "file":
            by_store.setdefault((location.family, location.authority), []).append(location)
    for group in by_store.values():
        fates |= _delete_objects(storage, client(group[0]), group)
    return fates


def _unlink(location: Location) -> Told:
    try:
        Path(location.local_path).unlink()
    except FileNotFoundError:
        return Told(Fate.GONE)
    except OSError as error:
        return Told(Fate.FAILED, str(error))
    return Told(Fate.DELETED)


def _delete_objects(storage: Storage, client: ObjectStore, locations: Sequence[Location]) -> Mapping[Location, Told]:
    import obstore

    from lakehouse_maintenance.storage.objects import exact_key

    keys: dict[str, Location] = {}
    fates: dict[Location, Told] = {}
    for location in locations:
        try:
            keys[exact_key(location)] = location
        except StorageError as error:
            fates[location] = Told(Fate.FAILED, error.message)
    if not keys:
        return fates
    try:
        obstore.delete(client, list(keys))
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  # obstore's own panics too: each key is looked up below
        why = str(error).partition("\n")[0]
        for location, info in _look(storage, list(keys.values())):
            if info is None:
                fates[location] = Told(Fate.UNKNOWN, f"{why}; and it cannot be told whether the object is there")
            else:
                fates[location] = Told(Fate.FAILED, why) if info else Told(Fate.DELETED)
        return fates
    return fates | {location: Told(Fate.DELETED) for location in keys.values()}


def _look(storage: Storage, locations: Sequence[Location]) -> list[tuple[Location, bool | None]]:
    """True: there; False: not there; None: cannot be told."""
    seen: list[tuple[Location, bool | None]] = []
    for location in locations:
        try:
            seen.append((location, storage.stat(location) is not None))
        except StorageError:
            seen.append((location, None))
    return seen
