"""Files that overlap too much in the columns of a policy's order are laid out once, and again when others came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

ROWS = 20_000
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("payload", pa.int64())])


def _append(catalog: SqlCatalog, files: int, seed: int) -> int:
    """So many files, each over the whole range of both columns; the size of one."""
    random = np.random.default_rng(seed)
    for _ in range(files):
        columns = [random.integers(0, 1 << 40, ROWS) for _ in SCHEMA]
        catalog.load_table("db.t").append(pa.table(columns, schema=SCHEMA))
    return max(task.file.file_size_in_bytes for task in catalog.load_table("db.t").scan().plan_files())


def _rows(catalog: SqlCatalog) -> list[tuple[int, ...]]:
    table = catalog.load_table("db.t").scan().to_arrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _opened(catalog: SqlCatalog) -> int:
    """Files that a filter on both columns opens."""
    limit = 1 << 37
    return len(list(catalog.load_table("db.t").scan(f"a < {limit} and b < {limit}").plan_files()))


@pytest.mark.requirement("IM-15")
@pytest.mark.parametrize(("strategy", "order"), [("zorder", "a, b"), ("sort", "a ASC NULLS FIRST")])
def test_overlapping_files_are_laid_out_once(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, strategy: str, order: str
) -> None:
    catalog, properties = sql_catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties={"write.parquet.compression-codec": "uncompressed"})
    size = _append(catalog, 8, 1)
    policy = {
        "strategy": strategy,
        "sort_order": order,
        "trigger": {"of": "overlapping_files", "base": 4},
        "cooldown": "0s",
        "options": {"target-file-size-bytes": str(size)},
    }
    ours = lakehouse(tmp_path, properties, policies={"default": {"rewrite_data_files": policy}})
    before, opened = _rows(catalog), _opened(catalog)

    outcome = ours.maintain().tables[0]
    rewritten = [one for one in outcome.actions if one.action == "rewrite_data_files"]
    assert [one.status for one in rewritten] == [Status.DONE], outcome
    assert rewritten[0].actual.rewritten_data_files == 8
    assert _rows(catalog) == before
    assert _opened(catalog) < opened
    files = {task.file.file_path for task in catalog.load_table("db.t").scan().plan_files()}

    again = ours.plan().tables[0]
    assert not again.actions, "what was laid out is not laid out again"

    _append(catalog, 6, 2)
    later = next(one for one in ours.plan().tables[0].actions if one.action == "rewrite_data_files")
    planned = {file.path for group in later.groups for file in group.files}
    assert len(planned) == 6
    assert planned.isdisjoint(files)
