"""A look inside folders that hold tables of Spark and PyIceberg, strays, or nothing that can be read."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.evidence.spool import Spool
from lakehouse_maintenance.execution import looking_inside
from lakehouse_maintenance.execution.looking_inside import MOST_SIGNS, look_inside
from lakehouse_maintenance.model.errors import ListingIncompleteError
from lakehouse_maintenance.model.folders import Content, Sign
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance.storage.base import epoch_ms
from lakehouse_maintenance_tests import delta_logs
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.golden import fixture as golden_iceberg
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse
from lakehouse_maintenance_tests.golden_delta import fixture as golden_delta
from lakehouse_maintenance_tests.services.faults import Answer, Request, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server
from lakehouse_maintenance_tests.services.test_storage import fill

ICEBERG = sorted(golden_iceberg.expected())
DELTA = sorted(golden_delta.expected())


def look(storage: Storage, path: str, **options: Any) -> Content:
    return look_inside(storage, Location.parse(path), **options)


def listed(storage: Storage, path: str) -> list[ObjectInfo]:
    return [info for batch in storage.list(Location.parse(path)) for info in batch]


# What is counted


@pytest.mark.requirement("UF-28")
def test_everything_is_counted_once(lake: Lake) -> None:
    folder = f"{lake.warehouse}/db/old"
    for number in range(30):
        lake.put(f"{folder}/day={number % 3}/{number}.parquet", b"x" * number)
    lake.put(f"{folder}_2/other", b"another folder's")
    told: list[tuple[int, int]] = []
    with Spool() as spool:
        content = look(lake.storage, folder, spool=spool, progress=lambda *step: told.append(step))
        rows = [row for batch in spool for row in batch]
    infos = listed(lake.storage, folder)
    times = [ms for info in infos if (ms := epoch_ms(info.modified)) is not None]
    assert content == Content(30, sum(range(30)), max(times))
    assert sorted(rows) == sorted((info.location.text, info.size, at) for info, at in zip(infos, times, strict=True))
    assert [sum(step) for step in zip(*told, strict=True)] == [content.objects, content.bytes]


def test_what_is_absent_or_empty_holds_nothing(lake: Lake) -> None:
    assert look(lake.storage, f"{lake.warehouse}/db/nothing") == Content()
    with pytest.raises(ListingIncompleteError):
        look(Storage.from_properties(lake.properties), "s3://no-such-bucket/db")


def test_markers_count_as_objects(exact_lake: Lake) -> None:
    folder = f"{exact_lake.warehouse}/db/old"
    for name in ("", "day=1/", "day_$folder$"):
        exact_lake.put(f"{folder}/{name}", b"")
    content = look(exact_lake.storage, folder)
    assert (content.objects, content.bytes) == (3, 0)
    assert content.newest_ms is not None


@pytest.mark.parametrize("moment", [0, -1, 946_684_799])
def test_a_time_that_tells_nothing_leaves_the_age_open(local_lake: Lake, moment: int) -> None:
    folder = f"{local_lake.warehouse}/db/old"
    local_lake.put(f"{folder}/a")
    odd = local_lake.put(f"{folder}/b")
    os.utime(Location.parse(odd).local_path, (moment, moment))
    content = look(local_lake.storage, folder)
    assert (content.objects, content.newest_ms) == (2, None)
    os.utime(Location.parse(odd).local_path, (946_684_800, 946_684_800))
    assert look(local_lake.storage, folder).newest_ms is not None


def test_a_time_that_is_missing_leaves_the_age_open(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"{lake.warehouse}/db/old"
    for name in ("a", "b", "c"):
        lake.put(f"{folder}/{name}")
    real = Storage.list

    def without(self: Storage, prefix: Location, *, batch_size: int = 1000) -> Iterator[list[ObjectInfo]]:
        for batch in real(self, prefix, batch_size=batch_size):
            yield [replace(info, modified=None) if info.location.name == "b" else info for info in batch]

    monkeypatch.setattr(Storage, "list", without)
    with Spool() as spool:
        content = look(lake.storage, folder, spool=spool)
        assert sorted(row[2] is None for batch in spool for row in batch) == [False, False, True]
    assert (content.objects, content.newest_ms) == (3, None)


def test_a_listing_that_fails_half_way_is_an_error(s3: S3Server) -> None:
    bucket = s3.bucket()
    fill(s3, bucket, [f"db/old/{number:04d}.parquet" for number in range(1200)])

    def rule(request: Request) -> Answer | None:
        return Answer(403, b"<Error><Code>AccessDenied</Code></Error>") if "continuation" in request.target else None

    with fault_proxy(s3.endpoint) as proxy:
        proxy.rule = rule
        with pytest.raises(ListingIncompleteError):
            look(Storage.from_properties(s3.at(proxy.endpoint).properties), f"s3://{bucket}/db/old")


class Endless(Storage):
    """Lists so many objects, made up on the way."""

    def __init__(self, number: int) -> None:
        super().__init__({})
        self._number = number

    def list(self, prefix: Location, *, batch_size: int = 1000) -> Iterator[list[ObjectInfo]]:
        at = datetime.fromisoformat("2024-01-01T00:00:00+00:00")
        for start in range(0, self._number, batch_size):
            yield [
                ObjectInfo(prefix.child(f"t{number:07d}", "metadata", f"{number}.avro"), 1, at)
                for number in reversed(range(start, min(start + batch_size, self._number)))
            ]


def peak_of(storage: Storage, path: str, **options: Any) -> int:
    """Bytes that Python held at most during a look, beyond what it held before."""
    gc.collect()
    tracemalloc.start()
    try:
        look(storage, path, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.requirement("UF-28")
def test_memory_does_not_grow_with_the_objects(local_lake: Lake) -> None:
    folder = Path(Location.parse(f"{local_lake.warehouse}/db/old").local_path)
    folder.mkdir(parents=True)
    for number in range(10_000):
        (folder / f"{number:05d}-{'x' * 100}.parquet").touch()
    assert look(local_lake.storage, str(folder)).objects == 10_000
    assert peak_of(local_lake.storage, str(folder)) < 4 * 1024**2
    # A hundred times as many, each of them of another table.
    assert peak_of(Endless(1000), "/wh/old") * 2 > peak_of(Endless(100_000), "/wh/old")


# Iceberg


@pytest.mark.requirement("UF-42")
@pytest.mark.parametrize("name", ICEBERG)
def test_an_iceberg_table_of_spark_is_recognised(golden: GoldenLakehouse, local_lake: Lake, name: str) -> None:
    """In a copy of its folder: in the bucket, other tests commit to the table."""
    table = golden.catalog().load_table(tuple(name.split(".")))
    below = table.location().removeprefix(golden_iceberg.WAREHOUSE)
    folder = f"{local_lake.root}dropped{below}"
    local_lake.put_tree(golden_iceberg.FOLDER / "warehouse" / "wh" / below.strip("/"), folder)
    (sign,) = look(local_lake.storage, folder).signs
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert sign == Sign(
        "iceberg",
        golden.metadata_location(name).replace(table.location(), folder),
        str(table.metadata.table_uuid),
        table.metadata.last_updated_ms,
        int(head.summary["total-records"] or -1),
        int(head.summary["total-files-size"] or -1),
    )


@pytest.mark.requirement("UF-42")
def test_an_iceberg_table_of_pyiceberg_is_recognised(lake: Lake) -> None:
    table = lake.table("db.t", commits=3)
    empty = lake.table("db.empty", commits=0)
    storage = lake.storage
    for made, records in ((table, 3), (empty, 0)):
        (sign,) = look(storage, made.location()).signs
        assert sign.path == made.metadata_location
        assert (sign.table_uuid, sign.last_commit_ms) == (str(made.metadata.table_uuid), made.metadata.last_updated_ms)
        assert (sign.records, sign.note) == (records, None)
    both = look(storage, f"{lake.warehouse}/db").signs
    assert [sign.path for sign in both] == [empty.metadata_location, table.metadata_location]


def metadata_file(**fields: Any) -> bytes:
    least = {"format-version": 2, "location": "/x", "table-uuid": "u", "last-updated-ms": 7}
    return json.dumps({**least, **fields}).encode()


@pytest.mark.requirement("UF-42")
@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["v9.metadata.json", "v10.metadata.json"], "v10.metadata.json"),
        (["v9.gz.metadata.json", "v8.metadata.json.gz"], "v9.gz.metadata.json"),
        (["00009-a.metadata.json", "00010-a.metadata.json", "b.metadata.json"], "00010-a.metadata.json"),
        (["100000-a.metadata.json", "99999-z.gz.metadata.json", "version-hint.text"], "100000-a.metadata.json"),
        (["b.metadata.json", "a.metadata.json"], "b.metadata.json"),
    ],
)
def test_the_highest_version_stands_for_the_table(local_lake: Lake, names: list[str], newest: str) -> None:
    folder = f"{local_lake.warehouse}/db/old/metadata"
    for name in names:
        path = Location.parse(local_lake.put(f"{folder}/{name}", metadata_file())).local_path
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (sign,) = look(local_lake.storage, f"{local_lake.warehouse}/db/old").signs
    assert sign == Sign("iceberg", f"{folder}/{newest}", "u", 7, 0, 0)


@pytest.mark.requirement("UF-42")
@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"{}", b"[" * 100_000, b"\x1f\x8bgarbage", metadata_file(**{"format-version": 4})]
)
def test_metadata_that_cannot_be_read_keeps_its_path(lake: Lake, content: bytes) -> None:
    folder = f"{lake.warehouse}/db/old"
    path = lake.put(f"{folder}/metadata/v1.metadata.json", content)
    found = look(lake.storage, folder)
    assert (found.objects, found.bytes) == (1, len(content))
    (sign,) = found.signs
    assert sign == Sign("iceberg", path, note=sign.note)
    assert sign.note is not None
    assert path in sign.note


def test_numbers_that_are_none_are_left_out(local_lake: Lake) -> None:
    snapshot = {"snapshot-id": 1, "timestamp-ms": 1, "summary": {"total-records": "many", "total-files-size": "5"}}
    content = metadata_file(**{"table-uuid": 5, "last-updated-ms": "7a", "snapshots": [snapshot]})
    document = {**json.loads(content), "current-snapshot-id": 1}
    path = local_lake.put(f"{local_lake.warehouse}/db/old/metadata/v1.metadata.json", json.dumps(document).encode())
    (sign,) = look(local_lake.storage, f"{local_lake.warehouse}/db/old").signs
    assert sign == Sign("iceberg", path, bytes=5)


def test_large_metadata_is_not_read(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = local_lake.put(f"{local_lake.warehouse}/db/old/metadata/v1.metadata.json", metadata_file())
    monkeypatch.setattr(looking_inside, "LARGEST_METADATA", 10)
    (sign,) = look(local_lake.storage, f"{local_lake.warehouse}/db/old").signs
    assert sign == Sign("iceberg", path, note=f"its {len(metadata_file())} bytes were not read")


def test_manifests_alone_are_a_sign_and_other_folders_named_metadata_none(local_lake: Lake) -> None:
    folder = f"{local_lake.warehouse}/db/old"
    for name in ("metadata.json", "x/metadata/readme.txt", "x/metadata/deeper/v1.metadata.json", "metadata_2/a.avro"):
        local_lake.put(f"{folder}/{name}")
    assert look(local_lake.storage, folder).signs == ()
    local_lake.put(f"{folder}/x/metadata/snap-1.avro")
    (sign,) = look(local_lake.storage, folder).signs
    assert sign == Sign("iceberg", f"{folder}/x/metadata", note="there are manifests and no metadata file")


# Delta


@pytest.fixture(params=["local", "s3"])
def deltas(request: pytest.FixtureRequest) -> tuple[Storage, str]:
    """All golden Delta tables, below one folder."""
    root = golden_delta.FOLDER / "warehouse"
    if request.param == "local":
        return Storage.from_properties({}), f"file://{root}"
    s3: S3Server = request.getfixturevalue("s3")
    bucket = s3.bucket("golden-delta-signs")
    client = s3.client()
    for file in root.rglob("*"):
        if file.is_file():
            client.put_object(Bucket=bucket, Key=f"wh/{file.relative_to(root).as_posix()}", Body=file.read_bytes())
    return Storage.from_properties(s3.properties), f"s3://{bucket}/wh"


def committed_by(name: str) -> int:
    """By the last commit's own word."""
    log = golden_delta.table_folder(name) / "_delta_log"
    latest = golden_delta.expected()[name]["latest"]
    for line in (log / f"{latest:020d}.json").read_text().splitlines():
        info = json.loads(line).get("commitInfo")
        if info:
            return int(info.get("inCommitTimestamp", info["timestamp"]))
    raise AssertionError(name)


@pytest.mark.requirement("UF-42")
def test_delta_tables_of_spark_are_recognised(deltas: tuple[Storage, str]) -> None:
    storage, root = deltas
    for name in DELTA:
        expected = golden_delta.expected()[name]
        (sign,) = look(storage, f"{root}/{name}").signs
        files = {file["path"] for file in expected["versions"][str(expected["latest"])]}
        assert sign.note is None, name
        assert sign.path == f"{root}/{name}/_delta_log"
        assert (sign.format, sign.table_uuid) == ("delta", expected["id"])
        assert sign.last_commit_ms == committed_by(name)
        assert sign.records == expected["rows"], name
        assert sign.bytes == sum((golden_delta.FOLDER / "warehouse" / path).stat().st_size for path in files), name
    signs = look(storage, root).signs
    assert [sign.path for sign in signs] == [f"{root}/{name}/_delta_log" for name in DELTA]
    assert look(storage, f"{root}/changes/_delta_log").signs == (signs[DELTA.index("changes")],)


@pytest.mark.requirement("UF-42")
def test_a_log_that_cannot_be_read_keeps_its_path(local_lake: Lake) -> None:
    root = Path(Location.parse(f"{local_lake.warehouse}/db").local_path)
    cases = {
        "empty": {},
        "gap": {"1": delta_logs.lines(*delta_logs.HEADER)},
        "garbage": {"0": "{"},
        "later": {"0": delta_logs.lines(*delta_logs.HEADER), "1": delta_logs.lines({"add": {"path": "x"}})},
    }
    for name, commits in cases.items():
        log = delta_logs.LogWriter(root / name)
        (log.log / "note.tmp").touch()
        for version, text in commits.items():
            log.put(f"{int(version):020d}.json", text)
    signs = {sign.path: sign for sign in look(local_lake.storage, str(root)).signs}
    assert sorted(signs) == sorted(f"{root}/{name}/_delta_log" for name in cases)
    for sign in signs.values():
        assert sign.note is not None
        assert (sign.table_uuid, sign.records, sign.bytes) == (None, None, None)


def test_rows_that_are_not_told_are_not_guessed(local_lake: Lake) -> None:
    root = Path(Location.parse(f"{local_lake.warehouse}/db/old").local_path)
    log = delta_logs.LogWriter(root)
    log.commit(*delta_logs.HEADER, delta_logs.add("a", stats='{"numRecords": 4}'))
    log.commit(delta_logs.add("b", stats='{"minValues":{"numRecords":9},"numRecords":3}'))
    file = log.commit(delta_logs.add("c", vector=delta_logs.vector("x", "i", None), stats='{"numRecords":8}'))
    os.utime(file, (1_700_000_000, 1_700_000_000))
    (sign,) = look(local_lake.storage, str(root)).signs
    assert (sign.records, sign.bytes, sign.last_commit_ms) == (4 + 3 + 8 - 6, 30, 1_700_000_000_000)
    log.checkpoint(2, *delta_logs.HEADER, delta_logs.add("a", stats='{"numRecords": 4}'), delta_logs.add("b"))
    (sign,) = look(local_lake.storage, str(root)).signs
    assert (sign.records, sign.bytes) == (None, 20)
    told = [delta_logs.add("b", stats='{"minValues":{"numRecords":9},"numRecords":3}'), delta_logs.add("c", stats="{")]
    log.commit(*told)
    log.checkpoint(3, *delta_logs.HEADER, *told[:1])
    (sign,) = look(local_lake.storage, str(root)).signs
    assert (sign.records, sign.bytes) == (3, 10)
    log.checkpoint(3, *delta_logs.HEADER, *told)
    (sign,) = look(local_lake.storage, str(root)).signs
    assert (sign.records, sign.bytes) == (None, 20)


def test_features_that_are_not_known_are_told(local_lake: Lake) -> None:
    root = Path(Location.parse(f"{local_lake.warehouse}/db/old").local_path)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["teleport"], "writerFeatures": []}
    delta_logs.LogWriter(root).commit({"protocol": protocol}, delta_logs.METADATA, delta_logs.add("a"))
    (sign,) = look(local_lake.storage, str(root)).signs
    assert (sign.table_uuid, sign.records, sign.note) == (
        delta_logs.METADATA["metaData"]["id"],
        None,
        "it uses teleport",
    )


# Several, and odd ones


@pytest.mark.requirement("UF-42")
@pytest.mark.parametrize("number", [MOST_SIGNS, MOST_SIGNS + 5])
def test_the_first_by_name_are_told_and_that_there_are_more(local_lake: Lake, number: int) -> None:
    folder = f"{local_lake.warehouse}/db/old"
    paths = [f"{folder}/t{at:03d}/metadata/v{version}.metadata.json" for at in range(number) for version in (1, 2)]
    for path in paths:
        local_lake.put(path, metadata_file())
    signs = look(local_lake.storage, folder).signs
    assert [sign.path for sign in signs] == paths[1::2][:MOST_SIGNS]
    notes = {sign.note for sign in signs[:-1]}
    assert notes == {None}
    assert (signs[-1].note is None) == (number == MOST_SIGNS)


def test_a_table_that_keeps_both_has_two_signs(local_lake: Lake) -> None:
    table = local_lake.table("db.t")
    shutil.copytree(
        golden_delta.table_folder("changes") / "_delta_log", f"{table.location().removeprefix('file://')}/_delta_log"
    )
    signs = look(local_lake.storage, table.location()).signs
    assert [sign.format for sign in signs] == ["delta", "iceberg"]
    assert signs[1].path == table.metadata_location


def test_a_log_above_the_folder_is_not_its_own(local_lake: Lake) -> None:
    inside = f"{local_lake.warehouse}/db/_delta_log/old"
    local_lake.put(f"{inside}/x.parquet")
    assert look(local_lake.storage, inside).signs == ()


def test_odd_keys_are_counted_and_read(exact_lake: Lake) -> None:
    folder = f"{exact_lake.warehouse}/db/old"
    log = (golden_delta.table_folder("changes") / "_delta_log" / "00000000000000000000.json").read_bytes()
    odd = [f"{folder}//x", f"{folder}/./y", f"{folder}/a\x01b", f"{folder}//metadata/v1.metadata.json"]
    for path in odd:
        exact_lake.put(path, metadata_file())
    exact_lake.put(f"{folder}//_delta_log/00000000000000000000.json", log)
    content = look(exact_lake.storage, folder)
    assert content.objects == 5
    assert content.signs == (
        Sign("delta", f"{folder}//_delta_log", note="its table's folder is named nothing"),
        Sign("iceberg", odd[3], "u", 7, 0, 0),
    )
