"""Broken and hostile metadata, logs and names, met by the evidence: a clear error of one table, and nothing deleted."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.evidence import Evidence
from lakehouse_maintenance.execution import orphan_search
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.iceberg.references import references
from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError, LakehouseError
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.orchestration.databases import Database
from lakehouse_maintenance.orchestration.orphans import _report
from lakehouse_maintenance_tests.delta_logs import HEADER, LogWriter, add, lines
from lakehouse_maintenance_tests.engine.foreign import add_entry
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake
from lakehouse_maintenance_tests.engine.tables import ids
from lakehouse_maintenance_tests.golden_delta.fixture import table_folder

pytestmark = pytest.mark.requirement("RS-05")

OTHERS = (None, 7, -1, "x", "../../x", [7], {"x": 7}, [None], True, 1e400)
"""Put in the place of each value of a metadata file."""


@pytest.fixture
def lake(local_lake: Lake) -> Lake:
    """`main.db.t` with one orphan; `main.db.v`, which lies elsewhere and needs a file in t's folder; and `main.x.u`."""
    table = local_lake.table(commits=2)
    local_lake.put(f"{table.location()}/data/orphan.parquet")
    other = local_lake.table("db.v", location=f"{local_lake.root}elsewhere/v", commits=2)
    local_lake.add(other, f"{table.location()}/data/of-v.parquet")
    local_lake.table("x.u", commits=2)
    return local_lake


def orphan(lake: Lake) -> str:
    return f"{lake.warehouse}/db/t/data/orphan.parquet"


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def parts(table: Table) -> dict[str, str]:
    """Metadata file, a manifest list and a manifest of the head."""
    head = table.current_snapshot()
    assert head is not None
    manifest = head.manifests(table.io)[0].manifest_path
    return {"metadata": table.metadata_location, "manifest list": head.manifest_list, "manifest": manifest}


def is_clear(result: OrphanResult) -> bool:
    """Blocked or failed, with a reason in our own words."""
    return (
        result.status in (Status.BLOCKED, Status.FAILED)
        and bool(result.reason)
        and not re.search(r"unexpected \w*(Error|Exception)", result.reason)
    )


def search_all(lake: Lake, number: int) -> dict[str, OrphanResult]:
    """Removes orphans of all tables, as the first run ever."""
    ours = lake.open(state={"url": str(lake.folder / f"state-{number}")})
    return {result.table: result for result in ours.orphans(["main.*.*"], delete=True).tables}


def values(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each value in a JSON document; of a list the first element stands for all."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:1])
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from values(value, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copied = json.loads(json.dumps(document))
    holder = copied
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return copied


def live(lake: Lake) -> set[str]:
    """Everything but the orphan."""
    return lake.objects() - {orphan(lake)}


def assert_nobody_lost_anything(lake: Lake, needed: set[str], results: dict[str, OrphanResult]) -> None:
    """Each table ended well or with a clear error, and at most the orphan is gone."""
    for result in results.values():
        assert result.status is Status.DONE or is_clear(result), result
    assert needed <= lake.objects()


def test_any_value_anywhere_in_a_neighbours_metadata(lake: Lake) -> None:
    """Whatever it says, it concerns one table: the look goes on, and every other table is in it."""
    path = local(lake.writer.load_table("x.u").metadata_location)
    document = json.loads(path.read_text())
    document["statistics"] = [{"snapshot-id": 1, "statistics-path": "file:///x/s.puffin", "file-size-in-bytes": 4}]
    document["partition-statistics"] = [{"snapshot-id": 1, "statistics-path": "file:///x/p", "file-size-in-bytes": 4}]
    document["partition-specs"] = [
        {"spec-id": 0, "fields": [{"name": "id", "transform": "identity", "source-id": 1, "field-id": 1000}]}
    ]
    changes = [(place, value) for place in values(document) for value in OTHERS]
    ours = lake.open()
    for place, value in random.Random(len(changes)).sample(changes, 150):
        path.write_text(json.dumps(replaced(document, place, value)))
        look = Evidence(ours.catalogs).look()
        names = {one.name for one in look.owners} | {one.name for one in look.unread}
        assert names == {"main.db.t", "main.db.v", "main.x.u"}, (place, value)
        assert look.owner("main.db.t") is not None
        assert look.incomplete is None, (place, value)


def test_any_value_anywhere_in_metadata_is_refused_or_understood(lake: Lake) -> None:
    """What was understood gives folders, partition fields and references without another error."""
    location = lake.writer.load_table("x.u").metadata_location
    document = json.loads(local(location).read_text())
    for place in values(document):
        for value in OTHERS:
            local(location).write_text(json.dumps(replaced(document, place, value)))
            with suppress(LakehouseError):
                metadata = read_metadata(lake.storage, "x.u", location)
                orphan_search.partition_fields(metadata)
                orphan_search.listed_places(metadata, None)
                assert all(isinstance(one.path, str) for one in references(metadata, Unread(), ()))


class Unread(ManifestReader):
    """Manifests play no part."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("whose", ["db.t", "db.v", "x.u"])
@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifest"])
def test_truncated(lake: Lake, whose: str, what: str) -> None:
    path = local(parts(lake.writer.load_table(whose))[what])
    content, needed = path.read_bytes(), live(lake)
    for number, length in enumerate((0, 20, len(content) // 2, len(content) - 1)):
        path.write_bytes(content[:length])
        lake.put(orphan(lake))
        results = search_all(lake, number)
        assert is_clear(results[f"main.{whose}"]), results
        assert_nobody_lost_anything(lake, needed, results)
        assert (results["main.db.t"].status is Status.DONE) is (whose == "x.u"), results


@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifest"])
def test_flipped_bits(lake: Lake, what: str) -> None:
    """No checksum tells them. Whatever they change, what the table and its neighbours read stays.

    A previous metadata file may go whose name in the log was hit: no reader needs it.
    """
    table = lake.writer.load_table("db.t")
    path = local(parts(table)[what])
    history = {entry.metadata_file for entry in table.metadata.metadata_log}
    content, needed = path.read_bytes(), live(lake) - history
    # Near the end of a manifest lies what it says of files: their names.
    places = [*range(40, len(content), len(content) // 5), *range(len(content) - 120, len(content) - 20, 20)]
    for number, position in enumerate(places):
        flipped = content[position] ^ (1 << position % 8)
        path.write_bytes(content[:position] + bytes([flipped]) + content[position + 1 :])
        lake.put(orphan(lake))
        assert_nobody_lost_anything(lake, needed, search_all(lake, number))


@pytest.mark.parametrize("flipped", ["file:o//", "fyle:///", "fil%:///", "o/", "file://+", "file:///../"])
def test_a_manifest_whose_scheme_was_hit(lake: Lake, flipped: str) -> None:
    """It names no file at all then, or one elsewhere; what it meant looks like nobody's."""
    table = lake.writer.load_table("db.t")
    name = lake.put(f"{table.location()}/data/right.parquet")
    add_entry(table, name.replace("file:///", flipped), records=1, size=8)
    needed = live(lake)
    result = search_all(lake, 0)["main.db.t"]
    assert is_clear(result), result
    assert needed <= lake.objects()


def test_a_manifest_that_names_a_file_twice(lake: Lake) -> None:
    """A bit that makes `1.parquet` out of `0.parquet`: every named file is there, and the one that was meant as well.

    The same file in manifests of different snapshots is right; this table has had its manifests written again.
    """
    table = lake.writer.load_table("db.t")
    table.overwrite(table.scan().to_arrow())
    assert search_all(lake, 0)["main.db.t"].status is Status.DONE
    meant = lake.put(f"{table.location()}/data/0-2.parquet")
    other = lake.put(f"{table.location()}/data/0-3.parquet")
    add_entry(table, other, records=1, size=8)
    add_entry(table, other, records=1, size=8)
    result = search_all(lake, 1)["main.db.t"]
    assert is_clear(result), result
    assert f"{other} twice" in result.reason
    assert meant in lake.objects()


def test_a_manifest_that_names_another_file(lake: Lake) -> None:
    """As a flipped bit leaves it: what it meant looks like nobody's."""
    table = lake.writer.load_table("db.t")
    name = lake.put(f"{table.location()}/data/right.parquet")
    add_entry(table, name.replace("right", "rigit"), records=1, size=8)
    needed = live(lake)
    result = search_all(lake, 0)["main.db.t"]
    assert is_clear(result), result
    assert "rigit" in result.reason
    assert needed <= lake.objects()


BROKEN_DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "50 MB of one text": lambda: json.dumps({"format-version": 2, "x": "y" * (50 << 20)}).encode(),
    "a deep list": lambda: b"[" * 1_000_000,
    "deep objects": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a deep schema": lambda: b'{"format-version": 2, "schemas": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a huge number": lambda: b'{"format-version": ' + b"9" * 10_000 + b"}",
    "NUL": lambda: b'{"format-version": 2, "location": "file:///x/\\u0000", "table-uuid": "x"}',
    "a zip bomb's head": lambda: b"\x1f\x8b" + b"\0" * 100,
}


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, "x/u/pointer") for name in BROKEN_DOCUMENTS]
    + [("50 MB of one text", "db/t/metadata/00009-x"), ("a deep list", "db/t/data/nested/metadata/00001-x")],
)
def test_documents_that_hurt(lake: Lake, name: str, place: str) -> None:
    """As a stranger's metadata, in the table's own folder and nested; and as another table's own."""
    path = f"{lake.warehouse}/{place}.metadata.json"
    if place.endswith("pointer"):
        path = lake.writer.load_table("x.u").metadata_location
    lake.put(path, BROKEN_DOCUMENTS[name]())
    needed = live(lake)
    results = search_all(lake, 0)
    assert_nobody_lost_anything(lake, needed, results)
    broken = "main.x.u" if place.endswith("pointer") else "main.db.t"
    assert is_clear(results[broken]), results
    told = lake.open().explain(f"{lake.warehouse}/db/t/data/nobodys.parquet").ownership
    assert told.owned is (None if place.startswith("db") else False)


def test_snapshots_that_are_their_own_ancestors(lake: Lake) -> None:
    for name in ("db.t", "db.v", "x.u"):
        path = local(lake.writer.load_table(name).metadata_location)
        document = json.loads(path.read_text())
        one, other = document["snapshots"][0], document["snapshots"][-1]
        one["parent-snapshot-id"], other["parent-snapshot-id"] = other["snapshot-id"], one["snapshot-id"]
        document["refs"]["loop"] = {"type": "branch", "snapshot-id": one["snapshot-id"]}
        path.write_text(json.dumps(document))
    needed = live(lake)
    results = search_all(lake, 0)
    assert results["main.db.t"].status is Status.DONE, results
    assert lake.objects() == needed
    assert lake.open().explain(f"{lake.warehouse}/db/t/data/0.parquet").ownership.owned is True


@pytest.mark.parametrize("path", ["data/../data/0.parquet", "../t/data/0.parquet", "data/%2e%2e/data/0.parquet"])
def test_a_reference_that_climbs(lake: Lake, path: str) -> None:
    """Where `..` leads nobody can tell: the table cannot be read. Its encoded form is a name like any other."""
    table = lake.writer.load_table("db.t")
    if "%" in path:
        lake.put(f"{table.location()}/{path}")
    add_entry(table, f"{table.location()}/{path}", records=1, size=8)
    needed = live(lake)
    results = search_all(lake, 0)
    assert_nobody_lost_anything(lake, needed, results)
    assert (results["main.db.t"].status is Status.DONE) is ("%" in path), results


@pytest.mark.parametrize("location", ["file:///a/../b", "relative", "", "s3:///x", "file:///a/\0b", "x\n://y/z"])
def test_a_neighbour_that_lies_nowhere(lake: Lake, location: str) -> None:
    path = local(lake.writer.load_table("x.u").metadata_location)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "location": location}))
    needed = live(lake)
    results = search_all(lake, 0)
    assert_nobody_lost_anything(lake, needed, results)
    assert is_clear(results["main.x.u"]), results


NAMES = (
    "'; DROP TABLE iceberg_tables; --",
    '"quoted" $(touch x)',
    "<img src=x onerror=alert(1)>",
    "a|b`c",
    "%2e%2e",
    "..",
    "new\nline\r\n| x | y |",
    "[x](javascript:alert(1))",
    "\u202e",
)


def test_names_that_are_code_elsewhere(lake: Lake) -> None:
    """Each is a table like others: searched, its orphan removed, told in a report that no name can break out of."""
    orphans = {orphan(lake)}
    for number, name in enumerate(NAMES):
        table = lake.writer.create_table(("db", name), SCHEMA, location=f"{lake.root}odd/{number}")
        lake.add(table, f"{table.location()}/data/0.parquet")
        orphans.add(lake.put(f"{table.location()}/data/of {name}.parquet"))
    listed, there = lake.writer.list_tables("db"), lake.objects()
    ours = lake.open()
    found = list(ours.iter_orphans(ours.tables(["main.*.*"]), delete=True))
    assert [one.status for one in found] == [Status.DONE] * (len(NAMES) + 3), found
    assert there - lake.objects() == orphans
    assert lake.objects() <= there
    assert lake.writer.list_tables("db") == listed
    for name in NAMES:
        assert ids(lake.writer, ("db", name)) == [1]  # type: ignore[arg-type]
    shown = _report(Database("main", ("db",)), found)
    rows = [line for line in shown.splitlines() if line.startswith("| ") and "main.db" in line]
    assert len(rows) == len(NAMES) + 2
    assert len({row.count("|") for row in rows}) == 1, "no name makes cells"
    assert "<" not in shown.replace("<br>", "")
    assert "](j" not in shown
    assert "\u202e" not in shown
    for path in orphans:
        told = ours.explain(path)
        assert told.ownership.owned is False
        assert [one.fate for one in told.journal] == [None, "deleted"], path


@pytest.mark.parametrize(
    ("what", "place", "listed"),
    [
        ("commit", "db/t/nested", True),
        ("commit", "db", False),
        ("commit", "elsewhere", True),
        ("checkpoint", "db/t/nested", False),
        ("checkpoint", "db", True),
    ],
)
def test_a_damaged_delta_log(lake: Lake, what: str, place: str, listed: bool) -> None:
    """In the folder and around it nothing is known; elsewhere it concerns nobody."""
    root = f"{lake.warehouse}/{place}"
    if what == "commit":
        writer = LogWriter(lake.folder / "made")
        path = writer.commit(*HEADER, add("part-0.parquet"))
        path.write_text(lines(*HEADER, add("part-0.parquet"))[:-9])
        lake.put_tree(writer.root, root)
    else:
        lake.put_tree(table_folder("vectors"), root)
        (checkpoint, *_) = sorted(local(root).glob("_delta_log/*.checkpoint*.parquet"))
        checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    needed = live(lake)
    config = {"delta": {"lake": {"tables": {"d": root}}}} if listed else {}
    ours = lake.open(**config)
    results = {result.table: result for result in ours.orphans(["main.*.*"], delete=True).tables}
    assert_nobody_lost_anything(lake, needed, results)
    assert is_clear(results["main.db.t"]) is (place != "elsewhere"), results
    told = ours.explain(f"{root}/part-of-nobody.parquet").ownership
    assert told.owned is None, told


def test_explain_of_an_odd_path(lake: Lake) -> None:
    """An input error, or nobody's."""
    ours: Lakehouse = lake.open()
    for path in ("file:///a/../b", "../x", "", "s3://", "file:///a\0b"):
        with pytest.raises(InputError):
            ours.explain(path)
    for path in ("file:///a/%2e%2e/b", "file:///a\nb", "/a'b\"<i>", "/a/\ud800", "//x//y/"):
        told = ours.explain(path).ownership
        assert told.owned is not True, told
