"""What can be said of a path beside who names it: that it is ours, whether it is there, how old, how hidden."""

from __future__ import annotations

from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.explanations import OwnedBy, Ownership
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import EntryState, Unreadable, entries
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import Storage

_OURSELVES = "lakehouse-maintenance"
_HELD = (EntryState.MOVING, EntryState.QUARANTINED, EntryState.RESTORING, EntryState.PURGING)


def our_own(state: State, prefix: str, location: Location) -> Ownership | None:
    """Where the path is the product's own: its state, or what it moved into quarantine. `prefix`: quarantine.prefix."""
    place = _folder_of(state)
    if place is not None and (place.contains(location) or place.resolved.contains(location.resolved)):
        by = (OwnedBy(_OURSELVES, "state"),)
        return Ownership(location.text, True, by, "it belongs to the state of this product (state.url)")
    if prefix not in location.segments:
        return None
    for entry in entries(state):
        if isinstance(entry, Unreadable):
            why = f"it lies in quarantine, and entry {entry.id} cannot be read: {entry.why}"
            return Ownership(location.text, None, (), why)
        inside = entry.quarantined.contains(location) or location.contains(entry.quarantined)
        if inside and entry.state in _HELD:
            by = (OwnedBy(entry.subject, f"quarantine entry {entry.id}"),)
            return Ownership(location.text, True, by, f"it lies in quarantine: entry {entry.id} is {entry.state}")
    return None


def object_facts(storage: Storage, location: Location) -> str:
    """Whether there is an object, its size and age, and whether its name hides it from orphan removal."""
    try:
        info = None if location.key.endswith("/") else storage.stat(location)
        if info is None:
            has_objects = any(storage.list(location, batch_size=1))
            return "it is a folder" if has_objects else "nothing of this name is there"
    except StorageError as error:
        return f"what lies there cannot be told: {error.message}"
    when = "at an unknown time" if info.modified is None else info.modified.isoformat(timespec="seconds")
    hidden = next((part for part in location.segments if part[:1] in ("_", ".")), None)
    told = f"an object of {format_size(info.size)} is there, last changed {when}"
    if hidden is None:
        return told
    return f"{told}; names like {hidden!r} are hidden from orphan removal unless they are partition values"


def _folder_of(state: State) -> Location | None:
    try:
        return Location.parse(state.location)
    except InputError:
        return None  # a database
