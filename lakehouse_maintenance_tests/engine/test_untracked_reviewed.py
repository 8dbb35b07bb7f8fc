"""Only what was reviewed goes, and only while it is to the object what was reviewed (UF-46)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import untracked as running
from lakehouse_maintenance.execution.database_facts import World
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.folders import DatabaseResult
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, only
from lakehouse_maintenance_tests.small_lakehouse import call

REVIEWED = {"default": {"untracked_folders": {"review": True, "removal": "delete", "older_than": "0s"}}}
WITHOUT = {"default": {"untracked_folders": {"review": False, "removal": "delete", "older_than": "0s"}}}
WAYS = pytest.mark.parametrize("way", ["the digest of the database", "the digest of the run", "an approval"])


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live", commits=2)
    return Untracked(lake)


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    local_lake.table("db.live", commits=2)
    return Untracked(local_lake)


def reviewed(untracked: Untracked, way: str) -> Callable[[], DatabaseResult]:
    """Looks at what is there and says yes to all of it; the removal of that, to be called later."""
    if way == "an approval":
        ours = untracked.lake.open(policies=REVIEWED)
        found = only(ours.reconcile("main.db"))
        assert found.digest is not None
        ours.approve(found.digest, by="ada")
        return lambda: only(ours.remove_folders("main.db"))
    run = untracked.run()
    digest = run.digest if way == "the digest of the run" else only(run).digest
    assert digest is not None
    return lambda: only(untracked.delete(plan_digest=digest))


def why_kept(result: DatabaseResult) -> dict[str, str]:
    return {one["path"]: one["why"] for one in result.row.diagnostic_details["not_removed"]}


@pytest.mark.requirement("UF-46")
@WAYS
def test_what_is_as_it_was_goes(untracked: Untracked, way: str) -> None:
    one, two = untracked.dropped("one"), untracked.dropped("two")
    remove = reviewed(untracked, way)
    result = remove()
    assert result.row.status == "SUCCESS", result.row
    assert result.row.deleted_folders == (one, two)
    assert why_kept(result) == {}
    assert not untracked.there(one) | untracked.there(two)


@pytest.mark.requirement("UF-46")
@WAYS
@pytest.mark.parametrize("change", ["a new object", "an object of the same size instead", "an object less"])
def test_what_is_not_as_it_was_stays(untracked: Untracked, way: str, change: str) -> None:
    one, two = untracked.dropped("one"), untracked.dropped("two")
    data = f"{one}/data/0.parquet"
    remove = reviewed(untracked, way)
    if change == "a new object":
        untracked.lake.put(f"{one}/data/new.parquet")
    elif change == "an object less":
        untracked.lake.remove(data)
    else:
        later(untracked)
        content = untracked.lake.read(data)
        untracked.lake.put(data, b"x" * len(content))
    there = untracked.there(one)
    result = remove()
    assert result.row.deleted_folders == (two,), result.row
    assert list(why_kept(result)) == [one]
    assert "not what was reviewed any more" in why_kept(result)[one]
    assert untracked.there(one) == there


def later(untracked: Untracked) -> None:
    """The server's clock has whole seconds."""
    import time

    if not untracked.lake.is_local:
        time.sleep(1.1)


@pytest.mark.requirement("UF-46")
@WAYS
def test_a_candidate_that_nobody_saw_stays(untracked: Untracked, way: str) -> None:
    one = untracked.dropped("one")
    remove = reviewed(untracked, way)
    late = untracked.dropped("late")
    result = remove()
    assert result.row.deleted_folders == (one,), result.row
    assert list(why_kept(result)) == [late]
    assert untracked.there(late)


@pytest.mark.requirement("UF-46")
def test_a_digest_that_nobody_knows(
    local: Untracked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said before catalog or storage is asked."""
    gone = local.dropped("gone")
    ours = local.lake.open()

    def asked(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("it asked the catalogs")

    monkeypatch.setattr(World, "see", asked)
    monkeypatch.setattr(running, "reconcile", asked)
    monkeypatch.setattr("lakehouse_maintenance.audit.FolderAudit.prepare", asked)
    with pytest.raises(InputError) as caught:
        local.delete(ours, plan_digest="sha256:" + "0" * 64)
    assert caught.value.field
    assert local.there(gone)
    config = local.lake.folder / "lakehouse.yaml"
    config.write_text(
        json.dumps({"catalogs": {"main": local.lake.properties}, "state": {"url": str(local.lake.folder / "state")}})
    )
    file = local.job(dry_run=False, delete_enabled=True)
    arguments = [
        "--config",
        str(config),
        "--json",
        "untracked-folders",
        str(file),
        "--plan-digest",
        "sha256:" + "0" * 64,
    ]
    assert call(capsys, *arguments).error["field"] == caught.value.field
    assert call(capsys, *arguments).code == 2


# --- policy: review


@pytest.fixture
def three(untracked: Untracked) -> tuple[Untracked, Lakehouse, list[str], str]:
    """Three candidates, found by a dry run of the job, under a policy that says in writing that it wants a review."""
    folders = [untracked.dropped(name) for name in ("a", "b", "c")]
    ours = untracked.lake.open(policies=REVIEWED)
    digest = only(untracked.run(ours)).digest
    assert digest is not None
    return untracked, ours, folders, digest


Three = tuple[Untracked, Lakehouse, list[str], str]


@pytest.mark.requirement("UF-46")
def test_one_of_three_is_approved(three: Three) -> None:
    untracked, ours, folders, digest = three
    ours.approve(digest, [folders[1]], by="ada")
    result = only(untracked.delete(ours))
    assert result.row.deleted_folders == (folders[1],), result.row
    assert set(why_kept(result)) == {folders[0], folders[2]}
    assert untracked.there(folders[0])
    assert untracked.there(folders[2])


@pytest.mark.requirement("UF-46")
def test_the_digest_alone_is_no_approval(three: Three) -> None:
    """Where the policy wants a review, naming the plan says what, and the approval says that."""
    untracked, ours, folders, digest = three
    assert only(untracked.delete(ours, plan_digest=digest)).row.deleted_folders == ()
    ours.approve(digest, [folders[0]], by="ada")
    assert only(untracked.delete(ours, plan_digest=digest)).row.deleted_folders == (folders[0],)


def nothing(ours: Lakehouse, digest: str, untracked: Untracked) -> None:
    pass


def expired(ours: Lakehouse, digest: str, untracked: Untracked) -> None:
    ours.approve(digest, by="ada", until=datetime.now(UTC) + timedelta(seconds=60))
    untracked.lake.patch.setattr(running, "datetime", Tomorrow)


class Tomorrow(datetime):
    """The clock of the run, a day on."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(days=1)


def rejected(ours: Lakehouse, digest: str, untracked: Untracked) -> None:
    ours.approve(digest, by="ada")
    ours.reject(digest, by="grace")


def superseded(ours: Lakehouse, digest: str, untracked: Untracked) -> None:
    """A later plan of the same database holds one folder more, and nobody has said anything to it."""
    ours.approve(digest, by="ada")
    untracked.dropped("d")
    assert only(untracked.run(ours)).digest != digest


@pytest.mark.requirement("UF-46")
@pytest.mark.parametrize("word", [nothing, expired, rejected, superseded])
@pytest.mark.parametrize("by", ["the job", "the policy"])
def test_without_an_approval_that_holds_nothing_goes(
    three: Three, word: Callable[[Lakehouse, str, Untracked], None], by: str
) -> None:
    untracked, ours, folders, digest = three
    word(ours, digest, untracked)
    there = untracked.lake.objects()
    result = only(untracked.delete(ours) if by == "the job" else ours.remove_folders("main.db"))
    assert result.row.deleted_folders == (), result.row
    assert set(why_kept(result)) >= set(folders)
    assert all("was not approved" in why for why in why_kept(result).values())
    assert all(untracked.there(folder) for folder in folders)
    assert not {path for path in there - untracked.lake.objects() if "/iomete_system_db/" not in path}


@pytest.mark.requirement("UF-46")
def test_one_that_is_rejected_stays_and_the_others_go(three: Three) -> None:
    untracked, ours, folders, digest = three
    ours.approve(digest, by="ada")
    ours.reject(digest, [folders[0]], by="grace")
    result = only(untracked.delete(ours))
    assert result.row.deleted_folders == (folders[1], folders[2]), result.row
    assert list(why_kept(result)) == [folders[0]]


def test_without_a_review_all_that_is_nobodys_goes(untracked: Untracked) -> None:
    """Where the policy says so in writing; so does an `application.json` whose lakehouse says nothing."""
    one = untracked.dropped("one")
    ours = untracked.lake.open(policies=WITHOUT)
    assert only(ours.remove_folders("main.db")).row.deleted_folders == (one,)
    two = untracked.dropped("two")
    assert only(untracked.delete()).row.deleted_folders == (two,)
