"""Catalogs for tests: PyIceberg's SqlCatalog on a SQLite file of the test's own, and every kind on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog

    from lakehouse_maintenance_tests.services.postgres import PostgresServer
    from lakehouse_maintenance_tests.services.rest import IcebergRest
    from lakehouse_maintenance_tests.services.s3 import S3Server

SqlCatalogFactory = Callable[..., "tuple[SqlCatalog, dict[str, str]]"]
"""(name="main", warehouse=None, **properties) → the catalog, and the properties as lakehouse.yaml takes them."""


def make_sql_catalog(
    folder: Path, *, name: str = "main", warehouse: str | None = None, **properties: str
) -> tuple[SqlCatalog, dict[str, str]]:
    """Creates `<folder>/<name>.db`. Without a warehouse, tables lie in `<folder>/warehouse`."""
    from pyiceberg.catalog.sql import SqlCatalog

    settings = {
        "uri": f"sqlite:///{folder / name}.db",
        "warehouse": warehouse or f"file://{folder / 'warehouse'}",
        **properties,
    }
    return SqlCatalog(name, **settings), {"type": "sql", **settings}


@pytest.fixture
def sql_catalog(tmp_path: Path) -> Iterator[SqlCatalogFactory]:
    """Makes catalogs in the test's folder, and closes them."""
    made: list[SqlCatalog] = []

    def make(
        *, name: str = "main", warehouse: str | None = None, **properties: str
    ) -> tuple[SqlCatalog, dict[str, str]]:
        catalog, settings = make_sql_catalog(tmp_path, name=name, warehouse=warehouse, **properties)
        made.append(catalog)
        return catalog, settings

    yield make
    for catalog in made:
        catalog.close()


@dataclass(frozen=True, slots=True)
class AnyCatalog:
    """An empty catalog of the test's own, with its warehouse. `properties`: as lakehouse.yaml takes them."""

    kind: str
    writer: Catalog
    properties: dict[str, str]

    @property
    def is_rest(self) -> bool:
        """True where the server commits."""
        return self.properties["type"] == "rest"

    def again(self) -> Catalog:
        """The same catalog for one more writer, with connections of its own."""
        from pyiceberg.catalog import load_catalog

        return load_catalog("main", **self.properties)

    def behind(self, address: str) -> dict[str, str]:
        """Properties of a REST catalog whose requests go through a proxy at this address."""
        from urllib.parse import urlsplit

        return self.properties | {"uri": address + urlsplit(self.properties["uri"]).path}


SERVED = ["postgres", "rest", pytest.param("iceberg-rest", marks=pytest.mark.needs_iceberg_rest)]
"""Kinds with a server: SQL on PostgreSQL; SeaweedFS' REST catalog; Iceberg's REST catalog. Tables lie in S3."""


@pytest.fixture(params=["sqlite", *SERVED])
def any_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyCatalog]:
    """Each kind in turn: SQLite with local files, and those that are served."""
    if request.param == "sqlite":
        writer, properties = make_sql_catalog(tmp_path)
        writer.close()
    else:
        properties = _served(request)
    yield from _opened(request.param, properties)


@pytest.fixture(params=SERVED)
def served_catalog(request: pytest.FixtureRequest) -> Iterator[AnyCatalog]:
    """Each kind that a server serves."""
    yield from _opened(request.param, _served(request))


@pytest.fixture
def postgres_catalog(request: pytest.FixtureRequest) -> Iterator[AnyCatalog]:
    """SQL on PostgreSQL."""
    yield from _opened("postgres", _on_postgres(request))


@pytest.fixture(params=SERVED[1:])
def rest_catalog(request: pytest.FixtureRequest) -> Iterator[AnyCatalog]:
    """Each REST catalog."""
    yield from _opened(request.param, _served(request))


def _opened(kind: str, properties: dict[str, str]) -> Iterator[AnyCatalog]:
    made = AnyCatalog(kind, None, properties)  # type: ignore[arg-type]
    made = replace(made, writer=made.again())
    yield made
    made.writer.close()


def _served(request: pytest.FixtureRequest) -> dict[str, str]:
    kinds = {"postgres": _on_postgres, "rest": _on_seaweedfs, "iceberg-rest": _on_iceberg_rest}
    return kinds[request.param](request)


def _on_postgres(request: pytest.FixtureRequest) -> dict[str, str]:
    postgres: PostgresServer = request.getfixturevalue("postgres")
    s3: S3Server = request.getfixturevalue("s3")
    warehouse = f"s3://{s3.bucket()}/warehouse"
    return {"type": "sql", "uri": postgres.uri(postgres.database()), "warehouse": warehouse, **s3.properties}


def _on_seaweedfs(request: pytest.FixtureRequest) -> dict[str, str]:
    s3: S3Server = request.getfixturevalue("s3")
    credential = f"{s3.access_key}:{s3.secret_key}"
    return {
        "type": "rest",
        "uri": str(s3.catalog),
        "warehouse": s3.table_bucket(),
        "credential": credential,
        "oauth2-server-uri": f"{s3.catalog}/v1/oauth/tokens",
        **s3.properties,
    }


def _on_iceberg_rest(request: pytest.FixtureRequest) -> dict[str, str]:
    server: IcebergRest = request.getfixturevalue("iceberg_rest")
    s3: S3Server = request.getfixturevalue("s3")
    return {"type": "rest", "uri": server.uri(s3.bucket()), **s3.properties}
