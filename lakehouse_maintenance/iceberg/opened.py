"""From manifest lists and live files to what a query on one partition opens (IM-21); the counting is model.openings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakehouse_maintenance.iceberg.manifests import ManifestFile
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.iceberg.values import column_types, comparable, partition_values
from lakehouse_maintenance.model.openings import UNKNOWN, FieldRange, PartitionCount, SpecManifests

PartitionId = tuple[int, str]
"""Spec and canonical tuple, as in LiveFile."""


def spec_manifests(
    metadata: Metadata, manifests: Iterable[ManifestFile], partitions: Mapping[PartitionId, PartitionCount]
) -> list[SpecManifests]:
    """`manifests`: those that hold live files. One entry for each partition spec that any of them has."""
    types = _field_types(metadata)
    found: dict[int, SpecManifests] = {}
    for manifest in manifests:
        spec = found.setdefault(manifest.spec_id, SpecManifests())
        spec.ranges.append(_ranges(manifest, types.get(manifest.spec_id, [])))
        if manifest.deletes:
            spec.delete_manifests += 1
            spec.delete_bytes += manifest.length
        else:
            spec.data_manifests += 1
            spec.data_bytes += manifest.length
    for (spec_id, spelled), count in partitions.items():
        if spec_id in found:
            found[spec_id].partitions[partition_values(spelled)] = count
    return list(found.values())


def _ranges(manifest: ManifestFile, types: Sequence[str | None]) -> list[FieldRange] | None:
    summaries = manifest.raw.get("partitions")
    if not summaries:
        return None
    return [_range(one, types[at] if at < len(types) else None) for at, one in enumerate(summaries)]


def _range(summary: Mapping[str, Any], kind: str | None) -> FieldRange:
    low, high = summary.get("lower_bound"), summary.get("upper_bound")
    has_null = bool(summary.get("contains_null", True))
    # Writers from before version 2 do not tell of NaN.
    has_nan = summary.get("contains_nan") is not False
    if low is None or high is None:
        return FieldRange(has_null=has_null, has_nan=has_nan)
    if kind is None:
        return UNKNOWN
    least, greatest = comparable(kind, low), comparable(kind, high)
    if least is None or greatest is None:
        return UNKNOWN
    return FieldRange(least, greatest, has_null, has_nan)


def _field_types(metadata: Metadata) -> dict[int, list[str | None]]:
    """Type of each partition field's values, by spec; None where the source column is not known any more."""
    columns = column_types(metadata.raw)

    def of(field: Mapping[str, Any]) -> str | None:
        return _result_type(str(field["transform"]), columns.get(int(field.get("source-id", -1))))

    return {spec_id: [of(field) for field in fields] for spec_id, fields in metadata.specs.items()}


def _result_type(transform: str, source: str | None) -> str | None:
    if transform == "identity" or transform.startswith("truncate"):
        return source
    if transform.startswith("bucket") or transform in ("year", "month", "day", "hour"):
        return "int"
    return None
