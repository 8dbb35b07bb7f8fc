"""Sorting more rows than memory holds: sorted runs on disk, merged by ranges of keys (EN-09).

Readers fill buffers. While everything fits, nothing is written: one permutation sorts it. Else each full buffer is
sorted and spilled as a run; runs are cut at the same keys into as many ranges as files are wanted, and each range is
merged by itself, so that several threads write at once. Rows stay Arrow arrays of the table's own types from reading
to writing, and so come out bit by bit as they went in, whatever their type. (DuckDB sorts as fast, but restores sort
columns from its keys, in which all zeros and all NaNs are one, and has no maps, fixed or required fields of ours.)
"""

from __future__ import annotations

import os
import tempfile
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakehouse_maintenance.engines.embedded_iceberg.sort_keys import Key, Level, SortKeys, argsort, joined, key_of
from lakehouse_maintenance.model.errors import StorageError

_SMALLEST_BLOCK = 128 << 10
_LARGEST_BLOCK = 8 << 20
_LARGEST_RUN = 1 << 30
"""Texts of what becomes one batch have to fit 32-bit offsets, however much memory there is."""
_BATCH_BYTES = 8 << 20
_MARKS = 32
"""Rows of a block by whose keys ranges are cut."""


class ExternalSort(AbstractContextManager["ExternalSort"]):
    """Sorts batches of one schema. `memory`: bytes of Arrow data to hold, and as much again for moments.

    In turns: `buffer` for each reading thread, `add` to those, `finish`, then `ranges`. Leaving the context removes
    what was spilled; a killed process leaves nothing either, since the file has no name.
    """

    def __init__(
        self, schema: pa.Schema, keys: SortKeys, memory: int, readers: int, writers: int, estimated_bytes: int
    ) -> None:
        """`readers` and `writers`: threads that fill buffers, and that read ranges at the same time.
        `estimated_bytes`: of the Arrow data that will come; it decides about the size of blocks alone."""
        self._schema = schema
        self._keys = keys
        self._readers = readers
        self._buffer_bytes = max(1, min(memory // readers, _LARGEST_RUN))
        # A merge holds one block of every run, and their concatenation.
        runs = estimated_bytes // self._buffer_bytes + readers
        self._block_bytes = min(max(memory // (2 * writers * runs), _SMALLEST_BLOCK), _LARGEST_BLOCK)
        self._most_runs = max(2, min(memory // (2 * writers), _LARGEST_RUN) // self._block_bytes)
        self._buffers: list[Buffer] = []
        self._runs: list[_Run] = []
        self._spill: _Spill | None = None
        self._lock = threading.Lock()
        self._whole: tuple[pa.RecordBatch, npt.NDArray[np.intp]] | None = None
        self.rows = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._buffers = []
        self._runs = []
        self._whole = None
        if self._spill is not None:
            self._spill.close()

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to disk."""
        return self._spill.size if self._spill is not None else 0

    def buffer(self) -> Buffer:
        """One for each thread that reads."""
        made = Buffer(self, self._buffer_bytes)
        with self._lock:
            self._buffers.append(made)
        return made

    def spill(self, batches: list[pa.RecordBatch]) -> None:
        """Sorts and writes one run. Safe between threads; takes the batches out of the list."""
        with self._lock:
            # Only the first run decides where values lie: one order for all.
            self._keys.fit(batches)
            if self._spill is None:
                self._spill = _Spill(self._schema)
        rows = _combined(batches, self._schema)
        order = argsort(self._keys.levels(rows))
        run = _Run(self._spill)
        for start, stop in _cuts(rows, self._block_bytes):
            for block in _halved(_take(rows, order[start:stop]), self._block_bytes):
                run.write(block, self._keys)
        with self._lock:
            self._runs.append(run)

    def finish(self) -> None:
        """All rows have come."""
        left = [batches for buffer in self._buffers if (batches := buffer.taken())]
        self._buffers = []
        if self._spill is not None or sum(batch.nbytes for batches in left for batch in batches) > _LARGEST_RUN:
            # Each by itself: what several readers hold is more than one batch can.
            for batches in left:
                self.spill(batches)
            self.rows = sum(run.rows for run in self._runs)
            self._merge_to_fit()
            return
        if left:
            batches = [batch for held in left for batch in held]
            left.clear()
            self._keys.fit(batches)
            rows = _combined(batches, self._schema)
            share = -(-rows.num_rows // self._readers)
            with ThreadPoolExecutor(self._readers, thread_name_prefix="sort") as pool:
                slices = [rows.slice(start, share) for start in range(0, rows.num_rows, share)]
                parts = pool.map(self._keys.levels, slices)
                self._whole = rows, argsort(joined(list(parts)))
            self.rows = rows.num_rows

    def ranges(self, number: int) -> list[Iterator[pa.RecordBatch]]:
        """The rows in order as so many neighbouring ranges of about equal numbers of rows; each read by one thread."""
        if self._spill is None:
            if self._whole is None:
                return []
            rows, order = self._whole
            cuts = [self.rows * index // number for index in range(number + 1)]
            return [_taken(rows, order[low:high]) for low, high in pairwise(cuts)]
        edges = [[0] * len(self._runs), *self._inner_edges(number), [run.rows for run in self._runs]]
        return [self._merge(self._runs, low, high) for low, high in pairwise(edges)]

    def _inner_edges(self, number: int) -> list[list[int]]:
        """For each border between ranges, the first row of every run beyond it.

        Borders are keys of some rows of every block. Rows of the very same key are put before or behind the border by
        their run and row, so that many equal rows spread over ranges too.
        """
        starts = sorted(
            (key, index, row, rows)
            for index, run in enumerate(self._runs)
            for block in run.blocks
            for row, rows, key in block.marks
        )
        edges: list[list[int]] = []
        before, wanted = 0, 1
        for key, index, row, rows in starts:
            while wanted < number and before >= self.rows * wanted // number:
                edges.append([run.edge(key, self._keys, _side(at, index), row) for at, run in enumerate(self._runs)])
                wanted += 1
            before += rows
        while len(edges) < number - 1:
            edges.append([run.rows for run in self._runs])
        return edges

    def _merge(self, runs: Sequence[_Run], low: Sequence[int], high: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Rows `low` to `high` of each run, in order."""
        cursors = [_Cursor(run, self._keys, start, stop) for run, start, stop in zip(runs, low, high, strict=True)]
        cursors = [cursor for cursor in cursors if cursor.load()]
        while cursors:
            # Up to the least of the last keys held, no row can be missing.
            bound = min(cursor.last for cursor in cursors)
            pieces = [cursor.up_to(bound) for cursor in cursors]
            pieces = [piece for piece in pieces if piece[0].num_rows]
            if len(pieces) == 1:
                yield pieces[0][0]
            else:
                rows = _concatenated([batch for batch, _ in pieces], self._schema)
                order = argsort(joined([levels for _, levels in pieces]))
                yield from _taken(rows, order)
            cursors = [cursor for cursor in cursors if cursor.load()]

    def _merge_to_fit(self) -> None:
        """So many runs that their blocks would not fit become fewer, longer ones first."""
        while len(self._runs) > self._most_runs:
            part, self._runs = self._runs[: self._most_runs], self._runs[self._most_runs :]
            assert self._spill is not None, "runs are on disk"
            longer = _Run(self._spill)
            for batch in self._merge(part, [0] * len(part), [run.rows for run in part]):
                for block in _halved(batch, self._block_bytes):
                    longer.write(block, self._keys)
            self._runs.append(longer)


class Buffer:
    """Batches of one reading thread, on their way into a run."""

    def __init__(self, sort: ExternalSort, most: int) -> None:
        self._sort = sort
        self._most = most
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes a batch; sorts and spills where the buffer is full."""
        if self._batches and self._bytes + batch.nbytes > self._most:
            self._sort.spill(self._batches)
            self._batches, self._bytes = [], 0
        self._batches.append(batch)
        self._bytes += batch.nbytes

    def taken(self) -> list[pa.RecordBatch]:
        """What was not spilled."""
        batches, self._batches = self._batches, []
        return batches


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    rows: int
    offset: int
    length: int
    marks: tuple[tuple[int, int, Key], ...]
    """Some of its rows, the first one first: row, how many rows up to the next mark, key."""

    @property
    def first(self) -> Key:
        return self.marks[0][2]


class _Spill:
    """Blocks in one file without a name, each written and read at its place; safe between threads."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.size = 0
        self._lock = threading.Lock()
        try:
            self._file = tempfile.TemporaryFile(prefix="lakehouse-maintenance-sort-")  # noqa: SIM115  # see close
        except OSError as error:
            raise _no_room(error) from error

    def write(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Offset and length of the block."""
        data = memoryview(batch.serialize())
        with self._lock:
            offset, self.size = self.size, self.size + len(data)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], offset + written)
        except OSError as error:
            raise _no_room(error) from error
        return offset, len(data)

    def read(self, block: _Block) -> pa.RecordBatch:
        """The block's rows."""
        data = bytearray(block.length)
        view, done = memoryview(data), 0
        while done < block.length:
            count = os.preadv(self._file.fileno(), [view[done:]], block.offset + done)
            if not count:
                raise StorageError("spilled rows are cut off", field="TMPDIR")
            done += count
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)

    def close(self) -> None:
        """Gives the space back."""
        self._file.close()


def _no_room(error: OSError) -> StorageError:
    folder = tempfile.gettempdir()
    return StorageError(
        f"rows cannot be sorted through files in {folder}: {error}",
        field="TMPDIR",
        hint="set TMPDIR to a folder with room for the group, or raise engine.memory_limit",
    )


@dataclass
class _Run:
    """Sorted rows on disk."""

    spill: _Spill
    blocks: list[_Block] = field(default_factory=list)
    rows: int = 0

    def write(self, batch: pa.RecordBatch, keys: SortKeys) -> None:
        """Appends a block; its rows are not below those before."""
        step = -(-batch.num_rows // _MARKS)
        rows = range(0, batch.num_rows, step)
        levels = keys.levels(batch.take(pa.array(rows, pa.int64())))
        marks = tuple(
            (self.rows + row, min(step, batch.num_rows - row), key_of(levels, at)) for at, row in enumerate(rows)
        )
        offset, length = self.spill.write(batch)
        self.blocks.append(_Block(self.rows, batch.num_rows, offset, length, marks))
        self.rows += batch.num_rows

    def edge(self, key: Key, keys: SortKeys, side: int, row: int) -> int:
        """The first row beyond a border. `side`: -1 where equal rows are beyond it, 1 where they are before it, 0 in
        the run of the border itself, where it is `row`."""
        if side == 0:
            return row
        find = bisect_left if side < 0 else bisect_right
        # The block before the first one that begins beyond the border holds it, if any does.
        at = find(self.blocks, key, key=lambda block: block.first) - 1
        if at < 0:
            return 0
        block = self.blocks[at]
        levels = keys.levels(self.spill.read(block))
        return block.start + int(find(range(block.rows), key, key=lambda one: key_of(levels, one)))


def _side(run: int, border: int) -> int:
    """Rows of equal keys: those of earlier runs come before the border, those of later ones behind it."""
    return (run < border) - (run > border)


class _Cursor:
    """Reads rows `start` to `stop` of a run, block by block."""

    def __init__(self, run: _Run, keys: SortKeys, start: int, stop: int) -> None:
        self._run = run
        self._keys = keys
        self._row = start
        self._stop = stop
        self._next = bisect_right(run.blocks, start, key=lambda block: block.start) - 1
        self._held: pa.RecordBatch | None = None
        self._levels: list[Level] = []
        self._at = 0
        self.last: Key = ()

    def load(self) -> bool:
        """Holds rows afterwards, unless there are none left."""
        if self._held is not None and self._at < self._held.num_rows:
            return True
        self._held = None
        if self._row >= self._stop:
            return False
        block = self._run.blocks[self._next]
        self._next += 1
        skipped = self._row - block.start
        count = min(block.start + block.rows, self._stop) - self._row
        self._held = self._run.spill.read(block).slice(skipped, count)
        self._levels = self._keys.levels(self._held)
        self._row += count
        self._at = 0
        self.last = key_of(self._levels, count - 1)
        return True

    def up_to(self, bound: Key) -> tuple[pa.RecordBatch, list[Level]]:
        """Takes the rows that are not above the bound."""
        assert self._held is not None, "load comes first"
        rows = self._held.num_rows
        end = (
            rows
            if self.last <= bound
            else bisect_right(range(rows), bound, self._at, key=lambda one: key_of(self._levels, one))
        )
        start, self._at = self._at, end
        levels: list[Level] = [
            level[start:end] if isinstance(level, np.ndarray) else level.slice(start, end - start)
            for level in self._levels
        ]
        return self._held.slice(start, end - start), levels


def _combined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of all; column by column, so that no more than one column is held twice."""
    if len(batches) == 1:
        return batches.pop()
    columns = [list(same) for same in zip(*(batch.columns for batch in batches), strict=True)]
    batches.clear()
    arrays: list[pa.Array] = []
    for column in columns:
        arrays.append(pa.concat_arrays(column))
        column.clear()
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _concatenated(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.concat_arrays(list(same)) for same in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _take(rows: pa.RecordBatch, order: npt.NDArray[np.intp]) -> pa.RecordBatch:
    return rows.take(pa.array(order))


def _taken(rows: pa.RecordBatch, order: npt.NDArray[np.intp]) -> Iterator[pa.RecordBatch]:
    for start, stop in _cuts(rows, _BATCH_BYTES, len(order)):
        yield _take(rows, order[start:stop])


def _cuts(rows: pa.RecordBatch, size: int, count: int | None = None) -> Iterator[tuple[int, int]]:
    """Slices of about `size` bytes, by the mean size of a row."""
    total = rows.num_rows if count is None else count
    mean = max(1, rows.nbytes // max(rows.num_rows, 1))
    step = max(1, size // mean)
    for start in range(0, total, step):
        yield start, min(start + step, total)


def _halved(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Slices of no more than twice `size` bytes, or of one row. Sorted rows are not of like size: those of one key may
    be the large ones, and a merge holds a block of every run at once."""
    if batch.num_rows < 2 or batch.nbytes <= 2 * size:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half), size)
    yield from _halved(batch.slice(half), size)
