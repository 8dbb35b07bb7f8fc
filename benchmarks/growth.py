"""How our own time grows: each action at one, ten and a hundred times some size, beside itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import expiry, health, layouts, manifests
from benchmarks.binpack import small_files
from benchmarks.copies import MEMORY_LIMIT, Copies
from benchmarks.running import Benchmark, Contender, Growth

EXPONENT = 1.1
FILES_A_MANIFEST = 10

Sizes = Sequence[int]
"""Of the tables, smallest first."""
Sized = tuple[int, Contender, Sequence[Path]]
"""Size, contender, inputs."""


def binpack(work: Path, *, sizes: Sizes, rows: int, say: Callable[[str], None]) -> Benchmark:
    """`sizes`: files, of `rows` each."""
    tables = {n: small_files(work, nested=False, files=n, rows=rows, say=say) for n in sizes}
    return _benchmark(
        "binpack",
        "files",
        [
            (size, _ours(size, "benchmarks.binpack", {"config": table.config}, table.fresh, table.clean), table.inputs)
            for size, table in tables.items()
        ],
    )


def sort(work: Path, *, sizes: Sizes, rows: int, say: Callable[[str], None]) -> Benchmark:
    """The same tables; the limit lets the smaller ones be sorted in memory, and makes the largest spill."""
    tables = {n: small_files(work, nested=False, files=n, rows=rows, say=say) for n in sizes}
    sized: list[Sized] = []
    for size, table in tables.items():
        asked = {"config": table.config, "strategy": "sort"}
        sized.append((size, _ours(size, layouts.__name__, asked, table.fresh, table.clean), table.inputs))
    return _benchmark("sort", "files", sized)


def looks(work: Path, *, sizes: Sizes, say: Callable[[str], None]) -> Benchmark:
    """First looks at tables' health. `sizes`: manifests."""
    return _of_metadata("health", health.__name__, {"exact": False}, _many_manifests(work, sizes, say))


def rewritten_manifests(work: Path, *, sizes: Sizes, say: Callable[[str], None]) -> Benchmark:
    """`sizes`: manifests."""
    return _of_metadata("manifests", manifests.__name__, {}, _many_manifests(work, sizes, say))


def expired(work: Path, *, sizes: Sizes, say: Callable[[str], None]) -> Benchmark:
    """`sizes`: snapshots, and manifests."""
    tables = {n: expiry.many_snapshots(work, n, say) for n in sizes}
    return _of_metadata("expiry", expiry.__name__, {}, tables)


def _many_manifests(work: Path, sizes: Sizes, say: Callable[[str], None]) -> dict[int, Copies]:
    return {n: manifests.many_manifests(work, n, FILES_A_MANIFEST, say) for n in sizes}


def _of_metadata(name: str, module: str, arguments: dict[str, object], tables: dict[int, Copies]) -> Benchmark:
    sized: list[Sized] = []
    for size, table in tables.items():
        asked = {"config": table.config, **arguments}
        sized.append((size, _ours(size, module, asked, table.fresh), table.metadata()))
    return _benchmark(name, "manifests", sized)


def _ours(
    size: int,
    module: str,
    arguments: dict[str, object],
    before: Callable[[], None],
    after: Callable[[], None] = lambda: None,
) -> Contender:
    return Contender(f"ours, {size:,}", module, "start_ours", arguments, before, after)


def _benchmark(name: str, what: str, sized: Sequence[Sized]) -> Benchmark:
    largest = sized[-1][0]
    return Benchmark(
        name=f"growth_{name}",
        title=f"Growth of {name} up to {largest:,} {what}",
        sizes={what: largest, "memory_limit_bytes": MEMORY_LIMIT},
        contenders=[contender for _, contender, _ in sized],
        ratios=(),
        inputs=[path for _, _, inputs in sized for path in inputs],
        growth=Growth(f"{name} by {what}", tuple((size, ours.name) for size, ours, _ in sized), at_most=EXPONENT),
    )
