"""Random histories of writers and compaction, with commits between any two steps, against a model of the rows."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog

NAME = "db.t"
CHANGES = st.sampled_from(
    ["append", "append to a branch", "delete positions", "delete by partition", "overwrite", "roll back"]
)


class Compaction(RuleBasedStateMachine):
    """`rows`: what main holds; `kept`: what each snapshot held when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="compaction-"))
        self.numbers = itertools.count(0, 5)

    def teardown(self) -> None:
        self.writer.close()
        shutil.rmtree(self.folder)

    @initialize(partitioned=st.booleans(), version=st.sampled_from([1, 2]))
    def create(self, partitioned: bool, version: int) -> None:
        self.writer, properties = make_sql_catalog(self.folder)
        self.ours = lakehouse(self.folder, properties)
        many_small_files(self.writer, NAME, commits=0, partitioned=partitioned, version=version)
        self.version = version
        self.rows: list[int] = []
        self.branch: list[int] | None = None
        self.kept: dict[int, list[int]] = {}
        for _ in range(3):
            self._append()

    @rule(change=CHANGES, seed=st.integers(0, 1000))
    def write(self, change: str, seed: int) -> None:
        self._change(change, seed)

    @rule(
        between=st.lists(st.tuples(CHANGES, st.integers(0, 1000)), max_size=2),
        before=st.lists(st.tuples(CHANGES, st.integers(0, 1000)), max_size=2),
        every=st.booleans(),
    )
    def compact(self, between: list[tuple[str, int]], before: list[tuple[str, int]], every: bool) -> None:
        """`between`: committed by others after the plan; `before`: one right before each of our attempts."""
        options = {"min-input-files": "2", "rewrite-all": str(every).lower(), "delete-file-threshold": "1"}
        plan = self.ours.plan((), Request(actions=(Action.REWRITE_DATA_FILES,), options=options))
        for change in between:
            self._change(*change)
        files = len(data_paths(self.writer))
        pending = list(before)

        def others(attempt: int) -> None:
            nonlocal files
            if pending:
                self._change(*pending.pop(0))
                files = len(data_paths(self.writer))

        with before_commit(self.ours, others):
            outcome = self.ours.apply(plan).tables[0]
        assert outcome.status in (Status.DONE, Status.SKIPPED), outcome
        assert all(action.verified is not False for action in outcome.actions), outcome
        assert len(data_paths(self.writer)) <= files, "never more files than before"
        self._remember()

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        assert ids(self.writer, NAME) == sorted(self.rows)
        table = self.writer.load_table(NAME)
        if self.branch is not None:
            assert ids(self.writer, NAME, snapshot_id=table.metadata.refs["b"].snapshot_id) == sorted(self.branch)
        numbers = [s.sequence_number for s in table.metadata.snapshots]
        assert self.version == 1 or len(set(numbers)) == len(numbers)

    @invariant()
    def a_kept_snapshot_reads_as_when_it_was_made(self) -> None:
        if self.kept:
            snapshot_id = min(self.kept)
            assert ids(self.writer, NAME, snapshot_id=snapshot_id) == self.kept[snapshot_id]

    def _change(self, change: str, seed: int) -> None:
        changes: dict[str, Callable[[int], None]] = {
            "append": lambda seed: self._append(),
            "append to a branch": lambda seed: self._append_to_branch(),
            "delete positions": lambda seed: self._delete(seed, per_file=True),
            "delete by partition": lambda seed: self._delete(seed, per_file=False),
            "overwrite": self._overwrite,
            "roll back": self._roll_back,
        }
        changes[change](seed)
        self._remember()

    def _append(self) -> None:
        start = next(self.numbers)
        append(self.writer, NAME, start, 5)
        self.rows += range(start, start + 5)

    def _append_to_branch(self) -> None:
        table = self.writer.load_table(NAME)
        head = table.current_snapshot()
        if self.branch is None:
            if head is None:
                return
            table.manage_snapshots().create_branch(head.snapshot_id, "b").commit()
            self.branch = list(self.rows)
        start = next(self.numbers)
        append(self.writer, NAME, start, 5, branch="b")
        self.branch += range(start, start + 5)

    def _delete(self, seed: int, *, per_file: bool) -> None:
        if self.version == 1:
            return
        found = {}
        paths = data_paths(self.writer, NAME)
        for path in (paths[seed % len(paths)], paths[(seed // 7) % len(paths)]) if paths else ():
            held = pq.read_table(path.removeprefix("file://"), columns=["id"])["id"].to_pylist()
            position = seed % len(held)
            found[path] = [position]
            if held[position] in self.rows:
                self.rows.remove(held[position])
        if found:
            delete_rows(self.writer, NAME, found, per_file=per_file)

    def _overwrite(self, seed: int) -> None:
        if self.rows:
            victim = sorted(self.rows)[seed % len(self.rows)]
            self.writer.load_table(NAME).delete(f"id = {victim}")
            self.rows.remove(victim)

    def _roll_back(self, seed: int) -> None:
        table = self.writer.load_table(NAME)
        head = table.current_snapshot()
        if head is None or head.parent_snapshot_id not in self.kept:
            return
        table.manage_snapshots().set_current_snapshot(head.parent_snapshot_id).commit()
        self.rows = list(self.kept[head.parent_snapshot_id])

    def _remember(self) -> None:
        head = self.writer.load_table(NAME).current_snapshot()
        if head is not None:
            self.kept[head.snapshot_id] = sorted(self.rows)


TestCompaction = Compaction.TestCase
TestCompaction.settings = settings(
    settings(),
    max_examples=max(8, settings().max_examples // 8),
    stateful_step_count=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
