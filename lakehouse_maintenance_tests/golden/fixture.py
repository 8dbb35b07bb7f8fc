"""The golden warehouse for tests: tables written by Spark with Iceberg, checked in, put on the test's S3 server.

Their metadata holds absolute locations below s3://golden/wh, so the bucket's name is fixed. Tests may commit: a commit
only adds objects, and each test gets a catalog of its own that knows the tables as they were written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog

    from lakehouse_maintenance_tests.services.s3 import S3Server

FOLDER = Path(__file__).parent
BUCKET = "golden"
CATALOG = "golden"
WAREHOUSE = f"s3://{BUCKET}/wh"


@dataclass(frozen=True, slots=True)
class Expected:
    """How many rows, and the digest of their canonical form (see readers)."""

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ExpectedTable:
    """A golden table as Spark read it right after writing it.

    `files` counts the current snapshot's files: data, position_deletes, deletion_vectors, equality_deletes, manifests.
    `lineage` (v3): the current rows with `_row_id` and `_last_updated_sequence_number`.
    `readers`: which of pyiceberg, duckdb and spark can read it.
    """

    identifier: tuple[str, ...]
    metadata_location: str
    format_version: int
    description: str
    features: tuple[str, ...]
    readers: tuple[str, ...]
    current: Expected
    snapshots: dict[int, Expected]
    refs: dict[str, Expected]
    files: dict[str, int]
    lineage: Expected | None

    @property
    def name(self) -> str:
        """Dotted, without quoting."""
        return ".".join(self.identifier)

    @property
    def spark_name(self) -> str:
        """The full name in Spark's quoting."""
        return ".".join(f"`{part}`" for part in (CATALOG, *self.identifier))


@cache
def expected() -> dict[str, ExpectedTable]:
    """Every golden table by its dotted name ("db.v2_mor"), as tables.json records it."""
    recorded = json.loads((FOLDER / "tables.json").read_text())
    return {name: _table(name, entry) for name, entry in recorded["tables"].items()}


def _table(name: str, entry: dict[str, Any]) -> ExpectedTable:
    return ExpectedTable(
        identifier=tuple(name.split(".")),
        metadata_location=entry["metadata_location"],
        format_version=entry["format_version"],
        description=entry["description"],
        features=tuple(entry["features"]),
        readers=tuple(entry["readers"]),
        current=Expected(**entry["current"]),
        snapshots={int(snapshot): Expected(**value) for snapshot, value in entry["snapshots"].items()},
        refs={ref: Expected(**value) for ref, value in entry["refs"].items()},
        files=entry["files"],
        lineage=Expected(**entry["lineage"]) if entry["lineage"] else None,
    )


@cache
def objects() -> dict[str, tuple[bytes, str]]:
    """Every object of the bucket: key → (content, MD5 in hexadecimal)."""
    root = FOLDER / "warehouse"
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {key: (body, hashlib.md5(body, usedforsecurity=False).hexdigest()) for key, body in contents.items()}


def upload(s3: S3Server, bucket: str = BUCKET) -> int:
    """Makes the bucket hold every golden object as checked in; returns how many had to be put (2 s for all).

    Objects that are there unchanged are left, others in the bucket are never touched.
    """
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        s3.bucket(bucket),
        endpoint=s3.endpoint,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        region=s3.region,
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )
    present = {item["path"]: (item["e_tag"] or "").strip('"') for batch in obstore.list(store) for item in batch}
    missing = {key: body for key, (body, md5) in objects().items() if present.get(key) != md5}
    with ThreadPoolExecutor(16) as pool:
        puts = [pool.submit(obstore.put, store, key, body, use_multipart=False) for key, body in missing.items()]
        for put in puts:
            put.result()
    return len(missing)


def register(catalog: Catalog) -> None:
    """Creates the namespaces and registers every golden table in any PyIceberg catalog."""
    for table in expected().values():
        namespace = table.identifier[:-1]
        for depth in range(1, len(namespace) + 1):
            catalog.create_namespace_if_not_exists(namespace[:depth])
        catalog.register_table(table.identifier, table.metadata_location)


def copy_catalog(path: Path) -> None:
    """Writes the SQLite catalog that Spark left behind (namespaces, tables, the view) to a new file."""
    shutil.copyfile(FOLDER / "catalog.db", path)
    path.chmod(0o644)


@dataclass(frozen=True, slots=True)
class GoldenLakehouse:
    """The golden tables on a test's S3 server, known to a SQLite catalog that belongs to the test alone."""

    sqlite: Path
    s3: S3Server

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog, named `golden`."""
        return {"type": "sql", "uri": f"sqlite:///{self.sqlite}", "warehouse": WAREHOUSE, **self.s3.properties}

    def catalog(self) -> SqlCatalog:
        """A PyIceberg catalog of its own connection."""
        from pyiceberg.catalog.sql import SqlCatalog

        properties = {key: value for key, value in self.properties.items() if key != "type"}
        return SqlCatalog(CATALOG, **properties)

    def metadata_location(self, table: str) -> str:
        """The table's current metadata location by its dotted name, straight from the database."""
        namespace, _, name = table.rpartition(".")
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        with closing(sqlite3.connect(self.sqlite)) as connection:
            row = connection.execute(query, (namespace, name)).fetchone()
        if row is None:
            raise KeyError(table)
        return str(row[0])


@pytest.fixture
def golden(s3: S3Server, tmp_path: Path) -> GoldenLakehouse:
    """The golden warehouse as written, whatever tests before have committed to it."""
    upload(s3)
    sqlite = tmp_path / "golden.db"
    copy_catalog(sqlite)
    return GoldenLakehouse(sqlite, s3)
