"""Shapes of tables that a rewrite could damage: files listed twice, void specs, partition types named once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField

from lakehouse_maintenance.iceberg.avro import _defined_once, definitions_of, spelled_out
from lakehouse_maintenance.iceberg.fields import entry_schema
from lakehouse_maintenance.iceberg.manifests import partition_spelling
from lakehouse_maintenance.iceberg.metadata import parse_metadata
from lakehouse_maintenance.iceberg.writing import partition_summaries
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.deletes import DanglingDeletes, DeleteIndex
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.foreign import Watched, add_entry
from lakehouse_maintenance_tests.engine.tables import (
    _commit,
    _opened,
    _places,
    append,
    data_paths,
    delete_keys,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.spark.equality_delete import write_equality_delete
from lakehouse_maintenance_tests.services.spark.session import Spark


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def _file(path: str, content: Content, spec: int, sequence: int, named: str | None = None) -> LiveFile:
    return LiveFile(path, content, "PARQUET", spec, "[null]" if spec else '["a"]', 1, 1, sequence, 1, named)


def test_equality_deletes_of_a_void_only_spec_are_global() -> None:
    """Java: PartitionSpec.isUnpartitioned holds where every field is void."""
    field = {"source-id": 1, "field-id": 1000, "name": "p"}
    raw = {
        "format-version": 2,
        "location": "file:///t",
        "partition-specs": [
            {"spec-id": 0, "fields": [{**field, "transform": "identity"}]},
            {"spec-id": 1, "fields": [{**field, "transform": "void"}]},
            {"spec-id": 2, "fields": []},
        ],
    }
    unpartitioned = parse_metadata("t", "file:///t/m.json", raw).unpartitioned_specs
    assert unpartitioned == {1, 2}
    data, delete = _file("a", Content.DATA, 0, 1), _file("e", Content.EQUALITY_DELETES, 1, 2)
    assert DeleteIndex([delete], unpartitioned).equality_deletes_for(data) == [delete]
    dangling = DanglingDeletes([delete], unpartitioned)
    dangling.saw(data)
    assert dangling.dangling() == []


def test_spark_sees_no_row_come_back_through_a_void_spec(spark: Spark, watched: Watched) -> None:
    spark.attach("main", watched.folder / "main.db", f"file://{watched.folder / 'warehouse'}")
    spark.sql(
        "CREATE TABLE main.db.t (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p) "
        "TBLPROPERTIES ('format-version' = '1')"
    )
    for first in (0, 2):
        spark.sql(f"INSERT INTO main.db.t VALUES ({first}, 'a'), ({first + 1}, 'a')")
    spark.sql("ALTER TABLE main.db.t DROP PARTITION FIELD p")
    spark.sql("ALTER TABLE main.db.t SET TBLPROPERTIES ('format-version' = '2')")
    write_equality_delete(spark, "main.db.t", ["id"], [{"id": 0}, {"id": 3}], partition=[None])
    before = spark.rows("main.db.t")
    assert len(before) == 2
    watched.maintain()
    assert spark.rows("main.db.t") == before


def test_spark_finds_rows_by_the_second_of_two_partition_columns_of_one_decimal_type(
    spark: Spark, watched: Watched
) -> None:
    spark.attach("main", watched.folder / "main.db", f"file://{watched.folder / 'warehouse'}")
    spark.sql("CREATE TABLE main.db.t (id BIGINT, a DECIMAL(9,2), b DECIMAL(9,2)) USING iceberg PARTITIONED BY (a, b)")
    for first in (0, 10):
        spark.sql(f"INSERT INTO main.db.t VALUES ({first}, -5, -5), ({first + 1}, 3, 3)")
    assert watched.maintain().status is Status.DONE
    for where in ("b = -5", "b = 3", "b < 0", "b > 0"):
        assert len(spark.query_rows(f"SELECT id FROM main.db.t WHERE {where}")) == 2, where


_FIXED = {
    "type": "fixed",
    "size": 4,
    "logicalType": "decimal",
    "name": "decimal_9_2",
    "precision": 9,
    "scale": 2,
}


def test_a_type_that_is_only_named_is_seen_through() -> None:
    """Java's Avro names a type at its second use."""
    named = {"type": "record", "name": "r102", "fields": _fields("decimal_9_2")}
    assert spelled_out(named, definitions_of(entry_schema(2, named)))["fields"] == _fields(_FIXED)
    tuples = [dict.fromkeys("ab", n.to_bytes(4, "big", signed=True)) for n in (-5, 3)]
    seen = spelled_out(named, definitions_of(named))
    assert [(s["lower_bound"], s["upper_bound"]) for s in partition_summaries(seen, tuples)] == [(b"\xfb", b"\x03")] * 2
    assert partition_spelling(seen)(tuples[0]) == '[{"decimal":-5},{"decimal":-5}]'


def test_every_type_is_defined_under_a_name_of_its_own() -> None:
    """PyIceberg defines one again for each field, which Java and DuckDB refuse, and cannot look up a bare name."""
    declared = _defined_once({"type": "record", "name": "r102", "fields": _fields(_FIXED)}, set())
    assert [field["type"][1]["name"] for field in declared["fields"]] == ["decimal_9_2", "decimal_9_2_1"]


def _fields(second: object) -> list[dict[str, object]]:
    return [
        {"name": "a", "type": ["null", _FIXED], "default": None, "field-id": 1000},
        {"name": "b", "type": ["null", second], "default": None, "field-id": 1001},
    ]


def test_two_partition_columns_of_one_decimal_type(watched: Watched) -> None:
    kind = DecimalType(9, 2)
    table = watched.create(
        Schema(NestedField(1, "id", LongType()), NestedField(2, "a", kind), NestedField(3, "b", kind))
    )
    with table.update_spec() as update:
        update.add_identity("a")
        update.add_identity("b")
    for first in (0, 10):
        values = pa.array([Decimal(-5), Decimal(3)], pa.decimal128(9, 2))
        watched.table.append(pa.table({"id": [first, first + 1], "a": values, "b": values}))
    # PyIceberg defines the type twice, which crashes DuckDB 1.5.5; what we write it reads.
    watched.compact(duckdb=False)
    assert len(watched.duckdb()) == 4
    for where in ("b == -5.00", "b == 3.00", "b < 0.00", "b > 0.00"):
        assert len(ids(watched.catalog, row_filter=where)) == 2, where


def _list_again(watched: Watched, path: str) -> None:
    file = next(task.file for task in watched.table.scan().plan_files() if task.file.file_path == path)
    add_entry(watched.table, path, records=file.record_count, size=file.file_size_in_bytes)


def test_a_file_that_is_listed_twice_loses_no_rows(watched: Watched) -> None:
    """Its entries would fall into two groups, of which one is not worth doing; taking out one takes out both."""
    many_small_files(watched.catalog, commits=4, partitioned=False)
    tasks = list(watched.table.scan().plan_files())
    oldest = min(tasks, key=lambda task: task.file.lower_bounds[1]).file
    _list_again(watched, oldest.file_path)
    options = {"max-file-group-size-bytes": str(int(oldest.file_size_in_bytes * 2.5)), "min-input-files": "2"}
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options=options)
    before = ids(watched.catalog)
    assert len(before) == 50
    lakehouse(watched.folder, watched.properties).maintain((), asked)
    assert ids(watched.catalog) == before


def test_a_file_that_is_listed_twice_keeps_its_deletes(watched: Watched) -> None:
    """Deletes between the two entries' numbers reach one of them: neither entry is rewritten, no delete goes."""
    many_small_files(watched.catalog, commits=3, partitioned=False)
    path = data_paths(watched.catalog)[0]
    delete_rows(watched.catalog, "db.t", {path: [0]})
    _list_again(watched, path)
    before = watched.duckdb()
    watched.maintain()
    assert watched.duckdb() == before
    assert path in data_paths(watched.catalog)
    deletes = [manifest for manifest in watched.manifests() if manifest.content == 1]
    assert sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in deletes) == 1


def test_a_delete_is_needed_by_the_older_entry_of_a_file_that_is_listed_twice() -> None:
    delete = _file("d", Content.POSITION_DELETES, 0, 2, named="a")
    dangling = DanglingDeletes([delete], frozenset())
    dangling.saw(_file("a", Content.DATA, 0, 1))
    dangling.saw(_file("a", Content.DATA, 0, 3))
    assert dangling.dangling() == []


@pytest.mark.requirement("IM-03")
def test_an_equality_delete_that_is_listed_twice_stays_while_its_younger_entry_is_needed(watched: Watched) -> None:
    """As a streaming job that commits a checkpoint again leaves it: for the older entry there is nothing left."""
    many_small_files(watched.catalog, commits=3, partitioned=False)
    path = delete_keys(watched.catalog, "db.t", pa.table([[1.0, 50.0]], names=["x"]))
    append(watched.catalog, "db.t", 30, 5000)
    place = next(iter(_places(watched.catalog, "db.t").values()))
    _, head, reader = _opened(watched.catalog, "db.t")
    manifests = [manifest for manifest in reader.manifests(head) if manifest.deletes]
    (record,) = (entry["data_file"] for manifest in manifests for entry in reader.entries(manifest).records)
    assert record["file_path"] == path
    _commit(watched.catalog, "db.t", [(place, record)])
    before = watched.duckdb()
    assert len(before) == 5030 - 2
    options = {"min-input-files": "2", "target-file-size-bytes": "60000", "min-file-size-bytes": "10000"}
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options=options)
    outcome = lakehouse(watched.folder, watched.properties).maintain((), asked).tables[0]
    assert outcome.status is Status.DONE
    assert len(_places(watched.catalog, "db.t")) == 2, "the small files became one"
    assert watched.duckdb() == before
