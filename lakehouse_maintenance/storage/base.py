"""What a store has to offer, and what it tells about an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lakehouse_maintenance.model.locations import Location


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a stat shows it. `size` in bytes; `modified` in UTC, None where the store has none."""

    location: Location
    size: int
    modified: datetime | None
    etag: str | None = None


class Store(Protocol):
    """One bucket, container or file system. Errors as in `Storage`."""

    def list(self, prefix: Location, batch_size: int) -> Iterator[list[ObjectInfo]]: ...

    def stat(self, location: Location) -> ObjectInfo | None: ...

    def read(self, location: Location, start: int, length: int | None) -> bytes: ...

    def put_scratch(self, location: Location) -> None: ...

    def remove_scratch(self, location: Location) -> None: ...
