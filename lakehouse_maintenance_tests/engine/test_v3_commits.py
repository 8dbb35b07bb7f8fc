"""Commits to v3 tables, by this process and by a service: other writers between, expiry, rollback; Spark judges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.lineage import V3, SparkLake, check_numbering, rest_lake, spark_lake
from lakehouse_maintenance_tests.engine.tables import before_commit, lakehouse
from lakehouse_maintenance_tests.engine.test_expiry import expire
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog, make_sql_catalog
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.spark.session import Spark

SQL = pytest.param("sql", id="sql")
REST = pytest.param("rest", id="rest", marks=pytest.mark.needs_iceberg_rest)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))


@pytest.fixture(params=[SQL, REST])
def lake(request: pytest.FixtureRequest, spark: Spark, tmp_path: Path) -> SparkLake:
    """Two catalogs: one to which we write metadata ourselves, one whose service does."""
    if request.param == "sql":
        writer, properties = make_sql_catalog(tmp_path)
        return spark_lake(spark, tmp_path, writer, properties)
    s3: S3Server = request.getfixturevalue("s3")
    properties = {"type": "rest", "uri": request.getfixturevalue("iceberg_rest").uri(s3.bucket()), **s3.properties}
    writer = AnyCatalog("iceberg-rest", None, properties).again()  # type: ignore[arg-type]
    return rest_lake(spark, tmp_path, writer, properties, s3)  # type: ignore[arg-type]


def between(lake: SparkLake, name: str, then: Callable[[], Any]) -> int:
    """Compacts while somebody else commits between our staging and our commit; returns our attempts."""
    attempts: list[int] = []

    def hook(attempt: int) -> None:
        attempts.append(attempt)
        if attempt == 1:
            then()

    old = lake.raw(name)
    with before_commit(lake.ours, hook):
        outcome = lake.compact(name)
    assert outcome.status is Status.DONE, outcome
    check_numbering(old, lake.raw(name))
    return len(attempts)


def test_what_others_commit_between_stage_and_commit(lake: SparkLake) -> None:
    lake.create("t")
    for first in range(0, 60, 30):
        lake.append("t", first, 30)
    before = lake.lines("t")

    assert between(lake, "t", lambda: lake.append("t", 100, 10)) == 2
    after = lake.lines("t")
    assert {i: line for i, line in after.items() if i < 100} == before
    assert len(after) == 70

    # A vector for a file that is being rewritten: the group is redone with it.
    assert between(lake, "t", lambda: lake.sql("DELETE FROM {}.t WHERE id IN (3, 104)")) == 2
    assert lake.lines("t") == {i: line for i, line in after.items() if i not in (3, 104)}

    # Through another branch: our branch stands where it stood, and the number we staged with is taken.
    lake.append("t", 200, 10)
    lake.sql("ALTER TABLE {}.t CREATE BRANCH b")
    after = lake.lines("t")
    assert between(lake, "t", lambda: lake.sql("INSERT INTO {}.t.branch_b VALUES (300, 'on b')")) == 2
    assert lake.lines("t") == after
    on_branch = lake.lines("t", "VERSION AS OF 'b'")
    assert {i: line for i, line in on_branch.items() if i != 300} == after
    assert on_branch[300][0] not in {line[0] for line in after.values()}

    lake.append("t", 400, 10)
    assert between(lake, "t", lambda: lake.sql("DELETE FROM {}.t.branch_b WHERE id = 7")) == 2
    assert lake.lines("t").keys() == after.keys() | set(range(400, 410))
    assert 7 not in lake.lines("t", "VERSION AS OF 'b'")


def test_ids_that_another_commit_gives_to_rows_without_any_are_kept(lake: SparkLake) -> None:
    """The first commit after an upgrade numbers all rows; ours was staged from files whose rows had no ids."""
    lake.create("t", form="'format-version' = '2'")
    for first in range(0, 60, 30):
        lake.append("t", first, 30)
    lake.sql("ALTER TABLE {}.t SET TBLPROPERTIES ('format-version' = '3')")
    numbered: dict[int, Any] = {}

    def upgrade() -> None:
        lake.append("t", 100, 10)
        numbered.update(lake.lines("t"))

    between(lake, "t", upgrade)
    assert lake.lines("t") == numbered
    assert all(line[0] is not None for line in numbered.values())


@pytest.mark.requirement("IM-05")
def test_expiry_and_rollback(lake: SparkLake) -> None:
    lake.create("t")
    for first in range(0, 60, 30):
        lake.append("t", first, 30)
    lake.sql("DELETE FROM {}.t WHERE id % 7 = 0")
    before, old = lake.lines("t"), lake.raw("t")
    lake.compacted("t")
    compacted = lake.raw("t")

    (moved,) = lake.ours.rollback("main.db.t", to=old["current-snapshot-id"]).tables
    assert moved.status is Status.DONE, moved
    assert lake.raw("t")["current-snapshot-id"] == old["current-snapshot-id"]
    assert lake.raw("t")["next-row-id"] == compacted["next-row-id"], "ids are never given twice"
    assert lake.lines("t") == before
    lake.append("t", 100, 10)
    before, old = lake.lines("t"), lake.raw("t")

    assert expire(lake.ours).status is Status.DONE
    after = lake.raw("t")
    assert len(after["snapshots"]) == 1
    check_numbering(old, after)
    assert lake.lines("t") == before
    lake.sql("UPDATE {}.t SET v = 'after' WHERE id = 5")
    assert lake.lines("t")[5][:2] == (before[5][0], lake.raw("t")["last-sequence-number"])


def test_postgresql(spark: Spark, postgres_catalog: AnyCatalog, s3: S3Server, tmp_path: Path) -> None:
    """Spark has no driver for it here: its table is registered there, and what we make of it with Spark again."""
    folder = tmp_path / "spark"
    folder.mkdir()
    _, properties = make_sql_catalog(folder, warehouse=postgres_catalog.properties["warehouse"], **s3.properties)
    spark.attach("main", folder / "main.db", properties["warehouse"], s3)
    spark.sql("CREATE NAMESPACE main.db")
    theirs = SparkLake(spark, AnyCatalog("sqlite", None, properties).again(), lakehouse(folder, properties))  # type: ignore[arg-type]
    theirs.create("t", form=V3)
    for first in range(0, 60, 30):
        theirs.append("t", first, 30)
    theirs.sql("DELETE FROM {}.t WHERE id % 7 = 0")

    postgres_catalog.writer.create_namespace("db")
    registered = postgres_catalog.writer.register_table("db.t", theirs.table("t").metadata_location)
    ours = lakehouse(tmp_path, postgres_catalog.properties)
    before, old = theirs.lines("t"), theirs.raw("t")
    (outcome,) = ours.maintain(
        (), Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    ).tables
    assert outcome.status is Status.DONE, outcome
    assert expire(ours).status is Status.DONE
    now = postgres_catalog.writer.load_table("db.t").metadata_location
    assert now != registered.metadata_location
    spark.sql(f"CALL main.system.register_table(table => 'db.after', metadata_file => '{now}')")
    check_numbering(old, theirs.raw("after"))
    assert theirs.lines("after") == before
    theirs.append("after", 100, 10)
    assert len(theirs.lines("after")) == len(before) + 10
