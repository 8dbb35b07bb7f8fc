"""Copies inside a store: complete or not at all, never over anything, and looked at afterwards."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest

from lakehouse_maintenance.model.errors import (
    AlreadyExistsError,
    ListingIncompleteError,
    NotFoundError,
    StorageError,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage import clients as storage_clients
from lakehouse_maintenance.storage import local as storage_local
from lakehouse_maintenance.storage import vendor as storage_vendor
from lakehouse_maintenance_tests.services.faults import Answer, Cut, FaultProxy, Lose, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

SLOW = Answer(503, b"<Error><Code>SlowDown</Code></Error>")


@dataclass
class Place:
    """A folder or a bucket."""

    storage: Storage
    root: str

    def at(self, key: str) -> Location:
        return Location.parse(f"{self.root}/{key}")

    def put(self, key: str, body: bytes) -> Location:
        location = self.at(key)
        if location.family == "file":
            Path(location.local_path).parent.mkdir(parents=True, exist_ok=True)
            Path(location.local_path).write_bytes(body)
        else:
            obstore.put(self.storage.client(location), location.key, body)
        return location

    def keys(self) -> list[str]:
        root = Location.parse(self.root)
        return sorted(
            info.location.key.removeprefix(root.folder_key) for batch in self.storage.list(root) for info in batch
        )


@pytest.fixture(params=["local", "s3", "moto"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(Storage.from_properties({}), str(tmp_path))
    server: S3Server = request.getfixturevalue(request.param)
    return Place(Storage.from_properties(server.properties), f"s3://{server.bucket()}")


@dataclass
class Proxied(Place):
    """`direct`: the same bucket without the proxy."""

    proxy: FaultProxy
    direct: Place


@pytest.fixture
def proxied(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))
    monkeypatch.setattr(storage_clients, "LONGEST_BACKOFF", timedelta(milliseconds=5))
    root = f"s3://{s3.bucket()}"
    with fault_proxy(s3.endpoint) as proxy:
        storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        yield Proxied(storage, root, proxy, Place(Storage.from_properties(s3.properties), root))


def is_copy(request: Request) -> bool:
    return request.method == "PUT" and any(name.lower() == "x-amz-copy-source" for name in request.headers)


def test_a_copy_has_the_same_bytes(place: Place) -> None:
    for key, body in {"t/empty": b"", "t/x.parquet": bytes(range(256)) * 50_000}.items():
        source = place.put(key, body)
        target = place.at("q/deep/er/" + key)
        info = place.storage.copy(source, target)
        assert (info.location, info.size) == (target, len(body))
        assert info == place.storage.stat(target)
        assert place.storage.read(target) == body
        assert place.storage.read(source) == body
    assert place.keys() == ["q/deep/er/t/empty", "q/deep/er/t/x.parquet", "t/empty", "t/x.parquet"]


def test_a_copy_overwrites_nothing(place: Place) -> None:
    source, target = place.put("t/x", b"mine"), place.put("q/x", b"somebody's")
    with pytest.raises(AlreadyExistsError, match="q/x"):
        place.storage.copy(source, target)
    with pytest.raises(AlreadyExistsError):
        place.storage.copy(source, source)
    assert place.storage.read(target) == b"somebody's"
    assert place.keys() == ["q/x", "t/x"]


def test_what_is_not_there_is_not_copied(place: Place) -> None:
    with pytest.raises(NotFoundError, match="t/absent"):
        place.storage.copy(place.at("t/absent"), place.at("q/x"))
    assert place.keys() == []


def test_a_copy_stays_in_its_store(place: Place) -> None:
    with pytest.raises(StorageError, match="one store"):
        place.storage.copy(place.put("x", b"1"), Location.parse("s3://elsewhere/x"))


def test_of_many_copies_to_one_name_one_wins(tmp_path: Path, s3: S3Server) -> None:
    for place in (
        Place(Storage.from_properties({}), str(tmp_path)),
        Place(Storage.from_properties(s3.properties), f"s3://{s3.bucket()}"),
    ):
        sources = [place.put(f"t/{number}", f"{number}".encode()) for number in range(8)]
        target = place.at("q/x")

        def copy(source: Location, place: Place = place, target: Location = target) -> bool:
            try:
                place.storage.copy(source, target)
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(copy, sources))
        assert won.count(True) == 1
        assert place.storage.read(target) == place.storage.read(sources[won.index(True)])
        assert len(place.keys()) == 9


# --- local files


def test_a_local_copy_where_the_kernel_has_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    place = Place(Storage.from_properties({}), str(tmp_path))
    body = os.urandom(100_000)
    place.storage.copy(place.put("t/x", body), place.at("q/x"))
    assert (tmp_path / "q/x").read_bytes() == body


@pytest.mark.parametrize("call", ["copy_file_range", "fsync", "link"])
def test_a_local_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = Place(Storage.from_properties({}), str(tmp_path))
    source = place.put("t/x", b"1")
    monkeypatch.setattr(os, call, full, raising=False)
    with pytest.raises(StorageError, match="No space left"):
        place.storage.copy(source, place.at("q/x"))
    assert place.keys() == ["t/x"]


def test_a_local_copy_that_is_killed_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every moment before the end the target does not exist, and what exists says that it is nobody's."""
    place = Place(Storage.from_properties({}), str(tmp_path))
    source = place.put("t/x", b"1")
    seen: list[list[str]] = []
    for call in ("copy_file_range", "fsync", "link"):
        real: Callable[..., Any] = getattr(os, call)

        def looked_at(*arguments: Any, real: Callable[..., Any] = real) -> Any:
            seen.append(place.keys())
            return real(*arguments)

        monkeypatch.setattr(os, call, looked_at)
    place.storage.copy(source, place.at("q/x"))
    before_link = [keys for keys in seen if "q/x" not in keys]
    assert len(before_link) >= 4
    for keys in before_link:
        assert len(keys) == 2
        assert keys[0].startswith("q/_lakehouse_maintenance_copy_")
    assert place.keys() == ["q/x", "t/x"]


def test_a_local_file_that_shrinks_meanwhile_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(Storage.from_properties({}), str(tmp_path))
    source = place.put("t/x", b"12345")
    real = storage_local._copy_content

    def shrink(*paths: str) -> int:
        Path(source.local_path).write_bytes(b"1")
        return real(*paths)

    monkeypatch.setattr(storage_local, "_copy_content", shrink)
    with pytest.raises(StorageError, match="1 of 5 bytes"):
        place.storage.copy(source, place.at("q/x"))
    assert place.keys() == ["t/x"]


def test_a_local_folder_is_not_overwritten(tmp_path: Path) -> None:
    place = Place(Storage.from_properties({}), str(tmp_path))
    (tmp_path / "q").mkdir()
    with pytest.raises(AlreadyExistsError):
        place.storage.copy(place.put("t/x", b"1"), place.at("q"))
    with pytest.raises(StorageError):
        place.storage.copy(place.at("t/x"), place.at("t/x/below"))
    assert place.keys() == ["t/x"]


# --- S3 that fails


def test_who_comes_between_look_and_copy_is_not_overwritten(proxied: Proxied) -> None:
    source, target = proxied.put("t/x", b"mine"), proxied.at("q/x")
    proxied.proxy.rule = lambda request: (proxied.direct.put("q/x", b"theirs") and None) if is_copy(request) else None
    with pytest.raises(AlreadyExistsError):
        proxied.storage.copy(source, target)
    assert proxied.direct.storage.read(target) == b"theirs"


def test_a_store_without_conditional_copies_is_looked_at_before(proxied: Proxied) -> None:
    source, target = proxied.put("t/x", b"mine"), proxied.at("q/x")
    refused: list[int] = []

    def rule(request: Request) -> Answer | None:
        if is_copy(request) and any(name.lower() == "if-none-match" for name in request.headers):
            refused.append(request.number)
            return Answer(501, b"<Error><Code>NotImplemented</Code></Error>")
        return None

    proxied.proxy.rule = rule
    assert proxied.storage.copy(source, target).size == 4
    assert refused
    with pytest.raises(AlreadyExistsError):
        proxied.storage.copy(proxied.put("t/y", b"other"), target)
    odd = proxied.at("q/o\x01dd")
    assert proxied.storage.copy(source, odd).location == odd
    assert proxied.direct.storage.read(odd) == b"mine"


@pytest.mark.parametrize(
    "fault", [SLOW, Answer(429), Lose(), Cut(), Cut(20)], ids=["503", "429", "lost", "cut", "half"]
)
def test_a_copy_whose_answer_is_lost_or_late_is_done(proxied: Proxied, fault: Answer | Lose | Cut) -> None:
    source, target = proxied.put("t/x", b"mine"), proxied.at("q/x")
    failed: list[int] = []

    def rule(request: Request) -> Answer | Lose | Cut | None:
        if is_copy(request) and len(failed) < 3:
            failed.append(request.number)
            return fault
        return None

    proxied.proxy.rule = rule
    assert proxied.storage.copy(source, target).size == 4
    assert failed
    assert proxied.direct.storage.read(target) == b"mine"


@pytest.mark.parametrize("wrong", [b"short", b"same size!", None], ids=["size", "bytes", "nothing"])
def test_a_copy_that_is_not_the_same_is_not_trusted(proxied: Proxied, wrong: bytes | None) -> None:
    source, target = proxied.put("t/x", b"0123456789"), proxied.at("q/x")

    def rule(request: Request) -> Answer | None:
        if not is_copy(request):
            return None
        if wrong is not None:
            proxied.direct.put("q/x", wrong)
        return Answer(200, b"<CopyObjectResult><ETag>&quot;x&quot;</ETag></CopyObjectResult>")

    proxied.proxy.rule = rule
    with pytest.raises(StorageError, match="not there" if wrong is None else "cannot be trusted") as caught:
        proxied.storage.copy(source, target)
    assert not isinstance(caught.value, AlreadyExistsError)


def test_a_copy_that_always_fails_says_why(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    source = proxied.put("t/x", b"1")
    body = b"<Error><Code>InvalidObjectState</Code><Message>archived</Message></Error>"
    proxied.proxy.rule = lambda request: Answer(403, body) if is_copy(request) else None
    for target in ("q/x", "q/o\x01dd"):
        with pytest.raises(StorageError, match="InvalidObjectState"):
            proxied.storage.copy(source, proxied.at(target))
    assert proxied.direct.keys() == ["t/x"]


def test_etags_that_are_no_checksums(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under KMS they look like checksums and differ; there, and nowhere else, the size is believed."""
    bucket = moto.bucket()
    client = moto.client()
    client.put_object(Bucket=bucket, Key="one", Body=b"1234")
    client.put_object(Bucket=bucket, Key="same", Body=b"1234")
    client.put_object(Bucket=bucket, Key="other", Body=b"5678")
    client.put_object(Bucket=bucket, Key="kms", Body=b"9999", ServerSideEncryption="aws:kms")
    storage = Storage.from_properties(moto.properties)
    store = storage._store(Location.parse(f"s3://{bucket}/"))

    def info(key: str, etag: str | None = None) -> ObjectInfo:
        found = storage.stat(Location.parse(f"s3://{bucket}/{key}"))
        assert found is not None
        return replace(found, etag=etag or found.etag)

    assert store.why_not_copied(info("one"), info("same")) is None
    assert store.why_not_copied(info("one"), info("same", '"' + "0" * 32 + '"')) is None
    assert store.why_not_copied(info("one"), info("other")) == "its bytes are not the same"
    assert store.why_not_copied(info("one"), info("kms")) is None
    monkeypatch.setitem(sys.modules, "boto3", None)
    store = Storage.from_properties(moto.properties)._store(Location.parse(f"s3://{bucket}/"))
    assert store.why_not_copied(info("one"), info("kms")) == "its bytes are not the same"


def test_objects_too_large_for_one_call(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(Storage.from_properties(s3.properties), f"s3://{s3.bucket()}")
    body = os.urandom(9 * 1024 * 1024)
    source, target = place.put("t/x", body), place.at("q/x")
    monkeypatch.setattr(storage_vendor, "COPY_LIMIT", 8 * 1024 * 1024)
    assert place.storage.copy(source, target).size == len(body)
    assert place.storage.read(target) == body
    monkeypatch.setitem(sys.modules, "boto3", None)
    without = Storage.from_properties(s3.properties)
    with pytest.raises(StorageError, match="one call") as caught:
        without.copy(source, place.at("q/y"))
    assert caught.value.hint is not None
    assert "aws" in caught.value.hint
    assert place.keys() == ["q/x", "t/x"]


# --- patience


@pytest.mark.requirement("EN-06")
def test_list_stat_and_read_wait_out_a_storm(proxied: Proxied) -> None:
    location = proxied.put("t/x.parquet", b"1234")
    storm = [SLOW, Answer(429), SLOW, Cut(), SLOW, Lose(), SLOW, SLOW, SLOW]

    def in_storm(request: Request) -> Answer | Cut | Lose | None:
        return storm[request.number - 1] if request.number <= len(storm) else None

    for call in (
        lambda storage: [info.size for batch in storage.list(Location.parse(proxied.root)) for info in batch] == [4],
        lambda storage: storage.stat(location).size == 4,
        lambda storage: storage.read(location) == b"1234",
        lambda storage: storage.read(location, 1, 2) == b"23",
    ):
        proxied.proxy.seen.clear()
        proxied.proxy.rule = in_storm
        assert call(proxied.storage)
        assert len(proxied.proxy.seen) >= len(storm)


@pytest.mark.requirement("EN-06")
def test_patience_ends(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    location = proxied.put("t/x.parquet", b"1234")
    for fault in (SLOW, Cut(), Cut(100)):
        proxied.proxy.rule = lambda request, fault=fault: fault
        with pytest.raises(ListingIncompleteError):
            list(proxied.storage.list(Location.parse(proxied.root)))
        if fault != Cut(100):
            with pytest.raises(StorageError):
                proxied.storage.stat(location)


def test_a_page_that_was_cut_is_asked_for_again_or_fails(proxied: Proxied) -> None:
    proxied.put("t/x.parquet", b"1234")
    proxied.proxy.rule = lambda request: Cut(100) if request.number == 1 else None
    proxied.proxy.seen.clear()
    try:
        found = [info for batch in proxied.storage.list(Location.parse(proxied.root)) for info in batch]
    except ListingIncompleteError:
        return
    assert [info.size for info in found] == [4]
