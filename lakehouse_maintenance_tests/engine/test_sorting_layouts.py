"""Tables sorted and z-ordered: the same rows to two readers, in order across files, and not again without reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform

from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.bounds import added_files, check_statistics
from lakehouse_maintenance_tests.engine.conformance import TABLES, compact, open_golden, readable_by, seen
from lakehouse_maintenance_tests.engine.foreign import Watched
from lakehouse_maintenance_tests.engine.tables import data_paths, delete_rows, lakehouse
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse
from lakehouse_maintenance_tests.readers import read_duckdb, read_pyiceberg
from lakehouse_maintenance_tests.services.s3 import S3Server

pytestmark = pytest.mark.requirement("IM-02")

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("y", pa.int32()), ("text", pa.string())])


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.catalog.close()


def fill(watched: Watched, files: int = 8, rows: int = 1000, *, own_order: bool = False) -> None:
    """Each file has values from everywhere. `own_order`: the table has the order `x DESC NULLS LAST`, of id 1."""
    table = watched.create(SCHEMA)
    if own_order:
        with table.update_sort_order() as update:
            update.desc("x", IdentityTransform(), NullOrder.NULLS_LAST)
    random = np.random.default_rng(7)
    for number in range(files):
        x = pa.array(random.integers(0, 1000, rows), pa.int32(), mask=random.random(rows) < 0.01)
        y = random.integers(-500, 500, rows).astype("int32")
        ids = np.arange(number * rows, (number + 1) * rows)
        table.append(pa.table([ids, x, y, [f"text {i % 977}" for i in ids]], schema=SCHEMA))


def run(watched: Watched, memory: str = "4GB", **asked: Any) -> TableOutcome:
    options = {key.replace("_", "-"): value for key, value in asked.pop("options", {}).items()}
    request = Request(actions=(Action.REWRITE_DATA_FILES,), options=options, **asked)
    target = lakehouse(watched.folder, watched.properties, engine={"memory_limit": memory})
    return target.maintain((), request).tables[0]


def sorted_files(watched: Watched, column: str) -> list[list[Any]]:
    """The column's values file by file, in the order of the files' lower bounds."""
    files = [pq.read_table(path.removeprefix("file://"))[column].to_pylist() for path in data_paths(watched.catalog)]
    return sorted(files, key=lambda values: min(value for value in values if value is not None))


def opened(watched: Watched, condition: str) -> int:
    """Files that PyIceberg opens for a filter."""
    return len(list(watched.table.scan(row_filter=condition).plan_files()))


THREE_FILES = {"rewrite_all": "true", "target_file_size_bytes": "30000", "min_file_size_bytes": "1000"}


@pytest.mark.parametrize("memory", ["4GB", "150KB"], ids=["in memory", "spilled"])
def test_a_sort_order_across_files(watched: Watched, memory: str) -> None:
    fill(watched)
    delete_rows(watched.catalog, "db.t", {data_paths(watched.catalog)[0]: [0, 5, 999]})
    before = {"pyiceberg": read_pyiceberg(watched.table), "duckdb": watched.duckdb()}
    assert opened(watched, "x = 17") == 8
    outcome = run(watched, memory, strategy="sort", sort_order="x NULLS LAST, text DESC", options=THREE_FILES)
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].verified
    assert {"pyiceberg": read_pyiceberg(watched.table), "duckdb": watched.duckdb()} == before
    check_statistics(watched.table)
    files = sorted_files(watched, "x")
    assert len(files) > 2
    values = [value for file in files for value in file]
    assert values == sorted(values, key=lambda value: (value is None, value or 0))
    assert opened(watched, "x = 17") <= 2
    for path in data_paths(watched.catalog):
        rows = pq.read_table(path.removeprefix("file://")).to_pylist()
        for one, other in itertools.pairwise(rows):
            assert one["x"] != other["x"] or one["text"] >= other["text"]
    assert {file.sort_order_id for file in added_files(watched.table).values()} == {None}, "no order of the table's"


@pytest.mark.parametrize("memory", ["4GB", "150KB"], ids=["in memory", "spilled"])
def test_zorder_lets_a_filter_on_either_column_skip_files(watched: Watched, memory: str) -> None:
    fill(watched)
    before = watched.duckdb()
    options = {**THREE_FILES, "target_file_size_bytes": "6000"}
    outcome = run(watched, memory, strategy="zorder", sort_order="x, y", options=options)
    assert outcome.status is Status.DONE, outcome
    assert watched.duckdb() == before
    files = len(data_paths(watched.catalog))
    assert files >= 8
    assert opened(watched, "x = 17") <= files * 0.7
    assert opened(watched, "y = 17") <= files * 0.7
    assert opened(watched, "x = 17 and y = 17") <= files * 0.4


class TestTheTablesOwnOrder:
    def test_every_file_is_sorted_once(self, watched: Watched) -> None:
        fill(watched, own_order=True)
        small = {"target_file_size_bytes": "15000", "min_file_size_bytes": "1000", "max_file_size_bytes": "1000000"}
        outcome = run(watched, strategy="sort", options=small)
        assert outcome.status is Status.DONE, outcome
        assert "not in the order x DESC NULLS LAST" in plan_reason(watched, outcome)
        assert {file.sort_order_id for file in added_files(watched.table).values()} == {1}
        files = sorted_files(watched, "x")
        for values in files:
            assert values == sorted(values, key=lambda value: (value is None, -(value or 0)))
        head = watched.table.current_snapshot()
        again = run(watched, strategy="sort", options=small)
        assert again.status is Status.SKIPPED, "what a sort leaves has the order"
        assert watched.table.current_snapshot() == head

    def test_the_text_of_the_order_is_the_order(self, watched: Watched) -> None:
        fill(watched, files=5, own_order=True)
        assert run(watched, strategy="sort", sort_order="x DESC").status is Status.DONE
        assert {file.sort_order_id for file in added_files(watched.table).values()} == {1}

    def test_bin_packed_files_are_out_of_order_again(self, watched: Watched) -> None:
        fill(watched, files=5, own_order=True)
        assert run(watched, strategy="sort").status is Status.DONE
        fresh = pa.table([[1], [5], [5], ["new"]], schema=SCHEMA)
        for _ in range(4):
            watched.table.append(fresh)
        assert run(watched).status is Status.DONE
        assert {file.sort_order_id for file in added_files(watched.table).values()} == {None}
        assert run(watched, strategy="sort").status is Status.SKIPPED, "one small file waits for others"


def plan_reason(watched: Watched, outcome: TableOutcome) -> str:
    """Why the files were chosen: from the plan, made once more on the snapshot before."""
    before = outcome.actions[0].previous_snapshot_id
    assert before is not None
    watched.table.manage_snapshots().rollback_to_snapshot(before).commit()
    request = Request(
        actions=(Action.REWRITE_DATA_FILES,),
        strategy="sort",
        options={"target-file-size-bytes": "15000", "min-file-size-bytes": "1000", "max-file-size-bytes": "1000000"},
    )
    plan = lakehouse(watched.folder, watched.properties).plan((), request).tables[0]
    reason = plan.actions[0].groups[0].reason
    after = outcome.actions[0].snapshot_id
    assert after is not None
    watched.table.manage_snapshots().set_current_snapshot(after).commit()
    return reason


def test_another_order_is_a_reason_only_where_all_is_asked_for(watched: Watched) -> None:
    fill(watched, files=2)
    large = {"target_file_size_bytes": "15000", "min_file_size_bytes": "1000", "max_file_size_bytes": "1000000"}
    assert run(watched, strategy="sort", sort_order="y", options=large).status is Status.SKIPPED
    outcome = run(watched, strategy="sort", sort_order="y", options={**large, "rewrite_all": "true"})
    assert outcome.status is Status.DONE
    assert len(data_paths(watched.catalog)) == 2, "as many files, in order"
    first, second = sorted_files(watched, "y")
    assert max(first) <= min(second)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"strategy": "sort"}, "none of its own"),
        ({"strategy": "sort", "sort_order": "nope"}, "no column nope"),
        ({"strategy": "zorder"}, "names no columns"),
        ({"strategy": "sort", "sort_order": "x, zorder(x, y)"}, "cannot be mixed"),
        ({"sort_order": "x"}, "binpack keeps rows"),
        ({"strategy": "sort", "sort_order": "days(x)"}, "which is of type int"),
    ],
)
def test_what_does_not_fit_is_the_tables_error_and_nothing_is_written(
    watched: Watched, asked: dict[str, str], told: str
) -> None:
    fill(watched, files=5, rows=10)
    files = table_files(watched)
    outcome = run(watched, **asked)
    assert outcome.status is Status.FAILED
    assert told in outcome.reason
    assert table_files(watched) == files


def table_files(watched: Watched) -> list[Path]:
    return sorted(path for path in watched.folder.rglob("*") if path.suffix in (".parquet", ".avro", ".json"))


ORDERS: Sequence[tuple[str, str, str]] = [
    ("db.v2_types", "sort", "c_double DESC, c_string, c_decimal30"),
    ("db.v2_types", "sort", "c_binary NULLS LAST, hours(c_timestamp), c_struct.y.z"),
    ("db.v2_types", "zorder", "c_float, c_decimal30, c_date, c_string, c_binary, c_boolean"),
    ("db.v2_evolved", "sort", "st.n.p, label"),
    ("db.v2_evolved", "zorder", "id, region, st.c"),
    ("db.v2_required", "sort", "owner.born, address.zip DESC"),
]


@pytest.mark.requirement("IM-04")
@pytest.mark.parametrize(("name", "strategy", "order"), ORDERS)
def test_tables_of_every_type_and_history(
    golden: GoldenLakehouse, s3: S3Server, tmp_path: Path, name: str, strategy: str, order: str
) -> None:
    ours = open_golden(golden, tmp_path)
    request = Request(
        actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"}, strategy=strategy, sort_order=order
    )
    outcome = ours.maintain([f"golden.{name}"], request).tables[0]
    assert outcome.status is Status.DONE, outcome
    recorded = TABLES[name]
    assert seen(read_duckdb(golden.metadata_location(name), s3.properties)) == recorded.current
    if name in readable_by("pyiceberg"):
        assert seen(read_pyiceberg(golden.catalog().load_table(recorded.identifier))) == recorded.current
    assert compact(ours, name).status is Status.SKIPPED
