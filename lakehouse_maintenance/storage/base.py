"""What a store has to offer, and what it tells about an object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from lakehouse_maintenance.model.locations import Location

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = tuple[str, int, int | None]
"""A listed object at its cheapest: path as listed, size in bytes, time of the last change in ms since 1970 (None where
the store has none)."""


Rows = tuple[list[Row], list[Location]]
"""A batch of them, and those of it that are symbolic links."""


def epoch_ms(moment: datetime | None) -> int | None:
    """Whole milliseconds since 1970, rounded down exactly: the same moment gives the same number on every way."""
    return None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a stat shows it. `size` in bytes; `modified` in UTC, None where the store has none.

    `is_link`: a local listing met a symbolic link to a file.
    """

    location: Location
    size: int
    modified: datetime | None
    etag: str | None = None
    is_link: bool = False


class Store(Protocol):
    """One bucket, container or file system. Errors as in `Storage`."""

    def list(self, prefix: Location, batch_size: int) -> Iterator[list[ObjectInfo]]: ...

    def folders(self, prefix: Location) -> Sequence[str]: ...

    def is_absent(self, folder: Location) -> bool: ...

    def rows(self, prefix: Location, batch_size: int) -> Iterator[Rows]: ...

    def stat(self, location: Location) -> ObjectInfo | None: ...

    def read(self, location: Location, start: int, length: int | None) -> bytes: ...

    def copy(self, source: ObjectInfo, target: Location) -> None: ...

    def why_not_copied(self, source: ObjectInfo, target: ObjectInfo) -> str | None: ...

    def keeps_versions(self, location: Location) -> bool | None: ...

    def put_scratch(self, location: Location) -> None: ...

    def remove_scratch(self, location: Location) -> None: ...


def rows_of(batch: Iterable[ObjectInfo]) -> list[Row]:
    """Listed objects as rows."""
    return [(info.location.text, info.size, epoch_ms(info.modified)) for info in batch]


def is_folder_marker(info: ObjectInfo) -> bool:
    """An empty object that stands for a folder: `d/` (consoles, Hadoop's s3a), `d_$folder$` (older Hadoop).

    Never data, whatever its name. An object of that name that holds bytes is no marker.
    """
    return info.size == 0 and info.location.key.endswith(("/", "_$folder$"))
