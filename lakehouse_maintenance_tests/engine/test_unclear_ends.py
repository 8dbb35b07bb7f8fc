"""Whatever ends an action after the catalog took its commit, nobody is told that nothing happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError, UnauthorizedError

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import CatalogUnavailableError, StorageError
from lakehouse_maintenance_tests.engine.tables import ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_lost_answers import COMPACT, commits
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.fixture
def pair(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[SqlCatalog, Lakehouse]:
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    catalog, properties = sql_catalog()
    many_small_files(catalog)
    return catalog, lakehouse(tmp_path, properties)


def _outcomes(ours: Lakehouse) -> list[Any]:
    return [event for event in ours.state.journal.events() if event.phase == "outcome"]


def test_an_interrupt_inside_the_commit_is_unknown_and_looked_up(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair

    def interrupt(attempt: int, real: Callable[[], Any]) -> Any:
        real()
        raise KeyboardInterrupt

    with commits(ours, interrupt), pytest.raises(KeyboardInterrupt):
        ours.maintain((), COMPACT)
    assert _outcomes(ours)[-1].status == Status.UNKNOWN
    # Nothing is left to do, since the commit went through: it is looked up all the same.
    assert ours.maintain((), COMPACT).tables[0].status is Status.SKIPPED
    assert _outcomes(ours)[-1].status == Status.DONE
    head = writer.load_table("db.t").current_snapshot()
    assert head is not None
    assert _outcomes(ours)[-1].details["snapshot_id"] == head.snapshot_id


@pytest.mark.parametrize("answer", [ValueError("cut short"), CommitFailedException("of the second try")])
def test_a_rejection_that_cannot_be_confirmed_is_unknown(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    _, ours = pair
    catalog = ours.catalogs["main"]
    real_load = catalog.load
    away = False

    def load(name: Any) -> Any:
        if away:
            raise CatalogUnavailableError("away", field="main")
        return real_load(name)

    def lose(attempt: int, real: Callable[[], Any]) -> Any:
        nonlocal away
        real()
        away = True
        raise answer

    monkeypatch.setattr(catalog, "load", load)
    with commits(ours, lose):
        assert ours.maintain((), COMPACT).tables[0].status is Status.UNKNOWN
    away = False
    ours.maintain((), COMPACT)
    assert _outcomes(ours)[-1].status == Status.DONE


@pytest.mark.parametrize("kind", [ForbiddenError, UnauthorizedError, NoSuchTableError])
def test_a_second_tries_refusal_is_no_failure(pair: tuple[SqlCatalog, Lakehouse], kind: type[Exception]) -> None:
    """A proxy sent the request twice: the first went through, the answer is the second's."""
    writer, ours = pair

    def refuse(attempt: int, real: Callable[[], Any]) -> Any:
        real()
        raise kind("refused")

    with commits(ours, refuse):
        outcome = ours.maintain((), COMPACT).tables[0]
    head = writer.load_table("db.t").current_snapshot()
    assert head is not None
    assert (outcome.status, outcome.actions[0].snapshot_id) == (Status.DONE, head.snapshot_id)


def test_a_state_that_takes_no_more_after_the_commit(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ours = pair

    def full(*_: Any) -> None:
        raise StorageError("the disk is full", field="state.url")

    monkeypatch.setattr(ours._memory, "spend", full)
    outcome = ours.maintain((), COMPACT).tables[0]
    assert outcome.status is Status.DONE
    assert outcome.actions[0].verified
    assert any("the disk is full" in note for note in outcome.actions[0].notes)


def test_a_fault_in_one_table_leaves_the_others_alone(
    pair: tuple[SqlCatalog, Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    many_small_files(writer, "db.u")
    from lakehouse_maintenance.execution.rewriting import _Rewriting

    real_outcome = _Rewriting.outcome
    calls = iter((True, False))

    def outcome(*arguments: Any) -> Any:
        if next(calls):
            raise RuntimeError("a library's fault")
        return real_outcome(*arguments)

    monkeypatch.setattr(_Rewriting, "outcome", outcome)
    first, second = ours.maintain((), COMPACT).tables
    assert first.status is Status.FAILED
    assert first.actions[0].snapshot_id is not None, "it was committed, and is named"
    assert second.status is Status.DONE
    assert ids(writer) == ids(writer, "db.u") == list(range(60))
