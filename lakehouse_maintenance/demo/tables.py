"""The eleven tables of the demo lakehouse, each with one thing to show.

Rows come from seeded random numbers: the same scale gives the same rows. Sizes are small so that all of it fits a
laptop; tables that need well-sized files say so by their own `write.target-file-size-bytes`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from lakehouse_maintenance.demo.history import NewDeletes, NewFile, TableHistory
from lakehouse_maintenance.planning.blocks import ENABLED_PROPERTY

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

CATALOG = "demo"
REGIONS = ("africa", "americas", "asia", "europe")
WAREHOUSES = ("berlin", "lagos", "lima", "osaka")
_TARGET = "write.target-file-size-bytes"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What building a table needs. `now`: the moment that all histories lead up to. `scale`: of the file counts."""

    catalog: SqlCatalog
    warehouse: Path
    now: datetime
    scale: float

    def many(self, files: int) -> int:
        """So many files at scale 1, and never fewer than a few."""
        return max(3, round(files * self.scale))

    def times(self, commits: int, since: timedelta, until: timedelta = timedelta(minutes=10)) -> list[datetime]:
        """Evenly spread moments, from `since` ago to `until` ago."""
        step = (since - until) / max(commits - 1, 1)
        return [self.now - since + step * number for number in range(commits)]

    def create(
        self,
        identifier: str,
        columns: Mapping[str, IcebergType],
        *,
        partition: PartitionField | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> tuple[TableHistory, np.random.Generator]:
        """The new table, and its own source of random numbers."""
        fields = [
            NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(columns.items(), 1)
        ]
        seed = zlib.crc32(identifier.encode())
        history = TableHistory.create(
            self.catalog,
            identifier,
            self.warehouse.joinpath(*identifier.split(".")),
            Schema(*fields),
            created=self.now - timedelta(days=15),
            spec=UNPARTITIONED_PARTITION_SPEC if partition is None else PartitionSpec(partition),
            properties=properties,
            seed=seed,
        )
        return history, np.random.default_rng(seed)


def events(shop: Workshop) -> None:
    """Streaming: 50 commits of tiny files into day partitions, some of them late."""
    commits, files = 50, shop.many(48)
    columns = {
        "event_id": LongType(),
        "event_time": TimestamptzType(),
        "user_id": LongType(),
        "kind": StringType(),
        "amount": DoubleType(),
    }
    by_day = PartitionField(source_id=2, field_id=1000, transform=DayTransform(), name="event_time_day")
    table, rng = shop.create("analytics.events", columns, partition=by_day)
    numbers = _numbers()
    times = shop.times(commits, timedelta(days=7))
    for at in times:
        batch = []
        for index in range(files):
            is_late = index % 12 == 11 and _days(at) > _days(times[0])
            day = _days(at) - is_late
            count = int(rng.integers(20, 60))
            midnight = datetime.fromtimestamp(day * 86400, UTC)
            latest = midnight + timedelta(hours=24) if is_late else at
            rows = {
                "event_id": _take(numbers, count),
                "event_time": _times(rng, max(midnight, latest - timedelta(hours=6)), latest, count),
                "user_id": pa.array(rng.integers(1, 5000, count)),
                "kind": _words(rng, ("click", "view", "search", "buy"), count),
                "amount": _doubles(rng, count),
            }
            batch.append(NewFile(pa.table(rows), {"event_time_day": day}))
        table.append(at, batch)


def sessions(shop: Workshop) -> None:
    """Healthy: few, well-sized files."""
    columns = {"session_id": LongType(), "length": DoubleType(), "score": DoubleType()}
    table, rng = shop.create("analytics.sessions", columns, properties={_TARGET: "1MB"})
    for at in shop.times(4, timedelta(days=4)):
        table.append(at, [NewFile(_measurements(rng, "session_id", ("length", "score"), 50_000)) for _ in range(3)])


def page_views(shop: Workshop) -> None:
    """A few small files: not worth the work yet."""
    columns = {"view_id": LongType(), "page": StringType(), "user_id": LongType()}
    table, rng = shop.create("analytics.page_views", columns)
    numbers = _numbers()
    for at in shop.times(3, timedelta(days=2)):
        batch = []
        for _ in range(3):
            pages = _words(rng, ("/", "/cart", "/help", "/search"), 400)
            rows = {"view_id": _take(numbers, 400), "page": pages, "user_id": pa.array(rng.integers(1, 5000, 400))}
            batch.append(NewFile(pa.table(rows)))
        table.append(at, batch)


def orders(shop: Workshop) -> None:
    """Merge-on-read: position deletes that every reader has to apply."""
    columns = {"order_id": LongType(), "region": StringType(), "ordered": TimestamptzType(), "total": DoubleType()}
    by_region = PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region")
    properties = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}
    appends, deletes, size = 5, 6, 1500
    table, rng = shop.create("sales.orders", columns, partition=by_region, properties=properties)
    numbers = _numbers()
    undeleted: dict[str, dict[str, list[int]]] = {region: {} for region in REGIONS}
    times = iter(shop.times(appends + deletes, timedelta(days=9)))
    for _ in range(appends):
        at = next(times)
        batch = []
        for region in REGIONS:
            rows = {
                "order_id": _take(numbers, size),
                "region": pa.array([region] * size),
                "ordered": _times(rng, at - timedelta(days=1), at, size),
                "total": _doubles(rng, size),
            }
            batch.append(NewFile(pa.table(rows), {"region": region}))
        for region, path in zip(REGIONS, table.append(at, batch), strict=True):
            undeleted[region][path] = [int(position) for position in rng.permutation(size)]
    for _ in range(deletes):
        doomed = [
            NewDeletes({path: [left.pop() for _ in range(30)] for path, left in files.items()}, {"region": region})
            for region, files in undeleted.items()
        ]
        table.delete_rows(next(times), doomed)


def orders_audit(shop: Workshop) -> None:
    """Tags and a branch, whose rows must stay what they are."""
    columns = {"order_id": LongType(), "state": StringType()}
    commits, files = 12, shop.many(5)
    table, rng = shop.create("sales.orders_audit", columns)
    numbers = _numbers()

    def batch() -> list[NewFile]:
        states = ("new", "paid", "sent", "returned")
        return [
            NewFile(pa.table({"order_id": _take(numbers, 200), "state": _words(rng, states, 200)}))
            for _ in range(files)
        ]

    times = shop.times(commits + 1, timedelta(days=12))
    for number, at in enumerate(times[:-2]):
        tags = {3: ["month-end"], 7: ["audited"]}.get(number, [])
        table.append(at, batch(), tags=tags, branches=["correction"] if number == 8 else [])
    table.append(times[-2], batch(), branch="correction")
    table.append(times[-1], batch())


def customers(shop: Workshop) -> None:
    """An old table, of format version 1."""
    columns = {"customer_id": LongType(), "name": StringType(), "country": StringType()}
    commits, files = 10, shop.many(6)
    table, rng = shop.create("sales.customers", columns, properties={"format-version": "1"})
    numbers = _numbers()
    for at in shop.times(commits, timedelta(days=13)):
        batch = []
        for _ in range(files):
            ids = _take(numbers, 150)
            names = pa.array([f"customer {number}" for number in ids.to_pylist()])
            batch.append(NewFile(pa.table({"customer_id": ids, "name": names, "country": _words(rng, REGIONS, 150)})))
        table.append(at, batch)


def inventory(shop: Workshop) -> None:
    """Evolved half-way: a column renamed and widened, one added, and a partition field."""
    files = shop.many(8)
    columns = {"item": LongType(), "qty": IntegerType(), "warehouse": StringType()}
    table, rng = shop.create("sales.inventory", columns)
    *early, turn, last = shop.times(6, timedelta(days=8))

    def batch(column: str, kind: pa.DataType, warehouse: str | None) -> list[NewFile]:
        found = []
        for _ in range(files):
            rows = {
                "item": pa.array(rng.integers(1, 100_000, 200)),
                column: pa.array(rng.integers(0, 1000, 200)).cast(kind),
                "warehouse": _words(rng, WAREHOUSES if warehouse is None else (warehouse,), 200),
            }
            if warehouse is None:
                found.append(NewFile(pa.table(rows)))
            else:
                shelves = pa.array([f"shelf {number}" for number in rng.integers(1, 90, 200)])
                found.append(NewFile(pa.table({**rows, "shelf": shelves}), {"warehouse": warehouse}))
        return found

    for at in early:
        table.append(at, batch("qty", pa.int32(), None))
    evolved = Schema(
        NestedField(1, "item", LongType(), required=False),
        NestedField(2, "quantity", LongType(), required=False),
        NestedField(3, "warehouse", StringType(), required=False),
        NestedField(4, "shelf", StringType(), required=False),
        schema_id=1,
    )
    by_warehouse = PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="warehouse")
    evolve = (
        AddSchemaUpdate(schema_=evolved),
        SetCurrentSchemaUpdate(),
        AddPartitionSpecUpdate(spec=PartitionSpec(by_warehouse, spec_id=1)),
        SetDefaultSpecUpdate(),
    )
    table.append(turn, batch("quantity", pa.int64(), WAREHOUSES[0]), evolve=evolve)
    table.append(last, [file for one in WAREHOUSES for file in batch("quantity", pa.int64(), one)])


def revenue(shop: Workshop) -> None:
    """Rebuilt whole three times a day: every snapshot holds files of its own."""
    commits, files = 40, 3
    columns = {"product": LongType(), "revenue": DoubleType(), "margin": DoubleType()}
    table, rng = shop.create("sales.revenue", columns, properties={_TARGET: "128KB"})
    for at in shop.times(commits, timedelta(days=14)):
        table.overwrite(
            at, [NewFile(_measurements(rng, "product", ("revenue", "margin"), 6_500)) for _ in range(files)]
        )


def metrics(shop: Workshop) -> None:
    """Well-sized files under manifests in masses."""
    commits, manifests = 30, 4
    columns = {"series": LongType(), "value": DoubleType(), "change": DoubleType()}
    table, rng = shop.create("ops.metrics", columns, properties={_TARGET: "128KB"})
    for at in shop.times(commits, timedelta(days=14)):
        batch = [NewFile(_measurements(rng, "series", ("value", "change"), 6_500)) for _ in range(manifests)]
        table.append(at, batch, manifests=manifests)


def device_state(shop: Workshop) -> None:
    """Sick, and being worked on by another run."""
    _readings(shop, "ops.device_state", {})


def archive(shop: Workshop) -> None:
    """Sick, and not to be touched: its owner said so."""
    _readings(shop, "ops.archive", {ENABLED_PROPERTY: "false"})


TABLES: dict[str, Callable[[Workshop], None]] = {
    "analytics.events": events,
    "analytics.sessions": sessions,
    "analytics.page_views": page_views,
    "sales.orders": orders,
    "sales.orders_audit": orders_audit,
    "sales.customers": customers,
    "sales.inventory": inventory,
    "sales.revenue": revenue,
    "ops.metrics": metrics,
    "ops.device_state": device_state,
    "ops.archive": archive,
}
"""How each table is built; the first line of its docstring tells what it shows."""


def _readings(shop: Workshop, identifier: str, properties: Mapping[str, str]) -> None:
    columns = {"device": LongType(), "seen": TimestamptzType(), "reading": DoubleType()}
    commits, files = 12, shop.many(5)
    table, rng = shop.create(identifier, columns, properties=properties)
    for at in shop.times(commits, timedelta(days=11)):
        batch = []
        for _ in range(files):
            rows = {
                "device": pa.array(rng.integers(1, 500, 150)),
                "seen": _times(rng, at - timedelta(hours=2), at, 150),
                "reading": _doubles(rng, 150),
            }
            batch.append(NewFile(pa.table(rows)))
        table.append(at, batch)


def _measurements(rng: np.random.Generator, key: str, columns: tuple[str, ...], count: int) -> pa.Table:
    keys = {key: pa.array(rng.integers(1, 1 << 40, count))}
    return pa.table(keys | {name: pa.array(rng.random(count)) for name in columns})


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


def _take(numbers: Iterator[int], count: int) -> pa.Array:
    return pa.array([next(numbers) for _ in range(count)], pa.int64())


def _words(rng: np.random.Generator, words: tuple[str, ...], count: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), count)))


def _doubles(rng: np.random.Generator, count: int) -> pa.Array:
    return pa.array(np.round(rng.gamma(2.0, 30.0, count), 2))


def _times(rng: np.random.Generator, since: datetime, until: datetime, count: int) -> pa.Array:
    first = int(since.timestamp() * 1e6)
    span = max(int((until - since).total_seconds() * 1e6), 1)
    micros: Any = rng.integers(0, span, count) + first
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _days(at: datetime) -> int:
    return int(at.timestamp() // 86400)
