"""Expiry's options, its results by the procedures' names, named branches, and what the plan tells (IM-05, 17, 20, 23).

Which files go is held against what PyIceberg's own classes reach, not against what we say.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.execution import making
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.removal import deleting
from lakehouse_maintenance_tests.engine.tables import append, delete_rows, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.engine.test_expiry import ALL, expire, expiry, reachable, stored
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> Pair:
    """The writer's catalog, and ours on the same tables."""
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


def left(writer: SqlCatalog) -> list[int]:
    return [snapshot.snapshot_id for snapshot in writer.load_table("db.t").metadata.snapshots]


def put_statistics(writer: SqlCatalog, folder: Path, snapshot_id: int) -> Path:
    """A Puffin file that metadata names for the snapshot; nobody reads its content here."""
    file = folder / "warehouse" / "db" / "t" / "metadata" / f"{snapshot_id}.stats"
    file.write_bytes(b"PFA1")
    named = StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=f"file://{file}",
        file_size_in_bytes=4,
        file_footer_size_in_bytes=4,
        blob_metadata=[
            BlobMetadata(type="apache-datasketches-theta-v1", snapshot_id=snapshot_id, sequence_number=1, fields=[1])
        ],
    )
    with writer.load_table("db.t").update_statistics() as update:
        update.set_statistics(named)
    return file


@pytest.mark.requirement("IM-05")
@pytest.mark.requirement("IM-20")
def test_every_kind_of_file_goes_and_is_counted_by_the_procedures_names(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer)
    first, last = left(writer)[0], left(writer)[-1]
    gone, kept = (put_statistics(writer, tmp_path, snapshot_id) for snapshot_id in (first, last))
    data = next(iter(writer.load_table("db.t").scan().plan_files())).file.file_path
    delete_rows(writer, "db.t", {data: [0]})
    kept_now = put_statistics(writer, tmp_path, left(writer)[-1])
    (compacted,) = ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,))).tables[0].actions
    assert compacted.results == {
        "rewritten_data_files_count": 12,
        "added_data_files_count": 2,
        "rewritten_bytes_count": compacted.actual.rewritten_bytes,
        "failed_data_files_count": 0,
        "removed_delete_files_count": 1,
    }
    assert compacted.actual.rewritten_bytes > 0
    append(writer, "db.t", 100, 10)
    before, rows, there = reachable(writer), ids(writer), stored(tmp_path)
    outcome = expire(ours)
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == rows
    for file in (gone, kept, kept_now):
        assert not file.exists(), "none of their snapshots is left"
    assert there - stored(tmp_path) == (before - reachable(writer)) | {f"file://{f}" for f in (gone, kept, kept_now)}
    (action,) = outcome.actions
    results = action.results
    assert results["deleted_data_files_count"] == 12
    assert results["deleted_position_delete_files_count"] == 1
    assert results["deleted_equality_delete_files_count"] == 0
    assert results["deleted_statistics_files_count"] == 3
    assert results["deleted_manifest_lists_count"] == 8, "six appends, a delete and a compaction"
    assert sum(results.values()) == action.actual.deleted_files
    deleted = there - stored(tmp_path)
    assert results["deleted_manifest_files_count"] == sum(
        path.endswith(".avro") and "/snap-" not in path for path in deleted
    )


def test_statistics_of_a_kept_snapshot_stay(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer)
    kept = put_statistics(writer, tmp_path, left(writer)[-1])
    assert expire(ours).status is Status.DONE
    assert kept.exists()
    assert [entry.statistics_path for entry in writer.load_table("db.t").metadata.statistics] == [f"file://{kept}"]


@pytest.mark.requirement("IM-05")
def test_of_a_table_that_only_grows_the_lists_are_freed_and_counted(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer)
    files = {path: Path(path.removeprefix("file://")).stat().st_size for path in stored(tmp_path)}
    (action,) = ours.plan((), expiry()).tables[0].actions
    outcome = expire(ours)
    size = sum(size for path, size in files.items() if path not in stored(tmp_path))
    assert size > 0
    assert (action.inputs.files, action.inputs.bytes) == (5, size)
    assert (outcome.actions[0].actual.deleted_files, outcome.actions[0].actual.deleted_bytes) == (5, size)


def test_health_counts_what_a_table_that_only_grows_would_free(sql_catalog: SqlCatalogFactory, tmp_path: Path) -> None:
    writer, properties = sql_catalog()
    many_small_files(writer)
    policy = {"older_than": "0s", "retain_last": 1, "allow_short_retention": True}
    ours = lakehouse(tmp_path, properties, policies={"default": {"expire_snapshots": policy}})
    (health,) = ours.health()
    (action,) = ours.plan((), expiry()).tables[0].actions
    assert health.reclaimable_bytes == action.inputs.bytes > 0


@pytest.mark.requirement("IM-05")
def test_deleting_calls_in_flight(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    many_small_files(writer)
    asked: list[object] = []
    real = deleting.delete_batch

    def spy(*args: object, **options: object) -> object:
        asked.append(options.get("concurrency"))
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("lakehouse_maintenance.removal.remover.delete_batch", spy)
    request = ExpiryRequest(timedelta(0), retain_last=1, allow_short_retention=True, max_concurrent_deletes=3)
    assert expire(ours, request).status is Status.DONE
    assert set(asked) == {3}


@pytest.mark.requirement("IM-17")
def test_the_plan_tells_how_far_back_the_table_can_be_read(pair: Pair) -> None:
    writer, ours = pair
    table = many_small_files(writer)
    asked = ExpiryRequest(timedelta(0), retain_last=4, allow_short_retention=True)
    (action,) = ours.plan((), expiry(asked)).tables[0].actions
    oldest = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(table.metadata.snapshots[2].timestamp_ms // 1000))
    assert action.notes == (f"the table stays readable as of {oldest} and later", "3 rollbacks remain")


@pytest.mark.requirement("IM-17")
def test_named_snapshots_are_told_of_too(pair: Pair) -> None:
    """A gap in the line ends what can be read as of a time: rollbacks count up to it."""
    writer, ours = pair
    table = many_small_files(writer)
    snapshots = table.metadata.snapshots
    table.manage_snapshots().create_tag(snapshots[0].snapshot_id, "first").commit()
    named = (snapshots[3].snapshot_id, snapshots[0].snapshot_id, 17)
    (action,) = ours.plan((), expiry(ExpiryRequest(snapshot_ids=named))).tables[0].actions
    assert action.snapshots == (snapshots[3].snapshot_id,)
    told = "\n".join(action.notes)
    assert "1 rollbacks remain" in told
    assert f"snapshot {snapshots[0].snapshot_id}: it stays: tag first stands on it" in told
    assert "snapshot 17: the table has no such snapshot" in told
    assert "1 of them are younger than the longest reader, 1 day" in told
    only = ours.plan((), expiry(ExpiryRequest(snapshot_ids=(17,)))).tables[0]
    assert only.skipped[0].reason == "nothing to expire: snapshot 17: the table has no such snapshot"


@pytest.mark.requirement("IM-17")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ExpiryRequest(older_than=timedelta(hours=23)), "nearer than the longest reader, 1 day"),
        (ExpiryRequest(older_than=timedelta(days=5), retain_last=0), "retain_last below 1"),
    ],
)
def test_the_reader_window_needs_a_word(pair: Pair, asked: ExpiryRequest, said: str) -> None:
    writer, ours = pair
    many_small_files(writer)
    for plan in (ours.plan((), expiry(asked)), ours.due((), expiry(asked))):
        (skip,) = plan.tables[0].skipped
        assert said in skip.reason
        assert "--allow-short-retention" in skip.reason
    assert expire(ours, asked).status is Status.SKIPPED
    assert len(left(writer)) == 6


@pytest.mark.requirement("IM-23")
class TestNamedBranch:
    """Six snapshots on main; branch `audit` from the fourth, with three of its own."""

    @pytest.fixture
    def branched(self, pair: Pair) -> tuple[SqlCatalog, Lakehouse, list[int], list[int]]:
        writer, ours = pair
        table = many_small_files(writer)
        on_main = left(writer)
        table.manage_snapshots().create_branch(on_main[3], "audit").commit()
        for number in range(3):
            append(writer, "db.t", 500 + number * 10, 10, branch="audit")
        return writer, ours, on_main, left(writer)[6:]

    def run(self, ours: Lakehouse, branch: str, asked: ExpiryRequest = ALL) -> TableOutcome:
        request = Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=asked, branch=branch)
        return ours.maintain((), request).tables[0]

    def test_its_own_snapshots_alone_go(
        self, branched: tuple[SqlCatalog, Lakehouse, list[int], list[int]], tmp_path: Path
    ) -> None:
        writer, ours, on_main, on_audit = branched
        refs = writer.load_table("db.t").metadata.refs
        rows = ids(writer), ids(writer, snapshot_id=on_audit[-1])
        outcome = self.run(ours, "audit")
        assert outcome.status is Status.DONE, outcome
        assert left(writer) == [*on_main, on_audit[-1]]
        assert writer.load_table("db.t").metadata.refs == refs
        assert (ids(writer), ids(writer, snapshot_id=on_audit[-1])) == rows
        assert stored(tmp_path) == reachable(writer)

    def test_main_by_name_leaves_what_the_branch_came_from(
        self, branched: tuple[SqlCatalog, Lakehouse, list[int], list[int]], tmp_path: Path
    ) -> None:
        writer, ours, on_main, on_audit = branched
        assert self.run(ours, "main").status is Status.DONE
        assert left(writer) == [*on_main[:4], on_main[5], *on_audit]
        assert stored(tmp_path) == reachable(writer)

    def test_a_tag_keeps_its_line(self, branched: tuple[SqlCatalog, Lakehouse, list[int], list[int]]) -> None:
        writer, ours, on_main, on_audit = branched
        writer.load_table("db.t").manage_snapshots().create_tag(on_audit[1], "kept").commit()
        plan = ours.plan((), Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=ALL, branch="audit"))
        assert plan.tables[0].skipped[0].reason.startswith("nothing to expire")
        assert left(writer) == [*on_main, *on_audit]

    def test_named_snapshots_that_are_not_its_own_stay(
        self, branched: tuple[SqlCatalog, Lakehouse, list[int], list[int]]
    ) -> None:
        writer, ours, on_main, on_audit = branched
        asked = ExpiryRequest(snapshot_ids=(on_main[1], on_audit[0]))
        assert self.run(ours, "audit", asked).status is Status.DONE
        assert left(writer) == [*on_main, *on_audit[1:]]

    def test_the_plan_tells_of_the_branch(self, branched: tuple[SqlCatalog, Lakehouse, list[int], list[int]]) -> None:
        _, ours, _, on_audit = branched
        plan = ours.plan((), Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=ALL, branch="audit"))
        (action,) = plan.tables[0].actions
        assert (action.branch, action.snapshots) == ("audit", tuple(on_audit[:2]))
        assert action.notes[0].startswith("branch audit stays readable as of")
        assert action.notes[1] == "0 rollbacks remain"

    def test_no_such_branch(self, branched: tuple[SqlCatalog, Lakehouse, list[int], list[int]]) -> None:
        _, ours, _, _ = branched
        outcome = self.run(ours, "nowhere")
        assert (outcome.status, "has no branch nowhere" in outcome.reason) == (Status.SKIPPED, True)


@pytest.mark.requirement("IM-19")
def test_compaction_says_when_storage_shrinks_and_then_it_does(
    sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The date in the note is the first at which the policy lets the replaced files go."""
    writer, properties = sql_catalog()
    many_small_files(writer, partitioned=False)
    policy = {"older_than": "2 days", "retain_last": 1, "trigger": {"of": "expired_snapshots", "base": 1}}
    ours = lakehouse(tmp_path, properties, policies={"default": {"expire_snapshots": policy}})
    (action,) = ours.maintain((), Request(actions=(Action.REWRITE_DATA_FILES,))).tables[0].actions
    newest = writer.load_table("db.t").metadata.snapshots[-2].timestamp_ms
    due = newest + 2 * 86_400_000 + 1
    moment = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(due // 1000))
    assert action.notes[-1] == (
        f"storage shrinks only when the snapshots before this one expire: by policy from {moment} on, with the expiry "
        "that expired_snapshots ≥ 1 makes due"
    )
    for at, expired in ((due - 1, 5), (due, 6)):
        monkeypatch.setattr(making, "now_ms", lambda at=at: at)
        (table,) = ours.plan(()).tables
        assert [len(a.snapshots) for a in table.actions if a.action == Action.EXPIRE_SNAPSHOTS] == [expired]
