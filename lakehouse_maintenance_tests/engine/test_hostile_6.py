"""Owners that are easily lost: two of one name, one behind a link, one that nobody can load; and words said anew."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.config import config_from_mapping
from lakehouse_maintenance.evidence import evidence, freshness
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import UnknownTableError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.removal import Remover, remover
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.delta_logs import HEADER, LogWriter, add
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake, reference
from lakehouse_maintenance_tests.engine.test_orphans_resumed import stopped


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def clone(lake: Lake, folder: str, needed: str) -> None:
    """A Delta table in the folder, which names a file that lies elsewhere."""
    log = LogWriter(lake.folder / "made" / folder.rpartition("/")[2])
    log.commit(*HEADER, add(needed))
    lake.put_tree(log.root, folder)
    shutil.rmtree(log.root)


def two_files(lake: Lake) -> tuple[str, str]:
    """In the folder of `main.db.t`, which needs neither."""
    table = lake.table()
    needed, orphan = (lake.put(f"{table.location()}/data/{name}.parquet") for name in ("needed", "orphan"))
    return needed, orphan


@pytest.mark.parametrize(
    ("first", "second"),
    [("bronze/orders", "silver/orders"), ("bronze/orders", "bronze/default/orders"), ("bronze/a.b/c", "bronze/a/b/c")],
)
def test_two_delta_tables_of_one_name(local_lake: Lake, first: str, second: str) -> None:
    """A name is made of folders below a root; the evidence has to hold both tables."""
    lake = local_lake
    needed, orphan = two_files(lake)
    other = lake.put(f"{lake.warehouse}/db/t/data/needed-2.parquet")
    clone(lake, f"{lake.root}{first}", needed)
    clone(lake, f"{lake.root}{second}", other)
    there = lake.objects()
    ours = lake.open(delta={"lake": {"roots": [f"{lake.root}bronze/", f"{lake.root}silver/"]}})
    result = lake.orphans(ours)
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result
    for path in (needed, other):
        assert ours.explain(path).ownership.owned is True


def test_a_delta_table_that_comes_while_the_run_goes_on(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the list and the deletion somebody clones the table's file into a Delta table in a scanned folder."""
    lake = local_lake
    needed, orphan = two_files(lake)
    clone(lake, f"{lake.root}bronze/first", f"{lake.root}elsewhere.parquet")
    remove = Deletion.remove

    def late(self: Deletion, *args: Any, **options: Any) -> Any:
        clone(lake, f"{lake.root}bronze/late", needed)
        return remove(self, *args, **options)

    monkeypatch.setattr(Deletion, "remove", late)
    monkeypatch.setattr(freshness, "_TIMES", 0)
    ours = lake.open(delta={"lake": {"roots": [f"{lake.root}bronze/"]}})
    there = lake.objects()
    lake.orphans(ours)
    assert there - lake.objects() == {orphan}


def test_a_link_in_a_tables_folder_that_leads_into_anothers(local_lake: Lake) -> None:
    """By its text the file lies in u's own folder, by the file system in t's."""
    lake = local_lake
    needed, orphan = two_files(lake)
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    link = local(other.location()) / "data" / "linked"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(local(needed).parent)
    reference(other, f"file://{link}/needed.parquet")
    there = lake.objects()
    result = lake.orphans()
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result


def test_a_stranger_that_names_files_by_a_link(local_lake: Lake) -> None:
    """Metadata of an unlisted table in t's folder names t's file by another way to the same folder."""
    lake = local_lake
    needed, _ = two_files(lake)
    lake.put(f"{lake.warehouse}/db/t/other/orphan.parquet")
    way = lake.folder / "way"
    way.symlink_to(local(lake.root))
    other = lake.writer.create_table("db.u", SCHEMA, location=f"{lake.warehouse}/db/t/nested")
    reference(other, needed.replace(lake.root, f"file://{way}/"))
    lake.writer.drop_table("db.u")
    there = lake.objects()
    result = lake.orphans()
    assert (result.status, there - lake.objects()) == (
        Status.DONE,
        {f"{lake.warehouse}/db/t/other/orphan.parquet"},
    ), result


def test_a_table_that_is_listed_and_never_found(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that answers 404 for what we may not see: it did not go away, it cannot be found."""
    lake = local_lake
    needed, _ = two_files(lake)
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    reference(other, needed)
    ours = lake.open()
    real = type(ours.catalogs["main"])
    locate = real.locate

    def hide(self: Any, name: TableName) -> Any:
        if name.table == "u":
            raise UnknownTableError(f"there is no table {name}")
        return locate(self, name)

    monkeypatch.setattr(real, "locate", hide)
    monkeypatch.setattr(real, "pointers", lambda self, namespace: {})
    there = lake.objects()
    result = lake.orphans(ours)
    assert there == lake.objects(), result
    assert (result.status, "main.x.u" in result.reason) == (Status.BLOCKED, True), result


def hadoop(lake: Lake, name: str, source: str) -> None:
    """Registers a copy of the table's metadata under the name that engines without a catalog give: v1.metadata.json."""
    table = lake.writer.load_table(source)
    place = f"{lake.root}elsewhere/u/metadata/v1.metadata.json"
    lake.put(place, local(table.metadata_location).read_bytes())
    lake.writer.register_table(name, place)


def test_a_metadata_file_that_is_written_anew_under_its_name(local_lake: Lake) -> None:
    """A Hadoop table that is dropped and made again begins with v1.metadata.json again."""
    lake = local_lake
    needed, orphan = two_files(lake)
    lake.table("x.first", location=f"{lake.root}elsewhere/u")
    hadoop(lake, "x.u", "x.first")
    ours = lake.open()
    assert lake.orphans(ours, delete=False).orphan_files == 2
    for name in ("x.u", "x.first"):
        lake.writer.drop_table(name)
    second = lake.table("x.second", location=f"{lake.root}elsewhere/u", commits=0)
    reference(second, needed)
    hadoop(lake, "x.u", "x.second")
    lake.writer.drop_table("x.second")
    there = lake.objects()
    result = lake.orphans(lake.open())
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result


def test_a_quarantine_whose_name_hides_nothing(local_lake: Lake) -> None:
    """What is kept aside is nobody's orphan, whatever the folder is called."""
    lake = local_lake
    paths = {"write.data.path": f"{lake.warehouse}/db"}
    table = lake.table(properties=paths)
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    settings: dict[str, Any] = {"quarantine": {"prefix": "trash"}}
    result = lake.orphans(lake.open(**settings), removal="quarantine")
    assert (result.status, result.deleted_files) == (Status.DONE, 1), result
    ours = lake.open(**settings)
    there = lake.objects()
    result = lake.orphans(ours, removal="delete")
    assert there == lake.objects(), result
    (entry,) = ours.quarantined()
    assert ours.restore(entry.entry.id).status is Status.DONE
    assert orphan in lake.objects()


def shared(lake: Lake, own: str, others: str) -> dict[str, Any]:
    pair = {"tables": ["main.db.t", "main.x.u"], "files": {"main.db.t": [own], "main.x.u": [others]}}
    return {"shared_locations": [pair]}


def test_whose_files_are_whose_is_told_anew_before_the_list_is_finished(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    lake.writer.create_namespace("x")
    lake.writer.create_table("x.u", SCHEMA, location=table.location())
    folder = f"{table.location()}/data/a"
    lake.put(f"{folder}/of-u.parquet")
    first = shared(lake, f"{table.location()}/data", f"{table.location()}/b")
    there = lake.objects()

    def killed(self: Any, *args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deletion, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.orphans(lake.open(**first))
    assert there == lake.objects()
    second = shared(lake, f"{table.location()}/metadata", folder)
    lake.orphans(lake.open(**second))
    assert there == lake.objects()
    lake.orphans(lake.open())
    assert there == lake.objects()


def test_a_table_that_is_switched_off_before_the_list_is_finished(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    with table.transaction() as transaction:
        transaction.set_properties({"lakehouse-maintenance.enabled": "false"})
    there = lake.objects()
    result = lake.orphans()
    assert there - lake.objects() == set(), result
    ours: Lakehouse = lake.open()
    outcome = ours.maintain(["main.db.t"]).tables[0]
    assert there - lake.objects() == set(), outcome


def killed_after_moving(lake: Lake) -> None:
    """All is in quarantine and told, and the list is still open."""
    told = Remover._told

    def kill(self: Remover, *args: Any, **options: Any) -> None:
        told(self, *args, **options)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remover, "_told", kill)
        with pytest.raises(KeyboardInterrupt):
            lake.orphans(removal="quarantine")


def test_what_was_moved_is_remembered_where_the_tables_folders_change(local_lake: Lake) -> None:
    """The folder that it came from is none of the table's any more when the next run goes on."""
    lake = local_lake
    table = lake.table(properties={"write.data.path": f"{lake.root}elsewhere/data"})
    orphan = lake.put(f"{lake.root}elsewhere/data/orphan.parquet")
    killed_after_moving(lake)
    assert orphan not in lake.objects()
    with table.transaction() as transaction:
        transaction.remove_properties("write.data.path")
    lake.orphans(removal="quarantine")
    ours = lake.open()
    (entry,) = ours.quarantined()
    assert entry.as_json()["objects"] == 1
    assert ours.restore(entry.as_json()["id"]).status is Status.DONE
    assert orphan in lake.objects()


def test_what_was_moved_stays_where_its_name_is_used_again(local_lake: Lake) -> None:
    """What lies in quarantine is the last of the first file; what lies at its place is another one."""
    lake = local_lake
    orphan = lake.put(f"{lake.table().location()}/data/orphan.parquet", b"the first")
    killed_after_moving(lake)
    lake.put(orphan, b"the second")
    lake.orphans(removal="quarantine", older_than=timedelta(days=1000))
    ours = lake.open()
    (entry,) = ours.quarantined()
    assert entry.as_json()["objects"] == 1
    assert ours.restore(entry.as_json()["id"]).status is Status.BLOCKED
    local(orphan).unlink()
    assert ours.restore(entry.as_json()["id"]).status is Status.DONE
    assert local(orphan).read_bytes() == b"the first"


def test_what_an_earlier_run_removed_is_told_where_this_one_is_refused(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    stopped(lake)
    reference(table, lake.put(f"{table.location()}/data/other.parquet").replace("file://", "oss://"))
    result = lake.orphans()
    assert (result.status, "all but scheme" in result.reason) == (Status.BLOCKED, True), result
    assert orphan not in lake.objects()
    assert any("it was finished" in note for note in result.notes), result


def test_a_file_that_another_table_names_by_a_link(local_lake: Lake) -> None:
    """Not a folder on the way to it, but the name itself is a link; explain knows as much as the removal."""
    lake = local_lake
    needed, orphan = two_files(lake)
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    link = local(other.location()) / "data" / "linked.parquet"
    link.symlink_to(local(needed))
    reference(other, f"file://{link}")
    there = lake.objects()
    ours = lake.open()
    result = lake.orphans(ours)
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result
    assert ours.explain(needed).ownership.owned is True


def test_explain_where_no_catalog_is_configured(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    LogWriter(root / "d").commit(*HEADER, add("part-0.parquet"))
    config = config_from_mapping({"delta": {"lake": {"roots": [str(root)]}}}, base=tmp_path)
    ours = Lakehouse(config, open_state(str(tmp_path / "state")))
    assert ours.explain(f"{root}/d/part-0.parquet").ownership.owned is True


def test_what_somebody_comes_to_need_amid_a_purge_can_be_restored(
    local_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch is purged when a table begins to reference all of the entry: the rest comes back."""
    lake = local_lake
    table = lake.table()
    paths = [lake.put(f"{table.location()}/data/orphan-{number}.parquet") for number in range(4)]
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u", commits=0)
    monkeypatch.setattr(remover, "BATCH", 2)
    assert lake.orphans(removal="quarantine").status is Status.DONE
    told = Remover._told

    def claim(self: Remover, *args: Any, **options: Any) -> None:
        told(self, *args, **options)
        if other.current_snapshot() is None:
            reference(other, *paths)

    ours = lake.open()
    (entry,) = ours.quarantined()
    entry_id = entry.as_json()["id"]
    with monkeypatch.context() as patch:
        patch.setattr(Remover, "_told", claim)
        (purged,) = ours.purge(entry_id, timedelta(0))
    assert (purged.status, "main.x.u" in (purged.why or "")) == (Status.FAILED, True), purged
    assert (purged.as_json()["state"], purged.as_json()["objects"]) == ("quarantined", 2)
    (refused,) = ours.purge(entry_id, timedelta(0))
    assert "2 objects" in (refused.why or ""), refused
    assert ours.restore(entry_id).status is Status.DONE
    assert len(lake.objects() & set(paths)) == 2


def test_a_stranger_that_names_files_by_a_scheme_that_is_declared_equal(local_lake: Lake) -> None:
    lake = local_lake
    needed, _ = two_files(lake)
    orphan = lake.put(f"{lake.warehouse}/db/t/other/orphan.parquet")
    other = lake.writer.create_table("db.u", SCHEMA, location=f"{lake.warehouse}/db/t/nested")
    reference(other, needed.replace("file://", "oss://"))
    lake.writer.drop_table("db.u")
    there = lake.objects()
    result = lake.orphans(equal_schemes={"oss": "file"})
    assert (result.status, there - lake.objects()) == (Status.DONE, {orphan}), result


def test_a_table_without_a_uuid_is_told_so(local_lake: Lake) -> None:
    """Version 1 lets writers leave it out."""
    lake = local_lake
    path = local(lake.table(commits=2, properties={"format-version": "1"}).metadata_location)
    document = json.loads(path.read_text())
    del document["table-uuid"]
    path.write_text(json.dumps(document))
    expiry = ExpiryRequest(timedelta(0), 1, allow_short_retention=True)
    (outcome,) = lake.open().maintain(["main.db.t"], Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=expiry)).tables
    assert (outcome.status, "has no table-uuid" in outcome.reason) == (Status.FAILED, True), outcome


def test_a_look_that_failed_is_no_look(local_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is far away is not asked for again for a while after a look at everything: one that came to its end."""
    lake = local_lake
    lake.table()
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    catalog = lake.open().catalogs["main"]
    monkeypatch.setattr(type(catalog), "pointers", lambda self, namespace: {})
    monkeypatch.setattr(freshness, "_TIMES", 10**9)
    asked = evidence.Evidence({"main": catalog})
    place = Location.parse(f"{lake.warehouse}/db/t")
    asked.look()
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "databases", lambda: Incomplete("the second page", 0))
        assert asked.look().incomplete
    reference(other, f"{place.text}/data/needed.parquet")
    assert "main.x.u" in {owner.name for owner in asked.look([place]).reaching([place])}


def test_a_table_whose_location_another_writer_spells_in_percent_codes(local_lake: Lake) -> None:
    lake = local_lake
    table = lake.table(location=f"{lake.root}my%20lake/t")
    needed, orphan = (lake.put(f"{table.location()}/data/{name}.parquet") for name in ("needed", "orphan"))
    other = lake.table("x.u", location=f"{lake.root}elsewhere/u")
    reference(other, needed.replace("%20", " "))
    there = lake.objects()
    lake.orphans(delete=True)
    assert there - lake.objects() <= {orphan}
    assert lake.open().explain(needed).ownership.owned is True


def test_the_limit_of_the_first_removal_holds_until_something_was_removed(local_lake: Lake) -> None:
    """Not after a run that found nothing, and not for a new table under the name."""
    lake = local_lake
    table = lake.table()
    ours = lake.open(limits={"removed_share": 1.0, "first_run_files": 2})
    assert lake.orphans(ours).reason == "no orphan files"
    for number in range(3):
        lake.put(f"{table.location()}/data/orphan-{number}.parquet")
    assert "first_run_files" in lake.orphans(ours).reason
    lake.remove(f"{table.location()}/data/orphan-0.parquet")
    assert lake.orphans(ours).deleted_files == 2
    lake.writer.drop_table("db.t")
    again = lake.table(location=f"{lake.root}elsewhere/t")
    for number in range(3):
        lake.put(f"{again.location()}/data/orphan-{number}.parquet")
    assert "first_run_files" in lake.orphans(ours).reason
