"""A table whose files another format's log names too (UniForm, XTable)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import expire, stored
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.mark.parametrize("log", ["_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties"])
def test_another_formats_log_over_the_same_files_refuses(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, log: str
) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    many_small_files(writer)
    ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,)))
    path = tmp_path / "warehouse" / "db" / "t" / log
    path.parent.mkdir()
    path.write_text("{}")
    there = stored(tmp_path)
    outcome = expire(ours)
    assert outcome.status is Status.FAILED
    assert path.parent.name in outcome.reason
    assert stored(tmp_path) == there
