"""Tables written by Spark with Delta: our reading of their logs is Spark's own, version by version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest

from lakehouse_maintenance.delta import DeltaLog, DeltaReferenceKind, find_log, is_delta_log_marker, table_root_of
from lakehouse_maintenance.delta.listing import CheckpointForm
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.clients import client_for
from lakehouse_maintenance_tests.golden_delta.fixture import FOLDER, WRITTEN_AT, expected, table_folder
from lakehouse_maintenance_tests.services.s3 import S3Server

TABLES = sorted(expected())
HERE = f"{FOLDER}/warehouse"


def opened(name: str) -> DeltaLog:
    log = find_log(Storage({}), Location.parse(str(table_folder(name))))
    assert log is not None
    return log


def as_written(location: Location) -> str:
    """The path as Spark recorded it, wherever the golden folder lies now."""
    return location.local_path.removeprefix(HERE + "/").removeprefix(WRITTEN_AT + "/")


def is_stray(path: str) -> bool:
    """Spark's DELETE in `clone` took every row of a file: it removed the file, and left the vector that it had written
    before it knew, without naming it anywhere.
    """
    return "clone/deletion_vector_" in path


def files_of(actions: Any) -> list[tuple[str, str | None, str | None]]:
    found = []
    for file in actions:
        vector = file.deletion_vector
        place = None if vector is None or vector.location is None else as_written(vector.location)
        found.append((as_written(file.location), place, vector and vector.unique_id.replace(f"{WRITTEN_AT}/", "")))
    return sorted(found, key=str)


def recorded(files: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    return sorted(((file["path"], file["vector"], file["vector_id"]) for file in files), key=str)


@pytest.mark.parametrize("name", TABLES)
def test_every_version_is_what_spark_sees(name: str) -> None:
    log, right = opened(name), expected()[name]
    assert log.latest_version == right["latest"]
    for version, files in right["versions"].items():
        assert files_of(log.snapshot(int(version)).active()) == recorded(files), version


@pytest.mark.parametrize("name", TABLES)
def test_the_latest_version_is_described_as_spark_does(name: str) -> None:
    right = expected()[name]
    snapshot = opened(name).snapshot()
    assert files_of(snapshot.tombstones()) == recorded(right["tombstones"])
    assert set(right["read_of_latest"]) <= {as_written(file.location) for file in snapshot.active()}
    assert snapshot.metadata.id == right["id"]
    assert snapshot.unsupported == ()
    protocol = snapshot.protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (
        right["reader_version"],
        right["writer_version"],
    )
    if protocol.min_writer_version >= 7:
        assert sorted(protocol.features) == right["features"]


@pytest.mark.parametrize("name", TABLES)
def test_references_are_every_file_of_the_table(name: str) -> None:
    """Whatever Spark left in the folder is referenced, and so is all that any version consists of."""
    log, right = opened(name), expected()[name]
    references = {as_written(one.location) for one in log.references()}
    folder = table_folder(name)
    lying = {f"{name}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*") if path.is_file()}
    assert {path for path in lying - references if not is_stray(path)} == set()
    for files in (*right["versions"].values(), right["tombstones"]):
        for file in files:
            assert {file["path"], file["vector"]} - {None} <= references


def test_the_tables_hold_what_they_are_there_for() -> None:
    """A table written anew must still show its feature."""
    forms = {name: {checkpoint.form for checkpoint in opened(name).listing.checkpoints} for name in TABLES}
    assert CheckpointForm.CLASSIC in forms["vectors"] & forms["mapped"] & forms["cleaned"] & forms["clone"]
    assert CheckpointForm.MULTI_PART in forms["multi_part"]
    for name, top in (("v2_json", "json"), ("v2_parquet", "parquet")):
        (checkpoint,) = opened(name).listing.checkpoints
        assert checkpoint.form is CheckpointForm.V2
        assert checkpoint.files[0].location.text.endswith(top)
        assert sum("_sidecars/" in file for file in opened(name).listing.files) > 1
    kinds = {name: {one.kind for one in opened(name).references()} for name in TABLES}
    assert DeltaReferenceKind.CHANGE_DATA in kinds["changes"]
    for name in ("vectors", "vectors_prefixed", "v2_json", "v2_parquet", "clone", "clone_of_space"):
        assert DeltaReferenceKind.DELETION_VECTOR in kinds[name]
    assert 0 not in opened("cleaned").listing.commits
    assert not all(file.has_stats is False for file in opened("cleaned").snapshot().active())
    for name in ("clone", "clone_of_odd", "clone_of_space"):
        outside = [one for one in opened(name).references() if not opened(name).root.contains(one.location)]
        assert outside
        assert all(one.location.local_path.startswith(WRITTEN_AT + "/") for one in outside)
    prefixed = [file.deletion_vector for file in opened("vectors_prefixed").snapshot().active()]
    assert any(vector and vector.location and len(vector.location.segments[-2]) == 2 for vector in prefixed)


def test_partition_values_come_raw() -> None:
    from lakehouse_maintenance_tests.golden_delta.statements import PARTITION_VALUES

    values = {file.partition_values["p"] for file in opened("odd_partitions").snapshot(1).active()}
    # Delta takes an empty text for null.
    assert values == {*PARTITION_VALUES, None}


@pytest.mark.parametrize("name", ["vectors", "clone", "changes", "v2_json", "odd_partitions", "name with%20space"])
def test_on_object_storage(name: str, s3: S3Server) -> None:
    """The same log under s3://: relative paths lead into the bucket, absolute ones stay where they are."""
    bucket, folder = s3.bucket(), table_folder(name)
    keys = {f"lake/{name}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*") if path.is_file()}
    client = client_for(Location.parse(f"s3://{bucket}/"), s3.properties)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda item: obstore.put(client, item[0], item[1].read_bytes()), keys.items()))
    storage = Storage(s3.properties)
    root = Location.parse(f"s3a://{bucket}/lake/{name}")
    log = find_log(storage, root)
    assert log is not None
    local = {(one.kind, one.by, as_written(one.location)) for one in opened(name).references()}
    remote = set()
    for one in log.references():
        inside = one.location.family == "s3"
        path = one.location.key.removeprefix("lake/") if inside else as_written(one.location)
        remote.add((one.kind, one.by, path))
    assert remote == local
    listed = [info.location for batch in storage.list(root) for info in batch]
    assert {table_root_of(location) for location in listed if is_delta_log_marker(location)} == {root}
    found = {one.location for one in log.references()}
    assert {location.text for location in listed if location not in found and not is_stray(location.text)} == set()
    again = find_log(storage, root)
    assert again is not None
    assert again.token == log.token


def test_generated_logs_are_small() -> None:
    assert sum(path.stat().st_size for path in Path(HERE).rglob("*") if path.is_file()) < 1_000_000
