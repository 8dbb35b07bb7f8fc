"""Options of rewrite_data_files that say how a rewrite is done, and what a person's request splits (IM-01, EN-09)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Demand, Group, Rewriter, cut, split
from lakehouse_maintenance.execution.rewriting_groups import _fits, roll_bytes
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.model.plans import FileGroup, PlannedFile
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import (
    SCHEMA,
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> Pair:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


def asked(**options: Any) -> Request:
    """Options with `_` for `-`; a rewrite of two files is worth it."""
    named = {name.replace("_", "-"): str(value).lower() for name, value in options.items()}
    return Request(actions=(Action.REWRITE_DATA_FILES,), options={"min-input-files": "2", **named})


def compact(ours: Lakehouse, **options: Any) -> TableOutcome:
    return ours.maintain((), asked(**options)).tables[0]


def partitions(catalog: SqlCatalog, count: int, *, commits: int = 3, name: str = "db.t") -> list[int]:
    """A table with `commits` small files in each of so many partitions, written without many_small_files' append."""
    many_small_files(catalog, name, commits=0)
    for commit in range(commits):
        rows = [commit * 10 * count + n for n in range(10 * count)]
        columns = [rows, [f"p{n % count}" for n in rows], [n / 2 for n in rows]]
        catalog.load_table(name).append(pa.table(columns, schema=SCHEMA))
    return list(range(10 * count * commits))


def live(catalog: SqlCatalog, name: str = "db.t", branch: str = "main") -> list[LiveFile]:
    """Live data and delete files."""
    table = catalog.load_table(name)
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, name, table.metadata_location)
    reader, head = ManifestReader(storage, name), metadata.head(branch)
    assert head is not None
    return list(reader.live_files(m for m in reader.manifests(head) if m.live_files != 0))


# max-concurrent-file-group-rewrites


class Watch:
    """How many groups are read and written at the same time; each is held until `least` of them are, or a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
        self.most = self.running = 0
        self.changed = threading.Condition()
        real = Rewriter.rewrite

        def rewrite(rewriter: Rewriter, *args: Any) -> Any:
            with self.changed:
                self.running += 1
                self.most = max(self.most, self.running)
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.most >= least, timeout=5)
            try:
                return real(rewriter, *args)
            finally:
                with self.changed:
                    self.running -= 1

        monkeypatch.setattr(Rewriter, "rewrite", rewrite)


@pytest.mark.requirement("IM-01")
@pytest.mark.parametrize(("given", "most"), [({}, 5), ({"max_concurrent_file_group_rewrites": 2}, 2)])
def test_groups_are_rewritten_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], most: int
) -> None:
    writer, ours = pair
    rows = partitions(writer, 7, commits=2)
    watch = Watch(monkeypatch, most)
    outcome = compact(ours, **given)
    assert outcome.status is Status.DONE, outcome
    assert watch.most == most
    assert ids(writer) == rows
    assert outcome.actions[0].actual.groups_done == len(data_paths(writer)) == 7


@pytest.mark.requirement("IM-01")
def test_the_number_at_once_changes_no_output(pair: Pair) -> None:
    writer, ours = pair
    seen = []
    for name, number in (("db.t", 1), ("db.u", 4)):
        partitions(writer, 5, name=name)
        request = asked(max_concurrent_file_group_rewrites=number)
        assert ours.maintain((f"main.{name}",), request).tables[0].status is Status.DONE
        seen.append({file.partition: Path(file.path[7:]).read_bytes() for file in live(writer, name)})
    assert len(seen[0]) == 5
    assert seen[0] == seen[1]


@pytest.mark.requirement("EN-09")
def test_memory_and_cores_bound_what_goes_at_once(pair: Pair) -> None:
    writer, _ = pair
    partitions(writer, 1, commits=1)
    limit = 1 << 30
    rewriter = Rewriter(
        writer.load_table("db.t"), Storage.from_properties({}), limit, *(lambda *_: None,) * 3, threads=2
    )
    file = live(writer)[0]
    small = rewriter.demand(Group((file,) * 3, 1, 1, 1 << 20))
    large = rewriter.demand(Group((file,) * 30, 30, 1, 1 << 20))
    assert small == Demand(1, 8 * (64 << 20))
    assert large.workers == 4, "one alone takes all the cores, twice"
    assert large.memory <= limit
    assert _fits(large, [], 5, rewriter), "one alone always begins"
    assert _fits(small, [small], 5, rewriter)
    assert not _fits(small, [small] * 2, 5, rewriter), "three would not fit the memory limit"
    assert not _fits(small, [large], 5, rewriter)
    tiny = Demand(1, 1)
    assert _fits(tiny, [tiny] * 4, 5, rewriter)
    assert not _fits(tiny, [tiny] * 5, 5, rewriter), "no more than the option"
    assert not _fits(Demand(3, 1), [Demand(3, 1)], 5, rewriter), "no more threads than the cores have use for"


# use-starting-sequence-number, remove-dangling-deletes, rewrite-job-order


@pytest.mark.requirement("IM-01")
@pytest.mark.parametrize("starting", [True, False])
def test_the_sequence_number_of_new_files(pair: Pair, starting: bool) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    head = table.current_snapshot()
    assert head is not None
    assert compact(ours, use_starting_sequence_number=starting).status is Status.DONE
    after = writer.load_table("db.t").current_snapshot()
    assert after is not None
    expected = head.sequence_number if starting else after.sequence_number
    assert {file.sequence_number for file in live(writer)} == {expected}
    assert ids(writer) == [*range(60)]


@pytest.mark.requirement("IM-01")
def test_version_1_has_no_sequence_numbers_to_choose(pair: Pair) -> None:
    writer, ours = pair
    many_small_files(writer, version=1)
    assert compact(ours, use_starting_sequence_number=False).status is Status.DONE
    assert {file.sequence_number for file in live(writer)} == {0}
    assert ids(writer) == [*range(60)]


@pytest.mark.requirement("IM-01", "IM-26")
@pytest.mark.parametrize("per_file", [True, False], ids=["file-scoped", "partition-scoped"])
@pytest.mark.parametrize("remove", [None, True, False])
def test_dangling_deletes(pair: Pair, remove: bool | None, per_file: bool) -> None:
    """They go unless asked to stay; what stays reaches nothing, and gives no reason to rewrite again."""
    writer, ours = pair
    many_small_files(writer)
    delete_rows(writer, "db.t", {path: [1] for path in data_paths(writer)[:4]}, per_file=per_file)
    before = ids(writer)
    deletes = sum(file.content is Content.POSITION_DELETES for file in live(writer))
    given = {} if remove is None else {"remove_dangling_deletes": remove}
    outcome = compact(ours, delete_file_threshold=1, **given)
    assert outcome.status is Status.DONE, outcome
    left = sum(file.content is Content.POSITION_DELETES for file in live(writer))
    assert left == (deletes if remove is False else 0)
    assert ids(writer) == before
    assert not ours.plan((), asked(delete_file_threshold=1, **given)).tables[0].actions


@pytest.mark.requirement("IM-01")
@pytest.mark.parametrize(("order", "first"), [("files-desc", 6), ("files-asc", 2)])
def test_groups_begin_in_the_order_that_is_asked_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, order: str, first: int
) -> None:
    writer, ours = pair
    many_small_files(writer, commits=2)
    for start in range(0, 40, 10):
        rows = [[*range(1000 + start, 1005 + start)], ["z"] * 5, [0.0] * 5]
        writer.load_table("db.t").append(pa.table(rows, schema=SCHEMA))
    begun: list[int] = []
    real = Rewriter.rewrite

    def rewrite(rewriter: Rewriter, group: Group, *args: Any) -> Any:
        begun.append(len(group.files))
        return real(rewriter, group, *args)

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)
    assert compact(ours, rewrite_job_order=order, max_concurrent_file_group_rewrites=1).status is Status.DONE
    assert begun == ([4, 2, 2] if order == "files-desc" else [2, 2, 4])


@pytest.mark.requirement("IM-25")
def test_partitions_that_changed_since_the_last_compaction_are_planned_first(pair: Pair) -> None:
    writer, ours = pair
    many_small_files(writer, commits=2)
    assert compact(ours).status is Status.DONE
    # Into b alone, the later one by name; then a group of the former small file and the new ones.
    writer.load_table("db.t").append(pa.table([[500, 502], ["b", "b"], [0.0, 1.0]], schema=SCHEMA))
    (action,) = ours.plan((), asked(rewrite_all=True)).tables[0].actions
    assert len(action.groups) == 1
    append(writer, "db.t", 601, 1)  # into a
    (action,) = ours.plan((), asked()).tables[0].actions
    assert ["a" in group.partition for group in action.groups] == [True, False], "the newest first"


# Oversized files


def oversized(catalog: SqlCatalog, rows: int = 40_000, *, row_group: int = 1 << 20) -> int:
    """One imported file of random numbers in db.t, encoded as we would write it; its size."""
    import numpy as np

    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.t", SCHEMA, properties={"format-version": "2"})
    numbers = np.random.default_rng(1).random(rows)
    path = Path(table.location().removeprefix("file://")) / "data" / "big.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = pa.table([[*range(rows)], ["a"] * rows, numbers], schema=SCHEMA)
    pq.write_table(
        content, path, compression="zstd", compression_level=3, use_dictionary=False, row_group_size=row_group
    )
    table.add_files([f"file://{path}"])
    return live(catalog)[0].size


@pytest.mark.requirement("IM-01", "IM-26")
@pytest.mark.parametrize("row_group", [10_000, 1 << 20], ids=["many row groups", "one row group"])
def test_an_oversized_file_is_split_into_even_parts(pair: Pair, row_group: int) -> None:
    writer, ours = pair
    size = oversized(writer, row_group=row_group)
    target = size // 10
    request = asked(target_file_size_bytes=target)
    assert not ours.plan((), Request(options=dict(request.options))).tables[0].actions, "no policy asks for it"
    (action,) = ours.plan((), request).tables[0].actions
    assert action.expected.files in (10, 11)
    outcome = ours.maintain((), request).tables[0]
    assert outcome.status is Status.DONE, outcome
    files = live(writer)
    assert len(files) == action.expected.files
    assert max(file.records for file in files) - min(file.records for file in files) <= len(files)
    assert all(target * 3 // 4 <= file.size <= target * 9 // 5 for file in files), [file.size for file in files]
    assert ids(writer) == [*range(40_000)]
    again = ours.plan((), request).tables[0]
    assert not again.actions, "what was split is left alone"


@pytest.mark.requirement("IM-01")
def test_an_oversized_file_with_deletes_is_split_evenly(pair: Pair) -> None:
    """The rows that are left are counted, not those of the file."""
    writer, ours = pair
    size = oversized(writer)
    delete_rows(writer, "db.t", {data_paths(writer)[0]: range(20_000)})
    outcome = compact(ours, target_file_size_bytes=size // 10)
    assert outcome.status is Status.DONE, outcome
    files = live(writer)
    assert len(files) == 5
    assert {file.records for file in files} == {4000}
    assert ids(writer) == [*range(20_000, 40_000)]


@pytest.mark.requirement("IM-26")
def test_what_a_policy_plans_never_makes_more_files(pair: Pair, tmp_path: Path) -> None:
    """Deletes of an oversized file are applied, and it stays one file, far above the size at which outputs roll."""
    writer, ours = pair
    size = oversized(writer)
    delete_rows(writer, "db.t", {data_paths(writer)[0]: range(0, 40_000, 2)})
    policy = {
        "options": {"target-file-size-bytes": str(size // 10)},
        "trigger": {"of": "delete_files", "base": 1},
        "min_gain": "1 files",
    }
    theirs = Lakehouse(
        lakehouse(tmp_path, ours.config.catalogs["main"], policies={"default": {"rewrite_data_files": policy}}).config,
        ours.state,
    )
    outcome = theirs.maintain(()).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert [file.records for file in live(writer)] == [20_000]


@pytest.mark.requirement("IM-26")
def test_an_output_is_not_closed_before_what_was_planned() -> None:
    file = PlannedFile("big", 1000, 10, 1, 2)
    options = RewriteOptions(100, 75, 180)
    assert roll_bytes(FileGroup(0, "[]", (file,), 8, ""), options) == 140, "half-way from target to maximum"
    assert roll_bytes(FileGroup(0, "[]", (file,), 1, ""), options) == 900, "one file of 800 bytes, and an eighth more"


def test_small_files_behind_a_large_one_become_one_output() -> None:
    """A large one with deletes comes in its turn, not last: it fills several outputs, those behind it a single one."""
    sizes = [5000, *[10] * 20]
    files = [LiveFile(f"f{n}", Content.DATA, "PARQUET", 0, "[]", size, size, n, n) for n, size in enumerate(sizes)]
    runs = split(files, 11)
    assert [len(run) for run in runs] == [1, 20]
    assert [file for run in runs for file in run] == files
    assert [len(run) for run in split(files[1:], 4)] == [5, 5, 5, 5]


def test_batches_are_cut_where_outputs_end() -> None:
    def batches(sizes: Sequence[int]) -> list[pa.RecordBatch]:
        starts = [sum(sizes[:n]) for n in range(len(sizes))]
        return [
            pa.RecordBatch.from_pydict({"n": [*range(start, start + size)]})
            for start, size in zip(starts, sizes, strict=True)
        ]

    assert [b.num_rows for b in cut(iter(batches([3, 3, 3])), None)] == [3, 3, 3]
    found = list(cut(iter(batches([3, 7, 1, 4])), 4))
    assert [b.num_rows for b in found] == [3, 1, 4, 2, 1, 1, 3]
    assert [n for b in found for n in b["n"].to_pylist()] == [*range(15)]


# Cancelled


@pytest.mark.requirement("EN-09")
def test_a_run_that_is_cancelled_leaves_nothing_half_done(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while groups are going on: they are stopped and waited for, and what was written is removed."""
    writer, ours = pair
    rows = partitions(writer, 6)
    before = set(data_paths(writer))
    third = threading.Event()
    slow = threading.Event()
    real_rewrite, real_read = Rewriter.rewrite, Rewriter._read_file
    begun: list[int] = []
    stopped: list[bool] = []

    def rewrite(rewriter: Rewriter, group: Group, *args: Any) -> Any:
        begun.append(1)
        if len(begun) == 3:
            third.set()
            assert slow.wait(10)
            raise KeyboardInterrupt
        return real_rewrite(rewriter, group, *args)

    def read(rewriter: Rewriter, file: LiveFile, *args: Any) -> Any:
        """The others never end by themselves once the third has begun."""
        yield from real_read(rewriter, file, *args)
        if third.is_set():
            slow.set()
            stopped.append(rewriter.stop.wait(20))

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)
    monkeypatch.setattr(Rewriter, "_read_file", read)
    with pytest.raises(KeyboardInterrupt):
        ours.maintain((), asked(), run_id="cancelled")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("groups", "rewrite"))]
    assert stopped
    assert all(stopped), "they are told to stop"
    assert ids(writer) == rows
    assert set(data_paths(writer)) == before
    (failed,) = [event for event in ours.audit() if event.phase == "outcome"]
    assert (failed.status, failed.details["error"]) == ("failed", "interrupted")
    monkeypatch.undo()
    outcome = compact(ours)
    assert outcome.status is Status.DONE, outcome
    (left,) = outcome.recovered
    assert left.run_id == "cancelled"
    assert left.removed_files == failed.details["written"]["files"] > 0
    assert ids(writer) == rows


@pytest.mark.requirement("EN-09")
def test_progress_counts_every_file(pair: Pair) -> None:
    writer, ours = pair
    partitions(writer, 4)
    told: list[tuple[int, int]] = []

    class Progress:
        def begin(self, table: str, what: str, files: int, size: int) -> None:
            if what == "rewrite_data_files":
                told.append((-files, -size))

        def advance(self, table: str, files: int, size: int) -> None:
            told.append((files, size))

        def end(self, table: str, what: str) -> None:
            pass

    ours.progress = Progress()
    assert compact(ours).status is Status.DONE
    assert told[0][0] == -12
    assert (sum(files for files, _ in told), sum(size for _, size in told)) == (0, 0)


# A failed group


@pytest.mark.requirement("IM-01")
def test_without_partial_progress_a_failed_group_fails_the_action(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    rows = partitions(writer, 3)
    victim = data_paths(writer)[0]
    content = Path(victim[7:]).read_bytes()
    Path(victim[7:]).write_bytes(b"PAR1" + bytes(len(content) - 8) + b"PAR1")
    commits: list[int] = []
    with before_commit(ours, commits.append):
        outcome = compact(ours)
    assert outcome.status is Status.FAILED
    assert commits == []
    assert outcome.actions[0].snapshot_id is None
    Path(victim[7:]).write_bytes(content)
    assert ids(writer) == rows
