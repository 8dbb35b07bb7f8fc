"""Partition ranges of manifests, from the summaries in manifest lists (Iceberg spec: Manifest Lists, Appendix D)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lakehouse_maintenance.iceberg.manifests import ManifestFile
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.manifests import NAN_KEY, NULL_KEY, ManifestFacts, Range, sort_key

_NUMBERS = {"year": "int", "month": "int", "day": "int", "hour": "int"}
_FORMATS = {"int": "<i", "date": "<i", "long": "<q", "time": "<q", "float": "<f", "double": "<d", "boolean": "<?"}


def manifest_facts(metadata: Metadata, manifests: Iterable[ManifestFile]) -> list[ManifestFacts]:
    """What planning needs of them."""
    kinds = {spec_id: _kinds(metadata, spec_id) for spec_id in metadata.specs}
    return [
        ManifestFacts(
            path=manifest.path,
            size=manifest.length,
            spec_id=manifest.spec_id,
            deletes=manifest.deletes,
            live_files=manifest.live_files,
            ranges=_ranges(manifest.raw.get("partitions"), kinds.get(manifest.spec_id)),
        )
        for manifest in manifests
    ]


def _kinds(metadata: Metadata, spec_id: int) -> list[tuple[int, Callable[[bytes], Any]]] | None:
    """Position in the spec, and how a bound is read, of each field that divides; None where a type is not known."""
    found: list[tuple[int, Callable[[bytes], Any]]] = []
    for position, field in enumerate(metadata.specs[spec_id]):
        transform = str(field["transform"])
        if transform == "void":
            continue
        kind = _NUMBERS.get(transform) or ("int" if transform.startswith("bucket") else _type_of(metadata, field))
        if kind is None:
            return None
        found.append((position, _reader_of(kind)))
    return found


def _type_of(metadata: Metadata, field: dict[str, Any]) -> str | None:
    """The source column's newest type: bounds of before a promotion are told apart by their length."""
    schemas = metadata.raw.get("schemas") or [metadata.raw.get("schema") or {}]
    for schema in sorted(schemas, key=lambda one: int(one.get("schema-id", 0)), reverse=True):
        kind = _find(schema.get("fields", ()), field.get("source-id"))
        if kind is not None:
            return kind
    return None


def _find(fields: Iterable[dict[str, Any]], field_id: Any) -> str | None:
    for field in fields:
        if field["id"] == field_id and isinstance(field["type"], str):
            return str(field["type"])
        if isinstance(field["type"], dict) and field["type"].get("type") == "struct":
            found = _find(field["type"]["fields"], field_id)
            if found is not None:
                return found
    return None


def _reader_of(kind: str) -> Callable[[bytes], Any]:
    if kind.startswith("decimal"):
        return lambda data: int.from_bytes(data, "big", signed=True)
    if kind.startswith("timestamp"):
        kind = "long"
    if kind not in _FORMATS:
        return bytes
    if kind in ("int", "long"):
        return lambda data: int.from_bytes(data, "little", signed=True)
    if kind in ("float", "double"):
        return lambda data: struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    return lambda data: struct.unpack(_FORMATS[kind], data)[0]


def _ranges(
    summaries: Sequence[dict[str, Any]] | None, kinds: Sequence[tuple[int, Callable[[bytes], Any]]] | None
) -> tuple[Range, ...] | None:
    if kinds is None or (kinds and not summaries):
        return None
    ranges: list[Range] = []
    for position, read in kinds:
        assert summaries is not None, "there are kinds, so there are summaries"
        if position >= len(summaries):
            return None
        found = _range(summaries[position], read)
        if found is None:
            return None
        ranges.append(found)
    return tuple(ranges)


def _range(summary: dict[str, Any], read: Callable[[bytes], Any]) -> Range | None:
    """None where the summary tells nothing, or what cannot be read."""
    keys: list[tuple[Any, ...]] = []
    if summary["contains_null"]:
        keys.append(NULL_KEY)
    try:
        keys += [sort_key(read(summary[name])) for name in ("lower_bound", "upper_bound") if summary[name] is not None]
    except (struct.error, ValueError):
        return None
    if summary.get("contains_nan"):
        keys.append(NAN_KEY)
    return Range(min(keys), max(keys)) if keys else None
