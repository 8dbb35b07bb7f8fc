"""What is told of an expiry that ended early."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import LeaseLostError
from lakehouse_maintenance.removal import remover
from lakehouse_maintenance_tests.engine.tables import lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import _KILLED, expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.mark.parametrize(
    ("when", "status"),
    [("before the commit", "failed"), ("before the deletion", "done"), ("amid the deletion", "done")],
)
def test_the_journal_knows_whether_a_killed_run_expired(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, status: str
) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    many_small_files(writer)
    child = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), when], check=False)
    assert child.returncode == -signal.SIGKILL
    info = ours.state.leases.current("main.db.t")
    assert info is not None
    later = info.expires_at + timedelta(seconds=1)
    monkeypatch.setattr(ours.state.leases, "_now", lambda: later)
    expire(ours)
    told = {event.action: event for event in ours.audit() if event.details.get("recovered")}
    assert told["expire_snapshots"].status == status
    assert "before it tried to commit" not in " ".join(event.details["why"] for event in told.values())


def test_a_deletion_that_ends_early_does_not_hide_the_commit(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    many_small_files(writer)

    def lost(*args: Any) -> Any:
        raise LeaseLostError("the lease is another's")

    monkeypatch.setattr(remover, "delete_batch", lost)
    outcome = expire(ours)
    assert outcome.status is Status.FAILED
    assert len(writer.load_table("db.t").metadata.snapshots) == 1
    assert outcome.actions[0].actual.expired_snapshots == 5
    assert "the lease is another's" in outcome.reason
