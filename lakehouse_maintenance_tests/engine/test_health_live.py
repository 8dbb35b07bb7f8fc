"""Health of tables that change: what was counted and done last, advice that is followed, features that are named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.transforms import IdentityTransform

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.stores import LIMITS
from lakehouse_maintenance_tests.engine.tables import SCHEMA, append, before_commit, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import ALL, expire
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

NAME = "main.db.t"
MERGE = "commit.manifest-merge.enabled"
SET = Request(actions=(Action.SET_PROPERTIES,))


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties, limits=LIMITS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr("lakehouse_maintenance.iceberg.commit.random.uniform", lambda low, high: 0.0)


@pytest.mark.requirement("IM-14")
def test_orphans_as_last_counted_and_what_ran_last(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer, commits=2)
    before = ours.health()[0]
    assert (before.orphan_files, before.orphan_bytes, before.orphans_counted_ms) == (None, None, None)
    assert before.last_maintenance == {}
    folder = tmp_path / "warehouse" / "db" / "t" / "data"
    for number in range(3):
        (folder / f"stray-{number}.parquet").write_bytes(b"x" * 100)
    import os

    for stray in folder.glob("stray-*"):
        os.utime(stray, (0, 1_600_000_000))
    ours.orphans((NAME,))
    counted = ours.health()[0]
    assert (counted.orphan_files, counted.orphan_bytes) == (3, 300)
    assert counted.orphans_counted_ms is not None
    ours.orphans((NAME,), delete=True)
    assert ours.health()[0].orphan_bytes == 0
    ours.maintain((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"}))
    after = ours.health()[0]
    assert set(after.last_maintenance) == {"remove_orphan_files", "rewrite_data_files"}
    # Another machine, with a state of its own, sees what the table itself tells.
    elsewhere = lakehouse(tmp_path / "elsewhere", ours.config.catalogs["main"].properties())
    assert set(elsewhere.health()[0].last_maintenance) == {"rewrite_data_files"}
    assert elsewhere.health()[0].orphan_files is None
    # Another table under the name has none of it.
    writer.drop_table("db.t")
    many_small_files(writer, commits=1)
    assert ours.health()[0].orphan_files is None


@pytest.mark.requirement("IM-21")
def test_what_a_query_on_one_partition_opens_before_and_after(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path
) -> None:
    writer, ours = pair
    many_small_files(writer, commits=6)
    before = ours.health()[0]
    # Each commit wrote a file of both partitions, and a manifest that covers both.
    assert (before.opened_manifests_median, before.opened_manifests_worst) == (6, 6)
    assert (before.opened_files_median, before.opened_files_worst) == (6, 6)
    assert (before.opened_manifests_worst_after, before.opened_files_worst_after) == (1, 1)
    assert before.manifests_after == 1
    ours.maintain((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,)))
    after = ours.health()[0]
    assert after.opened_files_worst == before.opened_files_worst_after
    # A tag on a table without rows in it, and a branch, change nothing.
    assert (after.partitions, after.partition_skew_percent) == (2, 100)


@pytest.mark.requirement("IM-15")
def test_a_table_out_of_order_is_due_for_sorting_and_one_in_order_is_not(
    sql_catalog: SqlCatalogFactory, tmp_path: Path
) -> None:
    writer, properties = sql_catalog()
    trigger = {"of": "overlapping_files", "base": 5}
    rewrite = {"strategy": "sort", "sort_order": "id ASC", "trigger": trigger}
    ours = lakehouse(tmp_path, properties, policies={"default": {"rewrite_data_files": rewrite}})
    writer.create_namespace("db")
    for name in ("db.ordered", "db.shuffled"):
        writer.create_table(name, SCHEMA)
    for number in range(8):
        append(writer, "db.ordered", number * 10, 10)
        rows = pa.table([[number, 1000 - number], ["a", "b"], [0.0, 1.0]], schema=SCHEMA)
        writer.load_table("db.shuffled").append(rows)
    ordered, shuffled = ours.health()
    assert (ordered.overlapping_files, ordered.overlap_depth_percent) == (0, 100)
    assert (shuffled.overlapping_files, shuffled.overlap_depth_percent) == (8, 800)
    assert "rewrite_data_files" not in [due.action for due in ordered.due]
    assert [due.reason for due in shuffled.due if due.action == "rewrite_data_files"] == ["overlapping_files 8 ≥ 5"]
    # Without a sort order in force nothing is read of bounds; with the table's own it is.
    plain = lakehouse(tmp_path / "plain", properties)
    assert plain.health()[1].overlapping_files is None
    with writer.load_table("db.shuffled").update_sort_order() as update:
        update.asc("id", IdentityTransform())
    assert plain.health()[1].overlapping_files == 8


def crowded(writer: SqlCatalog) -> None:
    """A table whose manifests nobody merges."""
    many_small_files(writer, commits=1)
    for number in range(5):
        append(writer, "db.t", 100 + number, 1)


@pytest.fixture
def advised(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[SqlCatalog, Lakehouse]:
    """A table of six manifests, which are many here, under a policy that follows advice."""
    monkeypatch.setattr("lakehouse_maintenance.planning.advice.MANY_MANIFESTS", 6)
    writer, properties = sql_catalog()
    section = {"advised": ["commit.manifest.min-count-to-merge"], "values": {"write.parquet.compression-level": 3}}
    ours = lakehouse(tmp_path, properties, policies={"default": {"set_properties": section}})
    crowded(writer)
    return writer, ours


@pytest.mark.requirement("IM-18")
def test_advice_is_shown_with_its_evidence_and_followed_where_the_policy_says_so(
    advised: tuple[SqlCatalog, Lakehouse], tmp_path: Path
) -> None:
    writer, ours = advised
    health = ours.health()[0]
    (one,) = health.advice
    assert (one.property, one.value, one.current) == ("commit.manifest.min-count-to-merge", "20", None)
    assert one.reason.startswith("6 manifests (")
    assert json.loads(json.dumps(health.as_json()))["advice"][0]["property"] == one.property
    assert health.properties_to_set == 2
    assert "set_properties" in [due.action for due in health.due]
    outcome = ours.maintain().tables[0]
    done = next(action for action in outcome.actions if action.action == Action.SET_PROPERTIES)
    assert (done.status, done.verified) == (Status.DONE, True)
    assert f"{one.property}: unset → 20" in done.notes
    properties = writer.load_table("db.t").properties
    assert (properties[one.property], properties["write.parquet.compression-level"]) == ("20", "3")
    assert not ours.health()[0].advice
    assert "set_properties" not in [due.action for due in ours.health()[0].due]
    # A policy that says nothing sets nothing.
    quiet = lakehouse(tmp_path / "quiet", ours.config.catalogs["main"].properties())
    assert quiet.maintain((NAME,), SET).tables[0].reason.endswith("every property that the policy wants is set")


@pytest.mark.requirement("IM-18")
def test_a_property_that_somebody_sets_meanwhile_is_left(advised: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = advised
    level = "write.parquet.compression-level"

    def hook(attempt: int) -> None:
        if attempt == 1:
            with writer.load_table("db.t").transaction() as transaction:
                transaction.set_properties({level: "9"})

    with before_commit(ours, hook):
        outcome = ours.maintain((NAME,), SET).tables[0]
    assert outcome.status is Status.FAILED
    assert f"somebody set {level} to '9' meanwhile" in outcome.reason
    assert writer.load_table("db.t").properties[level] == "9"
    # An append in that moment is no conflict that anybody notices.
    with before_commit(ours, lambda attempt: append(writer, "db.t", 900, 1) if attempt == 1 else None):
        assert ours.maintain((NAME,), SET).tables[0].status is Status.DONE
    assert 900 in ids(writer)


@pytest.mark.requirement("IM-18")
@pytest.mark.parametrize("arrived", [True, False])
def test_lost_answers(advised: tuple[SqlCatalog, Lakehouse], arrived: bool) -> None:
    writer, ours = advised
    catalog = ours.catalogs["main"].pyiceberg
    real: Callable[..., Any] = catalog.commit_table

    def lose(*args: Any) -> Any:
        if arrived:
            real(*args)
        raise CommitStateUnknownException("the connection was closed")

    catalog.commit_table = lose  # type: ignore[method-assign]
    outcome = ours.maintain((NAME,), SET).tables[0]
    assert outcome.status is (Status.DONE if arrived else Status.UNKNOWN), outcome
    catalog.commit_table = real  # type: ignore[method-assign]
    if not arrived:
        again = ours.maintain((NAME,), SET).tables[0]
        assert [(one.action, one.status) for one in again.recovered] == [("set_properties", Status.FAILED)]
        assert again.status is Status.DONE
    assert writer.load_table("db.t").properties["write.parquet.compression-level"] == "3"


@pytest.mark.requirement("IM-22")
def test_metadata_alone_is_maintained_where_data_cannot_be(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    with writer.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"encryption.key-id": "k1"})
    rows = ids(writer)
    assert ours.health()[0].features == ("encryption",)
    skipped = ours.plan((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,))).tables[0].skipped
    assert [skip.reason for skip in skipped] == ["unsupported: the embedded engine cannot keep: encryption"]
    assert expire(ours, ALL).status is Status.DONE
    assert len(writer.load_table("db.t").metadata.snapshots) == 1
    assert ids(writer) == rows


@pytest.mark.requirement("IM-22")
@pytest.mark.parametrize("kind", ["variant", "geometry(OGC:CRS84)", "vector[3]"])
def test_columns_of_types_that_are_not_known_are_named(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, kind: str
) -> None:
    writer, ours = pair
    table = many_small_files(writer, commits=1)
    path = Path(table.metadata_location.removeprefix("file://"))
    raw = json.loads(path.read_text())
    raw["format-version"] = 3
    nested = {"type": "struct", "fields": [{"id": 91, "name": "v", "required": False, "type": kind}]}
    for schema in raw["schemas"]:
        schema["fields"].append({"id": 90, "name": "s", "required": False, "type": nested})
    path.with_name("by-hand.metadata.json").write_text(json.dumps(raw))
    with sqlite3.connect(tmp_path / "main.db") as database:
        by_hand = f"file://{path.with_name('by-hand.metadata.json')}"
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (by_hand,))
    (health,) = ours.health()
    assert health.error is None, "measuring needs metadata alone"
    name = kind.split("(", maxsplit=1)[0].split("[", maxsplit=1)[0]
    assert (health.features, health.records) == ((name,), 10)
    (skip,) = ours.plan((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,))).tables[0].skipped
    assert name in skip.reason
    there = set((path.parents[1] / "data").rglob("*.parquet"))
    stray = path.parents[1] / "data" / "stray.parquet"
    stray.write_bytes(b"nobody's")
    any_age = OrphanRequest(older_than=timedelta(0), allow_short_retention=True)
    outcome = ours.maintain((NAME,), Request(actions=(Action.REMOVE_ORPHAN_FILES,), orphans=any_age)).tables[0]
    assert outcome.status is Status.DONE, outcome
    assert set((path.parents[1] / "data").rglob("*.parquet")) == there
    assert path.with_name("by-hand.metadata.json").exists()
