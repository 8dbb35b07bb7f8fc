"""The read side of catalogs, on SQLite with tables that PyIceberg wrote, and on servers that fail."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from lakehouse_maintenance.catalogs import Catalog, CatalogEntry, TableKind, discover, open_catalog
from lakehouse_maintenance.model.errors import (
    CatalogUnavailableError,
    InputError,
    TableUnreadableError,
    UnknownTableError,
)
from lakehouse_maintenance.model.listing import Complete, Incomplete, Listed
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

SCHEMA = pa.schema([("id", pa.int64())])


def name(*parts: str) -> TableName:
    return TableName("main", parts[:-1], parts[-1])


def complete(listed: Listed[CatalogEntry]) -> dict[str, TableKind]:
    assert isinstance(listed, Complete)
    return {str(entry.name): entry.kind for entry in listed.items}


def execute(database: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement, values)
        connection.commit()


@pytest.fixture
def lakehouse(sql_catalog: SqlCatalogFactory) -> Catalog:
    """Namespaces `a`, `a.deep`, `empty` (with a location); tables a.t1, a.t2 and a.deep.t3."""
    inner, properties = sql_catalog()
    inner.create_namespace("a")
    inner.create_namespace(("a", "deep"))
    inner.create_namespace("empty", {"location": "s3://lake/empty", "owner": "ann"})
    for identifier in (("a", "t1"), ("a", "t2"), ("a", "deep", "t3")):
        inner.create_table(identifier, schema=SCHEMA)
    inner.load_table(("a", "t1")).append(pa.table({"id": [1, 2]}))
    return open_catalog("main", properties)


def test_databases_and_tables(lakehouse: Catalog) -> None:
    assert lakehouse.databases() == Complete((("a",), ("a", "deep"), ("empty",)))
    assert complete(lakehouse.tables(("a",))) == {"main.a.t1": TableKind.ICEBERG, "main.a.t2": TableKind.ICEBERG}
    assert complete(lakehouse.tables(("a", "deep"))) == {"main.a.deep.t3": TableKind.ICEBERG}
    assert complete(lakehouse.tables(("empty",))) == {}
    assert lakehouse.shows_every_kind
    assert lakehouse.client_side_commits
    assert lakehouse.name == "main"


def test_discovery(lakehouse: Catalog) -> None:
    assert list(complete(discover(lakehouse, ["*"]))) == ["main.a.t1", "main.a.t2", "main.a.deep.t3"]
    assert list(complete(discover(lakehouse, ["a", "a"]))) == ["main.a.t1", "main.a.t2"]
    assert list(complete(discover(lakehouse, ["empty", "a.deep"]))) == ["main.a.deep.t3"]
    assert complete(discover(lakehouse, [])) == {}
    unknown = discover(lakehouse, ["a", "gone"])
    assert isinstance(unknown, Incomplete)
    assert "main.gone" in unknown.why
    assert unknown.seen == 2
    with pytest.raises(InputError):
        discover(lakehouse, ["a..b"])


def test_database_properties(lakehouse: Catalog) -> None:
    assert lakehouse.database_properties(("empty",)) == {"location": "s3://lake/empty", "owner": "ann"}
    assert lakehouse.database_location(("empty",)) == "s3://lake/empty"
    assert lakehouse.database_location(("a",)) is None
    with pytest.raises(UnknownTableError, match=r"main\.gone"):
        lakehouse.database_location(("gone",))


def test_pointers_follow_commits(lakehouse: Catalog) -> None:
    before = lakehouse.pointer(name("a", "t1"))
    table = lakehouse.load(name("a", "t1"))
    assert table.metadata_location == before
    assert lakehouse.pointers(("a",)) == {
        name("a", "t1"): before,
        name("a", "t2"): lakehouse.pointer(name("a", "t2")),
    }
    table.append(pa.table({"id": [3]}))
    assert lakehouse.pointer(name("a", "t1")) == table.metadata_location != before
    assert lakehouse.pointers(("a",))[name("a", "t1")] == table.metadata_location
    assert lakehouse.pointers(("gone",)) == {}
    for unknown in (name("a", "gone"), name("gone", "t1"), name("a.deep", "t4")):
        for call in (lakehouse.pointer, lakehouse.load):
            with pytest.raises(UnknownTableError) as caught:
                call(unknown)
            assert str(unknown) in str(caught.value)


def test_storage_reads_what_the_pointer_names(lakehouse: Catalog) -> None:
    storage = lakehouse.storage(name("a", "t1"))
    assert storage is lakehouse.storage()
    pointer = Location.parse(lakehouse.pointer(name("a", "t1")))
    assert storage.read(pointer).startswith(b"{")
    folder = Location.parse(lakehouse.load(name("a", "t1")).location())
    assert pointer in {info.location for batch in storage.list(folder) for info in batch}


def test_rows_of_other_engines(lakehouse: Catalog, tmp_path: Path) -> None:
    """As Spark's JDBC catalog writes views, as older versions write tables, and a kind nobody knows yet."""
    database = tmp_path / "main.db"
    insert = "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)"
    for table, pointer, kind in (
        ("v", "s3://lake/v/metadata/v.json", "VIEW"),
        ("old", "s3://lake/old/metadata/1.json", None),
        ("new", "s3://lake/new", "TOPIC"),
        ("broken", None, "TABLE"),
    ):
        execute(database, f"{insert} VALUES (?, ?, ?, ?, ?)", "main", "a", table, pointer, kind)
    execute(database, f"{insert} VALUES (?, ?, ?, ?, ?)", "another", "a", "hidden", "s3://lake/hidden", "TABLE")
    assert complete(lakehouse.tables(("a",))) == {
        "main.a.broken": TableKind.ICEBERG,
        "main.a.new": TableKind.OTHER,
        "main.a.old": TableKind.ICEBERG,
        "main.a.t1": TableKind.ICEBERG,
        "main.a.t2": TableKind.ICEBERG,
        "main.a.v": TableKind.VIEW,
    }
    assert {found.table for found in lakehouse.pointers(("a",))} == {"old", "t1", "t2"}
    with pytest.raises(UnknownTableError):
        lakehouse.pointer(name("a", "v"))
    with pytest.raises(TableUnreadableError, match=r"main\.a\.broken") as caught:
        lakehouse.pointer(name("a", "broken"))
    assert caught.value.field == "main.a.broken"


def test_the_older_schema_is_read_and_not_migrated(lakehouse: Catalog, tmp_path: Path) -> None:
    database = tmp_path / "main.db"
    execute(database, "ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    again = open_catalog("main", {**lakehouse.properties, "type": "sql", "schema_version": "v1"})
    assert list(complete(again.tables(("a",)))) == ["main.a.t1", "main.a.t2"]
    assert set(again.pointers(("a",))) == {name("a", "t1"), name("a", "t2")}
    assert again.load(name("a", "t1")).metadata_location == again.pointer(name("a", "t1"))
    with closing(sqlite3.connect(database)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")]
    assert "iceberg_type" not in columns


def test_a_listing_that_fails_is_never_short(lakehouse: Catalog, tmp_path: Path) -> None:
    execute(tmp_path / "main.db", "ALTER TABLE iceberg_namespace_properties RENAME TO elsewhere")
    databases = lakehouse.databases()
    assert isinstance(databases, Incomplete)
    assert "main" in databases.why
    assert isinstance(discover(lakehouse, ["*"]), Incomplete)
    execute(tmp_path / "main.db", "ALTER TABLE iceberg_tables RENAME TO elsewhere_too")
    assert isinstance(lakehouse.tables(("a",)), Incomplete)
    with pytest.raises(CatalogUnavailableError) as caught:
        lakehouse.pointers(("a",))
    assert caught.value.field == "catalogs.main.uri"


def test_metadata_that_cannot_be_read_is_that_tables_error(lakehouse: Catalog) -> None:
    pointer = Path(Location.parse(lakehouse.pointer(name("a", "t1"))).local_path)
    whole = pointer.read_bytes()
    for content in (whole[: len(whole) // 2], b"\x00\xff garbage", b"{}", b""):
        pointer.write_bytes(content)
        with pytest.raises(TableUnreadableError, match=r"main\.a\.t1") as caught:
            lakehouse.load(name("a", "t1"))
        assert caught.value.field == "main.a.t1"
    pointer.unlink()
    with pytest.raises(TableUnreadableError, match=r"main\.a\.t1"):
        lakehouse.load(name("a", "t1"))
    assert lakehouse.load(name("a", "t2")).name() == ("a", "t2")


def test_tables_on_s3(sql_catalog: SqlCatalogFactory, s3: S3Server) -> None:
    inner, properties = sql_catalog(warehouse=f"s3://{s3.bucket()}/wh", **s3.properties)
    inner.create_namespace("a")
    inner.create_table("a.t", schema=SCHEMA).append(pa.table({"id": [1]}))
    catalog = open_catalog("main", properties)
    table = catalog.load(name("a", "t"))
    found = [info for batch in catalog.storage().list(Location.parse(table.location())) for info in batch]
    assert Location.parse(catalog.pointer(name("a", "t"))) in {info.location for info in found}
    assert sum(info.location.name.endswith(".parquet") for info in found) == 1
    assert table.scan().to_arrow().num_rows == 1


# --- catalogs that cannot be opened


def refused(catalog: str, properties: dict[str, str], field: str, *secrets: str) -> CatalogUnavailableError:
    with pytest.raises(CatalogUnavailableError) as caught:
        open_catalog(catalog, properties)
    error = caught.value
    assert error.field == f"catalogs.{catalog}.{field}"
    assert error.hint
    assert catalog in error.message
    for secret in secrets:
        assert secret not in error.message + error.hint
    return error


@pytest.mark.parametrize("below", ["missing.db", "no/such/folder/missing.db", ""])
def test_a_missing_sqlite_file_is_not_created(tmp_path: Path, below: str) -> None:
    error = refused("main", {"type": "sql", "uri": f"sqlite:///{tmp_path / below}"}, "uri")
    assert str(tmp_path / below).rstrip("/") in error.message
    refused("main", {"uri": f"sqlite:///{tmp_path / below}"}, "uri")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_catalog_is_left_alone(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"not a database" * 100)
    other = tmp_path / "other.db"
    execute(other, "CREATE TABLE t (x)")
    half = tmp_path / "half.db"
    execute(half, "CREATE TABLE iceberg_tables (catalog_name)")
    empty = tmp_path / "empty.db"
    empty.touch()
    before = {file: file.read_bytes() for file in (garbage, other, half, empty)}
    assert "not a SQLite database" in refused("main", {"type": "sql", "uri": f"sqlite:///{garbage}"}, "uri").message
    assert "iceberg_tables" in refused("main", {"type": "sql", "uri": f"sqlite:///{other}"}, "uri").message
    assert "iceberg_namespace_properties" in refused("main", {"type": "sql", "uri": f"sqlite:///{half}"}, "uri").message
    refused("main", {"type": "sql", "uri": f"sqlite:///{empty}"}, "uri")
    refused("main", {"type": "sql", "uri": f"sqlite:///{empty}", "init_catalog_tables": "true"}, "uri")
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({}, "type"),
        ({"warehouse": "s3://lake/wh"}, "type"),
        ({"type": "sql"}, "uri"),
        ({"type": "rest"}, "uri"),
        ({"type": "hive"}, "uri"),
        ({"type": "sqll", "uri": "sqlite:///x.db"}, "type"),
        ({"uri": "mystery://x"}, "type"),
        ({"type": "sql", "uri": "nonsense"}, "uri"),
        ({"type": "sql", "uri": "mystery://user:top-secret-word@host/db"}, "uri"),
        ({"py-catalog-impl": "no.such.Catalog"}, "py-catalog-impl"),
    ],
)
def test_wrong_properties_are_named(properties: dict[str, str], field: str) -> None:
    refused("somewhere", properties, field, "top-secret-word")


def test_an_unreachable_service(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        error = refused("lake", {"type": "rest", "uri": address}, "uri")
        assert "cannot be reached" in error.message
        secret = {"type": "rest", "uri": address, "credential": "client:top-secret-word"}
        refused("lake", secret, "uri", "top-secret-word")


@pytest.fixture
def service() -> Iterator[FaultProxy]:
    """An HTTP service that answers only what a test makes it answer."""
    with fault_proxy("http://127.0.0.1:9") as proxy:
        yield proxy


@pytest.mark.parametrize("key", ["credential", "token"])
def test_a_service_that_refuses_our_credentials(service: FaultProxy, key: str) -> None:
    body = b'{"error": {"message": "not with top-secret-word", "type": "NotAuthorizedException", "code": 401}}'
    service.rule = lambda request: Answer(401, body)
    value = "client:top-secret-word" if key == "credential" else "top-secret-word"
    error = refused("lake", {"type": "rest", "uri": service.endpoint, key: value}, key, "top-secret-word")
    assert "refuses the credentials" in error.message


def test_a_service_that_lists_half(service: FaultProxy) -> None:
    """The second page of a listing fails: an error value, though the first page was there."""
    answers = {
        "/v1/config": Answer(200, b'{"defaults": {}, "overrides": {}}'),
        "/v1/namespaces/a/tables": Answer(
            200, b'{"identifiers": [{"namespace": ["a"], "name": "t1"}], "next-page-token": "2"}'
        ),
        "/v1/namespaces": Answer(200, b'{"namespaces": [["a"]], "next-page-token": "2"}'),
    }
    service.rule = lambda request: answers.get(
        request.target.partition("?")[0] * ("pageToken" not in request.target), Answer(500, b"{}")
    )
    catalog = open_catalog("lake", {"type": "rest", "uri": service.endpoint})
    assert not catalog.client_side_commits
    for listed in (catalog.databases(), catalog.tables(("a",)), discover(catalog, ["*"]), discover(catalog, ["a"])):
        assert isinstance(listed, Incomplete)
        assert "lake" in listed.why
