"""Quarantine on real S3 servers: exact keys there and back, and a store that throttles, lies and loses answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import Candidate, EntryKind, EntryState, deleting, read_entry
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage import clients as storage_clients
from lakehouse_maintenance_tests.quarantine_cases import Case, Killed, killed_before
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, Lose, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

PLAIN = [
    *("a", "data/day=1/x.parquet", "data/a b", "data/a%20b", "data/a+b", "data/a=b", "data/a:b", "data/a&b;c"),
    *("data/#h?q", "data/日本", "data/\u00fcn", "data/u\u0308n", "_delta_log/0.json", "data/~x", "data/'q\""),
]
ODD = ["data//x", "//x", "/lead", "data/", "", "data/./x", "data/../x", "data/tail/", "c\x01d", "data/_$folder$"]
"""Keys below the folder, and the folder's own marker."""

NEIGHBOURS = ["old_2/a", "old-backup/a", "older", "ol"]


class S3Case(Case):
    """A folder `db/old` in a bucket of its own, beside folders of similar names."""

    server: S3Server

    def put(self, key: str, body: bytes) -> None:
        self.server.client().put_object(Bucket=self.folder.authority, Key=key, Body=body)

    def bucket(self) -> dict[str, bytes]:
        """All of the bucket, as the vendor's own client shows it."""
        client = self.server.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.folder.authority)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {key: client.get_object(Bucket=self.folder.authority, Key=key)["Body"].read() for key in keys}

    def through(self, proxy: FaultProxy) -> None:
        """From now on the product reaches the store through the proxy alone."""
        self.storage = Storage.from_properties(self.server.at(proxy.endpoint).properties)


def make(server: S3Server, folder: Path, names: Sequence[str]) -> S3Case:
    bucket = server.bucket()
    case = S3Case(
        open_state(str(folder / "state")),
        Storage.from_properties(server.properties),
        Location.parse(f"s3://{bucket}/db/old"),
    )
    case.server = server
    for number, name in enumerate(names):
        case.put(f"db/old/{name}", b"" if name.endswith("/") or not name else f"{number} {name}".encode())
    for name in NEIGHBOURS:
        case.put(f"db/{name}", b"a neighbour's")
    return case


@pytest.fixture
def seaweed(s3: S3Server, tmp_path: Path) -> S3Case:
    return make(s3, tmp_path, PLAIN)


@pytest.fixture
def proxied(seaweed: S3Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Case, FaultProxy]]:
    """Faults that never end are not waited for."""
    monkeypatch.setattr(storage_clients, "MAX_RETRIES", 2)
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))
    monkeypatch.setattr(deleting, "pause", lambda seconds: None)
    with fault_proxy(seaweed.server.endpoint) as proxy:
        seaweed.through(proxy)
        yield seaweed, proxy


def is_copy(request: Request) -> bool:
    return request.method == "PUT" and any(name.lower() == "x-amz-copy-source" for name in request.headers)


def is_delete(request: Request) -> bool:
    return request.method == "DELETE" or (request.method == "POST" and "delete" in request.target)


def is_whole(case: S3Case, before: dict[str, bytes], entry_id: str) -> None:
    """Everything of the folder is in quarantine, exactly, and its neighbours are where they were."""
    entry = read_entry(case.state, entry_id)
    moved = {
        key.replace("db/old/", entry.quarantined.folder_key, 1) if key.startswith("db/old/") else key: body
        for key, body in before.items()
    }
    assert case.bucket() == moved
    assert entry.state == EntryState.QUARANTINED


@pytest.mark.requirement("EN-07")
@pytest.mark.parametrize(("kind", "names"), [(EntryKind.FOLDER, [*PLAIN, *ODD]), (EntryKind.FILES, ODD)])
def test_every_odd_key_goes_and_comes_back(moto: S3Server, tmp_path: Path, kind: EntryKind, names: list[str]) -> None:
    case = make(moto, tmp_path, names)
    case.kind = kind
    before = case.bucket()
    assert len(before) == len(names) + len(NEIGHBOURS)
    entry = case.quarantine()
    assert (case.removals[0].failed, case.removals[0].kept, case.removals[0].unknown) == ({}, {}, {})
    is_whole(case, before, entry.id)
    assert entry.objects == len(names)
    restored = case.quarantining().restore(entry.id)
    assert (restored.status, restored.why, restored.notes) == (Status.DONE, None, ())
    assert case.bucket() == before


def test_every_odd_key_is_purged(moto: S3Server, tmp_path: Path) -> None:
    case = make(moto, tmp_path, ODD)
    entry = case.quarantine()
    (purged,) = case.quarantining().purge(entry.id, timedelta(0))
    assert (purged.status, purged.why, purged.notes) == (Status.DONE, None, ())
    assert set(case.bucket()) == {f"db/{name}" for name in NEIGHBOURS}


def test_there_and_back_on_a_real_server(seaweed: S3Case) -> None:
    parts = seaweed.server.client()
    upload = parts.create_multipart_upload(Bucket=seaweed.folder.authority, Key="db/old/in parts")["UploadId"]
    where = {"Bucket": seaweed.folder.authority, "Key": "db/old/in parts", "UploadId": upload}
    tag = parts.upload_part(**where, PartNumber=1, Body=b"a part")["ETag"]
    parts.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    before = seaweed.bucket()
    entry = seaweed.quarantine()
    assert seaweed.removals[0].is_complete
    is_whole(seaweed, before, entry.id)
    restored = seaweed.quarantining().restore(entry.id)
    assert (restored.status, restored.why, restored.notes) == (Status.DONE, None, ())
    assert seaweed.bucket() == before


@pytest.mark.requirement("UF-49")
def test_an_occupied_place_is_refused(seaweed: S3Case) -> None:
    entry = seaweed.quarantine()
    seaweed.put("db/old/metadata/v1.metadata.json", b"{}")
    there = seaweed.bucket()
    refused = seaweed.quarantining().restore(entry.id)
    assert refused.status is Status.BLOCKED
    assert "db/old/metadata/v1.metadata.json (2 bytes" in (refused.why or "")
    assert seaweed.bucket() == there
    # What only begins with the folder's name occupies nothing.
    seaweed.server.client().delete_object(Bucket=seaweed.folder.authority, Key="db/old/metadata/v1.metadata.json")
    assert seaweed.quarantining().restore(entry.id).status is Status.DONE


def test_a_replaced_object_stays(seaweed: S3Case) -> None:
    candidates = [
        Candidate(c.path, c.kind, c.size, c.etag) for c in seaweed.candidates()
    ]  # times are told in seconds: the tag alone must do
    body = seaweed.bucket()["db/old/a"]
    seaweed.put("db/old/a", bytes(reversed(body)))
    seaweed.quarantine(candidates)
    assert dict(seaweed.removals[0].kept) == {"another version than the file that was meant": 1}
    assert seaweed.objects() == {"a": bytes(reversed(body))}


# Faults


def test_throttling_is_no_failure(proxied: tuple[S3Case, FaultProxy]) -> None:
    case, proxy = proxied
    before = case.bucket()
    seen: set[str] = set()

    def once(request: Request) -> Answer | None:
        if (is_copy(request) or is_delete(request)) and request.target not in seen:
            seen.add(request.target)
            return Answer(503, b"<Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>")
        return None

    proxy.rule = once
    entry = case.quarantine()
    assert len(seen) > len(PLAIN)
    assert case.removals[0].is_complete
    is_whole(case, before, entry.id)
    seen.clear()
    assert case.quarantining().restore(entry.id).status is Status.DONE
    assert len(seen) > len(PLAIN)
    assert case.bucket() == before


def test_a_storm_that_does_not_end_moves_nothing(proxied: tuple[S3Case, FaultProxy]) -> None:
    case, proxy = proxied
    before = case.bucket()
    storm = Answer(503, b"<Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>")
    proxy.rule = lambda request: storm if is_copy(request) else None
    entry = case.quarantine()
    assert len(case.removals[0].failed) == len(PLAIN)
    assert case.bucket() == before
    assert (entry.state, case.is_open()) == (EntryState.MOVING, True)
    proxy.rule = lambda request: None
    assert case.go_on().moved == len(PLAIN)
    is_whole(case, before, entry.id)

    proxy.rule = lambda request: storm if is_copy(request) else None
    assert case.quarantining().restore(entry.id).status is Status.FAILED
    proxy.rule = lambda request: None
    assert case.quarantining().restore(entry.id).status is Status.DONE
    assert case.bucket() == before


@pytest.mark.parametrize("what", ["copies", "deletions"])
def test_answers_that_are_lost(proxied: tuple[S3Case, FaultProxy], what: str) -> None:
    """The store does it and never says so; asked again, it finds a copy that is there, or nothing to delete."""
    case, proxy = proxied
    before = case.bucket()
    seen: set[str] = set()

    def lose(request: Request) -> Lose | None:
        if (is_copy(request) if what == "copies" else is_delete(request)) and request.target not in seen:
            seen.add(request.target)
            return Lose()
        return None

    proxy.rule = lose
    entry = case.quarantine()
    assert seen
    assert case.removals[0].is_complete, case.removals[0]
    is_whole(case, before, entry.id)
    seen.clear()
    restored = case.quarantining().restore(entry.id)
    assert seen
    assert (restored.status, restored.why) == (Status.DONE, None)
    assert case.bucket() == before


def test_a_store_that_says_deleted_and_has_not(proxied: tuple[S3Case, FaultProxy]) -> None:
    case, proxy = proxied
    before = case.bucket()
    lie = Answer(200, b"<DeleteResult></DeleteResult>")
    proxy.rule = lambda request: lie if request.method == "POST" and "delete" in request.target else None
    entry = case.quarantine()
    assert len(case.removals[0].failed) == len(PLAIN)
    assert case.removals[0].moved == 0
    assert {key: body for key, body in case.bucket().items() if key in before} == before
    proxy.rule = lambda request: None
    assert case.go_on().moved == len(PLAIN)
    is_whole(case, before, entry.id)


def test_a_place_that_cannot_be_looked_at_is_not_restored_to(proxied: tuple[S3Case, FaultProxy]) -> None:
    case, proxy = proxied
    entry = case.quarantine()
    there = case.bucket()
    proxy.rule = lambda request: Answer(500) if "prefix=db%2Fold" in request.target else None
    assert case.quarantining().restore(entry.id).status is Status.FAILED
    assert case.bucket() == there
    assert read_entry(case.state, entry.id).state == EntryState.QUARANTINED
    assert not case.is_open()


@pytest.mark.parametrize("number", [1, 7, len(PLAIN) + 1])
def test_killed_amid_it_the_next_run_ends_it(seaweed: S3Case, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    before = seaweed.bucket()
    with pytest.raises(Killed), killed_before([], number, monkeypatch):
        seaweed.quarantine()
    (listed,) = seaweed.quarantining().listed()
    assert seaweed.go_on().is_complete
    is_whole(seaweed, before, listed.entry.id)
    with pytest.raises(Killed), killed_before([], number, monkeypatch):
        seaweed.quarantining().restore(listed.entry.id)
    assert seaweed.quarantining().restore(listed.entry.id).status is Status.DONE
    assert seaweed.bucket() == before
