"""A table that keeps its snapshots "forever", and a person who names one."""

from __future__ import annotations

from pathlib import Path

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance_tests.engine.tables import lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


def test_the_longest_retention_there_is(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    table = many_small_files(writer, commits=2)
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": str(2**63 - 1)})
    outcome = expire(ours, ExpiryRequest(snapshot_ids=(table.metadata.snapshots[0].snapshot_id,)))
    assert outcome.status is Status.DONE, outcome
