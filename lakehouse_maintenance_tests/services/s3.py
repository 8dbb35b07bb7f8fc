"""Real S3 servers for tests: SeaweedFS (`s3`), and moto's server for keys that SeaweedFS changes (`moto`)."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance_tests.services.processes import dies_with_parent, is_free, listens

READY_WITHIN = 60.0
"""Seconds; alone on a machine the server needs three."""

_GRPC_OFFSET = 10_000
"""Each of SeaweedFS's servers also listens this many ports above its own."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that answers at `endpoint`, path-style, without TLS."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    catalog: str | None = None
    """Address of SeaweedFS' own Iceberg REST catalog; its credential is access and secret key."""

    @property
    def properties(self) -> dict[str, str]:
        """As PyIceberg wants them."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
        }

    def client(self) -> Any:
        """A boto3 client of its own."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(max_pool_connections=32, s3={"addressing_style": "path"}),
        )

    def bucket(self, name: str | None = None) -> str:
        """The name of a bucket that exists; without a name, one that nobody has used."""
        client = self.client()
        bucket = name or f"bucket-{os.getpid()}-{next(_numbers)}"
        with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
            client.create_bucket(Bucket=bucket)
        return bucket

    def table_bucket(self) -> str:
        """A new bucket for the tables of SeaweedFS' REST catalog: the catalog's warehouse."""
        import boto3

        client = boto3.client(
            "s3tables",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )
        name = f"lake-{os.getpid()}-{next(_numbers)}"
        client.create_table_bucket(name=name)
        return name

    def at(self, endpoint: str) -> S3Server:
        """The same credentials behind another address, such as a proxy's."""
        return replace(self, endpoint=endpoint)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS, started when the first test asks; one a worker. Its data lies below pytest's temporary folder."""
    with running_s3(lambda: tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@contextmanager
def running_s3(new_folder: Callable[[], Path]) -> Iterator[S3Server]:
    """SeaweedFS for as long as the context lasts; `new_folder` makes an empty folder for each attempt to start it."""
    last = ""
    for _ in range(3):
        server = _Weed(new_folder())
        try:
            if server.wait():
                yield server.address
                return
            last = server.log()
        finally:
            server.kill()
    pytest.fail(f"SeaweedFS did not start:\n{last}", pytrace=False)


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server in this process: every odd key exact, no authentication."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield S3Server(f"http://{host}:{port}", "any", "any-secret")
    server.stop()


class _Weed:
    """One SeaweedFS process with master, volume, filer, S3 and Iceberg catalog on ports of its own."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "weed.log"
        self._ports = dict(zip(("master", "volume", "filer", "s3", "iceberg"), _free_ports(5), strict=True))
        self.address = S3Server(
            f"http://127.0.0.1:{self._ports['s3']}",
            "testkey",
            "testsecret",
            catalog=f"http://127.0.0.1:{self._ports['iceberg']}",
        )
        identity = {
            "name": "test",
            "credentials": [{"accessKey": self.address.access_key, "secretKey": self.address.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        data = folder / "data"
        data.mkdir()
        arguments = [
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"),
            *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", f"-master.port={self._ports['master']}"),
            *("-volume.max=20000", "-volume.preStopSeconds=0", f"-volume.port={self._ports['volume']}"),
            *("-filer", f"-filer.port={self._ports['filer']}"),
            *("-s3", f"-s3.port={self._ports['s3']}", f"-s3.config={config}"),
            *(f"-s3.port.iceberg={self._ports['iceberg']}", "-s3.port.lance=0"),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [_weed(), "-logtostderr=true", "server", *arguments],
                cwd=folder,
                # Each bucket takes so many volumes as its first object is written, of those that the server may have.
                env={**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509  # one system call, no lock
            )

    def wait(self) -> bool:
        """True once an object can be written. False where the process ended or stayed silent."""
        from botocore.exceptions import BotoCoreError, ClientError

        give_up = time.monotonic() + READY_WITHIN
        while time.monotonic() < give_up and self._process.poll() is None:
            # The port opens before the filer and the volume server behind it are there.
            with suppress(BotoCoreError, ClientError):
                if listens(self._ports["s3"]):
                    client = self.address.client()
                    self.address.bucket("ready")
                    client.put_object(Bucket="ready", Key="ready", Body=b"1")
                    return True
            time.sleep(0.1)
        return False

    def log(self) -> str:
        """The end of what the server said."""
        return self._log.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """SIGTERM would take SeaweedFS up to half a minute. Its unix sockets, named by port, go with it."""
        self._process.kill()
        self._process.wait()
        for port in self._ports.values():
            for named in (port, port + _GRPC_OFFSET):
                for file in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{named}.sock"):
                    file.unlink(missing_ok=True)


def _weed() -> str:
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if found is None:
        pytest.fail("no `weed` beside this Python: install the extra `dev`", pytrace=False)
    return found


def _free_ports(count: int) -> list[int]:
    """Ports that are free now together with their gRPC neighbours; random, so that workers rarely meet."""
    chosen: list[int] = []
    while len(chosen) < count:
        port = random.randrange(15_000, 22_000)
        if port not in chosen and is_free(port) and is_free(port + _GRPC_OFFSET):
            chosen.append(port)
    return chosen
