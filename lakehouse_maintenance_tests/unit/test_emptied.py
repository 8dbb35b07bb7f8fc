"""Directories that a removal has emptied go; whatever holds something, is a link or lies elsewhere stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakehouse_maintenance.model.errors import LeaseLostError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import EntryState, Permit, emptied, read_entry, remove_emptied
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.quarantine_cases import PREFIX, Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "lake" / "db" / "old"
    for name in ("a", "data/day=1/x", "data/day=2/deep/y", "metadata/v1"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return Case(open_state(str(tmp_path / "state")), Storage.from_properties({}), Location.parse(str(folder)))


@contextmanager
def permit(case: Case, *territory: Path) -> Iterator[Permit]:
    with case.lease() as (lease, run_id):
        places = tuple(Location.parse(str(path)) for path in territory)
        yield Permit("main.db", run_id, "untracked_folders", "sha256:1", lease, places)


def local(case: Case) -> Path:
    return Path(case.folder.local_path)


def empty(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            file.unlink()


def directories(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()}


def test_an_emptied_folder_goes_and_its_parent_stays(case: Case) -> None:
    empty(local(case))
    with permit(case, local(case)) as allowed:
        assert remove_emptied(case.storage, allowed, case.folder)
        assert not local(case).exists()
        assert local(case).parent.is_dir()
        assert remove_emptied(case.storage, allowed, case.folder)


def test_what_holds_something_stays_and_is_told(case: Case) -> None:
    empty(local(case))
    (local(case) / "data/day=2/deep/new").write_bytes(b"somebody's")
    with permit(case, local(case)) as allowed:
        assert not remove_emptied(case.storage, allowed, case.folder)
    assert directories(local(case)) == {"data", "data/day=2", "data/day=2/deep"}
    assert (local(case) / "data/day=2/deep/new").read_bytes() == b"somebody's"


def test_a_writer_that_comes_meanwhile_keeps_the_folder(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes after the folder was looked at, just before its own directory would go."""
    empty(local(case))
    real = emptied.remove_empty_folder

    def remove(name: str, *, within: int | None = None) -> None:
        if name == "deep":
            (local(case) / "data/day=2/deep/new").write_bytes(b"somebody's")
        real(name, within=within)

    monkeypatch.setattr(emptied, "remove_empty_folder", remove)
    with permit(case, local(case)) as allowed:
        assert not remove_emptied(case.storage, allowed, case.folder)
    assert (local(case) / "data/day=2/deep/new").read_bytes() == b"somebody's"


def test_links_are_neither_followed_nor_removed(case: Case, tmp_path: Path) -> None:
    empty(local(case))
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    (local(case) / "data" / "link").symlink_to(tmp_path / "elsewhere")
    with permit(case, local(case)) as allowed:
        assert not remove_emptied(case.storage, allowed, case.folder)
    assert directories(local(case)) == {"data", "data/link"}
    assert (tmp_path / "elsewhere" / "empty").is_dir()


def test_a_directory_that_becomes_a_link_meanwhile_is_not_left_through_it(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty(local(case))
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    real = os.open

    def swap(path: str, *args: int, **options: int) -> int:
        if path == "data":
            os.rename(local(case) / "data", tmp_path / "moved")
            (local(case) / "data").symlink_to(tmp_path / "elsewhere")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", swap)
    with permit(case, local(case)) as allowed:
        assert not remove_emptied(case.storage, allowed, case.folder)
    assert (local(case) / "data").is_symlink()
    assert (tmp_path / "elsewhere" / "empty").is_dir()


def test_a_link_to_a_folder_is_no_folder(case: Case, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    link = local(case).parent / "link"
    link.symlink_to(tmp_path / "elsewhere")
    # The territory reaches both ends, so that only the link itself is in the way.
    with permit(case, tmp_path) as allowed:
        assert not remove_emptied(case.storage, allowed, Location.parse(str(link)))
    assert (tmp_path / "elsewhere" / "empty").is_dir()


def test_nothing_outside_of_the_territory_is_touched(case: Case, tmp_path: Path) -> None:
    empty(local(case))
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    (local(case) / "link").symlink_to(tmp_path / "elsewhere")
    before = directories(tmp_path / "lake"), directories(tmp_path / "elsewhere")
    with permit(case, local(case) / "data", local(case).parent / "ol", local(case)) as allowed:
        inside_a_link = Location.parse(f"{local(case)}/link/empty")
        for folder in (Location.parse(str(local(case).parent)), inside_a_link):
            assert not remove_emptied(case.storage, allowed, folder)
    with permit(case, local(case) / "data", local(case).parent / "ol") as allowed:
        assert not remove_emptied(case.storage, allowed, case.folder)
    assert (directories(tmp_path / "lake"), directories(tmp_path / "elsewhere")) == before


def test_a_lost_lease_ends_it_before_anything_goes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    empty(local(case))
    before = directories(local(case))
    with permit(case, local(case)) as allowed:
        allowed.lease.release()
        with pytest.raises(LeaseLostError):
            remove_emptied(case.storage, allowed, case.folder)
    assert directories(local(case)) == before


def test_a_lease_lost_amid_many_directories_ends_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (local(case) / f"part={number}").mkdir()
    empty(local(case))
    monkeypatch.setattr(emptied, "_CHECKED_EVERY", 5)
    real = emptied.remove_empty_folder
    with permit(case, local(case)) as allowed:

        def lose(name: str, *, within: int | None = None) -> None:
            allowed.lease.release()
            real(name, within=within)

        monkeypatch.setattr(emptied, "remove_empty_folder", lose)
        with pytest.raises(LeaseLostError):
            remove_emptied(case.storage, allowed, case.folder)
    assert local(case).is_dir()


# Of quarantine entries


def test_a_purged_entry_leaves_no_directories(case: Case, tmp_path: Path) -> None:
    entry = case.quarantine()
    (one,) = case.quarantining().purge(entry.id, case.keep * 0)
    assert one.ok
    quarantine = local(case).parent / PREFIX
    assert quarantine.is_dir()
    assert directories(quarantine) == set()


def test_a_restored_entry_leaves_no_directories(case: Case) -> None:
    before = case.objects()
    entry = case.quarantine()
    assert case.quarantining().restore(entry.id).ok
    assert directories(local(case).parent / PREFIX) == set()
    assert case.objects() == before


def test_what_is_not_the_entrys_keeps_its_directories(case: Case) -> None:
    entry = case.quarantine()
    other = case.quarantine([])
    for id_ in (entry.id, other.id):
        foreign = local(case).parent / PREFIX / id_ / "old" / "data" / "foreign"
        foreign.parent.mkdir(parents=True, exist_ok=True)
        foreign.write_bytes(b"somebody's")
    (one,) = case.quarantining().purge(entry.id, case.keep * 0)
    assert one.ok
    assert read_entry(case.state, entry.id).state == EntryState.PURGED
    quarantine = local(case).parent / PREFIX
    assert directories(quarantine) == {
        f"{id_}{below}" for id_ in (entry.id, other.id) for below in ("", "/old", "/old/data")
    }
    assert all((quarantine / id_ / "old/data/foreign").is_file() for id_ in (entry.id, other.id))
