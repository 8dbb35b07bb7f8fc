"""A database's health from that of its tables, one after another: sums, and the worst tables alone are kept."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import dagster as dg

from lakehouse_maintenance.model.health import SIZE_BUCKETS, TableHealth
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.markdown import plain, table
from lakehouse_maintenance.orchestration.drawing import Bar, bar_chart, image
from lakehouse_maintenance.orchestration.naming import meta

T = TypeVar("T", "_Ranked", tuple[int, str])

MOST_ROWS = 200
"""Tables that the report names, worst first."""
MOST_BARS = 20
_LONGEST_ERROR = 300

_COUNTS = (
    "records",
    "data_files",
    "small_files",
    "delete_files",
    "deleted_rows",
    "snapshots",
    "expired_snapshots",
    "manifests",
    "metadata_files",
)
_SIZES = ("data_bytes", "manifest_bytes", "reclaimable_bytes")


@dataclass(order=True, slots=True)
class _Ranked:
    """Smallest first is healthiest first: what a bounded heap lets go."""

    rank: tuple[int, int, str]
    health: TableHealth = field(compare=False)


class DatabaseHealth:
    """Takes the tables in the order of their names; memory does not grow with their number."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tables = 0
        self.failed = 0
        self.due = 0
        self._sums: Counter[str] = Counter()
        self._histogram: Counter[str] = Counter()
        self._due_actions: Counter[str] = Counter()
        self._scores = 0
        self._least_score: int | None = None
        self._worst: list[_Ranked] = []
        self._largest: list[tuple[int, str]] = []
        self._version = hashlib.sha256()

    def add(self, health: TableHealth) -> None:
        """One table more; one with an error counts as failed and adds to no sum."""
        self.tables += 1
        _push(self._worst, _Ranked(_rank(health), health), MOST_ROWS)
        facts = (health.table, health.snapshot_id, health.snapshots, health.refs, health.error is None)
        self._version.update(repr(facts).encode())
        if health.error is not None:
            self.failed += 1
            return
        self.due += bool(health.due)
        self._scores += health.score
        self._least_score = health.score if self._least_score is None else min(self._least_score, health.score)
        self._due_actions.update(due.action for due in health.due)
        self._histogram.update(health.histogram)
        for name in (*_COUNTS, *_SIZES):
            self._sums[name] += getattr(health, name)
        if health.reclaimable_bytes:
            _push(self._largest, (health.reclaimable_bytes, health.table), MOST_BARS)

    @property
    def data_version(self) -> str:
        """The same while no table gets another snapshot, or loses one."""
        return self._version.hexdigest()[:32]

    def failures(self) -> Iterator[TableHealth]:
        """Tables that could not be measured, as far as the report names them."""
        return (ranked.health for ranked in self._ranked() if ranked.health.error is not None)

    def facts(self) -> dict[str, dg.MetadataValue]:
        """Numbers that Dagster plots over time, and the report."""
        measured = self.tables - self.failed
        facts: dict[str, dg.MetadataValue] = {
            meta("inventory"): dg.MetadataValue.md(self.report()),
            meta("tables"): dg.MetadataValue.int(self.tables),
            meta("tables_due"): dg.MetadataValue.int(self.due),
            meta("tables_failed"): dg.MetadataValue.int(self.failed),
            meta("bytes"): dg.MetadataValue.float(float(self._sums["data_bytes"])),
        }
        # Floats throughout: Dagster's interface does not plot whole numbers beyond 32 bits.
        facts |= {meta(name): dg.MetadataValue.float(float(self._sums[name])) for name in (*_COUNTS, *_SIZES)}
        if self._least_score is not None:
            facts[meta("score_min")] = dg.MetadataValue.int(self._least_score)
            facts[meta("score_mean")] = dg.MetadataValue.float(round(self._scores / measured, 1))
        return facts

    def report(self) -> str:
        """Markdown: sums, both charts, and the worst tables."""
        parts = [f"**{plain(self.name)}**", table(("database", "now"), self._summary())]
        if self._histogram:
            parts += ["**File sizes** (data files)", self._sizes_chart()]
        if self._largest:
            parts += ["**Reclaimable bytes by table**", *self._reclaimable()]
        ranked = [ranked.health for ranked in self._ranked()]
        if ranked:
            parts += ["**Tables, worst first**", table(_HEAD, map(_row, ranked))]
        if self.tables > len(ranked):
            parts.append(f"{self.tables - len(ranked):,} healthier tables are not shown.")
        return "\n\n".join(parts)

    def _summary(self) -> list[tuple[str, str]]:
        sums = self._sums
        due = ", ".join(f"{action} on {count:,}" for action, count in sorted(self._due_actions.items()))
        return [
            ("tables", f"{self.tables:,}"),
            ("due", f"{self.due:,}" + (f" ({due})" if due else "")),
            ("could not be measured", f"{self.failed:,}"),
            ("data files", f"{sums['data_files']:,} ({format_size(sums['data_bytes'])})"),
            ("small files", f"{sums['small_files']:,}"),
            ("delete files", f"{sums['delete_files']:,}"),
            ("snapshots", f"{sums['snapshots']:,} ({sums['expired_snapshots']:,} could expire)"),
            ("reclaimable", format_size(sums["reclaimable_bytes"])),
            ("worst score", "none" if self._least_score is None else f"{self._least_score} of 100"),
        ]

    def _sizes_chart(self) -> str:
        counts = [(label, self._histogram[label]) for label, _ in SIZE_BUCKETS]
        told = ", ".join(f"{count:,} of {_words(label)}" for label, count in counts)
        return image(bar_chart([Bar(label, count, f"{count:,}") for label, count in counts]), f"data files: {told}")

    def _reclaimable(self) -> list[str]:
        ranked = sorted(self._largest, key=lambda one: (-one[0], one[1]))
        bars = [Bar(str(at), size, format_size(size)) for at, (size, _) in enumerate(ranked, 1)]
        rows = ((at, name, format_size(size)) for at, (size, name) in enumerate(ranked, 1))
        return [
            image(bar_chart(bars), "bytes that expiry would free, largest first; the table below names the bars"),
            table(("bar", "table", "reclaimable"), rows),
        ]

    def _ranked(self) -> list[_Ranked]:
        return sorted(self._worst, key=lambda ranked: _worst_first(ranked.health))


def _rank(health: TableHealth) -> tuple[int, int, str]:
    """Grows with how much a table needs to be seen."""
    return (health.error is not None, -health.score, health.table)


def _worst_first(health: TableHealth) -> tuple[bool, int, str]:
    return (health.error is None, health.score, health.table)


def _push(heap: list[T], item: T, most: int) -> None:
    if len(heap) < most:
        heapq.heappush(heap, item)
    else:
        heapq.heappushpop(heap, item)


def _words(label: str) -> str:
    return label.replace(">=", "at least ").replace("<", "under ")


_HEAD = (
    "score",
    "table",
    "due",
    "data files",
    "small",
    "delete files",
    "size",
    "snapshots",
    "could expire",
    "manifests",
    "reclaimable",
)


def _row(health: TableHealth) -> tuple[object, ...]:
    if health.error is not None:
        told = health.error if len(health.error) <= _LONGEST_ERROR else health.error[:_LONGEST_ERROR] + "…"
        return ("error", health.table, f"could not be measured: {told}", *[""] * (len(_HEAD) - 3))
    return (
        health.score,
        health.table,
        ", ".join(due.action for due in health.due),
        f"{health.data_files:,}",
        f"{health.small_files:,}",
        f"{health.delete_files:,}",
        format_size(health.data_bytes),
        f"{health.snapshots:,}",
        f"{health.expired_snapshots:,}",
        f"{health.manifests:,}",
        format_size(health.reclaimable_bytes),
    )
