"""Manifests and manifest lists written by the spec (Iceberg spec: Manifests, Manifest Lists, Appendix A and D)."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from lakehouse_maintenance.iceberg.avro import write_container
from lakehouse_maintenance.iceberg.fields import ADDED, DELETED, EXISTING, AvroType, entry_schema, manifest_list_schema
from lakehouse_maintenance.iceberg.metadata import Metadata

Put = Callable[[str, bytes], None]
"""Writes one new object; must fail where it exists."""

_V1_BLOCK_SIZE = 64 << 20


def write_manifest(
    put: Put,
    path: str,
    metadata: Metadata,
    spec_id: int,
    content: int,
    partition: AvroType,
    entries: Sequence[dict[str, Any]],
    snapshot_id: int,
) -> dict[str, Any]:
    """Writes one manifest; returns its row for the manifest list, sequence numbers left to `write_manifest_list`.

    `entries`: with every inherited value filled in, but for ADDED ones, which inherit from the list. `content`: 0 for
    data, 1 for deletes.
    """
    version = metadata.format_version
    if version == 1:
        for entry in entries:
            entry["data_file"].setdefault("block_size_in_bytes", _V1_BLOCK_SIZE)
    header = manifest_header(metadata, spec_id, content)
    data = write_container(entries, entry_schema(version, partition), header)
    put(path, data)
    row: dict[str, Any] = {
        "manifest_path": path,
        "manifest_length": len(data),
        "partition_spec_id": spec_id,
        "content": content,
        "sequence_number": None,
        "min_sequence_number": _lowest_sequence_number(entries),
        "added_snapshot_id": snapshot_id,
        "partitions": partition_summaries(partition, [entry["data_file"]["partition"] for entry in entries]),
        "key_metadata": None,
        "first_row_id": None,
    }
    for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        records = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == status]
        row[f"{name}_files_count"] = len(records)
        row[f"{name}_rows_count"] = sum(records)
    return row


def manifest_header(metadata: Metadata, spec_id: int, content: int) -> dict[str, str]:
    """Key-value metadata of a manifest (Iceberg spec: Manifests)."""
    header = {
        "schema": json.dumps(metadata.current_schema),
        "schema-id": str(metadata.raw.get("current-schema-id", 0)),
        "partition-spec": json.dumps(metadata.specs[spec_id]),
        "partition-spec-id": str(spec_id),
        "format-version": str(metadata.format_version),
    }
    if metadata.format_version > 1:
        header["content"] = "deletes" if content else "data"
    return header


def write_manifest_list(
    put: Put,
    path: str,
    metadata: Metadata,
    rows: Sequence[dict[str, Any]],
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int | None,
) -> int:
    """Writes a snapshot's manifest list. Rows of new manifests get the snapshot's sequence number.

    Version 3 (Row Lineage; Java's ManifestListWriter): data manifests without a first row id get the next free ones,
    new manifests as well as those from before the upgrade. Returns how many ids that takes: the snapshot's `added-rows`
    (0 in earlier versions).
    """
    complete = [
        {
            **row,
            "sequence_number": _or(row["sequence_number"], sequence_number or 0),
            "min_sequence_number": _or(row["min_sequence_number"], sequence_number or 0),
        }
        for row in rows
    ]
    numbered = 0
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "format-version": str(metadata.format_version),
    }
    if metadata.format_version > 1:
        header["sequence-number"] = str(sequence_number)
    if metadata.format_version > 2:
        first = metadata.next_row_id
        if first is None:
            raise ValueError("metadata of format version 3 needs next-row-id")
        header["first-row-id"] = str(first)
        for row in complete:
            if row["content"] == 0 and row["first_row_id"] is None:
                row["first_row_id"] = first + numbered
                # Existing files from before the upgrade have no ids of their own, and take some of these.
                numbered += row["added_rows_count"] + row["existing_rows_count"]
    put(path, write_container(complete, manifest_list_schema(metadata.format_version), header))
    return numbered


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _lowest_sequence_number(entries: Sequence[dict[str, Any]]) -> int | None:
    """Over live entries; None where they are all to inherit the snapshot's own."""
    known = [e["sequence_number"] for e in entries if e["status"] != DELETED and e["sequence_number"] is not None]
    return min(known, default=None)


def partition_summaries(partition: AvroType, tuples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A manifest list's `partitions` for entries with these raw partition tuples."""
    summaries: list[dict[str, Any]] = []
    for field in (partition or {}).get("fields", ()):
        values = [values[field["name"]] for values in tuples]
        present = [value for value in values if value is not None]
        ordered = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
        order = _order_of(field["type"])
        summaries.append(
            {
                "contains_null": len(present) < len(values),
                "contains_nan": len(ordered) < len(present),
                "lower_bound": _single_value(field["type"], min(ordered, key=order)) if ordered else None,
                "upper_bound": _single_value(field["type"], max(ordered, key=order)) if ordered else None,
            }
        )
    return summaries


def _plain(avro_type: AvroType) -> AvroType:
    if isinstance(avro_type, list):
        return next((branch for branch in avro_type if branch != "null"), avro_type)
    return avro_type


def _order_of(avro_type: AvroType) -> Callable[[Any], Any]:
    plain = _plain(avro_type)
    if isinstance(plain, dict) and plain.get("logicalType") == "decimal":
        return lambda value: int.from_bytes(value, "big", signed=True)
    if plain in ("float", "double"):
        # -0.0 comes before 0.0, as in Java: an upper bound of -0.0 would hide files of 0.0.
        return lambda value: (value, math.copysign(1.0, value))
    # Text is ordered by its UTF-8 bytes, as other readers prune by them.
    return lambda value: value.encode() if isinstance(value, str) else value


def _single_value(avro_type: AvroType, value: Any) -> bytes:
    """Binary single-value serialisation (spec, Appendix D)."""
    plain = _plain(avro_type)
    kind = plain["type"] if isinstance(plain, dict) else plain
    if kind == "boolean":
        return b"\x01" if value else b"\x00"
    if kind == "string":
        return str(value).encode()
    formats = {"int": "<i", "long": "<q", "float": "<f", "double": "<d"}
    if kind in formats:
        return struct.pack(formats[kind], value)
    if isinstance(plain, dict) and plain.get("logicalType") == "decimal":
        number = int.from_bytes(value, "big", signed=True)
        magnitude = number if number >= 0 else ~number
        return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
    return bytes(value)
