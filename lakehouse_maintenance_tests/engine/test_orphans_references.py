"""Known trap "Whose file is it?": every kind of reference, of every table that can be seen, keeps its file."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.typedef import Record

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance_tests.engine.foreign import put_file
from lakehouse_maintenance_tests.engine.stores import LIMITS, SCHEMA, Lake, client_of, pass_days
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse, expected, objects
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.services.faults import Answer, fault_proxy
from lakehouse_maintenance_tests.services.s3 import S3Server


def assert_only(lake: Lake, *orphans: str, **config: Any) -> None:
    """Of all that there is, these go, and nothing else."""
    there = lake.objects()
    result = lake.orphans(lake.open(**config))
    assert result.status is Status.DONE, result
    assert there - lake.objects() == set(orphans)


def assert_blocked(lake: Lake, said: str, **config: Any) -> None:
    there = lake.objects()
    result = lake.orphans(lake.open(**config))
    assert result.status is Status.BLOCKED, result
    assert said in result.reason
    assert lake.objects() == there


def orphan_of(lake: Lake, table: Table) -> str:
    return lake.put(f"{table.location()}/data/orphan.parquet")


def uncommitted(lake: Lake, table: Table, path: str) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=put_file(table, path, pa.table([[1]], SCHEMA)),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
    )


def test_files_of_old_snapshots_tags_branches_and_staged_snapshots(lake: Lake) -> None:
    table = lake.table(commits=2)
    with table.manage_snapshots() as manage:
        manage.create_tag(table.metadata.snapshots[0].snapshot_id, "first")
        manage.create_branch(table.metadata.snapshots[1].snapshot_id, "work")
    table.refresh()
    with table.transaction() as transaction, transaction.update_snapshot(branch="work").fast_append() as append:
        append.append_data_file(uncommitted(lake, table, f"{table.location()}/data/branch.parquet"))
    table.refresh()
    # As with write.wap.enabled: in the end the snapshot is there, and no ref leads to it.
    with table.transaction() as transaction, transaction.update_snapshot(branch="staged").fast_append() as append:
        append.append_data_file(uncommitted(lake, table, f"{table.location()}/data/staged.parquet"))
    table.refresh()
    with table.manage_snapshots() as manage:
        manage.remove_branch("staged")
    table.refresh()
    table.delete()
    table.refresh()
    assert not table.scan().to_arrow().num_rows
    assert len(table.metadata.snapshots) == 5
    assert_only(lake, orphan_of(lake, table))


def test_statistics_and_the_version_hint_and_the_metadata_log(lake: Lake) -> None:
    table = lake.table(commits=2)
    head = table.current_snapshot()
    assert head is not None
    puffin = lake.put(f"{table.location()}/metadata/stats.puffin")
    blob = BlobMetadata.model_validate(
        {"type": "apache-datasketches-theta-v1", "snapshot-id": head.snapshot_id, "sequence-number": 1, "fields": [1]}
    )
    file = StatisticsFile(
        snapshot_id=head.snapshot_id,
        statistics_path=puffin,
        file_size_in_bytes=8,
        file_footer_size_in_bytes=4,
        blob_metadata=[blob],
    )
    with table.update_statistics() as update:
        update.set_statistics(file)
    lake.put(f"{table.location()}/metadata/version-hint.text")
    strays = [lake.put(f"{table.location()}/metadata/{name}") for name in ("stray.puffin", "version-hint.txt")]
    raw = json.loads(lake.read(lake.writer.load_table("db.t").metadata_location))
    assert len(raw["metadata-log"]) == 3
    assert_only(lake, *strays)


def test_write_paths_are_listed_too(lake: Lake) -> None:
    data, metadata = f"{lake.root}data_of_t/", f"{lake.root}metadata_of_t"
    table = lake.table(properties={"write.data.path": data, "write.metadata.path": metadata})
    lake.add(table, f"{data}live.parquet")
    orphans = [lake.put(f"{folder}/orphan") for folder in (data.rstrip("/"), metadata, f"{table.location()}/data")]
    assert_only(lake, *orphans)


def test_a_write_path_that_is_the_location_with_another_ending(lake: Lake) -> None:
    location = f"{lake.warehouse}/db/t"
    table = lake.table(location=location, properties={"write.data.path": location + "/", "write.metadata.path": ""})
    assert_only(lake, orphan_of(lake, table))


def test_a_table_of_another_catalog_that_reaches_in(lake: Lake) -> None:
    table = lake.table()
    orphan = orphan_of(lake, table)
    side, properties = lake.another_catalog("side")
    side.create_namespace("x")
    needed = f"{table.location()}/data/needed.parquet"
    lake.add(side.create_table("x.u", SCHEMA, location=f"{lake.root}elsewhere/u"), needed)
    assert_only(lake, orphan, catalogs={"side": properties})
    # Nobody can know of a catalog that is not configured and lies elsewhere.
    assert_only(lake, needed)


def test_another_catalog_name_in_the_same_database(lake: Lake) -> None:
    table = lake.table()
    orphan = orphan_of(lake, table)
    other = SqlCatalog("other", **{key: value for key, value in lake.properties.items() if key != "type"})
    lake.opened.append(other)
    other.create_namespace("x")
    needed = f"{table.location()}/data/needed.parquet"
    lake.add(other.create_table("x.u", SCHEMA, location=f"{lake.root}elsewhere/u"), needed)
    assert_only(lake, orphan)
    lake.add(other.create_table("x.v", SCHEMA, location=table.location()), f"{table.location()}/data/1.parquet")
    assert_blocked(lake, "other.x.v")


@pytest.mark.parametrize("value", ["false", "False", "no", ""])
def test_gc_that_is_not_enabled_blocks(local_lake: Lake, value: str) -> None:
    orphan_of(local_lake, local_lake.table(properties={"gc.enabled": value}))
    assert_blocked(local_lake, "gc.enabled")


def test_what_a_table_without_gc_references_is_owned(lake: Lake) -> None:
    """As Spark's `snapshot` procedure makes them: another table's files, in place."""
    table = lake.table()
    orphan = orphan_of(lake, table)
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u", properties={"gc.enabled": "false"})
    lake.add(other, f"{table.location()}/data/needed.parquet")
    assert_only(lake, orphan)


def test_a_table_that_cannot_be_read(lake: Lake) -> None:
    """In the same database it blocks wherever it lies, elsewhere only where it could own something."""
    table = lake.table()
    orphan = orphan_of(lake, table)
    far = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    lake.put(far.metadata_location, b"{")
    assert_only(lake, orphan)
    near = lake.table("x.v", location=f"{lake.warehouse}/db/t/nested")
    lake.put(near.metadata_location, b"{")
    orphan_of(lake, table)
    assert_blocked(lake, "main.x.v")
    lake.writer.drop_table("x.v")
    for path in lake.objects():
        if "/nested/" in path:
            lake.remove(path)
    same = lake.table("db.w", location=f"{lake.root}elsewhere/w")
    lake.put(same.metadata_location, b"{")
    assert_blocked(lake, "main.db.w")


def test_a_table_elsewhere_that_cannot_be_found(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that does not say where its metadata lies: it could reach anything."""
    lake = local_lake
    orphan_of(lake, lake.table())
    lake.table("x.u", location=f"{lake.root}elsewhere/u")
    real = type(lake.open().catalogs["main"])
    locate = real.locate

    def refuse(self: Any, name: TableName) -> Any:
        if name.table == "u":
            raise TableUnreadableError(f"{name}: 403 Forbidden")
        return locate(self, name)

    monkeypatch.setattr(real, "locate", refuse)
    monkeypatch.setattr(real, "pointers", lambda self, namespace: {})
    assert_blocked(lake, "main.x.u")


def test_a_table_of_another_kind(local_lake: Lake) -> None:
    """Where a Hive table of the same database lies is not known; views own nothing."""
    lake = local_lake
    orphan = orphan_of(lake, lake.table())
    lake.table("x.u")
    with closing(sqlite3.connect(lake.folder / "main.db")) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET iceberg_type = 'HIVE' WHERE table_name = 'u'")
        assert_kind = "INSERT INTO iceberg_tables VALUES ('main', 'db', ?, NULL, NULL, ?)"
        connection.execute(assert_kind, ("v", "VIEW"))
    assert_only(lake, orphan)
    with closing(sqlite3.connect(lake.folder / "main.db")) as connection, connection:
        connection.execute(assert_kind, ("hive", "HIVE"))
    assert_blocked(lake, "main.db.hive")


@pytest.mark.parametrize("what", ["tables of one database", "databases", "tables of another catalog"])
def test_an_incomplete_listing(local_lake: Lake, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    lake = local_lake
    orphan_of(lake, lake.table())
    lake.table("x.u")
    side, properties = lake.another_catalog("side")
    side.create_namespace("y")
    ours = lake.open(catalogs={"side": properties})
    names = ours.tables(["main.db.t"])
    catalog = ours.catalogs["side" if what == "tables of another catalog" else "main"]

    def fail(*args: Any) -> Any:
        raise RuntimeError("the second page")

    if what == "databases":
        monkeypatch.setattr(catalog, "_children", fail)
    else:
        real = catalog._answered_rows if hasattr(catalog, "_answered_rows") else None
        assert real is not None
        monkeypatch.setattr(catalog, "_rows", lambda namespace, table=None: fail() if namespace != ("db",) else [])
    there = lake.objects()
    (result,) = ours.iter_orphans(names, delete=True)
    assert result.status in (Status.BLOCKED, Status.FAILED), result
    assert lake.objects() == there


def test_a_listing_whose_second_page_fails(
    rest_catalog: AnyCatalog, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over REST: nothing is concluded from the first page."""
    pass_days(monkeypatch)
    writer = rest_catalog.writer
    for name in ("db.t", "zz.a", "zz.b", "zz.c"):
        writer.create_namespace_if_not_exists(name.partition(".")[0])
        writer.create_table(name, SCHEMA)
    table = writer.load_table("db.t")
    place = Location.parse(f"{table.location()}/data/orphan.parquet")
    client_of(s3).put_object(Bucket=place.authority, Key=place.key, Body=b"nobody's")
    with fault_proxy(rest_catalog.properties["uri"]) as proxy:
        properties = rest_catalog.behind(proxy.endpoint) | {"rest-page-size": "2"}
        ours = lakehouse(tmp_path, properties, limits=LIMITS)
        names = ours.tables(["main.db.t"])
        proxy.rule = lambda request: (
            Answer(500, b"{}") if "/zz/tables" in request.target and "pageToken=" in request.target else None
        )
        (result,) = ours.iter_orphans(names, delete=True)
        assert result.status is Status.BLOCKED, result
        assert "not known" in result.reason
        proxy.rule = lambda request: None
        (result,) = ours.iter_orphans(names)
        assert [file.path for file in result.files] == [place.text], result


def test_nothing_that_spark_wrote_is_an_orphan(
    golden: GoldenLakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletion vectors, statistics, partition statistics, staged and rolled back snapshots, branches, gzipped metadata,
    object storage layout, names with spaces: the golden tables, as they were written."""
    pass_days(monkeypatch)
    ours = lakehouse(tmp_path, {}, catalogs={"golden": golden.properties}, limits=LIMITS)
    results = list(ours.iter_orphans(ours.tables(["golden.*.*", "golden.*.*.*"])))
    assert [(result.table, result.reason) for result in results if result.status is not Status.DONE] == []
    assert {result.table.replace("`", "") for result in results} == {f"golden.{name}" for name in expected()}
    # Tests before this one may have left something beside.
    written = {f"s3://golden/{key}" for key in objects()}
    assert {file.path for result in results for file in result.files} & written == set()
