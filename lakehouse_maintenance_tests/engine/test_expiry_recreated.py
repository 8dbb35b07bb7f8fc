"""A killed run's list, and another table under the same name at the same place."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.removal import open_lists
from lakehouse_maintenance_tests.engine.tables import ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import _KILLED, expire, stored
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


def test_the_list_of_a_dropped_table_is_not_its_successors(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    many_small_files(writer)
    ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,)))
    child = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), "before the commit"], check=False)
    assert child.returncode == -signal.SIGKILL
    info = ours.state.leases.current("main.db.t")
    assert info is not None
    later = info.expires_at + timedelta(seconds=1)
    monkeypatch.setattr(ours.state.leases, "_now", lambda: later)
    there, old = stored(tmp_path), writer.load_table("db.t")
    writer.drop_table("db.t")
    writer.create_table("db.t", old.schema(), location=old.location())
    expire(ours)
    assert stored(tmp_path) == there
    assert not open_lists(ours.state, "main.db.t")
    writer.drop_table("db.t")
    writer.register_table("db.t", old.metadata_location)
    for snapshot in old.metadata.snapshots:
        assert ids(writer, snapshot_id=snapshot.snapshot_id)
