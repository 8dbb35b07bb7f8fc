"""Stores that fail while folders are removed: what is told is what is gone, and nobody else waits for it (UF-18)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.folders import AuditRow, FolderRun
from lakehouse_maintenance.removal import Remover, open_lists
from lakehouse_maintenance_tests.engine.faulty import (
    SLOW,
    Faulty,
    cannot_unlink,
    errors_for,
    faulty,
    is_delete,
    is_list,
    keys_in,
)
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked
from lakehouse_maintenance_tests.readers import read_pyiceberg
from lakehouse_maintenance_tests.services.faults import Answer, Cut, Lose, Request

__all__ = ["faulty"]

BOTH = ["db", "other"]
LIVE = ("db.live", "other.live")
QUARANTINE = {"policies": {"default": {"untracked_folders": {"removal": "quarantine"}}}}

Fault = Answer | Cut | Lose


@dataclass
class Folders:
    """`a`, `b` and `c` in database `db`, `d` in database `other`: dropped tables' folders, with a live table beside."""

    untracked: Untracked
    opened: Callable[..., Lakehouse]
    a: str
    b: str
    c: str
    d: str

    def __post_init__(self) -> None:
        self.before = {folder: self.untracked.there(folder) for folder in (self.a, self.b, self.c, self.d)}

    @classmethod
    def made(cls, lake: Lake, opened: Callable[..., Lakehouse]) -> Folders:
        untracked = Untracked(lake)
        found = []
        for name in LIVE:
            lake.table(name)
        for name in ("db.a", "db.b", "db.c", "other.d"):
            found.append(str(lake.table(name).location()))
            lake.writer.drop_table(name)
        return cls(untracked, opened, *found)

    def delete(self, ours: Lakehouse | None = None) -> FolderRun:
        return self.untracked.delete(ours or self.opened(), databases=BOTH)

    def there(self, folder: str) -> set[str]:
        return self.untracked.there(folder)

    def is_whole(self, *folders: str) -> bool:
        return all(self.there(folder) == self.before[folder] for folder in folders)

    def live(self) -> None:
        """Nobody's table lost anything."""
        lake = self.untracked.lake
        for name in LIVE:
            assert len(read_pyiceberg(lake.writer.load_table(name))) == 1

    def recorded(self, run: FolderRun) -> list[dict[str, Any]]:
        rows = [row for row in self.untracked.audit() if row["run_id"] == run.run_id]
        return sorted(rows, key=lambda row: str(row["database_name"]))


@pytest.fixture
def folders(faulty: Faulty) -> Folders:
    return Folders.made(faulty.lake, faulty.maintaining)


def rows(run: FolderRun) -> tuple[AuditRow, AuditRow]:
    first, second = (result.row for result in run.databases)
    return first, second


def about(folder: str, request: Request) -> bool:
    """Whether a deletion is of this folder's objects."""
    key = folder.partition("://")[2].partition("/")[2] + "/"
    named = keys_in(request) or [request.target.partition("?")[0].removeprefix("/").partition("/")[2]]
    return is_delete(request) and any(one.startswith(key) for one in named)


def lists(folder: str, request: Request) -> bool:
    """Whether all objects of the folder are asked for, or whether there is any."""
    from urllib.parse import parse_qs, urlsplit

    key = folder.partition("://")[2].partition("/")[2]
    prefix = parse_qs(urlsplit(request.target).query).get("prefix", [""])[0]
    return is_list(request) and prefix.rstrip("/") == key


def failed_at_b(folders: Folders, run: FolderRun) -> AuditRow:
    """The row of `db`, which tells the truth; `other` went on. What is left of `b` is not looked at."""
    failed, other = rows(run)
    assert not run.ok
    assert (failed.status, failed.status_reason) == ("FAILED", "deletion_failed"), failed
    assert failed.diagnostic_details["deletion_failed_folder_path"] == folders.b
    assert failed.deleted_folders == (folders.a,)
    assert (failed.deleted_folder_count, failed.deleted_object_count) == (1, len(folders.before[folders.a]))
    assert failed.candidate_folders == (folders.a, folders.b, folders.c)
    assert folders.b in str(failed.error_message)
    assert not folders.there(folders.a)
    assert folders.is_whole(folders.c)
    assert (other.status, other.deleted_folders) == ("SUCCESS", (folders.d,))
    assert not folders.there(folders.d)
    stored, second = folders.recorded(run)
    assert (stored["status"], stored["status_reason"]) == ("FAILED", "deletion_failed")
    assert (stored["deleted_folders"], second["deleted_folders"]) == ([folders.a], [folders.d])
    folders.live()
    return failed


def ends_well(folders: Folders, *went: str) -> None:
    """The store is well again, and the next run removes what is left; its row counts what it removed itself."""
    left = [len(folders.there(folder)) for folder in went]
    run = folders.delete()
    first, _ = rows(run)
    assert (run.ok, first.status, first.deleted_folders) == (True, "SUCCESS", went), first
    assert first.deleted_object_count == sum(left)
    assert not any(folders.there(folder) for folder in (folders.a, folders.b, folders.c, folders.d))
    ours = folders.opened()
    assert not open_lists(ours.state, "main.db")
    assert not ours.state.journal.open_intents("main.db")
    folders.live()


@pytest.mark.requirement("UF-18")
def test_a_store_that_is_busy_for_a_while(faulty: Faulty, folders: Folders) -> None:
    refused = iter([SLOW] * 5)
    faulty.proxy.rule = lambda request: next(refused, None) if is_delete(request) else None
    run = folders.delete()
    assert [row.status for row in rows(run)] == ["SUCCESS", "SUCCESS"]
    assert rows(run)[0].deleted_folders == (folders.a, folders.b, folders.c)
    assert faulty.waits, "it was waited for"
    assert next(refused, None) is None
    folders.live()


@pytest.mark.requirement("UF-18")
def test_answers_that_are_lost_though_it_was_done(faulty: Faulty, folders: Folders) -> None:
    """The connection closes after each deletion; the store shows that the objects are gone."""
    faulty.proxy.rule = lambda request: Lose() if about(folders.b, request) else None
    run = folders.delete()
    assert [row.status for row in rows(run)] == ["SUCCESS", "SUCCESS"], rows(run)[0]
    assert rows(run)[0].deleted_folders == (folders.a, folders.b, folders.c)


@pytest.mark.requirement("UF-18")
@pytest.mark.parametrize(
    ("fault", "why"),
    [(SLOW, "SlowDown"), (Cut(), "could not be removed"), (errors_for({}), "said deleted and it is still there")],
    ids=["busy for ever", "cut connections", "deleted, and it is still there"],
)
def test_a_folder_that_cannot_be_deleted(faulty: Faulty, folders: Folders, fault: Fault, why: str) -> None:
    faulty.proxy.rule = lambda request: fault if about(folders.b, request) else None
    failed = failed_at_b(folders, folders.delete())
    assert why in str(failed.error_message)
    assert folders.is_whole(folders.b)
    faulty.heals()
    ends_well(folders, folders.b, folders.c)


@pytest.mark.requirement("UF-18")
def test_part_of_a_batch_is_refused(faulty: Faulty, folders: Folders) -> None:
    """The folder is not told as deleted, though most of it is."""
    refused = sorted(folders.before[folders.b])[:1]
    faulty.refuses(dict.fromkeys(refused, "AccessDenied"))
    failed = failed_at_b(folders, folders.delete())
    assert "1 objects could not be removed" in str(failed.error_message)
    assert folders.there(folders.b) == set(refused)
    faulty.heals()
    ends_well(folders, folders.b, folders.c)


@pytest.mark.requirement("UF-18")
@pytest.mark.parametrize("share", ["some", "all"])
@pytest.mark.parametrize("config", [{}, QUARANTINE], ids=["delete", "quarantine"])
def test_objects_under_a_lock(faulty: Faulty, folders: Folders, config: dict[str, Any], share: str) -> None:
    """They stay, and the folder with them: nothing of it counts as deleted."""
    there = sorted(folders.before[folders.b])
    held = there if share == "all" else there[:1]
    faulty.refuses(dict.fromkeys(held, "ObjectLocked"))
    ours = folders.opened(**config)
    failed = failed_at_b(folders, folders.delete(ours))
    assert "the store holds it" in str(failed.error_message)
    assert folders.there(folders.b) == set(held)
    assert not open_lists(ours.state, "main.db"), "a lock may last for years"
    faulty.heals()
    ends_well(folders, folders.b, folders.c)


@pytest.mark.requirement("UF-18")
def test_a_move_to_quarantine_that_cannot_be_ended_is_not_begun_anew(faulty: Faulty, folders: Folders) -> None:
    """The folder comes to lie in one entry, however many runs it takes, and comes back from it whole."""
    contents = {path: folders.untracked.lake.read(path) for path in folders.before[folders.b]}
    refused = sorted(contents)[:1]
    faulty.refuses(dict.fromkeys(refused, "AccessDenied"))
    ours = folders.opened(**QUARANTINE)
    failed = failed_at_b(folders, folders.delete(ours))
    entry = failed.diagnostic_details["quarantine"][folders.b]
    again, _ = rows(folders.delete(ours))
    assert (again.status_reason, again.deleted_folders) == ("deletion_failed", ())
    assert again.diagnostic_details["deletion_failed_folder_path"] == folders.b
    assert "could not be ended" in str(again.error_message)
    assert folders.is_whole(folders.c)
    faulty.heals()
    last, _ = rows(folders.delete(ours))
    assert (last.status, last.deleted_folders) == ("SUCCESS", (folders.c,)), last
    assert any(folders.b in note for note in last.diagnostic_details["notes"])
    assert not folders.there(folders.b)
    assert ours.restore(entry).ok
    assert {path: folders.untracked.lake.read(path) for path in folders.there(folders.b)} == contents


def page(key: str) -> Answer:
    """The first page of a listing, with more to come."""
    return Answer(
        200,
        b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        b"<IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken><Contents><Key>"
        + key.encode()
        + b"</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>1</Size></Contents>"
        b"</ListBucketResult>",
    )


@pytest.mark.requirement("UF-18", "UF-20")
def test_a_listing_that_ends_half_way_concludes_nothing(faulty: Faulty, folders: Folders) -> None:
    """When candidates are looked for, the first page names one old object; the second never comes."""
    key = folders.b.partition("://")[2].partition("/")[2]

    def rule(request: Request) -> Fault | None:
        if not lists(folders.b, request):
            return None
        return Cut() if "continuation-token" in request.target else page(f"{key}/old")

    faulty.proxy.rule = rule
    run = folders.delete()
    first, other = rows(run)
    assert (first.status, first.status_reason, first.deleted_folders) == ("FAILED", "unexpected_error", ()), first
    assert folders.is_whole(folders.a, folders.b, folders.c)
    assert (other.status, other.deleted_folders) == ("SUCCESS", (folders.d,))
    assert len(folders.recorded(run)) == 2


@pytest.mark.requirement("UF-18", "UF-20")
def test_a_second_listing_that_ends_half_way(faulty: Faulty, folders: Folders) -> None:
    """Before the folder is touched, after the one before it was deleted."""
    deleted: list[Request] = []

    def rule(request: Request) -> Fault | None:
        if about(folders.a, request):
            deleted.append(request)
        return Cut() if deleted and lists(folders.b, request) else None

    faulty.proxy.rule = rule
    first, other = rows(folders.delete())
    assert first.status == "FAILED"
    assert first.deleted_folders == (folders.a,)
    assert folders.is_whole(folders.b, folders.c)
    assert other.status == "SUCCESS"
    faulty.heals()
    ends_well(folders, folders.b, folders.c)


@pytest.mark.requirement("UF-18")
def test_a_folder_whose_end_cannot_be_confirmed_is_not_counted(faulty: Faulty, folders: Folders) -> None:
    """Its objects are deleted; whether nothing else lies in it, nobody can tell."""
    deleted: list[Request] = []

    def rule(request: Request) -> Fault | None:
        if about(folders.b, request):
            deleted.append(request)
        return Cut() if deleted and lists(folders.b, request) else None

    faulty.proxy.rule = rule
    failed_at_b(folders, folders.delete())
    assert not folders.there(folders.b)
    faulty.heals()
    ends_well(folders, folders.c)


@pytest.mark.requirement("UF-18")
def test_a_folder_that_somebody_else_removes_meanwhile(faulty: Faulty, folders: Folders) -> None:
    """Between detection and the second look; it is nobody's failure, and not counted as deleted by us."""

    def rule(request: Request) -> None:
        if about(folders.a, request):
            for path in folders.there(folders.b):
                faulty.lake.remove(path)

    faulty.proxy.rule = rule
    first, _ = rows(folders.delete())
    assert (first.status, first.deleted_folders) == ("SUCCESS", (folders.a, folders.c)), first
    assert [one["path"] for one in first.diagnostic_details["not_removed"]] == [folders.b]


@pytest.mark.requirement("UF-18")
@pytest.mark.parametrize("share", ["some", "all"])
def test_objects_that_somebody_else_removes_just_before_us(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    """After the second look: only what was there to be deleted counts."""
    objects = sorted(folders.before[folders.b])
    others = objects if share == "all" else objects[:1]
    real = Remover.intend

    def intend(self: Remover, *args: Any, evidence: Any, **kwargs: Any) -> Any:
        head = real(self, *args, evidence=evidence, **kwargs)
        for path in others if evidence["folder"] == folders.b else ():
            folders.untracked.lake.remove(path)
        return head

    monkeypatch.setattr(Remover, "intend", intend)
    first, _ = rows(folders.delete())
    counted = (folders.a, folders.c) if share == "all" else (folders.a, folders.b, folders.c)
    assert (first.status, first.deleted_folders) == ("SUCCESS", counted), first
    every = sum(len(folders.before[folder]) for folder in (folders.a, folders.b, folders.c))
    assert first.deleted_object_count == every - len(others)
    if share == "all":
        assert first.diagnostic_details["not_removed"][0]["why"] == "somebody else removed it meanwhile"


@pytest.mark.requirement("UF-18")
def test_an_object_that_is_written_while_its_folder_is_deleted(faulty: Faulty, folders: Folders) -> None:
    """It stays: nobody looked at it. The folder is not gone, so it was not deleted."""
    new = f"{folders.b}/data/new.parquet"

    def rule(request: Request) -> None:
        if about(folders.b, request) and new not in folders.there(folders.b):
            faulty.lake.put(new)

    faulty.proxy.rule = rule
    failed = failed_at_b(folders, folders.delete())
    assert f"the folder still holds {new}" in str(failed.error_message)
    assert folders.there(folders.b) == {new}
    faulty.heals()
    ends_well(folders, folders.b, folders.c)


@pytest.mark.requirement("UF-18")
@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM], ids=["no right", "immutable"])
def test_local_files_that_cannot_be_deleted(local_lake: Lake, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    folders = Folders.made(local_lake, local_lake.open)
    refused = min(folders.before[folders.b])
    with monkeypatch.context() as patch:
        cannot_unlink(patch, {refused: code})
        failed_at_b(folders, folders.delete())
    assert folders.there(folders.b) == {refused}
    ends_well(folders, folders.b, folders.c)
    assert not Path(folders.b.removeprefix("file://")).exists()
