"""Reading checkpoints: classic, in parts, and v2 with sidecars (Delta protocol: Checkpoints, Checkpoint Schema)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.delta.actions import AddFile, Protocol, RemoveFile, Sidecar, TableMetadata
from lakehouse_maintenance.delta.commits import gone, read_actions
from lakehouse_maintenance.delta.listing import Checkpoint, LogListing
from lakehouse_maintenance.delta.parsing import parse_action
from lakehouse_maintenance.delta.rows import add_files, check_actions, columns_for, header_documents, remove_files
from lakehouse_maintenance.model.errors import NotFoundError
from lakehouse_maintenance.storage import ObjectInfo, Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq

WHOLE_BELOW = 16 << 20
"""Smaller Parquet files are read in one request, larger ones by ranges."""

_BATCH = 4_096
_HEADER = ("protocol", "metaData", "sidecar")
_FILE_ACTIONS = ("add", "remove")


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """A checkpoint without its files. `sidecars`: where a v2 checkpoint keeps them, empty where it has none."""

    protocol: Protocol
    metadata: TableMetadata
    sidecars: tuple[ObjectInfo, ...]


def read_header(storage: Storage, listing: LogListing, checkpoint: Checkpoint) -> CheckpointHeader:
    """Protocol, metadata and the list of sidecars.

    Raises TableUnreadableError, also where one of the first two or a file of the last is missing.
    """
    protocol: Protocol | None = None
    metadata: TableMetadata | None = None
    sidecars: list[ObjectInfo] = []
    for file in checkpoint.files:
        for action in _header_actions(storage, listing, file):
            if isinstance(action, Protocol):
                protocol = action
            elif isinstance(action, TableMetadata):
                metadata = action
            elif isinstance(action, Sidecar):
                sidecars.append(_listed(listing, file, action))
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise listing.unreadable(f"it has no {missing} action", listing.name_of(checkpoint.files[0]))
    return CheckpointHeader(protocol, metadata, tuple(sidecars))


def read_files(
    storage: Storage, listing: LogListing, checkpoint: Checkpoint, header: CheckpointHeader
) -> Iterator[tuple[ObjectInfo, AddFile | RemoveFile]]:
    """Every file action with the file that holds it. Memory: a batch of rows, and one Parquet file where it is small.

    Raises TableUnreadableError part-way; what was given until then is not all there is.
    """
    for file in (*checkpoint.files, *header.sidecars):
        if _is_json(file):
            for _, actions in read_actions(storage, listing, [file]):
                for action in actions:
                    if isinstance(action, AddFile | RemoveFile):
                        yield file, action
        else:
            # Only the top of a checkpoint with sidecars may do without files.
            needs_files = not header.sidecars or file in header.sidecars
            for action in _parquet_files(storage, listing, file, needs_files):
                yield file, action


def _header_actions(storage: Storage, listing: LogListing, file: ObjectInfo) -> Iterator[Any]:
    if _is_json(file):
        for _, actions in read_actions(storage, listing, [file]):
            yield from actions
        return
    with _opened(storage, listing, file) as parquet:
        columns = columns_for(parquet.schema_arrow, _HEADER)
        if not columns:
            return
        for batch in parquet.iter_batches(batch_size=_BATCH, columns=columns):
            for document in header_documents(batch, _HEADER):
                yield from parse_action(listing.root, document)


def _parquet_files(
    storage: Storage, listing: LogListing, file: ObjectInfo, needs_files: bool
) -> Iterator[AddFile | RemoveFile]:
    with _opened(storage, listing, file) as parquet:
        check_actions(parquet.schema_arrow, needs_files=needs_files)
        columns = columns_for(parquet.schema_arrow, _FILE_ACTIONS)
        if not columns:
            return
        for batch in parquet.iter_batches(batch_size=_BATCH, columns=columns):
            yield from add_files(listing.root, batch)
            yield from remove_files(listing.root, batch)


@contextmanager
def _opened(storage: Storage, listing: LogListing, file: ObjectInfo) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.size < WHOLE_BELOW:
            data = storage.read(file.location)
            if len(data) != file.size:
                raise ValueError(
                    f"{len(data)} bytes were read of {file.size} listed: it changed while the log was read"
                )
            source: Any = pa.BufferReader(data)
        else:
            source = pa.PythonFile(_Ranged(storage, file), mode="r")
        # Writers that follow parquet-mr give each page a checksum: it finds flipped bits that still decode.
        with source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            yield parquet
    except NotFoundError as error:
        raise gone(listing, file) from error
    except (pa.ArrowException, ValueError, OSError, EOFError, OverflowError, MemoryError) as error:
        raise listing.unreadable(" ".join(str(error).split()), listing.name_of(file)) from error


def _listed(listing: LogListing, file: ObjectInfo, sidecar: Sidecar) -> ObjectInfo:
    found = listing.find(sidecar.location)
    if found is None:
        what = f"it names the sidecar {sidecar.location.name}, which is missing"
        raise listing.unreadable(what, listing.name_of(file))
    return found


def _is_json(file: ObjectInfo) -> bool:
    return file.location.key.endswith(".json")


class _Ranged(io.RawIOBase):
    """An object as a seekable file: each read is one request for that range."""

    def __init__(self, storage: Storage, file: ObjectInfo) -> None:
        self._storage = storage
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._storage.read(self._file.location, self._position, length)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
