"""Catalog, storage and state as Dagster resources, for the assets and jobs of users beside ours.

Each reads what lakehouse.yaml says, or takes its own settings, in which `dg.EnvVar` may stand for any text. Nothing is
opened before it is asked for. `check_connection` reaches out and names what failed.
"""

# Dagster and pydantic read the annotations of fields: no `from __future__ import annotations`.

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional

import dagster as dg
from pydantic import Field

from lakehouse_maintenance.config import load_config
from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.orchestration.failing import failure

if TYPE_CHECKING:
    from lakehouse_maintenance.catalogs import Catalog
    from lakehouse_maintenance.config import LakehouseConfig
    from lakehouse_maintenance.state import State
    from lakehouse_maintenance.storage import Storage

CONFIG_PATH = (
    "Path of lakehouse.yaml, such as /etc/lakehouse/lakehouse.yaml. Unset: where LAKEHOUSE_MAINTENANCE_CONFIG points, "
    "else the working directory of the run."
)


class CatalogResource(dg.ConfigurableResource["CatalogResource"]):
    """One Iceberg catalog, from lakehouse.yaml or by PyIceberg's properties."""

    name: str = Field(description="Name of the catalog, such as main: tables are called catalog.database.table.")
    properties: dict[str, str] = Field(
        default={},
        description="PyIceberg's properties, unchanged, such as type, uri, warehouse, credential. Empty: those that "
        "lakehouse.yaml has for this name.",
    )
    config_path: str | None = Field(default=None, description=CONFIG_PATH)

    def open(self) -> "Catalog":
        """Opens it. Raises dagster.Failure that names the key that is wrong, without secrets."""
        from lakehouse_maintenance.catalogs import open_catalog

        with _failures():
            return open_catalog(self.name, self.settings())

    def settings(self) -> dict[str, str]:
        """PyIceberg's properties, secrets included. Raises ConfigurationError."""
        if self.properties:
            return dict(self.properties)
        config = load_config(self.config_path)
        if self.name not in config.catalogs:
            raise ConfigurationError(
                f"lakehouse.yaml has no catalog {self.name}",
                field=f"catalogs.{self.name}",
                hint=suggestion(self.name, config.catalogs),
            )
        return config.catalogs[self.name].properties()

    def check_connection(self) -> str:
        """Lists the databases, and tells how many there are. Raises dagster.Failure that names what failed."""
        listed = self.open().databases()
        if isinstance(listed, Incomplete):
            raise _failed(f"catalog {self.name}", listed.why, "check credentials and permissions")
        return f"catalog {self.name} answers: {len(listed.items)} databases"


class StorageResource(dg.ConfigurableResource["StorageResource"]):
    """Object storage or local files: with the credentials of a catalog, of dagster_aws' S3Resource, or its own."""

    catalog: Optional[CatalogResource] = Field(  # noqa: UP045  # Dagster looks for this very form
        default=None, description="Catalog whose properties hold the credentials."
    )
    s3: Optional[dg.ConfigurableResource] = Field(  # type: ignore[type-arg]  # noqa: UP045  # as above
        default=None, description="An S3Resource of dagster_aws: region, endpoint and credentials are taken from it."
    )
    properties: dict[str, str] = Field(
        default={},
        description="PyIceberg's FileIO properties, such as s3.region or adls.account-name. They go before those of "
        "the catalog or the S3Resource.",
    )
    location: str | None = Field(
        default=None,
        description="Folder that the connection check lists, such as s3://lake/warehouse/. Unset: the catalog's "
        "warehouse.",
    )

    def open(self) -> "Storage":
        """Clients are made when a location is asked for. Raises dagster.Failure for settings that cannot be used."""
        from lakehouse_maintenance.storage import Storage

        with _failures():
            return Storage.from_properties(self.settings())

    def settings(self) -> dict[str, str]:
        """FileIO properties, secrets included. Raises ConfigurationError."""
        if self.catalog is not None and self.s3 is not None:
            raise ConfigurationError(
                "storage has credentials of a catalog and of an S3Resource", field="s3", hint="leave one of them out"
            )
        settings: dict[str, str] = {}
        if self.catalog is not None:
            settings |= self.catalog.settings()
        if self.s3 is not None:
            settings |= s3_properties(self.s3)
        return settings | self.properties

    def check_connection(self) -> str:
        """Lists some objects of `location`. Raises dagster.Failure that names the location and what failed."""
        with _failures():
            settings = self.settings()
            text = self.location or settings.get("warehouse")
            if not text:
                raise ConfigurationError(
                    "no location to look at", field="location", hint="set location, such as s3://lake/warehouse/"
                )
            place = Location.parse(text)
        storage = self.open()
        try:
            batch = next(storage.list(place, batch_size=100), [])
        except LakehouseError as error:
            raise failure(StorageError(f"{place.text} cannot be listed: {error.message}", hint=error.hint)) from None
        return f"{place.text} answers: {len(batch)}{' or more' if len(batch) == 100 else ''} objects"


class StateResource(dg.ConfigurableResource["StateResource"]):
    """What maintenance remembers: journal, leases, plans. All runs on a table need the same one."""

    url: str | None = Field(
        default=None,
        description="Where the state lies: a folder, such as /var/lib/lakehouse/state. Unset: state.url of "
        "lakehouse.yaml.",
    )
    config_path: str | None = Field(default=None, description=CONFIG_PATH)

    def open(self) -> "State":
        """Opens it; nothing is created before something is written. Raises dagster.Failure that names the key."""
        from lakehouse_maintenance.state import open_configured, open_state

        with _failures():
            return open_state(self.url) if self.url else open_configured(load_config(self.config_path).state)

    def check_connection(self) -> str:
        """Looks whether the state can be written and its leases read. Raises dagster.Failure that names what failed."""
        state = self.open()
        with _failures():
            state.check_writable()
            held = state.leases.all()
        return f"state at {state.location} can be written: {len(held)} tables are worked on now"


def s3_properties(resource: object) -> dict[str, str]:
    """PyIceberg's properties for what an S3Resource of dagster_aws is set to. Raises ConfigurationError.

    Read by the names of its fields, so that dagster_aws need not be installed.
    """
    given: Mapping[str, Any] = {name: getattr(resource, name, None) for name in (*_S3_FIELDS, *_S3_FLAGS)}
    if given["verify"] is False:
        raise ConfigurationError(
            "the S3Resource switches the check of certificates off (verify), which storage here does not",
            field="s3",
            hint="use an endpoint with a certificate that this machine trusts",
        )
    settings = {_S3_FIELDS[name]: str(given[name]) for name in _S3_FIELDS if given[name]}
    if given["use_unsigned_session"]:
        settings["s3.anonymous"] = "true"
    endpoint = settings.get("s3.endpoint")
    if endpoint is not None and "://" not in endpoint:
        settings["s3.endpoint"] = ("http://" if given["use_ssl"] is False else "https://") + endpoint
    return settings


_S3_FIELDS = {
    "region_name": "s3.region",
    "endpoint_url": "s3.endpoint",
    "profile_name": "s3.profile-name",
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
}
_S3_FLAGS = ("use_unsigned_session", "use_ssl", "verify")


def checked(checks: Mapping[str, Callable[[], str]], config: "LakehouseConfig") -> dict[str, str]:
    """Runs every check; each that passed with what it tells. Raises dagster.Failure that names all that failed."""
    told: dict[str, str] = {}
    failed: list[str] = []
    for name, check in checks.items():
        try:
            told[name] = check()
        except dg.Failure as error:
            failed.append(f"{name}: {error.description}")
    if failed:
        raise dg.Failure(description=config.masker.mask("; ".join(failed)), allow_retries=True)
    return told


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except LakehouseError as error:
        where = f"{error.field}: " if error.field and error.field not in error.message else ""
        error.message = where + error.message
        raise failure(error) from None


def _failed(what: str, why: str, hint: str) -> dg.Failure:
    return failure(StorageError(f"{what}: {why}", hint=hint))
