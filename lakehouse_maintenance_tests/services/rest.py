"""Iceberg's own REST catalog for tests (`iceberg_rest`, in Java). SeaweedFS has one too, with OAuth: see `s3`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakehouse_maintenance_tests.services.iceberg_rest.jars import MAIN, available_class_path
from lakehouse_maintenance_tests.services.processes import (
    dies_with_parent,
    free_port,
    java,
    listens,
    why_no_java,
)
from lakehouse_maintenance_tests.services.s3 import S3Server

READY_WITHIN = 120.0
"""Seconds; alone on a machine the server needs two."""


@dataclass(frozen=True, slots=True)
class IcebergRest:
    """Iceberg's REST test catalog: one catalog for each bucket, at an address of its own."""

    port: int

    @property
    def origin(self) -> str:
        """Scheme, host and port: what a proxy stands in front of."""
        return f"http://127.0.0.1:{self.port}"

    def uri(self, bucket: str) -> str:
        """The catalog whose tables lie in the bucket; empty when it is first asked for."""
        return f"{self.origin}/{bucket}"


def why_unavailable() -> str | None:
    """One line that says what is missing, or None where the server can start."""
    if (reason := why_no_java()) is not None:
        return reason
    if available_class_path() is None:
        return "needs Java and the jars of Iceberg's REST catalog: run make jars"
    return None


@pytest.fixture(scope="session")
def iceberg_rest(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    """Iceberg's REST catalog on the S3 server, started when the first test asks; one a worker."""
    if reason := why_unavailable():
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    last = ""
    for _ in range(3):
        server = _Rest(tmp_path_factory.mktemp("iceberg-rest"), s3)
        try:
            if server.wait():
                yield server.address
                return
            last = server.log()
        finally:
            server.kill()
    pytest.fail(f"Iceberg's REST catalog did not start:\n{last}", pytrace=False)


class _Rest:
    """One Java process."""

    def __init__(self, folder: Path, s3: S3Server) -> None:
        self.address = IcebergRest(free_port())
        self._log = folder / "log"
        storage = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": s3.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
            "client.region": s3.region,
        }
        arguments = [f"{key}={value}" for key, value in storage.items()]
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(java()), *options, "-cp", str(available_class_path()), MAIN, str(self.address.port), *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509  # one system call, no lock
            )

    def wait(self) -> bool:
        """True once the server listens. False where the process ended or stayed silent."""
        give_up = time.monotonic() + READY_WITHIN
        while time.monotonic() < give_up and self._process.poll() is None:
            if listens(self.address.port):
                return True
            time.sleep(0.1)
        return False

    def log(self) -> str:
        """The end of what the server said."""
        return self._log.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """Nothing of it is kept."""
        self._process.kill()
        self._process.wait()
