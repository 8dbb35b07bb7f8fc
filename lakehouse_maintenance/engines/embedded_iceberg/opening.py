"""Opening a table's data files for pyarrow: local ones by path, small remote ones in one request, others ranged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.io import FileIO

from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

_WHOLE_BELOW = 16 << 20


class Opener:
    """Opens files of one table. Safe to use from several threads."""

    def __init__(self, storage: Storage, io: FileIO) -> None:
        self._storage = storage
        self._io = io

    @contextmanager
    def open(self, file: LiveFile) -> Iterator[pa.NativeFile]:
        """Something that pyarrow.parquet reads."""
        location = Location.parse(file.path)
        if location.family == "file":
            # Not mapped into memory: pages of a map count as ours, and the memory limit is a promise.
            with pa.OSFile(location.local_path) as stream:
                yield stream
        elif file.size < _WHOLE_BELOW:
            # One request instead of one for the footer and one for each column chunk.
            yield pa.BufferReader(self._storage.read(location))
        else:
            with self._io.new_input(file.path).open() as stream:
                yield stream
