"""The SQL catalog: pointers of a whole database in one query, and entries of every kind straight from its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import NoSuchNamespaceError
from sqlalchemy import inspect, literal_column, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import SingletonThreadPool

from lakehouse_maintenance.catalogs.catalog import Catalog, CatalogEntry, Namespace, TableKind
from lakehouse_maintenance.catalogs.failures import unavailable
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.listing import Complete, Listed
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog

_KINDS = {None: TableKind.ICEBERG, "TABLE": TableKind.ICEBERG, "VIEW": TableKind.VIEW}
"""`iceberg_type` of a row; null in rows that are older than the column."""


class SqlCatalog(Catalog):
    """PyIceberg's SqlCatalog, and whatever writes the same tables: Spark's and Trino's JDBC catalog.

    PyIceberg itself leaves rows out of its listing that are no tables, views among them, and has no call that lists
    views here; the rows are therefore read directly.
    """

    shows_every_kind = True

    def __init__(self, inner: PyIcebergSqlCatalog) -> None:
        super().__init__(inner)
        self._engine = inner.engine
        self._has_types: bool | None = None

    @property
    def is_shareable(self) -> bool:
        """A database in memory is another one for each thread."""
        return not isinstance(self._engine.pool, SingletonThreadPool)

    def tables(self, namespace: Namespace) -> Listed[CatalogEntry]:
        try:
            if not self._inner.namespace_exists(namespace):
                raise NoSuchNamespaceError(f"there is no database {self.database_name(namespace)}")
            rows = self._rows(namespace)
        except Exception as error:  # noqa: BLE001  # whatever failed: the list is not complete, which is the result
            return self._incomplete(f"the tables of {self.database_name(namespace)}", error, 0)
        entries = [CatalogEntry(self._name(namespace, table), _kind(kind)) for table, _, kind in rows]
        return Complete(tuple(sorted(entries)))

    def other_names(self) -> tuple[str, ...]:
        """A SQL database holds the tables of several catalogs, told apart by the name that the writer gave them."""
        statement = select(IcebergTables.catalog_name).distinct().order_by(IcebergTables.catalog_name)
        try:
            with self._engine.connect() as connection:
                names = connection.execute(statement).scalars().all()
        except SQLAlchemyError as error:
            raise unavailable(self.name, self.properties, error) from error
        return tuple(str(name) for name in names if name != self.name)

    def pointer(self, name: TableName) -> str:
        """One row of the database."""
        rows = self._answered_rows(name.namespace, name.table)
        for _, pointer, kind in rows:
            if _kind(kind) is TableKind.ICEBERG:
                if not pointer:
                    raise TableUnreadableError(f"{name}: the catalog holds no metadata location", field=str(name))
                return str(pointer)
        raise self._unknown(name)

    def pointers(self, namespace: Namespace) -> dict[TableName, str]:
        """One query. A table whose row holds no metadata location is left out; `pointer` says what is wrong."""
        rows = self._answered_rows(namespace)
        return {
            self._name(namespace, table): pointer
            for table, pointer, kind in rows
            if pointer and _kind(kind) is TableKind.ICEBERG
        }

    def foreign_pointers(self) -> list[tuple[str, str, str]]:
        """Rows of other catalog names in the same database."""
        columns = IcebergTables.catalog_name, IcebergTables.table_namespace, IcebergTables.table_name
        statement = select(*columns, IcebergTables.metadata_location).where(IcebergTables.catalog_name != self.name)
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(statement).all()
        except SQLAlchemyError as error:
            raise unavailable(self.name, self.properties, error) from error
        return [(name[0], ".".join(name), pointer) for *name, pointer in rows if pointer]

    def view_folders(self, name: TableName) -> tuple[str, ...]:
        """By its row alone: the folder of its metadata file."""
        for _, pointer, kind in self._answered_rows(name.namespace, name.table):
            if _kind(kind) is TableKind.VIEW:
                if not pointer:
                    raise TableUnreadableError(f"{name}: the catalog holds no metadata location", field=str(name))
                return (str(pointer)[: str(pointer).rfind("/") + 1],)
        raise self._unknown(name)

    def locate(self, name: TableName) -> tuple[str, Storage]:
        """One row of the database; tables have the catalog's own credentials."""
        return self.pointer(name), self.storage()

    def _answered_rows(self, namespace: Namespace, table: str | None = None) -> Sequence[Any]:
        try:
            return self._rows(namespace, table)
        except SQLAlchemyError as error:
            raise unavailable(self.name, self.properties, error) from error

    def _rows(self, namespace: Namespace, table: str | None = None) -> Sequence[Any]:
        """(table_name, metadata_location, iceberg_type) of one namespace, or of one table in it."""
        # Catalogs of the older schema have no such column, and get none from us: we only read.
        kind = IcebergTables.iceberg_type if self._types() else literal_column("NULL")
        statement = select(IcebergTables.table_name, IcebergTables.metadata_location, kind).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == ".".join(namespace),
        )
        if table is not None:
            statement = statement.where(IcebergTables.table_name == table)
        with self._engine.connect() as connection:
            return connection.execute(statement).all()

    def _types(self) -> bool:
        if self._has_types is None:
            columns = inspect(self._engine).get_columns(IcebergTables.__tablename__)
            self._has_types = any(column["name"].lower() == "iceberg_type" for column in columns)
        return self._has_types


def _kind(iceberg_type: str | None) -> TableKind:
    return _KINDS.get(iceberg_type.upper() if iceberg_type else None, TableKind.OTHER)
