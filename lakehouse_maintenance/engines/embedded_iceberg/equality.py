"""Rows that equality deletes delete (Iceberg spec: Equality Delete Files).

Keys alone pass through DuckDB, which joins them within a bound on its memory and spills the rest to local disk. What
comes back are row positions, so that a rewrite reads and writes rows as it does without such deletes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table
from pyroaring import BitMap64

from lakehouse_maintenance.engines.embedded_iceberg.keys import (
    KeyColumn,
    compared_schema,
    key_columns,
    missing_constants,
    read_keys,
)
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.engines.embedded_iceberg.positions import bitmap
from lakehouse_maintenance.engines.embedded_iceberg.schema import file_schema
from lakehouse_maintenance.model.errors import StorageError, TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile

_LEAST_MEMORY = 64 << 20
"""DuckDB needs so much for a join that spills."""
_RESULT_ROWS = 1 << 16


def equal_rows(
    files: Sequence[LiveFile],
    reaching: Mapping[str, Sequence[LiveFile]],
    opener: Opener,
    table: Table,
    memory_limit: int,
) -> dict[str, BitMap64]:
    """Data file path → rows whose keys an equality delete names that reaches the file.

    `files`: of one partition. `reaching`: path → equality deletes that reach it (global ones, and those of the
    partition, each newer than the file); files without any are not read. `memory_limit`: bytes; half of it is given
    to the join.
    """
    deletes = {delete.identity: delete for found in reaching.values() for delete in found}
    found: dict[str, BitMap64] = {}
    for ids in sorted({tuple(sorted(set(delete.equality_ids))) for delete in deletes.values()}):
        some = [delete for delete in deletes.values() if tuple(sorted(set(delete.equality_ids))) == ids]
        newest = max(delete.sequence_number for delete in some)
        probed = [file for file in files if file.path in reaching and file.sequence_number < newest]
        for path, rows in _join(probed, some, opener, table, max(_LEAST_MEMORY, memory_limit // 2)).items():
            found[path] = found[path] | rows if path in found else rows
    return found


def _join(
    files: Sequence[LiveFile], deletes: Sequence[LiveFile], opener: Opener, table: Table, memory: int
) -> dict[str, BitMap64]:
    """`deletes`: of one set of key columns."""
    import duckdb

    columns = key_columns(table, deletes[0])
    types = compared_schema(columns)
    names = [f"k{number}" for number in range(len(types))]
    keys = ", ".join(names)
    schema = pa.schema([*zip(names, types, strict=True), ("seq", pa.int64())])
    rows = pa.schema([*schema, ("file", pa.int32()), ("pos", pa.int64())])
    named = _Source(schema, _deleted_keys(deletes, columns, opener))
    probed = _Source(rows, _data_keys(files, columns, opener, table))
    same = " AND ".join(f"d.{name} IS NOT DISTINCT FROM p.{name}" for name in names)
    gather = f"CREATE TEMP TABLE deletes AS SELECT {keys}, max(seq) AS seq FROM named GROUP BY {keys}"  # noqa: S608
    # An equality delete applies to data that is strictly older (spec: Scan Planning).
    match = f"SELECT file, pos FROM probed p SEMI JOIN deletes d ON {same} AND d.seq > p.seq"  # noqa: S608
    found: dict[int, BitMap64] = {}
    with tempfile.TemporaryDirectory(prefix="lakehouse-maintenance-") as folder:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory}B",
            "temp_directory": folder,
            "threads": 2,
            "preserve_insertion_order": False,
        }
        try:
            with duckdb.connect(config=settings) as connection:
                # The deletes are what is built in memory, whatever it guesses of the size of the other side.
                connection.execute("SET disabled_optimizers = 'build_side_probe_side,join_order'")
                connection.register("named", named.reader)
                connection.execute(gather)
                connection.register("probed", probed.reader)
                for batch in connection.sql(match).to_arrow_reader(_RESULT_ROWS):
                    _collect(batch, found)
        except duckdb.Error as error:
            _raise(error, named, probed, table)
    return {files[number].path: rows for number, rows in found.items()}


def _collect(batch: pa.RecordBatch, found: dict[int, BitMap64]) -> None:
    numbers, positions = batch.column("file").to_numpy(), batch.column("pos").to_numpy()
    for number in np.unique(numbers):
        found[int(number)] = found.get(int(number), BitMap64()) | bitmap(positions[numbers == number])


class _Source:
    """Batches that DuckDB pulls; remembers what reading them raised, which DuckDB turns into a text of its own."""

    def __init__(self, schema: pa.Schema, batches: Iterator[list[pa.Array]]) -> None:
        self.error: BaseException | None = None
        self._schema = schema
        self.reader = pa.RecordBatchReader.from_batches(schema, self._watched(batches))

    def _watched(self, batches: Iterator[list[pa.Array]]) -> Iterator[pa.RecordBatch]:
        try:
            for arrays in batches:
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except BaseException as error:
            self.error = error
            raise


def _raise(error: Exception, named: _Source, probed: _Source, table: Table) -> None:
    import duckdb

    name = ".".join(table.name())
    for source in (named, probed):
        if source.error is not None:
            raise source.error from None
    if isinstance(error, duckdb.OutOfMemoryException):
        raise UnsupportedError(
            f"the keys of equality deletes do not fit: {error}",
            field=name,
            hint="raise engine.memory_limit, or free space for temporary files",
        ) from error
    raise StorageError(f"the keys of equality deletes cannot be joined: {error}", field=name) from error


def _deleted_keys(
    deletes: Sequence[LiveFile], columns: Sequence[KeyColumn], opener: Opener
) -> Iterator[list[pa.Array]]:
    for delete in deletes:
        with opener.parquet(delete) as parquet:
            try:
                for arrays, count in read_keys(parquet, parquet.schema_arrow, columns, None):
                    yield [*arrays, pa.repeat(pa.scalar(delete.sequence_number, pa.int64()), count)]
            except KeyError as error:
                raise TableUnreadableError(
                    f"{delete.path} has no column with field id {error.args[0]}, which it is to compare",
                    field=delete.path,
                    hint="the file is no equality delete of this table; nothing was changed",
                ) from None


def _data_keys(
    files: Sequence[LiveFile], columns: Sequence[KeyColumn], opener: Opener, table: Table
) -> Iterator[list[pa.Array]]:
    for number, file in enumerate(files):
        constants = missing_constants(table, file, columns)
        with opener.parquet(file) as parquet:
            have = file_schema(parquet.schema_arrow, table, file.path)
            start = 0
            for arrays, count in read_keys(parquet, have, columns, constants):
                yield [
                    *arrays,
                    pa.repeat(pa.scalar(file.sequence_number, pa.int64()), count),
                    pa.repeat(pa.scalar(number, pa.int32()), count),
                    pa.array(np.arange(start, start + count)),
                ]
                start += count
