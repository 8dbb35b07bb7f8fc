"""The columns by which a table's files should be in order, and their bounds, file by file (IM-15).

Bounds are read once for each manifest and remembered beside what else is read of it: a second look costs only the
manifests that are new since.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.iceberg.fields import DELETED, STATISTICS
from lakehouse_maintenance.iceberg.manifests import (
    Entries,
    ManifestFile,
    ManifestReader,
    manifest_key,
    partition_spelling,
)
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.iceberg.values import column_ids, column_types, comparable
from lakehouse_maintenance.model.overlap import Box, Overlap, overlap

_ORDERED = ("identity", "year", "month", "day", "hour")
"""Transforms that keep the order of their source; `truncate[…]` does too."""
_SKIPPED = STATISTICS - {"lower_bounds", "upper_bounds"}
_BATCH = 64

_Row = tuple[int, str, tuple[tuple[bytes, bytes] | None, ...]]
"""Spec, partition, and for each column its lower and upper bound."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the sort order that is in force: field id and Iceberg type."""

    field_id: int
    type: str


def key_columns(metadata: Metadata, strategy: str, sort_order: str | None) -> tuple[KeyColumn, ...]:
    """The policy's, where its strategy sorts; else those of the table's own sort order; empty where there is none.

    Of a table's order, the leading columns whose transform keeps their order. A column that the table does not have
    makes the policy's order one that cannot be measured: planning tells what is wrong with it.
    """
    types = column_types(metadata.raw)
    if strategy != "binpack" and sort_order is not None:
        ids = column_ids(metadata.raw)
        folded = {name.lower(): field_id for name, field_id in ids.items()}
        named = [ids.get(name, folded.get(name.lower())) for name in _columns(sort_order)]
        if any(field_id not in types for field_id in named):
            return ()
        return tuple(KeyColumn(field_id, types[field_id]) for field_id in named if field_id is not None)
    default = metadata.raw.get("default-sort-order-id", 0)
    orders = [order for order in metadata.raw.get("sort-orders") or () if order.get("order-id") == default]
    found: list[KeyColumn] = []
    for field in orders[0].get("fields") or () if orders and default != 0 else ():
        transform, field_id = str(field.get("transform")), field.get("source-id")
        if field_id not in types or not (transform in _ORDERED or transform.startswith("truncate")):
            break
        found.append(KeyColumn(int(field_id), types[field_id]))
    return tuple(found)


def _columns(order: str) -> list[str]:
    """Column names of `a DESC NULLS LAST, days(b)` or `zorder(a, b)`."""
    text = order.strip()
    if text.lower().startswith("zorder(") and text.endswith(")"):
        text = text[len("zorder(") : -1]
    parts, depth, current = [], 0, ""
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += sign
    names = []
    for part in (*parts, current):
        term = part.strip()
        if "(" in term:
            # bucket(16, id) and days(ts): the column is the last argument.
            term = term[term.index("(") + 1 :].partition(")")[0].rpartition(",")[2].strip()
        names.append(term.split()[0].strip('`"') if term else "")
    return names


def key_overlap(reader: ManifestReader, manifests: Iterable[ManifestFile], columns: Sequence[KeyColumn]) -> Overlap:
    """Of live data files, within each partition. Files without bounds on every column are left out: rows of theirs
    may lie anywhere, and no order would change that."""
    partitions: dict[tuple[int, str], list[Box]] = {}
    for spec_id, partition, bounds in _rows(reader, manifests, [column.field_id for column in columns]):
        box = []
        for column, bound in zip(columns, bounds, strict=True):
            low = None if bound is None else comparable(column.type, bound[0])
            high = None if bound is None else comparable(column.type, bound[1])
            if low is not None and high is not None:
                box.append((low, high))
        if len(box) == len(columns):
            partitions.setdefault((spec_id, partition), []).append(tuple(box))
    return overlap(partitions.values())


def _rows(reader: ManifestReader, manifests: Iterable[ManifestFile], ids: Sequence[int]) -> Iterator[_Row]:
    pending = list(manifests)
    prefix = f"bounds-1:{','.join(map(str, ids))}:"
    for start in range(0, len(pending), _BATCH):
        batch = pending[start : start + _BATCH]
        known = reader.cache.get_many(prefix + manifest_key(manifest) for manifest in batch)
        rows = {key: _unpack(blob) for key, blob in known.items()}
        missing = [manifest for manifest in batch if rows.get(prefix + manifest_key(manifest)) is None]
        fresh: dict[str, bytes] = {}
        for manifest, entries in reader.entries_of(missing, _SKIPPED):
            found = list(_bounds(manifest, entries, ids))
            rows[prefix + manifest_key(manifest)] = found
            fresh[prefix + manifest_key(manifest)] = _pack(found)
        if fresh:
            reader.cache.put_many(fresh)
        for manifest in batch:
            yield from rows[prefix + manifest_key(manifest)] or ()


def _bounds(manifest: ManifestFile, entries: Entries, ids: Sequence[int]) -> Iterator[_Row]:
    spell = partition_spelling(entries.partition)
    for entry in entries.records:
        if entry["status"] == DELETED:
            continue
        data_file = entry["data_file"]
        lower, upper = _by_id(data_file.get("lower_bounds")), _by_id(data_file.get("upper_bounds"))
        both = tuple((lower[i], upper[i]) if i in lower and i in upper else None for i in ids)
        yield manifest.spec_id, spell(data_file["partition"]), both


def _by_id(bounds: Any) -> dict[int, bytes]:
    return {int(bound["key"]): bytes(bound["value"]) for bound in bounds or ()}


def _pack(rows: Iterable[_Row]) -> bytes:
    plain = [[spec, part, [None if b is None else [b[0].hex(), b[1].hex()] for b in both]] for spec, part, both in rows]
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode("utf-8", "surrogatepass"), 1)


def _unpack(blob: bytes) -> list[_Row] | None:
    """None where the blob is damaged: then the manifest is read again."""
    try:
        return [
            (
                int(spec),
                str(part),
                tuple(None if b is None else (bytes.fromhex(b[0]), bytes.fromhex(b[1])) for b in both),
            )
            for spec, part, both in json.loads(zlib.decompress(blob))
        ]
    except (ValueError, TypeError, IndexError, zlib.error):
        return None
