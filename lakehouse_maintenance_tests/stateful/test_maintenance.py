"""Random histories of writers and every maintenance action, with commits between any two steps, against a model.

See `table_model.py` for what writers do and what must hold after each step. Ownership over several tables, shared and
nested locations, renames and drops are the matter of `test_evidence.py`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lakehouse_maintenance.execution import orphan_search
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.iceberg.expiry import ExpireCommit
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import before_commit, lakehouse
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog
from lakehouse_maintenance_tests.stateful.table_model import CHANGES, ID, Change, TableModel

SMALL = {"of": "small_files", "base": 3}
POLICY = {
    "rewrite_data_files": {"trigger": SMALL, "min_gain": "1 file", "cooldown": "0s"},
    "expire_snapshots": {
        "trigger": {"of": "expired_snapshots", "base": 2},
        "older_than": "0s",
        "retain_last": 2,
        "allow_short_retention": True,
    },
    "rewrite_position_delete_files": {"trigger": {"of": "position_delete_files", "base": 2}},
    "rewrite_manifests": {"trigger": {"of": "manifests", "base": 4}},
    "remove_orphan_files": {"every": "1s"},
}
SETTINGS: dict[str, Any] = {
    "policies": {"default": POLICY},
    "limits": {"removed_share": 1.0, "removed_files": 10_000, "first_run_files": 10_000},
}
TAKEN_AWAY = ("the table has no column", "branch b is gone", "branch 'b' does not exist")
"""Why a run may fail: others took away what it was asked about by name, after the plan."""

OFTEN = ("append", "append", "delete positions", "delete keys", "overwrite")
changes = st.tuples(st.sampled_from([*CHANGES, *OFTEN]), st.integers(0, 10_000))
others = st.lists(changes, max_size=2)
flag = st.sampled_from(["true", "false"])

rewrites = st.fixed_dictionaries(
    {"min-input-files": st.sampled_from(["1", "2"]), "rewrite-all": flag},
    optional={
        "delete-file-threshold": st.just("1"),
        "delete-ratio-threshold": st.just("0.01"),
        "target-file-size-bytes": st.sampled_from(["1500", "3000"]),
        "max-file-group-size-bytes": st.just("9000"),
        "max-concurrent-file-group-rewrites": st.sampled_from(["1", "3"]),
        "partial-progress.enabled": flag,
        "partial-progress.max-commits": st.sampled_from(["1", "2", "9"]),
        "rewrite-job-order": st.sampled_from(["files-desc", "bytes-asc"]),
        "use-starting-sequence-number": flag,
        "remove-dangling-deletes": flag,
    },
)
layouts = st.sampled_from([None, None, ("sort", "{} DESC NULLS LAST, id"), ("zorder", "id, {}")])
"""{}: the last column."""

of_deletes = st.fixed_dictionaries(
    {"min-input-files": st.sampled_from(["1", "2"]), "rewrite-all": flag},
    optional={"target-file-size-bytes": st.just("1500"), "partial-progress.enabled": flag},
)


class Maintenance(RuleBasedStateMachine):
    """`between`: what others commit after the plan; `before`: one right before each of our commits, then one right
    before files are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="maintenance-"))

    @initialize(
        version=st.sampled_from([1, 2, 2, 3, 3]), partitioned=st.booleans(), first=st.lists(changes, max_size=6)
    )
    def create(self, version: int, partitioned: bool, first: list[Change]) -> None:
        self.writer, properties = make_sql_catalog(self.folder)
        self.model = TableModel(self.writer, self.folder, version, partitioned)
        self.ours = lakehouse(self.folder, properties, **SETTINGS)
        for change in [("append", 1), ("append", 2), *first, ("append", 3)]:
            self.model.change(change)
        self.model.check()

    def teardown(self) -> None:
        if hasattr(self, "ours"):
            self.ours.close()
            self.writer.close()
        shutil.rmtree(self.folder)

    @rule(made=st.lists(changes, min_size=1, max_size=3))
    def write(self, made: list[Change]) -> None:
        for change in made:
            self.model.change(change)
        self.model.check()

    @rule(options=rewrites, layout=layouts, on_branch=st.booleans(), between=others, before=others)
    def rewrite_data_files(
        self,
        options: dict[str, str],
        layout: tuple[str, str] | None,
        on_branch: bool,
        between: list[Change],
        before: list[Change],
    ) -> None:
        last = self.model.table.schema().fields[-1]
        strategy, order = layout if layout is not None and last.field_id != ID else (None, None)
        order = order and order.format(last.name)
        asked = Request(
            (Action.REWRITE_DATA_FILES,),
            options,
            strategy=strategy,
            sort_order=order,
            branch=self._branch(on_branch),
        )
        self._run(asked, between, before)

    @precondition(lambda self: self.model.version == 2)
    @rule(options=of_deletes, on_branch=st.booleans(), between=others, before=others)
    def rewrite_position_delete_files(
        self, options: dict[str, str], on_branch: bool, between: list[Change], before: list[Change]
    ) -> None:
        action = Action.REWRITE_POSITION_DELETE_FILES
        asked = Request((action,), by_action={action: options}, branch=self._branch(on_branch))
        self._run(asked, between, before)

    @rule(spec=st.none() | st.integers(0, 2), on_branch=st.booleans(), between=others, before=others)
    def rewrite_manifests(self, spec: int | None, on_branch: bool, between: list[Change], before: list[Change]) -> None:
        options = {} if spec is None else {"spec-id": str(min(spec, max(self.model.table.specs())))}
        action = Action.REWRITE_MANIFESTS
        asked = Request((action,), by_action={action: options}, branch=self._branch(on_branch))
        self._run(asked, between, before)

    @rule(retain=st.integers(1, 3), cleans=st.booleans(), between=others, before=others)
    def expire_snapshots(self, retain: int, cleans: bool, between: list[Change], before: list[Change]) -> None:
        asked = ExpiryRequest(timedelta(0), retain, clean_expired_metadata=cleans, allow_short_retention=True)
        history = self._history()
        self._run(Request((Action.EXPIRE_SNAPSHOTS,), expiry=asked), between, before)
        if not between and not before:
            assert self._history() == history[:retain]

    @rule(keep=st.sampled_from(["1", "3"]), sets=flag, between=others, before=others)
    def prune_metadata(self, keep: str, sets: str, between: list[Change], before: list[Change]) -> None:
        options = {"previous-versions-max": keep, "set-properties": sets}
        self._run(Request((Action.PRUNE_METADATA,), by_action={Action.PRUNE_METADATA: options}), between, before)

    @rule(before=others)
    def remove_orphan_files(self, before: list[Change]) -> None:
        asked = Request((Action.REMOVE_ORPHAN_FILES,), orphans=OrphanRequest(timedelta(days=3)))
        strays = set(self.model.strays)
        with self._days_later(), self._others(before):
            (outcome,) = self.ours.maintain((), asked).tables
        self._check(outcome)
        if not before:
            assert not self.model.unexplained(), outcome
            assert not strays & self.model.disk().keys(), outcome

    @rule(before=others)
    def maintain(self, before: list[Change]) -> None:
        """What the policies make due, in the safe order."""
        with self._days_later(), self._others(before):
            (outcome,) = self.ours.maintain(()).tables
        self._check(outcome)

    # Helpers.

    def _branch(self, asked: bool) -> str | None:
        return "b" if asked and "b" in self.model.refs else None

    def _run(self, request: Request, between: Sequence[Change], before: Sequence[Change]) -> None:
        plan = self.ours.plan((), request)
        assert plan.tables[0].error is None, plan
        for change in between:
            self.model.change(change)
        garbage = self.model.unexplained()
        self.model.written.clear()
        with self._others(before):
            (outcome,) = self.ours.apply(plan).tables
        self._check(outcome)
        left = self.model.unexplained() - garbage - self.model.written
        left = {path for path in left if not path.endswith(".metadata.json")}
        # Where a branch was rolled back, a late request could still arrive: what it names stays, and it is said.
        told = sum(sum(one.kept.values()) for one in outcome.recovered)
        assert len(left) <= told, (outcome, left)

    @contextmanager
    def _others(self, changes: Sequence[Change]) -> Iterator[None]:
        pending = list(changes)
        real = Deletion.remove

        def commit(*_: object) -> None:
            self.model.check()
            if pending:
                self.model.change(pending.pop(0))

        def remove(deletion: Any, *args: Any, **options: Any) -> Any:
            commit()
            return real(deletion, *args, **options)

        with before_commit(self.ours, commit), patch.object(Deletion, "remove", remove):
            for kind in (ReplaceCommit, ExpireCommit):
                patch.object(kind, "pause", staticmethod(lambda attempt: None)).start()
            try:
                yield
            finally:
                patch.stopall()

    @contextmanager
    def _days_later(self) -> Iterator[None]:
        with patch.object(orphan_search, "now_ms", lambda: int((time.time() + 10 * 86_400) * 1000)):
            yield

    def _check(self, outcome: TableOutcome) -> None:
        is_gone = outcome.status is Status.FAILED and any(why in outcome.reason for why in TAKEN_AWAY)
        assert is_gone or outcome.status in (Status.DONE, Status.SKIPPED), outcome
        assert all(action.verified is not False for action in outcome.actions), outcome
        self.model.check()
        self.model.check_with_pyiceberg()

    def _history(self) -> list[int]:
        """Main's snapshots that are kept, newest first."""
        parents: Mapping[int, int | None] = {
            one.snapshot_id: one.parent_snapshot_id for one in self.model.table.metadata.snapshots
        }
        at, found = self.model.refs.get("main"), []
        while at in parents:
            found.append(at)
            at = parents[at]
        return found


_is_long = settings().max_examples > 100
# A thousand histories, each of a second or some, are one test.
pytestmark = [pytest.mark.timeout(3 * 3600 if _is_long else 300), pytest.mark.requirement("IM-12", "RS-04")]
TestMaintenance = Maintenance.TestCase
TestMaintenance.settings = settings(
    settings(),
    max_examples=1_000 if _is_long else 25,
    stateful_step_count=6,
    deadline=None,
    derandomize=not _is_long,
    database=None if not _is_long else settings().database,
    suppress_health_check=list(HealthCheck),
)
