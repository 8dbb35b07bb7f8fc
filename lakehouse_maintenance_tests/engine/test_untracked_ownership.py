"""Nothing that a table, or a view, needs is ever a candidate: each way to own a folder, with deletion switched on.

Every run here also deletes a dropped table's folder beside what is owned, so none of them passes by doing nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from lakehouse_maintenance.model.folders import FolderRun
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance_tests.delta_logs import HEADER, add, lines
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake, reference
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.engine.untracked import Untracked, folder, only, verdicts
from lakehouse_maintenance_tests.golden.fixture import GoldenLakehouse, golden
from lakehouse_maintenance_tests.readers import read_pyiceberg
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog

__all__ = ["golden"]

ROWS = pa.table([[1]], SCHEMA)


@pytest.fixture
def untracked(lake: Lake) -> Untracked:
    lake.table("db.live", commits=2)
    return Untracked(lake)


@pytest.fixture
def local(local_lake: Lake) -> Untracked:
    local_lake.table("db.live", commits=2)
    return Untracked(local_lake)


def assert_only_the_dropped_one_goes(untracked: Untracked, *also: str, **config: Any) -> dict[str, str]:
    """A folder that is nobody's, and `also` others, are deleted, and nothing else; returns the verdicts."""
    expected = {untracked.dropped("nobodys"), *also}
    before = untracked.lake.objects()
    goes = {path for gone in expected for path in untracked.there(gone)}
    ours = untracked.lake.open(**config)
    found = only(untracked.run(ours, max_candidate_folders_per_database=20))
    assert set(found.row.candidate_folders) == expected, found.row
    deleted = only(untracked.delete(ours, max_candidate_folders_per_database=20))
    assert set(deleted.row.deleted_folders) == expected, deleted.row
    audit = f"{untracked.lake.warehouse}/iomete_system_db/"
    assert {path for path in before - untracked.lake.objects() if not path.startswith(audit)} == goes
    return verdicts(found)


def move(table: Table, location: str) -> None:
    """As `ALTER TABLE … SET LOCATION`: what was written stays where it is."""
    table.catalog.commit_table(table, (), (SetLocationUpdate(location=location),))
    table.refresh()


# --- the table's own folder, whatever its name


@pytest.mark.requirement("UF-13")
def test_dropped_and_made_again_at_the_same_place(untracked: Untracked) -> None:
    """The folder holds the leavings of the first and all of the second."""
    first = untracked.dropped("t")
    table = untracked.lake.table("db.t")
    assert table.location() == first
    found = assert_only_the_dropped_one_goes(untracked)
    assert found["t"] == "table"
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.t"))) == 1


@pytest.mark.requirement("UF-13")
def test_dropped_and_made_again_at_another_place(untracked: Untracked) -> None:
    """What bears the table's name is nobody's; the table lies where its metadata says."""
    old = untracked.dropped("t")
    untracked.lake.table("db.t", location=f"{untracked.root}/t_1f0c")
    found = assert_only_the_dropped_one_goes(untracked, old)
    assert (found["t"], found["t_1f0c"]) == ("candidate", "table")
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.t"))) == 1


@pytest.mark.requirement("UF-13")
def test_a_renamed_table(untracked: Untracked) -> None:
    """Trap: the folder's name taken for ownership. It still has the old one."""
    untracked.lake.table("db.before")
    untracked.lake.writer.rename_table("db.before", "db.after")
    assert assert_only_the_dropped_one_goes(untracked)["before"] == "table"
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.after"))) == 1


@pytest.mark.requirement("UF-13")
@pytest.mark.parametrize("dropped", ["t", "t_2", "t-backup", "t.old"])
def test_names_that_begin_with_another(untracked: Untracked, dropped: str) -> None:
    names = {"t", "t_2", "t-backup", "t.old"}
    tables = {
        name: untracked.lake.table(f"db.n{number}", location=f"{untracked.root}/{name}")
        for number, name in enumerate(sorted(names))
    }
    untracked.lake.writer.drop_table(tables[dropped].name())
    found = assert_only_the_dropped_one_goes(untracked, f"{untracked.root}/{dropped}")
    assert {found[name] for name in names - {dropped}} == {"table"}


@pytest.mark.requirement("UF-13")
@pytest.mark.parametrize("where", ["inner", "data/deep/inner"])
def test_a_table_inside_a_folder(untracked: Untracked, where: str) -> None:
    """The dropped table around it stays too: its folder is one thing."""
    around = untracked.dropped("around")
    untracked.lake.table("db.inner", location=f"{around}/{where}")
    assert assert_only_the_dropped_one_goes(untracked)["around"] == "table"


def test_a_folder_inside_a_table(local: Untracked) -> None:
    """A table that lies at the database's own location: then everything in it is the table's."""
    table = local.lake.table("db.whole", location=local.root)
    stray = local.lake.put(f"{table.location()}/stray/x")
    result = only(local.delete())
    assert result.row.candidate_folders == (), result.row
    assert stray in local.lake.objects()


# --- write paths


@pytest.mark.requirement("UF-13")
@pytest.mark.parametrize(
    "name", ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"]
)
@pytest.mark.parametrize("below", ["", "/deep/er"])
def test_a_write_path(untracked: Untracked, name: str, below: str) -> None:
    """Protected though nothing that the table names lies there: a writer may be about to write."""
    place = f"{untracked.root}/written"
    untracked.lake.put(f"{place}{below}/x.parquet")
    table = untracked.lake.table("db.t")
    with table.transaction() as transaction:
        transaction.set_properties({name: place + below})
    found = assert_only_the_dropped_one_goes(untracked)
    assert found["written"] == "write_path"


# --- files that metadata names elsewhere


@pytest.mark.requirement("UF-41")
def test_a_table_that_moved(untracked: Untracked) -> None:
    """Its first files, and the metadata that named them, lie where it was."""
    table = untracked.lake.table("db.t", location=f"{untracked.root}/first")
    move(table, f"{untracked.root}/second")
    untracked.lake.add(table, f"{untracked.root}/second/data/late.parquet")
    found = assert_only_the_dropped_one_goes(untracked)
    assert (found["first"], found["second"]) == ("referenced", "table")
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.t"))) == 2


@pytest.mark.requirement("UF-41")
@pytest.mark.parametrize("ref", ["tag", "branch", "no ref"])
def test_an_old_snapshot_alone_reaches_a_folder(untracked: Untracked, ref: str) -> None:
    """Main was emptied since: nothing but one old snapshot needs what lies in the imported folder."""
    table = untracked.lake.table("db.t")
    imported = untracked.lake.add(table, f"{untracked.root}/imported/1.parquet")
    head = table.current_snapshot()
    assert head is not None
    if ref != "no ref":
        with table.manage_snapshots() as manage:
            (manage.create_tag if ref == "tag" else manage.create_branch)(head.snapshot_id, "kept")
    table.refresh()
    table.delete()
    table.refresh()
    assert not table.scan().to_arrow().num_rows
    assert assert_only_the_dropped_one_goes(untracked)["imported"] == "referenced"
    assert imported in {task.file.file_path for task in table.scan(snapshot_id=head.snapshot_id).plan_files()}
    assert len(table.scan(snapshot_id=head.snapshot_id).to_arrow()) == 2


@pytest.mark.requirement("UF-41")
@pytest.mark.parametrize("place", ["in the database", "in the folder of a dropped table"])
def test_added_files(untracked: Untracked, place: str) -> None:
    """As `add_files` leaves it: the files stay where another writer put them."""
    home = untracked.dropped("import") if place != "in the database" else f"{untracked.root}/import"
    table = untracked.lake.table("db.t")
    untracked.lake.add(table, f"{home}/data/p=1/added.parquet")
    assert assert_only_the_dropped_one_goes(untracked)["import"] == "referenced"
    assert len(read_pyiceberg(untracked.lake.writer.load_table("db.t"))) == 2


@pytest.mark.requirement("UF-41")
def test_files_added_to_a_table_of_another_database(untracked: Untracked) -> None:
    far = untracked.lake.table("far.t", location=f"{untracked.lake.root}far/t")
    untracked.lake.add(far, f"{untracked.root}/import/added.parquet")
    result = folder_after(untracked, "import")
    assert (result.verdict, "main.far.t" in result.why) == ("referenced", True)


def folder_after(untracked: Untracked, name: str, **config: Any) -> Any:
    """The folder's end in a run that deletes nothing but what is nobody's."""
    assert_only_the_dropped_one_goes(untracked, **config)
    return folder(only(untracked.run(untracked.lake.open(**config))), name)


# --- tables of others


@pytest.mark.requirement("UF-40")
def test_a_table_of_another_database_at_a_place_in_the_root(untracked: Untracked) -> None:
    untracked.lake.table("other.t", location=f"{untracked.root}/strange/t")
    found = folder_after(untracked, "strange")
    assert (found.verdict, "main.other.t" in found.why) == ("table", True)


@pytest.mark.requirement("UF-40")
def test_a_table_of_another_catalog(untracked: Untracked) -> None:
    side, properties = untracked.lake.another_catalog("side")
    side.create_namespace("x")
    untracked.lake.add(
        side.create_table("x.t", SCHEMA, location=f"{untracked.root}/strange"),
        f"{untracked.root}/strange/data/1.parquet",
    )
    found = folder_after(untracked, "strange", catalogs={"side": properties})
    assert (found.verdict, "side.x.t" in found.why) == ("table", True)


@pytest.mark.requirement("UF-40")
def test_a_table_under_another_catalog_name_in_the_same_database(untracked: Untracked) -> None:
    """Spark's and PyIceberg's SQL catalogs keep tables of many catalogs in one place; this one nobody configured."""
    other = SqlCatalog("other", **{key: text for key, text in untracked.lake.properties.items() if key != "type"})
    untracked.lake.opened.append(other)
    other.create_namespace("x")
    other.create_table("x.t", SCHEMA, location=f"{untracked.root}/strange")
    found = folder_after(untracked, "strange")
    assert (found.verdict, "other.x.t" in found.why) == ("table", True)


@pytest.mark.requirement("UF-40")
@pytest.mark.parametrize("below", ["", "/deep/inside"])
def test_a_listed_delta_table(untracked: Untracked, below: str) -> None:
    place = f"{untracked.root}/delta{below}"
    untracked.lake.put(f"{place}/_delta_log/{0:020}.json", lines(*HEADER, add("p=x/a.parquet")).encode())
    untracked.lake.put(f"{place}/p=x/a.parquet")
    delta = {"lake": {"tables": {"t": place}, "storage_options": untracked.lake.delta_options}}
    found = folder_after(untracked, "delta", delta=delta)
    assert (found.verdict, "lake.t" in found.why) == ("table", True)


@pytest.mark.requirement("UF-41")
def test_absolute_paths_in_a_delta_log(untracked: Untracked) -> None:
    """As a shallow clone has them: the log lies elsewhere, and its files are encoded once."""
    needed = untracked.lake.put(f"{untracked.root}/origin of it/p=1/a.parquet")
    encoded = needed.replace(" ", "%20")
    root = f"{untracked.lake.root}clones/c"
    untracked.lake.put(f"{root}/_delta_log/{0:020}.json", lines(*HEADER, add(encoded)).encode())
    delta = {"lake": {"tables": {"c": root}, "storage_options": untracked.lake.delta_options}}
    found = folder_after(untracked, "origin of it", delta=delta)
    assert (found.verdict, "lake.c" in found.why) == ("referenced", True)


def test_a_delta_table_that_nobody_lists_is_nobodys(local: Untracked) -> None:
    """It is told as what it is, so that its reviewer can list it."""
    place = f"{local.root}/delta"
    local.lake.put(f"{place}/_delta_log/{0:020}.json", lines(*HEADER, add("p=x/a.parquet")).encode())
    found = folder(only(local.run()), "delta")
    assert found.verdict == "candidate"
    assert found.content is not None
    assert [sign.format for sign in found.content.signs] == ["delta"]


# --- the same place, written otherwise


@pytest.mark.requirement("UF-27")
@pytest.mark.parametrize("scheme", ["s3a", "s3n"])
def test_other_spellings_of_the_same_place(lake: Lake, scheme: str) -> None:
    """Written by engines that use Hadoop's file systems."""
    untracked = Untracked(lake)
    if lake.is_local:
        spelled: Callable[[str], str] = lambda text: text.replace("file://", "file:")  # noqa: E731
    else:
        spelled = lambda text: text.replace("s3://", f"{scheme}://")  # noqa: E731
    lake.table("db.live", location=spelled(f"{untracked.root}/live"))
    table = lake.table("db.t")
    lake.put(f"{untracked.root}/import/a.parquet")
    reference(table, spelled(f"{untracked.root}/import/a.parquet"))
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": spelled(f"{untracked.root}/written")})
    lake.put(f"{untracked.root}/written/x")
    found = assert_only_the_dropped_one_goes(untracked)
    assert [found[name] for name in ("live", "import", "written")] == ["table", "referenced", "write_path"]


@pytest.mark.parametrize(
    ("named", "lies"),
    [
        ("a%20b", "a b"),
        ("a b", "a%20b"),
        ("a%20b", "a%20b"),
        ("a%2520b", "a%20b"),
        ("a%20b", "a%2520b"),
        ("ü=1+2", "ü=1+2"),
    ],
)
def test_percent_codes(untracked: Untracked, named: str, lies: str) -> None:
    """Some writers encode what others do not: a folder stays where either form is named."""
    table = untracked.lake.table("db.t")
    untracked.lake.put(f"{untracked.root}/{lies}/x.parquet")
    reference(table, f"{untracked.root}/{named}/x.parquet")
    found = assert_only_the_dropped_one_goes(untracked)
    assert {text for name, text in found.items() if unquote(unquote(name)) in ("a b", "ü=1+2")} == {"referenced"}


@pytest.mark.parametrize(
    "named", ["wh/db//t/1.parquet", "wh//db/t/1.parquet", "wh/db/t//1.parquet", "wh/db/t/1.parquet"]
)
@pytest.mark.parametrize("lies", ["wh/db/t/1.parquet", "wh/db/t//1.parquet"])
def test_doubled_slashes(exact_lake: Lake, named: str, lies: str) -> None:
    """In an object store they are other keys; clients disagree, so either stays."""
    table = exact_lake.table("db.live")
    reference(table, exact_lake.root + named)
    exact_lake.put(exact_lake.root + lies)
    found = assert_only_the_dropped_one_goes(Untracked(exact_lake))
    assert found["t"] == "referenced"


# --- symbolic links


def alias(untracked: Untracked) -> Path:
    """Another name of the warehouse."""
    at = Path(Location.parse(untracked.lake.root).local_path) / "alias"
    at.symlink_to(Location.parse(untracked.lake.warehouse).local_path)
    return at


def test_a_table_that_is_reached_through_a_link(local: Untracked) -> None:
    at = alias(local)
    local.lake.table("db.t", location=f"file://{at}/db/t")
    table = local.lake.table("db.u", location=f"{local.lake.root}elsewhere/u")
    local.lake.put(f"{local.root}/import/a.parquet")
    reference(table, f"file://{at}/db/import/a.parquet")
    found = assert_only_the_dropped_one_goes(local)
    assert (found["t"], found["import"]) == ("table", "referenced")


@pytest.mark.parametrize("linked", ["a file", "a folder"])
def test_a_link_in_a_table_that_leads_to_a_folder(local: Untracked, linked: str) -> None:
    """By its text the file lies in the table; where it is read, it lies in a folder that bears nobody's name."""
    table = local.lake.table("db.t")
    local.lake.put(f"{local.root}/moved/a.parquet")
    moved = Path(Location.parse(f"{local.root}/moved").local_path)
    data = Path(Location.parse(f"{table.location()}/data").local_path)
    if linked == "a file":
        (data / "a.parquet").symlink_to(moved / "a.parquet")
        reference(table, f"{table.location()}/data/a.parquet")
    else:
        (data / "p").symlink_to(moved)
        reference(table, f"{table.location()}/data/p/a.parquet")
    assert assert_only_the_dropped_one_goes(local)["moved"] == "referenced"


@pytest.mark.parametrize("linked", ["a file", "a folder"])
def test_a_link_in_a_candidate_is_not_followed(local: Untracked, linked: str) -> None:
    """What it leads to is a live table's."""
    gone = local.dropped("gone")
    live = Path(Location.parse(local.lake.writer.load_table("db.live").location()).local_path)
    into = Path(Location.parse(f"{gone}/data/link").local_path)
    into.symlink_to(live / "data/0.parquet" if linked == "a file" else live)
    before = local.there(f"file://{live}")
    only(local.delete())
    assert local.there(f"file://{live}") == before
    assert len(read_pyiceberg(local.lake.writer.load_table("db.live"))) == 2


def test_a_link_to_a_folder_is_no_folder(local: Untracked) -> None:
    """A link in the database that leads to a table elsewhere."""
    elsewhere = Path(Location.parse(f"{local.lake.root}elsewhere").local_path)
    elsewhere.mkdir()
    (elsewhere / "x.parquet").write_bytes(b"somebody's")
    Path(Location.parse(f"{local.root}/link").local_path).symlink_to(elsewhere)
    assert "link" not in assert_only_the_dropped_one_goes(local)
    assert (elsewhere / "x.parquet").read_bytes() == b"somebody's"


# --- written by Spark


@pytest.mark.requirement("UF-13")
def test_tables_and_a_view_that_spark_wrote(golden: GoldenLakehouse, tmp_path: Path) -> None:
    """A view is not counted as a table, and its folder holds all that there is of it."""
    ours = lakehouse(tmp_path, {}, catalogs={"golden": golden.properties})
    job = tmp_path / "application.json"
    for database in ("db", "sales"):
        job.write_text(json.dumps({"catalog": "golden", "databases": [database], "older_than_hours": 0}))
        result = only(ours.untracked_folders(job))
        assert result.row.status == "SUCCESS", result.row
        assert result.row.candidate_folders == (), result.row
        assert set(verdicts(result).values()) <= {"table", "referenced", "other_database"}
        if database == "db":
            assert result.row.active_table_count == 11
            assert "golden.db.recent_events" in folder(result, "recent_events").why


# --- catalogs that are served


@pytest.mark.requirement("UF-13", "UF-41")
@pytest.mark.parametrize(
    "served_catalog",
    ["postgres", pytest.param("iceberg-rest", marks=pytest.mark.needs_iceberg_rest)],
    indirect=True,
)
def test_on_catalogs_that_are_served(served_catalog: AnyCatalog, tmp_path: Path) -> None:
    """Renamed, made again elsewhere, with files of a foreign folder, and a view: in PostgreSQL and in services."""
    writer = served_catalog.writer
    writer.create_namespace("db")
    probe = writer.create_table("db.probe", SCHEMA)
    root = str(probe.location()).rpartition("/")[0]
    writer.drop_table("db.probe")
    properties = dict(served_catalog.properties)
    if served_catalog.is_rest:
        properties["lakehouse-maintenance.warehouse"] = root.rpartition("/")[0]
    live, before, again = (writer.create_table(f"db.{name}", SCHEMA) for name in ("live", "before", "again"))
    for table in (live, before, again):
        table.append(ROWS)
    writer.rename_table("db.before", "db.after")
    first = str(again.location())
    (file,) = (task.file.file_path for task in again.scan().plan_files())
    writer.drop_table("db.again")
    again = writer.create_table("db.again", SCHEMA, location=f"{root}/another")
    again.append(ROWS)
    reference(writer.load_table("db.live"), file)
    result = only(made_by(tmp_path, properties))
    assert result.row.status == "SUCCESS", result.row
    found = {path.path: str(path.verdict) for path in result.folders}
    expected = {str(live.location()): "table", str(before.location()): "table", f"{root}/another": "table"}
    expected[first] = "referenced"
    assert {path: found.get(path) for path in expected} == expected
    assert [path for path, verdict in found.items() if verdict == "candidate"] == list(result.row.deleted_folders)
    assert len(result.row.deleted_folders) >= 1
    for name, files in (("live", 2), ("after", 1), ("again", 1)):
        table = writer.load_table(f"db.{name}")
        paths = [task.file.file_path for task in table.scan().plan_files()]
        assert len(paths) == files
        assert all(table.io.new_input(path).exists() for path in paths)


def made_by(folder: Path, properties: dict[str, str]) -> FolderRun:
    return lakehouse(folder, properties).untracked_folders(job_of(folder))


def job_of(folder: Path) -> Path:
    job = folder / "application.json"
    fields = {"catalog": "main", "databases": ["db"], "older_than_hours": 0, "dry_run": False, "delete_enabled": True}
    job.write_text(json.dumps(fields))
    return job


@pytest.mark.needs_iceberg_rest
@pytest.mark.parametrize("rest_catalog", ["iceberg-rest"], indirect=True)
def test_a_view_of_a_service(rest_catalog: AnyCatalog, tmp_path: Path) -> None:
    """It is its metadata, which lies in a folder of its own; one that cannot be read may lie in any."""
    writer = rest_catalog.writer
    writer.create_namespace("db")
    live = writer.create_table("db.live", SCHEMA)
    root = str(live.location()).rpartition("/")[0]
    gone = writer.create_table("db.gone", SCHEMA)
    writer.drop_table("db.gone")
    sql = SQLViewRepresentation(type="sql", sql="SELECT * FROM db.live", dialect="spark")
    version = ViewVersion(
        version_id=1, schema_id=1, representations=[ViewRepresentation(root=sql)], default_namespace=("db",)
    )
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    writer.create_view("db.v", schema, version)
    properties = {**rest_catalog.properties, "lakehouse-maintenance.warehouse": root.rpartition("/")[0]}
    ours = lakehouse(tmp_path, properties)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours.catalogs["main"].pyiceberg, "load_view", refuse)
        blocked = only(ours.untracked_folders(job_of(tmp_path)))
        assert (blocked.row.status, blocked.row.deleted_folders) == ("BLOCKED", ()), blocked.row
        assert "db.v" in str(blocked.row.error_message)
    result = only(ours.untracked_folders(job_of(tmp_path)))
    assert result.row.deleted_folders == (str(gone.location()),), result.row
    assert verdicts(result)["v"] == "referenced"
    assert writer.load_view("db.v").sql_for("spark")


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise OSError("not now")
