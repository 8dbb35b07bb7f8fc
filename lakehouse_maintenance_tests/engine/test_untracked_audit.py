"""No folder is removed without a record (UF-19, UF-31), and runs that meet each other."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.audit import FolderAudit
from lakehouse_maintenance.execution.removing_folders import Removing
from lakehouse_maintenance.model.errors import CatalogUnavailableError
from lakehouse_maintenance.model.folders import AUDIT_TABLE, AuditRow, FolderRun
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import open_lists, remover
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.killed import Killed, after_the_lease, being_killed
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, only
from lakehouse_maintenance_tests.small_lakehouse import call

QUARANTINE = {"policies": {"default": {"untracked_folders": {"removal": "quarantine"}}}}
LOST = "audit_integrity_lost"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr(FolderAudit, "pause", staticmethod(lambda attempt: None))


@dataclass
class Databases:
    """`first`, `second` and `third` have a dropped table's folder each, `quiet` has none."""

    untracked: Untracked
    folders: dict[str, str]

    @property
    def lake(self) -> Lake:
        return self.untracked.lake

    @classmethod
    def made(cls, lake: Lake) -> Databases:
        folders = {}
        for name in ("first", "second", "third", "quiet"):
            lake.table(f"{name}.live")
            if name != "quiet":
                folders[name] = str(lake.table(f"{name}.gone").location())
                lake.writer.drop_table(f"{name}.gone")
        return cls(Untracked(lake), folders)

    def delete(self, ours: Lakehouse | None = None, *databases: str, **fields: Any) -> FolderRun:
        return self.untracked.delete(ours, databases=list(databases or ("first", "second", "third", "quiet")), **fields)

    def there(self) -> set[str]:
        """Databases whose folder still holds something."""
        return {name for name, folder in self.folders.items() if self.untracked.there(folder)}

    def audit(self) -> list[tuple[str, str, str | None]]:
        """Rows by time, in short."""
        if not self.lake.writer.table_exists(("iomete_system_db", AUDIT_TABLE)):
            return []
        rows = sorted(self.untracked.audit(), key=lambda row: row["start_time"])
        return [(row["database_name"], row["status"], row["status_reason"]) for row in rows]

    @contextmanager
    def refused(self, verb: str = "UPDATE", after: int = 0) -> Iterator[None]:
        """The catalog's database takes no more creations (INSERT) or commits (UPDATE) of the audit table, but so many.

        The file is SQLite's, and so is the error. Of a creation that was aborted PyIceberg says that the table exists:
        there it is a table that the trigger looks for in vain.
        """
        table = f"NEW.table_name = '{AUDIT_TABLE}'"
        refuses = (
            "INSERT INTO the_disk_is_full VALUES (1)" if verb == "INSERT" else "SELECT RAISE(ABORT, 'the_disk_is_full')"
        )
        self._sql(
            "CREATE TABLE taken (n INTEGER)",
            f"CREATE TRIGGER refused BEFORE {verb} ON iceberg_tables WHEN {table} AND (SELECT count(*) FROM taken) >= "
            f"{after} BEGIN {refuses}; END",
            f"CREATE TRIGGER counted AFTER {verb} ON iceberg_tables WHEN {table} "
            "BEGIN INSERT INTO taken VALUES (1); END",
        )
        try:
            yield
        finally:
            self._sql("DROP TRIGGER refused", "DROP TRIGGER counted", "DROP TABLE taken")

    def _sql(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.lake.folder / "main.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)


@pytest.fixture
def databases(local_lake: Lake) -> Databases:
    return Databases.made(local_lake)


def ends(run: FolderRun) -> dict[str, tuple[str, str | None, bool | None]]:
    """By database: status, reason, and whether its row is recorded."""
    return {
        one.row.database_name: (str(one.row.status), one.row.status_reason, one.is_recorded) for one in run.databases
    }


@pytest.mark.requirement("UF-19")
def test_an_audit_table_that_cannot_be_created(databases: Databases) -> None:
    """Nothing is removed without a place to record it."""
    with databases.refused("INSERT"):
        run = databases.delete()
    blocked = ("BLOCKED", LOST, False)
    assert ends(run) == dict.fromkeys(("first", "second", "third"), blocked) | {"quiet": ("SUCCESS", None, False)}
    assert not run.ok
    assert databases.there() == set(databases.folders)
    assert databases.audit() == []
    for result in run.databases[:3]:
        assert "the_disk_is_full" in str(result.row.error_message)
        assert result.row.candidate_folder_count == 1, "what was found is told all the same"
        assert result.row.deleted_folders == ()
    assert "An audit row could not be written" in run.report
    assert databases.delete().ok
    assert not databases.there()
    assert databases.audit() == [(name, "SUCCESS", None) for name in ("first", "second", "third", "quiet")]


@pytest.mark.requirement("UF-19", "UF-31")
def test_an_audit_table_that_takes_no_more_rows(databases: Databases) -> None:
    """The second database's folder is gone before its row is refused; no folder goes after that."""
    databases.untracked.run(databases=["quiet"])
    with databases.refused(after=1):
        run = databases.delete()
    assert ends(run) == {
        "first": ("SUCCESS", None, True),
        "second": ("SUCCESS", None, False),
        "third": ("BLOCKED", LOST, False),
        "quiet": ("SUCCESS", None, False),
    }
    assert not run.ok
    assert databases.there() == {"third"}
    assert databases.audit() == [("quiet", "SUCCESS", None), ("first", "SUCCESS", None)]
    second = run.databases[1]
    assert second.row.deleted_folders == (databases.folders["second"],), "the log tells what no row does"
    assert any("not in the audit table" in note and "the_disk_is_full" in note for note in second.notes)


@pytest.mark.requirement("UF-19", "UF-31")
def test_rows_of_later_databases_are_recorded_where_only_one_failed(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's record has a hole all the same: nothing more is removed, and the run has failed."""
    real = FolderAudit.write

    def write(self: FolderAudit, row: AuditRow) -> None:
        with databases.refused() if row.database_name == "first" else nullcontext():
            real(self, row)

    monkeypatch.setattr(FolderAudit, "write", write)
    run = databases.delete()
    assert ends(run) == {
        "first": ("SUCCESS", None, False),
        "second": ("BLOCKED", LOST, True),
        "third": ("BLOCKED", LOST, True),
        "quiet": ("SUCCESS", None, True),
    }
    assert not run.ok
    assert databases.there() == {"second", "third"}
    assert databases.audit() == [("second", "BLOCKED", LOST), ("third", "BLOCKED", LOST), ("quiet", "SUCCESS", None)]


def loses_commits(ours: Lakehouse, then: Callable[[], None] = lambda: None) -> None:
    """Commits of the audit table go through, and nobody hears of it."""
    catalog = ours.catalogs["main"].pyiceberg
    real = catalog.commit_table

    def commit_table(table: Any, *args: Any) -> Any:
        found = real(table, *args)
        if table.name()[-1] == AUDIT_TABLE:
            then()
            raise TimeoutError("no answer")
        return found

    catalog.commit_table = commit_table  # type: ignore[method-assign]


@pytest.mark.requirement("UF-19")
def test_a_lost_answer_is_looked_up(databases: Databases) -> None:
    """Each row is there, once, and the run goes on."""
    ours = databases.lake.open()
    loses_commits(ours)
    run = databases.delete(ours)
    assert run.ok, run.databases[0].notes
    assert not databases.there()
    assert databases.audit() == [(name, "SUCCESS", None) for name in ("first", "second", "third", "quiet")]


@pytest.mark.requirement("UF-19")
def test_a_lost_answer_that_nobody_can_look_up(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the row is there is not known, and no guess is made."""
    databases.untracked.run(databases=["quiet"])
    ours = databases.lake.open()
    catalog = ours.catalogs["main"]
    real = catalog.load
    away = threading.Event()

    def load(name: Any) -> Any:
        if away.is_set() and name.name == AUDIT_TABLE:
            raise CatalogUnavailableError("away", field="main")
        return real(name)

    monkeypatch.setattr(catalog, "load", load)
    loses_commits(ours, away.set)
    run = databases.delete(ours)
    assert ends(run) == {
        "first": ("SUCCESS", None, False),
        "second": ("BLOCKED", LOST, False),
        "third": ("BLOCKED", LOST, False),
        "quiet": ("SUCCESS", None, False),
    }
    assert any("it is not known whether" in note for note in run.databases[0].notes)
    assert not run.ok
    assert databases.there() == {"second", "third"}


@pytest.mark.requirement("UF-19")
def test_what_a_killed_run_began_is_not_gone_on_with(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """To end a move to quarantine takes objects from their place."""
    monkeypatch.setattr(remover, "BATCH", 1)
    folder = databases.folders["first"]
    before = {path: databases.lake.read(path) for path in databases.untracked.there(folder)}
    ours = databases.lake.open(**QUARANTINE)
    real = Storage.copy
    copied = 0

    def copy(self: Storage, source: Location, target: Location) -> Any:
        nonlocal copied
        copied += 1
        if copied == 3:
            raise Killed
        return real(self, source, target)

    with monkeypatch.context() as patch, being_killed():
        patch.setattr(Storage, "copy", copy)
        databases.delete(ours, "first")
    left = databases.untracked.there(folder)
    assert 0 < len(left) < len(before)

    later = databases.lake.open(**QUARANTINE)
    after_the_lease(later)
    with databases.refused():
        run = databases.delete(later, "quiet", "first")
    assert ends(run)["first"] == ("BLOCKED", LOST, False)
    assert databases.untracked.there(folder) == left
    assert any(folder in note and "ended amid" in note for note in run.databases[1].notes)

    last = databases.delete(later, "first")
    assert last.ok, only(last).row
    assert not open_lists(later.state, "main.first")
    assert not databases.untracked.there(folder)
    (entry,) = [one.entry for one in later.quarantined()]
    assert later.restore(entry.id).ok
    assert {path: databases.lake.read(path) for path in databases.untracked.there(folder)} == before


@pytest.mark.requirement("UF-19")
def test_the_command_line_ends_with_1(databases: Databases, capsys: pytest.CaptureFixture[str]) -> None:
    lake = databases.lake
    config = lake.folder / "lakehouse.yaml"
    settings = {"catalogs": {"main": lake.properties}, "state": {"url": str(lake.folder / "state")}}
    config.write_text(yaml.safe_dump(settings))
    file = databases.untracked.job(databases=["first", "quiet"], dry_run=False, delete_enabled=True)
    argv = ("--config", config, "untracked-folders", file)
    with databases.refused("INSERT"):
        told = call(capsys, *argv, "--json")
        drawn = call(capsys, *argv)
    assert (told.code, drawn.code) == (1, 1)
    assert told.json["status"] == "FAILED"
    found = [(one["database_name"], one["status"], one["status_reason"]) for one in told.json["databases"]]
    assert found == [("first", "BLOCKED", LOST), ("quiet", "SUCCESS", None)]
    assert "DELETION BLOCKED" in drawn.out
    assert "first" in databases.there()
    assert call(capsys, *argv, "--json").code == 0
    assert "first" not in databases.there()


@pytest.mark.requirement("UF-19")
def test_a_dry_run_that_cannot_be_recorded_has_failed(databases: Databases) -> None:
    """What it found is told as ever."""
    with databases.refused("INSERT"):
        run = databases.untracked.run(databases=["first"])
    assert not run.ok
    assert ends(run) == {"first": ("SUCCESS", None, False)}
    assert only(run).row.candidate_folders == (databases.folders["first"],)


@pytest.mark.requirement("UF-31")
def test_what_a_row_tells_beside_counts(databases: Databases) -> None:
    """Both forms of exclusion; why it was skipped; samples, and that there is more."""
    lake = databases.lake
    root = databases.folders["second"].rpartition("/")[0]
    for number in range(101):
        lake.put(f"{root}/kept-{number:03}/file")
    databases.untracked.run(
        databases=["first", "second", "absent"],
        exclude_paths=["s3a://bucket/data/archive"],
        exclude_database_folders=["first.manual"],
        max_candidate_folders_per_database=3,
    )
    rows = {row["database_name"]: row for row in databases.untracked.audit()}
    home = databases.folders["first"].rpartition("/")[0]
    assert rows["first"]["excluded_paths"] == ["s3a://bucket/data/archive", f"{home}/manual"]
    assert rows["second"]["excluded_paths"] == ["s3a://bucket/data/archive"]
    assert rows["absent"]["excluded_paths"] == ["s3a://bucket/data/archive"]
    assert (rows["absent"]["status"], rows["absent"]["status_reason"]) == ("SKIPPED", "database_not_found")
    assert "absent" in rows["absent"]["error_message"]
    skipped = rows["second"]
    assert (skipped["status"], skipped["status_reason"]) == ("SKIPPED", "too_many_candidate_folders")
    assert "102 folders" in skipped["error_message"]
    assert len(skipped["candidate_folders"]) == 102
    details = json.loads(skipped["diagnostic_details"])
    assert (len(details["candidates"]), details["candidates_truncated"]) == (100, True)
    details = json.loads(rows["first"]["diagnostic_details"])
    assert (len(details["candidates"]), details["candidates_truncated"]) == (1, False)
    assert rows["first"]["error_message"] is None


def test_two_runs_on_one_database(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """One works; the other says who does, and removes nothing. Both are recorded."""
    databases.untracked.run(databases=["quiet"])
    entered, ended = threading.Event(), threading.Event()
    real = Removing.remove

    def remove(self: Removing, *args: Any) -> None:
        assert self.run.run_id == "one", "the other does not get so far"
        entered.set()
        assert ended.wait(120)
        real(self, *args)

    monkeypatch.setattr(Removing, "remove", remove)
    file = databases.untracked.job(databases=["first"], dry_run=False, delete_enabled=True)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(lambda: databases.lake.open().untracked_folders(file, run_id="one"))
        try:
            assert entered.wait(120)
            other = databases.lake.open().untracked_folders(file, run_id="other")
        finally:
            ended.set()
        one = working.result()
    refused = only(other).row
    assert (refused.status, refused.status_reason, refused.deleted_folders) == ("FAILED", "unexpected_error", ())
    assert re.search(r"main\.first .*run one", str(refused.error_message)), refused.error_message
    assert (only(one).row.status, only(one).row.deleted_folders) == ("SUCCESS", (databases.folders["first"],))
    assert {row["run_id"] for row in databases.untracked.audit()} >= {"one", "other"}


def test_two_runs_on_two_databases_of_a_catalog(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """They create the audit table, and write to it, at the same time; both rows are there."""
    meet = threading.Barrier(2, timeout=120)
    for verb in ("prepare", "write"):
        real = getattr(FolderAudit, verb)

        def together(self: FolderAudit, *args: Any, real: Any = real, **kwargs: Any) -> None:
            meet.wait()
            real(self, *args, **kwargs)

        monkeypatch.setattr(FolderAudit, verb, together)
    files = {}
    for name in ("first", "second"):
        written = databases.untracked.job(databases=[name], dry_run=False, delete_enabled=True)
        files[name] = Path(written.rename(written.with_name(f"{name}.json")))
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda file: databases.lake.open().untracked_folders(file), files.values()))
    assert [(run.ok, only(run).is_recorded) for run in runs] == [(True, True)] * 2, [only(run).notes for run in runs]
    assert sorted(databases.audit()) == [("first", "SUCCESS", None), ("second", "SUCCESS", None)]
    assert databases.there() == {"third"}
