"""Catalogs on real servers: many pages, views, unknown names, refusals, and the command line from `init` on."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from lakehouse_maintenance.catalogs import TableKind, discover, open_catalog
from lakehouse_maintenance.model.errors import CatalogUnavailableError, UnknownTableError
from lakehouse_maintenance.model.listing import Complete, Incomplete
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance_tests.engine.tables import ids, many_small_files
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.services.faults import fault_proxy
from lakehouse_maintenance_tests.services.postgres import PostgresServer
from lakehouse_maintenance_tests.small_lakehouse import call

SCHEMA = pa.schema([("id", pa.int64())])


def name(database: str, table: str) -> TableName:
    return TableName("main", tuple(database.split(".")), table)


def fill(on: AnyCatalog, databases: int, tables: int) -> None:
    """Databases d0 …, and tables t0 … in the first of them."""
    for number in range(databases):
        on.writer.create_namespace(f"d{number}")
    for number in range(tables):
        on.writer.create_table(f"d0.t{number}", schema=SCHEMA)


def test_listing_and_pointers(served_catalog: AnyCatalog) -> None:
    fill(served_catalog, 3, 4)
    served_catalog.writer.create_namespace(("d1", "deep"))
    served_catalog.writer.create_table(("d1", "deep", "t"), schema=SCHEMA)
    catalog = open_catalog("main", served_catalog.properties)
    assert catalog.client_side_commits is not served_catalog.is_rest
    assert catalog.databases() == Complete((("d0",), ("d1",), ("d1", "deep"), ("d2",)))
    found = discover(catalog, ["*"])
    assert isinstance(found, Complete)
    assert [str(entry.name) for entry in found.items] == [*(f"main.d0.t{i}" for i in range(4)), "main.d1.deep.t"]
    assert catalog.tables(("d2",)) == Complete(())

    table = served_catalog.writer.load_table("d0.t1")
    before = catalog.pointer(name("d0", "t1"))
    assert before == table.metadata_location
    if not served_catalog.is_rest:
        assert catalog.pointers(("d0",))[name("d0", "t1")] == before
        assert len(catalog.pointers(("d0",))) == 4
    else:
        assert catalog.pointers(("d0",)) == {}, "no one question tells them"
    table.append(pa.table({"id": [1]}))
    assert catalog.pointer(name("d0", "t1")) == served_catalog.writer.load_table("d0.t1").metadata_location != before


def test_names_that_are_not_there(served_catalog: AnyCatalog) -> None:
    fill(served_catalog, 1, 1)
    catalog = open_catalog("main", served_catalog.properties)
    for unknown in (name("d0", "gone"), name("gone", "t0")):
        for ask in (catalog.pointer, catalog.load):
            with pytest.raises(UnknownTableError) as caught:
                ask(unknown)
            assert str(unknown) in str(caught.value)
    listed = catalog.tables(("gone",))
    assert isinstance(listed, Incomplete), "an empty listing would let its tables count as dropped"
    assert "gone" in listed.why


def test_listings_of_many_pages(rest_catalog: AnyCatalog) -> None:
    fill(rest_catalog, 5, 7)
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as proxy:
        catalog = open_catalog("main", rest_catalog.behind(proxy.endpoint) | {"rest-page-size": "2"})
        databases = catalog.databases()
        assert databases == Complete(tuple((f"d{number}",) for number in range(5)))
        tables = catalog.tables(("d0",))
        assert isinstance(tables, Complete)
        assert [entry.name.table for entry in tables.items] == [f"t{number}" for number in range(7)]
        pages = [request.target for request in proxy.seen if "pageToken" in request.target]
    assert sum("/tables" in page for page in pages) >= 3, "seven tables are four pages of two"
    assert any("/tables" not in page and "/views" not in page for page in pages)


@pytest.mark.needs_iceberg_rest
@pytest.mark.parametrize("rest_catalog", ["iceberg-rest"], indirect=True)
def test_views_are_no_tables(rest_catalog: AnyCatalog) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField
    from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

    fill(rest_catalog, 1, 1)
    version = ViewVersion(
        version_id=1,
        schema_id=1,
        timestamp_ms=int(time.time() * 1000),
        summary={},
        representations=[SQLViewRepresentation(type="sql", sql="SELECT * FROM d0.t0", dialect="spark")],
        default_namespace=["d0"],
    )
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    rest_catalog.writer.create_view("d0.v", schema, version)  # type: ignore[attr-defined]
    catalog = open_catalog("main", rest_catalog.properties)
    listed = catalog.tables(("d0",))
    assert isinstance(listed, Complete)
    assert {entry.name.table: entry.kind for entry in listed.items} == {"t0": TableKind.ICEBERG, "v": TableKind.VIEW}
    assert catalog.shows_every_kind
    with pytest.raises(UnknownTableError):
        catalog.pointer(name("d0", "v"))


# --- servers that are not there, and credentials that do not fit


def refused(properties: dict[str, str], field: str, secret: str) -> CatalogUnavailableError:
    with pytest.raises(CatalogUnavailableError) as caught:
        open_catalog("main", properties)
    error = caught.value
    assert error.field == f"catalogs.main.{field}"
    assert error.hint
    assert secret not in f"{error.message} {error.hint}"
    return error


def test_a_wrong_password_of_postgresql(postgres: PostgresServer) -> None:
    uri = postgres.uri(postgres.database(), password="wrong-password-2")
    error = refused({"type": "sql", "uri": uri}, "uri", "wrong-password-2")
    assert "password authentication failed" in error.message


def test_databases_of_postgresql_that_hold_no_catalog(postgres: PostgresServer) -> None:
    error = refused({"type": "sql", "uri": postgres.uri("no_such_database")}, "uri", postgres.password)
    assert "no_such_database" in error.message
    empty = postgres.database()
    error = refused({"type": "sql", "uri": postgres.uri(empty)}, "uri", postgres.password)
    assert "holds no Iceberg catalog" in error.message
    postgres.execute("CREATE TABLE iceberg_tables (x int)", empty)
    refused({"type": "sql", "uri": postgres.uri(empty)}, "uri", postgres.password)


def test_a_postgresql_that_does_not_answer() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        nobody = PostgresServer(taken.getsockname()[1])
        error = refused({"type": "sql", "uri": nobody.uri("lake")}, "uri", nobody.password)
        assert "refused" in error.message.lower()


@pytest.mark.parametrize("rest_catalog", ["rest"], indirect=True)
def test_wrong_credentials_of_a_rest_catalog(rest_catalog: AnyCatalog) -> None:
    wrong = rest_catalog.properties | {"credential": "testkey:wrong-secret-3"}
    error = refused(wrong, "credential", "wrong-secret-3")
    assert "refuses the credentials" in error.message


# --- the command line


def test_the_command_line_from_init_to_expiry(
    served_catalog: AnyCatalog, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many_small_files(served_catalog.writer)  # type: ignore[arg-type]
    properties = served_catalog.properties
    secrets = {"test-password-1", "testsecret"}
    said: list[str] = []

    def lakehouse(*argv: object) -> dict[str, object]:
        ended = call(capsys, *argv, "--json")
        said.extend((ended.out, ended.err))
        assert ended.code == 0, ended.out + ended.err
        return json.loads(ended.out)  # type: ignore[no-any-return]

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEHOUSE_MAINTENANCE_CONFIG", raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    options = [part for key, value in properties.items() for part in ("--property", f"{key}={value}")]
    started = lakehouse("init", "--catalog", "main", *options)
    assert started["databases"] == ["db"]
    said.append((tmp_path / "lakehouse.yaml").read_text())
    for variable in started["environment"]:  # type: ignore[attr-defined]
        monkeypatch.setenv(str(variable), value_for(str(variable), properties))

    checks = lakehouse("doctor", "--write-test")["checks"]
    assert all(check["ok"] for check in checks), checks  # type: ignore[attr-defined]
    (health,) = lakehouse("health")["tables"]  # type: ignore[misc]
    assert (health["data_files"], health["snapshots"], health["error"]) == (12, 6, None)
    (planned,) = lakehouse("plan", "--action", "rewrite_data_files")["tables"]  # type: ignore[misc]
    assert planned["actions"][0]["inputs"]["files"] == 12
    for action, flags in (
        ("rewrite_data_files", ()),
        ("expire_snapshots", ("--older-than", "0s", "--retain-last", "1", "--allow-short-retention")),
    ):
        (ran,) = lakehouse("maintain", "--action", action, *flags)["tables"]  # type: ignore[misc]
        assert [(done["status"], done["verified"]) for done in ran["actions"]] == [("done", True)]
    (health,) = lakehouse("health")["tables"]  # type: ignore[misc]
    assert (health["data_files"], health["snapshots"]) == (2, 1)
    assert ids(served_catalog.writer) == [*range(60)]  # type: ignore[arg-type]
    lakehouse("audit")
    assert not [secret for secret in secrets for text in said if secret in text]


def value_for(variable: str, properties: dict[str, str]) -> str:
    """What the environment variable stands for: a password inside the uri, or a whole property."""
    if variable.endswith("PASSWORD"):
        return str(urlsplit(properties["uri"]).password)
    (key,) = [one for one in properties if variable.endswith(one.upper().replace(".", "_").replace("-", "_"))]
    return properties[key]
