"""`explain` on local files and on S3: the same verdict that orphan removal acts on, for files and for folders."""

from __future__ import annotations

import pytest

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.explanations import Explanation
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance_tests.delta_logs import HEADER, LogWriter, add
from lakehouse_maintenance_tests.engine.stores import SCHEMA, Lake


def owners(explanation: Explanation) -> set[tuple[str, str]]:
    return {(one.table, one.via) for one in explanation.ownership.by}


@pytest.mark.requirement("UF-47")
def test_files_and_folders(lake: Lake) -> None:
    table, other = lake.table(commits=2), lake.table("x.u", location=f"{lake.root}elsewhere/u")
    shared = lake.add(other, f"{table.location()}/data/of_u/live.parquet")
    orphan = lake.put(f"{table.location()}/data/left/orphan.parquet")
    ours = lake.open()
    live = f"{table.location()}/data/1.parquet"
    found = ours.explain(live)
    assert (found.ownership.owned, owners(found)) == (True, {("main.db.t", "data")})
    head = table.current_snapshot()
    assert head is not None
    assert [one.snapshot_ids for one in found.ownership.by] == [(head.snapshot_id,)]
    assert owners(ours.explain(shared)) == {("main.x.u", "data")}
    # Other spellings of the same path, and folders: those of tables, those inside, and those above.
    spelled = live.replace("file://", "file:") if lake.is_local else live.replace("s3://", "s3a://")
    assert owners(ours.explain(spelled)) == {("main.db.t", "data")}
    assert owners(ours.explain(f"{table.location()}/data/of_u")) == {("main.x.u", "data")}
    assert ("main.db.t", "location") in owners(ours.explain(table.location()))
    assert ("main.db.t", "location") in owners(ours.explain(lake.warehouse + "/db/"))
    assert {name for name, _ in owners(ours.explain(lake.root))} == {"main.db.t", "main.x.u"}
    for path in (orphan, f"{table.location()}/data/left", f"{table.location()}/data/le", f"{lake.root}nowhere"):
        assert ours.explain(path).ownership.owned is False, path
    assert lake.orphans(ours).deleted_files == 1
    past = ours.explain(f"{table.location()}/data/left").journal
    assert [event.fate for event in past] == [None, "deleted"]
    assert past[0].path == orphan


def test_what_nobody_can_tell(lake: Lake) -> None:
    """What orphan removal keeps because it is not known whose it is, `explain` does not call nobody's."""
    table = lake.table()
    log = LogWriter(lake.folder / "delta")
    log.commit(*HEADER, add("part-0.parquet"))
    lake.put_tree(log.root, f"{table.location()}/nested")
    named = lake.put(f"{table.location()}/nested/part-0.parquet")
    beside = lake.put(f"{table.location()}/nested/beside.parquet")
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    ours = lake.open()
    assert ours.explain(named).ownership.owned is True
    assert ours.explain(beside).ownership.owned is None
    assert ours.explain(orphan).ownership.owned is False
    lake.writer.create_table("db.forgotten", SCHEMA, location=f"{table.location()}/data")
    lake.writer.drop_table("db.forgotten")
    found = ours.explain(orphan).ownership
    assert found.owned is None
    assert "no catalog shows" in found.why
    there = lake.objects()
    lake.orphans(ours)
    assert {named, beside, orphan} <= lake.objects() == there


def test_a_table_that_may_not_be_cleaned(local_lake: Lake) -> None:
    table = local_lake.table(properties={"gc.enabled": "false"})
    orphan = local_lake.put(f"{table.location()}/data/orphan.parquet")
    assert local_lake.orphans().status is Status.BLOCKED
    found = local_lake.open().explain(orphan).ownership
    assert "gc.enabled" in found.why or found.owned is None


def test_a_table_that_cannot_be_read(lake: Lake) -> None:
    table = lake.table()
    lake.put(table.metadata_location, b"{")
    for path in (f"{table.location()}/data/0.parquet", table.location(), table.metadata_location):
        found = lake.open().explain(path)
        assert found.ownership.owned is None, path
        assert not found.ok
        assert "main.db.t" in found.ownership.why


def test_what_is_our_own(lake: Lake) -> None:
    table = lake.table()
    orphan = lake.put(f"{table.location()}/data/orphan.parquet")
    lake.pass_days(4)
    ours = lake.open()
    moved = ours.orphans(["main.db.t"], OrphanRequest(removal="quarantine"), delete=True).tables[0]
    (entry,) = ours.quarantined()
    assert moved.quarantine is not None
    assert moved.quarantine == entry.entry.id
    aside = entry.as_json()["quarantined_path"]
    for path in (aside, f"{aside}/data/orphan.parquet"):
        told = ours.explain(path).ownership
        assert (told.owned, told.by[0].table) == (True, "main.db.t"), told
        assert moved.quarantine in told.by[0].via
    state = ours.explain(f"{ours.state.location}/version").ownership
    assert (state.owned, state.by[0].via) == (True, "state")
    ours.restore(moved.quarantine)
    assert ours.explain(aside).ownership.owned is False
    assert ours.explain(orphan).ownership.owned is False


def test_a_folder_that_holds_a_table_that_nobody_shows(lake: Lake) -> None:
    gone = lake.table("db.gone")
    lake.table()
    lake.writer.drop_table("db.gone")
    for path in (gone.location(), f"{gone.location()}/", f"{gone.location()}/data", f"{gone.location()}/metadata"):
        told = lake.open().explain(path).ownership
        assert (told.owned, "no catalog shows" in told.why) == (None, True), (path, told)


def test_what_lies_there(lake: Lake) -> None:
    table = lake.table()
    lake.put(f"{table.location()}/data/orphan.parquet", b"12345")
    lake.put(f"{table.location()}/_hidden/secret.parquet")
    ours = lake.open()
    for name, word in (
        ("data/orphan.parquet", "5 bytes is there, last changed 20"),
        ("data/zzz", "nothing of this name is there"),
        ("_hidden", "it is a folder"),
        ("_hidden/secret.parquet", "'_hidden' are hidden from orphan removal"),
    ):
        told = ours.explain(f"{table.location()}/{name}").ownership
        assert (told.owned, word in told.why) == (False, True), told
