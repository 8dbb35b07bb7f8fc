"""Entries copied as they are encoded: equal to what a reader makes of them, whatever schema they were written in."""

from __future__ import annotations

from typing import Any

import pytest

from lakehouse_maintenance.iceberg.avro import ContainerWriter, read_body, read_container, write_container
from lakehouse_maintenance.iceberg.fields import ADDED, DELETED, EXISTING, entry_schema
from lakehouse_maintenance.iceberg.manifests import ManifestFile, _inherited
from lakehouse_maintenance.iceberg.splicing import layout
from lakehouse_maintenance.model.errors import UnsupportedError

PARTITION = {"type": "record", "name": "r102", "fields": [{"name": "p", "type": ["null", "string"], "field-id": 1000}]}


def entry(path: str, status: int = ADDED, **numbers: Any) -> dict[str, Any]:
    record = {
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {"p": path[:1]},
        "record_count": 10,
        "file_size_in_bytes": 99,
        "block_size_in_bytes": 1,
        "column_sizes": [{"key": key, "value": 1 << key} for key in range(1, 40)],
        "lower_bounds": [{"key": key, "value": b"x" * (key * 7)} for key in range(1, 20)],
        "split_offsets": [4, 1 << 40],
        "first_row_id": numbers.pop("first_row_id", None),
    }
    names = ("snapshot_id", "sequence_number", "file_sequence_number")
    return {"status": status, **{name: numbers.get(name) for name in names}, "data_file": record}


def listed(records: int, **more: Any) -> ManifestFile:
    raw = {
        "manifest_path": "m",
        "manifest_length": 1,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 7,
        "min_sequence_number": 1,
        "added_snapshot_id": 70,
        "added_files_count": records,
        "existing_files_count": 0,
    }
    return ManifestFile.from_raw({**raw, **more})


def spliced(data: bytes, manifest: ManifestFile, version: int) -> list[dict[str, Any]]:
    """Decoded again, as of a manifest that gives nothing to inherit."""
    body = read_body(data)
    made = layout(body.schema, version)
    writer = ContainerWriter(entry_schema(version, made.partition), {})
    for one in made.live(manifest, body):
        writer.add(one.before, one.partition, one.after)
    return read_container(writer.finish()).records


def inherited(data: bytes, manifest: ManifestFile) -> list[dict[str, Any]]:
    found = [e for e in _inherited(read_container(data).records, manifest) if e["status"] != DELETED]
    for one in found:
        one["status"] = EXISTING
        del one["data_file"]["spec_id"]
    return found


def same(left: list[dict[str, Any]], right: list[dict[str, Any]], version: int) -> None:
    """All fields of the version; what the writer's schema lacked is null."""
    names = {field["name"] for field in entry_schema(version, PARTITION)["fields"][-1]["type"]["fields"]}
    for one, other in zip(left, right, strict=True):
        for name in names:
            assert one["data_file"].get(name) == other["data_file"].get(name), name
        for name in ("status", "snapshot_id", *(("sequence_number", "file_sequence_number") if version > 1 else ())):
            assert one[name] == other[name], name


ENTRIES = [
    entry("a"),
    entry("b", EXISTING, snapshot_id=5, sequence_number=2, file_sequence_number=3, first_row_id=1000),
    entry("c", DELETED, snapshot_id=6, sequence_number=2),
    entry("d", snapshot_id=70, sequence_number=4),
    entry("e", EXISTING, snapshot_id=5, sequence_number=2),
]


@pytest.mark.requirement("IM-06")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("written", [2, 3])
def test_inherited_values_are_written_out(version: int, written: int) -> None:
    if written > version:
        return
    data = write_container(ENTRIES, entry_schema(written, PARTITION), {})
    manifest = listed(4, first_row_id=500 if version > 2 else None)
    found = spliced(data, manifest, version)
    same(found, inherited(data, manifest), version)
    if version > 2:
        ids = [one["data_file"]["first_row_id"] for one in found]
        assert ids == ([500, 1000, 510, 520] if written > 2 else [500, 510, 520, 530])


@pytest.mark.requirement("IM-06")
@pytest.mark.parametrize("version", [1, 2])
def test_a_manifest_of_version_1(version: int) -> None:
    entries = [entry("a", snapshot_id=1), entry("b", EXISTING, snapshot_id=2)]
    data = write_container(entries, entry_schema(1, PARTITION), {})
    manifest = listed(2, sequence_number=0)
    if version == 2:
        with pytest.raises(UnsupportedError, match="does not know"):
            spliced(_with_unknown(entries), manifest, 2)
    found = spliced(data, manifest, version)
    same(found, inherited(data, manifest), version)


def _with_unknown(entries: list[dict[str, Any]]) -> bytes:
    """A field that our schema lacks: to copy the rest would lose it."""
    schema = entry_schema(1, PARTITION)
    extra = {"name": "later", "type": "long", "field-id": 199}
    record = schema["fields"][-1]["type"]
    record["fields"] = [*record["fields"], extra]
    return write_container([{**e, "data_file": {**e["data_file"], "later": 1}} for e in entries], schema, {})


@pytest.mark.requirement("IM-06")
def test_fields_in_another_order_and_of_another_optionality() -> None:
    schema = entry_schema(2, PARTITION)
    record = schema["fields"][-1]["type"]
    last = [f for f in record["fields"] if f["name"] not in ("referenced_data_file", "sort_order_id")]
    record["fields"] = [*last[5:], *last[:5], {"name": "sort_order_id", "type": "int", "field-id": 140}]
    entries = [{**e, "data_file": {**e["data_file"], "sort_order_id": 3}} for e in ENTRIES]
    data = write_container(entries, schema, {})
    manifest = listed(4)
    found = spliced(data, manifest, 2)
    same(found, inherited(data, manifest), 2)
    assert {one["data_file"]["sort_order_id"] for one in found} == {3}


@pytest.mark.requirement("IM-06")
def test_damage_is_told() -> None:
    data = write_container(ENTRIES, entry_schema(2, PARTITION), {})
    with pytest.raises(ValueError, match="counts 5"):
        spliced(data, listed(5), 2)
    odd = [entry("a", EXISTING, snapshot_id=1)]
    with pytest.raises(ValueError, match="no sequence number"):
        spliced(write_container(odd, entry_schema(2, PARTITION), {}), listed(1), 2)
