"""Fingerprints of what readers see: the same rows in any order, in any files, give the same fingerprint.

Read through PyIceberg, which shares no code with the engine that rewrites.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.table import Table

_NULL = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`rows`: how many. `digest`: over their content and the columns' names, whatever their order."""

    rows: int
    digest: int


def refs_of(table: Table) -> dict[str, Fingerprint]:
    """Fingerprint of each branch and tag of a table."""
    refs = table.metadata.refs
    snapshots = {ref.snapshot_id for ref in refs.values()}
    seen = {
        snapshot_id: fingerprint(table.scan(snapshot_id=snapshot_id).to_arrow_batch_reader())
        for snapshot_id in snapshots
    }
    return {name: seen[ref.snapshot_id] for name, ref in sorted(refs.items())}


def fingerprint(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    """Of all rows of these batches."""
    rows, digest = 0, 0
    for batch in batches:
        rows += batch.num_rows
        # Sums wrap around by themselves: each row counts, as often as it is there.
        digest = (digest + int(_row_hashes(batch).sum(dtype=np.uint64))) % (1 << 64)
    return Fingerprint(rows, digest)


def _row_hashes(batch: pa.RecordBatch) -> Any:
    total = np.zeros(batch.num_rows, dtype=np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        salt = np.uint64(zlib.crc32(name.encode()) * 2 + 1)
        total += _mixed(_mixed(_values(column)) * salt)
    return _mixed(total)


def _values(column: pa.Array) -> Any:
    """64 bits for each value of a flat column."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        words = column.dictionary_encode()
        hashes = [_NULL, *(np.uint64(_text_hash(word)) for word in words.dictionary.to_pylist())]
        indices = pc.fill_null(words.indices, -1).to_numpy(zero_copy_only=False)
        return np.array(hashes, dtype=np.uint64)[indices + 1]
    if pa.types.is_floating(kind):
        bits = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False).view(np.uint64)
    else:
        bits = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, bits)


def _text_hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def _mixed(values: Any) -> Any:
    mixed = (values ^ (values >> np.uint64(30))) * _MIX
    return mixed ^ (mixed >> np.uint64(27))
