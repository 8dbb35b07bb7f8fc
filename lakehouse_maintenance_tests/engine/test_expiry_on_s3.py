"""Expiry on a real S3 server whose answers to a deletion fail, lie or get lost: every file's fate is counted right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request as Asked
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.tables import ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, Lose, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

ALL = Asked(
    actions=(Action.EXPIRE_SNAPSHOTS,),
    expiry=ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True),
)
DENIED = Answer(403, b"<Error><Code>AccessDenied</Code></Error>")
ONE_REFUSED = b"""<?xml version="1.0" encoding="UTF-8"?>
<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Error><Key>whatever</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error></DeleteResult>"""


def is_delete(request: Request) -> bool:
    return request.method == "DELETE" or (request.method == "POST" and "delete" in request.target)


class Lake:
    """A table on S3 that PyIceberg writes directly; our storage reaches it through a proxy."""

    def __init__(self, s3: S3Server, proxy: FaultProxy, make: SqlCatalogFactory, folder: Path) -> None:
        self.s3, self.proxy = s3, proxy
        self.bucket = s3.bucket()
        self.writer, properties = make(warehouse=f"s3://{self.bucket}/wh", **s3.properties)
        self.ours: Lakehouse = lakehouse(folder, properties)
        # Only what lists, looks and deletes goes through the proxy; commits write metadata directly.
        catalog = self.ours.catalogs["main"]
        catalog._storage = Storage.from_properties({**properties, "s3.endpoint": proxy.endpoint})
        many_small_files(self.writer)
        self.writer.load_table("db.t").delete("id < 25")
        self.rows = ids(self.writer)

    def expire(self) -> TableOutcome:
        return self.ours.maintain((), ALL).tables[0]

    def objects(self) -> set[str]:
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {f"s3://{self.bucket}/{key}" for key in keys if "metadata.json" not in key}


@pytest.fixture
def lake(s3: S3Server, sql_catalog: SqlCatalogFactory, tmp_path: Path) -> Iterator[Lake]:
    with fault_proxy(s3.endpoint) as proxy:
        yield Lake(s3, proxy, sql_catalog, tmp_path)


def reachable(catalog: SqlCatalog) -> set[str]:
    table = catalog.load_table("db.t")
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True)}
    return found


def test_a_batch_that_is_refused_is_failed_and_finished_by_the_next_run(lake: Lake) -> None:
    there = lake.objects()
    lake.proxy.rule = lambda request: DENIED if is_delete(request) else None
    outcome = lake.expire()
    assert outcome.status is Status.FAILED, outcome
    actual = outcome.actions[0].actual
    assert (actual.deleted_files, actual.unknown_files) == (0, 0)
    assert actual.failed_files == len(there - reachable(lake.writer))
    assert lake.objects() == there
    lake.proxy.rule = lambda request: None
    lake.expire()
    assert lake.objects() == reachable(lake.writer)
    assert ids(lake.writer) == lake.rows


@pytest.mark.parametrize("known", [True, False], ids=["a key of ours", "a key that nobody asked for"])
def test_a_batch_that_is_deleted_though_the_answer_names_an_error(lake: Lake, known: bool) -> None:
    def refuse_one(request: Request) -> Answer | None:
        if not is_delete(request):
            return None
        key = re.search(rb"<Key>(.*?)</Key>", request.body)
        named = key.group(1) if known and key is not None else b"whatever"
        return Answer(200, ONE_REFUSED.replace(b"whatever", named), after=True)

    lake.proxy.rule = refuse_one
    gone = len(lake.objects())
    outcome = lake.expire()
    gone -= len(lake.objects())
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.deleted_files == gone
    assert lake.objects() == reachable(lake.writer)


def test_a_lost_answer_is_asked_again(lake: Lake) -> None:
    lost: list[int] = []

    def lose(request: Request) -> Lose | None:
        if is_delete(request) and not lost:
            lost.append(request.number)
            return Lose()
        return None

    lake.proxy.rule = lose
    outcome = lake.expire()
    assert lost
    assert outcome.status is Status.DONE, outcome
    assert lake.objects() == reachable(lake.writer)
    assert ids(lake.writer) == lake.rows


def test_a_table_that_cannot_be_looked_at_after_a_failure_is_unknown(lake: Lake) -> None:
    refusing: list[int] = []

    def rule(request: Request) -> Answer | None:
        if is_delete(request):
            refusing.append(request.number)
            return DENIED
        if refusing and request.method == "HEAD":
            return Answer(403)
        return None

    lake.proxy.rule = rule
    outcome = lake.expire()
    assert outcome.status is Status.FAILED, outcome
    actual = outcome.actions[0].actual
    assert actual.unknown_files > 0
    assert (actual.deleted_files, actual.failed_files) == (0, 0)
    lake.proxy.rule = lambda request: None
    lake.expire()
    assert lake.objects() == reachable(lake.writer)
