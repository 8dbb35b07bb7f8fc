"""Rows written under another partition spec: one file after another for each partition, however many there are.

Rows are gathered up to a limit, ordered by partition, and put aside in a temporary file, a batch for each partition;
then partition after partition is read back and written. So there are never more open files than threads, and memory
holds what was gathered, whatever the number of partitions. What fits into one round never goes to disk. Within a
partition rows keep their order.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from lakehouse_maintenance.engines.embedded_iceberg.output import DataFileWriter, Format
from lakehouse_maintenance.engines.embedded_iceberg.partitioning import PartitionFolder, Partitioning, Tuple

_ROWS_AT_ONCE = 1 << 16
_PATHS_AT_ONCE = 1000


class Stopping(Protocol):
    """As threading.Event."""

    def set(self) -> None:
        """Asks all to stop."""
        ...

    def is_set(self) -> bool:
        """Whether they are to stop."""
        ...


@dataclass(frozen=True, slots=True)
class Repartition:
    """Writes rows of one schema into data files of one spec.

    `gather_bytes`: Arrow bytes held before they are put aside; about three times as much memory is taken for a moment.
    `roll_bytes`: a file is closed once it has so many. `sort_order_id`: of the order that the rows come in.
    `announce`, `written`: see Rewriter.
    """

    table: Table
    schema: pa.Schema
    partitioning: Partitioning
    form: Format
    gather_bytes: int
    roll_bytes: int
    sort_order_id: int | None
    threads: int
    announce: Callable[[Sequence[str]], None]
    written: Callable[[str], None]

    def write(self, batches: Iterable[pa.RecordBatch], stop: Stopping) -> list[dict[str, Any]]:
        """Records of the files, with `spec_id` and `partition`. What was opened when it fails stays, unreferenced.

        `stop`: once set, all ends with an error soon.
        """
        with _Aside(self.schema, self.partitioning, self.gather_bytes) as aside:
            for batch in batches:
                aside.add(batch)
            aside.complete()
            first = self._first_paths(aside.partitions)
            with ThreadPoolExecutor(max(1, min(self.threads, len(first))), thread_name_prefix="repartition") as pool:
                jobs = [pool.submit(self._write_partition, aside, values, first[values], stop) for values in first]
                try:
                    return [record for job in jobs for record in job.result()]
                except BaseException:
                    stop.set()
                    raise

    def _first_paths(self, partitions: Sequence[Tuple]) -> dict[Tuple, str]:
        """A path for each partition, announced: one call for many of them."""
        paths = {values: self._folder(values).new_path() for values in partitions}
        in_order = list(paths.values())
        for start in range(0, len(in_order), _PATHS_AT_ONCE):
            self.announce(in_order[start : start + _PATHS_AT_ONCE])
        return paths

    def _folder(self, values: Tuple) -> PartitionFolder:
        return PartitionFolder(self.table, self.partitioning.folder(values))

    def _write_partition(self, aside: _Aside, values: Tuple, path: str, stop: Stopping) -> list[dict[str, Any]]:
        place = {"spec_id": self.partitioning.spec_id, "partition": self.partitioning.record(values)}
        records: list[dict[str, Any]] = []
        writer: DataFileWriter | None = None
        try:
            for batch in aside.rows_of(values):
                if stop.is_set():
                    raise RuntimeError("stopped, since another part of this rewrite failed")
                if writer is None:
                    if records:
                        path = self._folder(values).new_path()
                        self.announce([path])
                    self.written(path)
                    writer = DataFileWriter(self.table, self.schema, path, self.form, sort_order_id=self.sort_order_id)
                writer.write(batch)
                if writer.size >= self.roll_bytes:
                    records.append({**writer.finish(), **place})
                    writer = None
            if writer is not None:
                records.append({**writer.finish(), **place})
                writer = None
        finally:
            if writer is not None:
                writer.abandon()
        return records


@dataclass
class _Aside:
    """Rows by partition: those of the last round in memory, those of earlier ones on disk."""

    schema: pa.Schema
    partitioning: Partitioning
    gather_bytes: int
    _pending: list[pa.RecordBatch] = field(default_factory=list)
    _pending_bytes: int = 0
    _chunks: dict[Tuple, list[int]] = field(default_factory=dict)
    """Partition → numbers of its batches on disk."""
    _last: dict[Tuple, pa.Table] = field(default_factory=dict)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _file: Any = None
    _writer: pa.RecordBatchFileWriter | None = None
    _reader: pa.RecordBatchFileReader | None = None

    def __enter__(self) -> _Aside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def partitions(self) -> list[Tuple]:
        """In the order in which they were met."""
        return list(dict.fromkeys([*self._chunks, *self._last]))

    def add(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self.gather_bytes:
            self._put_aside()

    def complete(self) -> None:
        """No more rows come."""
        self._last = dict(self._ordered())
        if self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            self._reader = pa.ipc.open_file(pa.PythonFile(self._file, mode="r"))

    def rows_of(self, values: Tuple) -> Iterator[pa.RecordBatch]:
        """A partition's rows in their order. Safe between threads."""
        for number in self._chunks.get(values, ()):
            assert self._reader is not None
            with self._lock:
                batch = self._reader.get_batch(number)
            yield from _slices(pa.Table.from_batches([batch]))
        if values in self._last:
            yield from _slices(self._last[values])

    def _put_aside(self) -> None:
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), self.schema, options=options)
        for values, rows in self._ordered():
            for batch in rows.combine_chunks().to_batches():
                self._writer.write_batch(batch)
                self._chunks.setdefault(values, []).append(self._count)
                self._count += 1

    def _ordered(self) -> Iterator[tuple[Tuple, pa.Table]]:
        """What is pending, partition by partition; nothing is pending then."""
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._pending, self.schema)
        self._pending, self._pending_bytes = [], 0
        numbers, tuples = self.partitioning.split(rows)
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(len(tuples)), side="right")
        rows = rows.take(pa.array(order))
        start = 0
        for values, end in zip(tuples, ends.tolist(), strict=True):
            yield values, rows.slice(start, end - start)
            start = end


def _slices(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.to_batches(max_chunksize=_ROWS_AT_ONCE))
