"""Is it known which storage an Iceberg table owns? Its metadata may be read to the end and leave that open (UF-15)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.properties import GC_PROPERTY

WRITE_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
LOCATION_PROVIDER = "write.location-provider.impl"

_LOCAL = re.compile(r"file:/", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/]")


def why_unresolved(metadata: Metadata) -> str | None:
    """Why nobody can tell from this which storage the table owns; None where its location and write paths tell it.

    A location provider may put files anywhere; under `gc.enabled` other than true the files may be another table's;
    and where a path without a scheme leads hangs on who reads it.
    """
    properties = metadata.properties
    why = _trouble(metadata.table_location)
    if why is not None:
        return f"its location {why}"
    # As Iceberg's PropertyUtil reads it, which strips nothing.
    if properties.get(GC_PROPERTY, "true").lower() != "true":
        return f"{GC_PROPERTY} is {properties[GC_PROPERTY]!r}: its files may be another table's"
    if LOCATION_PROVIDER in properties:
        return f"{LOCATION_PROVIDER} is set ({properties[LOCATION_PROVIDER]!r}): its files may lie anywhere"
    for key in WRITE_PATHS:
        if key in properties:
            why = _trouble(properties[key])
            if why is not None:
                return f"{key} {why}"
    return None


def is_unparsable(text: str | None) -> bool:
    """Whether it names its storage, and is no location all the same: a `..` in a path of this machine, a NUL."""
    return text is not None and _names_storage(text) and _parsed(text) is None


def parsable_folders(metadata: Metadata) -> Iterator[Location]:
    """The table's location and its write paths, as far as they can be told."""
    texts = [metadata.table_location, *(metadata.properties.get(key) or "" for key in WRITE_PATHS)]
    for text in texts:
        location = _parsed(text)
        if location is not None:
            yield location


def _trouble(text: str) -> str | None:
    if not text.strip():
        return "is blank"
    if not _names_storage(text):
        return f"has no scheme and bucket: {text!r}"
    return f"cannot be parsed: {text!r}" if _parsed(text) is None else None


def _names_storage(text: str) -> bool:
    """A scheme and a bucket, container or host; on this machine the scheme alone."""
    return _LOCAL.match(text) is not None or _BUCKET.match(text) is not None


def _parsed(text: str) -> Location | None:
    try:
        return Location.parse(text)
    except InputError:
        return None
