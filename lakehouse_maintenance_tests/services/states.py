"""Empty states of every kind, for the tests of what holds for all of them."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakehouse_maintenance.state import State, open_state
from lakehouse_maintenance.state.backend import Backend
from lakehouse_maintenance.state.leases import utc_now
from lakehouse_maintenance.state.naming import file_name
from lakehouse_maintenance.state.opening import open_store
from lakehouse_maintenance_tests.services.postgres import PostgresServer
from lakehouse_maintenance_tests.services.s3 import S3Server

KINDS = ("folder", "s3", "postgres")

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a state may lie; nothing is there yet. `scratch`: an empty folder beside it."""

    kind: str
    url: str
    scratch: Path
    properties: dict[str, str] = field(default_factory=dict)
    s3: S3Server | None = None
    postgres: PostgresServer | None = None
    database: str = ""

    def open(self, now: Callable[[], datetime] = utc_now) -> State:
        """A state as another process would open it."""
        return open_state(self.url, properties=self.properties, cache=self.scratch / "cache", now=now)

    def store(self) -> Backend:
        """The part below the state."""
        return open_store(self.url, self.properties)

    @property
    def argument(self) -> str:
        """For `state_worker`."""
        return json.dumps({"url": self.url, "properties": self.properties})

    @property
    def prefix(self) -> str:
        """Of the objects, in S3."""
        return self.url.removeprefix("s3://").partition("/")[2]

    @property
    def bucket(self) -> str:
        """In S3."""
        return self.url.removeprefix("s3://").partition("/")[0]

    @property
    def schema(self) -> str:
        """In PostgreSQL."""
        return self.url.rpartition("schema=")[2]

    def is_empty(self) -> bool:
        """Whether nothing of a state is there."""
        if self.kind == "folder":
            return not Path(self.url).exists()
        if self.s3 is not None:
            return "Contents" not in self.s3.client().list_objects_v2(Bucket=self.bucket, Prefix=self.prefix + "/")
        assert self.postgres is not None
        return not self.query(f"SELECT 1 FROM pg_namespace WHERE nspname = '{self.schema}'")

    def set_version(self, number: int) -> None:
        """The layout's version, as another release may have left it."""
        if self.kind == "folder":
            Path(self.url, "version").write_text(f"{number}\n")
        elif self.s3 is not None:
            body = b"%d\n" % number
            self.s3.client().put_object(Bucket=self.bucket, Key=f"{self.prefix}/version", Body=body)
        else:
            self.query(f"UPDATE {self.schema}.layout SET version = {number}")

    def damage(self, key: str) -> None:
        """Replace the value, and what belongs to it, by garbage."""
        name = file_name(key)
        if self.kind == "folder":
            Path(self.url, "values", name).write_bytes(b"garbage")
        elif self.s3 is not None:
            group = file_name(key.partition("/")[0])
            place = f"{self.prefix}/values/{group}/{name}"
            self.s3.client().put_object(Bucket=self.bucket, Key=place, Body=b"garbage")
        else:
            self.query(f"UPDATE {self.schema}.key_values SET key = 'other', value = 'garbage' WHERE name = '{name}'")

    def remove(self, key: str) -> None:
        """Take the value away, as nobody may."""
        name = file_name(key)
        if self.kind == "folder":
            Path(self.url, "values", name).unlink()
        elif self.s3 is not None:
            group = file_name(key.partition("/")[0])
            self.s3.client().delete_object(Bucket=self.bucket, Key=f"{self.prefix}/values/{group}/{name}")
        else:
            self.query(f"DELETE FROM {self.schema}.key_values WHERE name = '{name}'")

    def damage_journal(self) -> None:
        """Replace one line of the journal by garbage."""
        if self.kind == "folder":
            next(Path(self.url, "journal").rglob("*.jsonl")).write_bytes(b"garbage\n")
        elif self.s3 is not None:
            client = self.s3.client()
            found = client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.prefix}/journal/")["Contents"]
            client.put_object(Bucket=self.bucket, Key=found[0]["Key"], Body=b"garbage")
        else:
            self.query(f"UPDATE {self.schema}.journal SET line = 'garbage' WHERE id = 1")

    def query(self, statement: str) -> list[tuple[object, ...]]:
        """Rows of one statement in PostgreSQL."""
        import psycopg2

        assert self.postgres is not None
        server = self.postgres
        connection = psycopg2.connect(
            host="127.0.0.1", port=server.port, dbname=self.database, user=server.user, password=server.password
        )
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()


@pytest.fixture(scope="session")
def state_bucket(s3: S3Server) -> str:
    """One bucket for all states of a worker; each state has a path of its own."""
    return s3.bucket()


@pytest.fixture(scope="session")
def state_database(postgres: PostgresServer) -> str:
    """One database for all states of a worker; each state has a schema of its own."""
    return postgres.database()


def new_place(kind: str, request: pytest.FixtureRequest, scratch: Path) -> Place:
    """An empty place of the kind; its server starts when the first test asks."""
    number = next(_numbers)
    if kind == "folder":
        return Place(kind, str(scratch / "state"), scratch)
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        url = f"s3://{request.getfixturevalue('state_bucket')}/states/{number}"
        return Place(kind, url, scratch, server.properties, s3=server)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    database: str = request.getfixturevalue("state_database")
    url = f"{postgres.uri(database)}?schema=state_{number}"
    return Place(kind, url.replace("+psycopg2", ""), scratch, postgres=postgres, database=database)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of every kind."""
    return new_place(request.param, request, tmp_path)


class Clock:
    """A wall clock that stands still."""

    def __init__(self) -> None:
        self.time = datetime(2026, 5, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


def lease_threads() -> set[threading.Thread]:
    """Threads that keep leases alive."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("lease of")}
