"""Where a scenario lies: a folder, and a bucket beside it where tables are kept in one. Reset before each run.

Iceberg's metadata names files by their whole path, so a lakehouse is put back where it was built, never elsewhere.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """`folder`: of the lakehouse, with state and catalog; `bucket` and `properties` where its files lie in S3.

    `ahead`: by how much the clock of leases runs ahead. `kept`: name of the copy that `reset` puts back.
    """

    root: Path
    bucket: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    ahead: timedelta = timedelta()
    kept: str = "built"

    @property
    def folder(self) -> Path:
        """What a run changes."""
        return self.root / "lake"

    @property
    def template(self) -> Path:
        """What it was before."""
        return self.root / self.kept / "lake"

    @property
    def objects(self) -> Path:
        """What the bucket held before."""
        return self.root / self.kept / "objects"

    @property
    def warehouse(self) -> str:
        """URL of the folder of tables."""
        return f"s3://{self.bucket}/warehouse" if self.bucket else f"file://{self.folder / 'warehouse'}"

    @property
    def catalog(self) -> dict[str, str]:
        """Properties of the catalog, as lakehouse.yaml takes them."""
        uri = f"sqlite:///{self.folder / 'main'}.db"
        return {"type": "sql", "uri": uri, "warehouse": self.warehouse, **self.properties}

    def clear(self) -> None:
        """An empty folder."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def keep(self) -> None:
        """Takes a copy of what is there now, in place of an earlier one of the same name."""
        shutil.rmtree(self.root / self.kept, ignore_errors=True)
        shutil.copytree(self.folder, self.template, symlinks=True)
        if self.bucket:
            client = self._client()
            self.objects.mkdir()
            for key in _keys(client, self.bucket):
                target = self.objects / key
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def reset(self) -> None:
        """Puts back what was kept; file times too, but for objects that a run had deleted."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.template, self.folder, symlinks=True)
        if self.bucket:
            self._reset_bucket()

    def files(self) -> set[str]:
        """Locations of all files of the warehouse."""
        if self.bucket:
            return {f"s3://{self.bucket}/{key}" for key in _keys(self._client(), self.bucket)}
        return {f"file://{path}" for path in (self.folder / "warehouse").rglob("*") if path.is_file()}

    def contents(self) -> dict[str, str]:
        """A digest of the content of each file of the warehouse, by location."""
        if self.bucket:
            client = self._client()
            found = {
                f"s3://{self.bucket}/{key}": client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
                for key in _keys(client, self.bucket)
            }
        else:
            found = {path: Path(path.removeprefix("file://")).read_bytes() for path in self.files()}
        return {path: hashlib.sha256(content).hexdigest() for path, content in found.items()}

    def write(self, location: str, content: bytes) -> None:
        """A file of the warehouse, under exactly this name."""
        if self.bucket:
            key = location.removeprefix(f"s3://{self.bucket}/")
            self._client().put_object(Bucket=self.bucket, Key=key, Body=content)
        else:
            path = Path(location.removeprefix("file://"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _reset_bucket(self) -> None:
        """Names of objects are never used twice with other content, so names alone tell what differs."""
        client = self._client()
        there = set(_keys(client, str(self.bucket)))
        kept = {path.relative_to(self.objects).as_posix() for path in self.objects.rglob("*") if path.is_file()}
        if there - kept:
            delete = {"Objects": [{"Key": key} for key in sorted(there - kept)]}
            client.delete_objects(Bucket=self.bucket, Delete=delete)
        for key in kept - there:
            client.put_object(Bucket=self.bucket, Key=key, Body=(self.objects / key).read_bytes())

    def _client(self) -> Any:
        names = ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.region")
        return _client(*(self.properties[name] for name in names))


@functools.cache
def _client(endpoint: str, key: str, secret: str, region: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name=region,
        config=Config(s3={"addressing_style": "path"}),
    )


def _keys(client: Any, bucket: str) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]
