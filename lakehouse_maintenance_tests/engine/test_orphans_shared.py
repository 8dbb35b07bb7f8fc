"""Known trap "Whose file is it?": two tables in one place, known by the catalog, on local files and on S3 (IM-09)."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake
from lakehouse_maintenance_tests.engine.tables import ids


def assert_refused(lake: Lake, *names: str, **config: Any) -> None:
    """Orphan removal on each of the two tables names both and touches nothing."""
    there = lake.objects()
    for name in names:
        result = lake.orphans(lake.open(**config), table=name)
        assert result.status is Status.BLOCKED, result
        assert all(one in result.reason for one in names), result.reason
        assert "shared_locations" in result.reason
        assert (result.deleted_files, result.digest) == (0, None)
    assert lake.objects() == there


def orphan_in(lake: Lake, table: Table) -> str:
    return lake.put(f"{table.location()}/data/orphan.parquet")


@pytest.mark.requirement("IM-09")
def test_a_copied_location(lake: Lake) -> None:
    """SHOW CREATE TABLE, pasted with its LOCATION."""
    table = lake.table()
    orphan_in(lake, table)
    lake.table("db.u", location=table.location() + "/")
    assert_refused(lake, "main.db.t", "main.db.u")


def test_renamed_and_made_again_under_the_old_name(lake: Lake) -> None:
    table = lake.table()
    orphan_in(lake, table)
    lake.writer.rename_table("db.t", "db.old")
    again = lake.table()
    assert again.location() == table.location()
    assert_refused(lake, "main.db.t", "main.db.old")


def test_swapped_by_renaming(lake: Lake) -> None:
    """As dbt does it: the model is built beside and renamed, so the live table's folder is the next build's."""
    for _ in range(2):
        lake.table("db.t__tmp")
        if lake.writer.table_exists("db.t"):
            lake.writer.rename_table("db.t", "db.t__backup")
        lake.writer.rename_table("db.t__tmp", "db.t")
    live = lake.writer.load_table("db.t")
    assert live.location().endswith("t__tmp")
    orphan_in(lake, live)
    assert_refused(lake, "main.db.t", "main.db.t__backup")
    # The backup's files stay where they are after it is dropped, and so does its metadata: the place is not clean.
    lake.writer.drop_table("db.t__backup")
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.BLOCKED
    assert "no catalog shows" in result.reason
    assert lake.objects() == there


@pytest.mark.requirement("IM-09")
@pytest.mark.parametrize("place", ["nested", "data/nested"])
def test_one_in_the_folder_of_another(lake: Lake, place: str) -> None:
    table = lake.table()
    lake.table("db.u", location=f"{table.location()}/{place}")
    orphan_in(lake, table)
    lake.put(f"{table.location()}/nested/orphan.parquet")
    assert_refused(lake, "main.db.t", "main.db.u")


def test_a_write_path_in_the_folder_of_another(lake: Lake) -> None:
    table = lake.table()
    lake.table("db.u", properties={"write.data.path": f"{table.location()}/data/of_u"})
    orphan_in(lake, table)
    assert_refused(lake, "main.db.t", "main.db.u")


def test_in_another_database_and_in_another_catalog(lake: Lake) -> None:
    table = lake.table()
    orphan_in(lake, table)
    side, properties = lake.another_catalog("side")
    side.create_namespace("x")
    side.create_table("x.u", SCHEMA, location=table.location())
    assert_refused(lake, "main.db.t", "side.x.u", catalogs={"side": properties})


def test_names_that_begin_alike_share_nothing(lake: Lake) -> None:
    table, other = lake.table(), lake.table("db.t_2")
    orphan = orphan_in(lake, table)
    for place in ("t_2/data", "t-backup", "t.bak", "tt"):
        lake.put(f"{lake.warehouse}/db/{place}/stays.parquet")
    assert other.location() == table.location() + "_2"
    there = lake.objects()
    result = lake.orphans()
    assert (result.status, result.deleted_files) == (Status.DONE, 1), result
    assert there - lake.objects() == {orphan}


def test_a_table_in_a_folder_of_another_name(lake: Lake) -> None:
    """The live table is named otherwise than its folder; a new table has the folder's name, and lies elsewhere."""
    table = lake.table(commits=2)
    orphan = orphan_in(lake, table)
    lake.writer.rename_table("db.t", "db.live")
    new = lake.table(location=f"{lake.warehouse}/db/somewhere")
    there = lake.objects()
    assert lake.orphans().orphan_files == 0
    assert lake.objects() == there
    result = lake.orphans(table="main.db.live")
    assert (result.status, result.deleted_files) == (Status.DONE, 1)
    assert there - lake.objects() == {orphan}
    assert len(ids(lake.writer, "db.live")) == 2
    assert new.location() != table.location()


@pytest.mark.requirement("IM-09")
def test_told_whose_files_are_whose(lake: Lake) -> None:
    """Only what was said to be a table's own is its to delete; what the other references stays even there."""
    table = lake.table()
    other = lake.table("db.u", location=table.location())
    mine, theirs = f"{table.location()}/data/of_t", f"{table.location()}/data/of_u"
    orphans = [lake.put(f"{folder}/orphan.parquet") for folder in (mine, theirs, f"{table.location()}/data")]
    lake.add(other, f"{mine}/live_of_u.parquet")
    files = {"main.db.t": [mine], "main.db.u": [theirs]}
    told = {"shared_locations": [{"tables": ["main.db.t", "main.db.u"], "files": files}]}
    there = lake.objects()
    result = lake.orphans(lake.open(**told))
    assert (result.status, result.deleted_files) == (Status.DONE, 1), result
    assert there - lake.objects() == {orphans[0]}
    assert any("main.db.u" in kept.reason for kept in result.kept), result.kept
    result = lake.orphans(lake.open(**told), table="main.db.u")
    assert there - lake.objects() == set(orphans[:2])
    assert len(ids(lake.writer, "db.u")) == 2


@pytest.mark.parametrize("files", [{}, {"main.db.u": "theirs"}], ids=["none", "only the other's"])
def test_told_too_little(lake: Lake, files: dict[str, str]) -> None:
    table = lake.table()
    lake.table("db.u", location=table.location())
    orphan_in(lake, table)
    told = {name: [f"{table.location()}/{folder}"] for name, folder in files.items()}
    pair = [{"tables": ["main.db.t", "main.db.u"], "files": told}]
    there = lake.objects()
    result = lake.orphans(lake.open(shared_locations=pair))
    assert result.status is Status.BLOCKED, result
    assert lake.objects() == there


def test_a_third_table_in_the_place_was_not_told_of(lake: Lake) -> None:
    table = lake.table()
    lake.table("db.u", location=table.location())
    lake.table("db.v", location=table.location())
    orphan_in(lake, table)
    pair = [{"tables": ["main.db.t", "main.db.u"], "files": {"main.db.t": [f"{table.location()}/data"]}}]
    assert_refused(lake, "main.db.t", "main.db.v", shared_locations=pair)


def test_a_table_comes_into_the_place_before_the_deletion(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse_maintenance.execution.deleting import Deletion

    table = lake.table()
    orphan_in(lake, table)
    real = Deletion.remove

    def remove(self: Deletion, *args: Any, **options: Any) -> Any:
        lake.writer.create_table("db.u", SCHEMA, location=table.location())
        return real(self, *args, **options)

    monkeypatch.setattr(Deletion, "remove", remove)
    there = lake.objects()
    result = lake.orphans()
    assert result.status is Status.FAILED
    assert "main.db.u" in result.reason
    assert there <= lake.objects()
