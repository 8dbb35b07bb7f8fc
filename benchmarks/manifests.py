"""Rewriting manifests: our whole command beside Spark's procedure and zamboni's rewriter.

The data files do not exist: nobody here opens one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.copies import Copies
from benchmarks.health import TABLE, make
from benchmarks.peers import ZAMBONI, LocalSpark, environment, spark_jars
from benchmarks.running import Benchmark, Contender, Ratio


def many_manifests(work: Path, manifests: int, files: int, say: Callable[[str], None]) -> Copies:
    """The table, made where it is not there yet. `files`: in each manifest."""

    def made(folder: Path) -> None:
        make(folder, manifests=manifests, files=files)

    return Copies(work / f"manifests-{manifests}x{files}", made).ready(f"{manifests} manifests of {files} files", say)


def benchmark(work: Path, *, manifests: int, files: int, peers: bool, say: Callable[[str], None]) -> Benchmark:
    """`files`: in each manifest. `peers`: beside Spark and zamboni, where they run."""
    table = many_manifests(work, manifests, files, say)
    contenders = [Contender("ours", __name__, "start_ours", {"config": table.config}, table.fresh)]
    ratios = []
    if peers and (jars := spark_jars(say)):
        arguments = {"run": str(table.run), "jars": ",".join(map(str, jars))}
        contenders.append(Contender("Spark local", __name__, "start_spark", arguments, table.fresh))
        ratios.append(Ratio("Spark local / ours", "ours", ("Spark local",), at_least=3.0))
    if peers and (python := environment(work / "zamboni", ZAMBONI, say)):
        arguments = {"run": str(table.run)}
        contenders.append(
            Contender("zamboni", __name__, "start_zamboni", arguments, table.fresh, python=str(python)),
        )
        ratios.append(Ratio("zamboni / ours", "ours", ("zamboni",)))
    written = table.metadata()
    return Benchmark(
        name="manifests",
        title=f"Rewrite {manifests:,} manifests of {manifests * files:,} files",
        sizes={
            "manifests": manifests,
            "files": manifests * files,
            "manifest_bytes": sum(path.stat().st_size for path in written),
        },
        contenders=contenders,
        ratios=ratios,
        inputs=written,
    )


def start_ours(config: str) -> Callable[[], dict[str, Any]]:
    """The whole command: plan, read, write, commit, and compare every entry."""
    return ours.start(config, TABLE, "rewrite_manifests")


def start_spark(run: str, jars: str) -> Callable[[], dict[str, Any]]:
    """`rewrite_manifests` with its own defaults, on as many threads as there are cores, in a warm session."""
    spark = LocalSpark(run, jars)
    spark.session.sql(f"SELECT count(*) FROM {TABLE}.manifests").collect()

    def work() -> dict[str, Any]:
        counts = spark.session.sql("CALL main.system.rewrite_manifests('bench.many_files')").collect()[0].asDict()
        return {**counts, "elsewhere_cpu_seconds": spark.cpu_seconds()}

    return work


def start_zamboni(run: str) -> Callable[[], dict[str, Any]]:
    """Its rewriter with its own defaults; in the Python that has it."""
    from pyiceberg.catalog.sql import SqlCatalog

    # By name: type checkers look at this project's environment, which has none.
    rewriter = importlib.import_module("zamboni.manifests").ManifestRewriter()
    catalog = SqlCatalog("main", uri=f"sqlite:///{run}/catalog.db", warehouse=f"file://{run}/warehouse")
    catalog.list_namespaces()

    def work() -> dict[str, Any]:
        result = rewriter.run(catalog.load_table("bench.many_files"))
        if result.manifests_after >= result.manifests_before:
            raise RuntimeError(f"nothing rewritten: {result.plan.skipped_reason}")
        return {"rewritten_manifests_count": result.manifests_before, "added_manifests_count": result.manifests_after}

    return work
