"""Known trap "Is it old enough?": the order of looking, cutoffs, leases; and limits and digests (RS-09)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance.evidence import Evidence
from lakehouse_maintenance.execution import orphan_search
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.removal import Remover, remover
from lakehouse_maintenance_tests.engine.stores import Lake, reference

NOW = OrphanRequest(older_than=timedelta(0), allow_short_retention=True)


def orphan_of(lake: Lake, table: Table, name: str = "orphan.parquet") -> str:
    return lake.put(f"{table.location()}/data/{name}")


def commit(table: Table, path: str) -> None:
    """By another writer: the file was there before, and is the table's from now on."""
    reference(table, path)


def _before_references(patch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    real = Evidence.look

    def look(self: Evidence, *args: Any) -> Any:
        then()
        return real(self, *args)

    patch.setattr(Evidence, "look", look)


def _while_listing(patch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    real = orphan_search._list

    def listing(*args: Any) -> Any:
        found = real(*args)
        then()
        return found

    patch.setattr(orphan_search, "_list", listing)


def _before_the_list_is_durable(patch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    real = Deletion.intend_candidates

    def intend(self: Deletion, *args: Any, **options: Any) -> Any:
        then()
        return real(self, *args, **options)

    patch.setattr(Deletion, "intend_candidates", intend)


def _before_the_deletion(patch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    real = Deletion.remove

    def remove(self: Deletion, *args: Any, **options: Any) -> Any:
        then()
        return real(self, *args, **options)

    patch.setattr(Deletion, "remove", remove)


@pytest.mark.parametrize(
    "moment", [_while_listing, _before_references, _before_the_list_is_durable, _before_the_deletion]
)
@pytest.mark.parametrize("by", ["the table", "another table"])
def test_a_commit_in_between(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, moment: Callable[[Any, Any], None], by: str
) -> None:
    """Old files are committed (`add_files`, a writer that took days) after the listing: they survive."""
    table = lake.table()
    writer = table if by == "the table" else lake.table("x.u", location=f"{lake.root}elsewhere/u")
    live, orphan = orphan_of(lake, table, "live.parquet"), orphan_of(lake, table)
    done: list[int] = []

    def once() -> None:
        if not done:
            done.append(1)
            commit(writer, live)

    moment(monkeypatch, once)
    there = lake.objects()
    result = lake.orphans()
    assert done
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result
    # References are read after the listing, so up to then it is not even taken for an orphan.
    assert result.orphan_files == (1 if moment in (_while_listing, _before_references) else 2)


def test_a_commit_between_two_batches(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = local_lake
    table = lake.table()
    paths = [orphan_of(lake, table, f"{number}.orphan") for number in range(4)]
    monkeypatch.setattr(remover, "BATCH", 1)
    real = Remover._remove_batch
    deleted: list[str] = []

    def remove(self: Remover, locations: Any) -> Any:
        told = real(self, locations)
        if not deleted:
            deleted.extend(one.text for one in locations)
            for path in paths:
                if path not in deleted:
                    commit(table, path)
        return told

    monkeypatch.setattr(Remover, "_remove_batch", remove)
    result = lake.orphans()
    assert (result.deleted_files, len(deleted)) == (1, 1), result
    assert set(paths) & lake.objects() == set(paths) - set(deleted)


def test_a_file_that_was_written_again_is_not_the_one_that_was_listed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table()
    path, orphan = orphan_of(lake, table, "again.parquet"), orphan_of(lake, table)
    _before_the_deletion(monkeypatch, lambda: lake.put(path, b"something else now"))
    there = lake.objects()
    result = lake.orphans()
    assert there - lake.objects() == {orphan}, result


def test_what_is_written_after_the_listing_is_not_on_the_list(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    orphan_of(lake, table)
    _while_listing(monkeypatch, lambda: orphan_of(lake, table, "later.parquet"))
    assert lake.orphans().deleted_files == 1
    assert f"{table.location()}/data/later.parquet" in lake.objects()


@pytest.mark.requirement("IM-08")
@pytest.mark.parametrize("seconds", [0, 3600, 86_399])
def test_a_cutoff_nearer_than_a_day_needs_a_word(local_lake: Lake, seconds: int) -> None:
    lake = local_lake
    orphan_of(lake, lake.table())
    asked = OrphanRequest(older_than=timedelta(seconds=seconds))
    for ours in (lake.open(), lake.open(policies={"default": {"remove_orphan_files": {"older_than": "24h"}}})):
        with pytest.raises(InputError, match="1 day"):
            ours.orphans(["main.db.t"], asked, delete=True)
    short = {"older_than": "1h"}
    with pytest.raises(InputError):
        lake.open(policies={"default": {"remove_orphan_files": short}}).orphans(["main.db.t"], delete=True)
    assert lake.orphans(older_than=timedelta(seconds=seconds), allow_short_retention=True).deleted_files == 1
    orphan_of(lake, lake.writer.load_table("db.t"))
    told = {"default": {"remove_orphan_files": {**short, "allow_short_retention": True}}}
    assert lake.orphans(lake.open(policies=told)).deleted_files == 1


@pytest.mark.requirement("IM-08")
@pytest.mark.parametrize(
    ("days", "policy", "asked", "goes"),
    [
        (2.9, None, None, False),
        (3.1, None, None, True),
        (10, "11 days", None, False),
        (10, "9 days", None, True),
        (10, "11 days", timedelta(days=9), True),
        (10, None, timedelta(days=11), False),
    ],
)
def test_how_old(local_lake: Lake, days: float, policy: str | None, asked: timedelta | None, goes: bool) -> None:
    """Three days unless the policy says otherwise, and a request is nearer than the policy."""
    lake = local_lake
    orphan_of(lake, lake.table())
    lake.pass_days(days)
    policies = {} if policy is None else {"default": {"remove_orphan_files": {"older_than": policy}}}
    result = lake.orphans(lake.open(policies=policies), older_than=asked)
    assert (result.status, result.deleted_files) == (Status.DONE, int(goes))
    assert goes or any("younger than the cutoff" in kept.reason for kept in result.kept)


@pytest.mark.parametrize("moment", [0, -1, 3600, "in a month"])
def test_times_that_tell_no_age(local_lake: Lake, moment: float | str) -> None:
    """1970, before it, and a time to come."""
    lake = local_lake
    path = orphan_of(lake, lake.table())
    told = time.time() + 30 * 86_400 if isinstance(moment, str) else moment
    os.utime(path.removeprefix("file://"), (told, told))
    result = lake.orphans()
    assert (result.status, result.orphan_files) == (Status.DONE, 0)
    assert any("age cannot be established" in kept.reason for kept in result.kept)


def test_a_time_that_is_missing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stores and proxies leave it out."""
    orphan_of(lake, lake.table())
    kind = type(lake.storage)
    real = kind.rows

    def listing(self: Any, *args: Any, **options: Any) -> Any:
        for rows, links in real(self, *args, **options):
            yield [(path, size, None) for path, size, _ in rows], links

    monkeypatch.setattr(kind, "rows", listing)
    result = lake.orphans()
    assert (result.status, result.orphan_files) == (Status.DONE, 0)
    assert any("age cannot be established" in kept.reason for kept in result.kept)


def test_a_running_lease_moves_the_cutoff(local_lake: Lake) -> None:
    """Files of a run that is still at work look like orphans until it commits, however long it takes."""
    lake = local_lake
    table = lake.table()
    old = orphan_of(lake, table, "old")
    ours = lake.open()
    with ours.state.leases.acquire("main.db.other", run_id="other", owner="somebody", ttl=timedelta(hours=1)) as lease:
        began = lease.info.acquired_at.timestamp()
        os.utime(old.removeprefix("file://"), (began - 3600, began - 3600))
        # A store tells times by its own clock, some in whole seconds.
        young = orphan_of(lake, table, "young")
        os.utime(young.removeprefix("file://"), (began - 60, began - 60))
        assert lake.orphans(ours).deleted_files == 1
        assert young in lake.objects()
    assert lake.orphans(ours).deleted_files == 1
    assert young not in lake.objects()


def test_the_tables_own_lease_blocks(local_lake: Lake) -> None:
    lake = local_lake
    orphan_of(lake, lake.table())
    ours = lake.open()
    with ours.state.leases.acquire("main.db.t", run_id="other", owner="somebody", ttl=timedelta(hours=1)):
        result = lake.orphans(ours)
    assert result.status is Status.BLOCKED
    assert "somebody" in result.reason


# Limits


@pytest.mark.requirement("RS-09")
@pytest.mark.parametrize(
    ("limits", "size", "key"),
    [
        ({"removed_files": 3}, 1, "limits.removed_files"),
        ({"first_run_files": 3}, 1, "limits.first_run_files"),
        ({"removed_share": 0.4}, 1, "limits.removed_share"),
        ({"removed_share": 0.55}, 4000, "limits.removed_share"),
    ],
    ids=["files", "first run", "share of files", "share of bytes"],
)
def test_a_limit_that_trips(local_lake: Lake, limits: dict[str, Any], size: int, key: str) -> None:
    """Nothing of the plan is deleted, not even up to the limit, and the message says what to do."""
    lake = local_lake
    table = lake.table()
    listed = len([one for one in lake.objects() if "/db/t/" in one])
    for number in range(4):
        lake.put(f"{table.location()}/data/orphan-{number}", b"x" * size)
    assert 0.4 < 4 / (listed + 4) < 0.55
    there = lake.objects()
    everything = {"removed_share": 1.0, "removed_files": 100, "first_run_files": 100}
    ours = lake.open(limits={**everything, **limits})
    result = lake.orphans(ours)
    assert (result.status, result.deleted_files, result.orphan_files) == (Status.BLOCKED, 0, 4), result
    assert key in result.reason
    for word in ("nothing was deleted", "--list", "lakehouse.yaml", "--location"):
        assert word in result.reason
    assert lake.objects() == there
    dry = lake.orphans(ours, delete=False)
    assert dry.status is Status.DONE
    assert key in dry.reason
    assert lake.orphans(lake.open(limits=everything)).deleted_files == 4


def test_the_first_run_is_the_first_removal(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    ours = lake.open(limits={"removed_share": 1.0, "first_run_files": 2})
    for number in range(2):
        orphan_of(lake, table, f"{number}")
    lake.orphans(ours, delete=False)
    for number in range(2, 5):
        orphan_of(lake, table, f"{number}")
    assert "first_run_files" in lake.orphans(ours).reason
    for number in range(2, 5):
        lake.remove(f"{table.location()}/data/{number}")
    assert lake.orphans(ours).deleted_files == 2
    for number in range(5):
        orphan_of(lake, table, f"{number}")
    assert lake.orphans(ours).deleted_files == 5


# Digests


def test_the_same_findings_have_the_same_digest(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever and in whatever order they are found."""
    lake = local_lake
    table = lake.table()
    for number in range(5):
        orphan_of(lake, table, f"orphan-{number}")
    first = lake.orphans(delete=False)
    assert first.digest is not None
    lake.pass_days(20)
    kind = type(lake.storage)
    real = kind.rows

    def backwards(self: Any, *args: Any, **options: Any) -> Any:
        found = [row for rows, _ in real(self, *args, **options) for row in rows]
        yield from (([row], []) for row in reversed(found))

    with monkeypatch.context() as patch:
        patch.setattr(kind, "rows", backwards)
        assert lake.orphans(delete=False).digest == first.digest
    lake.add(table, f"{table.location()}/data/live.parquet")
    assert lake.orphans(delete=False).digest == first.digest
    for other in ({"older_than": timedelta(days=4)}, {"location": table.location() + "/data"}):
        assert lake.orphans(delete=False, **other).digest != first.digest
    orphan_of(lake, table, "orphan-5")
    assert lake.orphans(delete=False).digest != first.digest
    lake.remove(f"{table.location()}/data/orphan-5")
    assert lake.orphans(plan_digest=first.digest).deleted_files == 5


def test_the_digest_of_other_findings_deletes_nothing(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    orphan_of(lake, table)
    reviewed = lake.orphans(delete=False).digest
    lake.put(f"{table.location()}/data/orphan.parquet", b"another content, of another size")
    there = lake.objects()
    result = lake.orphans(plan_digest=reviewed)
    assert (result.status, result.deleted_files) == (Status.BLOCKED, 0)
    assert str(reviewed) in result.reason
    assert lake.objects() == there


def test_a_digest_is_of_one_table(local_lake: Lake) -> None:
    local_lake.table()
    local_lake.table("db.u")
    with pytest.raises(InputError, match="one table"):
        local_lake.open().orphans(["main.db.*"], OrphanRequest(plan_digest="sha256:" + "0" * 64), delete=True)


def test_a_listing_that_fails_half_way(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse_maintenance.model.errors import ListingIncompleteError

    table = lake.table(commits=2)
    orphan_of(lake, table)
    kind = type(lake.storage)
    real = kind.rows

    def half(self: Any, prefix: Any, **options: Any) -> Any:
        for number, batch in enumerate(real(self, prefix, batch_size=2)):
            if number:
                raise ListingIncompleteError("the second page did not come")
            yield batch

    monkeypatch.setattr(kind, "rows", half)
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.FAILED
    assert "second page" in result.reason
    assert lake.objects() == there


@pytest.mark.requirement("IM-08")
def test_only_in_the_folder_that_was_asked_for(lake: Lake) -> None:
    table = lake.table()
    inside = lake.put(f"{table.location()}/data/part/orphan.parquet")
    lake.put(f"{table.location()}/data/part-2/orphan.parquet")
    orphan_of(lake, table)
    there = lake.objects()
    for elsewhere in (lake.warehouse, f"{table.location()}_2", f"{lake.root}other"):
        with pytest.raises(InputError, match="own folders"):
            lake.orphans(location=elsewhere)
    assert lake.objects() == there
    result = lake.orphans(location=f"{table.location()}/data/part")
    assert (result.status, there - lake.objects()) == (Status.DONE, {inside}), result


def test_without_delete_nothing_is_written(local_lake: Lake) -> None:
    lake = local_lake
    orphan_of(lake, lake.table())
    there = lake.objects()
    result = lake.orphans(delete=False)
    assert (result.dry_run, result.orphan_files, result.deleted_files) == (True, 1, 0)
    assert lake.objects() == there
    assert lake.open().audit() == []
