"""What runs wrote and did not commit: known before it is written, and removed once nothing can need it any more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.engines.embedded_iceberg.output import DataFileWriter
from lakehouse_maintenance.execution import recovery
from lakehouse_maintenance.execution.traces import WRITING
from lakehouse_maintenance.iceberg import staging
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CatalogUnavailableError
from lakehouse_maintenance.model.outcomes import Recovered, TableOutcome
from lakehouse_maintenance_tests.engine.killed import (
    Killed,
    after_the_lease,
    being_killed,
    files_below,
    killed_at_commit,
)
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.engine.test_lost_answers import COMPACT, commits
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.s3 import S3Server

Pair = tuple[SqlCatalog, Lakehouse]


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A writer with a table of 60 rows in small files, and our lakehouse."""
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    catalog, properties = sql_catalog()
    many_small_files(catalog)
    return catalog, lakehouse(tmp_path, properties)


def look(ours: Lakehouse) -> TableOutcome:
    """A run for which nothing is due."""
    outcome = ours.maintain(()).tables[0]
    assert not outcome.actions
    return outcome


def only(outcome: TableOutcome) -> Recovered:
    assert len(outcome.recovered) == 1, outcome
    return outcome.recovered[0]


def announced(ours: Lakehouse, run_id: str) -> set[str]:
    events = [event for event in ours.state.journal.events() if event.run_id == run_id]
    return {path for event in events for path in event.details.get(WRITING, ())}


def there(ours: Lakehouse, run_id: str) -> set[str]:
    """Announced files that exist."""
    return {path for path in announced(ours, run_id) if Path(path.removeprefix("file://")).exists()}


def roll_to(catalog: SqlCatalog, snapshot_id: int) -> None:
    """As another engine's rollback does."""
    catalog.load_table("db.t").manage_snapshots().set_current_snapshot(snapshot_id).commit()


# Announced


def test_every_file_is_announced_before_it_is_written(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours = pair
    unknown: list[str] = []
    opened = 0
    real_open, real_put = DataFileWriter.__init__, staging.StagedWriter.put

    def check(path: str) -> None:
        nonlocal opened
        opened += 1
        if path not in announced(ours, "run"):
            unknown.append(path)

    def open_file(self: Any, table: Any, schema: Any, path: str, *rest: Any, **more: Any) -> None:
        check(path)
        real_open(self, table, schema, path, *rest, **more)

    def put(self: Any, path: str, data: bytes) -> None:
        check(path)
        real_put(self, path, data)

    monkeypatch.setattr(DataFileWriter, "__init__", open_file)
    monkeypatch.setattr(staging.StagedWriter, "put", put)
    assert ours.maintain((), COMPACT, run_id="run").tables[0].status is Status.DONE
    assert opened >= 4  # outputs, manifests, list
    assert unknown == []
    assert not ours._memory.table("main.db.t").leftovers, "all of it was committed"


def test_an_output_that_was_not_expected_is_announced_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse_maintenance.engines.embedded_iceberg.output import OutputPaths

    told: list[str] = []

    class Folder:
        def new_path(self) -> str:
            return f"file:///t/{time.monotonic_ns()}.parquet"

    paths = OutputPaths(Folder(), told.extend)  # type: ignore[arg-type]
    paths.reserve(2)
    assert len(told) == 2
    taken = [paths.take() for _ in range(4)]
    assert len(set(taken)) == 4
    assert set(taken) == set(told)


# Killed before an attempt


def test_outputs_of_a_run_killed_while_writing_are_removed(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    before = files_below(tmp_path / "warehouse")
    with monkeypatch.context() as patch:
        patch.setattr(staging, "write_manifest_list", _kill)
        with being_killed():
            ours.maintain((), COMPACT, run_id="killed")
    assert there(ours, "killed")
    after_the_lease(ours)
    outcome = look(ours)
    told = only(outcome)
    assert (told.run_id, told.action, told.status) == ("killed", "rewrite_data_files", Status.FAILED)
    assert told.removed_files > 0
    assert told.removed_bytes > 0
    assert told.kept == {}
    assert outcome.status is Status.SKIPPED
    assert files_below(tmp_path / "warehouse") == before
    assert ids(writer) == [*range(60)]
    events = [(e.run_id == "killed", e.action, e.phase, e.status) for e in ours.audit()][-3:]
    assert events == [
        (True, "rewrite_data_files", "outcome", "failed"),
        (False, "remove_files", "intent", None),
        (False, "remove_files", "outcome", "done"),
    ]
    assert look(ours).recovered == (), "told once"


def _kill(*args: Any, **kwargs: Any) -> Any:
    raise Killed


def test_a_file_that_is_newer_than_our_lease_stays(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is not dead but asleep, and wakes up while it is being recovered: it still writes."""
    _, ours = pair
    with monkeypatch.context() as patch:
        patch.setattr(staging, "write_manifest_list", _kill)
        with being_killed():
            ours.maintain((), COMPACT, run_id="killed")
    after_the_lease(ours)
    young = min(there(ours, "killed"))
    path = Path(young.removeprefix("file://"))
    os.utime(path, (time.time() + 7200, time.time() + 7200))
    told = only(look(ours))
    assert told.kept == {"written after the run's lease had ended, or nobody can tell when": 1}
    assert there(ours, "killed") == {young}
    os.utime(path)
    assert only(look(ours)).removed_files == 1
    assert there(ours, "killed") == set()


def test_a_run_that_slept_through_its_lease_commits_nothing_that_was_removed(pair: Pair, tmp_path: Path) -> None:
    """It checks its lease after it told of its attempt: whoever recovers it knows the attempt, or it is stopped."""
    writer, ours = pair
    real = ours.state.journal.record
    awake = True

    def record(event: Any) -> None:
        nonlocal awake
        if awake and "snapshot_id" in event.details and event.phase == "intent":
            awake = False
            after_the_lease(ours)
            told = only(look(ours))
            assert told.removed_files > 0
        real(event)

    ours.state.journal.record = record  # type: ignore[method-assign]
    outcome = ours.maintain((), COMPACT, run_id="asleep").tables[0]
    assert outcome.status is Status.FAILED
    assert "lease" in outcome.reason
    assert ids(writer) == [*range(60)]


# Killed at an attempt


def test_files_of_an_attempt_stay_until_its_branch_moved(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    before = files_below(tmp_path / "warehouse")
    killed_at_commit(ours, COMPACT, run_id="killed")
    mine = there(ours, "killed")
    told = only(look(ours))
    assert told.status is Status.FAILED
    assert told.removed_files == 0
    assert "could still arrive" in next(iter(told.kept))
    assert there(ours, "killed") == mine
    append(writer, "db.t", 100, 10)
    assert only(look(ours)).removed_files == len(mine)
    assert there(ours, "killed") == set()
    assert before < files_below(tmp_path / "warehouse")
    assert ids(writer) == sorted([*range(60), *range(100, 110)])
    assert not ours._memory.table("main.db.t").leftovers


def test_our_own_commit_makes_the_attempt_void(pair: Pair) -> None:
    writer, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.DONE
    assert only(outcome).removed_files > 0
    assert only(outcome).kept == {}
    assert there(ours, "killed") == set()
    assert ids(writer) == [*range(60)]


def test_an_attempt_that_appears_late_loses_nothing(pair: Pair) -> None:
    writer, ours = pair
    request = killed_at_commit(ours, COMPACT, run_id="killed")
    assert only(look(ours)).status is Status.FAILED
    request()
    late = only(look(ours))
    assert late.status is Status.DONE
    assert late.removed_files == 0
    assert ids(writer) == [*range(60)]
    told = [e.status for e in ours.audit() if e.run_id == "killed" and e.phase == "outcome"]
    assert told == ["failed", "done"]
    assert look(ours).recovered == ()
    assert len([e for e in ours.audit() if e.run_id == "killed" and e.phase == "outcome"]) == 2


def test_an_attempt_whose_branch_went_back_and_forth_may_appear(pair: Pair) -> None:
    """A rollback takes no sequence number: once it is undone, the request fits again."""
    writer, ours = pair
    request = killed_at_commit(ours, COMPACT, run_id="killed")
    table = writer.load_table("db.t")
    head, earlier = table.metadata.current_snapshot_id, table.history()[-2].snapshot_id
    assert head is not None
    roll_to(writer, earlier)
    told = only(look(ours))
    assert told.removed_files == 0
    assert "could come back" in next(iter(told.kept))
    roll_to(writer, head)
    request()
    assert only(look(ours)).status is Status.DONE
    assert ids(writer) == [*range(60)]


def test_files_stay_while_the_branch_stands_where_it_was_whatever_came_between(pair: Pair) -> None:
    writer, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    mine = there(ours, "killed")
    head = writer.load_table("db.t").metadata.current_snapshot_id
    assert head is not None
    append(writer, "db.t", 100, 10)
    roll_to(writer, head)
    assert only(look(ours)).removed_files == 0
    assert there(ours, "killed") == mine


# Whose they are


def test_files_that_another_table_took_up_stay(pair: Pair) -> None:
    writer, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    data = sorted(path for path in there(ours, "killed") if path.endswith(".parquet"))
    other = writer.create_table("db.other", writer.load_table("db.t").schema())
    other.add_files(data)
    append(writer, "db.t", 100, 10)
    outcome = {t.table: t for t in ours.maintain(()).tables}["main.db.t"]
    assert set(data) <= there(ours, "killed"), outcome
    assert ids(writer, "db.other") == [*range(60)]


def test_files_that_the_table_itself_took_up_stay(pair: Pair) -> None:
    writer, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    data = sorted(path for path in there(ours, "killed") if path.endswith(".parquet"))
    writer.load_table("db.t").add_files(data)
    told = only(look(ours))
    assert told.removed_files > 0, "its manifests and list"
    assert set(data) == there(ours, "killed")
    assert ids(writer) == sorted([*range(60)] * 2)
    assert look(ours).recovered == (), "they are the table's now"


def test_files_of_a_table_that_was_made_anew_stay(pair: Pair) -> None:
    writer, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    mine = there(ours, "killed")
    writer.drop_table("db.t")
    many_small_files(writer, commits=1)
    told = only(look(ours))
    assert told.removed_files == 0
    assert "made anew" in next(iter(told.kept))
    assert "orphan files" in told.done
    assert there(ours, "killed") == mine
    assert look(ours).recovered == ()


# This run's own


def test_groups_that_others_outdated_leave_nothing(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair

    def outdate(attempt: int) -> None:
        if attempt == 1:
            delete_rows(writer, "db.t", {data_paths(writer)[0]: [0]})

    with before_commit(ours, outdate):
        outcome = ours.maintain((), COMPACT, run_id="run").tables[0]
    assert outcome.status is Status.DONE, outcome
    told = only(outcome)
    assert (told.run_id, told.status, told.kept) == ("run", Status.DONE, {})
    assert told.removed_files > 0
    assert len(ids(writer)) == 59
    live = {*data_paths(writer)}
    table = writer.load_table("db.t")
    head = table.current_snapshot()
    assert head is not None
    live |= {head.manifest_list, *(manifest.manifest_path for manifest in head.manifests(table.io))}
    assert there(ours, "run") <= live


def test_a_refused_commit_is_cleaned_up_once_its_branch_moved(pair: Pair) -> None:
    writer, ours = pair

    def refuse(attempt: int, real: Callable[[], Any]) -> Any:
        raise ValueError("not like this")

    with commits(ours, refuse):
        outcome = ours.maintain((), COMPACT, run_id="refused").tables[0]
    assert outcome.status is Status.FAILED
    assert only(outcome).removed_files == 0, "a gateway may have sent the request twice"
    assert there(ours, "refused")
    append(writer, "db.t", 100, 10)
    assert only(look(ours)).removed_files > 0
    assert there(ours, "refused") == set()


def test_outputs_of_a_group_that_failed_are_removed_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    from lakehouse_maintenance.engines.embedded_iceberg.rewrite import Rewriter
    from lakehouse_maintenance.model.errors import TableUnreadableError

    def wrong(*args: Any) -> None:
        raise TableUnreadableError("59 rows were written where 60 were expected")

    monkeypatch.setattr(Rewriter, "_check_rows", wrong)
    outcome = ours.maintain((), COMPACT, run_id="wrong").tables[0]
    assert outcome.status is Status.FAILED
    assert only(outcome).removed_files > 0
    assert there(ours, "wrong") == set()
    assert ids(writer) == [*range(60)]


def test_after_an_unknown_commit_nothing_is_cleaned_in_that_run(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it could be proven at once: what the catalog answers right after an outage is not relied on."""
    writer, ours = pair
    catalog = ours.catalogs["main"]
    real_load, real_remember = catalog.load, ours._memory.left_unresolved
    away = False

    def load(name: Any) -> Any:
        if away:
            raise CatalogUnavailableError("away", field="main")
        return real_load(name)

    def back(*args: Any) -> None:
        nonlocal away
        away = False
        real_remember(*args)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        nonlocal away
        append(writer, "db.t", 100, 10)
        away = True
        raise TimeoutError("no answer")

    monkeypatch.setattr(catalog, "load", load)
    monkeypatch.setattr(ours._memory, "left_unresolved", back)
    with commits(ours, lose):
        outcome = ours.maintain((), COMPACT, run_id="lost").tables[0]
    assert (outcome.status, outcome.recovered) == (Status.UNKNOWN, ())
    mine = there(ours, "lost")
    assert mine
    told = only(look(ours))
    assert (told.status, told.removed_files) == (Status.FAILED, len(mine))
    assert "answer to its commit was lost" in told.found
    assert there(ours, "lost") == set()


def test_an_interrupt_during_a_commit_leaves_all_to_the_next_run(pair: Pair) -> None:
    writer, ours = pair

    def interrupt(attempt: int, real: Callable[[], Any]) -> Any:
        append(writer, "db.t", 100, 10)
        raise KeyboardInterrupt

    with commits(ours, interrupt), pytest.raises(KeyboardInterrupt):
        ours.maintain((), COMPACT, run_id="lost")
    mine = there(ours, "lost")
    assert mine
    assert only(look(ours)).removed_files == len(mine)


# On object storage


def test_leftovers_on_s3(s3: S3Server, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    bucket = s3.bucket()
    writer, properties = sql_catalog(warehouse=f"s3://{bucket}/wh", **s3.properties)
    many_small_files(writer)
    ours = lakehouse(tmp_path, properties)

    def objects() -> set[str]:
        pages = s3.client().get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {f"s3://{bucket}/{item['Key']}" for page in pages for item in page.get("Contents", [])}

    before = objects()
    killed_at_commit(ours, COMPACT, run_id="killed")
    mine = objects() - before
    assert mine
    assert mine <= announced(ours, "killed"), "nothing is there that was not announced"
    assert only(look(ours)).removed_files == 0
    append(writer, "db.t", 100, 10)
    assert only(look(ours)).removed_files == len(mine)
    assert not objects() & mine
    assert before <= objects()
    assert ids(writer) == sorted([*range(60), *range(100, 110)])


# The recovery itself ends early


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_recovery_that_is_killed_is_recovered(pair: Pair, when: str) -> None:
    """Before or after its first event is durable, its second, and so on."""
    writer, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    append(writer, "db.t", 100, 10)
    real = ours.state.journal.record
    for number in range(1, 6):
        left = number

        def record(event: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0 and when == "before":
                raise Killed
            real(event)
            if left == 0:
                raise Killed

        ours.state.journal.record = record  # type: ignore[method-assign]
        try:
            with being_killed():
                ours.maintain(())
                _kill()  # where there was nothing left to journal
        finally:
            ours.state.journal.record = real  # type: ignore[method-assign]
        after_the_lease(ours, hours=number + 1)
    look(ours)
    assert there(ours, "killed") == set()
    assert not ours._memory.table("main.db.t").leftovers
    assert not ours.state.journal.open_intents("main.db.t")
    assert ids(writer) == sorted([*range(60), *range(100, 110)])


def test_nobody_looks_for_ever(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours = pair
    monkeypatch.setattr(recovery, "MOST_LOOKS", 2)
    killed_at_commit(ours, COMPACT, run_id="killed")
    assert "a later run looks again" in only(look(ours)).done
    assert "left to the removal of orphan files" in only(look(ours)).done
    assert look(ours).recovered == ()
    assert there(ours, "killed")


def test_what_is_remembered_is_bounded(pair: Pair) -> None:
    _, ours = pair
    for number in range(150):
        ours._memory.left_files("main.db.t", {"run_id": f"r{number}", "action": "rewrite_data_files", "looks": 0})
    left = ours._memory.table("main.db.t").leftovers
    assert [entry["run_id"] for entry in left] == [f"r{number}" for number in range(50, 150)]


def test_a_table_that_another_run_works_on_is_left_to_it(pair: Pair) -> None:
    _, ours = pair
    killed_at_commit(ours, COMPACT, run_id="killed")
    with ours.state.leases.acquire("main.db.t", run_id="other", owner="somebody", ttl=timedelta(hours=9)):
        outcome = ours.maintain(()).tables[0]
    assert (outcome.status, outcome.recovered) == (Status.SKIPPED, ())
