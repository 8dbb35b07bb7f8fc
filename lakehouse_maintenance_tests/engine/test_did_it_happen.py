"""Known trap "Did it happen?" for whole actions: what is told as deleted, failed, kept or unknown is what is true."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.faulty import (
    DENIED,
    NAME,
    SLOW,
    Faulty,
    assert_told,
    cannot_unlink,
    deleted_by_batches,
    errors_for,
    faulty,
    is_delete,
    is_list,
    is_open,
    reasons,
)
from lakehouse_maintenance_tests.engine.stores import LIMITS, Lake
from lakehouse_maintenance_tests.engine.tables import ids
from lakehouse_maintenance_tests.services.faults import Answer, Cut, Lose, Request
from lakehouse_maintenance_tests.small_lakehouse import call

__all__ = ["faulty"]


# --- a part of the batch refused


def test_a_part_of_the_batch_is_refused(faulty: Faulty) -> None:
    """200, and per key: done, no right, broken, held, throttled. The next run finishes it; nothing counts twice."""
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    held = orphans[3]
    failing = dict.fromkeys(orphans[:2], "AccessDenied") | {orphans[2]: "MalformedXML", orphans[4]: "SlowDown"}
    faulty.refuses({**failing, held: "InvalidObjectState"})
    ours = lake.open()
    result = lake.orphans(ours)
    fates = assert_told(
        lake, result, before, ours, status=Status.FAILED, deleted_files=7, deleted_bytes=7 * 8, unknown=()
    )
    assert fates == {"deleted": 7, "failed": 4, "kept": 1}
    assert {path for path, why in result.failed if failing[path] in why} == set(failing)
    assert reasons(result) == {"the store holds it: told of InvalidObjectState (code: InvalidObjectState)": 1}
    assert before - lake.objects() == set(orphans[5:])
    assert is_open(ours)
    faulty.refuses({held: "InvalidObjectState"})
    there = lake.objects()
    result = lake.orphans(ours)
    assert (result.status, result.deleted_files, result.failed) == (Status.DONE, 0, ()), result
    assert any("a list of 12 files" in note and "it was finished" in note for note in result.notes), result.notes
    assert there - lake.objects() == set(failing)
    assert lake.objects() == before - {*orphans} | {held}
    assert deleted_by_batches(ours) == len(orphans) - 1
    assert not is_open(ours)


def test_the_command_line_tells_it(faulty: Faulty, capsys: pytest.CaptureFixture[str]) -> None:
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    faulty.refuses(dict.fromkeys(orphans[:2], "AccessDenied"))
    config = lake.folder / "lakehouse.json"
    settings = {"catalogs": {"main": lake.properties}, "state": {"url": str(lake.folder / "state")}, "limits": LIMITS}
    config.write_text(json.dumps(settings))
    ended = call(capsys, "--config", config, "orphans", NAME, "--delete", "--json")
    (table,) = ended.json["tables"]
    assert ended.code == 1
    assert (table["status"], table["deleted_files"], table["orphan_files"]) == ("failed", 10, 12)
    assert [one["path"] for one in table["failed"]] == orphans[:2]
    assert all("AccessDenied" in one["error"] for one in table["failed"])
    assert table["unknown"] == []
    assert before - lake.objects() == set(orphans[2:])
    faulty.heals()
    assert call(capsys, "--config", config, "orphans", NAME, "--delete").code == 0
    assert before - lake.objects() == set(orphans)


def test_a_part_of_local_files_is_refused(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    orphans = [lake.put(f"{table.location()}/data/orphan-{number:02}.parquet") for number in range(12)]
    before = lake.objects()
    ours = lake.open()
    with pytest.MonkeyPatch.context() as patch:
        codes = [errno.EACCES, errno.EROFS, errno.EIO, errno.EPERM]
        cannot_unlink(patch, dict(zip(orphans, codes, strict=False)))
        result = lake.orphans(ours)
    fates = assert_told(lake, result, before, ours, status=Status.FAILED, deleted_files=8, unknown=())
    assert fates == {"deleted": 8, "failed": 3, "kept": 1}
    assert reasons(result) == {"the store holds it: told of EPERM": 1}
    assert is_open(ours)
    # The hold has ended too: what stayed open is the whole list.
    result = lake.orphans(ours)
    assert (result.status, result.deleted_files, result.reason) == (Status.DONE, 0, "no orphan files"), result
    assert any("it was finished" in note for note in result.notes), result.notes
    assert lake.objects() == before - {*orphans}
    assert deleted_by_batches(ours) == len(orphans)
    assert not is_open(ours)


# --- "deleted", and it did nothing


def test_a_store_that_says_deleted_and_has_not(faulty: Faulty) -> None:
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    faulty.proxy.rule = lambda request: errors_for({}) if is_delete(request) else None
    ours = lake.open()
    result = lake.orphans(ours)
    assert_told(lake, result, before, ours, status=Status.FAILED, deleted_files=0, deleted_bytes=0, unknown=())
    assert {path for path, _ in result.failed} == set(orphans)
    assert {why for _, why in result.failed} == {"the store said deleted and it is still there"}
    assert lake.objects() == before
    faulty.heals()
    assert lake.orphans(ours).status is Status.DONE
    assert before - lake.objects() == set(orphans)
    assert deleted_by_batches(ours) == len(orphans)


# --- lost answers and cut connections


LOST: dict[str, Lose | Cut] = {"lost": Lose(), "cut before": Cut(), "cut within": Cut(10)}


@pytest.mark.parametrize(
    ("kind", "how"),
    [(kind, how) for kind in ("delete", "head", "list") for how in LOST if (kind, how) != ("list", "cut within")],
)
def test_an_answer_is_lost_once(faulty: Faulty, kind: str, how: str) -> None:
    lake, fault = faulty.lake, LOST[how]
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    is_it = {"delete": is_delete, "head": _is_look, "list": is_list}[kind]
    lost: list[Request] = []

    def rule(request: Request) -> Lose | Cut | None:
        if not is_it(request) or len(lost) == 1:
            return None
        lost.append(request)
        return fault

    faulty.proxy.rule = rule
    ours = lake.open()
    result = lake.orphans(ours)
    assert lost
    assert_told(lake, result, before, ours, status=Status.DONE, deleted_files=12, failed=(), unknown=())
    assert before - lake.objects() == set(orphans)
    assert not is_open(ours)


def _is_look(request: Request) -> bool:
    return request.method == "HEAD" and "orphan-" in request.target


def test_answers_to_deletions_are_always_lost(faulty: Faulty) -> None:
    """They are done all the same, and the look shows it."""
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    faulty.proxy.rule = lambda request: Lose() if is_delete(request) else None
    ours = lake.open()
    result = lake.orphans(ours)
    assert_told(lake, result, before, ours, status=Status.DONE, deleted_files=12, failed=(), unknown=())
    assert before - lake.objects() == set(orphans)


@pytest.mark.parametrize("done", [True, False], ids=["deleted", "there"])
@pytest.mark.parametrize("fault", [DENIED, Cut()], ids=["denied", "cut"])
def test_where_looking_fails_it_is_unknown(faulty: Faulty, done: bool, fault: Answer | Cut) -> None:
    """And only there: the next run tells, and counts nothing twice."""
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    asked: list[Request] = []

    def rule(request: Request) -> Answer | Cut | None:
        if is_delete(request):
            asked.append(request)
            return None if done else DENIED
        # Five of them can be looked at.
        return fault if asked and _is_look(request) and "orphan-0" in request.target else None

    faulty.proxy.rule = rule
    ours = lake.open()
    result = lake.orphans(ours)
    expected = {"status": Status.UNKNOWN if done else Status.FAILED, "deleted_files": 2 if done else 0}
    assert_told(lake, result, before, ours, **expected)
    assert sorted(result.unknown) == orphans[:10]
    assert {path for path, _ in result.failed} == (set() if done else set(orphans[10:]))
    assert is_open(ours)
    faulty.heals()
    assert lake.orphans(ours).status is Status.DONE
    assert before - lake.objects() == set(orphans)
    assert deleted_by_batches(ours) == (2 if done else 12)
    assert not is_open(ours)


def _page(lake: Lake, objects: list[str]) -> Answer:
    """The first page of a listing, with the promise of another."""
    bucket = lake.root.removeprefix("s3://").rstrip("/")
    rows = "".join(
        f"<Contents><Key>{path.removeprefix(lake.root)}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
        '<ETag>"x"</ETag><Size>8</Size><StorageClass>STANDARD</StorageClass></Contents>'
        for path in objects
    )
    return Answer(
        200,
        (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>"
            f"{rows}</ListBucketResult>"
        ).encode(),
    )


@pytest.mark.parametrize(
    "fault", [Answer(500), DENIED, Cut(), Cut(500), SLOW], ids=["500", "denied", "cut", "cut within", "storm"]
)
@pytest.mark.parametrize("first", [True, False], ids=["at once", "after a page"])
def test_a_listing_that_ends_early(faulty: Faulty, fault: Answer | Cut, first: bool) -> None:
    """However much of it came: it is failed, and nothing is deleted, nor said of what was seen."""
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()

    def rule(request: Request) -> Answer | Cut | None:
        if not is_list(request):
            return None
        return _page(lake, orphans[:5]) if not first and "continuation-token" not in request.target else fault

    faulty.proxy.rule = rule
    for delete in (False, True):
        result = lake.orphans(delete=delete)
        assert result.status is Status.FAILED, result
        assert (result.orphan_files, result.deleted_files, result.digest) == (0, 0, None)
        assert faulty.seen(is_delete) == 0
    assert lake.objects() == before
    faulty.heals()
    assert lake.orphans().deleted_files == len(orphans)


def test_a_local_listing_that_ends_early(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    lake = local_lake
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    lake.put(f"{table.location()}/data/deeper/orphan.parquet")
    before = lake.objects()
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path).rstrip("/").endswith("deeper"):
            raise OSError(errno.EIO, "the disk is broken")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        result = lake.orphans()
    assert (result.status, result.deleted_files) == (Status.FAILED, 0), result
    assert lake.objects() == before
    assert lake.orphans().deleted_files == 2


# --- throttling


@pytest.mark.parametrize("kind", ["delete", "head", "list"])
def test_a_storm_that_ends_is_waited_for(faulty: Faulty, kind: str) -> None:
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    answered = 0
    # A client's own retries take the first two; of looks, each of the twelve makes them.
    storm = {"delete": 6, "head": 48, "list": 1}[kind]
    is_it = {"delete": is_delete, "head": _is_look, "list": is_list}[kind]

    def rule(request: Request) -> Answer | None:
        nonlocal answered
        if not is_it(request) or answered >= storm or (kind == "head" and not faulty.seen(is_delete)):
            return None
        answered += 1
        return SLOW

    faulty.proxy.rule = rule
    ours = lake.open()
    result = lake.orphans(ours)
    assert answered == storm
    assert_told(lake, result, before, ours, status=Status.DONE, deleted_files=12, failed=(), unknown=())
    assert before - lake.objects() == set(orphans)
    assert bool(faulty.waits) is (kind != "list")


@pytest.mark.parametrize("is_it", [is_delete, is_list], ids=["delete", "list"])
def test_a_storm_that_never_ends_fails_one_table_alone(faulty: Faulty, is_it: Callable[[Request], bool]) -> None:
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    others = faulty.orphans_of(lake.table("db.u"))
    before = lake.objects()

    def rule(request: Request) -> Answer | None:
        of_t = b"/db/t/" in request.body or "db%2Ft" in request.target or "/db/t" in request.target
        return SLOW if of_t and is_it(request) else None

    faulty.proxy.rule = rule
    ours = lake.open()
    first, second = ours.orphans(["main.db.*"], delete=True).tables
    assert (first.table, first.status, first.deleted_files) == (NAME, Status.FAILED, 0), first
    said = first.reason + "".join(why for _, why in first.failed)
    assert "503" in said or "SlowDown" in said, first
    assert (second.status, second.deleted_files) == (Status.DONE, len(others)), second
    assert before - lake.objects() == set(others)
    faulty.heals()
    lake.orphans(ours)
    assert before - lake.objects() == {*orphans, *others}


# --- listings are looked at anew


def test_no_listing_is_remembered(lake: Lake) -> None:
    table = lake.table()
    ours = lake.open()
    first = lake.put(f"{table.location()}/data/first.parquet")
    assert [file.path for file in lake.orphans(ours, delete=False).files] == [first]
    second = lake.put(f"{table.location()}/data/second.parquet")
    assert {file.path for file in lake.orphans(ours, delete=False).files} == {first, second}
    lake.remove(first)
    assert [file.path for file in lake.orphans(ours, delete=False).files] == [second]
    assert lake.orphans(ours).deleted_files == 1


# --- versioned buckets


def test_a_versioned_bucket(faulty: Faulty) -> None:
    """Nothing is reclaimed there, and it is said; delete markers are neither folders nor files."""
    lake = faulty.lake
    bucket = lake.root.removeprefix("s3://").rstrip("/")
    lake.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    table = lake.table()
    files = lake.orphans(delete=False).objects_listed
    alone = lake.put(f"{table.location()}/data/p=1/alone.parquet")
    orphans = {*faulty.orphans_of(table), alone}
    before = lake.objects()
    result = lake.orphans()
    assert (result.status, result.deleted_files) == (Status.DONE, len(orphans)), result
    assert any("keeps versions" in note for note in result.notes)
    assert before - lake.objects() == orphans
    markers = lake.client.list_object_versions(Bucket=bucket).get("DeleteMarkers", [])
    assert {f"{lake.root}{marker['Key']}" for marker in markers} == orphans
    again = lake.orphans()
    assert (again.status, again.reason, again.orphan_files) == (Status.DONE, "no orphan files", 0)
    assert again.objects_listed == files
    assert not again.kept
    assert len(ids(lake.writer)) == 1
