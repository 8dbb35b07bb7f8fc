"""What lies above a folder: a table of another format, or one that no catalog shows, around the table in question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakehouse_maintenance.evidence.markers import LOGS, is_metadata_file
from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.base import Row, rows_of
from lakehouse_maintenance.storage.causes import is_denied


def ancestors(place: Location) -> Iterator[Location]:
    """Every folder above, the nearest first, the bucket's root last."""
    segments = place.collapsed.segments
    for count in range(len(segments) - 1, -1, -1):
        yield place.with_key("/".join(segments[:count]))


def logs_at(storage: Storage, folders: Sequence[Location]) -> list[tuple[str, str]]:
    """Of these folders, those that hold a log of another format, with the log's name. Raises StorageError."""
    found: list[tuple[str, str]] = []
    for folder in folders:
        with _as_far_as_it_may(storage):
            for name in LOGS:
                if next(iter(storage.list(folder.child(name), batch_size=1)), None):
                    found.append((folder.text.rstrip("/"), name))  # noqa: PERF401 - a comprehension hides the request
    return found


def metadata_at(storage: Storage, folders: Sequence[Location]) -> list[Row]:
    """Metadata files in the `metadata/` of these folders themselves. Raises StorageError."""
    found: list[Row] = []
    for folder in folders:
        place = folder.child("metadata")
        with _as_far_as_it_may(storage):
            for batch in storage.list(place):
                # A database may be called `metadata`: what lies deeper belongs to tables of its own.
                here = (info for info in batch if info.location.key.rpartition("/")[0] == place.key)
                found += [row for row in rows_of(here) if is_metadata_file(row[0])]
    return found


@contextmanager
def _as_far_as_it_may(storage: Storage) -> Iterator[None]:
    """Credentials that a catalog vends for one table often reach its folders alone, and nobody has others.

    The folders themselves have to be listed by whoever searches them, so a denial there is met all the same.
    """
    try:
        yield
    except StorageError as error:
        if not (storage.is_vended and is_denied(error.message)):
            raise
