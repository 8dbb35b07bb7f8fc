"""What `explain` tells of the past: of what was deleted, moved, brought back or purged, and of what stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.execution import explaining
from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.explaining import past_decisions
from lakehouse_maintenance.model.explanations import PastDecision
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import remover, results
from lakehouse_maintenance.removal.quarantine import Kept
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.quarantine_cases import Case

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Five files, in batches of two."""
    for module in (remover, explaining):
        monkeypatch.setattr(module, "BATCH", 2)
    folder = tmp_path / "lake" / "db" / "old"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(name)
    return Case(open_state(str(tmp_path / "state")), Storage.from_properties({}), Location.parse(str(folder)))


def delete(case: Case, recheck: Any) -> None:
    with case.lease() as (lease, run_id):
        permit = case.permit(lease, run_id)
        head = case.remover().intend(permit, sorted(case.candidates(), key=lambda one: one.path), now_ms())
        case.remover().remove(permit, head, recheck)


def ends(case: Case, path: str) -> list[tuple[str | None, str | None]]:
    return [(one.fate, one.why) for one in past_decisions(case.state, path) if one.phase == "outcome"]


def path_of(case: Case, name: str) -> str:
    return case.folder.child(name).text


@pytest.mark.parametrize("name", NAMES)
def test_moved_and_brought_back(case: Case, name: str) -> None:
    entry = case.quarantine()
    aside = entry.aside(Kept(name, 1)).text
    case.quarantining().restore(entry.id)
    for path in (path_of(case, name), aside):
        assert ends(case, path) == [("moved into quarantine", None), ("restored", None)]


@pytest.mark.parametrize("name", NAMES)
def test_moved_and_purged(case: Case, name: str) -> None:
    entry = case.quarantine()
    aside = entry.aside(Kept(name, 1)).text
    case.quarantining().purge(entry.id, timedelta(0))
    for path in (path_of(case, name), aside):
        assert ends(case, path) == [("moved into quarantine", None), ("purged", None)]
    assert past_decisions(case.state, aside + "x") == []


def test_what_stays_has_its_reason(case: Case) -> None:
    delete(case, lambda batch: {one.path: "somebody needs it" for one in batch if one.path.endswith("/b")})
    assert ends(case, path_of(case, "b")) == [("kept", "somebody needs it")]
    assert ends(case, path_of(case, "a")) == [("deleted", None)]


def test_what_was_gone_may_not_have_been_deleted(case: Case) -> None:
    def vanish(batch: Any) -> dict[str, str]:
        Path(path_of(case, "a")).unlink(missing_ok=True)
        return {}

    delete(case, vanish)
    assert ends(case, path_of(case, "a")) == ends(case, path_of(case, "b"))
    assert ends(case, path_of(case, "a")) == [("deleted", "or gone before, as 1 files of its batch were")]
    assert ends(case, path_of(case, "c")) == [("deleted", None)]


def test_more_stays_than_an_event_names(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that a file was deleted which is there."""
    monkeypatch.setattr(results, "NAMED", 1)
    delete(case, lambda batch: {one.path: "somebody needs it" for one in batch})
    assert ends(case, path_of(case, "a")) == [("kept", "somebody needs it")]
    assert ends(case, path_of(case, "b")) == [(None, "deleted, or one of 1 files of its batch that stayed unnamed")]
    assert Path(path_of(case, "b")).exists()


def test_a_list_whose_run_ended_before_its_entry_was_written(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(remover, "put_entry", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            case.quarantine()
    decisions: list[PastDecision] = past_decisions(case.state, path_of(case, "a"))
    assert decisions == []
