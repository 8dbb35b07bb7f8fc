"""What a store has to offer, and what it tells about an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lakehouse_maintenance.model.locations import Location


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

    def stat(self, location: Location) -> ObjectInfo | None: ...

    def read(self, location: Location, start: int, length: int | None) -> bytes: ...

    def copy(self, source: ObjectInfo, target: Location) -> None: ...

    def why_not_copied(self, source: ObjectInfo, target: ObjectInfo) -> str | None: ...

    def keeps_versions(self, location: Location) -> bool | None: ...

    def put_scratch(self, location: Location) -> None: ...

    def remove_scratch(self, location: Location) -> None: ...


def is_folder_marker(info: ObjectInfo) -> bool:
    """An empty object that stands for a folder: `d/` (consoles, Hadoop's s3a), `d_$folder$` (older Hadoop).

    Never data, whatever its name. An object of that name that holds bytes is no marker.
    """
    return info.size == 0 and info.location.key.endswith(("/", "_$folder$"))
