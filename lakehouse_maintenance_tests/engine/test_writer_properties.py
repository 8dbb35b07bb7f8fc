"""The table's `write.parquet.*` in the files that we write: what pyarrow, DuckDB and Iceberg find there."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse_maintenance.engines.embedded_iceberg.schema import partition_scalar
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.bounds import added_files
from lakehouse_maintenance_tests.engine.foreign import Watched
from lakehouse_maintenance_tests.engine.tables import data_paths

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("inner", pa.struct([("code", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)
BLOOM = "write.parquet.bloom-filter-enabled.column."


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.catalog.close()


def written(watched: Watched, properties: dict[str, str], rows: int = 300) -> tuple[str, pq.FileMetaData]:
    """One file that a compaction wrote under these properties."""
    table = watched.create(SCHEMA)
    for first in (0, rows):
        ids = range(first, first + rows)
        columns = [
            list(ids),
            [f"n{i}" for i in ids],
            [i % 2 == 0 for i in ids],
            [{"code": f"c{i % 5}"} for i in ids],
            [[f"t{i}"] for i in ids],
        ]
        table.append(pa.table(columns, schema=SCHEMA))
    # Only now: PyIceberg's own writer knows few of them.
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    watched.compact(statistics=False)
    (path,) = (one.removeprefix("file://") for one in data_paths(watched.catalog))
    return path, pq.read_metadata(path)


def chunks(footer: pq.FileMetaData) -> dict[str, Any]:
    group = footer.row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


@pytest.mark.requirement("IM-04")
def test_bloom_filters_hold_every_value_and_are_no_larger_than_allowed(watched: Watched) -> None:
    asked = {
        **{BLOOM + name: "true" for name in ("id", "name", "flag", "inner.code", "tags.element", "gone")},
        BLOOM + "other": "false",
        "write.parquet.bloom-filter-fpp.column.name": "0.001",
        "write.parquet.bloom-filter-ndv.column.inner.code": "5",
        "write.parquet.bloom-filter-max-bytes": "512",
    }
    path, footer = written(watched, asked)
    found = {name: chunk.bloom_filter_length for name, chunk in chunks(footer).items() if chunk.bloom_filter_offset}
    assert set(found) == {"id", "name", "inner.code", "tags.list.element"}, "not of booleans, as Parquet has it"
    assert all(length is not None and length < 512 + 64 for length in found.values()), found
    assert found["inner.code"] < found["id"]
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'name', ?)"
    assert not any(duckdb.execute(probe, [path, f"n{i}"]).fetchall()[0][0] for i in range(0, 600, 7))
    assert sum(duckdb.execute(probe, [path, f"absent {i}"]).fetchall()[0][0] for i in range(50)) > 25


def test_pages_dictionaries_statistics_and_codec(watched: Watched) -> None:
    path, footer = written(
        watched,
        {
            "write.parquet.compression-codec": "gzip",
            "write.parquet.compression-level": "9",
            "write.parquet.page-row-limit": "100",
            "write.parquet.page-version": "v2",
            "write.parquet.dict-encoding-enabled.column.inner.code": "false",
            "write.parquet.dict-encoding-enabled.column.id": "true",
            "write.parquet.stats-enabled.column.name": "false",
        },
    )
    found = chunks(footer)
    assert {chunk.compression for chunk in found.values()} == {"GZIP"}
    assert found["id"].has_dictionary_page
    assert not found["inner.code"].has_dictionary_page
    assert found["name"].statistics is None
    assert found["id"].statistics.max == 599
    assert found["id"].has_offset_index
    assert found["id"].has_column_index
    (file,) = added_files(watched.table).values()
    name = watched.table.schema().find_field("name").field_id
    assert name not in file.lower_bounds
    assert name not in file.null_value_counts
    pages = duckdb.execute("SELECT count(*) FROM parquet_metadata(?)", [path]).fetchall()
    assert pages[0][0] == len(found)


@pytest.mark.parametrize(
    "properties",
    [
        {"write.parquet.page-version": "v3"},
        {"write.parquet.page-row-limit": "many"},
        {BLOOM + "id": "true", "write.parquet.bloom-filter-fpp.column.id": "2"},
        {BLOOM + "id": "true", "write.parquet.bloom-filter-max-bytes": "1"},
        {BLOOM + "id": "true", "write.parquet.bloom-filter-ndv.column.id": "0"},
    ],
    ids=lambda value: list(value)[-1].removeprefix("write.parquet."),
)
def test_a_property_that_cannot_be_read_is_named_and_nothing_changes(
    watched: Watched, properties: dict[str, str]
) -> None:
    table = watched.create(SCHEMA)
    for first in (0, 1):
        table.append(pa.table([[first], ["a"], [True], [{"code": "c"}], [["t"]]], schema=SCHEMA))
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    head = watched.table.current_snapshot()
    outcome = watched.maintain()
    assert outcome.status is Status.FAILED
    assert list(properties)[-1] in str(outcome)
    assert watched.table.current_snapshot() == head


@pytest.mark.requirement("IM-04")
def test_an_identity_partition_of_38_digits_keeps_each() -> None:
    """Files that lack the column take it from the partition."""
    kind = pa.decimal128(38, 2)
    digits = 12345678901234567890123456789012345678
    assert partition_scalar({"decimal": str(-digits)}, kind).as_py() == Decimal(f"-{digits}E-2")
