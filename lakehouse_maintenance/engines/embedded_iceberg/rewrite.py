"""Rewriting groups of data files into others, with their deletes applied; sorted where an order is asked for.

Without one, a group's inputs are split into as many runs of neighbours as outputs are expected; each run is read and
written by its own thread, a run that is alone reads ahead in another. Memory is bounded by the row group that each
writer gathers and by a few batches read ahead, whatever the number and size of the files. A group with an order is read
whole, sorted (see sorting), and written as so many neighbouring ranges as outputs are expected, each by its own thread.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from lakehouse_maintenance.engines.embedded_iceberg.deletes import Deletes, load_deletes
from lakehouse_maintenance.engines.embedded_iceberg.lineage import filled, with_lineage
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.engines.embedded_iceberg.output import (
    DataFileWriter,
    Format,
    OutputFolder,
    OutputPaths,
    columns_worth_a_dictionary,
)
from lakehouse_maintenance.engines.embedded_iceberg.partitioning import Partitioning
from lakehouse_maintenance.engines.embedded_iceberg.positions import Positions
from lakehouse_maintenance.engines.embedded_iceberg.repartition import Repartition
from lakehouse_maintenance.engines.embedded_iceberg.schema import Projection, file_schema, table_schema
from lakehouse_maintenance.engines.embedded_iceberg.sort_keys import SortKeys
from lakehouse_maintenance.engines.embedded_iceberg.sorting import ExternalSort
from lakehouse_maintenance.iceberg.replace import Replacement
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import StorageError, TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.sort_orders import SortOrder
from lakehouse_maintenance.storage import Storage

T = TypeVar("T")
R = TypeVar("R")
_BATCH_ROWS = 1 << 16
_READ_AHEAD_BATCHES = 4
_WHOLE_FILE_BELOW = 4 << 20
_LEAST_ROW_GROUP = 8 << 20
_MOST_ROW_GROUP = 64 << 20
_COPIES = 8
"""Row groups' worth of memory that a worker is reckoned with."""
_LEAST_SORT = 16 << 20
_ARROW_BYTES_A_BYTE = 8
"""Arrow's bytes for one in a compressed file, on the safe side: what is more is spilled."""


@dataclass(frozen=True, slots=True)
class Group:
    """What to rewrite: live data files, as one reading of the table saw them.

    `sequence_number`: of the snapshot that was read; None where outputs get that of our commit. `roll_bytes`: an output
    is closed once it has this many bytes, whatever was expected. `order`: of the rows in the outputs, None to keep that
    of the inputs; `sort_order_id`: its id in the table, if it has one. `output_spec`: the partition spec that the rows
    come under; None: the files' own partition, which they share then.
    """

    files: tuple[LiveFile, ...]
    expected_files: int
    sequence_number: int | None
    roll_bytes: int
    order: SortOrder | None = None
    sort_order_id: int | None = None
    output_spec: int | None = None

    @property
    def bytes(self) -> int:
        """Input bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Demand:
    """What rewriting one group takes: threads that encode, and bytes of memory."""

    workers: int
    memory: int


class Stop:
    """Asks the threads of one group to stop: since one of them failed, or since all groups are to (`all_groups`)."""

    def __init__(self, all_groups: threading.Event) -> None:
        self._own = threading.Event()
        self._all = all_groups

    def set(self) -> None:
        """Stops this group's threads."""
        self._own.set()

    def is_set(self) -> bool:
        """Whether they are to stop."""
        return self._own.is_set() or self._all.is_set()


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Rewrites groups of one table. `progress`: called with input files and bytes done since the last call.

    `announce`: told paths of outputs before anything is written to them; some of them may never be.
    `written`: told the path of each output right before it is opened. `stop`: once set, every rewrite going on ends
    with an error within a second or so. Groups may be rewritten at once, as far as their `demand` goes.
    """

    table: Table
    storage: Storage
    memory_limit: int
    progress: Callable[[int, int], None]
    announce: Callable[[Sequence[str]], None]
    written: Callable[[str], None]
    threads: int = os.cpu_count() or 2
    stop: threading.Event = field(default_factory=threading.Event)

    def demand(self, group: Group) -> Demand:
        """How much of the cores and of the memory limit the group takes, which never depends on other groups."""
        if group.output_spec is not None:
            return Demand(self._workers(self.threads, self.memory_limit // 2), self.memory_limit)
        if group.order is not None:
            workers = self._workers(max(1, group.expected_files), self.memory_limit // 2)
            writing = workers * _COPIES * self._buffer(workers, self.memory_limit // 2)
            return Demand(workers, min(self.memory_limit, writing + 2 * self._sorted_bytes(group)))
        workers = self._workers(len(split(group.files, max(1, group.expected_files))), self.memory_limit)
        return Demand(workers, min(self.memory_limit, workers * _COPIES * self._buffer(workers, self.memory_limit)))

    def rewrite(self, group: Group, deletes: DeleteIndex) -> Replacement:
        """Reads and writes; commits nothing. Outputs of a failed rewrite stay, unreferenced.

        Raises UnsupportedError, where the store holds an input back also after something was written, and
        TableUnreadableError for a damaged input.
        """
        for file in group.files:
            if file.file_format != "PARQUET":
                raise UnsupportedError(f"{file.path} is {file.file_format}", field=self._name)
        opener = Opener(self.storage, self.table.io)
        loaded = load_deletes(group.files, deletes, opener, self.table, self.demand(group).memory)
        paths = OutputPaths(OutputFolder(self.table, group.files), self.announce)
        stop = Stop(self.stop)
        partition_type = None
        if group.output_spec is not None:
            partitioning = Partitioning(self.table, group.output_spec, self._schema())
            partition_type = partitioning.avro
            outputs = self._under_a_spec(group, partitioning, loaded, opener, stop)
        elif group.order is None:
            outputs = self._in_place(group, loaded, opener, paths, stop)
        else:
            outputs = self._sorted(group, group.order, loaded, opener, paths, stop)
        rows = sum(output["record_count"] for output in outputs)
        self._check_rows(group.files, loaded, rows)
        applied, number = loaded.applied, group.sequence_number
        return Replacement(group.files, applied, tuple(outputs), number, rows, partition_type=partition_type)

    def rows(self, files: Sequence[LiveFile], deletes: DeleteIndex) -> Iterator[pa.RecordBatch]:
        """The files' rows with their deletes applied, in the table's schema. Raises as `rewrite`."""
        opener = Opener(self.storage, self.table.io)
        loaded = load_deletes(files, deletes, opener, self.table, self.memory_limit)
        return self._read_run(files, self._schema(), loaded, opener, Stop(self.stop))

    @property
    def _name(self) -> str:
        return ".".join(self.table.name())

    def _in_place(
        self, group: Group, deletes: Deletes, opener: Opener, paths: OutputPaths, stop: Stop
    ) -> list[dict[str, Any]]:
        schema = self._schema()
        runs = split(group.files, max(1, group.expected_files))
        workers = self._workers(len(runs), self.memory_limit)
        form = self._format(group.files[0], opener, self._buffer(workers, self.memory_limit))
        # One call tells what most groups need.
        paths.reserve(len(runs))

        def write(run: tuple[Sequence[LiveFile], int | None]) -> list[dict[str, Any]]:
            files, rows = run
            batches = self._read_run(files, schema, deletes, opener, stop)
            return self._write(batches, schema, group, rows, form, paths, stop)

        return _each(write, list(zip(runs, rows_an_output(group, runs, deletes), strict=True)), workers, stop)

    def _sorted(
        self, group: Group, order: SortOrder, deletes: Deletes, opener: Opener, paths: OutputPaths, stop: Stop
    ) -> list[dict[str, Any]]:
        schema = self._schema()
        keys = SortKeys(order, self.table.schema(), schema)
        ranges = max(1, group.expected_files)
        # While rows are sorted nothing is written; then writers need half, and what is sorted is held by a third.
        workers = self._workers(ranges, self.memory_limit // 2)
        form = self._format(group.files[0], opener, self._buffer(workers, self.memory_limit // 2))
        parts = split(group.files, max(1, min(self.threads, len(group.files))))
        estimated = _ARROW_BYTES_A_BYTE * group.bytes
        paths.reserve(ranges)
        with ExternalSort(schema, keys, self._sorted_bytes(group), len(parts), workers, estimated) as sort:

            def write(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
                return self._write(batches, schema, group, None, form, paths, stop)

            self._gather(sort, parts, schema, deletes, opener, stop)
            return _each(write, sort.ranges(ranges), workers, stop)

    def _gather(
        self,
        sort: ExternalSort,
        parts: Sequence[Sequence[LiveFile]],
        schema: pa.Schema,
        deletes: Deletes,
        opener: Opener,
        stop: Stop,
    ) -> None:
        def read(files: Sequence[LiveFile]) -> list[None]:
            buffer = sort.buffer()
            batches = self._read_run(files, schema, deletes, opener, stop)
            for batch in read_ahead(batches, _READ_AHEAD_BATCHES, stop):
                buffer.add(batch)
            return []

        _each(read, parts, len(parts), stop)
        sort.finish()

    def _under_a_spec(
        self, group: Group, partitioning: Partitioning, deletes: Deletes, opener: Opener, stop: Stop
    ) -> list[dict[str, Any]]:
        """Each row into its partition of the spec. Rows are sorted as a whole first: partitions keep their order."""
        schema = self._schema()
        memory = self.memory_limit // 2
        workers = self._workers(self.threads, memory)
        repartition = Repartition(
            table=self.table,
            schema=schema,
            partitioning=partitioning,
            form=self._format(group.files[0], opener, self._buffer(workers, memory)),
            gather_bytes=max(_LEAST_ROW_GROUP, self.memory_limit // (2 * _COPIES)),
            roll_bytes=group.roll_bytes,
            sort_order_id=group.sort_order_id,
            threads=workers,
            announce=self.announce,
            written=self.written,
        )

        def write(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
            try:
                return repartition.write(read_ahead(batches, _READ_AHEAD_BATCHES, stop), stop)
            except (pa.ArrowException, OSError) as error:
                raise StorageError(f"a data file cannot be written: {error}", field=self._name) from error

        if group.order is None:
            return write(self._read_run(group.files, schema, deletes, opener, stop))
        keys = SortKeys(group.order, self.table.schema(), schema)
        parts = split(group.files, max(1, min(self.threads, len(group.files))))
        estimated = _ARROW_BYTES_A_BYTE * group.bytes
        with ExternalSort(schema, keys, self._sorted_bytes(group), len(parts), 1, estimated) as sort:
            self._gather(sort, parts, schema, deletes, opener, stop)
            return [record for batches in sort.ranges(1) for record in write(batches)]

    def _sorted_bytes(self, group: Group) -> int:
        """Arrow bytes that are held to be sorted; what is more is spilled."""
        return min(self.memory_limit // 3, max(_LEAST_SORT, _ARROW_BYTES_A_BYTE * group.bytes))

    def _workers(self, runs: int, memory: int) -> int:
        """Up to two runs a core go at once: in turns, a last one would leave the other cores idle."""
        fitting = memory // (_COPIES * _LEAST_ROW_GROUP)
        return max(1, min(runs, 2 * self.threads, fitting))

    def _buffer(self, workers: int, memory: int) -> int:
        # A writer holds a gathered row group, its concatenation and its encoded pages at once.
        return min(max(_LEAST_ROW_GROUP, memory // (_COPIES * workers)), _MOST_ROW_GROUP)

    def _format(self, sample: LiveFile, opener: Opener, buffer: int) -> Format:
        with opener.parquet(sample) as parquet:
            dictionary = columns_worth_a_dictionary(parquet.metadata)
        return Format.of(self.table.properties, buffer, dictionary or False)

    def _write(
        self,
        batches: Iterator[pa.RecordBatch],
        schema: pa.Schema,
        group: Group,
        rows_each: int | None,
        form: Format,
        paths: OutputPaths,
        stop: Stop,
    ) -> list[dict[str, Any]]:
        """One file after the other, as long as there are batches; their records.

        `rows_each`: after so many rows the next output begins; None: one output is expected.
        """
        outputs: list[dict[str, Any]] = []
        writer: DataFileWriter | None = None
        try:
            rows = 0
            for batch in cut(read_ahead(batches, _READ_AHEAD_BATCHES, stop), rows_each):
                if writer is None:
                    path = paths.take()
                    self.written(path)
                    writer = DataFileWriter(self.table, schema, path, form, sort_order_id=group.sort_order_id)
                writer.write(batch)
                rows += batch.num_rows
                if writer.size >= group.roll_bytes or (rows_each is not None and rows % rows_each == 0):
                    outputs.append(writer.finish())
                    writer = None
            if writer is not None:
                outputs.append(writer.finish())
                writer = None
        except (pa.ArrowException, OSError) as error:
            # Reading has errors of its own (Opener.parquet): what is left is the store that takes no more.
            raise StorageError(f"a data file cannot be written: {error}", field=self._name) from error
        finally:
            if writer is not None:
                writer.abandon()
        return outputs

    @property
    def _keeps_lineage(self) -> bool:
        return self.table.metadata.format_version > 2

    def _schema(self) -> pa.Schema:
        """Of the outputs; in format version 3 with the columns of row lineage."""
        schema = table_schema(self.table.schema())
        return with_lineage(schema, self._name) if self._keeps_lineage else schema

    def _read_run(
        self, files: Sequence[LiveFile], schema: pa.Schema, deletes: Deletes, opener: Opener, stop: Stop
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            if stop.is_set():
                return
            yield from self._read_file(file, schema, deletes.positions.get(file.path), opener)
            self.progress(1, file.size)

    def _read_file(
        self, file: LiveFile, schema: pa.Schema, dropped: Positions | None, opener: Opener
    ) -> Iterator[pa.RecordBatch]:
        with opener.parquet(file) as parquet:
            rows = parquet.metadata.num_rows
            if rows != file.records:
                raise TableUnreadableError(
                    f"{file.path} has {rows} rows, its manifest says {file.records}", field=self._name
                )
            have = file_schema(parquet.schema_arrow, self.table, file.path)
            projection = Projection(self.table, schema, have, file)
            start = 0
            for columns, count in _columns(parquet, projection, file):
                batch = pa.RecordBatch.from_arrays(projection(columns, count), schema=schema)
                if self._keeps_lineage:
                    batch = filled(batch, file, start)
                if dropped is not None:
                    batch = _without(batch, dropped, start)
                start += count
                if batch.num_rows:
                    yield batch

    def _check_rows(self, files: Sequence[LiveFile], deletes: Deletes, rows: int) -> None:
        """Inputs less deletes must be outputs, before anybody sees them."""
        expected = sum(_rows_left(file, deletes) for file in files)
        if rows != expected:
            raise TableUnreadableError(
                f"{self._name}: {rows} rows were written where {expected} were expected; nothing was committed",
                field=self._name,
            )


def _each(work: Callable[[T], list[R]], items: Sequence[T], workers: int, stop: Stop) -> list[R]:
    """The results of `work` on each item, in threads; the first error stops the others and is raised."""
    with ThreadPoolExecutor(workers, thread_name_prefix="rewrite") as pool:
        jobs = [pool.submit(work, item) for item in items]
        try:
            return [result for job in jobs for result in job.result()]
        except BaseException:
            stop.set()
            raise


def split(files: Sequence[LiveFile], runs: int) -> list[list[LiveFile]]:
    """Runs of neighbours of about equal bytes; at most `runs`, none empty."""
    total = sum(file.size for file in files) or 1
    result: list[list[LiveFile]] = []
    done, last = 0, -1
    for file in files:
        # The middle of a file decides to which run it belongs. A file that is larger than a run takes several places:
        # the small ones behind it are one run all the same.
        index = min(runs - 1, (2 * done + file.size) * runs // (2 * total))
        if index > last:
            result.append([])
            last = index
        result[-1].append(file)
        done += file.size
    return result


def _rows_left(file: LiveFile, deletes: Deletes) -> int:
    dropped = deletes.positions.get(file.path)
    inside = 0 if dropped is None else int(np.count_nonzero((dropped >= 0) & (dropped < file.records)))
    return file.records - inside


def rows_an_output(group: Group, runs: Sequence[Sequence[LiveFile]], deletes: Deletes) -> list[int | None]:
    """For each run the rows of each of its outputs; None for a run that becomes one.

    Where files are larger than outputs there are fewer runs than outputs. Equal rows leave no small remainder, as
    closing an output at a size would.
    """
    total = group.bytes or 1
    found: list[int | None] = []
    for run in runs:
        share = sum(file.size for file in run) / total
        outputs = round(group.expected_files * share) if len(runs) < group.expected_files else 1
        rows = sum(_rows_left(file, deletes) for file in run)
        found.append(-(-rows // outputs) if outputs > 1 and rows else None)
    return found


def cut(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of which one ends after each so many `rows`."""
    left = rows
    for batch in batches:
        if left is None or rows is None:
            yield batch
            continue
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, left)
            yield part
            start += part.num_rows
            left = left - part.num_rows or rows


def read_ahead(batches: Iterator[pa.RecordBatch], size: int, stop: Stop) -> Iterator[pa.RecordBatch]:
    """The same batches, read in another thread up to `size` of them ahead; errors arrive in their place."""
    channel: queue.Queue[tuple[pa.RecordBatch | None, BaseException | None]] = queue.Queue(size)
    closed = threading.Event()

    def put(item: tuple[pa.RecordBatch | None, BaseException | None]) -> bool:
        while not (closed.is_set() or stop.is_set()):
            try:
                channel.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for batch in batches:
                if not put((batch, None)):
                    return
            put((None, None))
        except BaseException as error:  # noqa: BLE001  # whatever it was: the reader raises it in its own thread
            put((None, error))

    thread = threading.Thread(target=work, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                batch, error = channel.get(timeout=0.5)
            except queue.Empty:
                if stop.is_set():
                    raise RuntimeError("stopped, since another part of the work failed or was cancelled") from None
                continue
            if error is not None:
                raise error
            if batch is None:
                return
            yield batch
    finally:
        closed.set()
        thread.join()


def _columns(
    parquet: pq.ParquetFile, projection: Projection, file: LiveFile
) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """Batches as arrays by column name; one batch a row group for small files, which is cheaper."""
    if not projection.columns:
        yield {}, parquet.metadata.num_rows
        return
    if file.size < _WHOLE_FILE_BELOW:
        for batch in parquet.read(columns=projection.columns, use_threads=False).combine_chunks().to_batches():
            yield dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows
        return
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=projection.columns, use_threads=False):
        yield dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows


def _without(batch: pa.RecordBatch, dropped: Positions, start: int) -> pa.RecordBatch:
    """The batch without the dropped positions; its first row is at position `start` of the file."""
    low, high = np.searchsorted(dropped, (start, start + batch.num_rows))
    if low == high:
        return batch
    keep = np.ones(batch.num_rows, dtype=bool)
    keep[dropped[low:high] - start] = False
    return batch.filter(pa.array(keep))
