"""Odd keys on real S3 servers, through a whole round of list, stat, read, copy and delete; and locally what can be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import obstore
import pytest
from moto.s3.models import s3_backends
from obstore.exceptions import InvalidPathError

from lakehouse_maintenance.model.errors import ListingIncompleteError, StorageError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.deleting import Fate, delete_batch
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage import slashes as storage_slashes
from lakehouse_maintenance.storage import vendor as storage_vendor
from lakehouse_maintenance_tests.services.faults import fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server

PLAIN = ["t/a", "t/a b", "t/a%20b", "t/a%2520b", "t/a+b", "t/a=b", "t/a:b", "t/a/b", "t/日本", "t/u\u0308n", "t/~#?&x"]
SLASHES = ["t/", "t//", "t//lead", "t/a//b", "t/a///b", "t/a/", "t/a/b/", "t/trail/", "t/trail.parquet/", "t/z//"]
DOTS = ["t/./x", "t/../x", "t/a/..", "t/a/."]
CONTROLS = ["t/a\x01b", "t/a\tb", "t/a\x7fb"]
ALL = [*PLAIN, *SLASHES, *DOTS, *CONTROLS, "t/a\\b", "t/a b//c+d", "t/day_$folder$"]


def put(server: S3Server, bucket: str, keys: Sequence[str]) -> dict[str, bytes]:
    """Each key with a content of its own."""
    client = server.client()
    bodies = {key: f"the content of {key!r}".encode() for key in keys}
    for key, body in bodies.items():
        client.put_object(Bucket=bucket, Key=key, Body=body)
    return bodies


def listed(storage: Storage, prefix: str, batch_size: int = 1000) -> list[str]:
    found = [info for batch in storage.list(Location.parse(prefix), batch_size=batch_size) for info in batch]
    return [info.location.key for info in found]


def test_every_key_survives_list_stat_read_copy_and_delete(moto: S3Server) -> None:
    bucket = moto.bucket()
    bodies = put(moto, bucket, ALL)
    put(moto, bucket, ["t_2/other", "/t/other", "t"])
    storage = Storage.from_properties(moto.properties)
    for batch_size in (1, 3):
        assert sorted(listed(storage, f"s3://{bucket}/t", batch_size)) == sorted(ALL)
    infos = [info for batch in storage.list(Location.parse(f"s3a://{bucket}/t")) for info in batch]
    assert sorted(info.location.key for info in infos) == sorted(ALL)
    assert all(info.location.text.startswith(f"s3a://{bucket}/t/") for info in infos)
    locations = [info.location for info in infos]
    for info, (location, seen) in zip(infos, storage.stat_many(locations), strict=True):
        assert location == info.location
        assert seen is not None
        assert (seen.size, seen.etag) == (info.size, info.etag)
    for location, data in storage.read_many(locations):
        assert data == bodies[location.key]
        assert storage.read(location, 4, 7) == data[4:11]
        assert storage.read(location, 4) == data[4:]
    for location in locations:
        target = location.with_key("q/" + location.key)
        assert storage.copy(location, target).location == target
        assert storage.read(target) == bodies[location.key]
    fates = delete_batch(storage, locations)
    assert set(fates) == set(locations)
    assert {told.fate for told in fates.values()} == {Fate.DELETED}
    assert listed(storage, f"s3://{bucket}/t") == []
    moved = ["q/" + key for key in ALL]
    assert sorted(listed(storage, f"s3://{bucket}/q")) == sorted(moved)
    assert sorted(listed(storage, f"s3://{bucket}")) == sorted(["t", "t_2/other", "/t/other", *moved])


def test_a_key_that_is_deleted_takes_no_neighbour_with_it(moto: S3Server) -> None:
    bucket = moto.bucket()
    put(moto, bucket, ALL)
    storage = Storage.from_properties(moto.properties)
    left = set(ALL)
    for key in [*SLASHES, *DOTS, *CONTROLS, "t/a\\b"]:
        fates = delete_batch(storage, [Location.parse(f"s3://{bucket}/{key}")])
        assert [told.fate for told in fates.values()] == [Fate.DELETED]
        left.remove(key)
        assert set(listed(storage, f"s3://{bucket}/t")) == left


def test_odd_prefixes_are_listed_exactly(moto: S3Server) -> None:
    bucket = moto.bucket()
    put(moto, bucket, ["t/a/b", "t/a//b", "t/a//c/d", "t/a///e", "/t/x", "t/./y"])
    storage = Storage.from_properties(moto.properties)
    assert listed(storage, f"s3://{bucket}/t/a//") == ["t/a///e", "t/a//b", "t/a//c/d"]
    assert listed(storage, f"s3://{bucket}//t") == ["/t/x"]
    assert listed(storage, f"s3://{bucket}/t/.") == ["t/./y"]
    assert listed(storage, f"s3://{bucket}/t/a/") == ["t/a///e", "t/a//b", "t/a//c/d", "t/a/b"]


def test_a_listing_goes_on_behind_the_key_that_obstore_refuses(moto: S3Server) -> None:
    """The odd key lies on the second page: what was given out before is neither lost nor doubled."""
    bucket = moto.bucket()
    keys = sorted([*(f"t/f{number:04}.parquet" for number in range(1100)), "t/f1050//odd"])
    for key in keys:
        s3_backends["123456789012"]["aws"].put_object(bucket, key, b"1")
    with fault_proxy(moto.endpoint) as proxy:
        storage = Storage.from_properties(moto.at(proxy.endpoint).properties)
        assert listed(storage, f"s3://{bucket}/t", 300) == keys
        resumed = [request.target for request in proxy.seen if "start-after" in request.target]
    assert len(resumed) == 1


def test_names_without_a_dot_are_asked_for_or_listed_exactly(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = moto.bucket()
    keys = [*(f"t/{number:06}_0" for number in range(3)), "t/trail/", "t/trail2/"]
    put(moto, bucket, keys)
    for most, looks in ((5, 5), (4, 0)):
        monkeypatch.setattr(storage_slashes, "MANY_TO_ASK", most)
        with fault_proxy(moto.endpoint) as proxy:
            storage = Storage.from_properties(moto.at(proxy.endpoint).properties)
            assert listed(storage, f"s3://{bucket}/t") == sorted(keys)
            assert sum(request.method == "HEAD" for request in proxy.seen) == looks


def test_control_characters_that_a_listing_cannot_show(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """SeaweedFS lists U+FFFD in their place. It also lists `a/…` before `a-…`, so no listing of it can be continued."""
    bucket = s3.bucket()
    keys = ["t/a/b.x", "t/a-.x", "t/a.x", "t/z\x01y.x"]
    put(s3, bucket, keys)
    storage = Storage.from_properties(s3.properties)
    assert sorted(listed(storage, f"s3://{bucket}/t")) == sorted(keys)
    with pytest.raises(ListingIncompleteError):
        listed(storage, f"s3://{bucket}/t", 1)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ListingIncompleteError, match="control characters"):
        listed(Storage.from_properties(s3.properties), f"s3://{bucket}/t")


@pytest.mark.parametrize("in_order", [True, False])
def test_only_a_listing_in_order_is_continued(moto: S3Server, monkeypatch: pytest.MonkeyPatch, in_order: bool) -> None:
    bucket = moto.bucket()
    put(moto, bucket, ["t/a.x", "t/b.x", "t/c//odd", "t/d.x"])
    storage = Storage.from_properties(moto.properties)

    def list_and_refuse(client: Any, **asked: Any) -> Iterator[Any]:
        given = [{"path": f"t/{name}.x", "size": 1, "last_modified": None, "e_tag": None} for name in "ab"]
        yield given if in_order else given[::-1]
        raise InvalidPathError("the next key")

    monkeypatch.setattr(obstore, "list", list_and_refuse)
    if in_order:
        assert listed(storage, f"s3://{bucket}/t") == ["t/a.x", "t/b.x", "t/c//odd", "t/d.x"]
        return
    with pytest.raises(ListingIncompleteError, match="order of keys"):
        listed(storage, f"s3://{bucket}/t")


def test_pages_of_the_vendor_that_are_out_of_order_are_refused(moto: S3Server) -> None:
    bucket = moto.bucket()
    put(moto, bucket, ["t/a", "t/b", "t/c"])
    storage = Storage.from_properties(moto.properties)
    vendor = storage._objects(Location.parse(f"s3://{bucket}/")).vendor()
    assert vendor is not None

    class Backwards:
        def paginate(self, **asked: Any) -> list[dict[str, Any]]:
            page = moto.client().list_objects_v2(**asked)
            return [{"Contents": page["Contents"][::-1]}]

    class Client:
        def get_paginator(self, name: str) -> Backwards:
            return Backwards()

    backwards = storage_vendor.VendorS3(Client(), Location.parse(f"s3://{bucket}/"), str)
    assert [len(page) for page in vendor.pages("t/", "t/a")] == [2]
    with pytest.raises(StorageError, match="order of keys"):
        list(backwards.pages("t/", "t/a"))
    assert [len(page) for page in backwards.pages("t/", None)] == [3]


# --- a store that takes one key for another


def test_no_key_takes_somebody_elses_object_with_it(s3: S3Server) -> None:
    """SeaweedFS takes `a//b`, `/a/b` and `a\\b` for `a/b`: whatever is asked of it, `a/b` stays."""
    bucket = s3.bucket()
    put(s3, bucket, ["a/b", "lead", "c/d/e"])
    storage = Storage.from_properties(s3.properties)
    odd = ["a//b", "/a/b", "//a///b", "a\\b", "/lead", "//lead", "c//d//e", "c\\d/e"]
    before = sorted(listed(storage, f"s3://{bucket}"))
    fates = delete_batch(storage, [Location.parse(f"s3://{bucket}/{key}") for key in odd])
    assert {location.key: told.fate for location, told in fates.items()} == dict.fromkeys(odd, Fate.HELD)
    assert all("that of another object" in told.why for told in fates.values())
    assert sorted(listed(storage, f"s3://{bucket}")) == before
    for key in odd:
        with pytest.raises(StorageError):
            storage.copy(Location.parse(f"s3://{bucket}/c/d/e"), Location.parse(f"s3://{bucket}/{key}"))
    assert storage.read(Location.parse(f"s3://{bucket}/a/b")) == b"the content of 'a/b'"


def test_a_folder_marker_goes_without_what_lies_in_the_folder(s3: S3Server, moto: S3Server) -> None:
    for server in (s3, moto):
        bucket = server.bucket()
        put(server, bucket, ["t/d/x.parquet", "t/e.parquet"])
        server.client().put_object(Bucket=bucket, Key="t/d/", Body=b"")
        storage = Storage.from_properties(server.properties)
        assert "t/d/" in listed(storage, f"s3://{bucket}/t")
        delete_batch(storage, [Location.parse(f"s3://{bucket}/t/d/")])
        assert {"t/d/x.parquet", "t/e.parquet"} <= set(listed(storage, f"s3://{bucket}/t"))


def test_objects_that_look_the_same_are_kept(moto: S3Server) -> None:
    """Same bytes, same second: nothing tells whether they are one object or two."""
    bucket = moto.bucket()
    client = moto.client()
    while True:
        infos = []
        for key in ("t/a//b", "t/a/b"):
            client.put_object(Bucket=bucket, Key=key, Body=b"same")
            infos.append(client.head_object(Bucket=bucket, Key=key)["LastModified"])
        if infos[0] == infos[1]:
            break
    storage = Storage.from_properties(moto.properties)
    (told,) = delete_batch(storage, [Location.parse(f"s3://{bucket}/t/a//b")]).values()
    assert told.fate is Fate.HELD
    assert sorted(listed(storage, f"s3://{bucket}/t")) == ["t/a//b", "t/a/b"]


# --- without the vendor's client


def test_without_boto3_odd_keys_are_kept_and_named(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = moto.bucket()
    put(moto, bucket, ["t/a//b", "t/a/b"])
    monkeypatch.setitem(sys.modules, "boto3", None)
    storage = Storage.from_properties(moto.properties)
    odd, plain = (Location.parse(f"s3://{bucket}/t/{key}") for key in ("a//b", "a/b"))
    with pytest.raises(ListingIncompleteError):
        listed(storage, f"s3://{bucket}/t")
    for source, target in ((odd, plain.with_key("q")), (plain, odd.with_key("q//r"))):
        with pytest.raises(StorageError, match="cannot be named exactly"):
            storage.copy(source, target)
    fates = delete_batch(storage, [odd, plain])
    assert (fates[odd].fate, fates[plain].fate) == (Fate.HELD, Fate.DELETED)
    assert "boto3" in fates[odd].why


def test_boto3_is_not_imported_for_plain_keys(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = moto.bucket()
    put(moto, bucket, ["t/a.parquet", "t/b c%20.parquet"])
    opened: list[str] = []
    monkeypatch.setattr(storage_vendor, "open_vendor", lambda *_: opened.append("opened"))
    storage = Storage.from_properties(moto.properties)
    locations = [Location.parse(f"s3://{bucket}/{key}") for key in listed(storage, f"s3://{bucket}/t")]
    storage.copy(locations[0], locations[0].with_key("t/c.parquet"))
    assert {told.fate for told in delete_batch(storage, locations).values()} == {Fate.DELETED}
    assert not opened


@pytest.mark.parametrize(
    "more",
    [
        {"s3.role-arn": "arn:aws:iam::123456789012:role/maintenance"},
        {"s3.anonymous": "true"},
        {"s3.connect-timeout": "3", "s3.request-timeout": "20.5"},
    ],
    ids=["role", "anonymous", "timeouts"],
)
def test_both_clients_take_the_same_properties(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    bucket = moto.bucket()
    bodies = {"t/a//b": b"1", "t/a.parquet": b"2"}
    for key, body in bodies.items():
        moto.client().put_object(Bucket=bucket, Key=key, Body=body, ACL="public-read")
    storage = Storage.from_properties({**moto.properties, **more})
    assert sorted(listed(storage, f"s3://{bucket}/t")) == sorted(bodies)
    for key, body in bodies.items():
        assert storage.read(Location.parse(f"s3://{bucket}/{key}")) == body


# --- local


def test_local_keys_survive_the_round(tmp_path: Path) -> None:
    names = ["a b", "a%20b", "a+b", "a=b", "a:b", "日本", "u\u0308n", "a\\b", "a\x01b", "a\nb", "d/e", "x_$folder$"]
    for name in names:
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(name.encode())
    raw = os.fsencode(tmp_path) + b"/t/\xff\xfe"
    Path(os.fsdecode(raw)).write_bytes(b"raw")
    storage = Storage.from_properties({})
    infos = [info for batch in storage.list(Location.parse(f"{tmp_path}/t")) for info in batch]
    assert len(infos) == len(names) + 1
    for info in infos:
        rest = info.location.key.partition("/t/")[2]
        target = Location.parse(f"{tmp_path}/q/{rest}")
        assert storage.copy(info.location, target).size == info.size
        assert storage.read(target) == storage.read(info.location) == (os.fsencode(rest) if rest in names else b"raw")
    fates = delete_batch(storage, [info.location for info in infos])
    assert {told.fate for told in fates.values()} == {Fate.DELETED}
    assert list(storage.list(Location.parse(f"{tmp_path}/t"))) == []
