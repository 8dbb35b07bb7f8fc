"""What happens to a folder between the look at it and its removal: each moment, injected on a real store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.execution import removing_folders
from lakehouse_maintenance.execution import untracked as running
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import remover
from lakehouse_maintenance_tests.engine.stores import Lake, reference
from lakehouse_maintenance_tests.engine.untracked import Untracked, only
from lakehouse_maintenance_tests.readers import read_pyiceberg

Hook = Callable[[], object]
REMOVALS = pytest.mark.parametrize("removal", ["delete", "quarantine"])


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live", commits=2)
    lake.table("db.steady")
    return Untracked(lake)


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    local_lake.table("db.live", commits=2)
    local_lake.table("db.steady")
    return Untracked(local_lake)


def by(untracked: Untracked, removal: str) -> Any:
    return untracked.lake.open(policies={"default": {"untracked_folders": {"removal": removal}}})


def after(patch: pytest.MonkeyPatch, owner: Any, name: str, hook: Hook, *, call: int = 1) -> None:
    """Right after a call of the function came back."""
    real, calls = getattr(owner, name), 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        found = real(*args, **kwargs)
        if calls == call:
            hook()
        return found

    patch.setattr(owner, name, called)


def before(patch: pytest.MonkeyPatch, owner: Any, name: str, hook: Hook) -> None:
    """Right before its first call begins."""
    real, calls = getattr(owner, name), 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            hook()
        return real(*args, **kwargs)

    patch.setattr(owner, name, called)


def becomes_unreadable(untracked: Untracked) -> None:
    """Its next commit leaves metadata that nobody can read."""
    table = untracked.lake.writer.load_table("db.live")
    untracked.lake.add(table, f"{table.location()}/data/late.parquet")
    untracked.lake.put(untracked.lake.writer.load_table("db.live").metadata_location, b"{")


def becomes_unresolved(untracked: Untracked) -> None:
    table = untracked.lake.writer.load_table("db.live")
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})


def new_table(untracked: Untracked, place: str) -> None:
    table = untracked.lake.table("db.new", location=place, commits=0)
    untracked.lake.add(table, f"{place}/data/of-the-new-table.parquet")


def new_table_of_another_database(untracked: Untracked, place: str) -> None:
    untracked.lake.table("late.new", location=f"{place}/inside")


def moved_in(untracked: Untracked, place: str) -> None:
    """A table that was there takes up files of the folder."""
    reference(untracked.lake.writer.load_table("db.live"), min(untracked.there(place)))


def writes_there(untracked: Untracked, place: str) -> None:
    table = untracked.lake.writer.load_table("db.live")
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": place})


OWNING = pytest.mark.parametrize("owning", [new_table, new_table_of_another_database, moved_in, writes_there])


# --- between the review and the run


@pytest.mark.requirement("UF-17", "UF-46")
@OWNING
def test_a_reviewed_folder_that_became_owned(untracked: Untracked, owning: Callable[[Untracked, str], None]) -> None:
    gone, other = untracked.dropped("gone"), untracked.dropped("other")
    digest = only(untracked.run()).digest
    owning(untracked, gone)
    there = untracked.there(gone)
    result = only(untracked.delete(plan_digest=digest))
    assert result.row.deleted_folders == (other,), result.row
    assert untracked.there(gone) == there
    (kept,) = result.row.diagnostic_details["not_removed"]
    assert kept["path"] == gone
    assert "it is no candidate any more" in kept["why"]


@pytest.mark.requirement("UF-17")
@pytest.mark.parametrize("what", [becomes_unreadable, becomes_unresolved])
def test_a_table_that_cannot_be_read_any_more(untracked: Untracked, what: Callable[[Untracked], None]) -> None:
    gone = untracked.dropped("gone")
    digest = only(untracked.run()).digest
    what(untracked)
    there = untracked.there(gone)
    result = only(untracked.delete(plan_digest=digest))
    assert (result.row.status, result.row.status_reason) == ("BLOCKED", "unresolved_catalog_ownership")
    assert (result.row.candidate_folder_count, result.row.deleted_folders) == (0, ())
    assert untracked.there(gone) == there


# --- amid the run, before anything is removed


@pytest.mark.requirement("UF-17")
@OWNING
@REMOVALS
@pytest.mark.parametrize("moment", ["after the listing", "after the last look at the folder"])
def test_a_folder_that_becomes_owned_amid_the_run(
    untracked: Untracked,
    owning: Callable[[Untracked, str], None],
    removal: str,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = untracked.dropped("gone")
    there = untracked.there(gone)
    owner, name = (running, "reconcile") if moment == "after the listing" else (removing_folders, "look_inside")
    after(monkeypatch, owner, name, lambda: owning(untracked, gone))
    result = only(untracked.delete(by(untracked, removal)))
    assert result.row.status == "SUCCESS", result.row
    assert result.row.deleted_folders == ()
    assert there <= untracked.there(gone)
    (kept,) = result.row.diagnostic_details["not_removed"]
    assert kept["path"] == gone


@pytest.mark.requirement("UF-17")
@REMOVALS
@pytest.mark.parametrize("what", [becomes_unreadable, becomes_unresolved])
@pytest.mark.parametrize("moment", ["after the listing", "after the last look at the folder"])
def test_a_table_that_becomes_unresolved_amid_the_run(
    untracked: Untracked, removal: str, what: Callable[[Untracked], None], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = untracked.dropped("gone")
    there = untracked.there(gone)
    owner, name = (running, "reconcile") if moment == "after the listing" else (removing_folders, "look_inside")
    after(monkeypatch, owner, name, lambda: what(untracked))
    result = only(untracked.delete(by(untracked, removal)))
    assert (result.row.status, result.row.status_reason) == ("BLOCKED", "unresolved_catalog_ownership"), result.row
    assert result.row.deleted_folders == ()
    assert untracked.there(gone) == there


@pytest.mark.requirement("UF-17")
def test_a_catalog_that_does_not_list_any_more(untracked: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = untracked.dropped("gone")
    there = untracked.there(gone)
    ours = untracked.lake.open()
    incomplete = Incomplete("it went away", 0)
    after(
        monkeypatch,
        running,
        "reconcile",
        lambda: monkeypatch.setattr(ours.catalogs["main"], "tables", lambda namespace: incomplete),
    )
    result = only(untracked.delete(ours))
    assert result.row.status == "FAILED", result.row
    assert result.row.deleted_folders == ()
    assert untracked.there(gone) == there


@pytest.mark.requirement("UF-17", "UF-18")
def test_what_stops_it_between_two_folders(untracked: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted is told, and the others stay."""
    first, second, third = (untracked.dropped(name) for name in ("a", "b", "c"))
    there = untracked.there(second) | untracked.there(third)
    after(monkeypatch, removing_folders, "look_inside", lambda: becomes_unresolved(untracked), call=2)
    result = only(untracked.delete())
    assert (result.row.status, result.row.status_reason) == ("BLOCKED", "unresolved_catalog_ownership"), result.row
    assert result.row.deleted_folders == (first,)
    assert not untracked.there(first)
    assert untracked.there(second) | untracked.there(third) == there


@pytest.mark.requirement("UF-17")
@REMOVALS
@pytest.mark.parametrize("change", ["new", "replaced", "deleted"])
def test_a_folder_that_changes_while_it_is_looked_at(
    untracked: Untracked, removal: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes there is at work, whatever the catalogs say by now."""
    gone = untracked.dropped("gone")
    data = f"{gone}/data/0.parquet"

    def changes() -> None:
        if change == "deleted":
            untracked.lake.remove(data)
        else:
            untracked.lake.put(f"{gone}/data/new.parquet" if change == "new" else data, b"another")

    after(monkeypatch, running, "reconcile", changes)
    result = only(untracked.delete(by(untracked, removal)))
    assert result.row.deleted_folders == (), result.row
    (kept,) = result.row.diagnostic_details["not_removed"]
    assert kept["path"] == gone
    assert len(untracked.there(gone)) > 3


# --- amid the removal of one folder


def many(untracked: Untracked, name: str, count: int) -> str:
    place = f"{untracked.root}/{name}"
    for number in range(count):
        untracked.lake.put(f"{place}/data/{number:05}.parquet", b"x")
    return place


@pytest.mark.requirement("UF-17", "UF-18")
@OWNING
@REMOVALS
def test_a_folder_that_becomes_owned_between_two_batches(
    local: Untracked, owning: Callable[[Untracked, str], None], removal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2,500 objects the first thousand is gone when it happens; the row is honest about a folder in pieces."""
    place = many(local, "big", 2500)
    after(monkeypatch, remover, "delete_batch", lambda: owning(local, place))
    result = only(local.delete(by(local, removal)))
    assert (result.row.status, result.row.status_reason) == ("FAILED", "deletion_failed"), result.row
    assert result.row.diagnostic_details["deletion_failed_folder_path"] == place
    assert result.row.deleted_folders == ()
    left = [path for path in local.there(place) if path.startswith(f"{place}/data/") and len(path.split("/")[-1]) == 13]
    assert len(left) == 1500
    assert "1500 objects of it were kept" in str(result.row.error_message)


@pytest.mark.requirement("UF-17")
def test_a_table_that_becomes_unresolved_between_two_batches(local: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    place = many(local, "big", 2500)
    after(monkeypatch, remover, "delete_batch", lambda: becomes_unresolved(local))
    result = only(local.delete())
    assert (result.row.status, result.row.status_reason) == ("FAILED", "deletion_failed"), result.row
    assert "gc.enabled" in str(result.row.error_message)
    assert len(local.there(place)) == 1500
    assert result.row.deleted_folders == ()
    # The next run tells what happened, and removes nothing while the table is unresolved.
    again = only(local.delete())
    assert again.row.status_reason == "unresolved_catalog_ownership"
    assert len(local.there(place)) == 1500


@REMOVALS
def test_a_table_that_is_made_in_the_last_moment_keeps_its_own_files(
    untracked: Untracked, removal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last look and before the deletion: only objects that were listed go, and those are not the table's."""
    gone = untracked.dropped("gone")
    listed = untracked.there(gone)
    before(monkeypatch, remover, "delete_batch", lambda: new_table(untracked, gone))
    result = only(untracked.delete(by(untracked, removal)))
    assert (result.row.status, result.row.status_reason) == ("FAILED", "deletion_failed"), result.row
    assert result.row.deleted_folders == ()
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.new"))) == 1
    assert not listed & untracked.there(gone)


@pytest.mark.requirement("UF-17")
@pytest.mark.parametrize("change", ["owned", "excluded"])
def test_a_killed_move_does_not_go_on_with_what_is_not_to_go_any_more(
    local: Untracked, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,500 objects a thousand was moved when the run was killed; then somebody wants the folder."""
    place = many(local, "big", 1500)
    ours = by(local, "quarantine")
    with monkeypatch.context() as patch:
        after(patch, remover, "delete_batch", killed)
        with pytest.raises(KeyboardInterrupt):
            local.delete(ours)
    assert len(local.there(place)) == 500
    fields: dict[str, Any] = {}
    if change == "owned":
        writes_there(local, place)
    else:
        fields["exclude_paths"] = [place]
    later = by(local, "quarantine")
    result = only(local.delete(later, **fields))
    assert result.row.deleted_folders == (), result.row
    assert len(local.there(place)) == 500


def killed() -> None:
    raise KeyboardInterrupt


@pytest.mark.requirement("UF-17")
def test_directories_of_a_table_that_came_meanwhile(local: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer has made one, and is about to write into it."""
    gone = local.dropped("gone")
    made = Path(Location.parse(f"{gone}/data/p=1").local_path)

    def owning() -> None:
        writes_there(local, gone)
        made.mkdir()

    real = remover.Remover.intend

    def intend(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        owning()
        return found

    monkeypatch.setattr(remover.Remover, "intend", intend)
    result = only(local.delete())
    assert result.row.deleted_folders == (), result.row
    (kept,) = result.row.diagnostic_details["not_removed"]
    assert kept["path"] == gone
    assert made.is_dir()


def test_a_view_that_is_made_meanwhile(local: Untracked, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark's JDBC catalog writes it: a row, and a metadata file in its folder."""
    import sqlite3
    from contextlib import closing

    gone = local.lake.put(f"{local.root}/v/metadata/00000-a.metadata.json").rpartition("/metadata/")[0]
    database = local.lake.properties["uri"].removeprefix("sqlite:///")

    def made() -> None:
        row = ("main", "db", "v", f"{gone}/metadata/00000-a.metadata.json", None, "VIEW")
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, ?, ?)", row)

    assert only(local.run()).row.candidate_folders == (gone,)
    after(monkeypatch, removing_folders, "look_inside", made)
    result = only(local.delete())
    assert result.row.deleted_folders == (), result.row
    (kept,) = result.row.diagnostic_details["not_removed"]
    assert "main.db.v" in kept["why"]
    assert local.there(gone)
