"""The audit table of untracked folders on every kind of catalog: created, found, widened, written, and who reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, NestedField, StringType, TimestamptzType
from sqlalchemy.exc import IntegrityError

from lakehouse_maintenance.audit import FolderAudit
from lakehouse_maintenance.catalogs import Catalog, open_catalog
from lakehouse_maintenance.model.errors import AuditError, InputError
from lakehouse_maintenance.model.folders import OPERATION, AuditRow, RowStatus
from lakehouse_maintenance_tests.readers import read_duckdb, sql_text
from lakehouse_maintenance_tests.services import faults
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog, SqlCatalogFactory
from lakehouse_maintenance_tests.services.faults import Answer, Lose, fault_proxy
from lakehouse_maintenance_tests.services.spark.session import Spark

NAMESPACE = "iomete_system_db"
TABLE = "cleanup_untracked_table_folder_runs"
AT = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)

TEXT, FLAG, COUNT, TIME, PATHS = "string", "boolean", "long", "timestamptz", "list<string>"
SOURCE_COLUMNS = {
    "run_id": TEXT,
    "spark_app_id": TEXT,
    "runtime_compute_id": TEXT,
    "runtime_compute_namespace": TEXT,
    "runtime_domain": TEXT,
    "runtime_user": TEXT,
    "external_job_id": TEXT,
    "platform_started_by": TEXT,
    "catalog_name": TEXT,
    "database_name": TEXT,
    "operation": TEXT,
    "dry_run": FLAG,
    "delete_enabled": FLAG,
    "older_than_hours": "double",
    "cutoff_time": TIME,
    "max_candidate_folders_per_database": COUNT,
    "excluded_paths": PATHS,
    "status": TEXT,
    "status_reason": TEXT,
    "error_message": TEXT,
    "discovered_database_location": TEXT,
    "storage_scan_location": TEXT,
    "active_table_count": COUNT,
    "unresolved_table_count": COUNT,
    "storage_folder_count": COUNT,
    "candidate_folder_count": COUNT,
    "potentially_untracked_folder_count": COUNT,
    "deleted_folder_count": COUNT,
    "candidate_folders": PATHS,
    "deleted_folders": PATHS,
    "candidate_object_count": COUNT,
    "candidate_total_size_bytes": COUNT,
    "deleted_object_count": COUNT,
    "deleted_total_size_bytes": COUNT,
    "diagnostic_details": TEXT,
    "start_time": TIME,
    "end_time": TIME,
}
"""The source's columns in its order, typed out once more."""

EXAMPLE_QUERY = """
SELECT
  start_time,
  database_name,
  status,
  status_reason,
  dry_run,
  delete_enabled,
  candidate_folder_count,
  deleted_folder_count,
  runtime_user,
  platform_started_by,
  external_job_id
FROM {table}
ORDER BY start_time DESC
LIMIT 20
"""
"""The source's, but for the table's name."""

HOSTILE = "it's \"quoted\" \\ `ticked`\nnew\tline 🧊 ünïcode \x00 $'; DROP TABLE x --"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr(FolderAudit, "pause", staticmethod(lambda attempt: None))


def row(database: str = "analytics", **changes: Any) -> AuditRow:
    made = AuditRow(
        run_id="run-1",
        spark_app_id=None,
        runtime_compute_id=None,
        runtime_compute_namespace="spark-resources-1",
        runtime_domain=None,
        runtime_user="hasan",
        external_job_id="3e9342e7",
        platform_started_by="fde_admin",
        catalog_name="main",
        database_name=database,
        operation=OPERATION,
        dry_run=False,
        delete_enabled=True,
        older_than_hours=24.0,
        cutoff_time=AT - timedelta(hours=24),
        max_candidate_folders_per_database=10,
        excluded_paths=("s3a://bucket/data/analytics/kept", "analytics.manual"),
        status=RowStatus.SUCCESS,
        status_reason=None,
        error_message=None,
        discovered_database_location="s3://bucket/data/analytics",
        storage_scan_location="s3://bucket/data/analytics",
        active_table_count=3,
        unresolved_table_count=0,
        storage_folder_count=5,
        candidate_folder_count=2,
        potentially_untracked_folder_count=0,
        deleted_folder_count=1,
        candidate_folders=("s3://bucket/data/analytics/a", "s3://bucket/data/analytics/b"),
        deleted_folders=("s3://bucket/data/analytics/a",),
        candidate_object_count=7,
        candidate_total_size_bytes=5_000_000_000,
        deleted_object_count=4,
        deleted_total_size_bytes=3_000_000_000,
        diagnostic_details={"removal": "delete", "folders": [{"path": "s3://bucket/ä", "objects": 4}]},
        start_time=AT,
        end_time=AT + timedelta(seconds=3),
    )
    return replace(made, **changes)


def as_stored(of: AuditRow) -> dict[str, Any]:
    """What a reader has to get back."""
    found = {name: getattr(of, name) for name in SOURCE_COLUMNS}
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = list(value)
    return {**found, "status": of.status.value, "diagnostic_details": of.diagnostic_details}


def stored(audit: FolderAudit, run_id: str | None = None) -> list[dict[str, Any]]:
    return [{**one, "diagnostic_details": json.loads(one["diagnostic_details"])} for one in audit.rows(run_id)]


def opened(any_catalog: AnyCatalog) -> Catalog:
    return open_catalog("main", any_catalog.properties)


@pytest.fixture
def sqlite(sql_catalog: SqlCatalogFactory) -> Iterator[Catalog]:
    """Ours, on a SQLite file and local files."""
    _, properties = sql_catalog()
    catalog = open_catalog("main", properties)
    yield catalog
    catalog.close()


def prepared(catalog: Catalog, namespace: str = NAMESPACE) -> FolderAudit:
    audit = FolderAudit(catalog, namespace)
    audit.prepare()
    return audit


@pytest.mark.requirement("UF-21")
def test_the_table_is_created_with_the_sources_columns_and_holds_one_row_a_database(any_catalog: AnyCatalog) -> None:
    first, second = (
        row(),
        row("sales", status=RowStatus.SKIPPED, status_reason="database_not_found", error_message="no"),
    )
    audit = prepared(opened(any_catalog))
    audit.write(first)
    audit.write(second)

    table = any_catalog.writer.load_table((NAMESPACE, TABLE))
    assert {column.name: str(column.field_type) for column in table.schema().fields} == SOURCE_COLUMNS
    assert [column.name for column in table.schema().fields] == list(SOURCE_COLUMNS)
    assert len(table.metadata.snapshots) == 2, "one commit a row"
    assert stored(audit) == [as_stored(first), as_stored(second)]

    again = prepared(opened(any_catalog))
    again.write(row(run_id="run-2"))
    assert len(stored(again)) == 3
    assert stored(again, "run-1") == [as_stored(first), as_stored(second)]
    assert any_catalog.writer.load_table((NAMESPACE, TABLE)).metadata.current_schema_id == 0, "nothing was added"


@pytest.mark.requirement("UF-21")
def test_the_databases_name_is_chosen_and_may_have_levels(sqlite: Catalog) -> None:
    audit = prepared(sqlite, "ops.audits.`of.folders`")
    audit.write(row())
    assert sqlite.pyiceberg.list_tables(("ops", "audits", "of.folders")) == [("ops", "audits", "of", "folders", TABLE)]
    assert stored(audit) == [as_stored(row())]


@pytest.mark.parametrize("rest_catalog", ["iceberg-rest"], indirect=True)
@pytest.mark.needs_iceberg_rest
def test_levels_on_a_rest_catalog(rest_catalog: AnyCatalog) -> None:
    audit = prepared(opened(rest_catalog), "ops.audits")
    audit.write(row())
    assert rest_catalog.writer.list_tables(("ops", "audits")) == [("ops", "audits", TABLE)]
    assert stored(audit) == [as_stored(row())]


@pytest.mark.parametrize("name", ["", "a..b", "`open"])
def test_a_text_that_is_no_name_is_refused(sqlite: Catalog, name: str) -> None:
    with pytest.raises(InputError):
        FolderAudit(sqlite, name)


# Who reads it.


@pytest.mark.requirement("UF-31")
def test_the_sources_example_query_runs_in_duckdb(sqlite: Catalog) -> None:
    audit = prepared(sqlite)
    for number in range(3):
        audit.write(row(f"db{number}", run_id=f"run-{number}", start_time=AT + timedelta(minutes=number)))
    found = _in_duckdb(sqlite)
    assert [one["database_name"] for one in found] == ["db2", "db1", "db0"]
    assert found[0] == _answer("db2", AT + timedelta(minutes=2))


@pytest.mark.requirement("UF-31")
def test_the_sources_example_query_runs_in_spark_which_can_write_there_too(
    spark: Spark, sqlite: Catalog, tmp_path: Path
) -> None:
    audit = prepared(sqlite)
    audit.write(row())
    spark.attach("main", tmp_path / "main.db", sqlite.properties["warehouse"])
    name = f"main.{NAMESPACE}.{TABLE}"

    def query() -> list[dict[str, Any]]:
        found = spark.sql(EXAMPLE_QUERY.format(table=name)).toArrow().to_pylist()
        return [{**one, "start_time": one["start_time"].astimezone(UTC)} for one in found]

    assert query() == [_answer("analytics", AT)]
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name}")
    audit.write(row("later", start_time=AT + timedelta(hours=1)))
    assert [one["database_name"] for one in query()] == ["later", "analytics", "analytics"]
    assert _in_duckdb(sqlite) == query()


def _in_duckdb(catalog: Catalog) -> list[dict[str, Any]]:
    """The query on the table's current metadata."""
    from lakehouse_maintenance_tests.readers import _duckdb_connection

    location = catalog.pyiceberg.load_table((NAMESPACE, TABLE)).metadata_location
    scan = f"iceberg_scan({sql_text(location.removeprefix('file://'))})"
    found = _duckdb_connection({}).execute(EXAMPLE_QUERY.format(table=scan)).to_arrow_table().to_pylist()
    return [{**one, "start_time": one["start_time"].astimezone(UTC)} for one in found]


def _answer(database: str, start: datetime) -> dict[str, Any]:
    return {
        "start_time": start,
        "database_name": database,
        "status": "SUCCESS",
        "status_reason": None,
        "dry_run": False,
        "delete_enabled": True,
        "candidate_folder_count": 2,
        "deleted_folder_count": 1,
        "runtime_user": "hasan",
        "platform_started_by": "fde_admin",
        "external_job_id": "3e9342e7",
    }


@pytest.mark.requirement("UF-31")
def test_details_of_skips_and_odd_texts_are_kept_to_the_letter(any_catalog: AnyCatalog) -> None:
    odd = row(
        HOSTILE,
        status=RowStatus.SKIPPED,
        status_reason="too_many_candidate_folders",
        error_message=HOSTILE * 1000,
        excluded_paths=("s3a://bucket/kept", f"analytics.{HOSTILE}"),
        candidate_folders=tuple(f"s3://bucket/{number}/{HOSTILE}" for number in range(500)),
        deleted_folders=(),
        diagnostic_details={"candidate_folders_truncated": True, HOSTILE: [HOSTILE, None, {"ü": 1}]},
        max_candidate_folders_per_database=10**12,
        candidate_total_size_bytes=2**62,
    )
    audit = prepared(opened(any_catalog))
    audit.write(odd)
    assert stored(audit) == [as_stored(odd)]
    if any_catalog.kind == "sqlite":
        location = any_catalog.writer.load_table((NAMESPACE, TABLE)).metadata_location
        (seen,) = map(json.loads, read_duckdb(location))
        assert seen["database_name"] == HOSTILE
        assert seen["candidate_folders"] == list(odd.candidate_folders)
        assert json.loads(seen["diagnostic_details"]) == odd.diagnostic_details


def test_a_name_whose_bytes_are_no_utf8_does_not_cost_the_row(sqlite: Catalog) -> None:
    broken = b"file:///data/caf\xe9".decode("utf-8", "surrogateescape")
    audit = prepared(sqlite)
    audit.write(row(broken, deleted_folders=(broken,), diagnostic_details={broken: [broken]}))
    (found,) = stored(audit)
    written = r"file:///data/caf\udce9"
    assert found["database_name"] == written
    assert found["deleted_folders"] == [written]
    assert found["diagnostic_details"] == {broken: [broken]}, "in JSON the same text means the name itself"


# Tables that are there already.


def _another(catalog: Catalog, *columns: tuple[str, Any, bool], properties: dict[str, str] | None = None) -> Any:
    """A table of the audit's name with these columns."""
    catalog.pyiceberg.create_namespace(NAMESPACE)
    fields = [NestedField(number, *one[:2], required=one[2]) for number, one in enumerate(columns, 1)]
    return catalog.pyiceberg.create_table((NAMESPACE, TABLE), Schema(*fields), properties=properties or {})


def test_missing_columns_are_added_and_narrow_ones_widened(any_catalog: AnyCatalog) -> None:
    """An earlier version's table, with rows, another order of columns and one that is not ours."""
    catalog = opened(any_catalog)
    table = _another(
        catalog,
        ("end_time", TimestamptzType(), False),
        ("note", StringType(), False),
        ("active_table_count", IntegerType(), False),
        ("run_id", StringType(), True),
        ("older_than_hours", IntegerType(), False),
        ("deleted_folders", ListType(90, StringType(), element_required=True), False),
    )
    table.append(
        pa.table(
            {"run_id": ["old"], "note": ["mine"]},
            schema=_not_null(pa.schema([("run_id", pa.string()), ("note", pa.string())]), "run_id"),
        )
    )
    audit = prepared(catalog)
    audit.write(row())
    found = {
        one["run_id"]: one for one in catalog.pyiceberg.load_table((NAMESPACE, TABLE)).scan().to_arrow().to_pylist()
    }
    assert found["old"]["note"] == "mine"
    assert found["old"]["database_name"] is None
    mine = found["run-1"]
    assert mine.pop("note") is None
    mine["diagnostic_details"] = json.loads(mine["diagnostic_details"])
    assert mine == as_stored(row())
    types = {one.name: one.field_type for one in catalog.pyiceberg.load_table((NAMESPACE, TABLE)).schema().fields}
    assert types["active_table_count"] == LongType()
    assert types["older_than_hours"] == IntegerType()


def _not_null(schema: pa.Schema, name: str) -> pa.Schema:
    at = schema.get_field_index(name)
    return schema.set(at, schema.field(at).with_nullable(False))


@pytest.mark.parametrize(
    ("column", "kind", "required"),
    [
        ("cutoff_time", StringType(), False),
        ("candidate_folders", StringType(), False),
        ("deleted_folders", ListType(9, LongType()), False),
        ("active_table_count", StringType(), False),
        ("run_id", LongType(), False),
        ("max_candidate_folders_per_database", DoubleType(), False),
        ("status_reason", StringType(), True),
        ("somebodys_own", StringType(), True),
    ],
)
def test_a_column_that_does_not_fit_is_named_and_nothing_is_changed(
    sqlite: Catalog, column: str, kind: Any, required: bool
) -> None:
    before = _another(sqlite, ("operation", StringType(), False), (column, kind, required)).metadata_location
    audit = FolderAudit(sqlite, NAMESPACE)
    with pytest.raises(AuditError, match=rf"main\.{NAMESPACE}\.{TABLE}: column {column} ") as caught:
        audit.prepare()
    assert caught.value.field == f"main.{NAMESPACE}.{TABLE}"
    with pytest.raises(AuditError, match=f"column {column} "):
        audit.write(row())
    assert sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).metadata_location == before


def test_a_column_of_whole_hours_refuses_a_part_of_one_before_anything_is_done(sqlite: Catalog) -> None:
    before = _another(sqlite, ("older_than_hours", LongType(), False)).metadata_location
    audit = FolderAudit(sqlite, NAMESPACE)
    with pytest.raises(AuditError, match=r"older_than_hours has type long, .* 1\.5"):
        audit.prepare(older_than_hours=1.5)
    assert sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).metadata_location == before
    audit.prepare(older_than_hours=36.0)
    audit.write(row(older_than_hours=36.0))
    assert audit.rows()[0]["older_than_hours"] == 36


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"format-version": 3, "next-row-id": 0}, "has format version 3"),
        ({"encryption-keys": [{"key-id": "k", "encrypted-key-metadata": "AA=="}]}, "would drop encryption-keys"),
    ],
)
def test_a_table_that_we_cannot_commit_to_is_refused_before_anything_is_done(
    sqlite: Catalog, extra: dict[str, Any], why: str
) -> None:
    prepared(sqlite)
    metadata = Path(sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).metadata_location.removeprefix("file://"))
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | extra))
    with pytest.raises(AuditError, match=rf"main\.{NAMESPACE}\.{TABLE}.* {why}"):
        FolderAudit(sqlite, NAMESPACE).prepare()


def test_a_view_of_that_name_is_said(sqlite: Catalog, tmp_path: Path) -> None:
    import sqlite3

    sqlite.pyiceberg.create_namespace(NAMESPACE)
    with sqlite3.connect(tmp_path / "main.db") as connection:
        connection.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, iceberg_type) VALUES (?, ?, ?, ?)",
            ("main", NAMESPACE, TABLE, "VIEW"),
        )
    with pytest.raises(AuditError, match="no Iceberg table"):
        FolderAudit(sqlite, NAMESPACE).prepare()


def test_a_branchs_own_retention_stays(sqlite: Catalog) -> None:
    audit = prepared(sqlite)
    audit.write(row())
    table = sqlite.pyiceberg.load_table((NAMESPACE, TABLE))
    head = table.current_snapshot()
    assert head is not None
    kept = {"max_ref_age_ms": None, "max_snapshot_age_ms": 10**12, "min_snapshots_to_keep": 7}
    ref = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=head.snapshot_id, **kept)
    sqlite.pyiceberg.commit_table(table, (), (ref,))
    audit.write(row("b"))
    main = sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).metadata.refs["main"]
    assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (10**12, 7)


def test_nothing_is_removed_from_storage(sqlite: Catalog, tmp_path: Path) -> None:
    """Not even old metadata that the table's own properties let PyIceberg remove after a commit."""
    _another(
        sqlite,
        ("run_id", StringType(), False),
        properties={"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"},
    )
    audit = FolderAudit(sqlite, NAMESPACE)
    seen: set[Path] = set()
    steps = [audit.prepare, *(lambda number=number: audit.write(row(f"db{number}")) for number in range(4))]
    for step in steps:
        step()
        now = {path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()}
        assert now >= seen
        seen = now
    assert len(audit.rows()) == 4


# Several at once.


def test_two_runs_that_start_at_once_create_one_table_and_lose_no_row(any_catalog: AnyCatalog) -> None:
    runs, rows = 2, 4
    together = Barrier(runs, timeout=60)

    def work(run: int) -> None:
        catalog = opened(any_catalog)
        audit = FolderAudit(catalog, NAMESPACE)
        together.wait()
        audit.prepare()
        together.wait()
        for number in range(rows):
            audit.write(row(f"db{number}", run_id=f"run-{run}"))
        catalog.close()

    with ThreadPoolExecutor(runs) as pool:
        for done in [pool.submit(work, run) for run in range(runs)]:
            done.result()
    found = FolderAudit(opened(any_catalog), NAMESPACE).rows()
    expected = {(f"run-{run}", f"db{number}") for run in range(runs) for number in range(rows)}
    assert {(one["run_id"], one["database_name"]) for one in found} == expected
    assert len(found) == runs * rows


@pytest.mark.parametrize("call", ["create_namespace", "create_table"])
@pytest.mark.parametrize("error", [None, IntegrityError("INSERT", (), Exception("UNIQUE constraint failed"))])
def test_another_run_that_creates_first_is_as_good(
    sqlite: Catalog, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception | None
) -> None:
    """What it finds then is said in PyIceberg's words or, between its look and its insert, in the database's."""
    theirs = FolderAudit(open_catalog("main", sqlite.properties), NAMESPACE)
    real = getattr(sqlite.pyiceberg, call)

    def second(*given: Any, **named: Any) -> Any:
        theirs.prepare()
        if error is not None:
            raise error
        return real(*given, **named)

    monkeypatch.setattr(sqlite.pyiceberg, call, second)
    audit = prepared(sqlite)
    theirs.write(row("theirs"))
    audit.write(row("ours"))
    assert [one["database_name"] for one in audit.rows()] == ["ours", "theirs"]


def test_two_runs_add_the_same_columns(sqlite: Catalog) -> None:
    _another(sqlite, ("run_id", StringType(), False))
    ours, theirs = FolderAudit(sqlite, NAMESPACE), FolderAudit(open_catalog("main", sqlite.properties), NAMESPACE)
    with _before_commits(sqlite, lambda attempt: theirs.prepare() if attempt == 1 else None):
        ours.prepare()
    assert len(sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).schema().fields) == len(SOURCE_COLUMNS)


def test_other_writers_that_win_every_time_are_a_definite_failure(sqlite: Catalog) -> None:
    audit = prepared(sqlite)
    theirs = FolderAudit(open_catalog("main", sqlite.properties), NAMESPACE)
    with (
        _before_commits(sqlite, lambda attempt: theirs.write(row(f"theirs{attempt}"))),
        pytest.raises(AuditError, match="the row of analytics is not recorded: CommitFailed"),
    ):
        audit.write(row())
    found = [one["database_name"] for one in audit.rows()]
    assert sorted(found) == sorted(f"theirs{number}" for number in range(1, FolderAudit.attempts + 1))


def test_a_commit_to_another_branch_in_between_is_a_conflict_like_any_other(sqlite: Catalog) -> None:
    audit = prepared(sqlite)
    audit.write(row("first"))
    other = open_catalog("main", sqlite.properties).pyiceberg.load_table((NAMESPACE, TABLE))
    head = other.current_snapshot()
    assert head is not None
    other.manage_snapshots().create_branch(head.snapshot_id, "side").commit()

    def to_the_branch(attempt: int) -> None:
        if attempt == 1:
            other.refresh()
            other.append(pa.table({"run_id": ["side"]}), branch="side")

    with _before_commits(sqlite, to_the_branch):
        audit.write(row("second"))
    assert [one["database_name"] for one in audit.rows()] == ["first", "second"]


# Answers that are lost or refused.


class _before_commits:  # noqa: N801  # reads as a statement
    """`act(attempt)` runs in front of each of the catalog's commits; it may raise in its place."""

    def __init__(self, catalog: Catalog, act: Any, *, after: bool = False) -> None:
        self._inner, self._act, self._after = catalog.pyiceberg, act, after
        self._real = self._inner.commit_table
        self.attempts = 0

    def __enter__(self) -> _before_commits:
        self._inner.commit_table = self._commit  # type: ignore[method-assign]
        return self

    def __exit__(self, *raised: object) -> None:
        self._inner.commit_table = self._real  # type: ignore[method-assign]

    def _commit(self, *given: Any) -> Any:
        self.attempts += 1
        if not self._after:
            self._act(self.attempts)
        answer = self._real(*given)
        if self._after:
            self._act(self.attempts)
        return answer


def _raise(error: Exception) -> Any:
    def act(attempt: int) -> None:
        raise error

    return act


LOST = [
    pytest.param(CommitStateUnknownException("cut"), id="unknown"),
    pytest.param(ConnectionResetError("reset by peer"), id="reset"),
    # A gateway repeats the request, and we see what the catalog says to the second.
    pytest.param(CommitFailedException("branch main has changed"), id="repeated"),
    pytest.param(ForbiddenError("token expired meanwhile"), id="forbidden"),
]


@pytest.mark.parametrize("error", LOST)
def test_a_lost_answer_is_looked_up_and_the_row_is_there_once(sqlite: Catalog, error: Exception) -> None:
    audit = prepared(sqlite)
    with _before_commits(sqlite, _raise(error), after=True) as commits:
        audit.write(row())
    assert commits.attempts == 1
    assert stored(audit) == [as_stored(row())]
    assert len(sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).metadata.snapshots) == 1


def test_a_lost_answer_is_found_by_its_row_where_its_snapshot_is_gone(sqlite: Catalog) -> None:
    audit = prepared(sqlite)
    theirs = open_catalog("main", sqlite.properties).pyiceberg

    def go_on(attempt: int) -> None:
        table = theirs.load_table((NAMESPACE, TABLE))
        first = table.current_snapshot()
        assert first is not None
        table.append(pa.table({"run_id": ["another"]}))
        table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
        raise CommitStateUnknownException("cut")

    with _before_commits(sqlite, go_on, after=True) as commits:
        audit.write(row())
    assert commits.attempts == 1
    assert [
        one["run_id"] for one in sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).scan().to_arrow().to_pylist()
    ].count("run-1") == 1


def test_a_commit_that_never_arrived_is_made_again(sqlite: Catalog) -> None:
    audit = prepared(sqlite)

    def cut_first(attempt: int) -> None:
        if attempt == 1:
            raise ConnectionResetError("reset by peer")

    with _before_commits(sqlite, cut_first) as commits:
        audit.write(row())
    assert commits.attempts == 2
    assert stored(audit) == [as_stored(row())]


def test_a_refusal_is_told_with_secrets_masked(sqlite: Catalog) -> None:
    audit = prepared(sqlite)
    sqlite.properties["s3.secret-access-key"] = "hunter2-hunter2"
    with (
        _before_commits(sqlite, _raise(ForbiddenError("no: hunter2-hunter2"))) as commits,
        pytest.raises(AuditError, match="the row of analytics is not recorded: Forbidden") as caught,
    ):
        audit.write(row())
    assert commits.attempts == 1, "asking again changes nothing"
    assert "hunter2" not in str(caught.value)
    assert audit.rows() == []


def test_secrets_of_the_tables_own_storage_are_masked(sqlite: Catalog) -> None:
    """What a catalog vends comes in the same place."""
    _another(sqlite, ("run_id", StringType(), False), properties={"s3.session-token": "hunter2-hunter2"})
    audit = prepared(sqlite)
    with (
        _before_commits(sqlite, _raise(ForbiddenError("no: hunter2-hunter2"))),
        pytest.raises(AuditError, match="Forbidden") as caught,
    ):
        audit.write(row())
    assert "hunter2" not in str(caught.value)


def test_nobody_to_ask_after_a_lost_answer_is_said_so(sqlite: Catalog, tmp_path: Path) -> None:
    audit = prepared(sqlite)

    def go_away(attempt: int) -> None:
        (tmp_path / "main.db").rename(tmp_path / "away.db")
        (tmp_path / "main.db").write_bytes(b"no database any more" * 100)
        sqlite.close()
        raise CommitStateUnknownException("cut")

    with (
        _before_commits(sqlite, go_away, after=True),
        pytest.raises(AuditError, match="it is not known whether the row of analytics is recorded"),
    ):
        audit.write(row())
    (tmp_path / "away.db").replace(tmp_path / "main.db")
    assert stored(FolderAudit(open_catalog("main", sqlite.properties), NAMESPACE)) == [as_stored(row())]


@pytest.mark.parametrize("fault", [Lose(), Answer(502, after=True), Answer(503)], ids=["lost", "502-after", "503"])
def test_over_http_an_answer_that_is_lost_on_the_way_costs_no_row(
    rest_catalog: AnyCatalog, fault: Answer | Lose
) -> None:
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        audit = prepared(open_catalog("main", rest_catalog.behind(proxy.endpoint)))
        commits: list[int] = []

        def first_commit(request: faults.Request) -> Answer | Lose | None:
            if request.method != "POST" or not request.target.endswith(f"/tables/{TABLE}"):
                return None
            commits.append(request.number)
            return fault if len(commits) == 1 else None

        proxy.rule = first_commit
        audit.write(row())
        assert len(commits) == (2 if fault == Answer(503) else 1)
        assert stored(audit) == [as_stored(row())]


# Where nothing can be created or written.


def test_a_read_only_database_is_an_error_that_names_the_database(sqlite: Catalog, tmp_path: Path) -> None:
    uri = f"sqlite:///file:{tmp_path}/main.db?mode=ro&uri=true"
    audit = FolderAudit(open_catalog("main", sqlite.properties | {"uri": uri}), NAMESPACE)
    with pytest.raises(AuditError, match=rf"its database main\.{NAMESPACE} cannot be created: .*readonly") as caught:
        audit.prepare()
    assert caught.value.hint
    with pytest.raises(AuditError, match="the row of analytics is not recorded"):
        audit.write(row())


def test_a_table_in_a_read_only_catalog_takes_no_row(sqlite: Catalog, tmp_path: Path) -> None:
    prepared(sqlite).write(row("before"))
    uri = f"sqlite:///file:{tmp_path}/main.db?mode=ro&uri=true"
    audit = prepared(open_catalog("main", sqlite.properties | {"uri": uri}))
    with pytest.raises(AuditError, match="row of analytics"):
        audit.write(row())
    assert [one["database_name"] for one in audit.rows()] == ["before"]


@pytest.mark.parametrize("what", ["namespaces", "tables"])
def test_a_rest_catalog_that_lets_nothing_be_created(rest_catalog: AnyCatalog, what: str) -> None:
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        body = {"error": {"message": "read only", "type": "ForbiddenException", "code": 403}}

        def refuse(request: faults.Request) -> Answer | None:
            is_meant = request.method == "POST" and urlsplit(request.target).path.endswith(f"/{what}")
            return Answer(403, json.dumps(body).encode()) if is_meant else None

        proxy.rule = refuse
        audit = FolderAudit(open_catalog("main", rest_catalog.behind(proxy.endpoint)), NAMESPACE)
        with pytest.raises(AuditError, match=r"cannot be created: ForbiddenError: .*read only"):
            audit.prepare()


def test_storage_that_takes_no_file_leaves_the_table_as_it_was(
    sqlite: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(FolderAudit, "pause", staticmethod(waits.append))
    audit = prepared(sqlite)
    before = sqlite.pyiceberg.load_table((NAMESPACE, TABLE))
    blocked = Path(before.location().removeprefix("file://")) / "data"
    blocked.write_bytes(b"a file where the folder of data has to be")
    with pytest.raises(AuditError, match="the row of analytics is not recorded"):
        audit.write(row())
    assert sqlite.pyiceberg.load_table((NAMESPACE, TABLE)).metadata_location == before.metadata_location
    assert len(waits) == FolderAudit.patience - 1, "not as often as a conflict"
