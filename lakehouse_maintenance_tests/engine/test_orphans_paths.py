"""Known trap "Is it the same path?": spellings, odd keys, hidden folders, markers, links, on local files and on S3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake, client_of, reference


def spelled(path: str, root: str) -> str:
    """The same key under another scheme and authority."""
    key = path.removeprefix("file:///") if path.startswith("file:") else path.partition("://")[2].partition("/")[2]
    return root + key


def bucket(lake: Lake) -> str:
    return lake.root.removeprefix("s3://").rstrip("/")


def removed(lake: Lake, **asked: Any) -> tuple[OrphanResult, set[str]]:
    """The result, and what is gone."""
    there = lake.objects()
    result = lake.orphans(**asked)
    assert lake.objects() <= there
    return result, there - lake.objects()


def test_every_spelling_of_scheme_and_host(lake: Lake) -> None:
    roots = ["/", "file:/", "file:///", "file://localhost/"]
    if not lake.is_local:
        roots = [f"{scheme}://{bucket(lake)}/" for scheme in ("s3", "s3a", "s3n", "S3A")]
    table = lake.table()
    for number, root in enumerate(roots):
        path = f"{table.location()}/data/spelled-{number}.parquet"
        lake.add(table, path, referenced_as=spelled(path, root))
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, {orphan}), result


def test_a_table_whose_location_is_spelled_otherwise(lake: Lake) -> None:
    """Everything the listing gives is spelled as the location is, and the references are not."""
    location = f"{lake.warehouse}/db/t"
    root = "file:/" if lake.is_local else f"s3a://{bucket(lake)}/"
    table = lake.table(location=spelled(location, root))
    path = lake.put(f"{location}/data/spelled.parquet")
    reference(table, path)
    orphan = lake.put(f"{location}/data/orphan.parquet")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, {orphan}), result


def _elsewhere(lake: Lake) -> list[tuple[str, dict[str, Any]]]:
    """Roots that nobody declared to be the lake's own, with the declaration."""
    if lake.is_local:
        return [("hdfs://nn:8020/", {"equal_schemes": {"hdfs,viewfs": "file"}, "equal_authorities": {"nn:8020": ""}})]
    own = bucket(lake)
    return [
        (f"oss://{own}/", {"equal_schemes": {"cosn, oss": "s3"}}),
        ("s3://alias/", {"equal_authorities": {"alias,other": own}}),
        ("cosn://alias/", {"equal_schemes": {"cosn": "s3a"}, "equal_authorities": {"alias": own}}),
    ]


@pytest.mark.requirement("IM-08")
@pytest.mark.parametrize(("lake", "number"), [("local", 0), ("s3", 0), ("s3", 1), ("s3", 2)], indirect=["lake"])
def test_a_reference_under_another_scheme_or_bucket(lake: Lake, number: int) -> None:
    """A path that matches but for these, undeclared, stops the run; or is kept, or taken; declared, it is owned."""
    root, equal = _elsewhere(lake)[number]
    table = lake.table()
    path = f"{table.location()}/data/live.parquet"
    lake.add(table, path, referenced_as=spelled(path, root))
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.BLOCKED, set()), result
    assert path in result.reason
    assert "--equal-schemes" in result.reason
    result, gone = removed(lake, **equal)
    assert (result.status, gone, result.orphan_files) == (Status.DONE, {orphan}, 1), result
    lake.put(orphan)
    result, gone = removed(lake, prefix_mismatch_mode="IGNORE")
    assert (result.status, gone) == (Status.DONE, {orphan}), result
    assert any("another scheme or bucket" in kept.reason for kept in result.kept)
    result, gone = removed(lake, prefix_mismatch_mode="DELETE")
    assert (result.status, gone) == (Status.DONE, {path}), result


def test_by_policy(lake: Lake) -> None:
    root, equal = _elsewhere(lake)[0]
    table = lake.table()
    path = f"{table.location()}/data/live.parquet"
    lake.add(table, path, referenced_as=spelled(path, root))
    there = lake.objects()
    for policy in (equal, {"prefix_mismatch_mode": "IGNORE"}):
        ours = lake.open(policies={"default": {"remove_orphan_files": policy}})
        assert lake.orphans(ours).status is Status.DONE
        assert lake.objects() == there
    result, gone = removed(lake, prefix_mismatch_mode="ERROR")
    assert (result.status, gone) == (Status.BLOCKED, set())


@pytest.mark.requirement("IM-08")
def test_another_tables_reference_under_another_scheme(lake: Lake) -> None:
    """A store that is reached by two schemes."""
    table = lake.table()
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    path = lake.put(f"{table.location()}/data/live.parquet")
    root = "hdfs://nn/" if lake.is_local else "oss://x/"
    reference(other, spelled(path, root))
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.BLOCKED, set()), result
    assert path in result.reason


@pytest.mark.parametrize("lake", ["s3"], indirect=True)
def test_the_same_key_of_another_bucket_is_another_file(lake: Lake) -> None:
    """A copy of the lake in another bucket, in the same catalog."""
    assert lake.server is not None
    table = lake.table()
    copy = f"{bucket(lake)}-copy"
    client_of(lake.server).create_bucket(Bucket=copy)
    other = lake.table("x.u", location=spelled(table.location(), f"s3://{copy}/"))
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    lake.add(other, spelled(orphan, f"s3://{copy}/"))
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, {orphan}), result


@pytest.mark.requirement("IM-08")
@pytest.mark.parametrize("lake", ["s3"], indirect=True)
def test_another_table_that_reaches_in_by_a_bucket_that_is_declared_equal(lake: Lake) -> None:
    """Who may own files has to be asked under the same aliases as the files."""
    assert lake.server is not None
    table = lake.table()
    alias = f"{bucket(lake)}-alias"
    client_of(lake.server).create_bucket(Bucket=alias)
    other = lake.table("x.u", location=f"s3://{alias}/u")
    path = lake.put(f"{table.location()}/data/live.parquet")
    reference(other, spelled(path, f"s3://{alias}/"))
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    equal = {"equal_authorities": {alias: bucket(lake)}}
    result, gone = removed(lake, **equal)
    assert (result.status, gone) == (Status.DONE, {orphan}), result
    lake.table("x.v", location=spelled(f"{table.location()}/nested", f"s3://{alias}/"))
    result, gone = removed(lake, **equal)
    assert (result.status, gone) == (Status.BLOCKED, set()), result
    assert "main.x.v" in result.reason


@pytest.mark.requirement("IM-08")
def test_the_recheck_knows_what_was_declared_equal(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan and the deletion the file is committed, under the other name."""
    root, equal = _elsewhere(lake)[-1]
    table = lake.table()
    path = lake.put(f"{table.location()}/data/live.parquet")
    real = Deletion.remove

    def remove(self: Deletion, *args: Any, **options: Any) -> Any:
        reference(table, spelled(path, root))
        return real(self, *args, **options)

    monkeypatch.setattr(Deletion, "remove", remove)
    result = lake.orphans(**equal)
    assert path in lake.objects()
    assert result.deleted_files == 0


ODD = ["a b", "a%20c", "a%2520d", "a+b", "k=v:w", "ü", "u\u0308", "日本", "#a?b", "a'b", "%", "a%2Fb", "&x;"]
ONLY_STORES = ["x//y", "x//", "/lead", "a\\b", "./dot", "../up", "e/./f", "e/../g", "\x01"]


def test_odd_keys_are_deleted_exactly(exact_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client could make of a key is not touched: it is written right before the deletion."""
    lake = exact_lake
    table = lake.table()
    folder = f"{table.location()}/data/"
    odd = [lake.put(folder + key) for key in (*ODD, *ONLY_STORES) if not key.endswith("/")]
    real = Deletion.remove
    neighbours: set[str] = set()

    def remove(self: Deletion, *args: Any, **options: Any) -> Any:
        for path in odd:
            key = path.removeprefix(folder)
            collapsed = "/".join(one for one in key.split("/") if one not in ("", ".", ".."))
            made = {
                collapsed,
                unquote(key),
                unquote(key.replace("+", " ")),
                key.replace("\\", "/"),
                key.replace(":", ""),
            }
            clear = [folder + one for one in made if one and folder + one not in odd]
            neighbours.update(lake.put(one, b"a neighbour, of another content") for one in clear)
        return real(self, *args, **options)

    monkeypatch.setattr(Deletion, "remove", remove)
    there = lake.objects()
    result = lake.orphans()
    # A segment that begins with a dot is a hidden folder, whatever a client makes of it.
    exact = {path for path in odd if "/." not in path}
    assert (result.status, result.deleted_files, result.failed) == (Status.DONE, len(exact), ()), result
    assert there - lake.objects() == exact
    assert len(exact) == len(odd) - 4
    assert len(neighbours) > 8
    assert neighbours <= lake.objects()


def _variants(key: str) -> set[str]:
    """What writers and clients make of one key: raw, collapsed, doubled, encoded."""
    made = {key, key.replace("/", "//"), "/".join(one for one in key.split("/") if one), unquote(key)}
    return {one for one in made if one.strip("/")}


def test_odd_keys_that_something_names_in_another_way_stay(exact_lake: Lake) -> None:
    lake = exact_lake
    table = lake.table()
    folder = f"{table.location()}/data/in"
    pairs = [
        ("g/one.parquet", "g//one.parquet"),
        ("h//two.parquet", "h/two.parquet"),
        ("i/3", "i/3/"),
        ("j/a b", "j/a%20b"),
    ]
    for number, key in enumerate([*ODD, *ONLY_STORES]):
        variants = sorted(_variants(key))
        pairs.append((f"{number}/{key}", f"{number}/{variants[number % len(variants)]}"))
    for listed, _ in pairs:
        lake.put(f"{folder}/{listed}")
    reference(table, *(f"{folder}/{named}" for _, named in pairs))
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, set()), gone


@pytest.mark.parametrize("referenced", [True, False])
def test_odd_names_that_a_file_system_holds(local_lake: Lake, referenced: bool) -> None:
    lake = local_lake
    table = lake.table()
    folder = f"{table.location()}/data/in"
    odd = {lake.put(f"{folder}/{key}") for key in (*ODD, "a\\b", "\x01", "a\nb")}
    odd.add(f"{folder}/" + os.fsdecode(b"not-utf8-\xff"))
    Path(f"{folder}/".removeprefix("file://") + os.fsdecode(b"not-utf8-\xff")).write_bytes(b"nobody's")
    if referenced:
        named = [path.replace("a%20c", "a c").replace("a b", "a%20b").replace("/in/", "//in/") for path in odd]
        reference(table, *(path for path in named if "\udcff" not in path))
        odd = {path for path in odd if "\udcff" in path}
    found = lake.orphans(delete=False)
    assert {file.path for file in found.files} == odd, found
    result, gone = removed(lake)
    # A table whose files are not called what it names them is not deleted from at all.
    assert (result.status, gone) == ((Status.BLOCKED, set()) if referenced else (Status.DONE, odd)), result


def test_a_partition_field_that_begins_with_an_underscore(lake: Lake) -> None:
    """`_day=1` is data because the table has such a field; other hidden folders are somebody's."""
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "_day", LongType()), NestedField(3, ".h", LongType())
    )
    fields = (PartitionField(2, 1000, IdentityTransform(), "_day"), PartitionField(3, 1001, IdentityTransform(), ".h"))
    table = lake.writer.create_table("db.t", schema, partition_spec=PartitionSpec(*fields))
    orphans = {lake.put(f"{table.location()}/data/{name}/o.parquet") for name in ("_day=1", ".h=2", "_day=1/.h=3")}
    hidden = [
        "_day",
        "_dates_backup",
        "_day_2=1",
        ".hidden",
        "_temporary/0",
        "_day=1/_tmp",
        ".staging/_day=1",
        "_Day=1",
    ]
    for name in hidden:
        lake.put(f"{table.location()}/data/{name}/stays.parquet")
    for name in ("_SUCCESS", ".x.parquet.crc", "_day=1/_committed_1"):
        lake.put(f"{table.location()}/data/{name}")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, orphans), result
    assert [kept.files for kept in result.kept if "hidden" in kept.reason] == [len(hidden) + 3]


def test_folder_markers_are_no_files(lake: Lake) -> None:
    table = lake.table()
    files = len(lake.objects())
    markers = [f"{table.location()}/data_$folder$", f"{table.location()}/data/p=1_$folder$"]
    if not lake.is_local:
        markers += [f"{table.location()}/data/", f"{table.location()}/data/p=1/", f"{table.location()}/"]
    for marker in markers:
        lake.put(marker, b"")
    full = lake.put(f"{table.location()}/data/named_$folder$")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, {full}), result
    assert result.objects_listed == files + 1
    shown = [kept.files for kept in result.kept if "stands for a folder" in kept.reason]
    assert shown[0] >= 2


def test_a_file_that_a_link_leads_to(local_lake: Lake) -> None:
    """The table names the link: the file behind it is what is read. Where nothing names it, both stay."""
    lake = local_lake
    table = lake.table()
    real, _, orphan = (lake.put(f"{table.location()}/data/{name}.parquet") for name in ("real", "other", "orphan"))
    link = Path(real.removeprefix("file://")).with_name("link.parquet")
    link.symlink_to("real.parquet")
    reference(table, f"file://{link}")
    link.with_name("unnamed.parquet").symlink_to("other.parquet")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, {orphan}), result
    assert [kept.files for kept in result.kept if "symbolic link" in kept.reason] == [3]


def test_links(local_lake: Lake) -> None:
    """The lake is reached by two ways; a link in the table leads out of it."""
    lake = local_lake
    store = Path(lake.root.removeprefix("file://"))
    store.mkdir(parents=True, exist_ok=True)
    way = lake.folder / "way"
    way.symlink_to(store)
    table = lake.table(location=f"file://{way}/wh/db/t")
    path = lake.put(f"{lake.warehouse}/db/t/data/by-the-other-way.parquet")
    reference(table, path)
    outside = lake.put(f"{lake.root}outside/o.parquet")
    (store / "wh/db/t/data/out").symlink_to(store / "outside")
    orphan = lake.put(f"{lake.warehouse}/db/t/data/orphan.parquet")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.DONE, {orphan}), result
    assert outside in lake.objects()
    # Two tables at one place, by two ways.
    lake.writer.create_table("db.u", SCHEMA, location=f"{lake.warehouse}/db/t/nested")
    result, gone = removed(lake)
    assert (result.status, gone) == (Status.BLOCKED, set())
    assert "main.db.u" in result.reason
