"""Child folders of a folder, on local files and on real S3 servers: all of them, exactly, or an error."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from moto.s3.models import s3_backends

from lakehouse_maintenance.model.errors import ListingIncompleteError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage import clients as storage_clients
from lakehouse_maintenance_tests.services.faults import Answer, Cut, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.test_storage import fill

NAMES = ["t", "t_2", "t-backup", "t.db", "a b", "a%20b", "a+b", "day=1", "#h?q", "日本", "\u00fcn", "u\u0308n", "_t"]
MANY = [f"wh/db/t{number:04d}/data/f.parquet" for number in range(2500)]


def names(storage: Storage, prefix: str) -> list[str]:
    """What is told of the folder's children, as text below it."""
    root = prefix.rstrip("/") + "/"
    found = [folder.text for folder in storage.folders(Location.parse(prefix))]
    assert all(text.startswith(root) for text in found)
    return [text.removeprefix(root) for text in found]


def put(server: S3Server, keys: list[str], body: bytes = b"1") -> str:
    """A new bucket that holds exactly these."""
    bucket = server.bucket()
    client = server.client()
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=body)
    return bucket


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_clients, "MAX_RETRIES", 1)
    monkeypatch.setattr(storage_clients, "FIRST_BACKOFF", timedelta(milliseconds=1))


@pytest.fixture(scope="module")
def crowded(s3: S3Server) -> str:
    """A database of 2,500 folders, with objects beside them and neighbours whose names begin like it."""
    bucket = s3.bucket()
    fill(s3, bucket, [*MANY, "wh/db/loose.txt", "wh/db_2/x/y", "wh/db.old/x/y"])
    return bucket


# --- local files


def test_local_folders_are_directories_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "db"
    for name in NAMES:
        (root / name / "deep" / "er").mkdir(parents=True)
    (root / "file").write_bytes(b"1")
    (root / "link").symlink_to(root / "t")
    (root / "dead").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe")
    storage = Storage.from_properties({})
    for spelling in (f"file://{root}", f"file:{root}/", str(root)):
        assert names(storage, spelling) == sorted(NAMES)
    assert names(storage, f"{root}/t/deep/er") == []


def test_a_local_name_that_is_not_unicode_stays_exact(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff\xfe")
    (folder,) = Storage.from_properties({}).folders(Location.parse(str(tmp_path)))
    assert os.fsencode(folder.local_path) == os.fsencode(tmp_path) + b"/\xff\xfe"


def test_absent_and_empty_are_told_apart_locally(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "empty").mkdir()
    storage = Storage.from_properties({})
    for name, absent in (
        ("empty", False),
        ("nothing", True),
        ("nothing/below", True),
        ("file", True),
        ("file/x", True),
    ):
        location = Location.parse(f"{tmp_path}/{name}")
        assert storage.folders(location) == ()
        assert storage.is_absent(location) is absent


def test_a_local_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scandir(path: str) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ListingIncompleteError, match="Permission denied"):
        Storage.from_properties({}).folders(Location.parse(str(tmp_path)))


# --- S3


@pytest.mark.parametrize("which", ["s3", "moto"])
def test_s3_folders_are_exact(request: pytest.FixtureRequest, which: str) -> None:
    server: S3Server = request.getfixturevalue(which)
    keys = [f"wh/db/{name}/part/x" for name in NAMES] + [f"wh/db/{name}/y" for name in NAMES]
    bucket = put(server, [*keys, "wh/db/file", "wh/db_2/other/x", "wh/x"])
    storage = Storage.from_properties(server.properties)
    for spelling in (f"s3://{bucket}/wh/db", f"s3a://{bucket}/wh/db/"):
        assert names(storage, spelling) == sorted(NAMES)
    assert names(storage, f"s3://{bucket}/wh/db/t") == ["part"]
    assert names(storage, f"s3://{bucket}/wh/db/t/part") == []
    assert names(storage, f"s3://{bucket}") == ["wh"]
    for folder in storage.folders(Location.parse(f"s3://{bucket}/wh/db")):
        found = [info.location.key for batch in storage.list(folder) for info in batch]
        assert sorted(found) == sorted(key for key in keys if key.startswith(folder.key + "/"))


def test_markers_make_folders_and_the_folders_own_makes_none(moto: S3Server) -> None:
    bucket = put(moto, ["wh/db/", "wh/db/t/", "wh/db/both", "wh/db/both/", "wh/db/day_$folder$", "wh/empty/"], b"")
    storage = Storage.from_properties(moto.properties)
    assert names(storage, f"s3://{bucket}/wh/db") == ["both", "t"]
    assert names(storage, f"s3://{bucket}/wh/empty") == []
    assert not storage.is_absent(Location.parse(f"s3://{bucket}/wh/empty"))
    assert storage.is_absent(Location.parse(f"s3://{bucket}/wh/empt"))
    assert storage.is_absent(Location.parse(f"s3://{bucket}/wh/empty/below"))


def test_s3_folders_page_to_the_end(s3: S3Server, crowded: str) -> None:
    with fault_proxy(s3.endpoint) as proxy:
        storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        found = names(storage, f"s3://{crowded}/wh/db")
        assert len(proxy.seen) >= 3
    assert found == [f"t{number:04d}" for number in range(2500)]


@pytest.mark.parametrize("fault", [Answer(503, b"<Error><Code>SlowDown</Code></Error>"), Cut(200)], ids=["503", "cut"])
@pytest.mark.usefixtures("few_retries")
def test_s3_folders_that_fail_on_the_second_page_are_an_error(s3: S3Server, crowded: str, fault: Answer | Cut) -> None:
    def rule(request: Request) -> Answer | Cut | None:
        return fault if "continuation-token" in request.target else None

    with fault_proxy(s3.endpoint) as proxy:
        proxy.rule = rule
        storage = Storage.from_properties(s3.at(proxy.endpoint).properties)
        with pytest.raises(ListingIncompleteError, match=f"cannot list s3://{crowded}/wh/db") as caught:
            storage.folders(Location.parse(f"s3://{crowded}/wh/db"))
        assert len(proxy.seen) >= 2
        assert s3.secret_key not in str(caught.value)


def test_a_bucket_that_does_not_exist_is_an_error(s3: S3Server, moto: S3Server) -> None:
    for server in (s3, moto):
        storage = Storage.from_properties(server.properties)
        for location in (Location.parse("s3://no-such-bucket/wh/db"), Location.parse("s3://no-such-bucket/")):
            with pytest.raises(ListingIncompleteError):
                storage.folders(location)
            with pytest.raises(StorageError):
                storage.is_absent(location)


@pytest.mark.parametrize("told", ["wh/other/t", "wh/db/t/u", "wh/dbt", "wh"])
def test_an_answer_that_is_not_about_the_folder_is_an_error(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    bucket = put(moto, ["wh/db/plain/x"])
    monkeypatch.setattr(obstore, "list_with_delimiter", lambda *asked: {"common_prefixes": ["wh/db/a", told]})
    with pytest.raises(ListingIncompleteError, match="which is no folder directly in it"):
        Storage.from_properties(moto.properties).folders(Location.parse(f"s3://{bucket}/wh/db"))


# --- odd keys

ODD = ["wh/db//x", "wh/db/./x", "wh/db/../x", "wh/db/a\x01b/x", "wh/db/t//x", "wh/db/t/./x", "/wh/db/no/x"]


def test_odd_keys_hide_no_folder(moto: S3Server) -> None:
    bucket = put(moto, [*ODD, "wh/db/plain/x", "wh/db/z\x02.txt"])
    storage = Storage.from_properties(moto.properties)
    assert names(storage, f"s3://{bucket}/wh/db") == ["a\x01b", "plain", "t"]
    assert names(storage, f"s3://{bucket}") == ["wh"]
    assert names(storage, f"s3://{bucket}/wh/db/t") == []
    assert [folder.key for folder in storage.folders(Location.parse(f"s3://{bucket}//wh"))] == ["/wh/db"]


def test_odd_keys_are_an_error_without_boto3(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ODD[:4]:
        bucket = put(moto, [key, "wh/db/plain/x"])
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "boto3", None)
            with pytest.raises(ListingIncompleteError):
                Storage.from_properties(moto.properties).folders(Location.parse(f"s3://{bucket}/wh/db"))


def test_a_name_that_a_listing_cannot_show(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """SeaweedFS lists U+FFFD in the place of a control character."""
    bucket = put(s3, ["wh/db/a\x01b/x", "wh/db/plain/x"])
    assert names(Storage.from_properties(s3.properties), f"s3://{bucket}/wh/db") == ["a\x01b", "plain"]
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ListingIncompleteError, match="control characters"):
        Storage.from_properties(s3.properties).folders(Location.parse(f"s3://{bucket}/wh/db"))


def test_the_vendors_client_pages_to_the_end(moto: S3Server) -> None:
    bucket = moto.bucket()
    keys = [*(f"wh/db/t{number:04d}/x" for number in range(1100)), "wh/db//odd"]
    for key in keys:
        s3_backends["123456789012"]["aws"].put_object(bucket, key, b"1")
    found = names(Storage.from_properties(moto.properties), f"s3://{bucket}/wh/db")
    assert found == [f"t{number:04d}" for number in range(1100)]
