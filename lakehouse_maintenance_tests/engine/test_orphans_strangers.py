"""Known trap "Whose file is it?": tables that no catalog shows, found by what they leave, on local files and on S3."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance_tests.delta_logs import HEADER, LogWriter, add
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake
from lakehouse_maintenance_tests.golden_delta.fixture import table_folder


def delta_table(lake: Lake, path: str) -> list[str]:
    """Written by Spark, with deletion vectors, and put there; returns its objects."""
    before = lake.objects()
    lake.put_tree(table_folder("vectors"), path)
    return sorted(lake.objects() - before)


def unlisted(lake: Lake, location: str, file: str | None = None) -> Table:
    """An Iceberg table whose catalog forgot it. `file`: one that it references besides its own."""
    table = lake.table("db.forgotten", location=location)
    if file is not None:
        lake.add(table, file)
    lake.writer.drop_table("db.forgotten")
    return table


def assert_stays(lake: Lake, *orphans: str) -> OrphanResult:
    """Of all that there is, only these go."""
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.DONE, result
    assert there - lake.objects() == set(orphans)
    assert lake.objects() <= there
    return result


def assert_blocked(lake: Lake, *said: str) -> None:
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.BLOCKED, result
    for word in said:
        assert word in result.reason
    assert lake.objects() == there


@pytest.mark.parametrize("place", ["nested", "data/id=1/nested", "_hidden"])
def test_a_nested_delta_table(lake: Lake, place: str) -> None:
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    objects = delta_table(lake, f"{table.location()}/{place}")
    lake.put(f"{table.location()}/{place}/not-in-the-log.parquet")
    assert any("_delta_log" in one for one in objects)
    result = assert_stays(lake, orphan)
    assert any("not listed" in kept.reason for kept in result.kept) or place == "_hidden"


@pytest.mark.parametrize("place", ["", "/.."], ids=["in the same folder", "around"])
@pytest.mark.parametrize("log", ["_delta_log", ".hoodie"])
def test_a_log_of_another_format_over_the_same_files(lake: Lake, place: str, log: str) -> None:
    """UniForm and XTable keep several formats' logs over one set of files; Iceberg lies inside of Delta."""
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    folder = table.location() if not place else table.location().rpartition("/")[0]
    lake.put(f"{folder}/{log}/00000000000000000000.json", b"{}")
    assert_blocked(lake, log)


def test_a_nested_delta_log_that_cannot_be_read(lake: Lake) -> None:
    """It may reach anything."""
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    lake.put(f"{table.location()}/nested/_delta_log/00000000000000000007.json", b"not json")
    assert_blocked(lake, "nested/_delta_log", "cannot be read")


def test_a_nested_delta_table_that_reaches_out(lake: Lake) -> None:
    """A shallow clone names files of another folder by whole paths."""
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    needed = lake.put(f"{table.location()}/cloned/needed.parquet")
    lake.put(f"{table.location()}/cloned/beside.parquet")
    log = LogWriter(lake.folder / "clone")
    log.commit(*HEADER, add(needed))
    lake.put_tree(log.root, f"{table.location()}/nested")
    assert_stays(lake, orphan)


@pytest.mark.parametrize("place", ["nested", "..", ""])
def test_a_delta_table_that_is_configured(lake: Lake, place: str) -> None:
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    folder = {"nested": f"{table.location()}/nested", "..": f"{lake.warehouse}/db", "": table.location()}[place]
    delta_table(lake, folder)
    for group in ({"tables": {"d": folder}}, {"roots": [f"{lake.warehouse}/"]}):
        there = lake.objects()
        result = lake.orphans(lake.open(delta={"lake": {**group, "storage_options": lake.delta_options}}))
        assert result.status is Status.BLOCKED
        assert "main.db.t" in result.reason
        assert "of lake." in result.reason
        assert lake.objects() == there


def test_a_configured_delta_table_elsewhere_that_reaches_in(lake: Lake) -> None:
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    lake.put(needed := f"{table.location()}/data/needed.parquet")
    log = LogWriter(lake.folder / "clone")
    log.commit(*HEADER, add(needed))
    lake.put_tree(log.root, f"{lake.root}delta/d")
    there = lake.objects()
    ours = lake.open(delta={"lake": {"tables": {"d": f"{lake.root}delta/d"}, "storage_options": lake.delta_options}})
    result = lake.orphans(ours)
    assert result.status is Status.DONE, result
    assert there - lake.objects() == {orphan}
    # A log that cannot be found tells nothing: its table could lie where its configuration says.
    ours = lake.open(
        delta={"lake": {"tables": {"d": f"{table.location()}/gone"}, "storage_options": lake.delta_options}}
    )
    assert lake.orphans(ours).status is Status.BLOCKED


def _plain(lake: Lake, path: str) -> None:
    """As PyIceberg writes it."""


def _gzip(ending: str) -> Callable[[Lake, str], None]:
    def compress(lake: Lake, path: str) -> None:
        lake.put(path.removesuffix(".metadata.json") + ending, gzip.compress(lake.read(path)))
        lake.remove(path)

    return compress


@pytest.mark.parametrize(
    "written",
    [_plain, _gzip(".gz.metadata.json"), _gzip(".metadata.json.gz")],
    ids=["plain", "gz.metadata.json", "metadata.json.gz"],
)
def test_a_nested_iceberg_table(lake: Lake, written: Callable[[Lake, str], None]) -> None:
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    needed = f"{table.location()}/elsewhere/needed.parquet"
    nested = unlisted(lake, f"{table.location()}/data/nested", needed)
    for path in sorted(one for one in lake.objects() if "/nested/" in one and one.endswith(".metadata.json")):
        written(lake, path)
    lake.put(f"{table.location()}/data/nested/data/orphan-of-nested.parquet")
    result = assert_stays(lake, orphan)
    assert any(str(nested.metadata.table_uuid) in kept.reason for kept in result.kept)
    # By the uuid it is told that nobody needs it any more.
    told = {"policies": {"default": {"remove_orphan_files": {"dropped_tables": [str(nested.metadata.table_uuid)]}}}}
    there = lake.objects()
    result = lake.orphans(lake.open(**told))
    assert result.status is Status.DONE
    gone = there - lake.objects()
    assert needed in gone
    assert {one for one in there if "/nested/" in one} == gone - {needed}


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("metadata", b"{}"),
        ("metadata", b""),
        ("metadata", b"garbage"),
        ("data/nested/metadata", b"\x1f\x8bgarbage"),
        ("data", b"garbage"),
    ],
)
def test_metadata_that_cannot_be_read(lake: Lake, place: str, content: bytes) -> None:
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    lake.put(f"{table.location()}/{place}/00009-x.metadata.json", content)
    assert_blocked(lake, f"{place}/00009-x.metadata.json", "cannot be read")


def test_foreign_metadata_in_the_tables_own_folder(lake: Lake) -> None:
    """A table was dropped, and another made in its place."""
    forgotten = unlisted(lake, f"{lake.warehouse}/db/t")
    files = {one for one in lake.objects() if "/db/t/" in one}
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    uuid = str(forgotten.metadata.table_uuid)
    assert_blocked(lake, uuid, "dropped_tables")
    told = {"policies": {"tables": {"main.db.t": {"remove_orphan_files": {"dropped_tables": [uuid]}}}}}
    there = lake.objects()
    result = lake.orphans(lake.open(**told))
    assert result.status is Status.DONE, result
    assert there - lake.objects() == files - {f"{table.location()}/data/0.parquet"} | {orphan}


@pytest.mark.parametrize("version", [".metadata.json", ".gz.metadata.json", ".metadata.json.gz"])
def test_foreign_metadata_above(lake: Lake, version: str) -> None:
    """The forgotten table's folder holds the table's."""
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    forgotten = unlisted(lake, f"{lake.warehouse}/db/around")
    raw = lake.read(forgotten.metadata_location)
    content = gzip.compress(raw) if "gz" in version else raw
    lake.put(f"{lake.warehouse}/db/metadata/00001-a{version}", content)
    assert_blocked(lake, str(forgotten.metadata.table_uuid))


def test_a_leftover_of_the_tables_own(lake: Lake) -> None:
    """An old metadata file fell out of the log; a commit that failed left one. Both have the table's uuid."""
    properties = {"write.metadata.previous-versions-max": "1"}
    table = lake.table(commits=4, properties=properties)
    raw = json.loads(lake.read(table.metadata_location))
    lake.put(f"{table.location()}/metadata/99999-failed.metadata.json", json.dumps(raw).encode())
    named = {table.metadata_location, *(entry["metadata-file"] for entry in raw["metadata-log"])}
    metadata = {one for one in lake.objects() if one.endswith(".metadata.json")}
    assert len(metadata - named) > 1
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.DONE
    assert there - lake.objects() == metadata - named
    assert not lake.orphans().orphan_files


def test_an_unlisted_table_that_was_seen_before_is_still_unlisted(lake: Lake) -> None:
    """What is remembered of a stranger's metadata file is whose it is, not that it was looked at."""
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    unlisted(lake, f"{table.location()}/nested")
    ours = lake.open()
    there = lake.objects()
    for _ in range(2):
        lake.orphans(ours)
        assert there - lake.objects() == {orphan}


def test_a_listed_tables_metadata_is_no_stranger(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    other = lake.writer.create_table("db.u", SCHEMA, location=f"{lake.root}u")
    copied = lake.put(f"{table.location()}/copied/00000-x.metadata.json", lake.read(other.metadata_location))
    assert_stays(lake, copied)
