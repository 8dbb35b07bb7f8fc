"""What lies in quarantine: one entry in the state for what one list moved aside, with every object by name.

An entry is a head, `quarantine/<id>`, and parts, `quarantine-objects/<id>/<number>`, a part for each batch that was
moved. A part is written before its first object is copied and again before the first of them is deleted, so what lies
under the quarantined path and is ours stands in a part, whatever killed the run. Restoring and purging go by the parts
alone: what else lies there is somebody else's, is left alone, and is told.

    moving ──► quarantined ──► restoring ──► restored
       └───────────────┼───────────┘
                       └─────► purging ──► purged
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.lists import put_value
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import ObjectInfo
from lakehouse_maintenance.storage.base import epoch_ms

_HEADS = "quarantine/"
_PARTS = "quarantine-objects/"


class EntryState(StrEnum):
    """How far an entry is. MOVING, RESTORING and PURGING of a run that is over: it was killed, or something failed."""

    MOVING = "moving"
    QUARANTINED = "quarantined"
    RESTORING = "restoring"
    RESTORED = "restored"
    PURGING = "purging"
    PURGED = "purged"


class EntryKind(StrEnum):
    """FOLDER: everything in one folder. FILES: some files of a folder that stays in use.

    A folder of which something had to stay becomes FILES.
    """

    FILES = "files"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Kept:
    """One object of an entry. `rest`: its exact key below the entry's two paths.

    `etag` and `modified_ms` are those of the copy in quarantine; both None where it was not known yet whether the copy
    was made when its run ended.
    """

    rest: str
    size: int
    etag: str | None = None
    modified_ms: int | None = None

    @property
    def is_copied(self) -> bool:
        """Whether the copy was made and verified."""
        return self.etag is not None or self.modified_ms is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """Head of an entry. `path` and `quarantined_path`: folders; each object has the same key below both.

    `objects` and `bytes`: what was moved, also after it was restored or purged. `at`, `purge_after`: ISO 8601 in UTC.
    `keep_ms`: how long it is kept once it is whole. `parts`: how many batches it is made of.
    """

    id: str
    subject: str
    kind: str
    path: str
    quarantined_path: str
    at: str
    purge_after: str
    keep_ms: int
    state: str
    run_id: str = ""
    action: str = ""
    digest: str = ""
    parts: int = 0
    objects: int = 0
    bytes: int = 0

    @property
    def original(self) -> Location:
        """The folder that the objects were in."""
        return Location.parse(self.path)

    @property
    def quarantined(self) -> Location:
        """The folder that they are in."""
        return Location.parse(self.quarantined_path)

    @property
    def territory(self) -> tuple[Location, Location]:
        """Where restoring works: both places."""
        return self.original, self.quarantined

    def at_home(self, kept: Kept) -> Location:
        """Where an object was."""
        return _below(self.original, kept.rest)

    def aside(self, kept: Kept) -> Location:
        """Where an object is."""
        return _below(self.quarantined, kept.rest)

    def rest_of(self, location: Location) -> str | None:
        """The key below the original path; None for what does not lie in it."""
        folder = self.original
        if location.family != folder.family or location.authority != folder.authority:
            return None
        inside = location.key.startswith(folder.folder_key)
        return location.key.removeprefix(folder.folder_key) if inside else None

    def may_be_purged(self, now: datetime) -> bool:
        """Whether its time has passed."""
        return datetime.fromisoformat(self.purge_after) <= now

    def as_json(self) -> dict[str, Any]:
        """One of the `entries` of the command line."""
        shown = ("id", "subject", "kind", "path", "quarantined_path", "objects", "bytes", "at", "purge_after", "state")
        return {name: getattr(self, name) for name in (*shown, "run_id", "action", "digest")}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry whose head or parts are damaged: nothing can be done with it, and nothing is."""

    id: str
    why: str


def new_entry(subject: str, kind: EntryKind, folder: Location, *, prefix: str, keep: timedelta, now: datetime) -> Entry:
    """An entry for objects of `folder`: of the folder itself, or of a table that lies there. Nothing is written yet.

    The place is `<parent>/<prefix>/<id>/<name>`, in the same bucket, so that moving is copying inside one store. Ids
    sort by time. `prefix`: `quarantine.prefix`; `keep`: how long it is kept. Raises InputError for a bucket's root, for
    a folder without a name, and for what lies in a quarantine already.
    """
    path = folder.with_key(folder.folder_key.removesuffix("/"))
    parent, _, name = path.key.rpartition("/")
    if not name:
        raise InputError(
            f"{folder.text} cannot be quarantined: it is no folder with a name",
            field="path",
            hint="a bucket's root and folders that are named nothing stay where they are",
        )
    if prefix in path.segments:
        raise InputError(f"{folder.text} lies in a quarantine already", field="path", hint="see: quarantine list")
    moment = now.astimezone(UTC)
    entry_id = f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond // 1000:03d}-{secrets.token_hex(4)}"
    above = parent + "/" if parent else ""
    return Entry(
        id=entry_id,
        subject=subject,
        kind=kind,
        path=path.text,
        quarantined_path=path.with_key(f"{above}{prefix}/{entry_id}/{name}").text,
        at=_text(moment),
        purge_after=_text(moment + keep),
        keep_ms=int(keep / timedelta(milliseconds=1)),
        state=EntryState.MOVING,
    )


def whole(entry: Entry, now: datetime) -> Entry:
    """The entry after its last batch: from now on it is kept for its time."""
    purge_after = _text(now.astimezone(UTC) + timedelta(milliseconds=entry.keep_ms))
    return replace(entry, state=EntryState.QUARANTINED, purge_after=purge_after)


def put_entry(state: State, entry: Entry) -> None:
    """Writes the head. Only under the lease of the entry's subject."""
    put_value(state, _HEADS + entry.id, json.dumps(_fields(entry)).encode())


def read_entry(state: State, entry_id: str) -> Entry:
    """Raises InputError for an id that is none's, StorageError where the entry cannot be read."""
    stored = state.get(_HEADS + entry_id) if entry_id and "/" not in entry_id else None
    if stored is None:
        raise InputError(
            f"there is no quarantine entry {entry_id!r}", field="id", hint="see: lakehouse-maintenance quarantine list"
        )
    try:
        data = json.loads(stored[0])
        # Fields that a later release added are none of our business.
        entry = Entry(**{name: data[name] for name in Entry.__slots__ if name in data})
        _check(entry, entry_id)
    except (ValueError, TypeError, KeyError, AttributeError, InputError) as error:
        raise _damaged(entry_id, f"its head cannot be read: {error}") from error
    return entry


def entries(state: State) -> list[Entry | Unreadable]:
    """All of them, oldest first."""
    found: list[Entry | Unreadable] = []
    for entry_id in sorted(key.removeprefix(_HEADS) for key in state.keys(_HEADS)):
        try:
            found.append(read_entry(state, entry_id))
        except (InputError, StorageError) as error:
            found.append(Unreadable(entry_id, error.message))
    return found


def put_part(state: State, entry: Entry, number: int, objects: Sequence[Kept]) -> None:
    """Writes the objects of one batch. Raises StorageError where they could not be made durable."""
    rows = [(one.rest, one.size, one.etag, one.modified_ms) for one in objects]
    blob = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)
    put_value(state, _part_key(entry, number), blob)


def read_part(state: State, entry: Entry, number: int) -> list[Kept] | None:
    """None where the batch was never begun. Raises StorageError where the part cannot be read."""
    stored = state.get(_part_key(entry, number))
    if stored is None:
        return None
    try:
        rows: list[list[Any]] = json.loads(zlib.decompress(stored[0]))
        return [Kept(str(rest), int(size), etag, modified) for rest, size, etag, modified in rows]
    except (ValueError, TypeError, zlib.error) as error:
        raise _damaged(entry.id, f"part {number} cannot be read: {error}") from error


def read_parts(state: State, entry: Entry) -> Iterator[list[Kept]]:
    """The parts in their order. Only an entry that was never whole may lack some.

    Raises StorageError where one is missing or damaged.
    """
    for number in range(entry.parts):
        found = read_part(state, entry, number)
        if found is None and entry.state != EntryState.MOVING:
            raise _damaged(entry.id, f"part {number} is missing")
        yield found or []


def count_objects(state: State, entry: Entry) -> tuple[int, int]:
    """Reads all parts: objects and bytes. Raises StorageError unless they are what the head of a whole entry says."""
    objects = size = 0
    for part in read_parts(state, entry):
        objects += len(part)
        size += sum(one.size for one in part)
    if entry.state != EntryState.MOVING and (objects, size) != (entry.objects, entry.bytes):
        raise _damaged(entry.id, f"its parts hold {objects} objects of {size} bytes, its head says otherwise")
    return objects, size


def settle(state: State, entry: Entry) -> Entry:
    """An entry whose moving ends here, whole or not: no part is missing, and the head counts what the parts hold."""
    if entry.state != EntryState.MOVING:
        return entry
    for number in range(entry.parts):
        if read_part(state, entry, number) is None:
            put_part(state, entry, number, ())
    objects, size = count_objects(state, entry)
    return replace(entry, objects=objects, bytes=size)


def record(rest: str, copy: ObjectInfo) -> Kept:
    """What the entry remembers of a verified copy."""
    return Kept(rest, copy.size, copy.etag, epoch_ms(copy.modified))


def _check(entry: Entry, entry_id: str) -> None:
    """Raises ValueError or InputError for a head that no release wrote."""
    EntryState(entry.state)
    datetime.fromisoformat(entry.purge_after)
    name = entry.original.name
    if entry.id != entry_id or not entry.subject or not name:
        raise ValueError("it is another's")
    if min(entry.parts, entry.objects, entry.bytes, entry.keep_ms) < 0:
        raise ValueError("a number is below zero")
    # Nothing is ever deleted outside of a folder that carries the entry's own id.
    if entry.quarantined.segments[-2:] != (entry_id, name):
        raise ValueError(f"{entry.quarantined_path!r} is not the entry's own folder")


def _below(folder: Location, rest: str) -> Location:
    return folder.with_key(folder.folder_key + rest)


def _part_key(entry: Entry, number: int) -> str:
    return f"{_PARTS}{entry.id}/{number:06d}"


def _fields(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in Entry.__slots__}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _damaged(entry_id: str, why: str) -> StorageError:
    return StorageError(
        f"the quarantine entry {entry_id} is damaged: {why}",
        field="state.url",
        hint="nothing of it was touched; restore the state from a backup",
    )
