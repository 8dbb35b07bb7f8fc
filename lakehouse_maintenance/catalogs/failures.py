"""Why a catalog does not answer, in one message that names the setting and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from requests.exceptions import RequestException
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from lakehouse_maintenance.model.errors import CatalogUnavailableError
from lakehouse_maintenance.storage.masking import masker_for

CATALOG_FAILURES = (
    RequestException,
    SQLAlchemyError,
    UnauthorizedError,
    OAuthError,
    AuthorizationExpiredError,
    ServiceUnavailableError,
)
"""The catalog itself fails. What else loading a table raises, a refusal of that table included, is the table's."""

TYPES = "sql, rest, hive, glue, dynamodb, bigquery"

_LONGEST_CAUSE = 600


def unavailable(name: str, properties: Mapping[str, str], error: Exception) -> CatalogUnavailableError:
    """The error for a user. `field` is the key in lakehouse.yaml that most likely has to change."""
    key, what, hint = _explain(properties, error)
    return refused(name, properties, key, f"{what}: {_cause(error)}", hint)


def refused(name: str, properties: Mapping[str, str], key: str, what: str, hint: str) -> CatalogUnavailableError:
    """The same for a reason that we found ourselves."""
    return CatalogUnavailableError(
        f"catalog {name!r}: {masker_for(properties).mask(what)}", field=f"catalogs.{name}.{key}", hint=hint
    )


def _explain(properties: Mapping[str, str], error: Exception) -> tuple[str, str, str]:
    """(property, what happened, hint)."""
    if isinstance(error, NotInstalledError | ModuleNotFoundError):
        return "type", "a library that this kind of catalog needs is missing", _install_hint(properties)
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError | AuthorizationExpiredError):
        key = next((key for key in ("credential", "token") if properties.get(key)), "credential")
        return key, "the catalog refuses the credentials", "set credential (client:secret) or token to valid ones"
    if isinstance(error, NoSuchModuleError | ArgumentError):
        return "uri", "the database URL is not understood", "write sqlite:///path/catalog.db or postgresql+psycopg2://…"
    if isinstance(error, DBAPIError):
        return "uri", "the database does not answer as a catalog", "check host, database, user and password in the URL"
    if isinstance(error, SQLAlchemyError):
        return "uri", "the database does not answer", "check the URL"
    if isinstance(error, RequestException):
        return "uri", "the catalog cannot be reached", "check the address, and that this machine reaches it"
    text = str(error)
    if "URI missing" in text:
        return "uri", "there is no uri", "set uri to the catalog's address, such as sqlite:///catalog.db or https://…"
    if "CatalogType" in text:
        return "type", "this type is not known", f"known types: {TYPES}"
    if "infer the catalog type" in text:
        return "type", "there is no type, and the uri does not tell it", f"set type to one of: {TYPES}"
    if "py-catalog-impl" in properties:
        return (
            "py-catalog-impl",
            "the catalog's class cannot be used",
            "write package.module.Class of an installed class",
        )
    if "region" in text.lower():
        return "client.region", "the catalog cannot be opened", "set the region"
    return (
        ("uri" if properties.get("uri") else "type"),
        "the catalog cannot be opened",
        "check the catalog's properties",
    )


def _install_hint(properties: Mapping[str, str]) -> str:
    kind = str(properties.get("type") or "").lower()
    if kind in ("hive", "glue", "dynamodb", "bigquery"):
        return f"pip install 'pyiceberg[{kind}]'"
    if str(properties.get("uri") or "").startswith("postgresql"):
        return "pip install 'pyiceberg[sql-postgres]'"
    return "install the driver that the uri names"


def _cause(error: Exception) -> str:
    # SQLAlchemy appends the statement and a link; the driver's own words are the first line.
    text = str(error.orig) if isinstance(error, DBAPIError) and error.orig is not None else str(error)
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST_CAUSE else text[:_LONGEST_CAUSE] + " …"
    return f"{type(error).__name__}: {text}"
