"""The opt-in hash over rows (IM-13): faults that leave all counts right are found, and name the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.engines.embedded_iceberg.output import DataFileWriter
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import ActionOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    made, properties = sql_catalog()
    many_small_files(made)
    return made, lakehouse(tmp_path, properties)


@pytest.fixture
def catalog(pair: tuple[SqlCatalog, Lakehouse]) -> SqlCatalog:
    return pair[0]


@pytest.fixture
def ours(pair: tuple[SqlCatalog, Lakehouse]) -> Lakehouse:
    return pair[1]


def compact(ours: Lakehouse, **options: str) -> ActionOutcome:
    spelled = {"verify-rows": "true", **{name.replace("_", "-"): value for name, value in options.items()}}
    asked = Request(actions=(Action.REWRITE_DATA_FILES,), options=spelled)
    return ours.maintain(["main.db.t"], asked).tables[0].actions[0]


def with_x(batch: pa.RecordBatch, values: list[Any]) -> pa.RecordBatch:
    field = batch.schema.field(2)
    return batch.set_column(2, field, pa.array(values, field.type))


def drop_and_double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array([0, 0, *range(2, batch.num_rows)]))


def change_a_value(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch["x"].to_pylist()
    return with_x(batch, [values[0] + 1, *values[1:]])


def swap_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each column keeps its values; two rows have those of each other."""
    values = batch["x"].to_pylist()
    return with_x(batch, [values[1], values[0], *values[2:]])


def a_null(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_x(batch, [None, *batch["x"].to_pylist()[1:]])


@pytest.mark.requirement("IM-13")
class TestFaultsThatLeaveCountsRight:
    @pytest.mark.parametrize("fault", [drop_and_double, change_a_value, swap_values, a_null])
    def test_are_found_by_the_hash_alone(self, pair, monkeypatch, fault: Callable[[pa.RecordBatch], pa.RecordBatch]):
        catalog, ours = pair
        good = catalog.load_table("db.t").current_snapshot().snapshot_id
        real = DataFileWriter.write
        with monkeypatch.context() as patch:
            patch.setattr(DataFileWriter, "write", lambda self, batch: real(self, fault(batch)))
            outcome = compact(ours)
        assert outcome.status is Status.FAILED
        assert [(check.name, check.passed) for check in outcome.checks] == [
            ("rows_unchanged", True),
            ("live_files_present", True),
            ("row_hash", False),
        ]
        assert f"roll back to snapshot {good}" in str(outcome.error)
        assert ours.rollback("db.t").tables[0].status is Status.DONE
        assert ids(catalog) == list(range(60))

    def test_are_not_looked_for_where_nobody_asked(self, ours, monkeypatch):
        real = DataFileWriter.write
        monkeypatch.setattr(DataFileWriter, "write", lambda self, batch: real(self, change_a_value(batch)))
        assert compact(ours, verify_rows="false").verified


@pytest.mark.requirement("IM-13")
class TestRowsAsBefore:
    def test_with_deletes_and_a_change_of_specs(self, catalog, ours):
        delete_rows(catalog, "db.t", {path: [1] for path in data_paths(catalog)}, per_file=False)
        outcome = compact(ours, output_spec_id="0", rewrite_all="true")
        assert outcome.verified
        assert outcome.checks[-1].name == "row_hash"
        assert outcome.checks[-1].detail.startswith("48 rows are as before: ")

    def test_with_writers_going_on(self, catalog, ours):
        with before_commit(ours, lambda attempt: append(catalog, "db.t", 60, 10) if attempt == 1 else None):
            assert compact(ours).verified
        delete_rows(catalog, "db.t", {data_paths(catalog)[0]: [0]})

    def test_by_policy(self, sql_catalog, tmp_path):
        made, properties = sql_catalog()
        many_small_files(made)
        policies: dict[str, Any] = {"default": {"rewrite_data_files": {"verification": "rows"}}}
        target = lakehouse(tmp_path / "other", properties, policies=policies)
        asked = Request(actions=(Action.REWRITE_DATA_FILES,))
        plan = target.plan((), asked)
        assert plan.tables[0].actions[0].options["verify-rows"] == "true"
        assert [check.name for check in target.apply(plan).tables[0].actions[0].checks][-1] == "row_hash"


@pytest.mark.requirement("IM-13")
def test_what_cannot_be_read_is_a_failed_check(catalog, ours, monkeypatch):
    from lakehouse_maintenance.execution import row_verification

    def lost(*_: Any) -> Any:
        raise KeyError("s3://bucket/lost.parquet")

    monkeypatch.setattr(row_verification, "_deletes", lost)
    outcome = compact(ours)
    assert outcome.status is Status.FAILED
    assert outcome.checks[-1].detail == "s3://bucket/lost.parquet is no longer where it should be"
