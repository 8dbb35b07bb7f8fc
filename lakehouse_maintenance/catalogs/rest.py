"""The catalog service: it commits itself, lists every kind, and may vend credentials for each table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse_maintenance.catalogs.catalog import WAREHOUSE, Catalog, Namespace
from lakehouse_maintenance.catalogs.credentials import are_vended, families_with_credentials, signs_remotely
from lakehouse_maintenance.model.errors import CatalogUnavailableError, InputError, LakehouseError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.table import Table

_LOCATION = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/")
_HINT = "let the catalog vend credentials, or set s3.access-key-id and s3.secret-access-key of the catalog"
_ASKED = 10
"""Tables that are asked for credentials before it counts that the service vends none."""


class RestCatalog(Catalog):
    """A catalog service: it lists views beside tables, commits itself, and may vend credentials for each table."""

    shows_every_kind = True
    client_side_commits = False

    def warehouse(self) -> str | None:
        """A service takes any name for its warehouse, and may tell the location otherwise. No I/O."""
        own = self.properties.get(WAREHOUSE)
        asked = self.properties.get("warehouse") or ""
        return own or (asked if _LOCATION.match(asked) else self.properties.get("default-base-location")) or None

    def storage(self, name: TableName | None = None) -> Storage:
        """With a table's name: under that table's own, possibly vended, credentials, which expire."""
        if name is None:
            return super().storage()
        return self.storage_of(self.load(name))

    def storage_of(self, table: Table) -> Storage:
        """As above; what differs from the catalog's own properties was vended for this table alone."""
        given = table.io.properties
        return Storage.from_properties(given, is_vended=are_vended(self.properties, given))

    def storage_for_listing(self, tables: Sequence[TableName]) -> Storage:
        """Under the catalog's own credentials; where it has none, under those that it vends for one of the tables.

        Vended ones expire, and may not reach beyond their table: the store says so then. Where the service vends for
        tables or signs for them, this machine's own identity is never taken instead (UF-26). Raises StorageError.
        """
        covered = families_with_credentials(self.properties)
        place, why, loaded = _family(self.warehouse()), "there is none", 0
        if place == "file" or place in covered:
            return self._own()
        for name in tables:
            try:
                table = self.load(name)
            except CatalogUnavailableError as error:
                raise StorageError(f"catalog {self.name} tells no storage credentials: {error.message}") from error
            except LakehouseError as error:
                why = error.message
                continue
            loaded += 1
            family = _family(table.location())
            if family == "file" or family in covered:
                return self._own()
            if family == "s3" and signs_remotely(table.io.properties):
                raise StorageError(
                    f"catalog {self.name} signs each request remotely, which cannot list storage", hint=_HINT
                )
            if are_vended(self.properties, table.io.properties):
                return self.storage_of(table)
            if loaded == _ASKED:
                break
        if not loaded and (place is not None or not covered):
            raise StorageError(
                f"catalog {self.name} tells its storage credentials table by table, and no table of the database can "
                f"be loaded: {why}",
                hint=_HINT,
            )
        return self._own()

    def _own(self) -> Storage:
        """Keys that somebody set beside a signer are there for what the signer cannot do."""
        if "s3.signer" not in self.properties or "s3" not in families_with_credentials(self.properties):
            return super().storage()
        return Storage.from_properties({key: text for key, text in self.properties.items() if key != "s3.signer"})

    def _folder_names(self, namespace: Namespace) -> tuple[str, ...]:
        joined, nested = super()._folder_names(namespace)
        return nested, joined


def _family(text: str | None) -> str | None:
    try:
        return None if text is None else Location.parse(text).family
    except InputError:
        return None
