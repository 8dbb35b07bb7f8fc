"""`python -m benchmarks`: runs, prints medians and ratios, writes results.json and the docs' figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    binpack,
    definitions,
    evidence,
    expiry,
    growth,
    health,
    large,
    layouts,
    machine,
    manifests,
    report,
    tick,
    untracked,
)
from benchmarks.running import ROOT, Benchmark, run

Maker = Callable[[], Benchmark | None]


@dataclass(frozen=True)
class Size:
    """How much the benchmarks work on. `rows`: of one of `files`. `base_…`: of the smallest table whose growth is told.

    `tables`: of each of `databases`; `watched_tables`: of all databases. `large_memory`: a limit, bytes.
    """

    files: int
    rows: int
    manifests: int
    snapshots: int
    objects: int
    databases: int
    tables: int
    watched_tables: int
    large_files: int
    large_memory: int
    base_files: int
    base_manifests: int
    base_snapshots: int
    factors: tuple[int, ...] = (1, 10, 100)

    def times(self, base: int) -> tuple[int, ...]:
        """Sizes of tables whose growth is told."""
        return tuple(base * factor for factor in self.factors)


FULL = Size(2000, 10_500, 1000, 1000, 1_000_000, 100, 1000, 1000, 1900, 1_000_000_000, 20, 20, 15)
SMALL = Size(200, 8600, 200, 200, 100_000, 10, 20, 200, 190, 300_000_000, 10, 10, 15)
TINY = Size(20, 500, 20, 80, 20_000, 4, 5, 20, 2, 300_000_000, 5, 3, 15, (1, 2, 4))


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, also where a target is missed; a contender that fails raises."""
    options = _options(arguments)
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    makers = _makers(work, small=options.small, tiny=options.tiny)
    names = options.only or list(makers)
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "load_before": machine.load(),
    }
    results = {}
    for name in names:
        _say(f"{name}:")
        benchmark = makers[name]()
        if benchmark is None:
            continue
        results[name] = run(benchmark, options.repeat, _say)
        print(report.table(results[name]), flush=True)
        report.save(options.results, "small" if options.small or options.tiny else "full", results, about)
    page = ROOT / "docs" / "benchmarks.md"
    if options.results == ROOT / "benchmarks" / "results.json" and page.exists():
        report.update_page(page, options.results)
    return 0


def _makers(work: Path, *, small: bool, tiny: bool) -> dict[str, Maker]:
    size = TINY if tiny else SMALL if small else FULL
    files, rows, peers = size.files, size.rows, not tiny
    objects = size.objects

    def layout(*, zorder: bool) -> Benchmark:
        return layouts.benchmark(work, zorder=zorder, files=files, rows=rows, peers=peers, say=_say)

    def large_table(*, sort: bool) -> Benchmark | None:
        return large.benchmark(work, sort=sort, files=size.large_files, memory=size.large_memory, say=_say)

    return {
        "binpack": lambda: binpack.benchmark(work, nested=False, files=files, rows=rows, peers=peers, say=_say),
        "binpack_nested": lambda: binpack.benchmark(
            work, nested=True, files=files // 2, rows=rows, peers=False, say=_say
        ),
        "sort": lambda: layout(zorder=False),
        "zorder": lambda: layout(zorder=True),
        "health": lambda: health.benchmark(work, manifests=size.manifests, files=10, say=_say),
        "tick": lambda: tick.benchmark(work, tables=size.watched_tables, say=_say),
        "expiry": lambda: expiry.benchmark(work, snapshots=size.snapshots, peers=peers, say=_say),
        "manifests": lambda: manifests.benchmark(work, manifests=size.manifests, files=100, peers=peers, say=_say),
        "evidence_local": lambda: evidence.benchmark(
            work, manifests=objects // 1000, files=1000, on_s3=False, say=_say
        ),
        "evidence_s3": lambda: evidence.benchmark(work, manifests=objects // 10000, files=1000, on_s3=True, say=_say),
        "untracked": lambda: untracked.benchmark(work, databases=size.databases, tables=size.tables, say=_say),
        "definitions": lambda: definitions.benchmark(work),
        "growth_binpack": lambda: growth.binpack(work, sizes=size.times(size.base_files), rows=rows, say=_say),
        "growth_sort": lambda: growth.sort(work, sizes=size.times(size.base_files), rows=rows, say=_say),
        "growth_health": lambda: growth.looks(work, sizes=size.times(size.base_manifests), say=_say),
        "growth_expiry": lambda: growth.expired(work, sizes=size.times(size.base_snapshots), say=_say),
        "growth_manifests": lambda: growth.rewritten_manifests(work, sizes=size.times(size.base_manifests), say=_say),
        "large_binpack": lambda: large_table(sort=False),
        "large_sort": lambda: large_table(sort=True),
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--small", action="store_true", help="less data: tells that the benchmarks run")
    parser.add_argument("--tiny", action="store_true", help="hardly any data, for tests")
    names = list(_makers(Path(), small=False, tiny=False))
    parser.add_argument("--only", action="append", choices=names, help="this benchmark alone (repeatable)")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which the median counts (default 5)")
    parser.add_argument("--work", type=Path, default=ROOT / "benchmarks" / "work", help="folder for data")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results.json")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
