"""Parquet data files written as the table's properties ask (Iceberg: write.parquet.*), with their manifest record."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.locations import ObjectStoreLocationProvider, load_location_provider

from lakehouse_maintenance.engines.embedded_iceberg.parquet_options import parquet_paths, whole, writer_options
from lakehouse_maintenance.engines.embedded_iceberg.statistics import StatisticsPlan
from lakehouse_maintenance.model.errors import InputError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile

_logger = logging.getLogger(__name__)

_DEFAULT_ROW_GROUP_BYTES = 128 << 20
_CODECS = frozenset({"zstd", "gzip", "snappy", "lz4", "brotli", "none"})


@dataclass(frozen=True, slots=True)
class Format:
    """How data files are written. `row_group_bytes`: Arrow bytes gathered before a row group is written."""

    codec: str
    level: int | None
    row_group_bytes: int
    page_bytes: int
    dictionary_bytes: int
    dictionary_columns: tuple[str, ...] | bool

    @classmethod
    def of(cls, properties: dict[str, str], buffer_bytes: int, dictionary: tuple[str, ...] | bool) -> Format:
        """From table properties; `buffer_bytes` caps the row group so that the memory limit holds."""
        codec = properties.get("write.parquet.compression-codec", "zstd").lower()
        codec = "none" if codec == "uncompressed" else codec
        if codec not in _CODECS:
            raise InputError(
                f"write.parquet.compression-codec is {codec!r}",
                field="write.parquet.compression-codec",
                hint=f"one of {', '.join(sorted(_CODECS))}",
            )
        asked = whole(properties, "write.parquet.row-group-size-bytes", _DEFAULT_ROW_GROUP_BYTES)
        return cls(
            codec=codec,
            level=_level(properties, codec),
            row_group_bytes=min(asked, buffer_bytes),
            page_bytes=whole(properties, "write.parquet.page-size-bytes", 1 << 20),
            dictionary_bytes=whole(properties, "write.parquet.dict-size-bytes", 2 << 20),
            dictionary_columns=dictionary,
        )


def _level(properties: dict[str, str], codec: str) -> int | None:
    """Levels mean something to these codecs alone; zstd's own default would be 1."""
    if codec not in ("zstd", "gzip", "brotli"):
        return None
    level = whole(properties, "write.parquet.compression-level", -1)
    return level if level >= 0 else (3 if codec == "zstd" else None)


class OutputFolder:
    """Where outputs of one group go: beside the inputs where those follow the table's layout, else its data path.

    Nothing reads a partition from a path, but people look into folders.
    """

    def __init__(self, table: Table, inputs: Sequence[LiveFile]) -> None:
        self._provider = load_location_provider(table.location(), table.properties)
        root = self._provider.data_path.rstrip("/") + "/"
        folder = inputs[0].path.rpartition("/")[0] + "/"
        plain = not isinstance(self._provider, ObjectStoreLocationProvider)
        below = folder.removeprefix(root) if plain and folder.startswith(root) else ""
        self._below = "" if is_cut(below) else below

    def new_path(self) -> str:
        """A path that nothing uses."""
        path = self._provider.new_data_location(f"{self._below}{uuid.uuid4()}.parquet")
        if is_cut(path):
            raise UnsupportedError(f"{path} has a character that cannot be written to", field=path)
        return path


class OutputPaths:
    """Hands out paths for outputs, each of which was announced before. Safe between threads."""

    def __init__(self, folder: OutputFolder, announce: Callable[[Sequence[str]], None]) -> None:
        self._folder = folder
        self._announce = announce
        self._reserved: list[str] = []
        self._lock = threading.Lock()

    def reserve(self, number: int) -> None:
        """Announces so many paths at once."""
        paths = [self._folder.new_path() for _ in range(number)]
        self._announce(paths)
        with self._lock:
            self._reserved += paths

    def take(self) -> str:
        """A path that was announced and that nothing uses."""
        with self._lock:
            if self._reserved:
                return self._reserved.pop()
        path = self._folder.new_path()
        self._announce([path])
        return path


def is_cut(path: str) -> bool:
    """PyIceberg takes what follows these for no part of the key: every output would go to one and the same object."""
    return "?" in path or "#" in path


class DataFileWriter:
    """Streams batches into one data file. `finish` returns its record for a manifest entry, without partition.

    `sort_order_id`: of the table's order that the batches come in, None for any other.
    """

    def __init__(
        self, table: Table, schema: pa.Schema, path: str, form: Format, *, sort_order_id: int | None = None
    ) -> None:
        self._path = path
        self._form = form
        self._properties = table.properties
        self._sort_order_id = sort_order_id
        self._statistics = StatisticsPlan(schema, table.properties)
        self._nans: Counter[int] = Counter()
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._footers: list[pq.FileMetaData] = []
        # "Must not exist" is asked of the store only where a name could be taken: this one is a fresh UUID.
        self._stream = table.io.new_output(path).create(overwrite=True)
        self._writer: pq.ParquetWriter | None = None

    def _open(self, rows: int) -> pq.ParquetWriter:
        """Once the first row group is there: its rows tell how large Bloom filters have to be."""
        form = self._form
        further = writer_options(
            self._properties, self._statistics.leaves, parquet_paths(self._schema), form.dictionary_columns, rows
        )
        return pq.ParquetWriter(
            self._stream,
            self._schema,
            compression=form.codec,
            compression_level=form.level,
            data_page_size=form.page_bytes,
            dictionary_pagesize_limit=form.dictionary_bytes,
            store_schema=False,
            store_decimal_as_integer=True,
            metadata_collector=self._footers,
            **further,
        )

    @property
    def size(self) -> int:
        """Bytes written so far, those still in memory not counted."""
        return int(self._stream.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of the table's schema."""
        self._statistics.count_nans(batch, self._nans)
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._form.row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema)
            if self._writer is None:
                self._writer = self._open(table.num_rows)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._pending, self._pending_bytes = [], 0

    def finish(self) -> dict[str, Any]:
        """Closes the file; it is complete in the store when this returns."""
        self._flush()
        if self._writer is None:
            self._writer = self._open(0)
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        footer = self._footers[0]
        return {
            "content": 0,
            "file_path": self._path,
            "file_format": "PARQUET",
            "record_count": footer.num_rows,
            "file_size_in_bytes": size,
            **self._statistics.of(footer, self._nans),
            "key_metadata": None,
            "equality_ids": None,
            "sort_order_id": self._sort_order_id,
            "first_row_id": None,
            "referenced_data_file": None,
            "content_offset": None,
            "content_size_in_bytes": None,
        }

    def abandon(self) -> None:
        """Closes what is open after an error; the file stays, unreferenced."""
        # What failed before is what the caller raises: closing a writer that failed raises errors of its own.
        for part in (self._writer, self._stream):
            try:
                if part is not None:
                    part.close()
            except Exception as error:  # noqa: BLE001  # see above
                _logger.debug("%s: %s", self._path, error)


def columns_worth_a_dictionary(footer: pq.FileMetaData) -> tuple[str, ...]:
    """Columns that gained by their dictionary in an input.

    Trying a dictionary on the others costs a fifth of the writing time and is given up half-way.
    """
    if not footer.num_row_groups:
        return ()
    group = footer.row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    return tuple(chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page and _gained(chunk))


_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def _gained(chunk: pq.ColumnChunkMetaData) -> bool:
    width = _WIDTHS.get(chunk.physical_type)
    if width is not None:
        # A dictionary of distinct numbers in order compresses well, and still is one value a row.
        nulls = chunk.statistics.null_count if chunk.statistics is not None else 0
        return bool(chunk.total_uncompressed_size < 0.7 * width * (chunk.num_values - (nulls or 0)))
    if not chunk.dictionary_page_offset:
        return False
    dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    return bool(0 < dictionary < 0.4 * chunk.total_compressed_size or chunk.total_compressed_size < 4096)
