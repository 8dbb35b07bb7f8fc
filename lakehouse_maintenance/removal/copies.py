"""Are two objects the same, and is an object still the one that was looked at: the questions of moving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import AlreadyExistsError, LakehouseError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.lists import Candidate
from lakehouse_maintenance.removal.quarantine import Kept
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage.base import epoch_ms
from lakehouse_maintenance.storage.copying import has_md5
from lakehouse_maintenance.storage.copying import have_same_bytes as have_same_content
from lakehouse_maintenance.storage.ordered import map_ordered

CONCURRENCY = 16
"""Copies, and comparisons, in flight."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """Where an answer should be: why there is none."""

    why: str


Look = ObjectInfo | Unclear | None
"""What a look showed; None: the object is not there."""


def look(storage: Storage, locations: Sequence[Location]) -> dict[Location, Look]:
    """Each object as it is now."""

    def one(location: Location) -> Look:
        try:
            return storage.stat(location)
        except LakehouseError as error:
            return Unclear(error.message)

    return dict(map_ordered(one, locations, concurrency=CONCURRENCY))


def is_unchanged(before: ObjectInfo, after: Look) -> bool:
    """Whether it is still the very object that was looked at before."""
    return isinstance(after, ObjectInfo) and (before.size, before.modified, before.etag) == (
        after.size,
        after.modified,
        after.etag,
    )


def not_meant(candidate: Candidate, found: ObjectInfo, listed_ms: int | None) -> str | None:
    """Why the object is not the one that was listed. `listed_ms`: when the list was made, for the list of an earlier
    run: between the runs a name may have been used again."""
    if candidate.size not in (None, found.size) and candidate.kind != "deletion_vector":
        return "another size than the file that was meant"
    if candidate.etag is not None and found.etag is not None and candidate.etag != found.etag:
        return "another version than the file that was meant"
    if candidate.modified_ms is not None and not was_modified_then(found, candidate.modified_ms):
        return "written since it was listed"
    if listed_ms is not None and (found.modified is None or (epoch_ms(found.modified) or 0) > listed_ms):
        return "written since the list was made"
    return None


def is_recorded(kept: Kept, found: ObjectInfo) -> bool:
    """Whether the object is the copy that was recorded, as far as the record goes."""
    if found.size != kept.size:
        return False
    if kept.etag is not None and found.etag is not None and kept.etag != found.etag:
        return False
    # Earlier releases rounded what they recorded by floating point, sometimes one millisecond too far down.
    return kept.modified_ms is None or was_modified_then(found, kept.modified_ms, slack_ms=1)


def was_modified_then(found: ObjectInfo, moment_ms: int, slack_ms: int = 0) -> bool:
    """Whether the object's time is that one. Object stores tell it in seconds here and in milliseconds there."""
    now_ms = epoch_ms(found.modified)
    if now_ms is None:
        return False
    if found.location.family == "file":
        return 0 <= now_ms - moment_ms <= slack_ms
    return now_ms // 1000 == moment_ms // 1000


def may_be_the_same(storage: Storage, one: ObjectInfo, other: ObjectInfo) -> bool:
    """Whether nothing that a look shows tells them apart: the size, and S3's checksums where both have one.

    Under keys of one's own, S3's tags look like checksums and are none: where they differ, the bytes decide.
    """
    if one.size != other.size:
        return False
    if one.location.family == "s3" and has_md5(one) and has_md5(other) and one.etag != other.etag:
        return have_same_bytes(storage, one, other)
    return True


def have_same_bytes(storage: Storage, one: ObjectInfo, other: ObjectInfo) -> bool:
    """Whether two objects of one store hold the same. Raises StorageError where that cannot be told.

    Entity tags tell it where they are a checksum of the content, as S3's are for objects that were written in one
    piece; elsewhere both are read.
    """
    if one.size != other.size:
        return False
    if one.size == 0:
        return True
    if one.location.family == "s3" and has_md5(one) and one.etag == other.etag:
        return True
    return have_same_content(storage.read, one, other.location)


@dataclass(frozen=True, slots=True)
class Pair:
    """What is to be copied where. `there`: what lay at the target before, where anything did."""

    source: ObjectInfo
    target: Location
    there: ObjectInfo | None = None


def copy_all(storage: Storage, pairs: Sequence[Pair]) -> list[ObjectInfo | Unclear]:
    """For each pair the verified copy, made now or by an earlier run, or why there is none. Overwrites nothing.

    A copy whose answer was lost, and was asked for again, is met as something that lies there already: it counts as
    ours where it holds the same bytes.
    """

    def one(pair: Pair) -> ObjectInfo | Unclear:
        try:
            if pair.there is not None:
                return _same_or_occupied(storage, pair, pair.there)
            return storage.copy(pair.source.location, pair.target)
        except AlreadyExistsError:
            why = "something else appeared there meanwhile"
        except LakehouseError as error:
            why = error.message
        # Did it happen? Whatever the call said, the store shows it.
        try:
            found = storage.stat(pair.target)
            return Unclear(why) if found is None else _same_or_occupied(storage, pair, found)
        except StorageError:
            return Unclear(why)

    return [result for _, result in map_ordered(one, pairs, concurrency=CONCURRENCY)]


def _same_or_occupied(storage: Storage, pair: Pair, found: ObjectInfo) -> ObjectInfo | Unclear:
    if have_same_bytes(storage, pair.source, found):
        return found
    return Unclear(f"{pair.target.text} is occupied by another object of {found.size} bytes")
