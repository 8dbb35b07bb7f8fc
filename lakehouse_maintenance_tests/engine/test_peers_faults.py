"""Faults that other maintenance tools had, each with tables of the shape that brought it out; none happens here.

Elsewhere: a delete or an append in the middle of a rewrite (`test_rewrite_conflicts`, `test_rewriting_manifests`,
`test_position_deletes_rewrite`), equality deletes (`test_deletes_races`, `test_deletes_spark`), tags, branches and
rollbacks beside expiry (`test_expiry`), PyIceberg's serializable overwrite (`test_rewrite_conflicts`).
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.types import StringType

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.conformance import (
    TABLES,
    kept,
    open_golden,
    pyiceberg_sees,
    recorded_rows,
    table_name,
)
from lakehouse_maintenance_tests.engine.steps import LIMITS, NEWEST_ALONE, asked
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse
from lakehouse_maintenance_tests.readers import duckdb_query, read_duckdb, read_pyiceberg
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.spark.session import Spark

NAME = "main.db.t"
EVERYTHING = asked(Action.REWRITE_DATA_FILES, Action.EXPIRE_SNAPSHOTS, Action.REMOVE_ORPHAN_FILES)
SORTED = {"binpack": None, "sort": "x DESC NULLS LAST", "zorder": "zorder(x, f)"}


def rewrite(ours: Lakehouse, **options: str) -> TableOutcome:
    given = {"rewrite-all": "true", **{key.replace("_", "-"): value for key, value in options.items()}}
    outcome = ours.maintain((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,), options=given)).tables[0]
    assert outcome.status is Status.DONE, outcome
    return outcome


# Odd numbers and the bounds of files

FLOATS = [
    [1.0, 2.0, math.nan],
    [-0.0, -0.0, -0.0],
    [0.0, 0.0, None],
    [math.nan, math.nan, math.nan],
    [math.inf, 5.0, 7.0],
    [-math.inf, -1.0, 4.999],
    [None, None, None],
    [-0.0, 0.0, math.nan],
    [1e308, -1e308, 5e-324],
]
NAN_IDS = [
    n * 10 + place
    for n, values in enumerate(FLOATS)
    for place, v in enumerate(values)
    if v is not None and math.isnan(v)
]
HUGE = "9" * 18
PREDICATES = [
    *("x < 5", "x >= 5", "x = 0", "x <> 0", "x > 0", "x >= 0", "x <= 0", "x < 0", "x IS NULL", "x IS NOT NULL"),
    *(f"x > {HUGE}", f"x < -{HUGE}", "f < 5", "f = 0", "f >= 0", f"f > {HUGE}", f"f <= -{HUGE}"),
]
NAN = {"pyiceberg": "x IS NAN", "duckdb": "isnan(x)", "spark": "isnan(x)"}
INFINITE = {
    "duckdb": ["x = 'inf'::DOUBLE", "x = '-inf'::DOUBLE", "x = 'nan'::DOUBLE", "NOT x < 5"],
    "spark": ["x = double('Infinity')", "x = double('-Infinity')", "x = double('NaN')", "NOT x < 5"],
    "pyiceberg": ["x IS NOT NAN", "NOT x < 5"],
}

Ask = Callable[[str], list[int]]
"""A predicate → the ids it finds, sorted."""


def answers(reader: str, ask: Ask) -> dict[str, list[int]]:
    return {predicate: ask(predicate) for predicate in [*PREDICATES, NAN[reader], *INFINITE[reader]]}


def check_answers(reader: str, found: dict[str, list[int]], expected: dict[str, list[int]]) -> None:
    """Rows with a NaN are asked for by name. Whether a comparison finds one depends on which files a reader skips, of
    any writer's files: it takes NaN for the greatest number, while bounds know of no NaN (spec: Manifests)."""
    is_nan = NAN[reader]
    assert found[is_nan] == expected[is_nan]
    for predicate, wanted in expected.items():
        assert {*found[predicate]} - {*expected[is_nan]} == {*wanted} - {*expected[is_nan]}, predicate


def by_pyiceberg(catalog: SqlCatalog) -> Ask:
    return lambda predicate: sorted(catalog.load_table("db.t").scan(row_filter=predicate).to_arrow()["id"].to_pylist())


def by_duckdb(catalog: SqlCatalog) -> Ask:
    def ask(predicate: str) -> list[int]:
        location = catalog.load_table("db.t").metadata_location
        return [row[0] for row in duckdb_query(location, f"SELECT id FROM {{}} WHERE {predicate} ORDER BY id")]

    return ask


def unpruned_by_pyiceberg(catalog: SqlCatalog) -> Ask:
    """On rows that were read without a filter, so that no bounds matter."""
    table = catalog.load_table("db.t")
    rows = table.scan().to_arrow()

    def ask(predicate: str) -> list[int]:
        bound = bind(table.schema(), parse(predicate), case_sensitive=True)
        return sorted(rows.filter(expression_to_pyarrow(bound))["id"].to_pylist())

    return ask


def unpruned_by_duckdb(catalog: SqlCatalog) -> Ask:
    """Likewise."""
    connection = duckdb.connect()
    connection.register("rows", catalog.load_table("db.t").scan().to_arrow())

    def ask(predicate: str) -> list[int]:
        return [row[0] for row in connection.execute(f"SELECT id FROM rows WHERE {predicate} ORDER BY id").fetchall()]

    return ask


@pytest.mark.requirement("IM-02", "IM-04")
@pytest.mark.parametrize("layout", SORTED)
def test_filters_find_nan_zeros_and_infinities_as_before(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, layout: str
) -> None:
    """Bounds that a NaN got into, or that put -0.0 above 0.0, hide rows from every filter."""
    catalog, properties = sql_catalog()
    catalog.create_namespace("db")
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("f", pa.float32())])
    table = catalog.create_table("db.t", schema)
    for number, values in enumerate(FLOATS):
        ids = [number * 10 + place for place in range(len(values))]
        table.append(pa.table([ids, values, values], schema=schema))
    truth = {"pyiceberg": unpruned_by_pyiceberg(catalog), "duckdb": unpruned_by_duckdb(catalog)}
    expected = {reader: answers(reader, ask) for reader, ask in truth.items()}
    assert expected["pyiceberg"][NAN["pyiceberg"]] == expected["duckdb"][NAN["duckdb"]] == NAN_IDS
    rows = read_pyiceberg(catalog.load_table("db.t"))
    ours = lakehouse(tmp_path, properties)
    request = asked(Action.REWRITE_DATA_FILES, strategy=layout.replace("zorder", "sort"), sort_order=SORTED[layout])
    # Several files whose bounds each hold a part, then one.
    for target, several in (("1500B", True), ("512MB", False)):
        options = {**request.options, "target-file-size-bytes": target}
        outcome = ours.maintain((NAME,), replace(request, options=options)).tables[0]
        assert outcome.status is Status.DONE, outcome
        assert (outcome.actions[0].actual.files > 1) is several
        assert read_pyiceberg(catalog.load_table("db.t")) == rows
        for reader, ask in (("pyiceberg", by_pyiceberg(catalog)), ("duckdb", by_duckdb(catalog))):
            check_answers(reader, answers(reader, ask), expected[reader])


# Partition values that paths cannot hold as they are

ODD = ["a b", "a/b", "100%", "k=v", "ü漢🧊", 'it\'s "so"', "", " ", None, "a+b", "%2F", "..", "#x?y&z", "p=%20", "\\"]


def check_odd_values(ours: Lakehouse, readers: Sequence[Callable[[], dict[str | None, list[int]]]]) -> None:
    """Compacts, expires, and looks for orphans; each value's partition has the same rows in each reader."""
    before = [ask() for ask in readers]
    assert all(len(found) == 2 for one in before for found in one.values())
    outcome = ours.maintain((NAME,), EVERYTHING).tables[0]
    assert outcome.status is Status.DONE, outcome
    done = {action.action: action.actual for action in outcome.actions}
    assert done[Action.REWRITE_DATA_FILES].files == len(ODD)
    assert done[Action.REMOVE_ORPHAN_FILES].deleted_files == 0
    assert [ask() for ask in readers] == before


@pytest.mark.requirement("IM-04", "IM-05", "IM-08")
def test_partition_values_that_urls_encode(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    catalog, properties = sql_catalog()
    catalog.create_namespace("db")
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = catalog.create_table("db.t", schema)
    with table.update_spec() as update:
        update.add_identity("p")
    for first in (0, 100):
        table.append(pa.table([[first + i for i in range(len(ODD))], ODD], schema=schema))

    def pyiceberg(value: str | None) -> list[int]:
        scan = catalog.load_table("db.t").scan(row_filter=IsNull("p") if value is None else EqualTo("p", value))
        return sorted(scan.to_arrow()["id"].to_pylist())

    def of_duckdb(value: str | None) -> list[int]:
        location = catalog.load_table("db.t").metadata_location
        found = duckdb_query(location, "SELECT id FROM {} WHERE p IS NOT DISTINCT FROM ? ORDER BY id", [value])
        return [row[0] for row in found]

    readers = [lambda ask=ask: {value: ask(value) for value in ODD} for ask in (pyiceberg, of_duckdb)]
    check_odd_values(lakehouse(tmp_path, properties, limits=LIMITS), readers)


# A name that was another column's


@pytest.mark.requirement("IM-04", "IM-02")
@pytest.mark.parametrize("order", [None, "note ASC NULLS FIRST"])
def test_values_of_a_dropped_column_do_not_come_back(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, order: str | None
) -> None:
    """A column of the same name is another column, with another id: what the old one held stays gone."""
    catalog, properties = sql_catalog()
    catalog.create_namespace("db")
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    table = catalog.create_table("db.t", schema)
    for first in (0, 10):
        table.append(pa.table([[first, first + 1], ["old", "older"]], schema=schema))
    with table.update_schema() as update:
        update.delete_column("note")
    with table.update_schema() as update:
        update.add_column("note", StringType())
    table.append(pa.table([[20, 21], ["new", None]], schema=schema))
    before = read_pyiceberg(catalog.load_table("db.t"))
    assert [json.loads(row)["note"] for row in before] == [None, None, None, None, "new", None]
    request = asked(Action.REWRITE_DATA_FILES, strategy="sort" if order else None, sort_order=order)
    outcome = lakehouse(tmp_path, properties).maintain((NAME,), request).tables[0]
    assert outcome.status is Status.DONE, outcome
    table = catalog.load_table("db.t")
    assert read_pyiceberg(table) == read_duckdb(table.metadata_location) == before
    assert by_pyiceberg(catalog)("note IS NOT NULL") == by_duckdb(catalog)("note IS NOT NULL") == [20]
    assert by_pyiceberg(catalog)("note = 'old'") == by_duckdb(catalog)("note = 'old'") == []


# Snapshots that no ref leads to


@pytest.mark.requirement("IM-05")
def test_what_was_cherry_picked_outlives_the_snapshot_it_was_staged_in(golden: GoldenLakehouse, tmp_path: Path) -> None:
    """Spark staged two snapshots (write-audit-publish) and published one, whose file main has by another snapshot."""
    recorded = TABLES["db.v2_branches"]
    table = golden.catalog().load_table(recorded.identifier)
    by_wap = {
        found: snapshot.snapshot_id
        for snapshot in table.metadata.snapshots
        if snapshot.summary and (found := snapshot.summary.additional_properties.get("wap.id"))
    }
    assert set(by_wap) == {"published", "staged"}

    def data_files(snapshot_id: int) -> set[str]:
        snapshot = table.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        found: set[str] = set()
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries if entry.snapshot_id == snapshot_id}
        return found

    (published,), (staged,) = data_files(by_wap["published"]), data_files(by_wap["staged"])
    ours = open_golden(golden, tmp_path, limits=LIMITS)
    chosen = replace(NEWEST_ALONE, snapshot_ids=tuple(by_wap.values()))
    request = Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=chosen)
    outcome = ours.maintain([str(table_name("db.v2_branches"))], request).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.expired_snapshots == 2
    table = golden.catalog().load_table(recorded.identifier)
    left = kept(recorded_rows(recorded), table)
    assert len(left) == len(recorded_rows(recorded)) - 2
    assert pyiceberg_sees(table, recorded, left) == left
    assert table.io.new_input(published).exists()
    assert not table.io.new_input(staged).exists()


# Spark


@pytest.mark.requirement("IM-04", "IM-05", "IM-08")
def test_spark_finds_odd_values_as_before(spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    """Floats and partition values as above, in one table that Spark writes."""
    _, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", properties["warehouse"])
    spark.sql("CREATE NAMESPACE main.db")
    spark.sql("CREATE TABLE main.db.t (id BIGINT, p STRING, x DOUBLE, f FLOAT) USING iceberg PARTITIONED BY (p)")
    kinds = "id BIGINT, p STRING, x DOUBLE, f FLOAT"
    numbers = [value for values in FLOATS for value in values]
    for first in (0, 100):
        rows = [(first + i, p, numbers[(i + first) % len(numbers)]) for i, p in enumerate(ODD)]
        frame = spark.session.createDataFrame([(*row, row[2]) for row in rows], kinds)
        frame.coalesce(1).sortWithinPartitions("p").writeTo("main.db.t").append()

    def ask(predicates: Sequence[str], table: str = "main.db.t") -> list[list[int]]:
        """One job: each branch of the union plans its own files, and Spark takes its time to begin one."""
        branches = [f"SELECT {n} AS n, id FROM {table} WHERE {one}" for n, one in enumerate(predicates)]
        found = spark.sql(" UNION ALL ".join(branches)).collect()
        return [sorted(row["id"] for row in found if row["n"] == n) for n in range(len(predicates))]

    def compared(table: str = "main.db.t") -> dict[str, list[int]]:
        predicates = [*PREDICATES, NAN["spark"], *INFINITE["spark"]]
        return dict(zip(predicates, ask(predicates, table), strict=True))

    def of_values() -> dict[str | None, list[int]]:
        texts = ["" if value is None else value.replace("\\", "\\\\").replace("'", "\\'") for value in ODD]
        predicates = ["p IS NULL" if v is None else f"p = '{text}'" for v, text in zip(ODD, texts, strict=True)]
        return dict(zip(ODD, ask(predicates), strict=True))

    frame = spark.session.createDataFrame(spark.sql("SELECT * FROM main.db.t").collect(), kinds)
    frame.createOrReplaceTempView("unpruned")
    before = compared("unpruned")
    ours = lakehouse(tmp_path, properties, limits=LIMITS)
    check_odd_values(ours, [of_values])
    check_answers("spark", compared(), before)
    request = asked(Action.REWRITE_DATA_FILES, strategy="sort", sort_order="zorder(x, f)")
    assert ours.maintain((NAME,), request).tables[0].status is Status.DONE
    check_answers("spark", compared(), before)


@pytest.mark.requirement("IM-05", "IM-12")
def test_a_staged_append_is_published_after_our_work(
    spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path
) -> None:
    """Compaction between staging and publishing; then expiry of all that can go, the staged snapshot too."""
    _, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", properties["warehouse"])
    spark.sql("CREATE NAMESPACE main.db")
    spark.sql(
        "CREATE TABLE main.db.t (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true', "
        "'format-version' = '2')"
    )

    def insert(first: int) -> None:
        spark.sql(f"INSERT INTO main.db.t SELECT id, concat('v', id) FROM range({first}, {first + 5}, 1, 1)")

    insert(0)
    insert(10)
    for wap_id, first in (("wanted", 100), ("unwanted", 200)):
        spark.session.conf.set("spark.wap.id", wap_id)
        insert(first)
        spark.session.conf.unset("spark.wap.id")
    ours = lakehouse(tmp_path, properties, limits=LIMITS)
    rewrite(ours)
    spark.sql("CALL main.system.publish_changes('db.t', 'wanted')")
    expected = [*range(5), *range(10, 15), *range(100, 105)]

    def ids() -> list[int]:
        return [row[0] for row in spark.sql("SELECT id FROM main.db.t ORDER BY id").collect()]

    assert ids() == expected
    outcome = ours.maintain((NAME,), EVERYTHING).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert ids() == expected
    spark.sql("CALL main.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))").collect()
    assert ids() == expected


@pytest.mark.requirement("IM-12")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_serializable_merge_that_began_before_our_commit(
    spark: Spark, sql_catalog: SqlCatalogFactory, tmp_path: Path, mode: str
) -> None:
    """Spark's MERGE has read the table when our commit comes. Of files we replaced it is refused as by any writer, and
    nothing is lost; of files we left it goes through: a rewrite adds no rows that it would have to see."""
    _, properties = sql_catalog()
    spark.attach("main", tmp_path / "main.db", properties["warehouse"])
    spark.sql("CREATE NAMESPACE main.db")
    spark.sql(
        f"""CREATE TABLE main.db.t (id BIGINT, p STRING, x BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES
        ('format-version'='2', 'write.merge.mode'='{mode}', 'write.merge.isolation-level'='serializable')"""
    )
    for first, p in ((0, "many"), (10, "many"), (20, "one")):
        spark.sql(f"INSERT INTO main.db.t SELECT id, '{p}', 0 FROM range({first}, {first + 5}, 1, 1)")
    ours = lakehouse(tmp_path, properties)
    reached, go_on = tmp_path / "reached", tmp_path / "go on"
    spark.session.udf.register("waited", _waiting(reached, go_on), "bigint")

    def merge(key: int, p: str, source: str) -> None:
        spark.sql(
            f"""MERGE INTO main.db.t t USING (SELECT {source} AS id) s ON t.id = s.id AND t.p = '{p}'
            WHEN MATCHED THEN UPDATE SET x = 1 WHEN NOT MATCHED THEN INSERT (id, p, x) VALUES (s.id, '{p}', 1)"""
        )

    def beside_us(key: int, p: str) -> Exception | None:
        errors: list[Exception] = []

        def run() -> None:
            try:
                merge(key, p, f"waited(id) AS id FROM (SELECT {key}L AS id UNION ALL SELECT {key + 1000}L)")
            except Exception as error:  # handed to the test
                errors.append(error)

        for path in (reached, go_on):
            path.unlink(missing_ok=True)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            _wait(reached)
            rewrite(ours, rewrite_all="false", min_input_files="2")
        finally:
            go_on.touch()
            thread.join(120)
        assert not thread.is_alive()
        return errors[0] if errors else None

    def changed() -> list[int]:
        return [row[0] for row in spark.sql("SELECT id FROM main.db.t WHERE x = 1 ORDER BY id").collect()]

    error = beside_us(3, "many")
    assert error is not None
    assert "ValidationException" in str(error)
    assert changed() == []
    assert spark.sql("SELECT DISTINCT id FROM main.db.t").count() == spark.sql("SELECT * FROM main.db.t").count() == 15
    merge(3, "many", "3L")
    assert changed() == [3]
    spark.sql("INSERT INTO main.db.t VALUES (30, 'many', 0)")
    spark.sql("INSERT INTO main.db.t VALUES (31, 'many', 0)")
    assert beside_us(22, "one") is None
    assert changed() == [3, 22, 1022]
    assert spark.sql("SELECT * FROM main.db.t").count() == 18


def _waiting(reached: Path, go_on: Path) -> Callable[[Any], Any]:
    """A function for Spark's Python workers, of nothing but the standard library."""
    first, second = str(reached), str(go_on)

    def waited(value: Any) -> Any:
        import os
        import time as clock

        open(first, "w").close()
        end = clock.monotonic() + 60
        while not os.path.exists(second) and clock.monotonic() < end:
            clock.sleep(0.02)
        return value

    return waited


def _wait(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.02)
