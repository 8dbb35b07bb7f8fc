"""Position delete files read, freed of what dangles, and written anew (Iceberg spec: Position Delete Files).

What is written holds each position once, sorted by path and position, for live data files alone that the position
reached where it was read. Iceberg's own action keeps a position by its path alone; by the sequence number too it is
safe where a path was added again after the delete.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.engines.embedded_iceberg.output import Format, OutputFolder, OutputPaths
from lakehouse_maintenance.engines.embedded_iceberg.positions import Positions
from lakehouse_maintenance.iceberg.fields import POSITION_DELETE_PATH_ID
from lakehouse_maintenance.iceberg.replacing_deletes import DeleteReplacement, reaches
from lakehouse_maintenance.model.errors import StorageError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.storage import Storage

_POSITION_ID = 2147483545
_ROW_ID = 2147483544
_ID = b"PARQUET:field_id"
_BYTES_A_POSITION = 32
"""Of memory, while positions are gathered and sorted."""
_ROWS = 1 << 16

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {_ID: str(POSITION_DELETE_PATH_ID).encode()}),
        pa.field("pos", pa.int64(), False, {_ID: str(_POSITION_ID).encode()}),
    ]
)

LiveData = Mapping[str, Sequence[LiveFile]]
"""Path → the head's entries for it; more than one where it is listed more than once."""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """What to rewrite: position delete files of one partition. `by_file`: one output for each data file. `roll_bytes`:
    an output is closed once it has so many bytes."""

    files: tuple[LiveFile, ...]
    by_file: bool
    roll_bytes: int


@dataclass(frozen=True, slots=True)
class RewrittenDeletes:
    """`effective`: live data file → digest of the positions that are deleted in it by the inputs."""

    replacement: DeleteReplacement
    effective: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class DeleteRewriter:
    """Rewrites groups of one table. `announce`, `written`: as for Rewriter."""

    table: Table
    storage: Storage
    memory_limit: int
    announce: Callable[[Sequence[str]], None]
    written: Callable[[str], None]

    def rewrite(self, group: DeleteGroup, data: LiveData) -> RewrittenDeletes:
        """Reads and writes; commits nothing. `data`: at least the data files of the group's partition, and those that
        an input is for alone.

        Raises UnsupportedError for what cannot be kept: deleted rows beside positions, positions for data files of
        another partition, data files that are listed more than once; and for more positions than memory holds.
        """
        positions, named = self._effective(group.files, data)
        outputs = self._write(group, positions) if positions else ()
        digests = {path: digest_of(found) for path, found in positions.items()}
        return RewrittenDeletes(DeleteReplacement(group.files, tuple(outputs), named), digests)

    def effective(self, files: Sequence[LiveFile], data: LiveData) -> dict[str, bytes]:
        """As RewrittenDeletes.effective, of any position delete files of one partition."""
        return {path: digest_of(found) for path, found in self._effective(files, data)[0].items()}

    def _effective(
        self, files: Sequence[LiveFile], data: LiveData
    ) -> tuple[dict[str, Positions], dict[str, int | None]]:
        needed = sum(delete.records for delete in files) * _BYTES_A_POSITION
        if needed > self.memory_limit:
            raise UnsupportedError(
                f"{len(files)} delete files hold more positions than the memory limit lets be sorted",
                field="engine.memory_limit",
                hint="raise engine.memory_limit, or lower max-file-group-size-bytes",
            )
        opener = Opener(self.storage, self.table.io)
        parts: dict[str, list[Positions]] = {}
        named: dict[str, int | None] = {}
        for delete in files:
            for path, found in _read(delete, opener):
                live = data.get(path, ())
                if len(live) > 1:
                    raise UnsupportedError(f"{path} is listed more than once in the table", field=delete.path)
                if not live or not reaches(delete, live[0]):
                    named.setdefault(path, None)
                    continue
                if live[0].partition_id != delete.partition_id:
                    raise UnsupportedError(f"{delete.path} is for a file of another partition", field=delete.path)
                named[path] = live[0].sequence_number
                parts.setdefault(path, []).append(found)
        return {path: np.unique(np.concatenate(parts[path])) for path in sorted(parts)}, named

    def _write(self, group: DeleteGroup, positions: dict[str, Positions]) -> Iterable[dict[str, Any]]:
        paths = OutputPaths(OutputFolder(self.table, group.files), self.announce)
        paths.reserve(len(positions) if group.by_file else 1)
        form = Format.of(_properties(self.table.properties), 64 << 20, ("file_path",))
        outputs: list[dict[str, Any]] = []
        writer: _DeleteFile | None = None
        try:
            for path, found in positions.items():
                for start in range(0, len(found), _ROWS):
                    if writer is None:
                        target = paths.take()
                        self.written(target)
                        writer = _DeleteFile(self.table, target, form)
                    writer.write(path, found[start : start + _ROWS])
                    if writer.size >= group.roll_bytes:
                        outputs.append(writer.finish())
                        writer = None
                if group.by_file and writer is not None:
                    outputs.append(writer.finish())
                    writer = None
            if writer is not None:
                outputs.append(writer.finish())
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                f"a delete file cannot be written: {error}", field=".".join(self.table.name())
            ) from error
        return outputs


def digest_of(positions: Positions) -> bytes:
    """Of sorted distinct positions."""
    return hashlib.sha256(positions.astype("<i8").tobytes()).digest()


def _read(delete: LiveFile, opener: Opener) -> Iterator[tuple[str, Positions]]:
    with opener.parquet(delete) as parquet:
        ids = {int((field.metadata or {}).get(_ID, b"-1")) for field in parquet.schema_arrow}
        if _ROW_ID in ids or "row" in parquet.schema_arrow.names:
            raise UnsupportedError(f"{delete.path} holds the deleted rows beside their positions", field=delete.path)
        for batch in parquet.iter_batches(columns=["file_path", "pos"]):
            paths = batch.column("file_path").dictionary_encode()
            indices = paths.indices.to_numpy(zero_copy_only=False)
            positions = batch.column("pos").to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            for code, path in enumerate(paths.dictionary.to_pylist()):
                yield path, positions[indices == code]


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    """`write.delete.parquet.*` over `write.parquet.*`, as in Iceberg."""
    prefix = "write.delete.parquet."
    own = {f"write.parquet.{k.removeprefix(prefix)}": v for k, v in properties.items() if k.startswith(prefix)}
    return {**properties, **own}


class _DeleteFile:
    """One file being written, and its record for a manifest entry."""

    def __init__(self, table: Table, path: str, form: Format) -> None:
        self._path = path
        self._paths: list[str] = []
        self._bounds: tuple[int, int] | None = None
        self._footers: list[pq.FileMetaData] = []
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        # "Must not exist" is asked of the store only where a name could be taken: this one is a fresh UUID.
        self._stream = table.io.new_output(path).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream,
            _SCHEMA,
            compression=form.codec,
            compression_level=form.level,
            use_dictionary=["file_path"],
            data_page_size=form.page_bytes,
            store_schema=False,
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, path: str, positions: Positions) -> None:
        """Sorted positions of one data file, which come in order of path and position."""
        if not self._paths or self._paths[-1] != path:
            self._paths.append(path)
        low, high = int(positions[0]), int(positions[-1])
        old = self._bounds or (low, high)
        self._bounds = (min(old[0], low), max(old[1], high))
        columns = [pa.repeat(pa.scalar(path, pa.string()), len(positions)), pa.array(positions, pa.int64())]
        self._pending.append(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._rows += len(positions)
        if self._rows >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, _SCHEMA), row_group_size=16 * _ROWS)
            self._pending, self._rows = [], 0

    def finish(self) -> dict[str, Any]:
        """Closes the file; it is complete in the store when this returns."""
        self._flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        footer = self._footers[0]
        assert self._bounds is not None, "a file is opened for its first positions"
        columns = [(POSITION_DELETE_PATH_ID, 0), (_POSITION_ID, 1)]
        # Whole paths: cut bounds would prove nothing about the one data file that positions are for.
        lower = [self._paths[0].encode(), struct.pack("<q", self._bounds[0])]
        upper = [self._paths[-1].encode(), struct.pack("<q", self._bounds[1])]
        ids = [field_id for field_id, _ in columns]
        return {
            "content": 1,
            "file_path": self._path,
            "file_format": "PARQUET",
            "record_count": footer.num_rows,
            "file_size_in_bytes": size,
            "column_sizes": [{"key": i, "value": _column_size(footer, index)} for i, index in columns],
            "value_counts": [{"key": i, "value": footer.num_rows} for i in ids],
            "null_value_counts": [{"key": i, "value": 0} for i in ids],
            "nan_value_counts": None,
            "lower_bounds": [{"key": i, "value": value} for i, value in zip(ids, lower, strict=True)],
            "upper_bounds": [{"key": i, "value": value} for i, value in zip(ids, upper, strict=True)],
            "key_metadata": None,
            "split_offsets": [_start(footer, group) for group in range(footer.num_row_groups)],
            "equality_ids": None,
            "sort_order_id": None,
            "first_row_id": None,
            "referenced_data_file": self._paths[0] if len(self._paths) == 1 else None,
            "content_offset": None,
            "content_size_in_bytes": None,
        }


def _column_size(footer: pq.FileMetaData, index: int) -> int:
    return sum(footer.row_group(group).column(index).total_compressed_size for group in range(footer.num_row_groups))


def _start(footer: pq.FileMetaData, group: int) -> int:
    chunk = footer.row_group(group).column(0)
    return int(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
