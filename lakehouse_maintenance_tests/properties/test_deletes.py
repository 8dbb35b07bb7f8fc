"""Deletes of every kind against a model that compares each row with each key, as Iceberg's spec tells it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from lakehouse_maintenance.engines.embedded_iceberg.deletes import load_deletes
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog

NAN = float("nan")
ANOTHER_NAN = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0]
DOUBLES = [None, 0.0, -0.0, 1.5, NAN, ANOTHER_NAN]
TEXTS = [None, "", "a", "b"]
SCHEMA = pa.schema([("x", pa.float64()), ("s", pa.string())])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    catalog, _ = make_sql_catalog(tmp_path_factory.mktemp("deletes"))
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([*SCHEMA, ("p", pa.int32())]))
    with table.update_spec() as update:
        update.add_identity("p")
    yield table
    catalog.close()


@dataclass(frozen=True)
class Data:
    """`partition`: of spec 1, or None for spec 0, which has none."""

    rows: list[tuple[float | None, str | None]]
    sequence: int
    partition: int | None


@dataclass(frozen=True)
class Equal:
    """`rows` of which the columns `ids` (1: x, 2: s) are compared."""

    ids: tuple[int, ...]
    rows: list[tuple[float | None, str | None]]
    sequence: int
    partition: int | None


@dataclass(frozen=True)
class At:
    """Positions in data files by their number, in one file for a partition."""

    positions: list[tuple[int, int]]
    sequence: int
    partition: int | None


@dataclass
class World:
    data: list[Data]
    equal: list[Equal]
    at: list[At]


rows = st.lists(st.tuples(st.sampled_from(DOUBLES), st.sampled_from(TEXTS)), max_size=8)
sequences = st.integers(1, 4)
partitions = st.sampled_from([None, 0, 1])
worlds = st.builds(
    World,
    st.lists(st.builds(Data, rows, sequences, partitions), min_size=1, max_size=4),
    st.lists(st.builds(Equal, st.sampled_from([(1,), (2,), (1, 2), (2, 1)]), rows, sequences, partitions), max_size=5),
    st.lists(
        st.builds(At, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))), sequences, partitions), max_size=3
    ),
)


def model(world: World) -> dict[int, set[int]]:
    """Data file's number → positions deleted."""
    found: dict[int, set[int]] = {}
    for number, data in enumerate(world.data):
        gone: set[int] = set()
        for equal in world.equal:
            if equal.sequence > data.sequence and equal.partition in (None, data.partition):
                keys = {tuple(_java(row[i - 1]) for i in sorted(equal.ids)) for row in equal.rows}
                gone |= {
                    position
                    for position, row in enumerate(data.rows)
                    if tuple(_java(row[i - 1]) for i in sorted(equal.ids)) in keys
                }
        for at in world.at:
            if at.sequence >= data.sequence and at.partition == data.partition:
                gone |= {position for file, position in at.positions if file == number}
        if gone:
            found[number] = gone
    return found


def _java(value: float | str | None) -> object:
    """Equal where Java's objects are: doubles by their bits, all NaNs being one."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)
    return value


def _with_ids(schema: pa.Schema, *ids: int) -> pa.Schema:
    return pa.schema(
        [one.with_metadata({b"PARQUET:field_id": str(i).encode()}) for one, i in zip(schema, ids, strict=True)]
    )


def _put(folder: Path, columns: list[list], schema: pa.Schema) -> str:
    path = str(folder / f"{uuid.uuid4()}.parquet")
    pq.write_table(pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema), path)
    return path


def _live(path: str, content: Content, partition: int | None, records: int, sequence: int, **more) -> LiveFile:
    spec, values = (0, "[]") if partition is None else (1, f"[{partition}]")
    return LiveFile(path, content, "PARQUET", spec, values, records, 1000, sequence, 1, **more)


@pytest.mark.requirement("IM-03")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(world=worlds)
def test_rows_deleted_are_those_of_the_model(table: Table, tmp_path: Path, world: World) -> None:
    keyed = _with_ids(SCHEMA, 1, 2)
    located = _with_ids(pa.schema([("file_path", pa.string()), ("pos", pa.int64())]), 2147483546, 2147483545)
    files = [
        _live(
            _put(tmp_path, [[r[0] for r in data.rows], [r[1] for r in data.rows]], keyed),
            Content.DATA,
            data.partition,
            len(data.rows),
            data.sequence,
        )
        for data in world.data
    ]
    deletes = [
        _live(
            _put(tmp_path, [[r[0] for r in equal.rows], [r[1] for r in equal.rows]], keyed),
            Content.EQUALITY_DELETES,
            equal.partition,
            len(equal.rows),
            equal.sequence,
            equality_ids=equal.ids,
        )
        for equal in world.equal
    ]
    for at in world.at:
        pairs = [(files[file].path if file < len(files) else "elsewhere", position) for file, position in at.positions]
        path = _put(tmp_path, [[p for p, _ in pairs], [n for _, n in pairs]], located)
        deletes.append(_live(path, Content.POSITION_DELETES, at.partition, len(pairs), at.sequence))

    index = DeleteIndex(deletes, frozenset({0}))
    loaded = load_deletes(files, index, Opener(Storage.from_properties({}), table.io), table, 64 << 20)

    number = {file.path: i for i, file in enumerate(files)}
    assert {number[path]: set(found.tolist()) for path, found in loaded.positions.items()} == model(world)
    for found in loaded.positions.values():
        assert found.tolist() == sorted(set(found.tolist()))
    for file in files:
        reaching = [*index.position_deletes_for(file), *index.equality_deletes_for(file)]
        assert loaded.applied[file.path] == {delete.identity for delete in reaching}
