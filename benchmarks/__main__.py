"""`python -m benchmarks`: runs, prints medians and ratios, writes results.json and the docs' figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import binpack, definitions, evidence, expiry, health, machine, report, untracked
from benchmarks.running import ROOT, Benchmark, run

Maker = Callable[[], Benchmark]


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
        results[name] = run(benchmark, options.repeat, _say)
        print(report.table(results[name]), flush=True)
        report.save(options.results, "small" if options.small or options.tiny else "full", results, about)
    page = ROOT / "docs" / "benchmarks.md"
    if options.results == ROOT / "benchmarks" / "results.json" and page.exists():
        report.update_page(page, options.results)
    return 0


def _makers(work: Path, *, small: bool, tiny: bool) -> dict[str, Maker]:
    files, rows, manifests, per_manifest, snapshots, objects = (2000, 10_500, 1000, 10, 1000, 1_000_000)
    databases, tables = 100, 1000
    if small:
        files, rows, manifests, snapshots, objects = 200, 8600, 200, 200, 100_000
        databases, tables = 10, 20
    if tiny:
        files, rows, manifests, snapshots, objects = 20, 500, 20, 80, 20_000
        databases, tables = 4, 5
    return {
        "binpack": lambda: binpack.benchmark(work, nested=False, files=files, rows=rows, peers=not tiny, say=_say),
        "binpack_nested": lambda: binpack.benchmark(
            work, nested=True, files=files // 2, rows=rows, peers=False, say=_say
        ),
        "health": lambda: health.benchmark(work, manifests=manifests, files=per_manifest, say=_say),
        "expiry": lambda: expiry.benchmark(work, snapshots=snapshots, peers=not tiny, say=_say),
        "evidence_local": lambda: evidence.benchmark(
            work, manifests=objects // 1000, files=1000, on_s3=False, say=_say
        ),
        "evidence_s3": lambda: evidence.benchmark(work, manifests=objects // 10000, files=1000, on_s3=True, say=_say),
        "untracked": lambda: untracked.benchmark(work, databases=databases, tables=tables, say=_say),
        "definitions": lambda: definitions.benchmark(work),
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
