"""Snapshot expiry: what goes, what stays, and that exactly the files that nothing reaches any more are deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

ALL = ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True)


def expiry(asked: ExpiryRequest = ALL) -> Request:
    return Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=asked)


def expire(ours: Lakehouse, asked: ExpiryRequest = ALL, tables: tuple[str, ...] = ("main.db.t",)) -> TableOutcome:
    return ours.maintain(tables, expiry(asked)).tables[0]


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> tuple[SqlCatalog, Lakehouse]:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


def stored(folder: Path) -> set[str]:
    """Every file below the warehouse but metadata.json files, which expiry leaves."""
    files = {f"file://{path}" for path in (folder / "warehouse").rglob("*") if path.is_file()}
    return {path for path in files if not path.endswith(".metadata.json")}


def reachable(catalog: SqlCatalog, name: str = "db.t") -> set[str]:
    """Independent of the product: what PyIceberg's own classes reach from every snapshot."""
    table = catalog.load_table(name)
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True)}
    return found


def test_exactly_what_nothing_reaches_any_more_is_gone(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer)
    writer.load_table("db.t").delete("id < 25")
    ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,)))
    append(writer, "db.t", 100, 10)
    stray = tmp_path / "warehouse" / "db" / "t" / "data" / "stray.parquet"
    stray.write_bytes(b"nobody names this")
    before, rows = reachable(writer), ids(writer)
    there = stored(tmp_path)
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    after = reachable(writer)
    assert len(writer.load_table("db.t").metadata.snapshots) == 1
    assert stored(tmp_path) == there - (before - after)
    assert stray.exists(), "expiry is no orphan removal"
    assert ids(writer) == rows
    actual = outcome.actions[0].actual
    assert actual.deleted_files == len(before - after)
    assert (actual.kept_files, actual.failed_files, actual.unknown_files) == (0, 0, 0)


def test_branches_tags_and_their_own_retention(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    manage = table.manage_snapshots()
    manage.create_tag(snapshots[0], "first")
    manage.create_tag(snapshots[1], "short", max_ref_age_ms=1)
    manage.create_branch(snapshots[3], "audit")
    manage.commit()
    append(writer, "db.t", 500, 5, branch="audit")
    # PyIceberg's append drops a ref's own retention: it is set last.
    head = refs(writer)["audit"].snapshot_id
    writer.load_table("db.t").manage_snapshots().create_branch(head, "audit", min_snapshots_to_keep=2).commit()
    kept = {name: ids(writer, snapshot_id=ref.snapshot_id) for name, ref in refs(writer).items() if name != "short"}
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert set(refs(writer)) == {"main", "first", "audit"}, "a tag that has outlived its own age goes"
    assert {name: ids(writer, snapshot_id=ref.snapshot_id) for name, ref in refs(writer).items()} == kept
    left = {snapshot.snapshot_id for snapshot in writer.load_table("db.t").metadata.snapshots}
    audit = refs(writer)["audit"].snapshot_id
    assert left == {snapshots[5], snapshots[0], audit, snapshots[3]}, "the branch keeps two"
    assert stored(tmp_path) == reachable(writer)


def refs(catalog: SqlCatalog) -> dict[str, Any]:
    return dict(catalog.load_table("db.t").metadata.refs)


def test_a_rolled_back_snapshot_goes_by_age_and_its_shared_files_stay(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path
) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    earlier = table.metadata.snapshots[-2].snapshot_id
    table.manage_snapshots().set_current_snapshot(earlier).commit()
    append(writer, "db.t", 100, 10)
    rows = ids(writer)
    assert expire(ours).status is Status.DONE
    assert ids(writer) == rows
    assert stored(tmp_path) == reachable(writer)


def test_a_file_that_was_deleted_and_added_again_stays(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer, partitioned=False, commits=1)
    path = next(iter(writer.load_table("db.t").scan().plan_files())).file.file_path
    content = Path(path.removeprefix("file://")).read_bytes()
    writer.load_table("db.t").delete("id >= 0")
    from pyiceberg.table.name_mapping import MappedField, NameMapping

    mapping = NameMapping([MappedField(field_id=i + 1, names=[n]) for i, n in enumerate(("id", "p", "x"))])
    with writer.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping.model_dump_json()})
    import pyarrow.parquet as pq

    rows = pq.read_table(path.removeprefix("file://"))
    pq.write_table(rows.replace_schema_metadata(None).cast(plain(rows.schema)), path.removeprefix("file://"))
    assert content
    # The same file, spelled as another engine would.
    writer.load_table("db.t").add_files([path.replace("file://", "file:")])
    assert expire(ours).status is Status.DONE
    assert Path(path.removeprefix("file://")).exists()
    assert ids(writer) == [*range(10)]


def plain(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema([pa.field(field.name, field.type) for field in schema])


def test_position_deletes_go_with_their_snapshots(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer)
    first = next(iter(writer.load_table("db.t").scan().plan_files())).file.file_path
    delete_rows(writer, "db.t", {first: [0]})
    ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,)))
    rows = ids(writer)
    assert expire(ours).status is Status.DONE
    assert ids(writer) == rows
    assert stored(tmp_path) == reachable(writer)


@pytest.mark.parametrize("retain", [1, 3])
def test_the_newest_are_retained(pair: tuple[SqlCatalog, Lakehouse], retain: int) -> None:
    writer, ours = pair
    many_small_files(writer)
    asked = ExpiryRequest(older_than=timedelta(0), retain_last=retain, allow_short_retention=True)
    assert expire(ours, asked).actions[0].actual.expired_snapshots == 6 - retain
    assert len(writer.load_table("db.t").metadata.snapshots) == retain


def test_named_snapshots_alone_go(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    victims = tuple(snapshot.snapshot_id for snapshot in table.metadata.snapshots[1:3])
    head = table.metadata.snapshots[-1].snapshot_id
    asked = ExpiryRequest(snapshot_ids=(*victims, head))
    outcome = expire(ours, asked)
    assert outcome.status is Status.DONE, outcome
    left = {snapshot.snapshot_id for snapshot in writer.load_table("db.t").metadata.snapshots}
    assert len(left) == 4
    assert head in left, "no ref's snapshot ever goes"
    assert stored(tmp_path) == reachable(writer)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ExpiryRequest(older_than=timedelta(hours=1)), "nearer than the longest reader"),
        (ExpiryRequest(older_than=timedelta(days=5), retain_last=0), "retain_last below 1"),
    ],
)
def test_short_retention_needs_a_word(pair: tuple[SqlCatalog, Lakehouse], asked: ExpiryRequest, said: str) -> None:
    writer, ours = pair
    many_small_files(writer)
    plan = ours.plan((), expiry(asked))
    assert said in plan.tables[0].skipped[0].reason


def test_gc_enabled_false_refuses(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    plan = ours.plan((), expiry())
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    there = stored(tmp_path)
    assert ours.apply(plan).tables[0].status is Status.FAILED, "also when it was switched after the plan"
    assert "gc.enabled" in ours.plan((), expiry()).tables[0].skipped[0].reason
    assert stored(tmp_path) == there


@pytest.mark.parametrize("place", ["same", "inside", "around", "write path inside"])
def test_tables_that_share_a_place_keep_their_files(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, place: str
) -> None:
    """Nothing else tells the two apart than what their metadata references."""
    writer, ours = pair
    own = f"file://{tmp_path}/warehouse/db/t"
    many_small_files(writer)
    other = {"same": own, "inside": f"{own}/data/nested", "around": f"file://{tmp_path}/warehouse/db"}.get(place)
    properties = {"write.data.path": f"{own}/data/theirs"} if place == "write path inside" else {}
    table = writer.load_table("db.t")
    first = table.metadata.snapshots[0]
    shared = [e.data_file.file_path for m in first.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
    shared = [path for path in shared if "p=a" in path]
    theirs = writer.create_table("db.u", table.schema(), location=other, properties=properties)
    names = {"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()}
    with theirs.transaction() as transaction:
        transaction.set_properties(names)
    theirs.add_files(shared)
    append(writer, "db.u", 500, 4)
    table.delete("p == 'a'")
    rows = ids(writer), ids(writer, "db.u")
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert "main.db.u references it" in " ".join(outcome.actions[0].notes)
    assert all(Path(path.removeprefix("file://")).exists() for path in shared)
    assert (ids(writer), ids(writer, "db.u")) == rows
    writer.drop_table("db.u")
    table = writer.load_table("db.t")
    table.delete("id < 5")
    assert expire(ours).status is Status.DONE, "and what nobody else needs goes as ever"


def test_a_name_that_begins_alike_is_no_neighbour(pair: tuple[SqlCatalog, Lakehouse]) -> None:
    writer, ours = pair
    many_small_files(writer)
    many_small_files(writer, "db.t_2", commits=2)
    rows = ids(writer, "db.t_2")
    assert expire(ours).status is Status.DONE
    assert ids(writer, "db.t_2") == rows


def test_a_table_of_the_database_that_cannot_be_read_blocks(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer)
    broken = many_small_files(writer, "db.broken", commits=1)
    Path(broken.metadata_location.removeprefix("file://")).write_bytes(b"{")
    there = stored(tmp_path)
    outcome = expire(ours)
    assert outcome.status is Status.FAILED
    assert "main.db.broken" in outcome.reason
    assert stored(tmp_path) == there


def test_files_outside_the_tables_own_folders_stay(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    table = many_small_files(writer, commits=1)
    foreign = f"file://{tmp_path}/elsewhere"
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": foreign})
    append(writer, "db.t", 100, 10)
    with writer.load_table("db.t").transaction() as transaction:
        transaction.remove_properties("write.data.path")
    writer.load_table("db.t").delete("id >= 0")
    kept = list((tmp_path / "elsewhere").rglob("*.parquet"))
    assert kept
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.kept_files == len(kept)
    assert all(path.exists() for path in kept)


def test_an_append_and_a_tag_in_between(pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    victim = table.metadata.snapshots[2].snapshot_id
    rows = ids(writer, snapshot_id=victim)

    def others(attempt: int) -> None:
        if attempt == 1:
            writer.load_table("db.t").manage_snapshots().create_tag(victim, "keep-me").commit()
            append(writer, "db.t", 100, 10)

    with before_commit(ours, others):
        outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert ids(writer, snapshot_id=victim) == rows, "the tag came first, so its snapshot stays"
    assert ids(writer) == [*range(60), *range(100, 110)]
    assert stored(tmp_path) == reachable(writer)


_KILLED = """
import os, signal, sys
from pathlib import Path
from lakehouse_maintenance.removal import remover
from lakehouse_maintenance_tests.engine.tables import lakehouse
from lakehouse_maintenance_tests.engine.test_expiry import expire
folder, when = Path(sys.argv[1]), sys.argv[2]
uri, warehouse = f"sqlite:///{folder / 'main'}.db", f"file://{folder / 'warehouse'}"
ours = lakehouse(folder, {"type": "sql", "uri": uri, "warehouse": warehouse})
die = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
real = remover.delete_batch
if when == "before the commit":
    ours.catalogs["main"].pyiceberg.commit_table = die
elif when == "before the deletion":
    remover.delete_batch = die
else:
    remover.delete_batch = lambda storage, locations: (real(storage, locations[:5]), die())
expire(ours)
"""


@pytest.mark.parametrize("when", ["before the commit", "before the deletion", "amid the deletion"])
def test_a_killed_run_is_finished_by_the_next(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    writer, ours = pair
    many_small_files(writer)
    writer.load_table("db.t").delete("id < 25")
    rows = ids(writer)
    child = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), when], check=False, cwd=os.getcwd())
    assert child.returncode == -signal.SIGKILL
    info = ours.state.leases.current("main.db.t")
    assert info is not None
    later = info.expires_at + timedelta(seconds=1)
    monkeypatch.setattr(ours.state.leases, "_now", lambda: later)
    if when != "before the commit":
        assert stored(tmp_path) > reachable(writer), "something was left to delete"
        append(writer, "db.t", 200, 1)
        rows += [200]
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == rows
    assert stored(tmp_path) == reachable(writer), "nothing is left behind, nothing live is gone"


def test_a_store_that_deletes_part_of_a_batch_is_counted_right(
    pair: tuple[SqlCatalog, Lakehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ours = pair
    many_small_files(writer)
    writer.load_table("db.t").delete("id < 60")
    real = Path.unlink
    refused = []

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if "p=a" in str(self):
            refused.append(self)
            raise PermissionError(13, "Permission denied", str(self))
        real(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    outcome = expire(ours)
    monkeypatch.undo()
    assert outcome.status is Status.FAILED
    assert outcome.actions[0].actual.failed_files == len(refused) == 6
    assert all(path.exists() for path in refused)
    assert "Permission denied" in outcome.reason
    assert expire(ours).status is Status.SKIPPED, "there is nothing more to expire"
    assert stored(tmp_path) == reachable(writer), "the next run on the table finished the list"
