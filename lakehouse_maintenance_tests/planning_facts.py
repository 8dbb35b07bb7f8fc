"""Small tables as planning sees them, and a model of what a rewrite leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from lakehouse_maintenance.model.deletes import DanglingDeletes, DeleteIndex
from lakehouse_maintenance.model.files import Content, LiveFile, TableState
from lakehouse_maintenance.planning.compaction import GroupPlan, plan_groups
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions

MB = 1 << 20
NOW = 1_790_000_000_000
HOUR = 3_600_000


def options(**changes: object) -> RewriteOptions:
    """Target 100 MB, minimum 75, maximum 180."""
    base = RewriteOptions(100 * MB, 75 * MB, 180 * MB)
    return replace(base, **changes)  # type: ignore[arg-type]


def data_file(
    path: str,
    megabytes: float,
    *,
    partition: str = "[]",
    spec: int = 0,
    sequence: int = 1,
    snapshot: int = 1,
    records: int = 1000,
    form: str = "PARQUET",
) -> LiveFile:
    """A data file; `snapshot` added it."""
    size = int(megabytes * MB)
    return LiveFile(path, Content.DATA, form, spec, partition, records, size, sequence, snapshot)


def delete_file(
    path: str,
    *,
    of: str | None = None,
    records: int = 10,
    partition: str = "[]",
    spec: int = 0,
    sequence: int = 2,
    snapshot: int = 2,
    equality: bool = False,
    form: str = "PARQUET",
) -> LiveFile:
    """A position delete file (`of`: for that data file alone), or an equality delete file."""
    content = Content.EQUALITY_DELETES if equality else Content.POSITION_DELETES
    return LiveFile(path, content, form, spec, partition, records, 1000, sequence, snapshot, of)


@dataclass(frozen=True)
class Table:
    """The live files of one table's head. `times`: snapshot id → milliseconds; a missing one was expired."""

    data: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...] = ()
    sequence: int = 2
    times: dict[int, int] = field(default_factory=lambda: {1: NOW - 2 * HOUR, 2: NOW - HOUR})
    unpartitioned: frozenset[int] = frozenset()

    @property
    def state(self) -> TableState:
        return TableState(
            table="main.sales.orders",
            uuid="u",
            format_version=2,
            location="s3://bucket/orders",
            metadata_location="s3://bucket/orders/metadata/1.json",
            snapshot_id=max(self.times, default=1),
            sequence_number=self.sequence,
            properties={},
            snapshot_times=self.times,
        )

    @property
    def index(self) -> DeleteIndex:
        return DeleteIndex(self.deletes, self.unpartitioned)

    def plan(self, chosen: RewriteOptions, *, now_ms: int = NOW) -> GroupPlan:
        return plan_groups(self.state, iter(self.data), self.index, chosen, now_ms=now_ms)


def table(*data: LiveFile, deletes: Iterable[LiveFile] = ()) -> Table:
    return Table(tuple(data), tuple(deletes))


def rewritten(before: Table, plan: GroupPlan, jitter: Callable[[int], float], *, now_ms: int = NOW) -> Table:
    """The table after the plan was done: each group's files in even parts, `jitter(n)` times as large as estimated.

    New files keep the sequence number the rewrite started from; deletes that no remaining file needs are gone.
    """
    snapshot = max(before.times, default=1) + 1
    by_path = {file.path: file for file in before.data}
    gone = {file.path for group in plan.groups for file in group.files}
    written = []
    for number, group in enumerate(plan.groups):
        size = sum(f.size * (f.records - f.deleted_rows) // max(f.records, 1) for f in group.files)
        records = sum(f.records - f.deleted_rows for f in group.files)
        for part in range(group.expected_files):
            written.append(
                replace(
                    by_path[group.files[0].path],
                    path=f"{snapshot}-{number}-{part}",
                    size=max(int(size / group.expected_files * jitter(len(written))), 1),
                    records=max(records // group.expected_files, 1),
                    sequence_number=before.sequence,
                    snapshot_id=snapshot,
                )
            )
    staying = [file for file in before.data if file.path not in gone]
    needed = DanglingDeletes(before.deletes, before.unpartitioned)
    for file in staying:
        needed.saw(file)
    dropped = {delete.identity for delete in needed.dangling()}
    return Table(
        (*staying, *written),
        tuple(delete for delete in before.deletes if delete.identity not in dropped),
        before.sequence + 1,
        {**before.times, snapshot: now_ms},
        before.unpartitioned,
    )
