"""A ref's own retention does not take files from under running readers without a word."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance_tests.engine.tables import lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


def test_a_refs_own_retention_is_no_way_around_the_longest_reader(
    sql_catalog: SqlCatalogFactory, tmp_path: Path
) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    table = many_small_files(writer)
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    manage = table.manage_snapshots()
    manage.create_branch(ids[-1], "main", max_snapshot_age_ms=1, min_snapshots_to_keep=1)
    manage.create_tag(ids[1], "short", max_ref_age_ms=1)
    manage.commit()
    expire(ours, ExpiryRequest())
    after = writer.load_table("db.t").metadata
    assert len(after.snapshots) == 6
    assert set(after.refs) == {"main", "short"}
    asked = ExpiryRequest(older_than=timedelta(0), allow_short_retention=True)
    expire(ours, asked)
    assert len(writer.load_table("db.t").metadata.snapshots) == 1
