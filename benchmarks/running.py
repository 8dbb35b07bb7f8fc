"""Runs contenders in turn, each time in a fresh process, and takes medians."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ("seconds", "cpu_seconds", "startup_seconds", "startup_cpu_seconds", "idle_mb", "memory_mb")


@dataclass(frozen=True)
class Contender:
    """One side of a comparison. `function` of `module`: see child.py. `before` and `after`: around each run.

    `python`: the interpreter that has what the contender needs.
    """

    name: str
    module: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    python: str = sys.executable


@dataclass(frozen=True)
class Ratio:
    """`ours` against the fastest of `peers`. `at_least`/`at_most`: the target, None where it is only told.

    `at_least`: the peer's time over ours. `at_most`: our time over the peer's.
    """

    name: str
    ours: str
    peers: tuple[str, ...]
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Growth:
    """How time grows with size: the exponent of the power law through `points`, which are (size, contender).

    1 is linear, 2 quadratic; what a run costs however small it is makes it less, and the more so the smaller the sizes:
    the exponent between the two largest is told too, and has to meet the target as well.
    """

    name: str
    points: tuple[tuple[int, str], ...]
    at_most: float


@dataclass(frozen=True)
class Benchmark:
    """`sizes`: what is worked on. `inputs`: files brought into the page cache before each run.

    `memory_limit_mb`: what the contender `limited` was told to stay within.
    """

    name: str
    title: str
    sizes: dict[str, Any]
    contenders: Sequence[Contender]
    ratios: Sequence[Ratio]
    inputs: Sequence[Path] = ()
    memory_limit_mb: float | None = None
    limited: str | None = None
    growth: Growth | None = None


def run(benchmark: Benchmark, repeat: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Medians of `repeat` rounds, in each of which every contender runs once, and the ratios."""
    runs: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in benchmark.contenders}
    for number in range(1, repeat + 1):
        for contender in benchmark.contenders:
            contender.before()
            _level(benchmark.inputs)
            found = spawn(contender)
            contender.after()
            runs[contender.name].append(found)
            say(
                f"  {number}/{repeat} {contender.name:<28} {found['seconds']:8.3f} s"
                f"  cpu {found['cpu_seconds']:7.3f} s  start-up {found['startup_seconds']:6.2f} s"
                f"  memory {found['memory_mb']:6.0f} MB"
            )
    medians = {name: _medians(found) for name, found in runs.items()}
    result: dict[str, Any] = {
        "title": benchmark.title,
        "sizes": benchmark.sizes,
        "repeat": repeat,
        "contenders": medians,
        "ratios": [_ratio(ratio, medians) for ratio in benchmark.ratios],
    }
    if benchmark.growth is not None:
        result["growth"] = _growth(benchmark.growth, medians)
    if benchmark.limited is not None and benchmark.memory_limit_mb is not None:
        most = max(found["memory_mb"] for found in runs[benchmark.limited])
        result["memory"] = {
            "contender": benchmark.limited,
            "limit_mb": benchmark.memory_limit_mb,
            "most_mb": most,
            "met": most <= benchmark.memory_limit_mb,
        }
    return result


def spawn(contender: Contender) -> dict[str, Any]:
    """One run in a fresh process. Raises RuntimeError with the process's own words where it fails."""
    command = [contender.python, "-m", "benchmarks.child", contender.module, contender.function]
    done = subprocess.run(
        [*command, json.dumps(contender.arguments), repr(time.time())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{contender.name} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _level(inputs: Iterable[Path]) -> None:
    """The same start for everybody: nothing left to write back, inputs in the page cache."""
    os.sync()
    for path in inputs:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def _medians(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: round(statistics.median(found[name] for found in runs), 4) for name in FIGURES}
    return {**figures, "all_seconds": [round(found["seconds"], 4) for found in runs], "facts": runs[-1]["facts"]}


def _ratio(ratio: Ratio, medians: dict[str, dict[str, Any]]) -> dict[str, Any]:
    ours = medians[ratio.ours]
    fastest = min(ratio.peers, key=lambda peer: medians[peer]["seconds"])
    least_cpu = min(medians[peer]["cpu_seconds"] for peer in ratio.peers)
    value = medians[fastest]["seconds"] / ours["seconds"]
    cpu = least_cpu / ours["cpu_seconds"] if ours["cpu_seconds"] else 0.0
    if ratio.at_most is not None:
        value, cpu = 1 / value, 1 / cpu if cpu else 0.0
    result: dict[str, Any] = {"name": ratio.name, "peer": fastest, "value": round(value, 3), "cpu_value": round(cpu, 3)}
    if ratio.at_least is not None:
        result |= {"at_least": ratio.at_least, "met": value >= ratio.at_least}
    if ratio.at_most is not None:
        result |= {"at_most": ratio.at_most, "met": value <= ratio.at_most}
    return result


def _growth(growth: Growth, medians: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Least squares through the logarithms, of all points and of the last two."""
    exponent, of_cpu = (_exponent(growth.points, medians, figure) for figure in ("seconds", "cpu_seconds"))
    last, last_of_cpu = (_exponent(growth.points[-2:], medians, figure) for figure in ("seconds", "cpu_seconds"))
    return {
        "name": growth.name,
        "exponent": round(exponent, 3),
        "cpu_exponent": round(of_cpu, 3),
        "last_exponent": round(last, 3),
        "last_cpu_exponent": round(last_of_cpu, 3),
        "at_most": growth.at_most,
        "met": max(exponent, last) <= growth.at_most,
    }


def _exponent(points: Sequence[tuple[int, str]], medians: dict[str, dict[str, Any]], figure: str) -> float:
    sizes = [math.log(size) for size, _ in points]
    return statistics.linear_regression(sizes, [math.log(max(medians[name][figure], 1e-4)) for _, name in points])[0]
