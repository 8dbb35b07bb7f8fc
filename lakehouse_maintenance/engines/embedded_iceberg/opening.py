"""Opening a table's data files for pyarrow: local ones by path, small remote ones in one request, others ranged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from lakehouse_maintenance.model.errors import StorageError, TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.causes import held_by

_WHOLE_BELOW = 16 << 20


class Opener:
    """Opens files of one table. Safe to use from several threads."""

    def __init__(self, storage: Storage, io: FileIO) -> None:
        self._storage = storage
        self._io = io

    @contextmanager
    def parquet(self, file: LiveFile) -> Iterator[pq.ParquetFile]:
        """The file, open for reading. Raises TableUnreadableError also for what goes wrong while it is read from.

        Raises UnsupportedError for a file that the store holds back, in an archive for instance: nothing is wrong with
        it, and other groups of files can be rewritten all the same.
        """
        # INT96 timestamps come as microseconds: as nanoseconds, those before 1677 and after 2262 would be others.
        with (
            self._told(file),
            self._open(file) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet,
        ):
            yield parquet

    def read(self, file: LiveFile, start: int, length: int) -> bytes:
        """So many bytes of the file, in one request. Raises TableUnreadableError where it has fewer, else as above."""
        location = Location.parse(file.path)
        with self._told(file):
            try:
                return self._storage.read(location, start, length)
            except StorageError:
                # Stores say in many ways that a range lies beyond the end.
                info = self._storage.stat(location)
                if info is not None and info.size >= start + length:
                    raise
                size = "does not exist" if info is None else f"has {info.size} bytes"
                raise EOFError(f"it {size}, its manifest names {start + length}") from None

    @contextmanager
    def _told(self, file: LiveFile) -> Iterator[None]:
        """Says of errors in between which file they are of, and whether it is damaged or held back."""
        try:
            yield
        except (pa.ArrowException, OSError, EOFError, StorageError) as error:
            hold = held_by(str(error))
            if hold is not None:
                raise UnsupportedError(
                    f"{file.path} cannot be read, since the store holds it: {hold}", field=file.path
                ) from error
            if isinstance(error, StorageError):
                raise
            raise TableUnreadableError(
                f"{file.path} cannot be read: {error}",
                field=file.path,
                hint="the file is damaged or gone; nothing was changed",
            ) from error

    @contextmanager
    def _open(self, file: LiveFile) -> Iterator[pa.NativeFile]:
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
