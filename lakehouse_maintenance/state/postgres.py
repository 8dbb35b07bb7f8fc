"""State in PostgreSQL, in a schema of its own.

    layout      one row: number of the layout, see layout.py
    key_values  name (as a file would be called, see naming.py), key, version, trail, value
    journal     id, entry, day, run, written, line

A value is changed in one short transaction that locks its row. The layout's version is looked at behind that lock, so
that no writer of an older release comes through while a migration runs. Where the answer to a commit is lost, the
value's trail tells whether it happened (see swapping.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from lakehouse_maintenance.model.errors import ConfigurationError, StorageError
from lakehouse_maintenance.state import layout
from lakehouse_maintenance.state.backend import FIELD
from lakehouse_maintenance.state.database import Database, code_of
from lakehouse_maintenance.state.naming import file_name, key_of, name_prefix
from lakehouse_maintenance.state.postgres_log import PostgresLog
from lakehouse_maintenance.state.swapping import Stamp, swap, trail_after
from lakehouse_maintenance.state.tables import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")

_MISSING = ("42P01", "3F000")
"""SQLSTATE of a table and of a schema that is not there."""

_LOCK = 0x6C616B65
"""Names the advisory lock of who creates or migrates a layout. One for all schemas: it is held for a moment."""


class PostgresStore:
    """A state in a schema. Safe between threads, processes and machines."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = schema
        self._is_prepared = False

    @cached_property
    def _tables(self) -> Tables:
        return Tables.of(self._schema)

    @cached_property
    def log(self) -> PostgresLog:
        """See Backend."""
        return PostgresLog(self._database, self._tables, self.prepare, self._looking, self._check)

    @property
    def location(self) -> str:
        """See Backend."""
        return self._database.location

    @property
    def cache_folder(self) -> None:
        """See Backend."""
        return

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See KeyValueStore."""
        return self._looking(lambda connection: self._rows(connection).get(key), None)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """See KeyValueStore. Raises StorageError where it cannot be told whether the value was written."""
        self.prepare()
        version = uuid.uuid4().hex

        def work(connection: Connection) -> bool:
            done = self._rows(connection).write(key, value, expected, version)
            self._check(connection)
            return done

        def look() -> Stamp | None:
            return self._database.reading(lambda connection: self._rows(connection).stamp(key))

        return swap(version, expected, lambda: self._database.writing(work), look, repr(key))

    def keys(self, prefix: str) -> Iterator[str]:
        """See KeyValueStore."""
        nothing: list[str] = []
        yield from self._looking(lambda connection: self._rows(connection).keys(prefix), nothing)

    def check_version(self) -> int | None:
        """See Backend."""
        return self._looking(self._version, None)

    def check_writable(self) -> None:
        """See Backend. Asks the server for the user's rights."""
        found = self.check_version()
        rights = self._tables.rights_query(exists=found is not None, migrates=found != layout.latest())
        missing = self._database.reading(lambda connection: connection.execute(rights).scalars().all())
        if missing:
            raise ConfigurationError(
                f"the database's user lacks rights for the state in {self.location}: {', '.join(missing)}",
                field=FIELD,
                hint="grant them, or name a schema with ?schema= that the user may write to",
            )

    def prepare(self) -> None:
        """Create the layout, or bring an older one up to date, in one transaction. Every writer calls it first."""
        # Once is enough: each writer looks again in its own transaction.
        if self._is_prepared:
            return
        if self.check_version() != layout.latest():
            self._database.writing_once(self._prepare)
        self._is_prepared = True

    def _looking(self, work: Callable[[Connection], T], absent: T) -> T:
        """The result of reading, after a look at the layout's version; `absent` where nothing was written yet."""

        def look_and_work(connection: Connection) -> T:
            self._version(connection)
            return work(connection)

        try:
            return self._database.reading(look_and_work)
        except ConfigurationError as error:
            if code_of(error) in _MISSING:
                return absent
            raise

    def _prepare(self, connection: Connection) -> None:
        from sqlalchemy import func, select, text

        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        if not self._tables.exist(connection):
            self._tables.create(connection)
            connection.execute(self._tables.layout.insert().values(id=1, version=layout.latest()))
            return
        # Writers of values wait, and find the new version behind their wait.
        connection.execute(text(f"LOCK TABLE {self._tables.quoted('key_values')} IN SHARE ROW EXCLUSIVE MODE"))
        for step in layout.pending(self._version(connection)):
            step.apply(self._rows(connection))
            connection.execute(self._tables.layout.update().values(version=step.to))

    def _check(self, connection: Connection) -> None:
        """Inside a writer's transaction, after its first write; an error rolls that back."""
        if self._version(connection) != layout.latest():
            raise StorageError(f"the layout of the state in {self.location} changed", field=FIELD, hint="try again")

    def _version(self, connection: Connection) -> int:
        from sqlalchemy import select

        found = connection.execute(select(self._tables.layout.c.version)).scalar_one_or_none()
        text = b"" if found is None else str(found).encode("ascii")
        return layout.usable(text, f"the table {self._tables.quoted('layout')}", self.location)

    def _rows(self, connection: Connection) -> _Rows:
        return _Rows(connection, self._tables, self.location)


class _Rows:
    """A KeyValueStore inside a transaction, without any look at the layout's version."""

    def __init__(self, connection: Connection, tables: Tables, location: str) -> None:
        self._connection = connection
        self._table = tables.key_values
        self._location = location

    def get(self, key: str) -> tuple[bytes, str] | None:
        row = self._row(key)
        return None if row is None else (bytes(row.value), str(row.version))

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        version = uuid.uuid4().hex
        return version if self.write(key, value, expected, version) else None

    def stamp(self, key: str) -> Stamp | None:
        row = self._row(key)
        return None if row is None else Stamp(row.version, tuple(row.trail.split()))

    def write(self, key: str, value: bytes, expected: str | None, version: str) -> bool:
        """Whether `expected` was there and was replaced. Another writer of the key is waited for."""
        from sqlalchemy import select
        from sqlalchemy.dialects.postgresql import insert

        values = self._table.c
        name = file_name(key)
        if expected is None:
            row = {"name": name, "key": _raw(key), "version": version, "trail": "", "value": value}
            added = self._connection.execute(insert(self._table).values(row).on_conflict_do_nothing())
            return bool(added.rowcount)
        found = select(values.version, values.trail).where(values.name == name).with_for_update()
        stored = self._connection.execute(found).one_or_none()
        if stored is None or stored.version != expected:
            return False
        trail = trail_after(Stamp(stored.version, tuple(stored.trail.split())))
        changed = self._table.update().where(values.name == name)
        self._connection.execute(changed.values(version=version, trail=" ".join(trail), value=value))
        return True

    def keys(self, prefix: str) -> list[str]:
        from sqlalchemy import select

        start = name_prefix(prefix)
        # Names hold no character above ~, and the column is ordered by its bytes.
        names = self._table.c.name
        query = select(names, self._table.c.key).where(names >= start, names < start + "\x7f")
        found: list[str] = []
        for name, raw in self._connection.execute(query):
            key = key_of(name) if "~" not in name else bytes(raw).decode("utf-8", "surrogatepass")
            if key is not None and key.startswith(prefix):
                found.append(key)
        return found

    def _row(self, key: str) -> Any:
        row = self._connection.execute(self._table.select().where(self._table.c.name == file_name(key))).one_or_none()
        if row is not None and bytes(row.key) != _raw(key):
            raise StorageError(f"the row {row.name} of the state in {self._location} has another key", field=FIELD)
        return row


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
