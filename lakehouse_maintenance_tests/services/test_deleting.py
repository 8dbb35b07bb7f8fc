"""Deletions on a real S3 server whose answers fail, lie or get lost: each key's fate is what the store then shows."""

from __future__ import annotations

import errno
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import deleting
from lakehouse_maintenance.removal.deleting import Fate, Told, delete_batch
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage import clients as storage_clients
from lakehouse_maintenance_tests.services.faults import Answer, Cut, FaultProxy, Lose, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

SLOW = Answer(503, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
DENIED = Answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")


def is_delete(request: Request) -> bool:
    return request.method == "POST" and "delete" in request.target


def keys_in(request: Request) -> list[str]:
    return re.findall(r"<Key>(.*?)</Key>", request.body.decode())


def result(errors: dict[str, str]) -> Answer:
    """DeleteObjects' answer of 200, with an error for each of these keys."""
    rows = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>told of {code}</Message></Error>"
        for key, code in errors.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?><DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    return Answer(200, f"{head}<Deleted><Key>t/000.parquet</Key></Deleted>{rows}</DeleteResult>".encode())


class Lake:
    """Objects in a bucket; ours reaches it through a proxy. `waits`: the pauses that were asked for, in seconds."""

    def __init__(self, s3: S3Server, proxy: FaultProxy, waits: list[float]) -> None:
        self.proxy, self.waits = proxy, waits
        self.bucket = s3.bucket()
        self.direct = Storage.from_properties(s3.properties)
        self.storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        self.raw = self.direct.client(self.at(""))

    def at(self, key: str) -> Location:
        return Location.parse(f"s3://{self.bucket}/{key}")

    def fill(self, count: int) -> list[Location]:
        locations = [self.at(f"t/{number:03}.parquet") for number in range(count)]
        for location in locations:
            obstore.put(self.raw, location.key, b"1")
        return locations

    def left(self) -> set[Location]:
        return {info.location for batch in self.direct.list(self.at("t")) for info in batch}

    def deletes(self) -> list[Request]:
        return [request for request in self.proxy.seen if is_delete(request)]


@pytest.fixture
def lake(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """The client itself tries twice; pauses are recorded and not waited for."""
    monkeypatch.setattr(storage_clients, "MAX_RETRIES", 1)
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))
    waits: list[float] = []
    monkeypatch.setattr(deleting, "pause", waits.append)
    with fault_proxy(s3.endpoint) as proxy:
        yield Lake(s3, proxy, waits)


def counted(fates: dict[Location, Told]) -> dict[str, int]:
    return dict(Counter(told.fate.value for told in fates.values()))


def causes(fates: dict[Location, Told]) -> set[str]:
    return {told.why for told in fates.values() if told.why}


def test_a_batch_is_deleted_and_looked_at(lake: Lake) -> None:
    locations = lake.fill(20)
    assert counted(delete_batch(lake.storage, locations)) == {"deleted": 20}
    assert len(lake.deletes()) == 1
    assert sum(request.method == "HEAD" for request in lake.proxy.seen) == 20
    assert lake.left() == set()
    assert not lake.waits


@pytest.mark.requirement("EN-06")
@pytest.mark.parametrize(
    "answer", [SLOW, Answer(429), result({"t/001.parquet": "SlowDown"})], ids=["503", "429", "key"]
)
def test_throttling_is_waited_for(lake: Lake, answer: Answer) -> None:
    locations = lake.fill(5)
    lake.proxy.rule = lambda request: answer if is_delete(request) and len(lake.deletes()) <= 6 else None
    assert counted(delete_batch(lake.storage, locations)) == {"deleted": 5}
    assert lake.left() == set()
    assert len(lake.waits) == 3
    for wait, (planned, longest) in zip(lake.waits, ((1, 1.5), (3, 4.5), (9, 13.5)), strict=True):
        assert planned / 2 <= wait <= longest


@pytest.mark.requirement("EN-06")
def test_throttling_that_never_ends_is_failed(lake: Lake) -> None:
    locations = lake.fill(40)
    lake.proxy.rule = lambda request: SLOW if is_delete(request) else None
    fates = delete_batch(lake.storage, locations)
    assert counted(fates) == {"failed": 40}
    assert all("SlowDown" in why for why in causes(fates))
    assert lake.left() == set(locations)
    assert len(lake.waits) == len(deleting.WAITS)
    assert len(lake.deletes()) == 2 * (len(deleting.WAITS) + 1)


def test_part_of_a_batch_refused(lake: Lake) -> None:
    """200, and per key: done, no right, archived, broken, throttled once. Each key ends with its own cause."""
    locations = lake.fill(12)
    forever = {"t/002.parquet": "AccessDenied", "t/005.parquet": "InvalidObjectState", "t/007.parquet": "MalformedXML"}
    throttled = {"t/009.parquet"}

    def rule(request: Request) -> Answer | None:
        if not is_delete(request):
            return None
        asked = keys_in(request)
        errors = {key: forever[key] for key in asked if key in forever}
        errors |= dict.fromkeys(throttled & set(asked), "SlowDown")
        throttled.clear()
        for key in asked:
            if key not in errors:
                obstore.delete(lake.raw, key)
        return result(errors)

    lake.proxy.rule = rule
    fates = delete_batch(lake.storage, locations)
    assert counted(fates) == {"deleted": 9, "held": 1, "failed": 2}
    assert fates[lake.at("t/002.parquet")] == Told(Fate.FAILED, "told of AccessDenied (code: AccessDenied)")
    assert fates[lake.at("t/005.parquet")] == Told(Fate.HELD, "told of InvalidObjectState (code: InvalidObjectState)")
    assert fates[lake.at("t/007.parquet")] == Told(Fate.FAILED, "told of MalformedXML (code: MalformedXML)")
    assert lake.left() == {lake.at(key) for key in forever}


def test_deleted_and_it_is_still_there(lake: Lake) -> None:
    locations = lake.fill(20)
    stuck = {location.key for location in locations[:3]}

    def rule(request: Request) -> Answer | None:
        if not is_delete(request):
            return None
        for key in keys_in(request):
            if key not in stuck:
                obstore.delete(lake.raw, key)
        return result({})

    lake.proxy.rule = rule
    fates = delete_batch(lake.storage, locations)
    assert counted(fates) == {"deleted": 17, "failed": 3}
    assert causes(fates) == {"the store said deleted and it is still there"}
    assert lake.left() == set(locations[:3])


def test_a_batch_that_did_nothing_is_asked_for_again_key_by_key(lake: Lake) -> None:
    locations = lake.fill(20)
    lake.proxy.rule = lambda request: result({}) if is_delete(request) and len(lake.deletes()) == 1 else None
    assert counted(delete_batch(lake.storage, locations)) == {"deleted": 20}
    assert lake.left() == set()


@pytest.mark.parametrize("fault", [Lose(), Cut(), Cut(10)], ids=["lost", "cut before", "cut within"])
def test_a_lost_answer(lake: Lake, fault: Lose | Cut) -> None:
    locations = lake.fill(5)
    lake.proxy.rule = lambda request: fault if is_delete(request) and len(lake.deletes()) <= 2 else None
    assert counted(delete_batch(lake.storage, locations)) == {"deleted": 5}
    assert lake.left() == set()


def test_answers_that_are_always_lost(lake: Lake) -> None:
    locations = lake.fill(5)
    lake.proxy.rule = lambda request: Lose() if is_delete(request) else None
    assert counted(delete_batch(lake.storage, locations)) == {"deleted": 5}
    lake.proxy.rule = lambda request: Cut() if is_delete(request) else None
    assert counted(delete_batch(lake.storage, lake.fill(5))) == {"failed": 5}
    assert len(lake.left()) == 5


def test_a_request_that_is_refused_as_such_is_not_repeated_for_every_key(lake: Lake) -> None:
    locations = lake.fill(60)
    lake.proxy.rule = lambda request: DENIED if is_delete(request) else None
    fates = delete_batch(lake.storage, locations)
    assert counted(fates) == {"failed": 60}
    assert all("403" in why for why in causes(fates))
    assert len(lake.deletes()) == 1 + deleting.CONCURRENCY
    assert len(lake.left()) == 60


@pytest.mark.parametrize("done", [True, False], ids=["deleted", "there"])
def test_what_cannot_be_looked_at_is_unknown(lake: Lake, done: bool) -> None:
    locations = lake.fill(40)

    def rule(request: Request) -> Answer | None:
        if request.method == "HEAD":
            return Answer(403)
        return DENIED if is_delete(request) and not done else None

    lake.proxy.rule = rule
    fates = delete_batch(lake.storage, locations)
    assert counted(fates) == {"unknown": 40}
    assert all("cannot be told" in why for why in causes(fates))
    assert sum(request.method == "HEAD" for request in lake.proxy.seen) < 40
    assert lake.left() == (set() if done else set(locations))


def test_looks_that_are_throttled_are_taken_again_before_a_key_is_asked_for_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, the answer lost, the look throttled: a second deletion would hit whatever has that name by then."""
    locations = lake.fill(5)

    def rule(request: Request) -> Answer | Lose | None:
        if is_delete(request):
            return Lose() if len(lake.deletes()) <= 2 else None
        return SLOW if request.method == "HEAD" and not lake.waits else None

    def write_while_we_wait(seconds: float) -> None:
        obstore.put(lake.raw, "t/000.parquet", b"somebody's")
        lake.waits.append(seconds)

    lake.proxy.rule = rule
    long_ago = datetime.now(UTC) - timedelta(seconds=5)
    monkeypatch.setattr(deleting, "now", lambda: long_ago)
    monkeypatch.setattr(deleting, "pause", write_while_we_wait)
    fates = delete_batch(lake.storage, locations)
    assert counted(fates) == {"deleted": 4, "failed": 1}
    assert fates[locations[0]].why == "it was written again while it was being deleted"
    assert lake.direct.read(locations[0]) == b"somebody's"


def test_what_was_written_again_is_not_deleted_by_the_second_try(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    (location,) = lake.fill(1)

    def rule(request: Request) -> Answer | None:
        if is_delete(request) and not lake.waits and lake.direct.read(location) != b"somebody's":
            obstore.delete(lake.raw, location.key)
            obstore.put(lake.raw, location.key, b"somebody's")
        return SLOW if is_delete(request) and not lake.waits else None

    lake.proxy.rule = rule
    long_ago = datetime.now(UTC) - timedelta(seconds=5)
    monkeypatch.setattr(deleting, "now", lambda: long_ago)
    assert counted(delete_batch(lake.storage, [location])) == {"failed": 1}
    assert lake.direct.read(location) == b"somebody's"


@pytest.mark.requirement("EN-06")
def test_no_more_than_a_thousand_keys_a_call(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.from_properties(moto.properties)
    bucket = moto.bucket()
    locations = [Location.parse(f"s3://{bucket}/t/{number}.x") for number in range(2100)]
    calls: list[int] = []
    lock = threading.Lock()
    running = most = 0

    def delete(storage: Storage, asked: Sequence[Location]) -> None:
        calls.append(len(asked))

    def stat(location: Location) -> ObjectInfo | None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return None

    monkeypatch.setattr(deleting, "_delete_objects", delete)
    monkeypatch.setattr(storage, "stat", stat)
    assert counted(delete_batch(storage, [*locations, *locations[:50]])) == {"deleted": 2100}
    assert calls == [1000, 1000, 100]
    assert most <= deleting.CONCURRENCY


def test_no_client_for_the_store() -> None:
    storage = Storage.from_properties({})
    (told,) = delete_batch(storage, [Location.parse("hdfs://nn/t/x")]).values()
    assert told.fate is Fate.FAILED
    assert "hdfs" in told.why


# --- other stores


class Stand(Storage):
    """Google Cloud and Azure have no servers here: a folder behind obstore answers as they do for missing objects."""

    def __init__(self, folder: Path) -> None:
        super().__init__({})
        self._client = LocalStore(folder)

    def client(self, location: Location) -> LocalStore:  # type: ignore[override]
        return self._client

    def vendor_client(self, location: Location) -> None:
        return None

    def stat(self, location: Location) -> ObjectInfo | None:
        try:
            found = obstore.head(self._client, location.key)
        except FileNotFoundError:
            return None
        return ObjectInfo(location, found["size"], found["last_modified"], found["e_tag"])


@pytest.mark.parametrize("root", ["gs://lake/", "abfss://c@acct.dfs.core.windows.net/"])
def test_a_missing_key_is_gone_where_the_store_says_so(tmp_path: Path, root: str) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"1")
    storage = Stand(tmp_path)
    locations = [Location.parse(root + name) for name in ("a", "missing", "b", "c", "x//y")]
    fates = [told.fate for told in delete_batch(storage, locations).values()]
    assert sorted(fates) == sorted([Fate.DELETED, Fate.GONE, Fate.DELETED, Fate.DELETED, Fate.HELD])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "fate"),
    [(errno.EACCES, Fate.FAILED), (errno.EPERM, Fate.HELD), (errno.EROFS, Fate.FAILED), (errno.EBUSY, Fate.FAILED)],
)
def test_local_files_that_may_not_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fate: Fate
) -> None:
    def unlink(path: Path) -> None:
        raise OSError(code, "the cause")

    monkeypatch.setattr(Path, "unlink", unlink)
    (told,) = delete_batch(Storage.from_properties({}), [Location.parse(f"{tmp_path}/x")]).values()
    assert told == Told(fate, "the cause")


def test_local_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    names = ["file", "folder", "missing"]
    fates = delete_batch(Storage.from_properties({}), [Location.parse(f"{tmp_path}/{name}") for name in names])
    assert [told.fate for told in fates.values()] == [Fate.DELETED, Fate.FAILED, Fate.GONE]
    assert (tmp_path / "folder").is_dir()


# --- versions


def test_a_versioned_bucket_says_so(s3: S3Server, moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for server in (s3, moto):
        storage = Storage.from_properties(server.properties)
        plain, versioned = server.bucket(), server.bucket()
        on = {"Status": "Enabled"}
        server.client().put_bucket_versioning(Bucket=versioned, VersioningConfiguration=on)
        server.client().put_object(Bucket=versioned, Key="t/x", Body=b"1")
        assert storage.keeps_versions(Location.parse(f"s3://{plain}/t")) is False
        assert storage.keeps_versions(Location.parse(f"s3://{versioned}/t")) is True
        location = Location.parse(f"s3://{versioned}/t/x")
        assert counted(delete_batch(storage, [location])) == {"deleted": 1}
        assert list(storage.list(Location.parse(f"s3://{versioned}/t"))) == []
        assert len(server.client().list_object_versions(Bucket=versioned)["Versions"]) == 1
        server.client().put_bucket_versioning(Bucket=versioned, VersioningConfiguration={"Status": "Suspended"})
        assert Storage.from_properties(server.properties).keeps_versions(Location.parse(f"s3://{versioned}/t")) is None


def test_without_boto3_an_object_shows_whether_it_has_versions(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = moto.bucket()
    client = moto.client()
    client.put_object(Bucket=bucket, Key="t/before", Body=b"1")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    client.put_object(Bucket=bucket, Key="t/x", Body=b"1")
    monkeypatch.setitem(sys.modules, "boto3", None)
    storage = Storage.from_properties(moto.properties)
    assert storage.keeps_versions(Location.parse(f"s3://{bucket}/t/x")) is True
    assert storage.keeps_versions(Location.parse(f"s3://{bucket}/t")) is None
    assert storage.keeps_versions(Location.parse("/t/x")) is False
    with pytest.raises(StorageError):
        storage.keeps_versions(Location.parse("hdfs://nn/t"))
