"""`output-spec-id`: rows of old partition specs come under another one, and nothing else about them changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg.replace import Replacement, misfit
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.model.plans import MOVED
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
from lakehouse_maintenance_tests.planning_facts import data_file, delete_file
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    made, properties = sql_catalog()
    return made, lakehouse(tmp_path, properties)


@pytest.fixture
def catalog(pair: tuple[SqlCatalog, Lakehouse]) -> SqlCatalog:
    return pair[0]


@pytest.fixture
def ours(pair: tuple[SqlCatalog, Lakehouse]) -> Lakehouse:
    return pair[1]


def asked(spec: int, **options: str) -> Request:
    spelled = {name.replace("_", "-"): value for name, value in options.items()}
    return Request(actions=(Action.REWRITE_DATA_FILES,), options={"output-spec-id": str(spec), **spelled})


def bring(ours: Lakehouse, spec: int, **options: str) -> TableOutcome:
    return ours.maintain(["main.db.t"], asked(spec, **options)).tables[0]


def evolved(catalog: SqlCatalog) -> Table:
    """Six files without a partition, then a spec by `p`."""
    many_small_files(catalog, partitioned=False)
    with catalog.load_table("db.t").update_spec() as update:
        update.add_identity("p")
    return catalog.load_table("db.t")


def partitions(catalog: SqlCatalog) -> set[tuple[int, Any]]:
    tasks = catalog.load_table("db.t").scan().plan_files()
    return {
        (task.file.spec_id, tuple(task.file.partition[i] for i in range(len(task.file.partition)))) for task in tasks
    }


@pytest.mark.requirement("IM-01", "IM-04")
class TestBroughtUnderTheNewSpec:
    def test_all_files_of_the_old_one(self, catalog, ours):
        evolved(catalog)
        outcome = bring(ours, 1)
        assert outcome.status is Status.DONE
        assert outcome.actions[0].verified
        assert partitions(catalog) == {(1, ("a",)), (1, ("b",))}
        assert len(data_paths(catalog)) == 2
        assert ids(catalog) == list(range(60))
        assert ids(catalog, row_filter="p = 'a'") == list(range(1, 60, 2))
        assert all("/data/p=" in path for path in data_paths(catalog))

    def test_the_same_request_again_does_nothing(self, catalog, ours):
        evolved(catalog)
        bring(ours, 1, rewrite_all="true")
        plan = ours.plan(["main.db.t"], asked(1, rewrite_all="true"))
        assert plan.is_empty
        assert "nothing to gain" in plan.tables[0].skipped[0].reason

    def test_into_more_files_since_somebody_asked(self, catalog, ours):
        evolved(catalog)
        with catalog.load_table("db.t").update_spec() as update:
            update.remove_field("p")
            update.add_identity("id")
        assert bring(ours, 2).status is Status.DONE
        assert len(data_paths(catalog)) == 60
        assert ids(catalog) == list(range(60))
        assert bring(ours, 2).actions == ()

    def test_a_single_file_of_the_old_spec(self, catalog, ours):
        many_small_files(catalog, commits=1, partitioned=False)
        with catalog.load_table("db.t").update_spec() as update:
            update.add_identity("p")
        assert bring(ours, 1, rewrite_all="true").status is Status.DONE
        assert partitions(catalog) == {(1, ("a",)), (1, ("b",))}

    def test_rows_in_order(self, catalog, ours):
        evolved(catalog)
        request = replace(asked(1), strategy="sort", sort_order="id DESC")
        assert ours.maintain(["main.db.t"], request).tables[0].status is Status.DONE
        found = {path: pq.read_table(path.removeprefix("file://"))["id"].to_pylist() for path in data_paths(catalog)}
        assert sorted(found.values()) == [list(range(58, -1, -2)), list(range(59, 0, -2))]

    def test_back_under_the_spec_without_partitions(self, catalog, ours):
        many_small_files(catalog)
        outcome = bring(ours, 0)
        assert outcome.status is Status.DONE
        assert partitions(catalog) == {(0, ())}
        assert len(data_paths(catalog)) == 1, "files of several partitions went together"
        assert ids(catalog) == list(range(60))

    def test_new_files_keep_their_partition(self, catalog, ours):
        evolved(catalog)
        for start in range(60, 110, 10):
            append(catalog, "db.t", start, 10)
        plan = ours.plan(["main.db.t"], asked(1))
        groups = plan.tables[0].actions[0].groups
        assert {(group.moves_to, group.partition) for group in groups} == {(None, '["a"]'), (None, '["b"]'), (1, MOVED)}
        assert bring(ours, 1).status is Status.DONE
        assert len(data_paths(catalog)) == 4
        assert ids(catalog) == list(range(110))

    def test_without_the_option_each_file_keeps_its_spec(self, catalog, ours):
        evolved(catalog)
        ours.maintain(["main.db.t"], Request(actions=(Action.REWRITE_DATA_FILES,)))
        assert partitions(catalog) == {(0, ())}

    def test_too_few_small_files_are_left_alone(self, catalog, ours):
        many_small_files(catalog, commits=2, partitioned=False)
        with catalog.load_table("db.t").update_spec() as update:
            update.add_identity("p")
        plan = ours.plan(["main.db.t"], asked(1))
        assert "2 files: too few" in plan.tables[0].skipped[0].reason


@pytest.mark.requirement("IM-01")
@pytest.mark.parametrize("spec", ["7", "99999"])
def test_an_unknown_spec_is_refused(catalog, ours, spec):
    many_small_files(catalog)
    made = ours.plan(["main.db.t"], asked(int(spec))).tables[0]
    assert made.actions == ()
    assert made.error == f"rewrite_data_files: the table has no partition spec {spec} (its specs: 0, 1)"


def test_a_spec_whose_column_is_gone_is_refused(catalog, ours):
    many_small_files(catalog)
    with catalog.load_table("db.t").update_spec() as update:
        update.remove_field("p")
    with catalog.load_table("db.t").update_schema() as update:
        update.delete_column("p")
    made = ours.plan(["main.db.t"], asked(1)).tables[0]
    assert "of a column that the table no longer has" in str(made.error)


@pytest.mark.requirement("IM-03", "IM-26")
def test_deletes_of_the_old_partitions_are_applied_and_go(catalog, ours):
    many_small_files(catalog)
    delete_rows(catalog, "db.t", {path: [0] for path in data_paths(catalog)}, per_file=False)
    left = ids(catalog)
    assert len(left) == 48
    outcome = bring(ours, 0)
    assert outcome.actions[0].verified
    assert outcome.actions[0].actual.removed_delete_files == 2
    assert ids(catalog) == left
    assert ours.health(["main.db.t"])[0].delete_files == 0


@pytest.mark.requirement("IM-12")
def test_a_delete_committed_meanwhile_redoes_the_group(catalog, ours):
    evolved(catalog)
    first = data_paths(catalog)[0]

    def delete(attempt: int) -> None:
        if attempt == 1:
            delete_rows(catalog, "db.t", {first: [3]})

    with before_commit(ours, delete):
        outcome = bring(ours, 1)
    assert outcome.status is Status.DONE
    assert len(ids(catalog)) == 59
    assert ours.health(["main.db.t"])[0].delete_files == 0


@pytest.mark.requirement("IM-12")
def test_an_append_meanwhile_survives(catalog, ours):
    evolved(catalog)
    with before_commit(ours, lambda attempt: append(catalog, "db.t", 60, 10) if attempt == 1 else None):
        assert bring(ours, 1).actions[0].verified
    assert ids(catalog) == list(range(70))


STRING = {"type": "record", "name": "r102", "fields": [{"name": "p", "type": ["null", "string"], "field-id": 1000}]}


@pytest.mark.requirement("IM-12")
class TestEqualityDeletesOfOnePartition:
    """The starting sequence number keeps global ones; one of a partition reaches inputs or outputs, not both."""

    data = data_file("f", 1, spec=1, partition='["x"]')
    group = Replacement(
        (data,),
        {"f": frozenset()},
        ({"file_path": "o", "spec_id": 2, "partition": {"p": "a"}, "record_count": 1, "file_size_in_bytes": 1},),
        sequence_number=5,
        rows=1,
        partition_type=STRING,
    )

    def why(self, group: Replacement, **delete: Any) -> str | None:
        found = DeleteIndex([delete_file("d", equality=True, **delete)], frozenset({0}))
        return misfit(group, {"f": self.data}, found)

    def test_of_the_inputs(self):
        assert "equality deletes of one partition" in str(self.why(self.group, spec=1, partition='["x"]', sequence=6))

    def test_of_the_outputs(self):
        assert "equality deletes of one partition" in str(self.why(self.group, spec=2, partition='["a"]', sequence=6))

    def test_of_others(self):
        assert self.why(self.group, spec=2, partition='["b"]', sequence=6) is None

    def test_global_ones_go_on_to_apply(self):
        assert self.why(self.group, spec=0, sequence=6) is None

    def test_older_ones_of_the_outputs_partition_do_not_reach_them(self):
        assert self.why(self.group, spec=2, partition='["a"]', sequence=5) is None

    def test_of_the_inputs_where_they_stay_in_their_partition(self):
        stays = replace(self.group, partition_type=None)
        assert self.why(stays, spec=1, partition='["x"]', sequence=6) is None

    def test_outputs_with_our_own_number_are_reached_by_none(self):
        own = replace(self.group, sequence_number=None)
        assert self.why(own, spec=2, partition='["a"]', sequence=6) is None
