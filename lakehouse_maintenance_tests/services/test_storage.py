"""Storage on local files and on real S3 servers: exact keys, complete listings or an error, errors that say what."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
import pytest

from lakehouse_maintenance.model.errors import ListingIncompleteError, NotFoundError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage import clients as storage_clients
from lakehouse_maintenance.storage.ordered import map_ordered
from lakehouse_maintenance_tests.services.faults import Answer, Lose, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

ODD_NAMES = [
    "a b",
    "a%20b",
    "a+b",
    "a=b",
    "a:b",
    "a&b;c",
    "#h?q",
    "日本",
    "\u00fcn",
    "u\u0308n",
    "~x",
    "dot.",
    "'q\"",
    "_t",
]


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults that never end should not be waited for."""
    monkeypatch.setattr(storage_clients, "MAX_RETRIES", 1)
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))


def fill(server: S3Server, bucket: str, keys: list[str], body: bytes = b"x") -> None:
    # obstore's raw client, which writes several times as fast as boto3; odd keys are written with boto3.
    client = storage_clients.client_for(Location.parse(f"s3://{bucket}/"), server.properties)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: obstore.put(client, key, body), keys))


def listed(storage: Storage, prefix: str, **options: int) -> list[ObjectInfo]:
    return [info for batch in storage.list(Location.parse(prefix), **options) for info in batch]


def keys(storage: Storage, prefix: str) -> list[str]:
    return sorted(info.location.key for info in listed(storage, prefix))


# --- local files


def test_local_listing_is_recursive_exact_and_batched(tmp_path: Path) -> None:
    names = [f"t/{name}" for name in ODD_NAMES] + ["t/day=1/x", "t/day=1/deep/er/y", "t_2/other", "t-backup/other"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    storage = Storage.from_properties({})
    for spelling in (f"file://{tmp_path}/t", f"file:{tmp_path}/t/", f"{tmp_path}/t"):
        batches = list(storage.list(Location.parse(spelling), batch_size=4))
        assert max(len(batch) for batch in batches) == 4
        found = {info.location.text: info for batch in batches for info in batch}
        root = spelling.rstrip("/") + "/"
        assert sorted(found) == sorted(root + name.removeprefix("t/") for name in names if name.startswith("t/"))
        for text, info in found.items():
            assert Location.parse(text) == info.location
            assert storage.read(info.location) == ("t/" + text.removeprefix(root)).encode()
            assert info == storage.stat(info.location)
            assert info.modified is not None
            assert abs(datetime.now(UTC) - info.modified) < timedelta(hours=1)


def test_local_names_that_are_not_unicode_stay_exact(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(raw, "wb") as file:
        file.write(b"1")
    storage = Storage.from_properties({})
    (info,) = listed(storage, str(tmp_path))
    assert os.fsencode(info.location.local_path) == raw
    assert storage.read(info.location) == b"1"


def test_local_links_and_special_files(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "foreign").write_bytes(b"1")
    table = tmp_path / "t"
    table.mkdir()
    (table / "own").write_bytes(b"12")
    (table / "to_file").symlink_to(outside / "foreign")
    (table / "to_folder").symlink_to(outside)
    (table / "to_nothing").symlink_to(outside / "absent")
    (table / "to_itself").symlink_to(table / "to_itself")
    os.mkfifo(table / "pipe")
    storage = Storage.from_properties({})
    assert {info.location.name: info.size for info in listed(storage, str(table))} == {"own": 2, "to_file": 1}


def test_a_local_folder_that_cannot_be_read_fails_the_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "closed", "z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"1")
    real = os.scandir

    def scandir(path: str) -> object:
        # A mock, since tests may run as root, who may read everything.
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ListingIncompleteError, match=r"Permission denied at .*closed"):
        listed(Storage.from_properties({}), str(tmp_path))


def test_what_is_absent_locally(tmp_path: Path) -> None:
    storage = Storage.from_properties({})
    (tmp_path / "file").write_bytes(b"1")
    for name in ("absent", "file/below", "absent/below"):
        location = Location.parse(f"{tmp_path}/{name}")
        assert listed(storage, location.text) == []
        assert storage.stat(location) is None
        with pytest.raises(NotFoundError, match=name):
            storage.read(location)
    folder = Location.parse(str(tmp_path))
    assert storage.stat(folder) is None
    with pytest.raises(NotFoundError):
        storage.read(folder)


# --- S3


MANY = [f"wh/t/part={i % 7}/f{i:05d}.parquet" for i in range(2100)]


@pytest.fixture(scope="module")
def crowded(s3: S3Server) -> str:
    """A bucket with three pages of objects in `wh/t`, and neighbours whose names begin like it."""
    bucket = s3.bucket()
    fill(s3, bucket, [*MANY, "wh/t_2/other", "wh/t-backup/other", "wh/t.x"])
    return bucket


def test_s3_listing_pages_to_the_end(s3: S3Server, crowded: str) -> None:
    with fault_proxy(s3.endpoint) as proxy:
        storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        batches = list(storage.list(Location.parse(f"s3a://{crowded}/wh/t"), batch_size=400))
        assert len(proxy.seen) >= 3
    assert max(len(batch) for batch in batches) <= 400
    found = [info for batch in batches for info in batch]
    assert sorted(info.location.text for info in found) == sorted(f"s3a://{crowded}/{key}" for key in MANY)
    assert {info.size for info in found} == {1}
    assert all(info.modified is not None and info.modified.tzinfo is not None for info in found)
    storage = Storage.from_properties(s3.properties)
    assert keys(storage, f"s3://{crowded}/wh/absent") == []
    assert len(listed(storage, f"s3://{crowded}")) == len(MANY) + 3


def test_s3_listing_that_fails_on_its_second_page_is_an_error(s3: S3Server, crowded: str, few_retries: None) -> None:
    def rule(request: Request) -> Answer | None:
        return Answer(503, b"<Error><Code>SlowDown</Code></Error>") if "continuation-token" in request.target else None

    with fault_proxy(s3.endpoint) as proxy:
        proxy.rule = rule
        storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        seen = 0
        with pytest.raises(ListingIncompleteError, match=f"s3://{crowded}/wh/t: .*503") as caught:  # noqa: PT012
            for batch in storage.list(Location.parse(f"s3://{crowded}/wh/t"), batch_size=100):
                seen += len(batch)
        assert 0 < seen <= 1000
        assert s3.secret_key not in str(caught.value)


def test_s3_listing_goes_on_after_throttling(s3: S3Server, crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))
    with fault_proxy(s3.endpoint) as proxy:
        proxy.rule = lambda request: {1: Answer(503), 2: Answer(429), 4: Lose()}.get(request.number)
        storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        assert len(listed(storage, f"s3://{crowded}/wh/t")) == len(MANY)
        assert len(proxy.seen) == 6


def test_s3_odd_keys_survive_list_stat_and_read(s3: S3Server, moto: S3Server) -> None:
    for server in (s3, moto):
        bucket = server.bucket()
        client = server.client()
        names = [f"t/{name}" for name in ODD_NAMES]
        for name in names:
            client.put_object(Bucket=bucket, Key=name, Body=name.encode())
        storage = Storage.from_properties(server.properties)
        found = listed(storage, f"s3://{bucket}/t/")
        assert sorted(info.location.key for info in found) == sorted(names)
        for info in found:
            assert storage.stat(info.location) is not None
            assert storage.read(info.location) == info.location.key.encode()
        assert storage.stat(Location.parse(f"s3://{bucket}/t/a%2520b")) is None


def test_folder_markers_keep_their_slash(moto: S3Server) -> None:
    bucket = moto.bucket()
    client = moto.client()
    bodies = {
        "t/": b"",
        "t/both": b"data",
        "t/both-between": b"1",
        "t/both/": b"",
        "t/both/inside": b"1",
        "t/empty": b"",
        "t/marker/": b"",
        "t/two": b"",
        "t/two/": b"",
        "t/full": b"1",
        "t/full/": b"also data",
        "t/day_$folder$": b"",
        "t_2/": b"",
    }
    for key, body in bodies.items():
        client.put_object(Bucket=bucket, Key=key, Body=body)
    storage = Storage.from_properties(moto.properties)
    for batch_size in (1, 2, 1000):
        found = listed(storage, f"s3://{bucket}/t", batch_size=batch_size)
        assert {info.location.key: info.size for info in found} == {
            key: len(body) for key, body in bodies.items() if key.startswith("t/")
        }
        assert len(found) == len(bodies) - 1


@pytest.mark.parametrize("key", ["t//x", "/t/x", "t/./x", "t/../x"])
def test_a_key_that_cannot_be_named_exactly_is_an_error_without_boto3(
    moto: S3Server, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = moto.bucket()
    moto.client().put_object(Bucket=bucket, Key=key, Body=b"1")
    moto.client().put_object(Bucket=bucket, Key="t/x", Body=b"the wrong one")
    monkeypatch.setitem(sys.modules, "boto3", None)
    storage = Storage.from_properties(moto.properties)
    location = Location.parse(f"s3://{bucket}/{key}")
    assert location.key == key
    for call in (storage.read, storage.stat):
        with pytest.raises(StorageError, match="cannot be named exactly") as caught:
            call(location)
        assert not isinstance(caught.value, NotFoundError)
        assert caught.value.hint is not None
        assert "aws" in caught.value.hint
    if not key.startswith("/"):
        with pytest.raises(ListingIncompleteError):
            listed(storage, f"s3://{bucket}/t")


def test_a_leading_slash_in_the_bucket_fails_its_listing_without_boto3(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = moto.bucket()
    moto.client().put_object(Bucket=bucket, Key="/t/x", Body=b"1")
    monkeypatch.setitem(sys.modules, "boto3", None)
    storage = Storage.from_properties(moto.properties)
    assert keys(storage, f"s3://{bucket}/t") == []
    with pytest.raises(ListingIncompleteError):
        listed(storage, f"s3://{bucket}/")


def test_a_folder_key_is_not_read_as_the_object_of_that_name(moto: S3Server) -> None:
    bucket = moto.bucket()
    moto.client().put_object(Bucket=bucket, Key="t", Body=b"1")
    with pytest.raises(NotFoundError):
        Storage.from_properties(moto.properties).read(Location.parse(f"s3://{bucket}/t/"))


@pytest.fixture(params=["local", "s3"])
def digits(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, Location]:
    """A store, and the location of an object with the bytes 0123456789."""
    if request.param == "local":
        (tmp_path / "digits").write_bytes(b"0123456789")
        return Storage.from_properties({}), Location.parse(f"{tmp_path}/digits")
    s3: S3Server = request.getfixturevalue("s3")
    bucket = s3.bucket()
    fill(s3, bucket, ["digits"], b"0123456789")
    return Storage.from_properties(s3.properties), Location.parse(f"s3://{bucket}/digits")


def test_ranged_reads(digits: tuple[Storage, Location]) -> None:
    storage, location = digits
    assert storage.read(location) == b"0123456789"
    assert storage.read(location, 4) == b"456789"
    assert storage.read(location, 4, 3) == b"456"
    assert storage.read(location, 0, 10) == b"0123456789"
    assert storage.read(location, 9, 1) == b"9"
    assert storage.read(location, 3, 0) == b""
    for start, length in ((8, 5), (0, 11), (20, 1), (10, 1), (20, None)):
        with pytest.raises(StorageError) as caught:
            storage.read(location, start, length)
        assert location.text in str(caught.value)
        assert not isinstance(caught.value, NotFoundError)
    with pytest.raises(ValueError, match="negative"):
        storage.read(location, -1)


def test_read_many_and_stat_many_keep_the_order(digits: tuple[Storage, Location]) -> None:
    storage, location = digits
    absent = location.with_key(location.key + "-absent")
    wanted = [location, absent, location] * 5
    assert [info and info.size for _, info in storage.stat_many(wanted, concurrency=3)] == [10, None, 10] * 5
    assert [data for _, data in storage.read_many([location] * 5)] == [b"0123456789"] * 5
    reading = storage.read_many([location, absent, location], concurrency=2)
    assert next(reading) == (location, b"0123456789")
    with pytest.raises(NotFoundError):
        next(reading)


def test_read_ahead_is_bounded() -> None:
    lock = threading.Lock()
    running = most = 0
    asked = 0

    def items() -> Iterator[int]:
        nonlocal asked
        for item in range(50):
            asked += 1
            yield item

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return item

    given = 0
    for item, result in map_ordered(work, items(), concurrency=4):
        assert item == result == given
        given += 1
        assert asked <= given + 4
    assert given == 50
    assert most <= 4
    early = map_ordered(work, items(), concurrency=4)
    asked = 0
    next(early)
    early.close()
    assert asked <= 5


def test_a_missing_bucket_proves_nothing_absent(s3: S3Server, few_retries: None) -> None:
    storage = Storage.from_properties(s3.properties)
    location = Location.parse("s3://no-such-bucket/t/x")
    with pytest.raises(ListingIncompleteError):
        listed(storage, "s3://no-such-bucket/t")
    with pytest.raises(StorageError, match="no-such-bucket") as caught:
        storage.stat(location)
    assert caught.value.hint
    present = Location.parse(f"s3://{s3.bucket()}/absent")
    assert storage.stat(present) is None
    with pytest.raises(NotFoundError, match=present.text):
        storage.read(present)


def test_refused_credentials_are_named_and_never_shown(s3: S3Server, few_retries: None) -> None:
    bucket = s3.bucket()
    fill(s3, bucket, ["x"])
    secret = "wrong-secret-0123456789"
    storage = Storage.from_properties({**s3.properties, "s3.secret-access-key": secret})
    location = Location.parse(f"s3://{bucket}/x")
    for call in (storage.read, storage.stat, lambda place: list(storage.list(place))):
        with pytest.raises(StorageError, match=bucket) as caught:
            call(location)
        assert not isinstance(caught.value, NotFoundError)
        assert "403" in str(caught.value)
        assert secret not in str(caught.value)
    with pytest.raises(StorageError) as caught:
        storage.read(location)
    assert caught.value.hint is not None
    assert "credentials" in caught.value.hint


def test_an_unreachable_endpoint_is_an_error_with_a_hint(few_retries: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        properties = {"s3.endpoint": endpoint, "s3.access-key-id": "a", "s3.secret-access-key": "abcdef"}
        storage = Storage.from_properties(properties)
        with pytest.raises(StorageError, match="s3://lake/x") as caught:
            storage.stat(Location.parse("s3://lake/x"))
        assert caught.value.hint is not None
        assert "endpoint" in caught.value.hint
        with pytest.raises(ListingIncompleteError):
            listed(storage, "s3://lake/t")


def test_client_properties_serve_as_well_as_s3_properties(s3: S3Server) -> None:
    bucket = s3.bucket()
    fill(s3, bucket, ["t/x"])
    properties = {
        "s3.endpoint": s3.endpoint,
        "client.access-key-id": s3.access_key,
        "client.secret-access-key": s3.secret_key,
        "client.region": s3.region,
    }
    assert keys(Storage.from_properties(properties), f"s3n://{bucket}/t") == ["t/x"]


def test_an_unknown_scheme_is_named() -> None:
    storage = Storage.from_properties({})
    for call in (storage.read, storage.stat, lambda place: list(storage.list(place))):
        with pytest.raises(StorageError, match="'hdfs'"):
            call(Location.parse("hdfs://nn:8020/t/x"))
    with pytest.raises(StorageError, match="not on this machine"):
        storage.read(Location.parse("file://otherhost/x"))


def test_remote_signing_is_refused() -> None:
    storage = Storage.from_properties({"s3.signer": "S3V4RestSigner"})
    with pytest.raises(StorageError, match="remotely"):
        list(storage.list(Location.parse("s3://lake/t")))


def test_properties_of_every_family_make_a_client() -> None:
    """No I/O: what obstore does not know as a setting, it refuses here."""
    s3 = storage_clients.client_for(
        Location.parse("s3://lake/x"),
        {
            "s3.endpoint": "minio.example:9000",
            "s3.force-virtual-addressing": "true",
            "s3.session-token": "t",
            "s3.connect-timeout": "3",
            "s3.request-timeout": "20.5",
            "s3.proxy-uri": "http://proxy:3128",
            "s3.anonymous": "true",
        },
    )
    assert s3.config["endpoint"] == "https://lake.minio.example:9000"
    gcs = storage_clients.client_for(
        Location.parse("gs://lake/x"),
        {
            "gcs.oauth2.token": "t",
            "gcs.oauth2.token-expires-at": "1900000000000",
            "gcs.service.host": "http://127.0.0.1:4443",
        },
    )
    assert gcs.config["base_url"] == "http://127.0.0.1:4443"
    azure = storage_clients.client_for(
        Location.parse("abfss://c@acct.dfs.core.windows.net/x"),
        {"adls.sas-token.acct.dfs.core.windows.net": "sv=2024&sig=abc", "adls.account-name": "other"},
    )
    assert azure.config["account_name"] == "acct"
    emulator = storage_clients.client_for(
        Location.parse("abfs://c/x"),
        {
            "adls.connection-string": "AccountName=dev;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/dev",
        },
    )
    assert emulator.config["endpoint"] == "http://127.0.0.1:10000/dev"
    assert emulator.config["account_name"] == "dev"
    with pytest.raises(StorageError, match=r"(?i)account"):
        storage_clients.client_for(Location.parse("abfs://c/x"), {"adls.account-key": "k"})


@pytest.mark.parametrize("where", ["local", "s3"])
def test_a_scratch_object_comes_and_goes(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    properties: dict[str, str] = {}
    folder = Location.parse(str(tmp_path))
    if where == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        folder = Location.parse(f"s3://{s3.bucket()}/wh")
        properties = s3.properties
    storage = Storage.from_properties(properties)
    scratch = storage.put_scratch(folder)
    assert [info.location for info in listed(storage, folder.text)] == [scratch]
    with pytest.raises(ValueError, match="not a scratch object"):
        storage.remove_scratch(folder.child("v1.metadata.json"))
    storage.remove_scratch(scratch)
    assert listed(storage, folder.text) == []
