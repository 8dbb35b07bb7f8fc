"""Writers that commit all the time, beside every action that commits, on every catalog: no row is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException

from lakehouse_maintenance.execution.verify import live_files_present
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import append, data_paths, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.stateful.row_writer import RowWriter

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
IN_PARTS = Request(actions=COMPACT.actions, options={**COMPACT.options, "partial-progress.enabled": "true"})
DELETES = Request(
    actions=(Action.REWRITE_POSITION_DELETE_FILES,),
    by_action={Action.REWRITE_POSITION_DELETE_FILES: {"rewrite-all": "true"}},
)
MANIFESTS = Request(actions=(Action.REWRITE_MANIFESTS,))
EXPIRE = Request(actions=(Action.EXPIRE_SNAPSHOTS,))
ROUNDS = 2
"""Compactions and expiries that get through while the writers work."""
STEP = 5
"""Rows of one append."""


def older_than(age: str) -> dict[str, object]:
    """Settings under which snapshots of this age expire. A writer is a reader of the snapshot that it started from."""
    expiry = {"older_than": age, "retain_last": 1, "allow_short_retention": True}
    return {"policies": {"default": {"expire_snapshots": expiry}}}


class Writer(threading.Thread):
    """Commits until it is told to stop; tries again where it meets another writer, and ends at any other error."""

    def __init__(self, on: AnyCatalog) -> None:
        super().__init__(daemon=True)
        self.catalog = on.again()
        self.stopping = threading.Event()
        self.commits = 0
        self.conflicts = 0
        self.outrun = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.commit()
                self.commits += 1
                self.stopping.wait(0.4)  # the threads of this process share one lock
        except Exception as error:  # whatever it is, the test shows it
            self.error = error
        finally:
            self.catalog.close()

    def commit(self) -> None:
        """One commit that the catalog acknowledges."""
        while True:
            try:
                self.attempt()
                return
            except (CommitFailedException, ValidationException):
                # PyIceberg's own validation calls what a compaction moved a conflict as well.
                self.conflicts += 1
            except CommitStateUnknownException:
                if self.arrived():
                    self.acknowledge()
                    return
            except FileNotFoundError:
                # Slower than the seconds of retention here: the snapshot it read is expired. It starts again; whether
                # anything that is needed is gone is what `missing_files` and the rows tell.
                self.outrun += 1

    def attempt(self) -> None:
        """One try; whoever gets past it calls `acknowledge`."""
        raise NotImplementedError

    def arrived(self) -> bool:
        """Whether the last try is in the table, where its answer was lost."""
        raise NotImplementedError

    def acknowledge(self) -> None:
        raise NotImplementedError

    def has(self, row: int) -> bool:
        return len(self.catalog.load_table("db.t").scan(row_filter=f"id = {row}").to_arrow()) > 0


class Appender(Writer):
    """`acknowledged`: first ids of the appends that the catalog took."""

    def __init__(self, on: AnyCatalog, first: int) -> None:
        super().__init__(on)
        self.next = first
        self.acknowledged: list[int] = []

    def attempt(self) -> None:
        append(self.catalog, "db.t", self.next, STEP)  # type: ignore[arg-type]
        self.acknowledge()

    def arrived(self) -> bool:
        return self.has(self.next)

    def acknowledge(self) -> None:
        self.acknowledged.append(self.next)
        self.next += STEP


class Deleter(Writer):
    """Takes one row after another of its own. `gone`: ids whose delete was acknowledged."""

    def __init__(self, on: AnyCatalog, rows: Sequence[int]) -> None:
        super().__init__(on)
        self.left = list(rows)
        self.gone: list[int] = []

    def attempt(self) -> None:
        if not self.left:
            self.stopping.wait(0.05)
            return
        self.delete(self.left[0])
        self.acknowledge()

    def delete(self, row: int) -> None:
        """Copies the file."""
        self.catalog.load_table("db.t").delete(f"id = {row}")

    def arrived(self) -> bool:
        return not self.has(self.left[0])

    def acknowledge(self) -> None:
        self.gone.append(self.left.pop(0))


class PositionDeleter(Deleter):
    """As engines do that merge on read: the file stays, and a position in it goes."""

    def delete(self, row: int) -> None:
        table = self.catalog.load_table("db.t")
        writer = RowWriter(self.catalog, "db.t")
        for task in table.scan(row_filter=f"id = {row}").plan_files():
            with table.io.new_input(task.file.file_path).open() as stream:
                held = pq.read_table(stream, columns=["id"])["id"].to_pylist()
            if row in held:
                partition = (task.file.spec_id, tuple(task.file.partition))
                added = writer.positions(table, partition, {task.file.file_path: [held.index(row)]})
                writer.commit(table, [added])
                return
        raise AssertionError(f"row {row} is gone, and nobody else deletes it")


@contextmanager
def working(*writers: Writer) -> Iterator[None]:
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join(60)


def wait_for_commits(writer: Writer, count: int) -> None:
    """So many more, so that every round has something to meet."""
    wanted, give_up = writer.commits + count, time.monotonic() + 60
    while writer.commits < wanted and writer.error is None and time.monotonic() < give_up:
        time.sleep(0.01)


def done(outcomes: list[TableOutcome]) -> int:
    return sum(outcome.status is Status.DONE for outcome in outcomes)


def missing_files(on: AnyCatalog) -> str | None:
    """Live files of the head that are not in storage."""
    table = on.writer.load_table("db.t")
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, "db.t", table.metadata_location)
    reader, head = ManifestReader(storage, "db.t"), metadata.head()
    assert head is not None
    live = list(reader.live_files(m for m in reader.manifests(head) if m.live_files != 0))
    check = live_files_present(storage, metadata.table_location, live)
    return None if check.passed else check.detail


@pytest.mark.requirement("EN-08", "IM-12", "RS-04")
def test_nothing_is_lost_beside_maintenance(any_catalog: AnyCatalog, tmp_path: Path) -> None:
    many_small_files(any_catalog.writer, commits=4)  # type: ignore[arg-type]
    ours = lakehouse(tmp_path, any_catalog.properties, **older_than("5s"))
    appender = Appender(any_catalog, 1000)
    deleters = [Deleter(any_catalog, range(0, 40, 3)), PositionDeleter(any_catalog, range(1, 40, 3))]
    outcomes: dict[str, list[TableOutcome]] = {"data": [], "deletes": [], "manifests": [], "snapshots": []}
    rounds = dict(zip(outcomes, (IN_PARTS, DELETES, MANIFESTS, EXPIRE), strict=True))
    give_up = time.monotonic() + 120
    with working(appender, *deleters):
        while min(done(outcomes["data"]), done(outcomes["snapshots"])) < ROUNDS and time.monotonic() < give_up:
            for name, request in rounds.items():
                wait_for_commits(appender, 1)
                outcomes[name].append(ours.maintain((), request).tables[0])
    for writer in (appender, *deleters):
        assert writer.error is None, repr(writer.error)
    assert min(done(outcomes["data"]), done(outcomes["snapshots"])) >= 1, outcomes
    assert deleters[0].gone
    assert deleters[1].gone
    # We may lose to writers that never pause, and find nothing old enough; we fail for no other reason.
    every = [outcome for found in outcomes.values() for outcome in found]
    failed = [o for o in every if o.status is Status.FAILED and "other writers" not in o.reason]
    assert not failed, failed
    assert {o.status for o in every} <= {Status.DONE, Status.SKIPPED, Status.FAILED}

    gone = {row for deleter in deleters for row in deleter.gone}
    wanted = {i for start in appender.acknowledged for i in range(start, start + STEP)} | set(range(40))
    assert ids(any_catalog.writer) == sorted(wanted - gone)  # type: ignore[arg-type]
    assert missing_files(any_catalog) is None

    # Now that it is quiet, everything goes through, and the rows are still the same. The last round above may have left
    # nothing to gain, so there is something new to compact.
    for start in (100_000, 100_100):
        append(any_catalog.writer, "db.t", start, STEP)  # type: ignore[arg-type]
        wanted |= set(range(start, start + STEP))
    ours = lakehouse(tmp_path, any_catalog.properties, **older_than("0s"))
    assert ours.maintain((), COMPACT).tables[0].status is Status.DONE
    outcome = ours.maintain((), EXPIRE).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.deleted_files > 0
    assert ids(any_catalog.writer) == sorted(wanted - gone)  # type: ignore[arg-type]
    assert missing_files(any_catalog) is None
    assert len(any_catalog.writer.load_table("db.t").metadata.snapshots) == 1
    assert len(data_paths(any_catalog.writer)) == 2, "one file a partition"  # type: ignore[arg-type]


def test_two_runs_at_once_exclude_each_other(any_catalog: AnyCatalog, tmp_path: Path) -> None:
    many_small_files(any_catalog.writer)  # type: ignore[arg-type]
    one, other = (lakehouse(tmp_path, any_catalog.properties) for _ in range(2))
    seen: list[Status] = []
    real = one.catalogs["main"].pyiceberg.commit_table

    def commit_table(*args: object, **kwargs: object) -> object:
        seen.append(other.maintain((), COMPACT).tables[0].status)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one.catalogs["main"].pyiceberg, "commit_table", commit_table)
        assert one.maintain((), COMPACT).tables[0].status is Status.DONE
    assert seen == [Status.BLOCKED]
    assert ids(any_catalog.writer) == [*range(60)]  # type: ignore[arg-type]
