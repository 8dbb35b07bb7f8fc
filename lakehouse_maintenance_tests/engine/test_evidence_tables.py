"""Owners that are easily missed: two tables of one name, tables that could be read once, tables that nobody shows."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.delta_logs import HEADER, LogWriter, add
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake


def orphan_in_t(lake: Lake) -> str:
    return lake.put(f"{lake.table().location()}/data/orphan.parquet")


def test_a_catalog_of_the_same_name_in_another_database(local_lake: Lake) -> None:
    """Every SQL database may have its `main`: two tables of one name are two owners, in the recheck too."""
    lake = local_lake
    orphan = orphan_in_t(lake)
    _, side = lake.another_catalog("side")
    twin = SqlCatalog("main", uri=side["uri"], warehouse=side["warehouse"])
    lake.opened.append(twin)
    twin.create_namespace("db")
    table = twin.create_table("db.t", SCHEMA, location=f"{lake.root}elsewhere/t")
    needed = lake.add(table, f"{lake.warehouse}/db/t/data/needed.parquet")
    ours = lake.open(catalogs={"side": side})
    there = lake.objects()
    result = lake.orphans(ours)
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result
    told = ours.explain(needed).ownership
    assert [one.table for one in told.by] == ["main.db.t in the database of catalog side"], told
    lake.put(orphan)
    twin.create_table("db.u", SCHEMA, location=f"{lake.warehouse}/db/t/nested")
    result = lake.orphans(ours)
    assert (result.status, "main.db.u" in result.reason) == (Status.BLOCKED, True), result


def test_two_configured_catalogs_in_one_database(local_lake: Lake) -> None:
    """Each shows the other's tables as well: they are one table, and share their place with nobody."""
    lake = local_lake
    orphan = orphan_in_t(lake)
    second = SqlCatalog("second", uri=lake.properties["uri"], warehouse=lake.properties["warehouse"])
    lake.opened.append(second)
    second.create_namespace("x")
    table = second.create_table("x.u", SCHEMA, location=f"{lake.root}elsewhere/u")
    other = lake.put(f"{table.location()}/data/orphan.parquet")
    ours = lake.open(catalogs={"second": {**lake.properties}})
    there = lake.objects()
    results = [lake.orphans(ours, table=name) for name in ("main.db.t", "second.x.u")]
    assert [one.status for one in results] == [Status.DONE, Status.DONE], results
    assert there - lake.objects() == {orphan, other}


def test_a_table_that_could_be_read_once(local_lake: Lake) -> None:
    """What it needs now is not known; where its files lay then is, another table's folder included."""
    lake = local_lake
    orphan = orphan_in_t(lake)
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    needed = lake.add(other, f"{lake.warehouse}/db/t/data/needed.parquet")
    ours = lake.open()
    assert lake.orphans(ours, delete=False).orphan_files == 1
    lake.add(other, f"{other.location()}/data/1.parquet")
    lake.put(other.metadata_location, b"{")
    result = lake.orphans(lake.open())
    assert (result.status, "main.x.u" in result.reason) == (Status.BLOCKED, True), result
    assert {orphan, needed} <= lake.objects()


def test_a_table_whose_manifest_cannot_be_read(local_lake: Lake) -> None:
    """Its metadata tells where it lies: not around the metadata file, but in t's folder."""
    lake = local_lake
    orphan_in_t(lake)
    paths = {"write.data.path": f"{lake.warehouse}/db/t/data/of-u"}
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u", properties=paths)
    needed = lake.add(other, f"{paths['write.data.path']}/0.parquet")
    head = other.current_snapshot()
    assert head is not None
    lake.put(head.manifests(other.io)[0].manifest_path, b"Obj\x01")
    result = lake.orphans()
    assert (result.status, "main.x.u" in result.reason) == (Status.BLOCKED, True), result
    assert needed in lake.objects()


def test_explain_knows_what_orphan_removal_knows(local_lake: Lake) -> None:
    """The same signs of tables that nobody shows, wherever in the table's folder they lie."""
    lake = local_lake
    orphan = orphan_in_t(lake)
    folder = f"{lake.warehouse}/db/t/data"
    assert lake.open().explain(orphan).ownership.owned is False
    forgotten = lake.table("db.forgotten", location=f"{folder}/nested")
    lake.add(forgotten, f"{folder}/part/needed.parquet")
    lake.writer.drop_table("db.forgotten")
    log = LogWriter(Path(lake.folder, "made"))
    log.commit(*HEADER, add("part-0.parquet"))
    lake.put_tree(log.root, f"{folder}/delta")
    ours = lake.open()
    for path in (f"{folder}/part/needed.parquet", f"{folder}/nested/data/x.parquet", f"{folder}/delta/x.parquet"):
        lake.put(path)
        told = ours.explain(path).ownership
        assert told.owned is None, told
        assert "catalog" in told.why or "not listed" in told.why
    assert ours.explain(orphan).ownership.owned is False
    there = lake.objects()
    assert lake.orphans(ours).status is Status.DONE
    assert there - lake.objects() == {orphan}


def test_explain_names_a_listed_delta_table_once(local_lake: Lake) -> None:
    lake = local_lake
    orphan_in_t(lake)
    log = LogWriter(Path(lake.folder, "made"))
    log.commit(*HEADER, add("part-0.parquet"))
    root = f"{lake.root}delta/d"
    lake.put_tree(log.root, root)
    lake.put(f"{root}/part-0.parquet")
    ours = lake.open(delta={"lake": {"tables": {"d": root}}})
    assert [one.table for one in ours.explain(f"{root}/part-0.parquet").ownership.by] == ["lake.d"]
    assert ours.explain(f"{root}/part-1.parquet").ownership.owned is False
