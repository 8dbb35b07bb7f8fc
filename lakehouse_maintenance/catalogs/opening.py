"""Opening a catalog without changing anything: no database file, no table, no column comes into being."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance.catalogs.catalog import Catalog
from lakehouse_maintenance.catalogs.failures import TYPES, refused, unavailable
from lakehouse_maintenance.catalogs.rest import RestCatalog
from lakehouse_maintenance.model.errors import CatalogUnavailableError

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog

_SQLITE_MAGIC = b"SQLite format 3\0"
_CATALOG_TABLES = ("iceberg_tables", "iceberg_namespace_properties")


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Any catalog type of PyIceberg under its properties; settings that PyIceberg finds itself (environment,
    `.pyiceberg.yaml`) are added to them, as everywhere in PyIceberg.

    I/O is what PyIceberg needs to open it, and for SQL a look whether its tables are there. Raises
    CatalogUnavailableError that names the property, with secrets masked.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config, merge_config

    settings = {
        key: str(value)
        for key, value in merge_config(Config().get_catalog_config(name) or {}, dict(properties)).items()
    }
    if not settings.get("type") and not settings.get("uri") and not settings.get("py-catalog-impl"):
        raise refused(name, settings, "type", "there is neither type nor uri", f"set type to one of: {TYPES}, and uri")
    if _is_sql(settings):
        settings = _read_only(name, settings)
    try:
        inner = load_catalog(name, **settings)
    except Exception as error:
        # PyIceberg, its HTTP client, SQLAlchemy, Thrift and boto raise errors of their own; all mean the same here.
        raise unavailable(name, settings, error) from error

    kinds = [cls.__module__ + "." + cls.__name__ for cls in type(inner).__mro__]
    if "pyiceberg.catalog.sql.SqlCatalog" in kinds:
        return _sql(inner, settings)  # type: ignore[arg-type]
    if "pyiceberg.catalog.rest.RestCatalog" in kinds:
        return RestCatalog(inner)
    return Catalog(inner)


def known_properties(name: str) -> dict[str, str]:
    """What PyIceberg itself knows of a catalog: from its file `.pyiceberg.yaml` and its environment variables.

    Empty where it knows none. Raises CatalogUnavailableError where the file cannot be read.
    """
    from pyiceberg.utils.config import Config

    try:
        found = Config().get_catalog_config(name) or {}
    except Exception as error:
        # The YAML parser and PyIceberg raise errors of their own; all mean that the file is no configuration.
        raise refused(
            name, {}, "type", f"PyIceberg's own configuration cannot be read: {error}", "correct .pyiceberg.yaml"
        ) from error
    nested = sorted(key for key, value in found.items() if isinstance(value, dict | list))
    if nested:
        raise refused(
            name,
            {},
            nested[0],
            f"PyIceberg's own configuration has nested settings below {nested[0]}",
            "copy them into lakehouse.yaml by hand",
        )
    return {key: str(value) for key, value in found.items()}


def _is_sql(settings: Mapping[str, str]) -> bool:
    kind = (settings.get("type") or "").lower()
    inferred = not kind and (settings.get("uri") or "").startswith(("sqlite", "postgresql"))
    return kind == "sql" or (inferred and not settings.get("py-catalog-impl"))


def _read_only(name: str, settings: dict[str, str]) -> dict[str, str]:
    """Settings under which PyIceberg creates and migrates nothing, and trusts no stale connection.

    It creates missing catalog tables unless told not to, and adds a column to an older schema where
    `schema_version` asks for it. A missing SQLite file is created by connecting, whatever the settings.
    """
    _require_sqlite_file(name, settings)
    kept = {key: value for key, value in settings.items() if key != "schema_version"}
    # A pooled connection that a restart or a firewall cut is noticed before it is used, not in the middle of a run.
    return {"pool_pre_ping": "true"} | kept | {"init_catalog_tables": "false"}


def _require_sqlite_file(name: str, settings: dict[str, str]) -> None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(settings.get("uri") or "")
    except (ArgumentError, ValueError):
        return  # opening says what is wrong with it
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return
    path = Path(str(url.database).removeprefix("file:"))
    try:
        if not path.is_file():
            raise refused(
                name,
                settings,
                "uri",
                f"there is no database file {path}",
                "check the path; a catalog is created by the engine that writes the first table",
            )
        with path.open("rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise unavailable(name, settings, error) from error
    if start and start != _SQLITE_MAGIC:
        raise refused(name, settings, "uri", f"{path} is not a SQLite database", "name the catalog's database file")


def _sql(inner: PyIcebergSqlCatalog, settings: dict[str, str]) -> Catalog:
    from sqlalchemy import inspect
    from sqlalchemy.exc import SQLAlchemyError

    from lakehouse_maintenance.catalogs.sql import SqlCatalog

    catalog = SqlCatalog(inner)
    if (settings.get("type") or "").lower() == "in-memory":
        return catalog
    try:
        present = inspect(inner.engine).get_table_names()
    except SQLAlchemyError as error:
        raise unavailable(catalog.name, settings, error) from error
    missing = [table for table in _CATALOG_TABLES if table not in present]
    if missing:
        raise _no_catalog(catalog.name, settings, missing)
    return catalog


def _no_catalog(name: str, settings: dict[str, str], missing: list[str]) -> CatalogUnavailableError:
    return refused(
        name,
        settings,
        "uri",
        f"the database holds no Iceberg catalog: there is no table {' and no table '.join(missing)}",
        "check the database's name; a catalog is created by the engine that writes the first table",
    )
