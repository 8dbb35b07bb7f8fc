"""Sorting a table of small Parquet files: our whole command beside DuckDB's raw sorted copies, and Spark's procedure.

Both in memory and under a limit that makes them spill. DuckDB has no z-order: beside ours, it sorts by the same columns
one after the other, which is less work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.binpack import TABLE, TARGET_BYTES, raw_copy, small_files
from benchmarks.copies import SmallFiles
from benchmarks.peers import LocalSpark, spark_jars
from benchmarks.running import Benchmark, Contender, Ratio

IN_MEMORY = 8_000_000_000
LEAST_MEMORY = 200_000_000
COLUMNS = "city, at"
ORDERS = {"sort": COLUMNS, "zorder": f"zorder({COLUMNS})"}
"""As the procedure takes them, by strategy."""


def benchmark(work: Path, *, zorder: bool, files: int, rows: int, peers: bool, say: Callable[[str], None]) -> Benchmark:
    """Works on the table of the bin-pack benchmark. `peers`: beside Spark, where it runs."""
    table = small_files(work, nested=False, files=files, rows=rows, say=say)
    strategy = "zorder" if zorder else "sort"
    # Arrow makes more than twice as many bytes of these; below the least, what writers gather alone is more.
    spilling = max(table.bytes // 2, LEAST_MEMORY)
    contenders: list[Contender] = []
    ratios: list[Ratio] = []
    for how, memory in (("in memory", IN_MEMORY), ("spilling", spilling)):
        mine, *others = _pair(table, strategy, how, memory)
        contenders += [mine, *others]
        names = tuple(other.name for other in others)
        ratios.append(Ratio(f"DuckDB raw sorted COPY / ours, {how}", mine.name, names, at_least=0.85))
    if peers and (jars := spark_jars(say)):
        arguments = {"run": str(table.run), "warehouse": str(table.warehouse), "jars": ",".join(map(str, jars))}
        asked = {**arguments, "strategy": strategy}
        contenders.append(Contender("Spark local", __name__, "start_spark", asked, table.fresh, table.clean))
        ratios += [
            Ratio(f"Spark local / {contender.name}", contender.name, ("Spark local",), at_least=2.0)
            for contender in contenders
            if contender.name.startswith("ours")
        ]
    return Benchmark(
        name=strategy,
        title=f"{'Z-order' if zorder else 'Sort'} {files} small Parquet files",
        sizes={
            "files": files,
            "bytes": table.bytes,
            "rows": files * rows,
            "order": ORDERS[strategy],
            "target_file_size_bytes": TARGET_BYTES,
            "codec": "zstd 3",
        },
        contenders=contenders,
        ratios=ratios,
        inputs=table.inputs,
        memory_limit_mb=spilling / 1e6,
        limited="ours, spilling",
    )


def _pair(table: SmallFiles, strategy: str, how: str, memory: int) -> list[Contender]:
    """Ours, and DuckDB's two ways to write, under the same limit."""
    fresh = partial(table.fresh, memory)
    asked = {"config": table.config, "strategy": strategy}
    shared = {"inputs": [str(path) for path in table.inputs], "folder": str(table.run), "memory": memory}
    return [
        Contender(f"ours, {how}", __name__, "start_ours", asked, fresh, table.clean),
        *(
            Contender(
                f"DuckDB, {how}, {'target size' if split else 'one file'}",
                __name__,
                "start_duckdb",
                {**shared, "split": split},
                fresh,
                table.clean,
            )
            for split in (False, True)
        ),
    ]


def start_ours(config: str, strategy: str) -> Callable[[], dict[str, Any]]:
    """The whole command: plan, read, sort, write, commit, verify."""
    options = {"target-file-size-bytes": str(TARGET_BYTES), "rewrite-all": "true"}
    return ours.start(config, TABLE, "rewrite_data_files", options, strategy, ORDERS[strategy])


def start_duckdb(inputs: list[str], folder: str, memory: int, split: bool) -> Callable[[], dict[str, Any]]:
    """COPY with DuckDB's own defaults, but for the limit."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET memory_limit = '{memory}B'")
    connection.execute(f"SET temp_directory = '{folder}/spilled'")
    target = Path(folder) / ("duckdb" if split else "duckdb.parquet")
    return raw_copy(connection, f"SELECT * FROM read_parquet({inputs}) ORDER BY {_quoted(COLUMNS)}", target)


def _quoted(columns: str) -> str:
    """`at` is a word of DuckDB's own."""
    return ", ".join(f'"{column}"' for column in columns.split(", "))


def start_spark(run: str, warehouse: str, jars: str, strategy: str) -> Callable[[], dict[str, Any]]:
    """`rewrite_data_files` with its own defaults but for the target size, in a warm session."""
    spark = LocalSpark(run, jars, warehouse)
    spark.session.sql(f"SELECT count(*) FROM {TABLE}.files").collect()

    def work() -> dict[str, Any]:
        options = f"map('target-file-size-bytes', '{TARGET_BYTES}', 'rewrite-all', 'true')"
        call = (
            f"CALL main.system.rewrite_data_files(table => 'bench.small_files', strategy => 'sort', "
            f"sort_order => '{ORDERS[strategy]}', options => {options})"
        )
        counts = spark.session.sql(call).collect()[0].asDict()
        return {"files": counts["added_data_files_count"], "elsewhere_cpu_seconds": spark.cpu_seconds()}

    return work
