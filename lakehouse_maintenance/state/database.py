"""Connections to PostgreSQL: short transactions, new connections for lost ones, errors without secrets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lakehouse_maintenance.config.secrets import Masker, url_secrets
from lakehouse_maintenance.model.errors import ConfigurationError, LakehouseError, StorageError
from lakehouse_maintenance.state.backend import FIELD
from lakehouse_maintenance.state.swapping import PAUSES, UnsureError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

T = TypeVar("T")

CONNECT_SECONDS = 10
WAIT_SECONDS = 30
"""Longest wait for another writer, and longest that a transaction of ours may stand idle before the server ends it: a
machine that dies in the middle blocks nobody for longer."""

_LIMITS = (
    f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'; SET LOCAL idle_in_transaction_session_timeout = '{WAIT_SECONDS}s'"
)
# Of connections that were never made; these errors have no SQLSTATE. A server that speaks another language than English
# ends in a StorageError, which is no less true.
_SETUP_WORDS = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "could not translate host name",
    "certificate verify failed",
    "server does not support SSL",
    "invalid connection option",
    "for connection option",
)
_SETUP_CODES = ("28", "3D", "3F", "42")
"""SQLSTATE classes: authorization, no such database, no such schema, access rule."""

_AGAIN_CODES = ("40001", "40P01")
"""Serialization failure and deadlock: rolled back, and worth another try."""

_LONGEST_CAUSE = 400


class Database:
    """One database. `url`: SQLAlchemy's, for psycopg2. Safe between threads; a forked child opens its own."""

    def __init__(self, url: URL, location: str) -> None:
        self.location = location
        self._url = url
        self._mask = Masker(url_secrets(url.render_as_string(hide_password=False))).mask
        self._engine: Engine | None = None
        self._process = 0

    def reading(self, work: Callable[[Connection], T]) -> T:
        """Result of some queries, each of which sees what was committed before it. Repeated on a lost connection."""
        return self._until_sure(lambda: self._attempt(work, is_writing=False))

    def writing(self, work: Callable[[Connection], T]) -> T:
        """Result of a transaction, committed. Raises UnsureError where it may or may not be."""
        return self._attempt(work, is_writing=True)

    def writing_once(self, work: Callable[[Connection], T]) -> T:
        """The same for work that does no harm when it is done again; then it is repeated until that is known."""
        return self._until_sure(lambda: self.writing(work))

    def _until_sure(self, attempt: Callable[[], T]) -> T:
        cause: StorageError | None = None
        for pause in PAUSES:
            time.sleep(pause)
            try:
                return attempt()
            except UnsureError as error:
                cause = error.cause
        raise cause or StorageError(f"cannot use the state in {self.location}", field=FIELD)

    def _attempt(self, work: Callable[[Connection], T], *, is_writing: bool) -> T:
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            with self._opened().connect() as connection:
                if not is_writing:
                    return work(connection.execution_options(isolation_level="AUTOCOMMIT"))
                with connection.begin():
                    connection.execute(text(_LIMITS))
                    return work(connection)
        except SQLAlchemyError as error:
            failure = self._failure(error)
            if isinstance(failure, StorageError) and isinstance(error, DBAPIError) and _is_lost(error):
                raise UnsureError(failure) from error
            raise failure from error

    def _opened(self) -> Engine:
        # A connection that a fork copied must not be used by both, nor be closed by the child.
        if self._engine is not None and self._process != os.getpid():
            self._engine.dispose(close=False)
            self._engine = None
        if self._engine is None:
            self._engine = self._create()
            self._process = os.getpid()
        return self._engine

    def _create(self) -> Engine:
        from sqlalchemy import create_engine

        defaults: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "lakehouse-maintenance",
            "keepalives_idle": WAIT_SECONDS,
            "keepalives_interval": CONNECT_SECONDS,
            "keepalives_count": 3,
        }
        try:
            return create_engine(
                self._url,
                connect_args={key: value for key, value in defaults.items() if key not in self._url.query},
                pool_size=2,
                hide_parameters=True,
            )
        except ImportError as error:
            raise ConfigurationError(
                "state in PostgreSQL needs psycopg2",
                field=FIELD,
                hint="pip install 'lakehouse-maintenance[postgres]'",
            ) from error

    def _failure(self, error: Exception) -> LakehouseError:
        from sqlalchemy.exc import DBAPIError

        origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        cause = " ".join(self._mask(str(origin)).split())[:_LONGEST_CAUSE]
        message = f"cannot use the state in {self.location}: {cause}"
        code = getattr(origin, "pgcode", None)
        was_connected = isinstance(error, DBAPIError) and error.connection_invalidated
        is_refused = not was_connected and any(word in str(origin) for word in _SETUP_WORDS)
        if code.startswith(_SETUP_CODES) if code else is_refused:
            hint = "check database, user, password and the user's rights on the schema"
            return ConfigurationError(message, field=FIELD, hint=hint)
        return StorageError(message, field=FIELD, hint="check that the database answers from this machine")


def code_of(error: Exception) -> str | None:
    """The SQLSTATE of an error of ours or of the driver, None where there is none."""
    from sqlalchemy.exc import DBAPIError

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, DBAPIError):
            code = getattr(seen.orig, "pgcode", None)
            return None if code is None else str(code)
        seen = seen.__cause__
    return None


def _is_lost(error: Any) -> bool:
    """No answer, or one that says that the transaction was not to blame."""
    code = getattr(error.orig, "pgcode", None)
    return bool(error.connection_invalidated) or code is None or code in _AGAIN_CODES or code.startswith(("08", "57P"))
