"""Deletes as one group's rewrite reads them: golden vectors, keys of odd types, and files that lie or are damaged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyroaring import BitMap64

from lakehouse_maintenance.engines.embedded_iceberg import equality
from lakehouse_maintenance.engines.embedded_iceberg.deletes import Deletes, load_deletes, named_data_files
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

NAN = float("nan")


@dataclass
class Files:
    """Parquet files as entries of a table's manifests would name them."""

    folder: Path
    table: Table
    memory: int = 64 << 20

    def put(self, columns: dict[int, pa.Array], content: Content = Content.DATA, **entry: Any) -> LiveFile:
        """`columns`: by field id."""
        fields = [
            pa.field(f"c{one}", array.type, True, {b"PARQUET:field_id": str(one).encode()})
            for one, array in columns.items()
        ]
        return self.write(pa.table(list(columns.values()), schema=pa.schema(fields)), content, **entry)

    def write(self, rows: pa.Table, content: Content, **entry: Any) -> LiveFile:
        path = str(self.folder / f"{len(list(self.folder.iterdir()))}.parquet")
        pq.write_table(rows, path, store_schema=False)
        number = 1 if content is Content.DATA else 2
        values: dict[str, Any] = {"spec_id": 0, "partition": "[]", "sequence_number": number, **entry}
        return LiveFile(path, content, "PARQUET", records=rows.num_rows, size=1000, snapshot_id=number, **values)

    def equal(self, columns: dict[int, pa.Array], **entry: Any) -> LiveFile:
        entry = {"equality_ids": tuple(columns), **entry}
        return self.put(columns, Content.EQUALITY_DELETES, **entry)

    def load(self, files: Sequence[LiveFile], deletes: Sequence[LiveFile]) -> Deletes:
        opener = Opener(Storage.from_properties({}), self.table.io)
        return load_deletes(files, DeleteIndex(deletes, frozenset({0})), opener, self.table, self.memory)

    def deleted(self, data: LiveFile, *deletes: LiveFile) -> list[int]:
        return self.load([data], deletes).positions.get(data.path, pa.array([], pa.int64()).to_numpy()).tolist()


Make = Callable[[pa.Schema], Files]


@pytest.fixture
def catalog(sql_catalog: SqlCatalogFactory) -> SqlCatalog:
    catalog, _ = sql_catalog()
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def make(catalog: SqlCatalog, tmp_path: Path) -> Make:
    (tmp_path / "files").mkdir()
    return lambda schema: Files(tmp_path / "files", catalog.create_table("db.t", schema))


@pytest.fixture
def numbers(make: Make) -> Files:
    return make(pa.schema([("id", pa.int64()), ("x", pa.float64())]))


def int64(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


@pytest.mark.requirement("IM-03")
def test_vectors_that_spark_wrote(golden: GoldenLakehouse) -> None:
    table = golden.catalog().load_table("db.v3_dv")
    storage = Storage.from_properties(golden.properties)
    metadata = read_metadata(storage, "db.v3_dv", table.metadata_location)
    reader = ManifestReader(storage, "db.v3_dv")
    head = metadata.head()
    assert head is not None
    live = list(reader.live_files(reader.manifests(head)))
    data = [file for file in live if file.content is Content.DATA]
    vectors = [file for file in live if file.content is not Content.DATA]
    assert {vector.file_format for vector in vectors} == {"PUFFIN"}
    opener = Opener(storage, table.io)
    loaded = load_deletes(data, DeleteIndex(vectors, metadata.unpartitioned_specs), opener, table, 64 << 20)

    left = []
    for file in data:
        with opener.parquet(file) as parquet:
            ids = parquet.read(columns=["id"])["id"].to_pylist()
        gone = set(loaded.positions.get(file.path, []))
        left += [one for position, one in enumerate(ids) if position not in gone]
    expected = [n for n in range(100) if n % 10 != 3 and not (n % 10 == 6 and n < 60)]
    assert sorted(left) == expected, "updated rows are there once, in their new file"
    for vector in vectors:
        assert vector.referenced_data_file is not None
        assert loaded.applied[vector.referenced_data_file] == {vector.identity}
        assert named_data_files(vector, opener) == {vector.referenced_data_file}


def vector_of(files: Files, data: LiveFile, blob: bytes, *, size: int | None = None, records: int = 2) -> LiveFile:
    path = files.folder / "vectors.puffin"
    path.write_bytes(b"PFA1" + blob)
    size = len(blob) if size is None else size
    content = Content.POSITION_DELETES
    return LiveFile(str(path), content, "PUFFIN", 0, "[]", records, size, 2, 2, data.path, content_offset=4)


def blob_of(*rows: int) -> bytes:
    body = b"\xd1\xd3\x39\x64" + BitMap64(rows).serialize()
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def positions_of(files: Files, data: LiveFile, *rows: int | None, sequence: int = 2) -> LiveFile:
    columns = {2147483546: pa.array([data.path] * len(rows)), 2147483545: int64(*rows)}
    return files.put(columns, Content.POSITION_DELETES, sequence_number=sequence)


def test_a_vector_silences_position_delete_files(numbers: Files) -> None:
    data = numbers.put({1: int64(1, 2, 3, 4)})
    older = positions_of(numbers, data, 0)
    vector = vector_of(numbers, data, blob_of(1, 3))
    loaded = numbers.load([data], [older, vector])
    assert loaded.positions[data.path].tolist() == [1, 3]
    assert loaded.applied == {data.path: {vector.identity}}
    assert numbers.deleted(data, older) == [0]


@pytest.mark.parametrize(
    ("size", "records", "why"), [(None, 3, "2 rows"), (9, 2, "length"), (4000, 2, "its manifest names 4004")]
)
def test_a_vector_unlike_its_entry_is_refused(numbers: Files, size: int | None, records: int, why: str) -> None:
    data = numbers.put({1: int64(1, 2, 3)})
    with pytest.raises(TableUnreadableError, match=why):
        numbers.deleted(data, vector_of(numbers, data, blob_of(1, 2), size=size, records=records))


def test_vectors_that_contradict_each_other_are_refused(numbers: Files) -> None:
    data = numbers.put({1: int64(1, 2, 3)})
    vector = vector_of(numbers, data, blob_of(1, 2))
    with pytest.raises(TableUnreadableError, match="more than one"):
        numbers.deleted(data, vector, replace(vector, content_offset=8))
    with pytest.raises(TableUnreadableError, match="content_offset"):
        numbers.deleted(data, replace(vector, content_offset=None))
    Path(vector.path).unlink()
    with pytest.raises(TableUnreadableError, match="does not exist"):
        numbers.deleted(data, vector)


def _wrong_position_deletes(files: Files, data: LiveFile) -> dict[str, LiveFile]:
    return {
        "negative": positions_of(files, data, 0, -1),
        "without file_path": positions_of(files, data, 0, None),
        "field id": files.put({1: pa.array([data.path]), 2: int64(0)}, Content.POSITION_DELETES),
    }


@pytest.mark.parametrize("why", ["negative", "without file_path", "field id"])
def test_position_deletes_that_are_none_are_refused(numbers: Files, why: str) -> None:
    data = numbers.put({1: int64(1, 2, 3)})
    with pytest.raises(TableUnreadableError, match=why):
        numbers.deleted(data, _wrong_position_deletes(numbers, data)[why])


def test_paths_are_compared_as_they_are_spelled(numbers: Files) -> None:
    data = numbers.put({1: int64(1, 2, 3)})
    other = replace(data, path=f"file://{data.path}")
    assert numbers.deleted(data, positions_of(numbers, other, 0)) == []


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_deletes_in_other_formats_are_told_before_anything_is_read(numbers: Files, kind: str) -> None:
    data = numbers.put({1: int64(1, 2, 3)})
    delete = numbers.equal({1: int64(1)}) if kind == "equality" else positions_of(numbers, data, 0)
    Path(data.path).unlink()
    with pytest.raises(UnsupportedError, match="AVRO"):
        numbers.deleted(data, replace(delete, file_format="AVRO"))


def test_an_equality_delete_without_its_key_column_is_refused(numbers: Files) -> None:
    data = numbers.put({1: int64(1, None, 3)})
    with pytest.raises(TableUnreadableError, match="field id 2"):
        numbers.deleted(data, numbers.equal({1: int64(1)}, equality_ids=(1, 2)))
    with pytest.raises(TableUnreadableError, match="in no schema"):
        numbers.deleted(data, numbers.equal({1: int64(1)}, equality_ids=(9,)))
    with pytest.raises(TableUnreadableError, match="without equality_ids"):
        numbers.deleted(data, numbers.equal({1: int64(1)}, equality_ids=()))


def test_damage_in_the_middle_of_a_join_is_told_as_such(numbers: Files) -> None:
    data = numbers.put({1: int64(1, 2, 3)})
    other = numbers.put({1: int64(1, 2, 3)})
    delete = numbers.equal({1: int64(1)})
    Path(other.path).write_bytes(Path(other.path).read_bytes()[:20])
    with pytest.raises(TableUnreadableError, match="cannot be read"):
        numbers.load([data, other], [delete])


ZONED = pa.timestamp("ns", "UTC")
KEYS: list[tuple[pa.DataType, list[Any], list[Any], list[int]]] = [
    (pa.bool_(), [True, False, None], [False], [1]),
    (pa.int32(), [1, 2, None], [2, None], [1, 2]),
    (pa.float32(), [0.0, -0.0, NAN, None, 1.5], [-0.0, NAN], [1, 2]),
    (pa.float64(), [0.0, -0.0, NAN, None, 1.5], [0.0, None], [0, 3]),
    (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-1.5"), None], [Decimal("1.5000")], [0]),
    (pa.date32(), [0, -1, None], [-1], [1]),
    (pa.time64("us"), [0, 86_399_999_999, None], [86_399_999_999], [1]),
    (pa.timestamp("us"), [-(2**62), 0, 2**62], [2**62, -(2**62)], [0, 2]),
    (pa.timestamp("us", "UTC"), [1, 2, None], [1], [0]),
    (pa.timestamp("ns"), [1, 2, 1001], [2], [1]),
    (ZONED, [1, 2, 1001], [2, 1001], [1, 2]),
    (pa.string(), ["", "a", "a\0", "A", None], ["a", ""], [0, 1]),
    (pa.binary(), [b"", b"\0", b"\xff", None], [b"\xff"], [2]),
    (pa.binary(3), [b"abc", b"ab\0", None], [b"ab\0"], [1]),
]


@pytest.mark.parametrize(("kind", "values", "keys", "expected"), KEYS, ids=[str(one[0]) for one in KEYS])
@pytest.mark.requirement("IM-03")
def test_keys_of_each_type(
    catalog: SqlCatalog, tmp_path: Path, kind: pa.DataType, values: list, keys: list, expected: list[int]
) -> None:
    (tmp_path / "files").mkdir()
    version = "3" if pa.types.is_timestamp(kind) and kind.unit == "ns" else "2"
    schema = pa.schema([("id", pa.int64()), ("k", kind)])
    files = Files(tmp_path / "files", catalog_table(catalog, schema, version))
    data = files.put({1: int64(*range(len(values))), 2: pa.array(values, kind)})
    assert files.deleted(data, files.equal({2: pa.array(keys, kind)})) == expected


def catalog_table(catalog: SqlCatalog, schema: pa.Schema, version: str) -> Table:
    """A table in no catalog: the SQL catalog takes none of version 3."""
    numbered = [one.with_metadata({b"PARQUET:field_id": str(i).encode()}) for i, one in enumerate(schema, 1)]
    iceberg = pyarrow_to_schema(pa.schema(numbered), format_version=int(version))
    metadata = new_table_metadata(
        iceberg, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///nowhere", {"format-version": version}
    )
    return Table(("db", "t"), metadata, "file:///nowhere/metadata.json", load_file_io({}), catalog)


@pytest.mark.requirement("IM-03")
def test_a_million_keys_within_little_memory(make: Make) -> None:
    files = make(pa.schema([("id", pa.int64()), ("s", pa.string())]))
    keys = np.random.default_rng(8).permutation(1_000_000) * 3
    rows = np.arange(500_000) + 600_000
    data = files.put({1: pa.array(rows), 2: pa.array(rows).cast(pa.string())})
    delete = files.equal({1: pa.array(keys), 2: pa.array(keys).cast(pa.string())})
    assert files.deleted(data, delete) == [n - 600_000 for n in range(600_000, 1_100_000) if n % 3 == 0]


def test_keys_that_do_not_fit_leave_the_group_alone(numbers: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "_LEAST_MEMORY", 1 << 20)
    files = replace(numbers, memory=1)
    keys = pa.array(np.arange(1_000_000))
    with pytest.raises(UnsupportedError, match="do not fit") as error:
        files.deleted(files.put({1: int64(1)}), files.equal({1: keys}))
    assert error.value.hint is not None
    assert "engine.memory_limit" in error.value.hint
