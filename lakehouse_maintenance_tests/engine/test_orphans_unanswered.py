"""Known trap "Did it happen?": commits that nobody answered, and killed runs, beside the removal of orphan files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import removing_orphans
from lakehouse_maintenance.execution.verify import kept_snapshots_present
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CatalogUnavailableError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.removal import open_lists, remover
from lakehouse_maintenance.removal.deleting import Told, delete_batch
from lakehouse_maintenance_tests.engine.faulty import NAME, batches, deleted_by_batches
from lakehouse_maintenance_tests.engine.killed import Killed, after_the_lease, being_killed, killed_at_commit
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.tables import ids
from lakehouse_maintenance_tests.engine.test_lost_answers import COMPACT, commits

NOW: dict[str, Any] = {"older_than": timedelta(0), "allow_short_retention": True}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))


def _lost(ours: Lakehouse) -> Callable[[], Any]:
    """A commit that goes unanswered, and then the catalog is away; the request, which nobody carried out yet."""
    held: list[Callable[[], Any]] = []
    catalog = ours.catalogs["main"]
    real_load = catalog.load

    def load(name: Any) -> Any:
        if held:
            raise CatalogUnavailableError("away", field="main")
        return real_load(name)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        held.append(real)
        raise TimeoutError("no answer")

    with pytest.MonkeyPatch.context() as patch, commits(ours, lose):
        patch.setattr(catalog, "load", load)
        assert ours.maintain((), COMPACT).tables[0].status is Status.UNKNOWN
    return held[-1]


def _killed(ours: Lakehouse) -> Callable[[], Any]:
    return killed_at_commit(ours, COMPACT)


def _kept_young(result: OrphanResult) -> int:
    return sum(kept.files for kept in result.kept if "younger" in kept.reason)


@pytest.mark.parametrize("how", [_lost, _killed])
@pytest.mark.parametrize("again", [False, True], ids=["same process", "new process"])
def test_a_commit_that_may_still_arrive(lake: Lake, how: Callable[[Lakehouse], Callable[[], Any]], again: bool) -> None:
    """Its files look like orphans, and no age protects them here. It arrives after the removal, and is whole."""
    table = lake.table(commits=6)
    old = lake.put(f"{table.location()}/data/old.parquet")
    if lake.is_local:
        moment = time.time() - 3600
        os.utime(old.removeprefix("file://"), (moment, moment))
    there = lake.objects()
    ours = lake.open()
    request = how(ours)
    attempt = lake.objects() - there
    assert len([path for path in attempt if path.endswith((".avro", ".parquet"))]) >= 3
    if again:
        ours = lake.open()
        after_the_lease(ours)
    for delete in (False, True, True):
        result = lake.orphans(ours, delete=delete, **NOW)
        assert result.status is Status.DONE, result
        assert _kept_young(result) >= len(attempt), result
        assert any("was never answered" in note for note in result.notes), result.notes
    assert attempt <= lake.objects()
    assert (old in lake.objects()) is (not lake.is_local)
    request()
    assert ids(lake.writer) == [1] * 6
    # It is answered now, so nothing holds the others back.
    result = lake.orphans(ours, **NOW)
    assert result.status is Status.DONE, result
    assert old not in lake.objects()
    assert ids(lake.writer) == [1] * 6


def test_a_commit_that_can_arrive_no_more(lake: Lake) -> None:
    """Others committed: the catalog will refuse it for good, and its files are orphans as any."""
    table = lake.table(commits=6)
    there = lake.objects()
    ours = lake.open()
    request = _lost(ours)
    attempt = lake.objects() - there
    lake.add(table, f"{table.location()}/data/later.parquet")
    result = lake.orphans(ours, **NOW)
    assert (result.status, result.deleted_files) == (Status.DONE, len(attempt)), result
    with pytest.raises(Exception, match=r"changed|expected"):
        request()
    assert ids(lake.writer) == [1] * 7


@pytest.mark.parametrize(
    ("number", "when", "then"),
    [(1, "before", "maintain"), (1, "after", "orphans"), (2, "before", "orphans"), (2, "after", "maintain")],
)
def test_a_run_that_is_killed_amid_its_deletions(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, number: int, when: str, then: str
) -> None:
    """The list is durable; another process finishes it, and counts nothing twice."""
    table = lake.table()
    orphans = {lake.put(f"{table.location()}/data/orphan-{one}.parquet") for one in range(7)}
    there = lake.objects()
    monkeypatch.setattr(remover, "BATCH", 4)
    calls = 0

    def delete(storage: Any, locations: Sequence[Location]) -> Mapping[Location, Told]:
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            raise Killed
        told = delete_batch(storage, locations)
        if calls == number:
            raise Killed
        return told

    def check(*args: Any, **options: Any) -> Any:
        if calls:
            raise Killed
        return kept_snapshots_present(*args, **options)

    with monkeypatch.context() as patch, being_killed():
        patch.setattr(remover, "delete_batch", delete)
        patch.setattr(removing_orphans, "kept_snapshots_present", check)
        lake.orphans()
    deleted = (number - 1) * 4 + ((4 if number == 1 else 3) if when == "after" else 0)
    assert len(there - lake.objects()) == deleted
    ours = lake.open()
    assert len(open_lists(ours.state, NAME)) == 1
    assert deleted_by_batches(ours) == (number - 1) * 4
    after_the_lease(ours)
    if then == "maintain":
        (outcome,) = ours.maintain(()).tables
        assert outcome.status is Status.SKIPPED, outcome
        assert any("it was finished" in one.done for one in outcome.recovered), outcome.recovered
    else:
        result = lake.orphans(ours)
        assert (result.status, result.reason) == (Status.DONE, "no orphan files"), result
        assert any("it was finished" in note for note in result.notes), result.notes
    assert there - lake.objects() == orphans
    assert not open_lists(ours.state, NAME)
    gone = sum(event.details["fates"].get("gone", 0) for event in batches(ours))
    not_told = deleted - (number - 1) * 4
    # What the killed run deleted of its first batch and told is met as gone by the run that finishes the list.
    assert deleted_by_batches(ours) == len(orphans) - not_told
    assert gone == deleted
    assert not ours.state.journal.open_intents(NAME)
    assert ids(lake.writer) == [1]


def test_what_cannot_be_finished_is_told(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is young to the search, so only the open list is about it."""
    lake = local_lake
    table = lake.table()
    orphan = Path(lake.put(f"{table.location()}/data/orphan.parquet").removeprefix("file://"))
    ours = lake.open()
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path == orphan:
            raise OSError(13, "not allowed")
        real(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        assert lake.orphans(ours).status is Status.FAILED
        result = lake.orphans(ours, older_than=timedelta(days=1000))
    assert (result.status, result.orphan_files) == (Status.FAILED, 0), result
    assert "not allowed" in result.reason
    assert any("stays open" in note for note in result.notes), result.notes
    assert lake.orphans(ours, older_than=timedelta(days=1000)).status is Status.DONE
    assert not orphan.exists()
