"""What is not known about storage: databases that cannot be listed, and tables whose metadata leaves it open."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.catalogs import Catalog, open_catalog
from lakehouse_maintenance.evidence import DeltaPlaces, Evidence, Look, Owner, Unread, freshness
from lakehouse_maintenance.model.errors import CatalogUnavailableError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.delta_logs import HEADER, LogWriter, add
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.services.faults import Answer, Request, fault_proxy


class Memory:
    """A cache that a second look reads from."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def get_many(self, keys: Any) -> dict[str, bytes]:
        return {key: self.blobs[key] for key in keys if key in self.blobs}

    def put_many(self, entries: dict[str, bytes]) -> None:
        self.blobs |= entries


def opened(lake: Lake) -> Catalog:
    return open_catalog("main", lake.properties)


def names(look: Look) -> set[str]:
    return {one.name for one in (*look.owners, *look.unread)}


# --- gaps


def test_a_database_that_cannot_be_listed_hides_no_other(rest_catalog: AnyCatalog) -> None:
    """The service fails for one of three databases: the tables of the others are owners, and the look says what it
    did not see."""
    for name in ("db.t", "x.u", "zz.hidden"):
        rest_catalog.writer.create_namespace(name.partition(".")[0])
        rest_catalog.writer.create_table(name, SCHEMA)
    address = rest_catalog.properties["uri"].partition("://")[2].partition("/")[0]
    with fault_proxy(f"http://{address}") as proxy:
        evidence = Evidence({"main": open_catalog("main", rest_catalog.behind(proxy.endpoint))})
        assert (names(evidence.look()), evidence.look().gaps) == ({"main.db.t", "main.x.u", "main.zz.hidden"}, ())

        def fail(request: Request) -> Answer | None:
            return Answer(500, b"{}") if "/namespaces/zz/tables" in request.target else None

        proxy.rule = fail
        look = evidence.look()
        assert {owner.name for owner in look.owners} == {"main.db.t", "main.x.u"}
        (gap,) = look.gaps
        assert (gap.catalog, gap.database) == ("main", "main.zz")
        assert look.incomplete == gap.why
        assert "main.zz" in gap.why
        assert "not known" in str(look.refusal("main.db", [Location.parse("s3://nobody/x")]))

        proxy.rule = lambda request: Answer(500, b"{}") if request.target.endswith("/namespaces") else None
        look = evidence.look()
        assert (names(look), [(gap.catalog, gap.database) for gap in look.gaps]) == (set(), [("main", None)])
        proxy.rule = lambda request: None
        assert evidence.look().gaps == ()


def test_each_catalog_and_group_has_its_own_gap(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = local_lake
    lake.table()
    side, properties = lake.another_catalog("side")
    side.create_namespace("y")
    side.create_table("y.v", SCHEMA)
    log = LogWriter(Path(lake.folder, "made"))
    log.commit(*HEADER, add("part-0.parquet"))
    lake.put_tree(log.root, f"{lake.root}delta/d")
    catalogs = {"main": opened(lake), "side": open_catalog("side", properties)}
    storage = Storage({})
    unreachable = DeltaPlaces("far", storage, roots=[Location.parse("hdfs://nobody/delta/")])
    near = DeltaPlaces("near", storage, tables={"db.d": Location.parse(f"{lake.root}delta/d")})
    evidence = Evidence(catalogs, [unreachable, near])
    everything = {"main.db.t", "side.y.v", "near.db.d"}
    look = evidence.look()
    assert names(look) == everything
    assert [(gap.catalog, gap.database) for gap in look.gaps] == [("far", None)]

    def unanswered(self: Catalog) -> list[tuple[str, str, str]]:
        raise CatalogUnavailableError(f"{self.name} does not answer")

    monkeypatch.setattr(type(catalogs["side"]), "foreign_pointers", unanswered)
    look = evidence.look()
    assert names(look) == everything
    assert [(gap.catalog, gap.database) for gap in look.gaps] == [("main", None), ("side", None), ("far", None)]
    assert look.incomplete == "main does not answer"


def test_a_look_with_a_gap_is_not_fresh(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it every pointer is asked for again, though only some places are in question."""
    lake = local_lake
    lake.table()
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    catalog = opened(lake)
    monkeypatch.setattr(type(catalog), "pointers", lambda self, namespace: {})
    monkeypatch.setattr(freshness, "_TIMES", 10**9)
    evidence = Evidence({"main": catalog})
    place = Location.parse(f"{lake.warehouse}/db/t")
    evidence.look()
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "foreign_pointers", lambda: _raise(CatalogUnavailableError("not now")))
        assert evidence.look().gaps
    moved = lake.add(other, f"{place.text}/data/needed.parquet")
    assert "main.x.u" in {owner.name for owner in evidence.look([place]).reaching([place])}, moved


def _raise(error: Exception) -> Any:
    raise error


def test_a_database_in_memory_is_asked_by_one_thread(tmp_path: Path) -> None:
    """Each thread would open an empty one of its own."""
    catalog = open_catalog("main", {"type": "in-memory", "warehouse": f"file://{tmp_path}/wh"})
    for name in ("a", "b", "c"):
        catalog.pyiceberg.create_namespace(name)
        catalog.pyiceberg.create_table(f"{name}.t", SCHEMA)
    look = Evidence({"main": catalog}).look()
    assert (names(look), look.gaps) == ({"main.a.t", "main.b.t", "main.c.t"}, ())


# --- unresolved tables

UNRESOLVED = {
    "gc.enabled": ("false", "FALSE", "no", "", " true ", "1"),
    "write.location-provider.impl": ("com.example.Provider", ""),
    "write.data.path": ("", "/data/t", "file"),
    "write.metadata.path": ("", "/metadata/t"),
    "write.object-storage.path": ("", "/objects/t"),
    "write.folder-storage.path": ("", "/folders/t"),
}
RESOLVED = {"gc.enabled": ("true", "TRUE", "True"), "write.data.path": ("file:///data/t", "s3://lake/data")}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in UNRESOLVED.items() for value in values])
def test_properties_that_leave_open_what_a_table_owns(local_lake: Lake, key: str, value: str) -> None:
    """In its first look and in one that remembers; the others are not concerned."""
    lake = local_lake
    change(lake, lambda document: document["properties"].update({key: value}), "db.odd")
    lake.table("db.plain")
    cache = Memory()
    for _ in range(2):
        look = Evidence({"main": opened(lake)}, cache=cache).look()
        plain = look.owner("main.db.plain")
        assert plain is not None
        assert plain.unresolved is None
        why, text = told(look, "main.db.odd")
        assert key in str(why)
        assert text == f"{lake.warehouse}/db/odd"
    assert any(name.startswith("owner-3:") for name in cache.blobs)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in RESOLVED.items() for value in values])
def test_properties_that_leave_nothing_open(local_lake: Lake, key: str, value: str) -> None:
    change(local_lake, lambda document: document["properties"].update({key: value}), "db.odd")
    assert told(Evidence({"main": opened(local_lake)}).look(), "main.db.odd")[0] is None


@pytest.mark.parametrize(
    ("text", "is_unparsable"),
    [
        ("", False),
        ("  ", False),
        ("db/odd", False),
        ("s3:///db/odd", False),
        ("s3://", False),
        ("lake:db", False),
        ("file:///wh/../odd", True),
        ("s3://lake/o\0d", True),
    ],
)
def test_a_location_that_tells_nothing(local_lake: Lake, text: str, is_unparsable: bool) -> None:
    """The table cannot be read, with its own text in the reason; the others can."""
    lake = local_lake
    change(lake, lambda document: document.update(location=text), "db.odd")
    lake.table("db.plain")
    look = Evidence({"main": opened(lake)}).look()
    (odd,) = look.unread
    assert (odd.name, odd.location, odd.is_unparsable, odd.is_lost) == ("main.db.odd", text, is_unparsable, False)
    assert "its location" in odd.why
    assert Location.parse(f"{lake.warehouse}/db/odd") in odd.places, "it may own what lies around its metadata"
    assert look.owner("main.db.plain") is not None
    assert look.incomplete is None


def test_metadata_without_a_location(local_lake: Lake) -> None:
    change(local_lake, lambda document: document.pop("location"), "db.odd")
    (odd,) = Evidence({"main": opened(local_lake)}).look().unread
    assert (odd.location, odd.is_unparsable) == (None, False)
    assert "location" in odd.why


@pytest.mark.parametrize("root", ["{folder}/bare", "hdfs:///bare"])
def test_a_location_without_a_scheme_or_a_host(local_lake: Lake, root: str) -> None:
    """A path alone can be read here, and means another place to whoever reads it elsewhere."""
    lake = local_lake
    text = root.format(folder=lake.folder)
    change(lake, lambda document: document.update(location=text), "db.odd")
    owner = Evidence({"main": opened(lake)}).look().owner("main.db.odd")
    assert owner is not None
    assert (owner.location_text, owner.folders[0].text) == (text, text)
    assert "no scheme and bucket" in str(owner.unresolved)


def test_a_write_path_that_cannot_be_parsed_keeps_what_can(local_lake: Lake) -> None:
    lake = local_lake
    paths = {"write.data.path": "relative/data", "write.metadata.path": f"{lake.root}elsewhere/odd"}
    change(lake, lambda document: document["properties"].update(paths), "db.odd", location=f"{lake.root}apart/odd")
    (odd,) = Evidence({"main": opened(lake)}).look().unread
    assert "write.data.path" in odd.why
    assert (odd.location, odd.is_unparsable) == (f"{lake.root}apart/odd", False)
    assert {Location.parse(f"{lake.root}{name}") for name in ("apart/odd", "elsewhere/odd")} <= set(odd.places)


def test_a_delta_table_says_where_it_lies(local_lake: Lake) -> None:
    lake = local_lake
    log = LogWriter(Path(lake.folder, "made"))
    log.commit(*HEADER, add("part-0.parquet"))
    lake.put_tree(log.root, f"{lake.root}delta/d")
    tables = {name: Location.parse(f"{lake.root}delta/{name.partition('.')[2]}") for name in ("db.d", "db.nothing")}
    look = Evidence({}, [DeltaPlaces("g", Storage({}), tables=tables)]).look()
    assert [(owner.name, owner.location_text, owner.unresolved) for owner in look.owners] == [
        ("g.db.d", f"{lake.root}delta/d", None)
    ]
    assert [(table.name, table.location) for table in look.unread] == [("g.db.nothing", f"{lake.root}delta/nothing")]


def change(lake: Lake, edit: Callable[[dict[str, Any]], object], name: str, **options: Any) -> None:
    """A table whose metadata says something else than PyIceberg lets anybody write."""
    table = lake.table(name, **options)
    path = Path(Location.parse(table.metadata_location).local_path)
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    edit(document)
    path.write_text(json.dumps(document))


def told(look: Look, name: str) -> tuple[str | None, str | None]:
    """Why it is not known what the table owns, and the location that its metadata gives."""
    (found,) = [one for one in (*look.owners, *look.unread) if one.name == name]
    if isinstance(found, Owner):
        return found.unresolved, found.location_text
    assert isinstance(found, Unread)
    return found.why, found.location
