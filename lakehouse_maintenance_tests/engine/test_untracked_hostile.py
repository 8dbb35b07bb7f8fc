"""Ways in which a folder could go that must not, each in the shape in which somebody found it."""

from __future__ import annotations

from typing import Any

import pytest

from lakehouse_maintenance.catalogs.catalog import Catalog
from lakehouse_maintenance.catalogs.sql import SqlCatalog
from lakehouse_maintenance.execution import removing_folders
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance_tests.engine.stores import Lake, reference
from lakehouse_maintenance_tests.engine.untracked import Untracked, only, verdicts


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    """Two live tables: `db` lies where both do."""
    local_lake.table("db.live")
    local_lake.table("db.steady")
    return Untracked(local_lake)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As services tell pointers: for each table by itself."""
    monkeypatch.setattr(SqlCatalog, "pointers", lambda self, namespace: {})


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, then: Any) -> None:
    """Does `then` right after the first call of a function."""
    real, done = getattr(owner, name), []

    def call(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        if not done:
            done.append(True)
            then()
        return result

    monkeypatch.setattr(owner, name, call)


@pytest.mark.requirement("UF-17")
def test_a_table_far_away_takes_a_file_over(
    local: Untracked, one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never reached the root before, and its file is old: only its own pointer tells."""
    far = local.lake.table("far.t", location=f"{local.lake.root}elsewhere/t")
    gone = local.dropped("gone")
    file = min(local.there(gone))
    # A look that took long counts for long.
    monkeypatch.setattr("lakehouse_maintenance.evidence.freshness.Freshness.is_fresh", lambda self: self.at is not None)
    once(monkeypatch, removing_folders, "look_inside", lambda: reference(far, file))
    result = only(local.delete())
    assert file in local.there(gone)
    assert result.row.deleted_folders == ()


@pytest.mark.requirement("UF-40")
def test_a_table_of_another_database_that_cannot_be_found_any_more(
    local: Untracked, one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it lay when it could be found is remembered, in this process and by the next."""
    inside = str(local.lake.table("far.t", location=f"{local.root}/custom").location())
    assert verdicts(only(local.run()))["custom"] == "table"
    real: Any = SqlCatalog.locate

    def locate(self: SqlCatalog, name: TableName) -> Any:
        if str(name) == "main.far.t":
            raise TableUnreadableError("the service cannot read it", field=str(name))
        return real(self, name)

    monkeypatch.setattr(SqlCatalog, "locate", locate)
    before = local.there(inside)
    result = only(local.delete())
    assert local.there(inside) == before
    assert result.row.status == "BLOCKED", result.row


def test_a_catalog_that_does_not_show_every_kind(local: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it hides may own any folder."""
    local.dropped("gone")
    monkeypatch.setattr(SqlCatalog, "shows_every_kind", Catalog.shows_every_kind)
    row = only(local.delete()).row
    assert (row.status, row.status_reason) == ("BLOCKED", "other_database_storage_unknown")


@pytest.mark.requirement("UF-44")
def test_what_lies_in_a_quarantine_of_another_name(local: Untracked) -> None:
    """The name was changed since: what can still be restored is nobody's leftover."""
    local.dropped("gone")
    quarantined = {"default": {"untracked_folders": {"removal": "quarantine"}}}
    moved = only(local.delete(local.lake.open(policies=quarantined, quarantine={"prefix": "trash"})))
    assert moved.row.deleted_folder_count == 1
    kept = local.there(f"{local.root}/trash")
    result = only(local.delete(local.lake.open(quarantine={"prefix": ".other"})))
    assert result.row.deleted_folders == ()
    assert local.there(f"{local.root}/trash") == kept


@pytest.mark.requirement("UF-46")
def test_what_was_rejected_does_not_go_by_its_digest(local: Untracked) -> None:
    one, two = local.dropped("one"), local.dropped("two")
    ours = local.lake.open()
    digest = only(local.run(ours)).digest
    assert digest is not None
    ours.reject(digest, [one], by="ada")
    result = only(local.delete(ours, plan_digest=digest))
    assert result.row.deleted_folders == (two,)
    assert local.there(one)


@pytest.mark.requirement("UF-46")
def test_an_approval_that_is_taken_back_amid_the_run(local: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = local.dropped("one"), local.dropped("two")
    policy = {"untracked_folders": {"review": True, "removal": "delete", "older_than": "0s"}}
    ours = local.lake.open(policies={"default": policy})
    digest = only(ours.reconcile("main.db")).digest
    assert digest is not None
    ours.approve(digest, by="ada")
    once(monkeypatch, removing_folders, "remove_emptied", lambda: ours.reject(digest, [two], by="ada"))
    result = only(ours.remove_folders("main.db"))
    assert result.row.deleted_folders == (one,)
    assert local.there(two)


@pytest.mark.requirement("UF-06")
def test_exclusions_by_another_way_to_the_same_place(local: Untracked) -> None:
    """Through a symbolic link, and with percent codes."""
    coded, linked = local.dropped("x y"), local.dropped("linked")
    link = local.lake.folder / "link"
    link.symlink_to(local.lake.root.removeprefix("file://"))
    through = linked.replace(local.lake.root, f"file://{link}/")
    result = only(local.delete(exclude_paths=[through, coded.replace(" ", "%20")]))
    assert result.row.deleted_folders == ()
    assert {verdicts(result)["x y"], verdicts(result)["linked"]} == {"excluded"}


def test_a_recheck_that_stops_before_anything_went_is_no_failed_deletion(
    local: Untracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = local.dropped("gone")
    real = removing_folders.Removing._take_away

    def take_away(self: Any, *args: Any) -> None:
        table = local.lake.writer.load_table("db.live")
        with table.transaction() as transaction:
            transaction.set_properties({"gc.enabled": "false"})
        real(self, *args)

    before = local.there(gone)
    monkeypatch.setattr(removing_folders.Removing, "_take_away", take_away)
    ours = local.lake.open()
    row = only(local.delete(ours)).row
    assert (row.status, row.status_reason) == ("BLOCKED", "unresolved_catalog_ownership")
    assert local.there(gone) == before
    assert not open_lists(ours.state, "main.db")


@pytest.mark.requirement("UF-13")
def test_a_database_that_is_made_at_a_candidate_amid_the_run(local: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    local.dropped("one")
    two = local.dropped("two")
    namespace = {"location": two}
    once(monkeypatch, removing_folders, "look_inside", lambda: local.lake.writer.create_namespace("late", namespace))
    result = only(local.delete())
    assert two not in result.row.deleted_folders
    assert local.there(two)


@pytest.mark.requirement("UF-46")
def test_what_was_approved_and_went_is_not_approved_any_more(local: Untracked) -> None:
    local.dropped("gone")
    policy = {"untracked_folders": {"review": True, "removal": "quarantine", "older_than": "0s"}}
    ours = local.lake.open(policies={"default": policy})
    digest = only(ours.reconcile("main.db")).digest
    assert digest is not None
    ours.approve(digest, by="ada")
    assert only(ours.remove_folders("main.db")).row.deleted_folder_count == 1
    assert ours.review_of("main.db") is None


@pytest.mark.requirement("UF-18")
@pytest.mark.parametrize("lake", ["s3"], indirect=True)
def test_a_marker_that_stays_until_the_folder_is_empty(lake: Lake) -> None:
    """SeaweedFS says "deleted" of `gone/` while objects lie under it, and means it once they are gone."""
    lake.table("db.live")
    untracked = Untracked(lake)
    gone = untracked.dropped("gone")
    lake.put(f"{gone}/", b"")
    ours = lake.open()
    row = only(untracked.delete(ours)).row
    assert (row.status, row.deleted_folders) == ("SUCCESS", (gone,)), row
    assert not untracked.there(gone)
    assert not open_lists(ours.state, "main.db")
    assert verdicts(only(untracked.run(ours))) == {"live": "table"}
