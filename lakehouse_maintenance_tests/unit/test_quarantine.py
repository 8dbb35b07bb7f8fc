"""Quarantine on local files: moved, brought back byte by byte, purged; and every way in which that can go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.progress import Silent
from lakehouse_maintenance.execution.quarantining import Quarantined, finish_entry_lists
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError, LeaseLostError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import (
    Candidate,
    Entry,
    EntryKind,
    EntryState,
    deleting,
    moving,
    new_entry,
    open_lists,
    read_entry,
    remover,
)
from lakehouse_maintenance.removal import lists as removal_lists
from lakehouse_maintenance.removal.deleting import Fate, Told
from lakehouse_maintenance.removal.quarantine import put_part, read_parts
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance_tests.quarantine_cases import (
    PREFIX,
    SUBJECT,
    Case,
    Killed,
    killed_before,
    nothing_owned,
)

NAMES = [
    *("a", "empty", "data/day=1/x.parquet", "data/a b", "data/a%20b", "data/a+b=c:d&e", "data/日本", "data/\u00fcn"),
    *("data/u\u0308n", "_delta_log/0.json", ".hidden", "'q\""),
]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "lake" / "db" / "old"
    for number, name in enumerate(NAMES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty" else f"{number} {name}".encode() * (number + 1))
    return Case(open_state(str(tmp_path / "state")), Storage.from_properties({}), Location.parse(str(folder)))


@pytest.fixture
def files(case: Case) -> Case:
    """Some files of a table's folder, which stays in use."""
    case.kind = EntryKind.FILES
    return case


def some(case: Case, *names: str) -> list[Candidate]:
    wanted = {case.folder.with_key(case.folder.folder_key + name).text for name in names}
    return [candidate for candidate in case.candidates() if candidate.path in wanted]


def local(case: Case, name: str) -> Path:
    return Path(case.folder.local_path) / name


def aside(entry: Entry, name: str) -> Path:
    return Path(entry.quarantined.local_path) / name


def everything(case: Case) -> dict[str, bytes]:
    """Every file of the database's folder."""
    root = Path(case.folder.local_path).parent
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def restore(case: Case, entry: Entry) -> Quarantined:
    return case.quarantining().restore(entry.id)


def purge(case: Case, entry: Entry, older_than: timedelta | None = timedelta(0)) -> Quarantined:
    (one,) = case.quarantining().purge(entry.id, older_than)
    return one


# There and back


def test_a_folder_is_moved_beside_itself_and_comes_back_whole(case: Case) -> None:
    before = everything(case)
    contents = case.objects()
    entry = case.quarantine()
    assert entry.state == EntryState.QUARANTINED
    assert entry.quarantined.key == f"{case.folder.key.rpartition('/')[0]}/{PREFIX}/{entry.id}/old"
    assert case.objects() == {}
    assert case.objects(entry.quarantined) == contents
    assert (entry.objects, entry.bytes) == (len(NAMES), sum(map(len, contents.values())))
    (removal,) = case.removals
    assert (removal.moved, removal.moved_bytes, removal.deleted) == (entry.objects, entry.bytes, 0)
    assert not case.is_open()

    restored = restore(case, entry)
    assert (restored.status, restored.why, restored.notes) == (Status.DONE, None, ())
    assert everything(case) == before
    assert read_entry(case.state, entry.id).state == EntryState.RESTORED
    again = restore(case, entry)
    assert (again.status, again.notes) == (Status.DONE, ("it was restored before",))
    assert everything(case) == before
    refused = purge(case, entry)
    assert refused.status is Status.FAILED
    assert "is restored: it cannot be purged" in (refused.why or "")
    assert everything(case) == before


def test_only_what_was_listed_is_moved_and_restored(files: Case) -> None:
    before = everything(files)
    entry = files.quarantine(some(files, "a", "data/a b", "empty"))
    assert entry.objects == 3
    assert len(files.objects()) == len(NAMES) - 3
    local(files, "new").write_bytes(b"a writer's")
    assert restore(files, entry).status is Status.DONE
    assert everything(files) == {**before, "old/new": b"a writer's"}


def test_purging_waits_for_its_time_and_takes_nothing_younger(case: Case) -> None:
    entry = case.quarantine()
    there = everything(case)
    assert case.quarantining().purge() == []
    kept = purge(case, entry, None)
    assert kept.status is Status.BLOCKED
    assert entry.purge_after in (kept.why or "")
    assert case.quarantining().purge(None, timedelta(days=1)) == []
    assert purge(case, entry, timedelta(days=1)).status is Status.BLOCKED
    assert everything(case) == there

    (purged,) = case.quarantining().purge(None, timedelta(0))
    assert purged.status is Status.DONE
    assert everything(case) == {}
    assert read_entry(case.state, entry.id).state == EntryState.PURGED
    assert purge(case, entry).notes == ("it was purged before",)
    back = restore(case, entry)
    assert back.status is Status.FAILED
    assert "is purged" in (back.why or "")


def test_what_is_due_is_purged_without_being_named(case: Case) -> None:
    case.keep = timedelta(0)
    entry = case.quarantine()
    (purged,) = case.quarantining().purge()
    assert isinstance(purged.entry, Entry)
    assert (purged.entry.id, purged.status) == (entry.id, Status.DONE)
    assert everything(case) == {}


def test_the_time_to_keep_counts_from_when_everything_was_moved(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed), killed_before([], 3, monkeypatch):
        case.quarantine()
    started = read_entry(case.state, entry_id(case))
    case.go_on()
    assert read_entry(case.state, started.id).purge_after > started.purge_after


def entry_id(case: Case) -> str:
    (one,) = case.quarantining().listed()
    return one.entry.id


# Killed anywhere


def steps(case_of: Callable[[int], Case]) -> Iterator[tuple[int, Case]]:
    """A fresh case for each number of calls after which its run is killed."""
    for number in range(1, 200):
        yield number, case_of(number)
    pytest.fail("the run never comes to its end")


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[int], Case]:
    def make(number: int) -> Case:
        root = tmp_path / f"case-{number}"
        folder = root / "lake" / "db" / "old"
        for name in ("a", "empty", "sub/b"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"" if name == "empty" else name.encode() * 10)
        return Case(open_state(str(root / "state")), Storage.from_properties({}), Location.parse(str(folder)))

    return make


def test_a_quarantine_killed_anywhere_is_finished_by_the_next_run(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, case in steps(fresh):
        before, calls = case.objects(), list[str]()
        try:
            with killed_before(calls, number, monkeypatch):
                case.quarantine()
        except Killed:
            kept = case.quarantining().listed()[0].entry
            assert isinstance(kept, Entry)
            assert kept.state == EntryState.MOVING
            assert {**case.objects(kept.quarantined), **case.objects()} == before, calls
            assert purge(case, kept).status is Status.FAILED
            removal = case.go_on()
            assert removal.is_complete
        else:
            assert calls == ["copy"] * 3 + ["delete"]
            return
        entry = read_entry(case.state, kept.id)
        assert (entry.state, entry.objects) == (EntryState.QUARANTINED, 3)
        assert (case.objects(), case.objects(entry.quarantined)) == ({}, before), calls
        assert not case.is_open()
        assert restore(case, entry).status is Status.DONE
        assert case.objects() == before


def test_killed_after_the_deletion_the_next_run_counts_nothing_twice(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fresh(0)
    real = deleting.delete_batch

    def die_after(*args: Any) -> Any:
        real(*args)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", die_after)
        with pytest.raises(Killed):
            case.quarantine()
    recorded = [kept for part in read_parts(case.state, read_entry(case.state, entry_id(case))) for kept in part]
    assert [kept.is_copied for kept in recorded] == [True] * 3, "each copy is on record before its source goes"
    removal = case.go_on()
    assert (removal.moved, removal.deleted, removal.gone) == (0, 0, 3)
    entry = read_entry(case.state, entry_id(case))
    assert (entry.state, entry.objects) == (EntryState.QUARANTINED, 3)
    assert restore(case, entry).status is Status.DONE
    assert set(case.objects()) == {"a", "empty", "sub/b"}


@pytest.mark.parametrize("kind", EntryKind)
def test_a_restore_killed_anywhere_is_finished_by_the_next(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch, kind: EntryKind
) -> None:
    for number, case in steps(fresh):
        case.kind = kind
        before, calls = case.objects(), list[str]()
        entry = case.quarantine()
        try:
            with killed_before(calls, number, monkeypatch):
                restore(case, entry)
        except Killed:
            assert read_entry(case.state, entry.id).state == EntryState.RESTORING
            assert {**case.objects(entry.quarantined), **case.objects()} == before, calls
            half = purge(case, entry)
            assert half.status is Status.FAILED
            assert "restoring" in (half.why or "")
        else:
            assert calls == ["copy"] * 3 + ["delete"]
            return
        restored = restore(case, entry)
        assert (restored.status, restored.why) == (Status.DONE, None), calls
        assert (case.objects(), case.objects(entry.quarantined)) == (before, {})
        assert not case.is_open()


def test_a_purge_killed_anywhere_is_finished_by_the_next(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fresh(0)
    entry = case.quarantine()
    real = deleting.delete_batch

    def die(storage: Storage, locations: Sequence[Location]) -> Any:
        real(storage, locations[:1])
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", die)
        with pytest.raises(Killed):
            purge(case, entry)
    assert read_entry(case.state, entry.id).state == EntryState.PURGING
    back = restore(case, entry)
    assert back.status is Status.FAILED
    assert "is purging" in (back.why or "")
    (purged,) = case.quarantining().purge()
    assert purged.status is Status.DONE
    assert case.objects(entry.quarantined) == {}
    outcomes = [event for event in case.state.journal.events() if event.details.get("operation") == "purge"]
    assert sum(event.files for event in outcomes if event.phase == "outcome") == 2, "one was deleted by the killed run"


def test_the_next_run_on_the_subject_finishes_what_was_begun(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fresh(0)
    before = case.objects()
    entry = case.quarantine()
    with pytest.raises(Killed), killed_before([], 2, monkeypatch):
        restore(case, entry)
    assert case.state.journal.open_intents(SUBJECT)
    with case.lease() as (lease, run_id):
        assert (
            finish_entry_lists(
                case.state, lambda entry: case.storage, lambda entry: case.claims, run_id, lease, Silent()
            )
            == []
        )
    assert case.objects() == before
    assert not case.is_open()
    assert case.state.journal.open_intents(SUBJECT) == []


def test_a_half_moved_folder_can_be_brought_back_at_once(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, case in steps(fresh):
        before, calls = case.objects(), list[str]()
        try:
            with killed_before(calls, number, monkeypatch):
                case.quarantine()
        except Killed:
            entry = read_entry(case.state, entry_id(case))
        else:
            return
        restored = restore(case, entry)
        assert (restored.status, restored.why) == (Status.DONE, None), calls
        assert (case.objects(), case.objects(entry.quarantined)) == (before, {}), calls
        assert not case.is_open(), "nothing is left that would move it again"


def test_what_is_being_restored_is_not_moved_again(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fresh(0)
    with pytest.raises(Killed), killed_before([], 4, monkeypatch):
        case.quarantine()
    (moving_list,) = open_lists(case.state, SUBJECT)

    def die(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(remover, "close_list", die)
        with pytest.raises(Killed):
            restore(case, read_entry(case.state, entry_id(case)))
    assert len(open_lists(case.state, SUBJECT)) == 2
    before = case.objects()
    with case.lease() as (lease, run_id):
        case.remover().remove(case.permit(lease, run_id), moving_list, nothing_owned, resumed=True)
    assert case.objects() == before
    assert read_entry(case.state, entry_id(case)).state == EntryState.RESTORING


def test_a_list_without_its_entry_moved_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(case)

    def die(*args: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(remover, "put_entry", die)
        with pytest.raises(Killed):
            case.quarantine()
    assert case.is_open()
    case.go_on()
    assert not case.is_open()
    assert everything(case) == before


def test_what_was_moved_of_a_table_that_is_another_by_now_can_be_restored(
    fresh: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, case in steps(fresh):
        before, calls = case.objects(), list[str]()
        try:
            with killed_before(calls, number, monkeypatch):
                case.quarantine()
        except Killed:
            (head,) = open_lists(case.state, SUBJECT)
        else:
            return
        there = case.objects()
        with case.lease() as (lease, run_id):
            permit = replace(case.permit(lease, run_id), uuid="another table's")
            removal = case.remover().remove(permit, head, nothing_owned, resumed=True)
        assert sum(removal.kept.values()) == 3
        assert case.objects() == there
        assert not case.is_open()
        entry = read_entry(case.state, entry_id(case))
        assert entry.state == EntryState.QUARANTINED
        assert restore(case, entry).status is Status.DONE, calls
        assert (case.objects(), case.objects(entry.quarantined)) == (before, {}), calls


# Sources that are not what they were


def test_a_source_that_a_writer_replaces_meanwhile_stays(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Storage.copy
    victim = local(case, "a")

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        info = real(self, source, target)
        if source.local_path == str(victim):
            victim.write_bytes(b"written by somebody else while it was moved")
        return info

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        entry = case.quarantine()
    assert dict(case.removals[0].kept) == {"a writer replaced it while it was copied": 1}
    assert case.objects() == {"a": b"written by somebody else while it was moved"}
    assert entry.objects == len(NAMES) - 1
    assert not aside(entry, "a").exists(), "its copy is of no use to anybody"
    assert "a" not in {kept.rest for part in read_parts(case.state, entry) for kept in part}


def test_what_changed_since_it_was_listed_stays(case: Case) -> None:
    candidates = case.candidates()
    local(case, "a").write_bytes(b"longer than before, much longer")
    local(case, "data/a b").write_bytes(local(case, "data/a b").read_bytes())  # as long as before, and newer
    case.quarantine(candidates)
    assert case.removals[0].kept == {
        "another size than the file that was meant": 1,
        "written since it was listed": 1,
    }
    assert set(case.objects()) == {"a", "data/a b"}


@pytest.mark.parametrize("turn", [1, 2])
def test_what_turns_out_to_be_owned_stays(case: Case, turn: int) -> None:
    """Asked before the copies and, since copying takes a while, once more before the deletion."""
    asked = 0

    def recheck(batch: Sequence[Candidate]) -> Mapping[str, str]:
        nonlocal asked
        asked += 1
        return {c.path: "owned by now" for c in batch if c.path.endswith("/a") and asked >= turn}

    entry = case.quarantine(recheck=recheck)
    assert dict(case.removals[0].kept) == {"owned by now": 1}
    assert set(case.objects()) == {"a"}
    assert not aside(entry, "a").exists()
    assert entry.objects == len(NAMES) - 1


def test_a_copy_of_a_killed_run_goes_where_its_source_is_owned_by_now(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Killed), killed_before([], len(NAMES) + 1, monkeypatch):
        case.quarantine()
    entry = read_entry(case.state, entry_id(case))
    assert len(case.objects(entry.quarantined)) == len(NAMES)
    before = case.objects()
    removal = case.go_on(recheck=lambda batch: {c.path: "owned by now" for c in batch})
    assert dict(removal.kept) == {"owned by now": len(NAMES)}
    assert (case.objects(), case.objects(entry.quarantined)) == (before, {})


def test_a_name_that_is_used_again_between_two_runs_stays(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed), killed_before([], len(NAMES) + 1, monkeypatch):
        case.quarantine(case.candidates(detailed=False))
    content = local(case, "a").read_bytes()
    local(case, "a").write_bytes(content)
    removal = case.go_on()
    assert dict(removal.kept) == {"written since the list was made": 1}
    assert case.objects() == {"a": content}


def test_nothing_outside_of_its_place_is_moved(case: Case, tmp_path: Path) -> None:
    outside = tmp_path / "lake" / "db" / "older"
    outside.mkdir()
    (outside / "x").write_bytes(b"1")
    (tmp_path / "elsewhere").write_bytes(b"2")
    (Path(case.folder.local_path) / "link").symlink_to(tmp_path / "elsewhere")
    given = [Candidate(str(outside / "x"), "file"), Candidate("s3://b/old/a", "file"), Candidate("no path", "file")]
    case.quarantine([*given, *some(case, "link", "a")])
    assert sum(case.removals[0].kept.values()) == 4
    assert case.removals[0].moved == 1
    assert ((outside / "x").read_bytes(), (tmp_path / "elsewhere").read_bytes()) == (b"1", b"2")
    assert local(case, "link").is_symlink()


def test_an_entry_takes_what_lies_in_its_own_folder_alone(case: Case) -> None:
    """A run may clean more places than the one that the entry is of."""
    given = some(case, "a", "data/a b")
    case.territory, case.folder = case.folder, case.folder.child("data")
    entry = case.quarantine(given)
    assert dict(case.removals[0].kept) == {"outside the folder that is quarantined": 1}
    assert set(case.objects(entry.quarantined)) == {"a b"}


def test_a_copy_whose_source_somebody_deleted_is_the_last_and_is_kept(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, written = case.objects(), put_part, list[int]()

    def die(*args: Any) -> None:
        written.append(1)
        if len(written) == 2:
            raise Killed
        real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(moving, "put_part", die)
        with pytest.raises(Killed):
            case.quarantine()
    local(case, "a").unlink()
    case.go_on()
    entry = read_entry(case.state, entry_id(case))
    assert case.objects(entry.quarantined) == before
    assert all(kept.is_copied for part in read_parts(case.state, entry) for kept in part)
    assert restore(case, entry).status is Status.DONE
    assert case.objects() == before


# Calls that fail


def test_a_copy_that_fails_keeps_its_source_and_is_made_by_the_next_run(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = case.objects(), Storage.copy

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        if source.name.startswith("a"):
            raise StorageError("the store is out of order")
        return real(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        entry = case.quarantine()
    failed = case.removals[0].failed
    assert len(failed) == len(case.objects()) == 4
    assert all("out of order" in why for why in failed.values())
    assert (entry.state, case.is_open()) == (EntryState.MOVING, True)
    assert case.go_on().is_complete
    assert (case.objects(), case.objects(entry.quarantined)) == ({}, before)


def test_a_copy_whose_answer_was_lost_counts(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = case.objects(), Storage.copy

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        real(self, source, target)
        raise StorageError("the answer never came")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        entry = case.quarantine()
    assert case.removals[0].is_complete
    assert (case.objects(), case.objects(entry.quarantined)) == ({}, before)


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.UNKNOWN])
def test_a_source_that_cannot_be_deleted_is_there_twice_until_the_next_run(
    case: Case, monkeypatch: pytest.MonkeyPatch, fate: Fate
) -> None:
    before = case.objects()

    def refused(storage: Storage, locations: Sequence[Location]) -> dict[Location, Told]:
        return {location: Told(fate, "refused") for location in locations}

    with monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", refused)
        entry = case.quarantine()
    removal = case.removals[0]
    assert len(removal.failed if fate is Fate.FAILED else removal.unknown) == len(NAMES)
    assert (case.objects(), case.objects(entry.quarantined)) == (before, before)
    assert (entry.state, removal.moved) == (EntryState.MOVING, 0)
    assert case.go_on().moved == len(NAMES)
    assert (case.objects(), case.objects(entry.quarantined)) == ({}, before)


def test_a_source_that_the_store_holds_stays_and_its_copy_goes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    real = deleting.delete_batch

    def held(storage: Storage, locations: Sequence[Location]) -> dict[Location, Told]:
        ours = [one for one in locations if PREFIX not in one.segments and one.name == "a"]
        return {**real(storage, [one for one in locations if one not in ours])} | dict.fromkeys(
            ours, Told(Fate.HELD, "retention")
        )

    with monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", held)
        entry = case.quarantine()
    assert set(case.objects()) == {"a"}
    assert (entry.state, entry.objects, case.removals[0].moved) == (EntryState.QUARANTINED, 11, 11)
    assert not aside(entry, "a").exists()


def hold(storage: Storage, locations: Sequence[Location]) -> dict[Location, Told]:
    """A store that lets nothing go."""
    return dict.fromkeys(locations, Told(Fate.HELD, "under legal hold"))


def test_what_the_store_holds_is_kept_with_the_cause(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with case.lease() as (lease, run_id), monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", hold)
        permit = case.permit(lease, run_id)
        removal = case.remover().remove(permit, case.remover().intend(permit, some(case, "a"), now_ms()), nothing_owned)
    assert (removal.deleted, removal.failed, removal.kept) == (0, {}, {"the store holds it: under legal hold": 1})
    assert not case.is_open()
    assert "a" in case.objects()


def test_what_the_store_holds_keeps_a_purge_and_a_restore_open(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before, entry = case.objects(), case.quarantine()
    with monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", hold)
        assert "under legal hold" in (restore(case, entry).why or "")
    assert (case.objects(), case.objects(entry.quarantined)) == (before, before)
    assert restore(case, entry).status is Status.DONE
    again = case.quarantine()
    with monkeypatch.context() as patched:
        patched.setattr(remover, "delete_batch", hold)
        assert purge(case, again).status is Status.FAILED
    assert case.is_open()
    assert purge(case, again).status is Status.DONE
    assert case.objects(again.quarantined) == {}


def test_what_lies_at_the_target_is_not_overwritten(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed), killed_before([], 1, monkeypatch):
        case.quarantine()
    entry = read_entry(case.state, entry_id(case))
    aside(entry, "a").parent.mkdir(parents=True, exist_ok=True)
    aside(entry, "a").write_bytes(b"foreign")
    removal = case.go_on()
    assert list(removal.failed) == [str(local(case, "a"))]
    assert "occupied" in removal.failed[str(local(case, "a"))]
    assert aside(entry, "a").read_bytes() == b"foreign"
    assert local(case, "a").exists()


def steal_the_lease(case: Case) -> None:
    stored = case.state.get(f"leases/{SUBJECT}")
    assert stored is not None
    damage(case, f"leases/{SUBJECT}", json.dumps({**json.loads(stored[0]), "fence": 99, "released": True}).encode())


@pytest.mark.parametrize("until", [1, len(NAMES) + 1])
def test_what_lies_at_the_target_is_not_dropped_for_a_copy(
    case: Case, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """Before the copies were made, and after they were recorded."""
    with pytest.raises(Killed), killed_before([], until, monkeypatch):
        case.quarantine()
    entry = read_entry(case.state, entry_id(case))
    aside(entry, "a").parent.mkdir(parents=True, exist_ok=True)
    aside(entry, "a").write_bytes(b"foreign, and longer than what was moved")
    case.go_on(recheck=lambda batch: {c.path: "owned by now" for c in batch})
    assert case.objects(entry.quarantined) == {"a": b"foreign, and longer than what was moved"}


def test_a_lost_lease_ends_it_before_the_deletion(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = case.objects(), Storage.copy

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        if target.name == "a":
            steal_the_lease(case)
        return real(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        with pytest.raises(LeaseLostError):
            case.quarantine()
    assert case.objects() == before
    assert case.is_open()


def test_a_lost_lease_ends_a_restore_before_the_deletion(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before, entry = case.objects(), case.quarantine()
    real = Storage.copy

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        if target.name == "a":
            steal_the_lease(case)
        return real(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        lost = restore(case, entry)
    assert lost.status is Status.FAILED
    assert "lease" in (lost.why or "")
    assert (case.objects(), case.objects(entry.quarantined)) == (before, before)


def test_a_lost_lease_ends_a_purge_before_the_deletion(case: Case) -> None:
    before, entry = case.objects(), case.quarantine()
    asked: list[int] = []

    def claims(batch: Sequence[Candidate]) -> Mapping[str, str]:
        asked.append(len(batch))
        if len(asked) == 2:
            steal_the_lease(case)
        return {}

    case.claims = claims
    lost = purge(case, entry)
    assert lost.status is Status.FAILED
    assert "lease" in (lost.why or "")
    assert case.objects(entry.quarantined) == before


# A place that is taken again


def test_a_folder_that_is_occupied_again_is_not_restored(case: Case) -> None:
    entry = case.quarantine()
    local(case, "metadata").mkdir(parents=True)
    for number in range(5):
        local(case, f"metadata/v{number}.metadata.json").write_bytes(b"{}")
    there = everything(case)
    refused = restore(case, entry)
    assert refused.status is Status.BLOCKED
    why = refused.why or ""
    assert "occupied again: 5 objects" in why
    assert ".metadata.json (2 bytes, 20" in why
    assert everything(case) == there
    assert read_entry(case.state, entry.id).state == EntryState.QUARANTINED
    assert not case.is_open()


def test_a_file_in_the_folders_place_occupies_it(case: Case) -> None:
    entry = case.quarantine()
    root = Path(case.folder.local_path)
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir()
    root.rmdir()
    root.write_bytes(b"a file by the folder's name")
    assert restore(case, entry).status is Status.BLOCKED
    assert root.read_bytes() == b"a file by the folder's name"


def test_one_file_that_is_taken_again_keeps_all_of_them_back(files: Case) -> None:
    entry = files.quarantine(some(files, "a", "data/a b"))
    local(files, "a").write_bytes(b"new")
    there = everything(files)
    refused = restore(files, entry)
    assert refused.status is Status.BLOCKED
    assert "1 object lies there" in (refused.why or "")
    assert everything(files) == there


def test_a_writer_that_comes_amid_a_restore_is_not_overwritten(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before = case.objects()
    entry = case.quarantine()
    real = Storage.copy

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        if target.name == "a":
            Path(target.local_path).parent.mkdir(parents=True, exist_ok=True)
            Path(target.local_path).write_bytes(b"the writer's")
        return real(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        refused = restore(case, entry)
    assert refused.status is Status.FAILED
    assert "occupied" in (refused.why or "")
    assert local(case, "a").read_bytes() == b"the writer's"
    assert case.objects(entry.quarantined) == before, "nothing leaves quarantine before everything is back"

    local(case, "another").write_bytes(b"1")
    assert restore(case, entry).status is Status.BLOCKED
    local(case, "another").unlink()
    local(case, "a").unlink()
    assert restore(case, entry).status is Status.DONE
    assert (case.objects(), case.objects(entry.quarantined)) == (before, {})


def test_what_vanishes_from_its_place_again_keeps_its_copy(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before, entry = case.objects(), case.quarantine()
    real = Storage.copy

    def copy(self: Storage, source: Location, target: Location) -> ObjectInfo:
        info = real(self, source, target)
        if target.name == "a":
            Path(target.local_path).unlink()
        return info

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "copy", copy)
        assert "not at its place" in (restore(case, entry).why or "")
    assert case.objects(entry.quarantined) == {"a": before["a"]}
    assert restore(case, entry).status is Status.DONE
    assert case.objects() == before


def test_a_copy_that_a_kill_cut_short_occupies_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before = case.objects()
    entry = case.quarantine()
    with pytest.raises(Killed), killed_before([], 3, monkeypatch):
        restore(case, entry)
    local(case, "").mkdir(parents=True, exist_ok=True)
    local(case, "_lakehouse_maintenance_copy_" + "0" * 32).write_bytes(b"half of it")
    assert restore(case, entry).status is Status.DONE
    assert case.objects() == before


# What is not as it was recorded


def test_what_else_lies_in_the_entrys_folder_is_left_alone_and_told(case: Case) -> None:
    entry = case.quarantine()
    aside(entry, "foreign").write_bytes(b"somebody's")
    purged = purge(case, entry)
    assert purged.status is Status.DONE
    (note,) = purged.notes
    assert "1 objects" in note
    assert str(aside(entry, "foreign")) in note
    assert case.objects(entry.quarantined) == {"foreign": b"somebody's"}


def test_a_copy_that_was_replaced_is_neither_restored_nor_purged(case: Case) -> None:
    entry = case.quarantine()
    aside(entry, "a").write_bytes(b"replaced, and of another size than it was")
    back = restore(case, entry)
    assert back.status is Status.FAILED
    assert "not what was moved there" in (back.why or "")
    assert not local(case, "a").exists()
    assert aside(entry, "a").exists()


def test_a_replaced_copy_survives_a_purge(case: Case) -> None:
    entry = case.quarantine()
    aside(entry, "a").write_bytes(b"replaced, and of another size than it was")
    purged = purge(case, entry)
    assert purged.status is Status.FAILED
    assert case.objects(entry.quarantined) == {"a": b"replaced, and of another size than it was"}
    assert read_entry(case.state, entry.id).state == EntryState.PURGING
    assert not case.is_open(), "nobody has to finish it until it is asked for again"
    aside(entry, "a").unlink()
    assert purge(case, entry).status is Status.DONE


def test_a_copy_that_is_gone_is_told(case: Case) -> None:
    entry = case.quarantine()
    aside(entry, "a").unlink()
    back = restore(case, entry)
    assert back.status is Status.FAILED
    assert "neither in quarantine nor at its place" in (back.why or "")
    assert len(case.objects(entry.quarantined)) == len(NAMES) - 1


def test_what_somebody_needs_by_now_is_not_purged(case: Case) -> None:
    before, entry = case.objects(), case.quarantine()
    case.claims = lambda batch: {c.path: "main.db.t references it" for c in batch if c.path.endswith("/a")}
    refused = purge(case, entry)
    assert refused.status is Status.FAILED
    assert "main.db.t references it" in (refused.why or "")
    assert read_entry(case.state, entry.id).state == EntryState.QUARANTINED, "it still can be restored"
    assert not case.is_open()
    assert restore(case, entry).status is Status.DONE
    assert case.objects() == before


def test_what_somebody_needs_amid_a_purge_stays(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = case.quarantine()
    asked = 0

    def claims(batch: Sequence[Candidate]) -> Mapping[str, str]:
        nonlocal asked
        asked += 1
        return {c.path: "needed" for c in batch if c.path.endswith("/a") and asked > 1}

    case.claims = claims
    assert "needed" in (purge(case, entry).why or "")
    assert set(case.objects(entry.quarantined)) == {"a"}


# A damaged state


@pytest.mark.parametrize("what", ["head", "fields", "place", "part", "missing part", "counts"])
def test_a_damaged_entry_is_an_error_and_nothing_is_touched(case: Case, what: str) -> None:
    entry = case.quarantine()
    there = everything(case)
    head, part = f"quarantine/{entry.id}", f"quarantine-objects/{entry.id}/000000"
    stored = case.state.get(head)
    assert stored is not None
    data = json.loads(stored[0])
    if what == "head":
        damage(case, head, b"\0garbage")
    elif what == "fields":
        damage(case, head, json.dumps({"id": entry.id}).encode())
    elif what == "place":
        damage(case, head, json.dumps({**data, "quarantined_path": str(Path(case.folder.local_path).parent)}).encode())
    elif what == "part":
        damage(case, part, b"\0garbage")
    elif what == "missing part":
        damage(case, head, json.dumps({**data, "parts": 2}).encode())
    else:
        damage(case, head, json.dumps({**data, "objects": 3}).encode())
    in_head = what in ("head", "fields", "place")
    for act in (restore, purge):
        if in_head:
            with pytest.raises(StorageError, match="damaged"):
                act(case, entry)
        else:
            told = act(case, entry)
            assert told.status is Status.FAILED
            assert "damaged" in (told.why or "")
        assert everything(case) == there
        assert not case.is_open()
    (shown,) = case.quarantining().listed()
    assert shown.as_json()["state"] == ("unreadable" if in_head else "quarantined")
    assert shown.ok is not in_head
    (purged,) = case.quarantining().purge(None, timedelta(0))
    assert not purged.ok
    assert everything(case) == there


def damage(case: Case, key: str, value: bytes) -> None:
    stored = case.state.get(key)
    assert stored is not None
    assert case.state.put(key, value, stored[1]) is not None


@pytest.mark.parametrize("name", ["", "nobody", "a/b", "../leases/x"])
def test_an_id_that_is_nobodys_is_bad_input(case: Case, name: str) -> None:
    with pytest.raises(InputError, match="no quarantine entry"):
        case.quarantining().restore(name)
    with pytest.raises(InputError, match="no quarantine entry"):
        case.quarantining().purge(name)


# Entries and lists


@pytest.mark.parametrize(
    "folder", ["/", "s3://bucket/", "s3://bucket", "s3://bucket/a//", f"s3://bucket/{PREFIX}/x/old"]
)
def test_what_cannot_be_quarantined(folder: str) -> None:
    with pytest.raises(InputError):
        entry_of(folder)


@pytest.mark.parametrize(
    ("folder", "place"),
    [
        ("s3://bucket/db/t", f"s3://bucket/db/{PREFIX}/ID/t"),
        ("s3a://bucket/db/t/", f"s3a://bucket/db/{PREFIX}/ID/t"),
        ("s3://bucket/t", f"s3://bucket/{PREFIX}/ID/t"),
        ("s3://bucket/a//t", f"s3://bucket/a//{PREFIX}/ID/t"),
        ("/t", f"/{PREFIX}/ID/t"),
        ("file:///x/t", f"file:///x/{PREFIX}/ID/t"),
    ],
)
def test_the_place_is_beside_the_folder(folder: str, place: str) -> None:
    entry = entry_of(folder)
    assert entry.quarantined_path == place.replace("ID", entry.id)


def entry_of(folder: str, now: datetime | None = None) -> Entry:
    moment = datetime.now(UTC) if now is None else now
    location = Location.parse(folder)
    return new_entry(SUBJECT, EntryKind.FOLDER, location, prefix=PREFIX, keep=timedelta(days=1), now=moment)


def test_ids_sort_by_time_and_are_never_the_same() -> None:
    start = datetime(2026, 1, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    ids = [entry_of("/db/t", start + timedelta(milliseconds=n)).id for n in range(50)]
    assert ids == sorted(ids)
    assert entry_of("/db/t", start).id != entry_of("/db/t", start).id


def test_two_lists_of_one_run_on_one_table_are_two(case: Case) -> None:
    with case.lease() as (lease, run_id):
        permit = case.permit(lease, run_id)
        one = case.remover().intend(permit, some(case, "a"), 1)
        two = case.remover().intend(permit, some(case, "empty"), 2, evidence={"why": "nobody's"})
    assert open_lists(case.state, SUBJECT) == [one, two]
    assert [c.path for part in removal_lists.read_list(case.state, one) for c in part] == [str(local(case, "a"))]
    assert two.evidence == {"why": "nobody's"}
    assert two.operation == "delete"


def test_a_list_of_an_earlier_release_is_read(case: Case) -> None:
    import zlib

    head = {"table": SUBJECT, "run_id": "old", "action": "expire_snapshots", "digest": "d", "at_ms": 5, "parts": 1}
    head |= {"files": 1, "bytes": 3, "uuid": "", "open": True}
    rows = [(str(local(case, "a")), "data_file", local(case, "a").stat().st_size)]
    case.state.put(f"removals/{SUBJECT}/old/000000", zlib.compress(json.dumps(rows).encode()), None)
    case.state.put(f"removals/{SUBJECT}/old", json.dumps(head).encode(), None)
    case.state.put(f"open-removals/{SUBJECT}", b'["old"]', None)
    (found,) = open_lists(case.state, SUBJECT)
    assert (found.operation, found.entry) == ("delete", None)
    assert dict(case.go_on().kept) == {"written since the list was made": 1}


def test_a_list_of_a_later_release_is_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed), killed_before([], 1, monkeypatch):
        case.quarantine()
    (head,) = open_lists(case.state, SUBJECT)
    before = case.objects()
    with case.lease() as (lease, run_id):
        permit = case.permit(lease, run_id)
        with pytest.raises(StorageError, match="not known here"):
            case.remover().remove(permit, replace(head, operation="shred"), lambda batch: {}, resumed=True)
    assert case.objects() == before


def test_a_described_candidate_is_deleted_only_as_described(case: Case) -> None:
    candidates = some(case, "a", "data/a b")
    local(case, "a").write_bytes(local(case, "a").read_bytes())
    with case.lease() as (lease, run_id):
        permit = case.permit(lease, run_id)
        head = case.remover().intend(permit, candidates, 1)
        removal = case.remover().remove(permit, head, lambda batch: {})
    assert (removal.deleted, dict(removal.kept)) == (1, {"written since it was listed": 1})
    assert local(case, "a").exists()


def test_the_journal_tells_what_was_moved_by_whom_and_what_not(case: Case) -> None:
    entry = case.quarantine(recheck=lambda batch: {c.path: "owned" for c in batch if c.path.endswith("/a")})
    restore(case, entry)
    events = case.state.journal.events()
    assert [(event.phase, event.details["operation"], event.files) for event in events] == [
        ("intent", "quarantine", len(NAMES)),
        ("outcome", "quarantine", len(NAMES) - 1),
        ("intent", "restore", len(NAMES) - 1),
        ("outcome", "restore", len(NAMES) - 1),
    ]
    assert {event.details["entry"] for event in events} == {entry.id}
    assert events[1].details["fates"] == {"kept": 1, "moved": len(NAMES) - 1}
    assert events[1].details["not_done"] == {str(local(case, "a")): "kept: owned"}
    assert entry.run_id == events[0].run_id


def test_more_than_one_batch(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remover, "BATCH", 5)
    before = case.objects()
    with pytest.raises(Killed), killed_before([], 9, monkeypatch):
        case.quarantine()
    entry = read_entry(case.state, entry_id(case))
    assert (entry.parts, entry.objects) == (3, 5)
    case.go_on()
    entry = read_entry(case.state, entry.id)
    assert (entry.state, entry.objects) == (EntryState.QUARANTINED, len(NAMES))
    assert restore(case, entry).status is Status.DONE
    assert case.objects() == before
