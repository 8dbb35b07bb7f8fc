"""One small lakehouse on local files and on real S3 servers: what a test puts there, and what `orphans` makes of it.

Files cannot be made old on S3, so time passes otherwise: `pass_days` moves the clock that the search asks.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import orphan_search
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.foreign import add_entry, put_file, with_ids
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.services.catalogs import make_sql_catalog
from lakehouse_maintenance_tests.services.s3 import S3Server

SCHEMA = with_ids(pa.schema([("id", pa.int64())]))
LIMITS = {"removed_share": 1.0, "removed_files": 100_000, "first_run_files": 1_000}
"""The tables here are so small that one orphan is a large share of them."""

_numbers = itertools.count(1)


@cache
def client_of(server: S3Server) -> Any:
    """One for all tests: a boto3 client takes its time to be made."""
    return server.client()


@dataclass
class Lake:
    """A catalog `main` with one database `db`. `warehouse`: its URL; the folder above it is the test's alone."""

    folder: Path
    warehouse: str
    server: S3Server | None
    writer: SqlCatalog = field(init=False)
    properties: dict[str, str] = field(init=False)
    storage: Storage = field(init=False)
    patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)
    opened: list[SqlCatalog] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer, self.properties = self.another_catalog("main")
        self.writer.create_namespace("db")
        self.storage = Storage.from_properties(self.properties)

    @property
    def is_local(self) -> bool:
        return self.server is None

    @property
    def client(self) -> Any:
        assert self.server is not None
        return client_of(self.server)

    @property
    def delta_options(self) -> dict[str, str]:
        """The server in deltalake's words."""
        if self.server is None:
            return {}
        return {
            "aws_access_key_id": self.server.access_key,
            "aws_secret_access_key": self.server.secret_key,
            "aws_region": self.server.region,
            "aws_endpoint_url": self.server.endpoint,
        }

    @property
    def root(self) -> str:
        """The folder above the warehouse, with its `/`."""
        return self.warehouse.rpartition("/")[0] + "/"

    def another_catalog(self, name: str) -> tuple[SqlCatalog, dict[str, str]]:
        """In a database of its own, on the same storage."""
        settings = {} if self.server is None else self.server.properties
        catalog, properties = make_sql_catalog(self.folder, name=name, warehouse=self.warehouse, **settings)
        self.opened.append(catalog)
        return catalog, properties

    def open(self, **config: Any) -> Lakehouse:
        """With its state in the test's folder. `config`: more of lakehouse.yaml; `catalogs`: beside `main`."""
        catalogs = {"main": self.properties, **config.pop("catalogs", {})}
        return lakehouse(self.folder, self.properties, **{"limits": LIMITS, **config}, catalogs=catalogs)

    def table(self, name: str = "db.t", *, commits: int = 1, **options: Any) -> Table:
        """A table with one file a commit, one row each."""
        self.writer.create_namespace_if_not_exists(name.rpartition(".")[0])
        table = self.writer.create_table(name, SCHEMA, **options)
        for number in range(commits):
            self.add(table, f"{table.location()}/data/{number}.parquet")
        return table

    def add(self, table: Table, path: str, *, referenced_as: str | None = None) -> str:
        """A file of one row, committed, under the name that the commit is told."""
        size = put_file(table, path, pa.table([[1]], SCHEMA))
        add_entry(table, path if referenced_as is None else referenced_as, records=1, size=size)
        table.refresh()
        return path

    def put(self, path: str, content: bytes = b"nobody's") -> str:
        """An object under exactly this path."""
        location = Location.parse(path)
        if self.server is None:
            file = Path(location.local_path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        else:
            self.client.put_object(Bucket=location.authority, Key=location.key, Body=content)
        return path

    def remove(self, path: str) -> None:
        """Exactly this one."""
        location = Location.parse(path)
        if self.server is None:
            Path(location.local_path).unlink()
        else:
            self.client.delete_object(Bucket=location.authority, Key=location.key)

    def put_tree(self, folder: Path, path: str) -> None:
        """All files below a local folder."""
        for file in folder.rglob("*"):
            if file.is_file():
                self.put(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    def read(self, path: str) -> bytes:
        return self.storage.read(Location.parse(path))

    def objects(self) -> set[str]:
        """Everything in the test's folder or bucket, by the store's own word; not the catalog, not the state."""
        if self.server is None:
            root = Path(Location.parse(self.root).local_path)
            return {f"file://{file}" for file in root.rglob("*") if file.is_file() or file.is_symlink()}
        bucket = Location.parse(self.warehouse).authority
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {f"s3://{bucket}/{item['Key']}" for page in pages for item in page.get("Contents", [])}

    def orphans(
        self, ours: Lakehouse | None = None, table: str = "main.db.t", *, delete: bool = True, **asked: Any
    ) -> OrphanResult:
        """The verb on one table; removing unless told otherwise."""
        report = (ours or self.open()).orphans([table], OrphanRequest(**asked), delete=delete)
        (result,) = report.tables
        return result

    def pass_days(self, days: float = 10) -> None:
        """What is there now is so many days older from here on."""
        pass_days(self.patch, days)

    def close(self) -> None:
        self.patch.undo()
        for catalog in self.opened:
            with suppress(Exception):
                catalog.close()


def reference(table: Table, *paths: str) -> None:
    """One commit that names these files, whatever lies there."""
    table.refresh()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for path in paths:
            append.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=path,
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=1,
                    file_size_in_bytes=8,
                    sort_order_id=None,
                    spec_id=table.spec().spec_id,
                    equality_ids=None,
                    key_metadata=None,
                )
            )
    table.refresh()


def pass_days(patch: pytest.MonkeyPatch, days: float = 10) -> None:
    """For the search alone, so many days pass."""
    moved = int(timedelta(days=days).total_seconds() * 1000)
    patch.setattr(orphan_search, "now_ms", lambda: int(time.time() * 1000) + moved)


def make_lake(folder: Path, server: S3Server | None) -> Lake:
    """On local files, or in a new bucket of the server. All that a test puts there is ten days old when it looks."""
    if server is None:
        store = f"file://{folder}/store"
    else:
        store = f"s3://orphans-{os.getpid()}-{next(_numbers)}"
        client_of(server).create_bucket(Bucket=store.removeprefix("s3://"))
    made = Lake(folder, f"{store}/wh", server)
    made.pass_days()
    return made


@pytest.fixture(params=["local", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """On local files, and on SeaweedFS."""
    made = make_lake(tmp_path, request.getfixturevalue("s3") if request.param == "s3" else None)
    yield made
    made.close()


@pytest.fixture
def local_lake(tmp_path: Path) -> Iterator[Lake]:
    """On local files alone."""
    made = make_lake(tmp_path, None)
    yield made
    made.close()


@pytest.fixture
def exact_lake(moto: S3Server, tmp_path: Path) -> Iterator[Lake]:
    """On the server that keeps every odd key."""
    made = make_lake(tmp_path, moto)
    yield made
    made.close()
