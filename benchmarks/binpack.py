"""Bin-packing small Parquet files: our whole command beside DuckDB's and polars' raw copies of the same files.

Ours plans, rewrites, commits and verifies; the raw ones read and write, in the fastest ordinary way each of them has:
into one file, and into files of the target size; the faster one counts. Tools that compact tables do all that ours
does: Spark's procedure, zamboni, and iceberg-compaction behind a REST catalog, since it knows no other that fits here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.copies import MEMORY_LIMIT, SmallFiles
from benchmarks.peers import COMPACTION, ZAMBONI, LocalSpark, cpu_seconds, environment, spark_jars, start_rest
from benchmarks.running import Benchmark, Contender, Ratio

TARGET_BYTES = 128 << 20
COMMITS = 10
TABLE = "main.bench.small_files"


def small_files(work: Path, *, nested: bool, files: int, rows: int, say: Callable[[str], None]) -> SmallFiles:
    """The table, made where it is not there yet. `rows`: of one file."""
    kind = "nested" if nested else "flat"

    def made(folder: Path) -> None:
        make(folder, _nested if nested else _flat, files=files, rows=rows)

    table = SmallFiles(work / f"binpack-{kind}-{files}x{rows}", made)
    return table.ready(f"{files} {kind} files of {rows} rows with PyIceberg", say)


def benchmark(work: Path, *, nested: bool, files: int, rows: int, peers: bool, say: Callable[[str], None]) -> Benchmark:
    """Makes the table where it is not there yet. `rows`: of one file. `peers`: tools that compact, where they run."""
    table = small_files(work, nested=nested, files=files, rows=rows, say=say)
    kind = "nested" if nested else "flat"
    inputs = table.inputs

    def raw(name: str, function: str, *, split: bool) -> Contender:
        arguments = {"inputs": [str(path) for path in inputs], "folder": str(table.run), "split": split}
        return Contender(name, __name__, function, arguments, table.fresh, table.clean)

    tools, tool_ratios = _tools(work, table, say) if peers else ((), ())
    return Benchmark(
        name="binpack" if not nested else "binpack_nested",
        title=f"Bin-pack {files} small {kind} Parquet files",
        sizes={
            "files": len(inputs),
            "bytes": table.bytes,
            "rows": files * rows,
            "target_file_size_bytes": TARGET_BYTES,
            "codec": "zstd 3",
        },
        contenders=(
            Contender("ours", __name__, "start_ours", {"config": table.config}, table.fresh, table.clean),
            raw("DuckDB COPY, one file", "start_duckdb", split=False),
            raw("DuckDB COPY, target size", "start_duckdb", split=True),
            raw("polars sink, one file", "start_polars", split=False),
            raw("polars sink, target size", "start_polars", split=True),
            *tools,
        ),
        ratios=(
            Ratio(
                "DuckDB raw COPY / ours",
                "ours",
                ("DuckDB COPY, one file", "DuckDB COPY, target size"),
                at_least=None if nested else 1.0,
            ),
            Ratio(
                "polars raw scan to sink / ours",
                "ours",
                ("polars sink, one file", "polars sink, target size"),
                at_least=None if nested else 0.7,
            ),
            *tool_ratios,
        ),
        inputs=inputs,
        memory_limit_mb=MEMORY_LIMIT / 1e6,
        limited="ours",
    )


def _tools(work: Path, table: SmallFiles, say: Callable[[str], None]) -> tuple[list[Contender], list[Ratio]]:
    """Those that can run here. Each works on the same table: its catalog is copied, its files are only added to."""
    contenders: list[Contender] = []
    ratios: list[Ratio] = []
    arguments = {"run": str(table.run), "warehouse": str(table.warehouse)}
    around = (table.fresh, table.clean)
    jars = spark_jars(say)
    if jars:
        name = "Spark rewrite_data_files, local"
        settings = {**arguments, "jars": ",".join(map(str, jars))}
        contenders.append(Contender(name, __name__, "start_spark", settings, *around))
        ratios.append(Ratio("Spark local / ours", "ours", (name,), at_least=3.0))
    if python := environment(work / "zamboni", ZAMBONI, say):
        name = "zamboni"
        contenders.append(Contender(name, __name__, "start_zamboni", arguments, *around, python=str(python)))
        ratios.append(Ratio("zamboni / ours", "ours", (name,), at_least=1.5))
    if jars and (python := environment(work / "iceberg-compaction", COMPACTION, say)):
        name = "iceberg-compaction"
        contenders.append(Contender(name, __name__, "start_compaction", arguments, *around, python=str(python)))
        ratios.append(Ratio("iceberg-compaction / ours", "ours", (name,), at_least=1.2))
    return contenders, ratios


def start_spark(run: str, warehouse: str, jars: str) -> Callable[[], dict[str, Any]]:
    """`rewrite_data_files` with its own defaults but for the target size, in a warm session."""
    spark = LocalSpark(run, jars, warehouse)
    spark.session.sql(f"SELECT count(*) FROM {TABLE}.files").collect()

    def work() -> dict[str, Any]:
        options = f"map('target-file-size-bytes', '{TARGET_BYTES}')"
        call = f"CALL main.system.rewrite_data_files(table => 'bench.small_files', options => {options})"
        counts = spark.session.sql(call).collect()[0].asDict()
        return {"files": counts["added_data_files_count"], "elsewhere_cpu_seconds": spark.cpu_seconds()}

    return work


def start_zamboni(run: str, warehouse: str) -> Callable[[], dict[str, Any]]:
    """Its compactor with its own defaults but for the target size; in the Python that has it."""
    from importlib import import_module

    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("main", uri=f"sqlite:///{run}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.list_namespaces()
    session = import_module("zamboni.session").CatalogSession.from_catalog(catalog)
    config = import_module("zamboni.config").CompactionConfig(target_file_size_bytes=TARGET_BYTES)
    compactor = import_module("zamboni.compactor").TableCompactor(session, "bench.small_files", config)

    def work() -> dict[str, Any]:
        result = compactor.execute()
        return {"rewritten": result.rewritten_data_files}

    return work


def start_compaction(run: str, warehouse: str) -> Callable[[], dict[str, Any]]:
    """Its compaction of all small files with its own defaults but for the target size."""
    from importlib import import_module

    tool = import_module("iceberg_compaction")
    server, uri = start_rest(run, warehouse)
    catalog = tool.RestCatalog("main", uri=uri)
    config = tool.CompactionConfig(strategy="full", target_file_size_bytes=TARGET_BYTES)
    compaction = tool.Compaction(catalog, "bench.small_files", config)

    def work() -> dict[str, Any]:
        before = cpu_seconds(server.pid)
        result = compaction.run()
        used = cpu_seconds(server.pid) - before
        server.kill()
        return {
            "files": result.output_files_count,
            "rewritten": result.input_files_count,
            "elsewhere_cpu_seconds": used,
        }

    return work


def start_ours(config: str) -> Callable[[], dict[str, Any]]:
    """The whole command: plan, rewrite, commit, verify."""
    return ours.start(config, TABLE, "rewrite_data_files", {"target-file-size-bytes": str(TARGET_BYTES)})


def start_duckdb(inputs: list[str], folder: str, split: bool) -> Callable[[], dict[str, Any]]:
    """COPY with DuckDB's own defaults."""
    import duckdb

    target = Path(folder) / ("duckdb" if split else "duckdb.parquet")
    return raw_copy(duckdb.connect(), f"SELECT * FROM read_parquet({inputs})", target)


def raw_copy(connection: Any, query: str, target: Path) -> Callable[[], dict[str, Any]]:
    """Into one file, where `target` has a file's name, else into files of the target size."""
    options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3"
    if not target.suffix:
        options += f", FILE_SIZE_BYTES {TARGET_BYTES}"

    def work() -> dict[str, Any]:
        connection.execute(f"COPY ({query}) TO '{target}' ({options})")
        return _written(target)

    return work


def start_polars(inputs: list[str], folder: str, split: bool) -> Callable[[], dict[str, Any]]:
    """Scan to sink with polars' own defaults."""
    import polars

    target = Path(folder) / ("polars" if split else "polars.parquet")

    def work() -> dict[str, Any]:
        frame = polars.scan_parquet(inputs)
        if split:
            sizes = [Path(path).stat().st_size for path in inputs]
            # As many files as ours writes, by its estimate of bytes.
            where: Any = polars.PartitionBy(target, approximate_bytes_per_file=_in_memory(inputs, sizes))
            frame.sink_parquet(where, compression="zstd", compression_level=3, mkdir=True)
        else:
            frame.sink_parquet(target, compression="zstd", compression_level=3)
        return _written(target)

    return work


def _in_memory(inputs: list[str], sizes: list[int]) -> int:
    """Bytes in memory that make a file of the target size, guessed from the first input."""
    import polars

    return int(TARGET_BYTES * polars.read_parquet(inputs[0]).estimated_size() / sizes[0])


def _written(target: Path) -> dict[str, Any]:
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


Rows = Callable[[Any, int, int], Any]
"""From a source of random numbers, the first row's number and the number of rows: an Arrow table."""


def make(folder: Path, data: Rows, *, files: int, rows: int, commits: int = COMMITS) -> None:
    """A table in a SQLite catalog, appended to in a few commits of many files each."""
    import numpy as np
    from pyiceberg.catalog.sql import SqlCatalog

    (folder / "warehouse").mkdir(parents=True)
    catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("bench")
    random = np.random.default_rng(1)
    table: Any = None
    at_once = -(-files // commits)
    for start in range(0, files, at_once):
        count = min(at_once, files - start)
        part = data(random, start * rows, count * rows)
        if table is None:
            table = catalog.create_table("bench.small_files", part.schema, properties={"format-version": "2"})
        # PyIceberg cuts by bytes in memory, in whole rows.
        with table.transaction() as change:
            size = int(part.nbytes / part.num_rows * (rows + 0.5))
            change.set_properties({"write.target-file-size-bytes": str(size)})
        table.append(part)
    with table.transaction() as change:
        change.remove_properties("write.target-file-size-bytes")


def _flat(random: Any, start: int, rows: int) -> Any:
    import numpy as np
    import pyarrow as pa

    cities = np.array([f"city-{number:04d}" for number in range(2000)])
    return pa.table(
        {
            "id": np.arange(start, start + rows),
            "city": cities[random.integers(0, 2000, rows)],
            "note": [f"note {number:x} of order" for number in random.integers(0, 1 << 60, rows)],
            "amount": random.normal(size=rows),
            "price": np.round(random.normal(size=rows), 2),
            "at": pa.array(1_700_000_000_000_000 + random.integers(0, 10**12, rows)).cast(pa.timestamp("us", "UTC")),
            "quantity": random.integers(0, 100, rows),
            "session": random.integers(0, 1 << 40, rows),
            "score": random.normal(size=rows),
        }
    )


def _nested(random: Any, start: int, rows: int) -> Any:
    import numpy as np
    import pyarrow as pa

    flat = _flat(random, start, rows)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 4, rows))]).astype(np.int32)
    tags = pa.array(np.array([f"tag-{number}" for number in range(300)])[random.integers(0, 300, offsets[-1])])
    cents = pa.array(random.integers(0, 10**9, rows))
    address = pa.StructArray.from_arrays(
        [flat["city"].combine_chunks(), pa.array(random.integers(10_000, 99_999, rows).astype(np.int32))],
        names=["city", "zip"],
    )
    return (
        flat.drop_columns(["score", "session"])
        .append_column("tags", pa.ListArray.from_arrays(pa.array(offsets), tags))
        .append_column("address", address)
        .append_column("total", cents.cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 0)))
    )
