"""A killed run's list that cannot be finished: it is told, and keeps the table from nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance_tests.engine.tables import append, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import _KILLED, expire, reachable, stored
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.fixture
def killed(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[SqlCatalog, Lakehouse]:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    many_small_files(writer)
    child = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), "before the deletion"], check=False)
    assert child.returncode == -signal.SIGKILL
    info = ours.state.leases.current("main.db.t")
    assert info is not None
    later = info.expires_at + timedelta(seconds=1)
    monkeypatch.setattr(ours.state.leases, "_now", lambda: later)
    return writer, ours


def test_files_that_still_cannot_be_deleted_are_no_success(
    killed: tuple[SqlCatalog, Lakehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = killed

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        outcome = expire(ours)
    assert outcome.status is Status.FAILED
    assert "Permission denied" in outcome.reason
    assert open_lists(ours.state, "main.db.t")
    assert expire(ours).status is Status.SKIPPED
    assert stored(tmp_path) == reachable(writer)


def test_gc_switched_off_meanwhile_leaves_compaction_free(killed: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = killed
    with writer.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    append(writer, "db.t", 100, 10)
    there, rows = stored(tmp_path), ids(writer)
    outcome = ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,))).tables[0]
    assert [action.status for action in outcome.actions] == [Status.DONE]
    assert "gc.enabled" in outcome.reason
    assert stored(tmp_path) >= there
    assert ids(writer) == rows
