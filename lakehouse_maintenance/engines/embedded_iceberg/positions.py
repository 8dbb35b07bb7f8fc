"""Position delete files as row positions by data file (Iceberg spec: Position Delete Files)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.iceberg.replace import Identity
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import UnsupportedError
from lakehouse_maintenance.model.files import LiveFile

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Deletes:
    """`positions`: data file path → sorted distinct row positions that are deleted. `applied`: path → delete files."""

    positions: dict[str, Positions]
    applied: dict[str, frozenset[Identity]]


def load_deletes(files: Sequence[LiveFile], index: DeleteIndex, opener: Opener, table: str) -> Deletes:
    """Reads each delete file that may reach one of these data files once.

    Raises UnsupportedError, before anything is read, for deletes that this engine does not apply.
    """
    applied: dict[str, frozenset[Identity]] = {}
    needed: dict[Identity, LiveFile] = {}
    wanted: dict[Identity, set[str]] = {}
    for file in files:
        if index.equality_deletes_for(file):
            raise UnsupportedError(
                f"equality deletes apply to {file.path}; this release does not apply them", field=table
            )
        found = index.position_deletes_for(file)
        applied[file.path] = frozenset(delete.identity for delete in found)
        for delete in found:
            if delete.file_format != "PARQUET":
                raise UnsupportedError(
                    f"{delete.path} holds deletes as {delete.file_format}; this release reads Parquet", field=table
                )
            needed[delete.identity] = delete
            wanted.setdefault(delete.identity, set()).add(file.path)
    parts: dict[str, list[Positions]] = {}
    for identity, delete in needed.items():
        for path, positions in _read(delete, opener, wanted[identity]).items():
            parts.setdefault(path, []).append(positions)
    return Deletes({path: _merge(found) for path, found in parts.items()}, applied)


def _read(delete: LiveFile, opener: Opener, wanted: set[str]) -> Mapping[str, Positions]:
    with opener.parquet(delete) as parquet:
        found: dict[str, list[Positions]] = {}
        for batch in parquet.iter_batches(columns=["file_path", "pos"]):
            for path, positions in _by_path(batch, wanted):
                found.setdefault(path, []).append(positions)
    return {path: _merge(positions) for path, positions in found.items()}


def _by_path(batch: pa.RecordBatch, wanted: set[str]) -> Iterable[tuple[str, Positions]]:
    paths = batch.column("file_path").dictionary_encode()
    indices = paths.indices.to_numpy(zero_copy_only=False)
    positions = batch.column("pos").to_numpy(zero_copy_only=False)
    for code, path in enumerate(paths.dictionary.to_pylist()):
        if path in wanted:
            yield path, positions[indices == code].astype(np.int64, copy=False)


def _merge(parts: Sequence[Positions]) -> Positions:
    return np.unique(np.concatenate(parts))


def named_data_files(delete: LiveFile, opener: Opener) -> frozenset[str] | None:
    """Paths of the data files that a position delete file names; None for a format that is not read here."""
    if delete.file_format != "PARQUET":
        return None
    with opener.parquet(delete) as parquet:
        found: set[str] = set()
        for batch in parquet.iter_batches(columns=["file_path"]):
            found.update(batch.column("file_path").unique().to_pylist())
    return frozenset(found)
