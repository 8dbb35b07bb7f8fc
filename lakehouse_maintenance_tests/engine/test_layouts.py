"""Tables of odd names, nesting, sizes and settings, compacted: rows read as before through two readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.foreign import Watched, add_file, with_ids
from lakehouse_maintenance_tests.engine.tables import append, data_paths, delete_rows, ids, many_small_files


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.catalog.close()


def test_column_names_with_dots_quotes_and_unicode(watched: Watched) -> None:
    """`a.b` beside a struct `a` with a field `b`: a path in a Parquet file cannot tell them apart."""
    table = watched.create(
        Schema(
            NestedField(1, "a", StructType(NestedField(10, "b", StringType()), NestedField(11, "c d", LongType()))),
            NestedField(2, "a.b c", LongType()),
            NestedField(3, "a\"'`", StringType()),
            NestedField(4, "ключ 漢", DoubleType()),
            NestedField(5, "1st", LongType()),
            NestedField(6, "a/b", LongType()),
        )
    )
    names = [field.name for field in table.schema().fields]
    for first in (0, 10):
        rows = pa.Table.from_pylist(
            [
                dict(zip(names, ({"b": f"b{i}", "c d": -i}, i, f"q{i}", i / 2, i * 10, i * 100), strict=True))
                for i in range(first, first + 10)
            ],
            schema=pa.schema([field.with_nullable(True) for field in table.schema().as_arrow()]),
        )
        table.append(rows)
    watched.compact()


def test_a_dotted_column_beside_a_struct_of_the_same_path(watched: Watched) -> None:
    """PyIceberg's schemas refuse the two in one table: the dotted one is renamed from what files call it."""
    inner = pa.field("b", pa.string(), metadata={b"PARQUET:field_id": b"10"})
    schema = with_ids(pa.schema([("a", pa.struct([inner])), ("a.b", pa.int64())]))
    table = watched.create(
        Schema(NestedField(1, "a", StructType(NestedField(10, "b", StringType()))), NestedField(2, "ab", LongType()))
    )
    assert [table.schema().find_field(name).field_id for name in ("a", "ab", "a.b")] == [1, 2, 3]
    inner = inner.with_metadata({b"PARQUET:field_id": b"3"})
    schema = schema.set(0, schema.field(0).with_type(pa.struct([inner])))
    for first in (0, 10):
        numbers = list(range(first, first + 10))
        rows = pa.table([[{"b": f"b{i}"} for i in numbers], numbers], schema=schema)
        add_file(table, f"{table.location()}/data/{first}.parquet", rows)
    watched.compact(pyiceberg=False)
    (path,) = data_paths(watched.catalog)
    rows = pq.read_table(path.removeprefix("file://"))
    assert sorted(rows["ab"].to_pylist()) == list(range(20))
    assert {row["b"] for row in rows["a"].to_pylist()} == {f"b{i}" for i in range(20)}


def test_nested_columns_in_many_batches_after_evolution(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches cut lists and maps anywhere; inside them fields were added, dropped, renamed, widened and moved."""
    monkeypatch.setattr("lakehouse_maintenance.engines.embedded_iceberg.rewrite._WHOLE_FILE_BELOW", 0)
    monkeypatch.setattr("lakehouse_maintenance.engines.embedded_iceberg.rewrite._BATCH_ROWS", 7)
    inner = pa.struct([("a", pa.int32()), ("gone", pa.string()), ("deep", pa.struct([("f", pa.float32())]))])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", inner),
            ("items", pa.list_(inner)),
            ("lists", pa.list_(pa.list_(pa.int32()))),
            ("lookup", pa.map_(pa.string(), inner)),
        ]
    )
    table = watched.create(schema)

    def one(i: int) -> dict[str, Any] | None:
        return None if i % 5 == 0 else {"a": i, "gone": "x", "deep": None if i % 3 == 0 else {"f": i / 2}}

    for first in (0, 50):
        table.append(
            pa.Table.from_pylist(
                [
                    {
                        "id": i,
                        "s": one(i),
                        "items": [one(j) or {} for j in range(i % 4)] if i % 7 else None,
                        "lists": [[j] * j for j in range(i % 3)] if i % 6 else None,
                        "lookup": [(f"k{j}", one(j) or {}) for j in range(i % 3)] if i % 8 else None,
                    }
                    for i in range(first, first + 50)
                ],
                schema=schema,
            )
        )
    with table.update_schema() as update:
        for place in ("s", "items.element", "lookup.value"):
            update.delete_column(f"{place}.gone")
            update.add_column((*place.split("."), "new"), StringType())
            update.update_column(f"{place}.a", LongType())
            update.update_column(f"{place}.deep.f", DoubleType())
            update.rename_column(f"{place}.deep", "deeper")
            update.move_first(f"{place}.new")
    with table.update_schema() as update:
        update.add_column(("s", "gone"), LongType())
        update.update_column("lists.element.element", LongType())
    delete_rows(watched.catalog, "db.t", {data_paths(watched.catalog)[0]: [6, 7, 13, 20, 49]})
    # PyIceberg reads a null list of structs as an empty one.
    watched.compact(pyiceberg=False)
    assert len(watched.duckdb()) == 95


def test_large_files_are_streamed_and_deletes_hit_the_right_rows(watched: Watched) -> None:
    rows = 400_000
    schema = pa.schema([("id", pa.int64()), ("noise", pa.float64())])
    table = watched.create(schema)
    random = np.random.default_rng(1)
    for part in range(2):
        numbers = np.arange(part * rows, (part + 1) * rows)
        table.append(pa.table([numbers, random.random(rows)], schema=schema))
    batch = 1 << 16
    borders = [0, 1, batch - 1, batch, batch + 1, 3 * batch - 1, 3 * batch, rows - 1]
    for path in data_paths(watched.catalog):
        assert Path(path.removeprefix("file://")).stat().st_size > 4 << 20
        delete_rows(watched.catalog, "db.t", {path: borders})
    watched.compact(pyiceberg=False, duckdb=False, statistics=False)
    left = ids(watched.catalog)
    assert left == [i for i in range(2 * rows) if i % rows not in set(borders)]


def test_a_partition_whose_rows_are_all_deleted_goes(watched: Watched) -> None:
    many_small_files(watched.catalog, commits=3)
    for path in [path for path in data_paths(watched.catalog) if "p=a" in path]:
        delete_rows(watched.catalog, "db.t", {path: range(5)})
    watched.compact()
    assert len(data_paths(watched.catalog)) == 1
    assert ids(watched.catalog) == [i for i in range(30) if i % 2 == 0]


def test_a_v1_table_that_pyiceberg_wrote(watched: Watched) -> None:
    many_small_files(watched.catalog, version=1)
    watched.compact()
    assert len(data_paths(watched.catalog)) == 2
    append(watched.catalog, "db.t", 60, 10)
    assert ids(watched.catalog) == list(range(70))


def test_object_storage_layout(watched: Watched) -> None:
    table = many_small_files(watched.catalog, commits=2)
    with table.transaction() as transaction:
        transaction.set_properties({"write.object-storage.enabled": "true"})
    watched.compact()
    folders = {path.rpartition("/")[0].removeprefix(table.location()) for path in data_paths(watched.catalog)}
    assert len(folders) == 2, "spread by hash, not by partition"
    assert all(folder.startswith("/data/") and "p=" not in folder for folder in folders)


def test_gzipped_metadata(watched: Watched) -> None:
    table = many_small_files(watched.catalog, commits=2)
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.compression-codec": "gzip"})
    append(watched.catalog, "db.t", 20, 10)
    watched.compact()
    location = watched.table.metadata_location
    is_gzip = Path(location.removeprefix("file://")).read_bytes()[:2] == b"\x1f\x8b"
    assert is_gzip == location.endswith(".gz.metadata.json"), "readers go by the name"


def test_more_manifests_than_are_read_at_a_time(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehouse_maintenance.iceberg.manifests._BATCH", 3)
    many_small_files(watched.catalog, commits=8)
    delete_rows(watched.catalog, "db.t", {path: [0] for path in data_paths(watched.catalog)})
    assert len(watched.manifests()) == 24
    watched.compact()
    assert len(watched.manifests()) < 6
    assert len(ids(watched.catalog)) == 64


def test_codecs(watched: Watched) -> None:
    many_small_files(watched.catalog, commits=1, partitioned=False)
    for number, (codec, level, written) in enumerate(
        [
            (None, None, "ZSTD"),
            ("gzip", "9", "GZIP"),
            ("snappy", "9", "SNAPPY"),
            ("uncompressed", None, "UNCOMPRESSED"),
            ("ZSTD", "19", "ZSTD"),
            ("lz4", None, "LZ4"),
            ("brotli", None, "BROTLI"),
        ],
        1,
    ):
        append(watched.catalog, "db.t", number * 10, 10)
        settings = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": level}
        with watched.table.transaction() as transaction:
            transaction.set_properties({name: value for name, value in settings.items() if value is not None})
        watched.compact()
        (path,) = data_paths(watched.catalog)
        footer = pq.ParquetFile(path.removeprefix("file://")).metadata
        assert footer.row_group(0).column(0).compression == written
        with watched.table.transaction() as transaction:
            transaction.remove_properties(*(name for name, value in settings.items() if value is not None))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.compression-codec", "lzo"),
        ("write.parquet.compression-level", "high"),
        ("write.parquet.page-size-bytes", "1MB"),
    ],
)
def test_a_property_that_means_nothing_is_named(watched: Watched, name: str, value: str) -> None:
    many_small_files(watched.catalog, commits=2, partitioned=False)
    with watched.table.transaction() as transaction:
        transaction.set_properties({name: value})
    outcome = watched.maintain()
    assert outcome.status is Status.FAILED
    assert name in outcome.reason
    assert len(data_paths(watched.catalog)) == 2
