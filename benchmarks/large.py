"""A table of ten times the memory limit, compacted and sorted: what the limit is worth.

Its inputs are of some megabytes each. Takes about four times the table's bytes on disk: the table, what is written,
and while rows are sorted, what is spilled.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.binpack import TABLE, TARGET_BYTES, make
from benchmarks.copies import SmallFiles
from benchmarks.layouts import ORDERS
from benchmarks.running import Benchmark, Contender

ROWS = 100_000
BYTES_A_ROW = 53
"""In a compressed file."""
DISK_NEEDED = 4
_FILES_A_COMMIT = 20


def benchmark(work: Path, *, sort: bool, files: int, memory: int, say: Callable[[str], None]) -> Benchmark | None:
    """Makes the table where it is not there yet. `memory`: the limit, bytes. None where the disk is too small."""
    table = SmallFiles(work / f"large-{files}", partial(_make, files=files))
    expected = files * ROWS * BYTES_A_ROW
    made = (table.folder / "ready").exists()
    needed, free = expected * (DISK_NEEDED - made), shutil.disk_usage(work).free
    if free < needed:
        say(f"  left out: needs {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free")
        return None
    table.ready(f"{files} files of {ROWS} rows with PyIceberg", say)
    asked = {"config": table.config, "strategy": "sort" if sort else None}
    contender = Contender("ours", __name__, "start_ours", asked, partial(table.fresh, memory), table.clean)
    return Benchmark(
        name="large_sort" if sort else "large_binpack",
        title=f"{'Sort' if sort else 'Bin-pack'} a table of {table.bytes / memory:.0f} times the memory limit",
        sizes={
            "files": files,
            "bytes": table.bytes,
            "rows": files * ROWS,
            "memory_limit_bytes": memory,
            "target_file_size_bytes": TARGET_BYTES,
        },
        contenders=(contender,),
        ratios=(),
        inputs=table.inputs,
        memory_limit_mb=memory / 1e6,
        limited=contender.name,
    )


def start_ours(config: str, strategy: str | None) -> Callable[[], dict[str, Any]]:
    """The whole command: plan, rewrite, commit, verify."""
    options = {"target-file-size-bytes": str(TARGET_BYTES), "rewrite-all": "true"}
    order = ORDERS[strategy] if strategy is not None else None
    return ours.start(config, TABLE, "rewrite_data_files", options, strategy, order)


def _make(folder: Path, *, files: int) -> None:
    make(folder, _rows, files=files, rows=ROWS, commits=-(-files // _FILES_A_COMMIT))


def _rows(random: Any, start: int, rows: int) -> Any:
    """Like those of the small files, but made without a step for each row."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    cities = pa.array([f"city-{number:04d}" for number in range(2000)])
    notes = pa.array(random.integers(0, 1 << 60, rows)).cast(pa.string())
    return pa.table(
        {
            "id": np.arange(start, start + rows),
            "city": cities.take(pa.array(random.integers(0, 2000, rows))),
            "note": pc.binary_join_element_wise("note", notes, "of order", " "),
            "amount": random.normal(size=rows),
            "price": np.round(random.normal(size=rows), 2),
            "at": pa.array(1_700_000_000_000_000 + random.integers(0, 10**12, rows)).cast(pa.timestamp("us", "UTC")),
            "quantity": random.integers(0, 100, rows),
            "session": random.integers(0, 1 << 40, rows),
            "score": random.normal(size=rows),
        }
    )
