"""Deletes that Spark and Iceberg's Java classes wrote: Spark sees the same rows before and after we compact."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import ActionOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import delete_keys, lakehouse
from lakehouse_maintenance_tests.readers import read_duckdb
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.spark.equality_delete import write_equality_delete
from lakehouse_maintenance_tests.services.spark.session import Spark

NAN = float("nan")
LOCAL = datetime.fromisoformat("2024-01-01T00:00:00.000001")


@dataclass
class Both:
    """A table `main.db.t` of Spark's, and our lakehouse on it."""

    spark: Spark
    catalog: SqlCatalog
    ours: Lakehouse

    def sql(self, *queries: str) -> None:
        for query in queries:
            self.spark.sql(query)

    def delete(
        self, keys: Sequence[str], rows: Sequence[Mapping[str, object]], partition: Sequence[object] | None = None
    ) -> None:
        write_equality_delete(self.spark, "main.db.t", keys, rows, partition)

    def rows(self) -> list[str]:
        return self.spark.rows("main.db.t")

    def ids(self) -> list[int]:
        return sorted(json.loads(row)["id"] for row in self.rows())

    def compact(self, **options: str) -> ActionOutcome:
        """Rewrites what the options choose; the rows stay as they are."""
        before = self.rows()
        named = {key.replace("_", "-"): value for key, value in options.items()}
        outcome = self.ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,), options=named)).tables[0]
        assert outcome.status is Status.DONE, outcome
        assert self.rows() == before
        return outcome.actions[0]

    def deletes(self) -> int:
        return self.ours.health()[0].delete_files


@pytest.fixture
def both(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> Both:
    catalog, properties = sql_catalog()
    catalog.create_namespace("db")
    spark.attach("main", tmp_path / "main.db", properties["warehouse"])
    spark.sql("SHOW NAMESPACES IN main")
    return Both(spark, catalog, lakehouse(tmp_path, properties))


TYPES = {
    "b": (BooleanType(), [True, None], [False]),
    "i": (IntegerType(), [1, 2, None], [1]),
    "l": (LongType(), [1, 2**40, None], [2**40]),
    "f": (FloatType(), [0.0, -0.0, NAN, 0.1, None], [0.0, NAN]),
    "d": (DoubleType(), [0.0, -0.0, NAN, 0.1, None], [-0.0, 0.1]),
    "n": (DecimalType(9, 2), [Decimal("1.50"), Decimal("-1.50"), None], [Decimal("-1.50")]),
    "w": (DecimalType(38, 10), [Decimal("1.5"), None, Decimal("1e27")], [Decimal("1.5000000000")]),
    "day": (DateType(), [date(2024, 2, 29), date(1900, 1, 1), None], [date(1900, 1, 1), None]),
    "ts": (
        TimestampType(),
        [LOCAL, LOCAL.replace(year=1900), None],
        [LOCAL],
    ),
    "tz": (TimestamptzType(), [datetime(2024, 1, 1, tzinfo=UTC), None], [datetime(2024, 1, 1, tzinfo=UTC)]),
    "s": (StringType(), ["", "é", "e\u0301", None], ["é"]),
    # Without a leading bit: Java orders UUIDs by signed numbers and takes such deletes for out of a file's bounds.
    "u": (UUIDType(), [UUID(int=1), UUID(int=1 << 126), None], [UUID(int=1 << 126)]),
    "x": (FixedType(3), [b"abc", b"ab\0", None], [b"ab\0"]),
    "y": (BinaryType(), [b"", b"\xff", None], [b"\xff", b""]),
}
"""Column → type, values in the rows, and those that an equality delete of this column names."""


@pytest.mark.requirement("IM-03")
def test_keys_compare_as_in_spark(both: Both) -> None:
    """Each type has a file of its own, whose rows its own deletes alone can reach."""
    fields = [NestedField(1, "id", LongType(), required=False)]
    fields += [NestedField(i, name, kind, required=False) for i, (name, (kind, _, _)) in enumerate(TYPES.items(), 2)]
    table = both.catalog.create_table("db.t", Schema(*fields))
    arrow = table.schema().as_arrow()
    ids = {name: list(range(100 * i, 100 * i + len(TYPES[name][1]))) for i, name in enumerate(TYPES)}
    for name, (_, values, _) in TYPES.items():
        columns = {field.name: pa.nulls(len(values), field.type) for field in arrow}
        columns |= {"id": pa.array(ids[name], pa.int64()), name: _array(values, arrow.field(name).type)}
        table.append(pa.table(columns, schema=arrow))
    for name, (_, _, keys) in TYPES.items():
        if name == "f":
            pairs = [(one, key) for one in ids[name] for key in keys]
            delete_keys(
                both.catalog,
                "db.t",
                pa.table({"id": [i for i, _ in pairs], "f": [k for _, k in pairs]}).cast(
                    pa.schema([("id", pa.int64()), ("f", pa.float32())])
                ),
            )
        else:
            both.delete(["id", name], [{"id": one, name: key} for one in ids[name] for key in keys])
    left = both.ids()
    assert left == sorted(ids[name][i] for name, (_, _, _) in TYPES.items() for i in LEFT[name])
    both.compact(rewrite_all="true")
    assert both.deletes() == 0
    assert both.ids() == left


LEFT = {
    "b": [0, 1],
    "i": [1, 2],
    "l": [0, 2],
    "f": [1, 3, 4],
    "d": [0, 2, 4],
    "n": [0, 2],
    "w": [1, 2],
    "day": [0],
    "ts": [1, 2],
    "tz": [1],
    "s": [0, 2, 3],
    "u": [0, 2],
    "x": [0, 2],
    "y": [2],
}
"""Which rows of each column's file no delete names."""


def _array(values: list, kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.array([None if v is None else v.bytes for v in values], kind.storage_type)
        return pa.ExtensionArray.from_storage(kind, storage)
    return pa.array(values, kind)


def _insert(both: Both, first: int, count: int = 20) -> None:
    both.sql(
        f"""INSERT INTO main.db.t SELECT id, if(id % 4 = 0, NULL, concat('s', id % 6)), CAST(id % 13 AS INT),
        CAST(id % 8 / 4 AS FLOAT), CAST(id % 5 AS DECIMAL(5, 2)), CAST(id % 2 AS INT)
        FROM range({first}, {first + count}, 1, 1)"""
    )


@pytest.mark.requirement("IM-03")
def test_partitions_snapshots_and_schemas_that_change_in_between(both: Both) -> None:
    both.sql(
        """CREATE TABLE main.db.t (id BIGINT, s STRING, i INT, f FLOAT, n DECIMAL(5, 2), p INT) USING iceberg
        TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"""
    )
    _insert(both, 0)
    both.delete(["s"], [{"s": None}, {"s": "s5"}])
    both.sql("ALTER TABLE main.db.t ADD PARTITION FIELD p")
    _insert(both, 100)
    both.delete(["id"], [{"id": 102}, {"id": 104}, {"id": 2}, {"id": 101}], [0])
    assert 101 in both.ids(), "of another partition"
    _insert(both, 100, 6)
    both.delete(["i", "n"], [{"i": one, "n": Decimal(f"{n}.00")} for one in (3, 5) for n in (0, 1, 2)], [1])
    both.sql(
        "ALTER TABLE main.db.t ALTER COLUMN i TYPE BIGINT",
        "ALTER TABLE main.db.t ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE main.db.t ALTER COLUMN n TYPE DECIMAL(9, 2)",
        "ALTER TABLE main.db.t RENAME COLUMN s TO text",
        "ALTER TABLE main.db.t ADD COLUMN late STRING",
    )
    both.delete(["i", "n"], [{"i": one, "n": Decimal(f"{n}.00")} for one in (2, 4, 7) for n in range(5)], [1])
    both.delete(["f", "text"], [{"f": 0.5, "text": None}, {"f": 0.75, "text": "s1"}], [1])
    both.delete(["late", "id"], [{"late": None, "id": 103}, {"late": "x", "id": 105}], [1])
    both.sql(
        "INSERT INTO main.db.t SELECT id + 200, text, i, f, n, p, 'x' FROM main.db.t WHERE id >= 100",
        "ALTER TABLE main.db.t DROP COLUMN text",
        "DELETE FROM main.db.t WHERE id % 10 = 9",
    )
    before, health = both.ids(), both.ours.health()[0]
    assert health.equality_delete_files == 6
    assert health.position_delete_files > 0
    action = both.compact(min_input_files="3")
    assert 0 < action.actual.rewritten_data_files < health.data_files, "some partition has fewer files"
    both.compact(rewrite_all="true")
    assert both.deletes() == 0
    assert both.ids() == before


@pytest.mark.requirement("IM-03")
@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_position_deletes_beside_equality_deletes(both: Both, granularity: str) -> None:
    both.sql(
        f"""CREATE TABLE main.db.t (id BIGINT, category STRING) USING iceberg PARTITIONED BY (bucket(2, id))
        TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read',
          'write.update.mode' = 'merge-on-read', 'write.delete.granularity' = '{granularity}')"""
    )
    for first in range(0, 100, 25):
        both.sql(f"INSERT INTO main.db.t SELECT id, concat('c', id % 3) FROM range({first}, {first + 25}, 1, 1)")
    both.sql("DELETE FROM main.db.t WHERE id % 10 = 3")
    both.delete(["category"], [{"category": "c1"}], [0])
    both.sql("UPDATE main.db.t SET category = 'c1' WHERE id % 10 = 4", "DELETE FROM main.db.t WHERE id % 10 = 7")
    action = both.compact(rewrite_all="true")
    assert action.actual.removed_delete_files > 1
    assert both.deletes() == 0
    assert both.ours.health()[0].records == len(both.ids())


@pytest.mark.requirement("IM-03")
def test_keys_inside_structs(both: Both) -> None:
    """Iceberg's readers tell a struct that is null from one whose field is null."""
    both.sql(
        "CREATE TABLE main.db.t (id BIGINT, a STRUCT<b: INT, c: STRUCT<d: STRING, e: INT>>) USING iceberg",
        """INSERT INTO main.db.t VALUES (1, NULL), (2, named_struct('b', NULL, 'c', NULL)),
          (3, named_struct('b', 1, 'c', NULL)), (4, named_struct('b', 1, 'c', named_struct('d', NULL, 'e', 1))),
          (5, named_struct('b', 2, 'c', named_struct('d', 'x', 'e', 1))),
          (6, named_struct('b', 2, 'c', named_struct('d', 'y', 'e', 2)))""",
    )
    both.delete(["a.c.d"], [{"a": {"c": None}}, {"a": {"c": {"d": "x"}}}])
    assert both.ids() == [1, 4, 6]
    both.delete(["a.b", "a.c.e"], [{"a": {"b": 2, "c": {"e": 2}}}, {"a": None}])
    assert both.ids() == [4]
    both.sql("INSERT INTO main.db.t VALUES (7, NULL)")
    both.compact(rewrite_all="true")
    assert both.ids() == [4, 7]
    assert both.deletes() == 0


@pytest.mark.requirement("IM-03")
def test_times_as_keys_as_duckdb_sees_them(both: Both) -> None:
    """Spark knows no times."""
    schema = pa.schema([("id", pa.int64()), ("t", pa.time64("us"))])
    table = both.catalog.create_table("db.t", schema)
    times = [time(0), time(23, 59, 59, 999_999), None]
    for first in (0, 3):
        table.append(pa.table([[first, first + 1, first + 2], times], schema=schema))
    both.delete(["t"], [{"t": time(23, 59, 59, 999_999)}, {"t": None}])
    before = read_duckdb(both.catalog.load_table("db.t").metadata_location)
    assert [json.loads(row)["id"] for row in before] == [0, 3]
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    assert both.ours.maintain((), asked).tables[0].status is Status.DONE
    assert both.deletes() == 0
    assert read_duckdb(both.catalog.load_table("db.t").metadata_location) == before
