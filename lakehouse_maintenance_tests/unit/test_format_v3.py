"""The pieces of format version 3: lineage of a batch, row ids in a manifest list, metadata files, features."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadataUtil

from lakehouse_maintenance.catalogs import format_v3
from lakehouse_maintenance.engines.embedded_iceberg.lineage import filled, with_lineage
from lakehouse_maintenance.engines.embedded_iceberg.schema import conform
from lakehouse_maintenance.iceberg.avro import read_container
from lakehouse_maintenance.iceberg.metadata import features, parse_metadata
from lakehouse_maintenance.iceberg.writing import write_manifest_list
from lakehouse_maintenance.model.errors import UnsupportedError
from lakehouse_maintenance.model.files import Content, LiveFile

FILE = LiveFile("f", Content.DATA, "PARQUET", 0, "[]", 5, 100, sequence_number=7, snapshot_id=1, first_row_id=1000)

RAW: dict[str, Any] = {
    "format-version": 3,
    "table-uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "location": "file:///t",
    "last-sequence-number": 4,
    "last-updated-ms": 1,
    "last-column-id": 1,
    "current-schema-id": 0,
    "schemas": [
        {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
    ],
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "last-partition-id": 999,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "next-row-id": 500,
}


class TestLineage:
    schema = with_lineage(pa.schema([pa.field("v", pa.string())]), "db.t")

    def batch(self, ids: list[int | None], updated: list[int | None]) -> pa.RecordBatch:
        values = [str(i) for i in range(len(ids))]
        arrays = [pa.array(values), pa.array(ids, pa.int64()), pa.array(updated, pa.int64())]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def test_rows_inherit_by_their_position(self):
        found = filled(self.batch([None, None, None], [None, None, None]), FILE, 2)
        assert found.to_pydict() == {
            "v": ["0", "1", "2"],
            "_row_id": [1002, 1003, 1004],
            "_last_updated_sequence_number": [7, 7, 7],
        }

    def test_what_stands_in_the_file_counts(self):
        found = filled(self.batch([5, None, 3], [None, 2, None]), FILE, 0).to_pydict()
        assert found["_row_id"] == [5, 1001, 3]
        assert found["_last_updated_sequence_number"] == [7, 2, 7]

    def test_without_a_first_row_id_there_is_none(self):
        """As Iceberg's readers do; even for values that stand there."""
        found = filled(self.batch([5, None], [1, None]), replace(FILE, first_row_id=None), 0).to_pydict()
        assert found["_row_id"] == found["_last_updated_sequence_number"] == [None, None]

    def test_an_id_of_zero_is_an_id(self):
        assert filled(self.batch([None], [None]), replace(FILE, first_row_id=0), 0).to_pydict()["_row_id"] == [0]

    @pytest.mark.parametrize("name", ["_row_id", "_last_updated_sequence_number"])
    def test_a_column_of_that_name(self, name):
        with pytest.raises(UnsupportedError, match=name):
            with_lineage(pa.schema([pa.field(name, pa.string())]), "db.t")


def row(content: int, first: int | None, added: int, existing: int, sequence: int | None = 2) -> dict[str, Any]:
    return {
        "manifest_path": "m",
        "manifest_length": 1,
        "partition_spec_id": 0,
        "content": content,
        "sequence_number": sequence,
        "min_sequence_number": sequence,
        "added_snapshot_id": 1,
        "added_files_count": 1,
        "existing_files_count": 1,
        "deleted_files_count": 1,
        "added_rows_count": added,
        "existing_rows_count": existing,
        "deleted_rows_count": 99,
        "partitions": [],
        "key_metadata": None,
        "first_row_id": first,
    }


class TestManifestList:
    def written(self, raw: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[int, list[int | None], str | None]:
        data: list[bytes] = []
        metadata = parse_metadata("t", "file:///t/m.json", raw)
        took = write_manifest_list(lambda path, content: data.append(content), "l", metadata, rows, 9, 8, 5)
        container = read_container(data[0], frozenset())
        header = data[0].partition(b"first-row-id")[2][1:4] if b"first-row-id" in data[0] else None
        return took, [one.get("first_row_id") for one in container.records], header.decode() if header else None

    def test_data_manifests_without_ids_get_the_next_ones(self):
        rows = [row(0, None, 10, 5, None), row(1, None, 3, 3), row(0, 77, 4, 4), row(0, None, 0, 20)]
        took, firsts, header = self.written(RAW, rows)
        assert took == 35
        assert firsts == [500, None, 77, 515]
        assert header == "500"
        assert [one["first_row_id"] for one in rows] == [None, None, 77, None], "rows are shared between snapshots"

    def test_earlier_versions_have_no_ids(self):
        raw = {key: one for key, one in RAW.items() if key != "next-row-id"} | {"format-version": 2}
        assert self.written(raw, [row(0, None, 10, 5)]) == (0, [None], None)

    def test_no_list_without_the_next_id(self):
        with pytest.raises(ValueError, match="next-row-id"):
            self.written({key: one for key, one in RAW.items() if key != "next-row-id"}, [row(0, None, 1, 0)])


class TestMetadataFiles:
    @pytest.mark.parametrize("suffix", [".metadata.json", ".gz.metadata.json"])
    def test_what_is_written_is_what_was_read(self, tmp_path: Path, suffix: str):
        location = f"file://{tmp_path}/00001{suffix}"
        format_v3.write_metadata(TableMetadataUtil.parse_raw(json.dumps(RAW)), PyArrowFileIO(), location)
        from lakehouse_maintenance.iceberg.lossless import lost_paths
        from lakehouse_maintenance.iceberg.metadata import read_metadata
        from lakehouse_maintenance.storage import Storage

        found = read_metadata(Storage.from_properties({}), "t", location).raw
        assert lost_paths(RAW, found) == []
        with pytest.raises(FileExistsError):
            format_v3.write_metadata(TableMetadataUtil.parse_raw(json.dumps(RAW)), PyArrowFileIO(), location)

    def test_never_without_the_next_row_id(self, tmp_path: Path):
        metadata = TableMetadataUtil.parse_raw(json.dumps(RAW)).model_copy(update={"next_row_id": None})
        with pytest.raises(ValueError, match="next-row-id"):
            format_v3.write_metadata(metadata, PyArrowFileIO(), f"file://{tmp_path}/00001.metadata.json")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("kind", "can"), [(SqlCatalog, True), (GlueCatalog, True), (RestCatalog, False), (NoopCatalog, False)]
    )
    def test_which_catalogs_are_taught(self, kind: type, can: bool):
        catalog = object.__new__(kind)
        assert format_v3.teach(catalog) is can
        assert ("_write_metadata" in vars(catalog)) is can
        assert ("_write_metadata_no_exist_check" in vars(catalog)) is (kind is GlueCatalog)
        assert "_write_metadata" not in vars(object.__new__(kind)), "others of its kind are as they were"


def schema(kind: Any) -> dict[str, Any]:
    fields = [
        {"id": 1, "name": "a", "required": False, "type": "int"},
        {"id": 2, "name": "b", "required": False, "type": kind},
    ]
    return {"schemas": [{"type": "struct", "fields": fields}]}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("unknown", ()),
        (
            {
                "type": "struct",
                "fields": [{"id": 3, "name": "c", "type": "unknown"}, {"id": 4, "name": "d", "type": "int"}],
            },
            (),
        ),
        ({"type": "struct", "fields": [{"id": 3, "name": "c", "type": "unknown"}]}, ("unknown",)),
        ({"type": "list", "element-id": 3, "element": "unknown"}, ("unknown",)),
        ({"type": "map", "key-id": 3, "key": "string", "value-id": 4, "value": "unknown"}, ("unknown",)),
        ({"type": "list", "element-id": 3, "element": "geometry(OGC:CRS84)"}, ("geometry",)),
        ("variant", ("variant",)),
        ("timestamptz_ns", ()),
    ],
)
def test_features(kind: Any, found: tuple[str, ...]):
    assert features(schema(kind)) == found


def test_a_day_beyond_nanoseconds_is_an_error_not_another_day():
    days = pa.array([10**6], pa.int32()).cast(pa.date32())
    with pytest.raises(pa.ArrowInvalid):
        conform(days, pa.field("a", pa.date32()), pa.field("a", pa.timestamp("ns")))


def test_nanoseconds_of_imported_files_are_cut():
    given = pa.array([1_001], pa.timestamp("ns"))
    found = conform(given, pa.field("a", given.type), pa.field("a", pa.timestamp("us")))
    assert found.cast(pa.int64()).to_pylist() == [1]
