"""Restoring or purging, killed when all was done and only its own list was not closed yet."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.execution.quarantining import Quarantined
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import EntryState, open_lists, read_entry, remover
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.scratch import new_copy_name
from lakehouse_maintenance_tests.quarantine_cases import SUBJECT, Case, Killed, killed_before


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "lake" / "db" / "old"
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / name).write_text(name)
    return Case(open_state(str(tmp_path / "state")), Storage.from_properties({}), Location.parse(str(folder)))


def do(case: Case, operation: EntryState, entry_id: str) -> Quarantined:
    if operation is EntryState.RESTORED:
        return case.quarantining().restore(entry_id)
    return case.quarantining().purge(entry_id, timedelta(0))[0]


@pytest.mark.parametrize("state", [EntryState.RESTORED, EntryState.PURGED])
def test_the_next_run_closes_the_list(case: Case, state: EntryState, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args: Any) -> None:
        raise Killed

    entry = case.quarantine()
    with monkeypatch.context() as patch:
        patch.setattr(remover, "close_list", die)
        with pytest.raises(Killed):
            do(case, state, entry.id)
    assert read_entry(case.state, entry.id).state == state
    assert case.is_open()
    there = case.objects()
    result = do(case, state, entry.id)
    assert (result.status, result.notes) == (Status.DONE, (f"it was {state} before",))
    assert not case.is_open()
    assert case.objects() == there
    assert not case.state.journal.open_intents(SUBJECT)


def test_half_a_copy_of_a_killed_restore_is_removed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies hidden among a table's files, where no search for orphans would ever find it."""
    needed = case.folder.child("a").text
    entry = case.quarantine(recheck=lambda batch: {needed: "somebody needs it"})
    assert entry.kind == "files"
    with killed_before([], 1, monkeypatch), pytest.raises(Killed):
        case.quarantining().restore(entry.id)
    half = Path(new_copy_name(case.folder).local_path)
    half.write_text("ha")
    foreign = half.with_name("_lakehouse_maintenance_copy_of_mine")
    foreign.write_text("mine")
    assert case.quarantining().restore(entry.id).status is Status.DONE
    assert not half.exists()
    assert foreign.read_text() == "mine"
    assert sorted(case.objects()) == [foreign.name, "a", "b", "c"]


def test_half_a_copy_of_a_killed_run_does_not_stay_in_quarantine(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_before([], 3, monkeypatch), pytest.raises(Killed):
        case.quarantine()
    (head,) = open_lists(case.state, SUBJECT)
    place = read_entry(case.state, head.entry or "").quarantined
    half = Path(new_copy_name(place).local_path)
    half.write_text("ha")
    case.go_on()
    assert sorted(case.objects(place)) == ["a", "b", "c"]
