"""Where databases lie, and under whose credentials their folders are listed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request as Get
from urllib.request import urlopen

import pyarrow as pa
import pytest

from lakehouse_maintenance.catalogs import Catalog, DatabaseStorage, database_storage, database_storages, open_catalog
from lakehouse_maintenance.model.errors import ListingIncompleteError, StorageError
from lakehouse_maintenance.model.listing import Complete, Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog, SqlCatalogFactory
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, Request, fault_proxy

SCHEMA = pa.schema([("id", pa.int64())])
ONE_CATALOG = pytest.mark.parametrize("rest_catalog", ["rest"], indirect=True)
T, U = TableName("main", ("db",), "t"), TableName("main", ("db",), "u")


# --- default folders


def test_the_default_folder_is_where_the_catalog_puts_tables(any_catalog: AnyCatalog) -> None:
    """PyIceberg's SQL catalog on SQLite and PostgreSQL, and two services, each with tables that they placed."""
    catalog = opened_with_a_warehouse(any_catalog)
    for namespace in (("db",), ("db", "deep")):
        any_catalog.writer.create_namespace(namespace)
        table = any_catalog.writer.create_table((*namespace, "t"), schema=SCHEMA)
        place = Location.parse(table.location())
        default = catalog.default_location(namespace)
        assert default is not None
        if any_catalog.kind != "rest":  # SeaweedFS gives each table a folder in its bucket
            assert Location.parse(default).contains(place), (default, place)
            assert any(Location.parse(one).contains(place) for one in catalog.default_locations(namespace))


def opened_with_a_warehouse(on: AnyCatalog) -> Catalog:
    """The services here tell no location; ours is then written into the catalog's properties."""
    catalog = open_catalog("main", on.properties)
    if catalog.warehouse() is not None:
        return catalog
    assert on.is_rest
    on.writer.create_namespace("probe")
    place = Location.parse(on.writer.create_table("probe.t", schema=SCHEMA).location())
    named = {"lakehouse-maintenance.warehouse": place.with_key("/".join(place.segments[:-2])).text}
    return open_catalog("main", on.properties | named)


@pytest.mark.parametrize("warehouse", ["s3://lake/wh", "s3://lake/wh/", "s3://lake", "file:///wh", "/wh", "wh"])
def test_a_warehouse_of_a_sql_catalog_is_what_it_says(sql_catalog: SqlCatalogFactory, warehouse: str) -> None:
    inner, properties = sql_catalog(warehouse=warehouse)
    catalog = open_catalog("main", properties)
    meant = "file:///wh" if warehouse == "/wh" else warehouse
    assert catalog.warehouse() == meant
    root = meant.rstrip("/")
    inner.create_namespace("a")
    assert catalog.default_location(("a",)) == f"{root}/a"
    assert inner._get_default_warehouse_location("a", "t") == f"{warehouse.rstrip('/')}/a/t", "PyIceberg's own word"
    assert catalog.default_locations(("a",)) == (f"{root}/a", f"{root}/a.db")
    assert catalog.default_locations(("a", "b")) == tuple(f"{root}/{x}" for x in ("a.b", "a/b", "a.b.db", "a/b.db"))


@pytest.mark.parametrize(
    ("config", "own", "expected"),
    [
        ({}, {}, None),
        ({}, {"warehouse": "lake"}, None),
        ({}, {"warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/x"}, None),
        ({}, {"warehouse": "s3://lake/wh"}, "s3://lake/wh"),
        ({"defaults": {"default-base-location": "s3://lake/base"}}, {"warehouse": "lake"}, "s3://lake/base"),
        ({"overrides": {"warehouse": "gs://lake/wh"}}, {"warehouse": "lake"}, "gs://lake/wh"),
        ({}, {"warehouse": "lake", "lakehouse-maintenance.warehouse": "s3://lake/told"}, "s3://lake/told"),
    ],
)
def test_a_service_names_its_warehouse_in_several_ways(
    config: dict[str, Any], own: dict[str, str], expected: str | None
) -> None:
    with fault_proxy("http://127.0.0.1:9") as service:
        service.rule = lambda request: Answer(200, json.dumps({"defaults": {}, "overrides": {}} | config).encode())
        catalog = open_catalog("main", {"type": "rest", "uri": service.endpoint, **own})
    assert catalog.warehouse() == expected
    assert catalog.default_location(("a", "b")) == (None if expected is None else f"{expected}/a/b")


# --- all databases of a catalog


def test_databases_of_a_catalog(sql_catalog: SqlCatalogFactory) -> None:
    inner, properties = sql_catalog(warehouse="s3://lake/wh")
    inner.create_namespace("told", {"location": "s3://far/told"})
    inner.create_namespace("told.deep")
    inner.create_namespace("odd", {"location": "nowhere"})
    seen: list[tuple[int, int]] = []
    catalog = open_catalog("main", properties)
    found = database_storages(catalog, lambda read, of: seen.append((read, of)))
    deep = tuple(f"s3://lake/wh/{x}" for x in ("told.deep", "told/deep", "told.deep.db", "told/deep.db"))
    assert found == Complete(
        (
            DatabaseStorage(("odd",), "main.odd", "nowhere"),
            DatabaseStorage(("told",), "main.told", "s3://far/told"),
            DatabaseStorage(("told", "deep"), "main.told.deep", None, deep),
        )
    )
    assert [one.locations for one in found.items] == [("nowhere",), ("s3://far/told",), deep]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    gone = database_storage(catalog, ("gone",))
    assert (gone.locations, "main.gone" in str(gone.unknown)) == ((), True)


def test_a_database_without_a_place(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    inner, properties = sql_catalog()
    inner.create_namespace("a")
    catalog = open_catalog("main", {key: value for key, value in properties.items() if key != "warehouse"})
    found = database_storages(catalog)
    assert isinstance(found, Complete)
    assert [(one.locations, "warehouse" in str(one.unknown)) for one in found.items] == [((), True)]
    with closing(sqlite3.connect(tmp_path / "main.db")) as connection, connection:
        connection.execute("ALTER TABLE iceberg_namespace_properties RENAME TO elsewhere")
    assert isinstance(database_storages(catalog), Incomplete)


def test_a_database_that_does_not_answer_is_told_and_the_others_are_read(rest_catalog: AnyCatalog) -> None:
    for name in ("a", "b", "c"):
        rest_catalog.writer.create_namespace(name)
    with in_front_of(rest_catalog) as proxy:
        own = {"lakehouse-maintenance.warehouse": "s3://lake/wh"}
        catalog = open_catalog("main", rest_catalog.behind(proxy.endpoint) | own)

        def refuse(request: Request) -> Answer | None:
            return Answer(403, b"{}") if request.target.endswith("/namespaces/b") else None

        proxy.rule = refuse
        found = database_storages(catalog)
    assert isinstance(found, Complete)
    assert [one.name for one in found.items] == ["main.a", "main.b", "main.c"]
    assert [one.unknown is None for one in found.items] == [True, False, True]
    assert all(one.locations for one in found.items if one.unknown is None)


# --- credentials for listing


def in_front_of(on: AnyCatalog) -> Any:
    address = urlsplit(on.properties["uri"])
    return fault_proxy(f"{address.scheme}://{address.netloc}")


@pytest.fixture
def service(rest_catalog: AnyCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Tables t and u, and a machine whose own identity the store accepts: taking it would not be noticed."""
    rest_catalog.writer.create_namespace("db")
    for name in ("t", "u"):
        rest_catalog.writer.create_table(f"db.{name}", schema=SCHEMA)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", rest_catalog.properties["s3.access-key-id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", rest_catalog.properties["s3.secret-access-key"])
    with in_front_of(rest_catalog) as proxy:
        yield Service(rest_catalog, proxy)


class Service:
    """A real catalog service, with a table's configuration in its answers that a test chooses."""

    def __init__(self, on: AnyCatalog, proxy: FaultProxy) -> None:
        self.keys = {key: text for key, text in on.properties.items() if "key" in key}
        self._on = on
        self._proxy = proxy

    def open(self, **own: str) -> Catalog:
        """Without credentials for storage, but for those given here."""
        properties = {key: text for key, text in self._on.behind(self._proxy.endpoint).items() if key not in self.keys}
        return open_catalog("main", properties | own)

    def refuse(self, status: int) -> None:
        """Every request, from now on."""
        self._proxy.rule = lambda request: Answer(status, b'{"error": {"message": "x", "type": "Y", "code": 503}}')

    def place(self) -> Location:
        return Location.parse(self._on.writer.load_table("db.t").location())

    def answer(self, config: Callable[[str], dict[str, str] | None]) -> None:
        """`config`: by table, what its load adds to the service's own answer; None: the load fails."""
        upstream = urlsplit(self._on.properties["uri"])

        def rule(request: Request) -> Answer | None:
            table = request.target.partition("?")[0].rpartition("/")[2]
            if request.method != "GET" or table not in ("t", "u"):
                return None
            added = config(table)
            if added is None:
                return Answer(404, b'{"error": {"message": "hidden", "type": "NoSuchTableException", "code": 404}}')
            url = f"{upstream.scheme}://{upstream.netloc}{request.target}"
            headers = {key: text for key, text in request.headers.items() if key.lower() in ("authorization", "accept")}
            with urlopen(Get(url, headers=headers)) as response:  # our own server
                document = json.load(response)
            kept = {key: text for key, text in (document.get("config") or {}).items() if key not in self.keys}
            document["config"] = kept | added
            document.pop("storage-credentials", None)
            return Answer(200, json.dumps(document).encode())

        self._proxy.rule = rule


def listed(catalog: Catalog, service: Service, *tables: TableName) -> int:
    """Objects in the folder of `t`, as the storage for listing shows them."""
    storage = catalog.storage_for_listing(tables or (T, U))
    return sum(len(batch) for batch in storage.list(service.place()))


@pytest.mark.requirement("UF-45")
def test_a_folder_is_listed_under_vended_credentials(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine itself would be refused; a table that does not load is passed over."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    service.answer(lambda table: None if table == "t" else service.keys)
    catalog = service.open()
    assert listed(catalog, service) > 0
    assert catalog.storage_for_listing([T, U]).is_vended
    service.answer(lambda table: {})
    with pytest.raises(ListingIncompleteError):
        listed(catalog, service)


def test_vended_credentials_are_not_replaced_by_the_machines(service: Service) -> None:
    """What the catalog vends is refused: so is the listing, though this machine might. Only where it vends nothing do
    its properties leave it to the machine who we are, as they do for every other catalog."""
    service.answer(lambda table: {})
    assert listed(service.open(), service) > 0
    wrong = dict.fromkeys(service.keys, "wrong")
    service.answer(lambda table: {} if table == "t" else wrong)
    with pytest.raises(ListingIncompleteError):
        listed(service.open(), service, U)
    with pytest.raises(ListingIncompleteError):
        listed(service.open(), service, T, U)


@pytest.mark.parametrize(
    "config", [{"s3.remote-signing-enabled": "true"}, {"s3.signer": "S3V4RestSigner", "s3.signer.uri": "http://x"}]
)
def test_a_service_that_signs_remotely_cannot_list(service: Service, config: dict[str, str]) -> None:
    service.answer(lambda table: config)
    for own in ({}, config):
        with pytest.raises(StorageError, match="signs each request remotely") as caught:
            service.open(**own).storage_for_listing([T])
        assert "s3.access-key-id" in str(caught.value.hint)
    # Keys that are set beside it are the catalog's own, and list.
    assert listed(service.open(**service.keys), service) > 0
    assert listed(service.open(**service.keys, **config), service) > 0


def test_a_database_without_a_table_that_loads(service: Service) -> None:
    service.answer(lambda table: None)
    for tables in ((T, U), ()):
        with pytest.raises(StorageError, match="table by table"):
            service.open().storage_for_listing(tables)
    assert not service.open(**service.keys).storage_for_listing([T]).is_vended


@ONE_CATALOG
def test_a_service_that_stops_answering(service: Service) -> None:
    catalog = service.open()
    service.refuse(503)
    with pytest.raises(StorageError, match="credentials"):
        catalog.storage_for_listing([T])


def test_the_catalogs_own_credentials_come_first(service: Service) -> None:
    service.answer(lambda table: dict.fromkeys(service.keys, "wrong"))
    catalog = service.open(**service.keys)
    assert listed(catalog, service) > 0
    assert not catalog.storage_for_listing([T, U]).is_vended


def test_keys_for_another_store_are_no_credentials(service: Service) -> None:
    """A token for Google Cloud would leave S3 to the machine's own identity."""
    service.answer(lambda table: dict.fromkeys(service.keys, "wrong"))
    with pytest.raises(ListingIncompleteError):
        listed(service.open(**{"gcs.oauth2.token": "a-token"}), service)


def test_a_sql_catalog_lists_under_its_own_properties(sql_catalog: SqlCatalogFactory) -> None:
    _, properties = sql_catalog()
    catalog = open_catalog("main", properties)
    assert catalog.storage_for_listing([T]) is catalog.storage()
