"""`clean_expired_metadata`: schemas and partition specs that nothing needs go, and what is still needed stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import delete_keys, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


def expire_all(ours: Lakehouse) -> None:
    asked = ExpiryRequest(
        timedelta(milliseconds=1), retain_last=1, clean_expired_metadata=True, allow_short_retention=True
    )
    outcome = ours.maintain((), Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=asked)).tables[0]
    assert outcome.status is Status.DONE, outcome


@pytest.mark.requirement("IM-05")
def test_schemas_and_specs_go_with_their_last_snapshot(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    writer, properties = sql_catalog()
    table = many_small_files(writer, commits=2)
    for column in ("y", "z"):
        with table.update_schema() as update:
            update.add_column(column, IntegerType())
    with table.update_spec() as spec:
        spec.add_identity("id")
    with table.update_schema() as update:
        update.delete_column("x")
    table.append(pa.table([pa.array([100]), pa.array(["a"])], names=["id", "p"]))
    before = writer.load_table("db.t").metadata
    expire_all(lakehouse(tmp_path, properties))
    after = writer.load_table("db.t").metadata
    assert (len(before.schemas), [schema.schema_id for schema in after.schemas]) == (4, [3])
    # Files of the second spec are still there; the first one, of an unpartitioned table, never had any.
    assert [spec.spec_id for spec in after.partition_specs] == [1, 2]
    assert ids(writer) == [*range(20), 100]


@pytest.mark.requirement("IM-03", "IM-05")
def test_a_schema_stays_while_an_equality_delete_compares_a_column_of_it(
    sql_catalog: SqlCatalogFactory, tmp_path: Path
) -> None:
    """A delete of keys still applies once their column was dropped (Iceberg spec: Equality Delete Files)."""
    writer, properties = sql_catalog()
    ours = lakehouse(tmp_path, properties)
    table = many_small_files(writer, commits=3, partitioned=False)
    delete_keys(writer, "db.t", pa.table([[1.5, 12.0]], names=["x"]))
    table.refresh()
    with table.update_schema() as update:
        update.delete_column("x")
    table.append(pa.table([pa.array([100]), pa.array(["a"])], names=["id", "p"]))
    expire_all(ours)
    assert [schema.schema_id for schema in writer.load_table("db.t").metadata.schemas] == [0, 1]
    rewrite = Request(actions=(Action.REWRITE_DATA_FILES,), options={"min-input-files": "2"})
    assert ours.maintain((), rewrite).tables[0].status is Status.DONE
    assert ids(writer) == [*(i for i in range(30) if i not in (3, 24)), 100]
    writer.load_table("db.t").append(pa.table([pa.array([101]), pa.array(["a"])], names=["id", "p"]))
    expire_all(ours)
    assert [schema.schema_id for schema in writer.load_table("db.t").metadata.schemas] == [1], "nothing compares it now"
