"""Pruning of old metadata versions: what leaves the log is deleted, what anybody still names stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance_tests.engine.tables import append, before_commit, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog, SqlCatalogFactory

NAME = "main.db.t"
MAX, DELETE = "write.metadata.previous-versions-max", "write.metadata.delete-after-commit.enabled"
KEEP_3 = {"previous-versions-max": "3", "set-properties": "true"}


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr("lakehouse_maintenance.iceberg.commit.random.uniform", lambda low, high: 0.0)


def history(catalog: Any) -> Table:
    """The table `db.t` of 20 rows, with ten versions of its metadata."""
    many_small_files(catalog, commits=2)
    while len(versions(catalog)) < 10:
        with catalog.load_table("db.t").transaction() as transaction:
            transaction.set_properties({"comment": str(len(versions(catalog)))})
    return catalog.load_table("db.t")


def request(options: Mapping[str, str] = KEEP_3) -> Request:
    return Request(actions=(Action.PRUNE_METADATA,), by_action={Action.PRUNE_METADATA: options})


def prune(ours: Lakehouse, options: Mapping[str, str] = KEEP_3) -> TableOutcome:
    return ours.maintain((NAME,), request(options)).tables[0]


def on_disk(folder: Path, table: str = "t") -> set[str]:
    found = (folder / "warehouse" / "db" / table / "metadata").glob("*.metadata.json")
    return {f"file://{path}" for path in found}


def versions(catalog: Any, name: str = "db.t") -> list[str]:
    """Previous ones, oldest first, and the current one, by PyIceberg."""
    table = catalog.load_table(name)
    return [entry.metadata_file for entry in table.metadata.metadata_log] + [table.metadata_location]


def rest_of_files(folder: Path) -> set[str]:
    return {str(p) for p in (folder / "warehouse").rglob("*") if p.is_file() and not p.name.endswith(".metadata.json")}


@pytest.mark.requirement("IM-07")
def test_what_left_the_log_is_deleted_and_nothing_else(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    history(writer)
    before, rows, others = versions(writer), ids(writer), rest_of_files(tmp_path)
    assert on_disk(tmp_path) == set(before)
    (planned,) = ours.plan((NAME,), request()).tables[0].actions
    sizes = {path: Path(path.removeprefix("file://")).stat().st_size for path in before}
    assert {file.path: file.size for file in planned.files} == {path: sizes[path] for path in before[:-3]}
    assert f"{len(before)} metadata files" in planned.notes[0], "the plan reports how many there are, and their size"

    outcome = prune(ours)
    assert outcome.status is Status.DONE, outcome
    done = outcome.actions[0]
    gone = set(before[:-3])
    assert (done.actual.deleted_files, done.actual.deleted_bytes) == (len(gone), sum(sizes[path] for path in gone))
    assert done.verified
    # A commit to trim the log, and one for the other property: what that one displaced leaves the log as well, later.
    now = versions(writer)
    assert set(before[-3:]) <= on_disk(tmp_path)
    assert on_disk(tmp_path) == {*before[-3:], *now}
    assert len(now) == 4
    properties = writer.load_table("db.t").properties
    assert (properties[MAX], properties[DELETE]) == ("3", "true")
    assert ids(writer) == rows
    assert rest_of_files(tmp_path) == others
    again = prune(ours)
    assert again.status is Status.SKIPPED
    assert "nothing to prune" in again.reason


@pytest.mark.requirement("IM-07")
def test_a_policy_prunes_by_itself_where_it_may_set_the_properties(
    sql_catalog: SqlCatalogFactory, tmp_path: Path
) -> None:
    writer, properties = sql_catalog()
    trigger = {"of": "prunable_metadata_files", "base": 4}
    off = lakehouse(tmp_path / "off", properties, policies={"default": {"prune_metadata": {"trigger": trigger}}})
    on = lakehouse(
        tmp_path / "on",
        properties,
        policies={"default": {"prune_metadata": {"trigger": trigger, "keep": 2, "set_properties": True}}},
    )
    table = history(writer)
    assert off.health()[0].prunable_metadata_files == 0
    previous = len(table.metadata.metadata_log)
    assert on.health()[0].prunable_metadata_files == previous - 2
    assert "prune_metadata" in [due.action for due in on.health()[0].due]
    refused = off.plan((), request({"previous-versions-max": "2"})).tables[0].skipped[0].reason
    assert "set_properties" in refused, "fewer stay only where the property may say so"
    assert on.maintain().tables[0].actions[-1].action == Action.PRUNE_METADATA
    assert len(versions(writer)) == 3
    assert on.health()[0].prunable_metadata_files == 0


@pytest.mark.requirement("IM-07")
def test_gc_switched_off_forbids_it(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    history(writer)
    plan = ours.plan((NAME,), request())
    assert plan.tables[0].actions
    with writer.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    there = on_disk(tmp_path)
    outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.FAILED
    assert "gc.enabled" in outcome.reason
    assert "gc.enabled" in prune(ours).reason
    assert on_disk(tmp_path) == there
    assert MAX not in writer.load_table("db.t").properties


@pytest.mark.requirement("IM-07")
def test_a_version_that_another_table_stands_on_stays(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    history(writer)
    before = versions(writer)
    writer.register_table("db.earlier", before[2])
    rows = ids(writer, "db.earlier")
    outcome = prune(ours)
    assert outcome.status is Status.DONE, outcome
    # Its own history is the other table's too.
    assert set(before[:3]) <= on_disk(tmp_path)
    assert not set(before[3:-3]) & on_disk(tmp_path)
    assert outcome.actions[0].actual.kept_files == 3
    assert any("main.db.earlier" in note for note in outcome.actions[0].notes)
    assert ids(writer, "db.earlier") == rows


@pytest.mark.requirement("IM-07")
@pytest.mark.parametrize("hint", ["2", "{name}", "{stem}", ""])
def test_a_version_that_a_version_hint_names_stays(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, hint: str
) -> None:
    writer, ours = pair
    history(writer)
    before = versions(writer)
    name = before[2].rpartition("/")[2]
    metadata = tmp_path / "warehouse" / "db" / "t" / "metadata"
    (metadata / "version-hint.text").write_text(hint.format(name=name, stem=name.removesuffix(".metadata.json")))
    outcome = prune(ours)
    assert outcome.status is Status.DONE, outcome
    kept = set(before) if not hint else {before[2], *before[-3:]}
    assert on_disk(tmp_path) & set(before) == kept
    assert any("version-hint.text" in note for note in outcome.actions[0].notes)


@pytest.mark.requirement("IM-07")
def test_writers_that_commit_meanwhile_lose_nothing(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    history(writer)
    before = versions(writer)

    def hook(attempt: int) -> None:
        if attempt == 1:
            append(writer, "db.t", 1000, 10)

    with before_commit(ours, hook):
        outcome = prune(ours)
    assert outcome.status is Status.DONE, outcome
    assert len(ids(writer)) == 30
    # Only what was planned goes: what the writer's commit displaced besides is left to the removal of orphan files.
    assert not set(before[:-3]) & on_disk(tmp_path)
    assert set(before[-3:]) <= on_disk(tmp_path)


@pytest.mark.requirement("IM-07")
def test_what_a_writer_set_meanwhile_is_not_overwritten(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    history(writer)
    there = on_disk(tmp_path)

    def hook(attempt: int) -> None:
        if attempt == 1:
            with writer.load_table("db.t").transaction() as transaction:
                transaction.set_properties({MAX: "50"})

    with before_commit(ours, hook):
        outcome = prune(ours)
    assert outcome.status is Status.FAILED
    assert f"somebody set {MAX} to '50'" in outcome.reason
    assert writer.load_table("db.t").properties[MAX] == "50"
    assert there <= on_disk(tmp_path)
    # The list that was made for it is finished: everything on it is still named.
    again = ours.maintain((NAME,)).tables[0]
    assert there <= on_disk(tmp_path)
    assert not open_lists(ours.state, NAME)
    assert sum(again.recovered[0].kept.values()) == len(there) - 3


@pytest.mark.requirement("IM-07")
def test_a_log_that_a_writer_left_untrimmed_is_pruned_without_a_change_of_properties(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path
) -> None:
    writer, ours = pair
    history(writer)
    before = versions(writer)
    current = Path(before[-1].removeprefix("file://"))
    raw = json.loads(current.read_text())
    raw["properties"][MAX] = "3"
    current.write_text(json.dumps(raw))
    assert ours.health()[0].prunable_metadata_files == len(before) - 1 - 3
    outcome = prune(ours, {})
    assert outcome.status is Status.DONE, outcome
    assert on_disk(tmp_path) == {*before[-3:], versions(writer)[-1]}
    properties = writer.load_table("db.t").properties
    assert properties[MAX] == "3"
    assert DELETE not in properties


_KILLED = """
import os, signal, sys
from pathlib import Path
from lakehouse_maintenance.removal import remover
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.engine.test_pruning_metadata import prune
folder, when = Path(sys.argv[1]), sys.argv[2]
uri, warehouse = f"sqlite:///{folder / 'main'}.db", f"file://{folder / 'warehouse'}"
ours = lakehouse(folder, {"type": "sql", "uri": uri, "warehouse": warehouse})
die = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
real = remover.delete_batch
commit = ours.catalogs["main"].pyiceberg.commit_table
if when == "before the commit":
    ours.catalogs["main"].pyiceberg.commit_table = die
elif when == "after the commit":
    ours.catalogs["main"].pyiceberg.commit_table = lambda *args: (commit(*args), die())
else:
    remover.delete_batch = lambda storage, locations: (real(storage, locations[:2]), die())
prune(ours)
"""


@pytest.mark.requirement("IM-07")
@pytest.mark.parametrize(
    ("when", "goes"),
    [("before the commit", False), ("after the commit", True), ("amid it", True)],
)
def test_a_killed_run_is_finished_by_the_next(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, goes: bool
) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    history(writer)
    before, rows = versions(writer), ids(writer)
    child = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), when], check=False, env=os.environ)
    assert child.returncode == -signal.SIGKILL
    info = ours.state.leases.current(NAME)
    assert info is not None
    later = info.expires_at + timedelta(seconds=1)
    monkeypatch.setattr(ours.state.leases, "_now", lambda: later)
    assert [head.action for head in open_lists(ours.state, NAME)] == ["prune_metadata"]

    outcome = ours.maintain((NAME,)).tables[0]
    told = {one.action: one.status for one in outcome.recovered}
    assert told == {"prune_metadata": Status.DONE if goes else Status.FAILED, "remove_files": Status.DONE}
    assert not open_lists(ours.state, NAME)
    left = set(before[-3:]) if goes else set(before)
    assert on_disk(tmp_path) & set(before) == left
    assert set(versions(writer)) <= on_disk(tmp_path)
    assert ids(writer) == rows


@pytest.mark.requirement("IM-07")
@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer_is_looked_up(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, arrived: bool) -> None:
    writer, ours = pair
    history(writer)
    before = versions(writer)
    catalog = ours.catalogs["main"].pyiceberg
    real: Callable[..., Any] = catalog.commit_table
    calls = 0

    def lose(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return real(*args)
        if arrived:
            real(*args)
        raise CommitStateUnknownException("the connection was closed")

    catalog.commit_table = lose  # type: ignore[method-assign]
    outcome = prune(ours)
    assert outcome.status is Status.DONE, outcome
    assert calls == (2 if arrived else 3)
    assert on_disk(tmp_path) & set(before) == set(before[-3:])


@pytest.mark.requirement("IM-07")
def test_an_answer_that_stays_unknown_deletes_nothing(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    history(writer)
    there = on_disk(tmp_path)
    catalog = ours.catalogs["main"].pyiceberg
    real = catalog.commit_table

    def lose(*args: Any) -> Any:
        raise CommitStateUnknownException("the connection was closed")

    catalog.commit_table = lose  # type: ignore[method-assign]
    assert prune(ours).status is Status.UNKNOWN
    assert on_disk(tmp_path) == there
    catalog.commit_table = real  # type: ignore[method-assign]
    outcome = ours.maintain((NAME,)).tables[0]
    assert {one.action: one.status for one in outcome.recovered}["prune_metadata"] is Status.FAILED
    assert on_disk(tmp_path) == there
    assert prune(ours).status is Status.DONE


@pytest.mark.requirement("IM-07")
def test_every_kind_of_catalog(any_catalog: AnyCatalog, tmp_path: Path) -> None:
    """The log is trimmed by PyIceberg, or by the server; a server may delete what it trims off by itself."""
    ours = lakehouse(tmp_path, any_catalog.properties)
    history(any_catalog.writer)
    before = versions(any_catalog.writer)
    assert len(before) > 5
    rows = ids(any_catalog.writer)  # type: ignore[arg-type]
    outcome = prune(ours)
    assert outcome.status is Status.DONE, outcome
    table = any_catalog.writer.load_table("db.t")
    there = {path for path in before if table.io.new_input(path).exists()}
    # The other property's commit displaces one more, which a server that obeys it deletes at once.
    assert set(before[-2:]) <= there <= set(before[-3:])
    assert (table.properties[MAX], table.properties[DELETE]) == ("3", "true")
    assert all(table.io.new_input(path).exists() for path in versions(any_catalog.writer))
    assert ids(any_catalog.writer) == rows  # type: ignore[arg-type]
