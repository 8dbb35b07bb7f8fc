"""A catalog as maintenance sees it, over PyIceberg's public API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, NoSuchViewError

from lakehouse_maintenance.catalogs import format_v3
from lakehouse_maintenance.catalogs.failures import CATALOG_FAILURES, unavailable
from lakehouse_maintenance.model.errors import TableUnreadableError, UnknownTableError
from lakehouse_maintenance.model.listing import Complete, Incomplete, Listed
from lakehouse_maintenance.model.names import TableName, quote_part
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.masking import masker_for

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyIcebergCatalog
    from pyiceberg.table import Table

Namespace = tuple[str, ...]

WAREHOUSE = "lakehouse-maintenance.warehouse"
"""Our own property: the location of a warehouse that the catalog does not tell, or tells by a name."""

_HIVE_STYLE = frozenset({"HiveCatalog", "GlueCatalog", "DynamoDbCatalog"})
"""PyIceberg's catalogs that put a database without a location at `<warehouse>/<database>.db`."""


class TableKind(StrEnum):
    """What a catalog's entry is. OTHER: a table of another format, or of a kind that this version does not know."""

    ICEBERG = "iceberg"
    VIEW = "view"
    OTHER = "other"


@dataclass(frozen=True, slots=True, order=True)
class CatalogEntry:
    """A name in a catalog."""

    name: TableName
    kind: TableKind


class Catalog:
    """Any PyIceberg catalog. `SqlCatalog` answers some questions more cheaply and more completely.

    Errors: CatalogUnavailableError where the catalog does not answer, UnknownTableError for a name it does not
    know, TableUnreadableError where it answers and the table's metadata cannot be read.
    """

    shows_every_kind = False
    """True where listings show views and tables of other formats too; PyIceberg's Hive and Glue catalogs hide them."""

    client_side_commits = True
    """True where the client writes the new metadata file and swaps the pointer; False where the server does."""

    def __init__(self, inner: PyIcebergCatalog) -> None:
        self.name: str = inner.name
        self.properties: dict[str, str] = {key: str(value) for key, value in inner.properties.items()}
        self._inner = inner
        self._storage: Storage | None = None
        self._kinds = frozenset(cls.__name__ for cls in type(inner).__mro__)
        self.commits_v3: bool = not self.client_side_commits or format_v3.teach(inner)
        """Whether a commit to a table of format version 3 goes through this catalog."""

    @property
    def is_shareable(self) -> bool:
        """Whether several threads may ask at once. PyIceberg's Hive catalog has one connection for all of them."""
        return "HiveCatalog" not in self._kinds

    @property
    def pyiceberg(self) -> PyIcebergCatalog:
        """PyIceberg's own catalog, for commits."""
        return self._inner

    def close(self) -> None:
        """Gives its connections back; the next question opens new ones."""
        self._inner.close()

    def databases(self) -> Listed[Namespace]:
        """Every namespace, nested ones after their parents, sorted, paged to the end."""
        found: list[Namespace] = []
        parents: list[Namespace] = [()]
        try:
            while parents:
                # Some services name all levels at once, whatever parent was asked for.
                children = {tuple(child) for child in self._children(parents.pop())}.difference(found)
                found += children
                parents += children
        except Exception as error:  # noqa: BLE001  # whatever failed: the list is not complete, which is the result
            return self._incomplete("its databases", error, len(found))
        return Complete(tuple(sorted(found)))

    def other_names(self) -> tuple[str, ...]:
        """Names under which other catalogs keep tables in the same place; empty where a catalog has no such thing."""
        return ()

    def tables(self, namespace: Namespace) -> Listed[CatalogEntry]:
        """Every entry of this one namespace, sorted by name: Iceberg tables, views, and others where they are shown.

        An unknown namespace gives Incomplete: it may have been dropped, or never be visible to us.
        """
        found: list[CatalogEntry] = []
        try:
            found += self._entries(namespace, self._inner.list_tables(namespace), TableKind.ICEBERG)
            found += self._entries(namespace, self._views(namespace), TableKind.VIEW)
            if not found:
                # Some services list an unknown database as an empty one.
                self._inner.load_namespace_properties(namespace)
        except Exception as error:  # noqa: BLE001  # as above
            return self._incomplete(f"the tables of {self.database_name(namespace)}", error, len(found))
        return Complete(tuple(sorted(found)))

    def database_properties(self, namespace: Namespace) -> dict[str, str]:
        """Properties of the namespace. Raises UnknownTableError where it does not exist."""
        try:
            found = self._inner.load_namespace_properties(namespace)
        except NoSuchNamespaceError as error:
            raise UnknownTableError(
                f"there is no database {self.database_name(namespace)}", field="database", hint=f"look at {self.name}"
            ) from error
        except Exception as error:
            raise unavailable(self.name, self.properties, error) from error
        return {key: str(value) for key, value in found.items()}

    def database_location(self, namespace: Namespace) -> str | None:
        """Where the catalog says the database lies; None where it keeps no location."""
        return self.database_properties(namespace).get("location") or None

    def database_name(self, namespace: Namespace) -> str:
        """The full name, `catalog.database`, quoted where needed."""
        return ".".join(quote_part(part) for part in (self.name, *namespace))

    def warehouse(self) -> str | None:
        """Where the catalog's databases lie by default, as its properties have it, whatever that says. No I/O.

        A path of this machine, as lakehouse.yaml makes it of a relative one, is written as the URL that it means.
        """
        text = self.properties.get(WAREHOUSE) or self.properties.get("warehouse") or None
        return f"file://{text}" if text is not None and text.startswith("/") else text

    def default_location(self, namespace: Namespace) -> str | None:
        """The catalog's own default folder for a database of which it keeps no location (UF-29); None where its
        warehouse is not known."""
        return next(iter(self.default_locations(namespace)), None)

    def default_locations(self, namespace: Namespace) -> tuple[str, ...]:
        """The same, and after it every folder that another engine takes by default for the same database.

        Engines join the levels of a namespace by `.` (PyIceberg) or by `/` (Spark, REST services), with `.db` after
        them in Hive's tradition.
        """
        warehouse = self.warehouse()
        if warehouse is None:
            return ()
        root = warehouse.rstrip("/")  # as PyIceberg does
        plain = [f"{root}/{name}" for name in self._folder_names(namespace)]
        hive = [f"{folder}.db" for folder in plain]
        return tuple(dict.fromkeys(hive + plain if self._kinds & _HIVE_STYLE else plain + hive))

    def _folder_names(self, namespace: Namespace) -> tuple[str, ...]:
        """The catalog's own first."""
        return ".".join(namespace), "/".join(namespace)

    def pointer(self, name: TableName) -> str:
        """Location of the table's current metadata."""
        return self.load(name).metadata_location

    def pointers(self, namespace: Namespace) -> dict[TableName, str]:
        """Pointers of all Iceberg tables of the namespace, where one question tells them; else empty."""
        del namespace
        return {}

    def foreign_pointers(self) -> list[tuple[str, str, str]]:
        """Tables of other catalogs that are kept in the same place and may not be configured.

        The catalog's name, the table's name (which begins with it), its pointer.
        """
        return []

    def view_folders(self, name: TableName) -> tuple[str, ...]:
        """Where an Iceberg view keeps its metadata: without those files the view is lost.

        Raises UnknownTableError for a view that does not exist, TableUnreadableError where its place is not told.
        """
        try:
            view = self._inner.load_view(name.identifier)
        except (NoSuchViewError, NoSuchNamespaceError) as error:
            raise self._unknown(name) from error
        except Exception as error:
            raise TableUnreadableError(
                f"{name}: the view cannot be read: {self._cause(error)}", field=str(name)
            ) from error
        written = view.properties.get("write.metadata.path")
        return (view.location(), written) if written else (view.location(),)

    def load(self, name: TableName) -> Table:
        """The table with its metadata and FileIO, for commits and for credentials that the catalog vends."""
        try:
            return self._inner.load_table(name.identifier)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise self._unknown(name) from error
        except CATALOG_FAILURES as error:
            raise unavailable(self.name, self.properties, error) from error
        except Exception as error:
            # The catalog knows the table; storage or the metadata's content failed, with errors of many libraries.
            raise TableUnreadableError(
                f"{name}: the current metadata cannot be read: {self._cause(error)}", field=str(name)
            ) from error

    def storage(self, name: TableName | None = None) -> Storage:
        """Storage under the catalog's own properties."""
        del name
        if self._storage is None:
            self._storage = Storage.from_properties(self.properties)
        return self._storage

    def storage_for_listing(self, tables: Sequence[TableName]) -> Storage:
        """Storage that can list a database's folders, and not only read one table's. `tables`: of that database.

        Raises StorageError where the catalog gives no credentials for that.
        """
        del tables
        return self.storage()

    def locate(self, name: TableName) -> tuple[str, Storage]:
        """Location of the table's current metadata, and a storage that can read the table's files."""
        table = self.load(name)
        return table.metadata_location, self.storage_of(table)

    def storage_of(self, table: Table) -> Storage:
        """Storage under the properties of the table's FileIO: the catalog's own, and what it vends for this table."""
        return Storage.from_properties(table.io.properties)

    def _children(self, parent: Namespace) -> list[Namespace]:
        return list(self._inner.list_namespaces(parent))

    def _views(self, namespace: Namespace) -> list[Namespace]:
        try:
            return list(self._inner.list_views(namespace))
        except NotImplementedError:
            return []

    def _entries(self, namespace: Namespace, identifiers: Iterable[Namespace], kind: TableKind) -> list[CatalogEntry]:
        return [CatalogEntry(self._name(namespace, identifier[-1]), kind) for identifier in identifiers]

    def _name(self, namespace: Namespace, table: str) -> TableName:
        return TableName(self.name, tuple(namespace), table)

    def _unknown(self, name: TableName) -> UnknownTableError:
        return UnknownTableError(f"there is no table {name}", field="table", hint="see: lakehouse-maintenance health")

    def _incomplete(self, what: str, error: Exception, seen: int) -> Incomplete:
        return Incomplete(f"catalog {self.name} did not list {what} to the end: {self._cause(error)}", seen)

    def _cause(self, error: Exception) -> str:
        return masker_for(self.properties).mask(f"{type(error).__name__}: {error}")
