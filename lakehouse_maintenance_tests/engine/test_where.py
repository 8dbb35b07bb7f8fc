"""`where` on real tables: it chooses files, never rows, and what is wrong with it is told before anything is read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, LongType, StringType

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.plans import Plan, PlannedAction
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import data_paths, delete_rows, ids, lakehouse, many_small_files

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

    from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    """The writer's catalog, and ours on the same tables."""
    made, properties = sql_catalog()
    return made, lakehouse(tmp_path, properties)


@pytest.fixture
def catalog(pair: tuple[SqlCatalog, Lakehouse]) -> SqlCatalog:
    return pair[0]


@pytest.fixture
def ours(pair: tuple[SqlCatalog, Lakehouse]) -> Lakehouse:
    return pair[1]


def asked(where: str) -> Request:
    return Request(
        actions=(Action.REWRITE_DATA_FILES,), where=where, options={"rewrite-all": "true", "min-input-files": "1"}
    )


def planned(ours: Lakehouse, where: str) -> PlannedAction | None:
    plan = ours.plan(["main.db.t"], asked(where))
    assert plan.tables[0].error is None
    return plan.tables[0].actions[0] if plan.tables[0].actions else None


def chosen(ours: Lakehouse, where: str) -> set[str]:
    action = planned(ours, where)
    return set() if action is None else {file.path for group in action.groups for file in group.files}


def of_partition(paths: list[str], value: str) -> set[str]:
    return {path for path in paths if f"/p={value}/" in path}


@pytest.mark.requirement("IM-01")
class TestWhichFiles:
    def test_by_partition(self, catalog, ours):
        many_small_files(catalog)
        paths = data_paths(catalog)
        assert chosen(ours, "p = 'a'") == of_partition(paths, "a")
        assert chosen(ours, "NOT p = 'a'") == of_partition(paths, "b")
        assert chosen(ours, "p IN ('b', 'c')") == of_partition(paths, "b")
        assert chosen(ours, "p LIKE 'a%'") == of_partition(paths, "a")
        assert chosen(ours, "p IS NULL") == set()
        assert chosen(ours, "p IS NOT NULL") == set(paths)

    def test_by_bounds(self, catalog, ours):
        many_small_files(catalog, partitioned=False)
        assert len(chosen(ours, "id >= 20 AND id < 40")) == 2
        assert len(chosen(ours, "x > 19.9")) == 2
        assert len(chosen(ours, "x > 24.9")) == 0, "a single file, which cannot become fewer"
        assert chosen(ours, "id > 1000") == set()

    def test_by_both(self, catalog, ours):
        many_small_files(catalog)
        assert len(chosen(ours, "p = 'a' AND id >= 20 AND id < 40")) == 2

    def test_moments(self, catalog, ours):
        catalog.create_namespace("db")
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
        table = catalog.create_table("db.t", schema)
        now = datetime.now(UTC)
        for age in (20, 20, 1, 1):
            moment = now - timedelta(days=age)
            table.append(pa.table([[age], [moment.date()], [moment]], schema=schema))
        assert len(chosen(ours, "day >= CURRENT_DATE - 7")) == 2
        assert len(chosen(ours, "at < CURRENT_TIMESTAMP - 7")) == 2
        action = planned(ours, "day >= CURRENT_DATE - 7")
        assert action is not None
        assert action.options["where"].startswith("day >= '20")

    def test_a_column_that_was_dropped_and_added_again_is_another_one(self, catalog, ours):
        many_small_files(catalog, commits=2, partitioned=False)
        table = catalog.load_table("db.t")
        with table.update_schema() as update:
            update.delete_column("x")
        with table.update_schema() as update:
            update.add_column("x", StringType())
        assert len(chosen(ours, "x IS NULL")) == 2
        assert len(chosen(ours, "x = 'what the old column never held'")) == 2, "no statistics: it may be there"

    def test_a_promoted_column_keeps_its_old_bounds(self, catalog, ours):
        catalog.create_namespace("db")
        schema = pa.schema([("id", pa.int32())])
        table = catalog.create_table("db.t", schema)
        for start in (0, 0, 10, 10):
            table.append(pa.table([pa.array(range(start, start + 5), pa.int32())], schema=schema))
        assert isinstance(table.schema().find_field("id").field_type, IntegerType)
        with table.update_schema() as update:
            update.update_column("id", LongType())
        assert len(chosen(ours, "id >= 10")) == 2
        assert chosen(ours, "id > 5000000000") == set()


@pytest.mark.requirement("IM-01")
def test_rows_that_do_not_match_are_rewritten_with_their_files(catalog, ours):
    many_small_files(catalog)
    outside = of_partition(data_paths(catalog), "b")
    plan = ours.plan(["main.db.t"], asked("p = 'a' AND id = 21"))
    plan = Plan.from_json(json.loads(json.dumps(plan.as_json())))
    assert plan.is_empty, "a single file of all that match"
    outcome = ours.maintain(["main.db.t"], asked("p = 'a' AND (id = 21 OR id = 31)")).tables[0]
    assert outcome.actions[0].verified
    assert outcome.actions[0].actual.rewritten_data_files == 2
    assert ids(catalog) == list(range(60))
    assert of_partition(data_paths(catalog), "b") == outside


def test_the_digest_covers_it(catalog, ours):
    many_small_files(catalog)
    first, second = (ours.plan(["main.db.t"], asked(where)) for where in ("p = 'a'", "p IN ('a')"))
    assert first.tables[0].actions[0].groups == second.tables[0].actions[0].groups
    assert first.digest != second.digest


def test_files_outside_are_counted_and_keep_their_deletes_needed(catalog, ours):
    many_small_files(catalog, partitioned=False)
    paths = data_paths(catalog)
    delete_rows(catalog, "db.t", {path: [0] for path in paths}, per_file=False)
    action = planned(ours, "id < 20")
    assert action is not None
    assert action.expected.fewer_deletes == 0, "the delete file still reaches the files outside"
    assert action.notes == ("where chose files, never rows; 4 files cannot hold rows that where is true for",)
    whole = planned(ours, "id >= 0")
    assert whole is not None
    assert whole.expected.fewer_deletes == 1
    made = ours.plan(["main.db.t"], asked("id > 1000")).tables[0]
    assert "6 files cannot hold rows that where is true for" in made.skipped[0].reason


@pytest.mark.requirement("IM-01")
class TestWhatIsWrong:
    @pytest.mark.parametrize(
        "where",
        ["id >", "id = 1 and", "id = 'it", "id LIKE '%x'", "id in ()", "1 = 1", "id = 1 and 5", "(" * 300 + "id = 1"],
    )
    def test_no_filter_at_all(self, catalog, ours, where):
        with pytest.raises(InputError, match="where cannot be read") as told:
            ours.plan(["main.db.t"], asked(where))
        assert told.value.field == "where"
        assert "CURRENT_DATE" in (told.value.hint or "")

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ("ID = 1", "'ID', which is no column"),
            ("idd = 1", "did you mean 'id'"),
            ("id = 'x'", "'id', which is long"),
            ("id > 1.5", "1.5 is no whole number"),
            ("p = 5", "5 is no text"),
            ("day >= 5", "5 is a number"),
            ("day >= CURRENT_TIMESTAMP", "such as '2026-01-31'"),
            ("dec = 1.555", "more than 2 digits"),
            ("lst = 1", "no single value"),
            ("lst.element = 1", "no column that a row has one value of"),
        ],
    )
    def test_what_does_not_fit_the_schema(self, catalog, ours, where, message):
        catalog.create_namespace("db")
        kinds = [("id", pa.int64()), ("p", pa.string()), ("day", pa.date32()), ("dec", pa.decimal128(9, 2))]
        schema = pa.schema([*kinds, ("lst", pa.list_(pa.int32()))])
        table = catalog.create_table("db.t", schema)
        table.append(schema.empty_table().from_pylist([{"id": 1}], schema=schema))
        made = ours.plan(["main.db.t"], asked(where)).tables[0]
        assert made.actions == ()
        assert message in str(made.error)
