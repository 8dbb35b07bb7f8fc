"""Manifests rewritten: fewer and clustered by partition, every entry as before, whatever others commit meanwhile."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.expressions import EqualTo

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.iceberg import avro, rewriting_manifests
from lakehouse_maintenance.iceberg.commit import ReplaceCommit
from lakehouse_maintenance.iceberg.fields import DELETED
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import read_metadata
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import ActionOutcome, TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.killed import killed_at_commit
from lakehouse_maintenance_tests.engine.tables import (
    append,
    before_commit,
    data_paths,
    delete_rows,
    ids,
    lakehouse,
    many_small_files,
)
from lakehouse_maintenance_tests.engine.test_lost_answers import commits
from lakehouse_maintenance_tests.readers import read_duckdb
from lakehouse_maintenance_tests.services.catalogs import SqlCatalogFactory

Pair = tuple[SqlCatalog, Lakehouse]
REWRITE = Request(actions=(Action.REWRITE_MANIFESTS,))
NUMBERS = ("snapshot_id", "sequence_number", "file_sequence_number")


@pytest.fixture
def pair(sql_catalog: SqlCatalogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A writer's catalog, and our lakehouse on it."""
    monkeypatch.setattr(ReplaceCommit, "pause", staticmethod(lambda attempt: None))
    catalog, properties = sql_catalog()
    return catalog, lakehouse(tmp_path, properties)


def rewrite(ours: Lakehouse, request: Request = REWRITE) -> TableOutcome:
    return ours.maintain((), request).tables[0]


def done(outcome: TableOutcome) -> ActionOutcome:
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].verified, outcome
    assert [check.name for check in outcome.actions[0].checks] == ["entries_unchanged"]
    return outcome.actions[0]


def manifests(catalog: SqlCatalog, name: str = "db.t") -> list[tuple[ManifestFile, list[dict[str, Any]]]]:
    """The head's manifests with all their entries, every field."""
    table = catalog.load_table(name)
    storage = Storage.from_properties(table.io.properties)
    metadata = read_metadata(storage, name, table.metadata_location)
    reader = ManifestReader(storage, name)
    head = metadata.head()
    assert head is not None
    return [(m, reader.entries(m).records) for m in reader.manifests(head)]


def live(catalog: SqlCatalog, name: str = "db.t") -> list[str]:
    """Every live entry with all its fields but the status, as text that sorts."""
    found = [
        repr([sorted(entry["data_file"].items()), *(entry[name] for name in NUMBERS)])
        for _, entries in manifests(catalog, name)
        for entry in entries
        if entry["status"] != DELETED
    ]
    return sorted(found)


@pytest.mark.requirement("IM-06", "IM-13", "IM-20")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("partitioned", [True, False])
def test_entries_stay_as_they_are(pair: Pair, version: int, partitioned: bool) -> None:
    writer, ours = pair
    many_small_files(writer, commits=4, version=version, partitioned=partitioned)
    before = live(writer)
    action = done(rewrite(ours))
    assert action.results == {"rewritten_manifests_count": 4, "added_manifests_count": 1}
    assert live(writer) == before
    ((manifest, entries),) = manifests(writer)
    assert {entry["status"] for entry in entries} == {0}
    partitions = [tuple(entry["data_file"]["partition"].values()) for entry in entries]
    assert partitions == sorted(partitions)
    assert manifest.raw["existing_files_count"] == len(entries)
    assert manifest.raw["existing_rows_count"] == 40
    assert ids(writer) == [*range(40)]
    assert len(read_duckdb(writer.load_table("db.t").metadata_location, {})) == 40
    told = writer.load_table("db.t").current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    numbers = {key: told[key] for key in told if key.startswith(("manifests-", "entries-", "total-data-files"))}
    assert numbers == {
        "manifests-created": "1",
        "manifests-kept": "0",
        "manifests-replaced": "4",
        "entries-processed": str(len(entries)),
        "total-data-files": str(len(entries)),
    }
    assert "nothing to gain" in rewrite(ours).reason, "what it leaves, it leaves alone"


@pytest.mark.requirement("IM-06")
def test_delete_manifests_too_and_deleted_entries_go(pair: Pair) -> None:
    writer, ours = pair
    many_small_files(writer, commits=4)
    for turn in range(3):
        delete_rows(writer, "db.t", {path: [turn] for path in data_paths(writer)}, per_file=turn % 2 == 0)
    writer.load_table("db.t").delete("id = 39")
    rows, before = ids(writer), live(writer)
    assert any(entry["status"] == DELETED for _, entries in manifests(writer) for entry in entries)
    done(rewrite(ours))
    after = manifests(writer)
    assert sorted(manifest.deletes for manifest, _ in after) == [False, True]
    assert all(entry["status"] == 0 for _, entries in after for entry in entries)
    assert live(writer) == before
    assert ids(writer) == rows


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a=b/c d?e#f%20", None, "é", "", "z+"]),
    "double": (pa.float64(), [None, -0.0, 0.0, -1.5]),
    "float": (pa.float32(), [None, -0.0, 0.0, 2.5]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1.00"), None, Decimal("0.01"), Decimal("900.00"), Decimal("12.00")]),
    "binary": (pa.binary(), [b"\xff", None, b"\x00", b"", b"a"]),
    "boolean": (pa.bool_(), [True, None, False, True, None]),
    "long": (pa.int64(), [-(2**62), None, 0, 7, 2**62]),
}


@pytest.mark.requirement("IM-06")
@pytest.mark.parametrize("kind", VALUES)
def test_odd_partition_values(pair: Pair, kind: str) -> None:
    writer, ours = pair
    arrow, values = VALUES[kind]
    schema = pa.schema([("id", pa.int64()), ("p", arrow)])
    writer.create_namespace_if_not_exists("db")
    table = writer.create_table("db.t", schema, properties={"format-version": "2"})
    with table.update_spec() as update:
        update.add_identity("p")
    # In one append PyIceberg takes -0.0 and 0.0 for one partition, and writes their rows twice.
    numbered = list(enumerate(values))
    batches = [[one] for one in numbered] if kind in ("double", "float") else [numbered]
    for batch in (*batches, *batches):
        columns = [[number for number, _ in batch], pa.array([value for _, value in batch], arrow)]
        writer.load_table("db.t").append(pa.table(columns, schema=schema))
    before = live(writer)
    done(rewrite(ours))
    assert live(writer) == before
    ((manifest, entries),) = manifests(writer)
    assert ids(writer) == sorted([*range(len(values))] * 2)
    partition = [entry["data_file"]["partition"]["p"] for entry in entries]
    nulls = [value is None for value in partition]
    assert nulls == sorted(nulls, reverse=True), "nulls come first"
    summary = manifest.raw["partitions"][0]
    assert summary["contains_null"] is True
    if kind in ("double", "float"):
        signs = [math.copysign(1, value) for value in partition if value == 0]
        assert signs == [-1, -1, 1, 1], "-0.0 comes before 0.0"
        if kind == "double":
            assert summary["upper_bound"] == struct.pack("<d", 0.0), "not -0.0, which would hide files of 0.0"
    if kind == "text":
        for value in (value for value in values if value):
            assert writer.load_table("db.t").scan(row_filter=EqualTo("p", value)).to_arrow().num_rows == 2


@pytest.mark.requirement("IM-06")
def test_a_promoted_partition_column_gives_one_type(pair: Pair) -> None:
    """Manifests of before hold an int, those of after a long; a decimal's bytes are longer after."""
    from pyiceberg.types import DecimalType, LongType

    writer, ours = pair
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("d", pa.decimal128(4, 1))])
    writer.create_namespace_if_not_exists("db")
    table = writer.create_table("db.t", schema, properties={"format-version": "2"})
    with table.update_spec() as update:
        update.add_identity("n")
        update.add_identity("d")

    def add(number: int, n: pa.DataType, d: pa.DataType) -> None:
        columns = [[number], pa.array([-number], n), pa.array([Decimal(f"-{number}.5")], d)]
        writer.load_table("db.t").append(pa.table(columns, names=["id", "n", "d"]))

    for number in range(3):
        add(number, pa.int32(), pa.decimal128(4, 1))
    with writer.load_table("db.t").update_schema() as change:
        change.update_column("n", field_type=LongType())
        change.update_column("d", field_type=DecimalType(20, 1))
    for number in range(3, 6):
        add(number, pa.int64(), pa.decimal128(20, 1))
    done(rewrite(ours))
    ((_, entries),) = manifests(writer)
    assert [entry["data_file"]["partition"]["n"] for entry in entries] == [-5, -4, -3, -2, -1, 0]
    numbers = [int.from_bytes(entry["data_file"]["partition"]["d"], "big", signed=True) for entry in entries]
    assert numbers == [-55, -45, -35, -25, -15, -5]
    assert ids(writer) == [*range(6)]
    assert writer.load_table("db.t").scan(row_filter="n == -2").to_arrow()["id"].to_pylist() == [2]
    assert len(read_duckdb(writer.load_table("db.t").metadata_location, {})) == 6


@pytest.mark.requirement("IM-06")
def test_the_target_size_and_the_spec(pair: Pair) -> None:
    writer, ours = pair
    table = many_small_files(writer, commits=5, partitioned=False)
    with table.transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": "20000"})
    with writer.load_table("db.t").update_spec() as update:
        update.add_identity("p")
    for number in range(5, 7):
        append(writer, "db.t", number * 10, 10)
    before = live(writer)
    action = done(rewrite(ours))
    assert action.results["rewritten_manifests_count"] == 2, "those of the current spec, as in Iceberg"
    assert "spec-id=0" in ours.plan((), REWRITE).tables[0].skipped[0].reason
    old = Request(
        actions=(Action.REWRITE_MANIFESTS,),
        by_action={Action.REWRITE_MANIFESTS: {"spec-id": "0", "use-caching": "true"}},
    )
    assert done(rewrite(ours, old)).results["rewritten_manifests_count"] == 5
    assert live(writer) == before
    for request in (REWRITE, old):
        assert rewrite(ours, request).status is Status.SKIPPED
    wrong = Request(actions=old.actions, by_action={Action.REWRITE_MANIFESTS: {"spec-id": "7"}})
    assert "no partition spec 7" in str(ours.plan((), wrong).tables[0].error)


@pytest.mark.requirement("IM-06", "PF-08")
def test_entries_that_do_not_fit_into_memory_wait_in_a_file(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting_manifests, "_IN_MEMORY", 100)
    writer, ours = pair
    many_small_files(writer, commits=5)
    before = live(writer)
    done(rewrite(ours))
    assert live(writer) == before


@pytest.mark.requirement("IM-06")
def test_several_manifests_hold_neighbours(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_BLOCK_BYTES", 500)
    writer, ours = pair
    table = many_small_files(writer, commits=8)
    with table.transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": "4000"})
    before = live(writer)
    done(rewrite(ours))
    assert live(writer) == before
    found = manifests(writer)
    assert 1 < len(found) < 8
    ranges = [(m.raw["partitions"][0]["lower_bound"], m.raw["partitions"][0]["upper_bound"]) for m, _ in found]
    assert ranges == sorted(ranges)
    assert rewrite(ours).status is Status.SKIPPED


def other(writer: SqlCatalog) -> Lakehouse:
    """A second lakehouse on the same catalog, with a state of its own."""
    folder = Path(writer.properties["warehouse"].removeprefix("file://")).parent / "other"
    folder.mkdir(exist_ok=True)
    properties = {"type": "sql", **{k: v for k, v in writer.properties.items() if k in ("uri", "warehouse")}}
    return lakehouse(folder, properties)


def compact(writer: SqlCatalog) -> None:
    request = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    assert other(writer).maintain((), request).tables[0].status is Status.DONE


def expire(writer: SqlCatalog) -> None:
    table = writer.load_table("db.t")
    first = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()


MEANWHILE: dict[str, tuple[Callable[[SqlCatalog], object], set[int], set[int]]] = {
    "append": (lambda writer: append(writer, "db.t", 100, 10), {*range(100, 110)}, set()),
    "delete of rows": (lambda writer: delete_rows(writer, "db.t", {data_paths(writer)[0]: [0]}), set(), set()),
    "delete of a file": (lambda writer: writer.load_table("db.t").delete("id < 10"), set(), {*range(10)}),
    "compaction": (compact, set(), set()),
    "expiry": (expire, set(), set()),
}


@pytest.mark.requirement("RS-04", "IM-12", "IM-06")
@pytest.mark.parametrize(("what", "attempt"), [*((what, 1) for what in MEANWHILE), ("append", 2), ("compaction", 2)])
def test_what_others_commit_meanwhile_holds(pair: Pair, what: str, attempt: int) -> None:
    writer, ours = pair
    many_small_files(writer, commits=6)
    work, more, fewer = MEANWHILE[what]
    seen: list[list[int]] = []

    def meanwhile(number: int) -> None:
        if number < attempt:
            append(writer, "db.t", 1000, 1)
        if number == attempt:
            work(writer)
            seen.append(ids(writer))

    with before_commit(ours, meanwhile):
        outcome = rewrite(ours)
    if what == "compaction":
        assert outcome.status in (Status.DONE, Status.SKIPPED), outcome
    else:
        done(outcome)
    assert ids(writer) == seen[0]
    assert more <= {*seen[0]}
    assert not fewer & {*seen[0]}
    assert len(read_duckdb(writer.load_table("db.t").metadata_location, {})) == len(seen[0])


@pytest.mark.requirement("IM-06", "RS-04")
def test_an_append_costs_no_second_rewrite(pair: Pair) -> None:
    writer, ours = pair
    many_small_files(writer, commits=6)
    with before_commit(ours, lambda number: append(writer, "db.t", 100, 10) if number == 1 else None):
        action = done(rewrite(ours))
    assert action.actual.attempts == 2
    written = [event for event in ours.audit(table="main.db.t") if "writing" in event.details]
    paths = [path for event in written for path in event.details["writing"]]
    assert len([path for path in paths if path.endswith("-m0.avro")]) == 1, "the manifest of the first attempt stands"
    assert manifests(writer)[0][0].added_snapshot_id == action.snapshot_id


@pytest.mark.requirement("IM-12", "IM-06")
def test_a_lost_answer_is_looked_up(pair: Pair) -> None:
    writer, ours = pair
    many_small_files(writer, commits=3)

    def lose(attempt: int, real: Callable[[], object]) -> object:
        real()
        raise CommitStateUnknownException("the connection was closed")

    with commits(ours, lose):
        action = done(rewrite(ours))
    assert action.snapshot_id == ours.health(())[0].snapshot_id
    assert ids(writer) == [*range(30)]


@pytest.mark.requirement("IM-12", "IM-06")
def test_a_lost_answer_before_a_request_that_never_arrived(pair: Pair) -> None:
    """The second attempt lists the manifests of the first, which may be visible: they are not cleaned up."""
    writer, ours = pair
    many_small_files(writer, commits=3)

    def lose(attempt: int, real: Callable[[], object]) -> object:
        if attempt == 1:
            raise ConnectionResetError("reset")
        return real()

    with commits(ours, lose):
        action = done(rewrite(ours))
    assert action.actual.attempts == 2
    ours.maintain(())
    assert ids(writer) == [*range(30)]
    assert len(manifests(writer)) == 1


@pytest.mark.requirement("IM-12", "IM-06")
def test_a_killed_run_leaves_nothing_behind(pair: Pair, tmp_path: Path) -> None:
    writer, ours = pair
    many_small_files(writer, commits=3)
    metadata = tmp_path / "warehouse" / "db" / "t" / "metadata"
    killed_at_commit(ours, REWRITE)
    append(writer, "db.t", 100, 1)  # nothing of the killed run can become visible any more
    before = {*metadata.iterdir()}
    outcome = ours.maintain(()).tables[0]
    assert outcome.recovered[0].removed_files == 2, "a manifest and a list"
    assert len(before - {*metadata.iterdir()}) == 2
    assert ids(writer) == [*range(30), 100]


@pytest.mark.requirement("IM-13", "IM-06")
def test_an_entry_that_changed_fails_the_action(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ours = pair
    many_small_files(writer, commits=3)
    before = ours.health(())[0].snapshot_id
    real = rewriting_manifests._Sorted.in_order

    def loses_one(self: rewriting_manifests._Sorted) -> Iterator[Any]:
        yield from list(real(self))[1:]

    monkeypatch.setattr(rewriting_manifests._Sorted, "in_order", loses_one)
    outcome = rewrite(ours)
    assert outcome.status is Status.FAILED
    assert f"roll back to snapshot {before}" in outcome.reason
