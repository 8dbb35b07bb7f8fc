"""The Delta log reader on logs written by hand: replay, what may be read for what, references."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.delta import (
    DeltaReferenceKind,
    checkpoints,
    commits,
    find_log,
    is_delta_log_marker,
    table_root_of,
)
from lakehouse_maintenance.delta import references as references_at
from lakehouse_maintenance.delta.listing import CheckpointForm, list_files
from lakehouse_maintenance.model.errors import TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, Storage
from lakehouse_maintenance_tests.delta_logs import (
    DV_PROTOCOL,
    HEADER,
    METADATA,
    PROTOCOL,
    LogWriter,
    add,
    lines,
    remove,
    vector,
)

FIRST_VECTOR = "ab^-aqEH.-t@S}K{vb[*k^"
SECOND_VECTOR = "0000000000000000000000"[:20]


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return LogWriter(tmp_path / "t")


def active(writer: LogWriter, version: int | None = None) -> list[str]:
    return sorted(file.path for file in writer.open().snapshot(version).active())


def tombstones(writer: LogWriter) -> list[str]:
    return sorted(file.path for file in writer.open().snapshot().tombstones())


def named(writer: LogWriter, *kinds: DeltaReferenceKind) -> set[str]:
    """Keys below the table's root."""
    prefix = writer.location.folder_key
    found = writer.open().references()
    return {one.location.key.removeprefix(prefix) for one in found if not kinds or one.kind in kinds}


def test_versions_are_replayed(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"), add("b", stats="{}"))
    writer.commit(remove("a"), add("c"))
    writer.commit(add("a"))
    assert [active(writer, version) for version in range(3)] == [["a", "b"], ["b", "c"], ["a", "b", "c"]]
    assert tombstones(writer) == []
    snapshot = writer.open().snapshot()
    assert snapshot.version == 2
    assert snapshot.metadata.partition_columns == ("p",)
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 2)
    by_path = {file.path: file for file in snapshot.active()}
    assert by_path["b"].has_stats
    assert not by_path["a"].has_stats
    assert by_path["b"].partition_values == {"p": "x"}
    assert by_path["b"].location == writer.location.child("b")


@pytest.mark.parametrize("parts", [1, 3])
def test_a_checkpoint_stands_for_the_commits_before_it(writer: LogWriter, parts: int) -> None:
    writer.commit(*HEADER)
    writer.checkpoint(5, *HEADER, *(add(f"f{number}") for number in range(200)), remove("gone"), parts=parts)
    writer.version = 5
    writer.commit(remove("f7"), add("new"), add("gone"))
    (writer.log / f"{0:020d}.json").unlink()
    found = active(writer)
    assert len(found) == 201
    assert {"new", "gone"} <= set(found)
    assert "f7" not in found
    assert tombstones(writer) == ["f7"]
    assert len(active(writer, 5)) == 200


def test_a_file_is_known_by_its_deletion_vector_too(writer: LogWriter) -> None:
    one, two = vector(FIRST_VECTOR), vector(SECOND_VECTOR)
    writer.commit(DV_PROTOCOL, METADATA, add("a"))
    writer.commit(remove("a"), add("a", one))
    writer.checkpoint(1, DV_PROTOCOL, METADATA, add("a", one), remove("a"))
    writer.commit(remove("a", one), add("a", two))
    snapshot = writer.open().snapshot()
    assert [file.deletion_vector.unique_id for file in snapshot.active() if file.deletion_vector] == [
        f"u{SECOND_VECTOR}@1"
    ]
    assert {file.key[1] for file in snapshot.tombstones()} == {None, f"u{FIRST_VECTOR}@1"}
    assert named(writer, DeltaReferenceKind.DELETION_VECTOR) == {
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "deletion_vector_00000000-0000-0000-0000-000000000000.bin",
    }


def test_an_inline_deletion_vector_is_no_file(writer: LogWriter) -> None:
    writer.commit(DV_PROTOCOL, METADATA, add("a", vector("wi5b=000010000siXQKl0rr91000f", "i", None)))
    assert named(writer, DeltaReferenceKind.DELETION_VECTOR) == set()
    assert [file.deletion_vector is not None for file in writer.open().snapshot().active()] == [True]


@pytest.mark.parametrize("top", ["json", "parquet"])
def test_a_v2_checkpoint_with_sidecars(writer: LogWriter, top: str) -> None:
    writer.commit(*HEADER, add("a"), add("b"), add("c"))
    writer.commit(remove("a"))
    writer.parquet("_sidecars/one.parquet", (add("b"), remove("a")))
    writer.parquet("_sidecars/two.parquet", (add("c"),))
    sidecars = [
        {"sidecar": {"path": f"{name}.parquet", "sizeInBytes": 1, "modificationTime": 1}} for name in ("one", "two")
    ]
    name = f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{top}"
    if top == "json":
        writer.put(name, lines({"checkpointMetadata": {"version": 1}}, *HEADER, *sidecars))
    else:
        writer.parquet(name, (*HEADER, *sidecars))
    for version in (0, 1):
        (writer.log / f"{version:020d}.json").unlink()
    assert writer.open().listing.checkpoints[0].form is CheckpointForm.V2
    assert active(writer) == ["b", "c"]
    assert tombstones(writer) == ["a"]
    assert named(writer) == {
        "a",
        "b",
        "c",
        *(f"_delta_log/{one}" for one in (name, "_sidecars/one.parquet", "_sidecars/two.parquet")),
    }
    (writer.log / "_sidecars/two.parquet").unlink()
    with pytest.raises(TableUnreadableError, match=r"two\.parquet, which is missing"):
        active(writer)


def test_a_sidecar_elsewhere_is_refused(writer: LogWriter) -> None:
    name = f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    writer.parquet("_sidecars/x.parquet", (add("a"),))
    elsewhere = writer.location.key
    for path in (
        "../x.parquet",
        "%2e%2e/x.parquet",
        "_delta_log/x.parquet",
        f"s3://other/{elsewhere}/_delta_log/_sidecars/x.parquet",
    ):
        writer.put(name, lines(*HEADER, {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}))
        with pytest.raises(TableUnreadableError, match=r"sidecar: path.*(is not in|segment)"):
            active(writer)


def test_of_two_checkpoints_of_one_version_the_v2_one_is_read(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    writer.checkpoint(0, *HEADER, add("a"))
    writer.put(f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", lines(*HEADER, add("a")))
    (checkpoint,) = writer.open().listing.checkpoints
    assert checkpoint.form is CheckpointForm.V2
    assert active(writer) == ["a"]


def test_an_incomplete_multi_part_checkpoint_does_not_count(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    writer.commit(add("b"))
    parts = writer.checkpoint(1, *HEADER, add("a"), add("b"), parts=3)
    parts[1].unlink()
    assert active(writer) == ["a", "b"]
    (writer.log / f"{0:020d}.json").unlink()
    for read in (active, named):
        with pytest.raises(TableUnreadableError, match=r"0001\.checkpoint\.0000000002\.0000000003\.parquet"):
            read(writer)


@pytest.mark.parametrize("hint", ['{"version": 900, "size": 1}', "garbage", ""])
def test_the_hint_about_the_last_checkpoint_is_never_trusted(writer: LogWriter, hint: str) -> None:
    writer.commit(*HEADER, add("a"))
    writer.checkpoint(0, *HEADER, add("a"))
    writer.commit(add("b"))
    writer.put("_last_checkpoint", hint)
    assert active(writer) == ["a", "b"]


def test_a_gap_after_the_checkpoint_makes_the_table_unreadable(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    writer.checkpoint(0, *HEADER, add("a"))
    writer.commit(add("b"))
    writer.commit(add("c")).rename(writer.log / f"{3:020d}.json")
    for read in (active, named):
        with pytest.raises(TableUnreadableError, match=r"00000000000000000002\.json: it is missing"):
            read(writer)
    assert active(writer, 1) == ["a", "b"]


def test_a_gap_before_the_checkpoint_leaves_the_version_readable_and_the_references_unknown(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    writer.commit(add("b")).unlink()
    writer.commit(add("c"))
    writer.checkpoint(2, *HEADER, add("a"), add("b"), add("c"))
    assert active(writer) == ["a", "b", "c"]
    with pytest.raises(TableUnreadableError, match=r"00000000000000000001\.json"):
        named(writer)


def test_a_checkpoint_beyond_the_last_commit(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    writer.commit(add("b"))
    writer.checkpoint(3, *HEADER, add("a"), add("b"), add("c"))
    assert active(writer) == ["a", "b", "c"]
    with pytest.raises(TableUnreadableError, match=r"00000000000000000002\.json"):
        named(writer)


def test_checkpoints_alone_are_a_table(writer: LogWriter) -> None:
    writer.checkpoint(3, *HEADER, add("a"))
    assert active(writer) == ["a"]
    assert named(writer, DeltaReferenceKind.DATA) == {"a"}


def test_the_start_of_the_log_is_missing(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a")).unlink()
    writer.commit(add("b"))
    for read in (active, named):
        with pytest.raises(TableUnreadableError, match=r"00000000000000000000\.json"):
            read(writer)


def test_no_version_at_all(writer: LogWriter) -> None:
    writer.put("_last_checkpoint", "{}")
    for read in (active, named):
        with pytest.raises(TableUnreadableError, match="neither a commit nor a complete checkpoint"):
            read(writer)


def test_a_version_that_is_not_there(writer: LogWriter) -> None:
    writer.commit(*HEADER)
    for version in (-1, 1):
        with pytest.raises(TableUnreadableError, match="there is no version"):
            writer.open().snapshot(version)


def test_no_log(tmp_path: Path) -> None:
    assert find_log(Storage({}), Location.parse(str(tmp_path))) is None
    assert list(references_at(Storage({}), Location.parse(str(tmp_path)))) == []
    marker = ObjectInfo(Location.parse("s3://lake/t/_delta_log/"), 0, None)
    assert list_files(Location.parse("s3://lake/t"), [marker]) is None


@pytest.mark.parametrize("missing", [PROTOCOL, METADATA])
def test_a_log_without_protocol_or_metadata(writer: LogWriter, missing: dict[str, object]) -> None:
    writer.commit(*(action for action in HEADER if action is not missing), add("a"))
    with pytest.raises(TableUnreadableError, match=f"has a {next(iter(missing))} action"):
        active(writer)
    if missing is PROTOCOL:
        with pytest.raises(TableUnreadableError, match="has a protocol action"):
            named(writer)
    writer.checkpoint(0, *(action for action in HEADER if action is not missing), add("a"))
    with pytest.raises(TableUnreadableError, match=f"has no {next(iter(missing))} action"):
        active(writer)


def test_references_of_everything_that_is_still_in_the_log(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("p=1/a"), add("s3://other/b%20c"))
    writer.commit(remove("p=1/a"), {"cdc": {"path": "_change_data/c", "size": 3, "dataChange": False}})
    writer.put(f"{0:020d}.{1:020d}.compacted.json", lines(*HEADER, add("compacted")))
    writer.put(f"_staged_commits/{2:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json", lines(add("staged")))
    writer.put(f"{1:020d}.crc", "{}")
    writer.put(".tmp-1", "half")
    found = list(writer.open().references())
    assert {(one.kind.value, one.location.text.rpartition("/t/")[2], one.by.lstrip("0")) for one in found} == {
        ("data", "p=1/a", ".json"),
        ("data", "s3://other/b c", ".json"),
        ("tombstone", "p=1/a", "1.json"),
        ("change_data", "_change_data/c", "1.json"),
        ("data", "compacted", ".00000000000000000001.compacted.json"),
        ("data", "staged", "_staged_commits/00000000000000000002.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"),
        *(
            ("log", "_delta_log/" + name, name.lstrip("0"))
            for name in (
                "00000000000000000000.json",
                "00000000000000000001.json",
                "00000000000000000001.crc",
                "00000000000000000000.00000000000000000001.compacted.json",
                "_staged_commits/00000000000000000002.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
                ".tmp-1",
            )
        ),
    }
    assert list(references_at(Storage({}), writer.location)) == found


def test_the_oldest_checkpoint_names_what_no_commit_names_any_more(writer: LogWriter) -> None:
    """A tombstone that later checkpoints have dropped is still named by one that is there."""
    writer.commit(*HEADER, add("early"), add("kept"))
    writer.commit(remove("early"))
    writer.checkpoint(1, *HEADER, add("kept"), remove("early"))
    writer.commit(add("late"))
    writer.checkpoint(2, *HEADER, add("kept"), add("late"))
    (writer.log / f"{0:020d}.json").unlink()
    (writer.log / f"{1:020d}.json").unlink()
    assert named(writer, DeltaReferenceKind.TOMBSTONE) == {"early"}
    assert named(writer, DeltaReferenceKind.DATA) == {"kept", "late"}


def test_the_newest_checkpoint_is_read_even_where_every_commit_is_there(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    (path,) = writer.checkpoint(0, *HEADER, add("a"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableUnreadableError, match=r"0000\.checkpoint\.parquet"):
        named(writer)


def test_the_newest_checkpoint_is_read_beside_the_oldest(writer: LogWriter) -> None:
    writer.version = 4
    writer.commit(add("a"))
    writer.checkpoint(5, *HEADER, add("a"))
    writer.commit(add("b"))
    (path,) = writer.checkpoint(6, *HEADER, add("a"), add("b"))
    assert named(writer, DeltaReferenceKind.DATA) == {"a", "b"}
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableUnreadableError, match=r"0006\.checkpoint\.parquet"):
        named(writer)


@pytest.mark.parametrize("name", ["someNewFeature", "catalogManaged", "adaptiveMetadata-preview"])
def test_an_unknown_reader_feature_is_reported_and_nothing_is_concluded(writer: LogWriter, name: str) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [name], "writerFeatures": [name]}
    writer.commit({"protocol": features}, METADATA, add("a"))
    assert writer.open().snapshot().unsupported == (name,)
    with pytest.raises(UnsupportedError, match=name):
        named(writer)
    # Neither does the checkpoint hide it, once the commit is gone.
    writer.checkpoint(0, {"protocol": features}, METADATA, add("a"))
    (writer.log / f"{0:020d}.json").unlink()
    with pytest.raises(UnsupportedError, match=name):
        named(writer)


def test_commits_in_a_coordinator_are_a_feature_by_name(writer: LogWriter) -> None:
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["coordinatedCommits-preview"]}
    writer.commit({"protocol": features}, METADATA, add("a"))
    assert writer.open().snapshot().unsupported == ("coordinatedCommits-preview",)


def test_a_newer_reader_version_is_unknown(writer: LogWriter) -> None:
    writer.commit({"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}, METADATA)
    assert writer.open().snapshot().unsupported == ("reader version 4",)


def test_writer_features_need_not_be_known(writer: LogWriter) -> None:
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["someNewFeature", "appendOnly"]}
    writer.commit({"protocol": features}, METADATA, add("a"))
    snapshot = writer.open().snapshot()
    assert snapshot.unsupported == ()
    assert snapshot.protocol.features == {"someNewFeature", "appendOnly"}
    assert "a" in named(writer)


def test_where_the_other_formats_metadata_lies(writer: LogWriter) -> None:
    configuration = {"delta.universalFormat.enabledFormats": "iceberg, HUDI"}
    writer.commit(*HEADER)
    assert writer.open().snapshot().iceberg_metadata is None
    writer.commit({"metaData": METADATA["metaData"] | {"configuration": configuration}})
    snapshot = writer.open().snapshot()
    assert snapshot.metadata.universal_formats == ("hudi", "iceberg")
    assert snapshot.iceberg_metadata == writer.location.child("metadata")
    assert snapshot.hudi_metadata == writer.location.child(".hoodie")


def test_the_token_changes_with_the_log_alone(writer: LogWriter) -> None:
    writer.commit(*HEADER)
    before = writer.open().token
    (writer.root / "data.parquet").write_bytes(b"x")
    assert writer.open().token == before
    written = writer.commit(add("a"))
    assert writer.open().token != before
    written.unlink()
    assert writer.open().token == before


def test_each_fact_of_a_listing_counts_in_the_token() -> None:
    root, name = Location.parse("s3://lake/t"), "_delta_log/00000000000000000000.json"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    looks = [
        ObjectInfo(root.child(*name.split("/")), 1, at, "e"),
        ObjectInfo(root.child("_delta_log", "00000000000000000001.json"), 1, at, "e"),
        ObjectInfo(root.child(*name.split("/")), 2, at, "e"),
        ObjectInfo(root.child(*name.split("/")), 1, at + timedelta(seconds=1), "e"),
        ObjectInfo(root.child(*name.split("/")), 1, None, "e"),
        ObjectInfo(root.child(*name.split("/")), 1, at, "f"),
    ]
    tokens = {listing.token for info in looks if (listing := list_files(root, [info])) is not None}
    assert len(tokens) == len(looks)


def test_large_files_are_read_in_pieces(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.commit(*HEADER, *(add(f"f{number}é") for number in range(50)))
    writer.checkpoint(0, *HEADER, *(add(f"f{number}é") for number in range(50)))
    writer.commit(*(add(f"g{number}é") for number in range(50)))
    whole = active(writer)
    monkeypatch.setattr(commits, "WHOLE_BELOW", 0)
    monkeypatch.setattr(commits, "PIECE", 7)
    monkeypatch.setattr(checkpoints, "WHOLE_BELOW", 0)
    assert active(writer) == whole
    assert len(whole) == 100


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("s3://lake/db/t/_delta_log/00000000000000000000.json", "s3://lake/db/t"),
        ("s3://lake/db/t/_delta_log/_sidecars/x.parquet", "s3://lake/db/t"),
        ("s3://lake/db/t/_delta_log/", "s3://lake/db/t"),
        ("s3://lake/_delta_log/x", "s3://lake/"),
        ("/data/t/_delta_log/x/_delta_log/y", "/data/t"),
        ("s3://lake/db/t/_delta_log", None),
        ("s3://lake/db/t/my_delta_log/x", None),
        ("s3://lake/db/t/_delta_log_$folder$", None),
    ],
)
def test_markers_in_a_listing(text: str, root: str | None) -> None:
    location = Location.parse(text)
    assert is_delta_log_marker(location) == (root is not None)
    assert table_root_of(location) == (None if root is None else Location.parse(root))


def test_two_files_of_one_version(writer: LogWriter) -> None:
    writer.commit(*HEADER)
    writer.put("0.json", lines(*HEADER))
    with pytest.raises(TableUnreadableError, match="version 0"):
        writer.open()


def test_a_log_that_is_cleaned_while_it_is_read(writer: LogWriter) -> None:
    writer.commit(*HEADER, add("a"))
    writer.checkpoint(0, *HEADER, add("a"))
    log = writer.open()
    snapshot = log.snapshot()
    shutil.rmtree(writer.log)
    with pytest.raises(TableUnreadableError, match="went while"):
        list(snapshot.active())
    with pytest.raises(TableUnreadableError, match="went while"):
        list(log.references())
