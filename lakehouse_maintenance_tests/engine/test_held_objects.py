"""Objects that cannot be read or deleted, in archives, under locks and holds (IM-24): they are kept, with the cause."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.tables import Request as Asked
from lakehouse_maintenance.removal import read_entry
from lakehouse_maintenance_tests.engine.faulty import (
    ARCHIVED,
    Faulty,
    assert_told,
    cannot_unlink,
    faulty,
    is_open,
    names,
    reasons,
)
from lakehouse_maintenance_tests.engine.foreign import with_ids
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.tables import ids
from lakehouse_maintenance_tests.engine.test_expiry_on_s3 import ALL
from lakehouse_maintenance_tests.services.faults import Answer, Request

__all__ = ["faulty"]

COMPACT = Asked(actions=(Action.REWRITE_DATA_FILES,), options={"min-input-files": "2"})


def data_files(objects: Iterable[str]) -> set[str]:
    return {path for path in objects if path.endswith(".parquet")}


def archives(faulty: Faulty, paths: Collection[str]) -> None:
    """From now on these can be looked at and deleted, and not read."""

    def rule(request: Request) -> Answer | None:
        is_read = request.method == "GET" and any(names(request, path) for path in paths)
        return ARCHIVED if is_read else None

    faulty.proxy.rule = rule


@pytest.mark.requirement("IM-24")
@pytest.mark.parametrize("code", ["InvalidObjectState", "ObjectLocked", "AccessDenied"])
def test_objects_under_a_hold_stay_and_the_list_is_closed(faulty: Faulty, code: str) -> None:
    """ "Access denied" for some keys may be a hold or a policy: somebody has to see to it, so it is failed."""
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    faulty.refuses(dict.fromkeys(orphans[:3], code))
    ours = lake.open()
    result = lake.orphans(ours)
    if code == "AccessDenied":
        assert_told(lake, result, before, ours, status=Status.FAILED, deleted_files=9)
        assert is_open(ours)
        return
    fates = assert_told(lake, result, before, ours, status=Status.DONE, deleted_files=9, failed=(), unknown=())
    assert fates == {"deleted": 9, "kept": 3}
    assert reasons(result) == {f"the store holds it: told of {code} (code: {code})": 3}
    assert not is_open(ours)
    assert before - lake.objects() == set(orphans[3:])
    # The hold ends: a later search meets them again.
    faulty.heals()
    assert lake.orphans(ours).deleted_files == 3


@pytest.mark.requirement("IM-24")
def test_a_local_file_that_is_immutable(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = local_lake
    table = lake.table()
    orphans = [lake.put(f"{table.location()}/data/orphan-{number}.parquet") for number in range(3)]
    before = lake.objects()
    ours = lake.open()
    for removal in ("quarantine", "delete"):
        with monkeypatch.context() as patch:
            cannot_unlink(patch, {orphans[0]: errno.EPERM})
            result = lake.orphans(ours, removal=removal)
        assert result.status is Status.DONE, result
        assert reasons(result)["the store holds it: told of EPERM"] == 1
        assert orphans[0] in lake.objects()
        assert not is_open(ours)
    there = lake.objects()
    assert before - there == set(orphans[1:])
    assert sum("orphan-0" in path for path in there) == 1, "no copy of it is left in quarantine"


@pytest.mark.parametrize("removal", ["delete", "quarantine"])
def test_a_role_that_may_not_delete(faulty: Faulty, removal: str) -> None:
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    faulty.refuses(dict.fromkeys(orphans, "AccessDenied"))
    ours = lake.open()
    result = lake.orphans(ours, removal=removal)
    assert_told(lake, result, before, ours, status=Status.FAILED, deleted_files=0, unknown=())
    assert {path for path, _ in result.failed} == set(orphans)
    assert all("AccessDenied" in why for _, why in result.failed)
    assert "12 files could not be deleted" in result.reason
    assert before <= lake.objects()
    assert is_open(ours)
    faulty.heals()
    lake.orphans(ours)
    assert not before & set(orphans) & lake.objects()


@pytest.mark.requirement("IM-24")
def test_an_archived_orphan_cannot_be_moved_aside(faulty: Faulty) -> None:
    """It is kept with the cause, and is no reason to try the same every night."""
    lake = faulty.lake
    orphans = faulty.orphans_of(lake.table())
    before = lake.objects()
    archived = Location.parse(orphans[0]).key

    def rule(request: Request) -> Answer | None:
        source = next((v for k, v in request.headers.items() if k.lower() == "x-amz-copy-source"), "")
        return ARCHIVED if source.endswith(archived) else None

    faulty.proxy.rule = rule
    ours = lake.open()
    result = lake.orphans(ours, removal="quarantine")
    fates = assert_told(lake, result, before, ours, status=Status.DONE, deleted_files=11, failed=(), unknown=())
    assert fates == {"moved": 11, "kept": 1}
    assert any("InvalidObjectState" in why for why in reasons(result)), result.kept
    assert orphans[0] in lake.objects()
    assert not is_open(ours)
    assert result.quarantine is not None
    assert read_entry(ours.state, result.quarantine).objects == 11
    faulty.heals()
    restored = ours.restore(result.quarantine)
    assert restored.status is Status.DONE, restored
    assert lake.objects() == before


@pytest.mark.requirement("IM-24")
@pytest.mark.parametrize("what", ["metadata.json", "list", "manifest"])
@pytest.mark.parametrize("of", ["db.t", "db.u"])
def test_metadata_that_is_archived(faulty: Faulty, what: str, of: str) -> None:
    """Its own, and another table's that reaches in: nothing can be concluded, and the cause is told."""
    lake = faulty.lake
    table, other = lake.table(), lake.table("db.u", location=f"{lake.root}elsewhere/u")
    path = lake.put(f"{table.location()}/data/needed.parquet")
    lake.add(other, path)
    faulty.orphans_of(table)
    before = lake.objects()
    archived = _metadata(lake, of, what)
    faulty.proxy.rule = lambda request: ARCHIVED if request.method == "GET" and names(request, archived) else None
    result = lake.orphans()
    assert result.status in (Status.FAILED, Status.BLOCKED), result
    assert "InvalidObjectState" in result.reason or "storage class" in result.reason, result
    assert lake.objects() == before
    faulty.heals()
    assert lake.orphans().deleted_files == 12
    assert path in lake.objects()
    assert len(ids(lake.writer, "db.u")) == 2


def _metadata(lake: Lake, name: str, what: str) -> str:
    table = lake.writer.load_table(name)
    head = table.current_snapshot()
    assert head is not None
    found = {"metadata.json": table.metadata_location, "list": head.manifest_list}
    return found.get(what) or head.manifests(table.io)[0].manifest_path


@pytest.mark.parametrize("what", ["list", "manifest"])
def test_local_metadata_that_cannot_be_read(local_lake: Lake, what: str) -> None:
    lake = local_lake
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    broken = Path(_metadata(lake, "db.t", what).removeprefix("file://"))
    aside = broken.rename(broken.with_suffix(".aside"))
    broken.mkdir()
    before = lake.objects()
    result = lake.orphans()
    assert result.status is Status.BLOCKED, result
    assert broken.name in result.reason
    assert lake.objects() == before
    broken.rmdir()
    aside.rename(broken)
    assert lake.orphans().deleted_files == 1


# --- expiry and compaction


@pytest.mark.requirement("IM-24")
@pytest.mark.parametrize("code", ["InvalidObjectState", "ObjectLocked"])
def test_expiry_keeps_what_the_store_holds(faulty: Faulty, code: str) -> None:
    lake = faulty.lake
    lake.table(commits=4)
    lake.writer.load_table("db.t").delete("id == 1")
    before = lake.objects()
    held = sorted(data_files(before))[:2]
    faulty.refuses(dict.fromkeys(held, code))
    ours = faulty.maintaining()
    (outcome,) = ours.maintain((), ALL).tables
    assert outcome.status is Status.DONE, outcome
    actual = outcome.actions[0].actual
    gone = before - lake.objects()
    assert (actual.deleted_files, actual.kept_files, actual.failed_files) == (len(gone), 2, 0)
    assert f"2 files kept: the store holds it: told of {code} (code: {code})" in outcome.actions[0].notes
    assert data_files(lake.objects()) == set(held)
    assert not is_open(ours)
    # From now on they are orphans, and are met again when the hold has ended.
    result = lake.orphans(ours)
    assert (result.status, result.deleted_files) == (Status.DONE, 0), result
    assert any("the store holds it" in kept.reason for kept in result.kept)
    faulty.heals()
    assert lake.orphans(ours).deleted_files == 2
    assert not ids(lake.writer)


@pytest.mark.requirement("IM-24")
@pytest.mark.parametrize("what", ["list", "manifest"])
def test_expiry_of_snapshots_whose_metadata_is_archived(faulty: Faulty, what: str) -> None:
    """What they reach cannot be told, so nothing is expired, and the cause is."""
    lake = faulty.lake
    lake.table(commits=3)
    table = lake.writer.load_table("db.t")
    oldest = table.metadata.snapshots[0]
    path = oldest.manifest_list if what == "list" else oldest.manifests(table.io)[0].manifest_path
    table.delete("id == 1")
    before = lake.objects()
    archives(faulty, [path])
    (outcome,) = faulty.maintaining().maintain((), ALL).tables
    assert outcome.status is Status.FAILED, outcome
    assert "InvalidObjectState" in outcome.reason or "storage class" in outcome.reason, outcome
    assert before <= lake.objects()
    faulty.heals()
    (outcome,) = faulty.maintaining().maintain((), ALL).tables
    assert outcome.status is Status.DONE, outcome


def _two_partitions(faulty: Faulty) -> Table:
    schema = with_ids(pa.schema([("id", pa.int64()), ("p", pa.string())]))
    table = faulty.lake.writer.create_table("db.t", schema)
    with table.update_spec() as update:
        update.add_identity("p")
    for number in range(4):
        for part in ("cold", "warm"):
            table.append(pa.table([[number], [part]], schema))
    return table


@pytest.mark.requirement("IM-24")
def test_compaction_leaves_alone_what_it_cannot_read(faulty: Faulty) -> None:
    """An archived partition stays as it is, with the cause; the others are compacted all the same."""
    lake = faulty.lake
    _two_partitions(faulty)
    cold = {path for path in lake.objects() if "p=cold" in path}
    warm = {path for path in lake.objects() if "p=warm" in path}
    archives(faulty, cold)
    (outcome,) = faulty.maintaining().maintain((), COMPACT).tables
    (action,) = outcome.actions
    assert (outcome.status, action.actual.groups_done) == (Status.DONE, 1), outcome
    assert any("left alone" in note and "InvalidObjectState" in note for note in action.notes), action.notes
    live = {task.file.file_path for task in lake.writer.load_table("db.t").scan().plan_files()}
    assert cold <= live
    assert not warm & live
    assert len(live) == 5
    assert ids(lake.writer) == sorted([*range(4)] * 2)


@pytest.mark.requirement("IM-24")
def test_compaction_of_archived_files_alone(faulty: Faulty) -> None:
    lake = faulty.lake
    _two_partitions(faulty)
    archives(faulty, data_files(lake.objects()))
    head = lake.writer.load_table("db.t").current_snapshot()
    (outcome,) = faulty.maintaining().maintain((), COMPACT).tables
    assert outcome.status is Status.SKIPPED, outcome
    assert "InvalidObjectState" in outcome.reason, outcome
    assert lake.writer.load_table("db.t").current_snapshot() == head
    assert ids(lake.writer) == sorted([*range(4)] * 2)
