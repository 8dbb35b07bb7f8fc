"""Row positions of deleted rows, and the position delete files that hold them (Iceberg spec: Position Delete Files)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.engines.embedded_iceberg.schema import field_id
from lakehouse_maintenance.iceberg.fields import POSITION_DELETE_PATH_ID
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.files import LiveFile

Positions = npt.NDArray[np.int64]

_POSITION_ID = 2147483545


class RowPositions(Mapping[str, Positions]):
    """Data file path → its deleted rows, sorted and distinct. Kept as bitmaps, each unpacked when it is asked for."""

    def __init__(self, rows: Mapping[str, BitMap64]) -> None:
        self._rows = dict(rows)

    def __getitem__(self, path: str) -> Positions:
        return np.frombuffer(self._rows[path].to_array(), dtype=np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def bitmap(positions: Positions) -> BitMap64:
    """Of non-negative positions."""
    return BitMap64(array("Q", np.ascontiguousarray(positions, dtype=np.uint64).tobytes()))


def read_positions(delete: LiveFile, opener: Opener, wanted: set[str]) -> dict[str, BitMap64]:
    """Of a Parquet position delete file: data file path → rows, for the paths wanted.

    Paths are compared as they are spelled: they "must match the file_path of the target data file in a manifest entry".
    """
    found: dict[str, BitMap64] = {}
    with opener.parquet(delete) as parquet:
        path_column, position_column = _columns(parquet, delete)
        for batch in parquet.iter_batches(columns=[path_column, position_column]):
            paths, positions = batch.column(path_column), batch.column(position_column)
            if paths.null_count or positions.null_count:
                raise _damaged(delete, "a row without file_path or pos")
            for path, rows in _by_path(paths, positions.to_numpy(zero_copy_only=False), wanted):
                if rows.min() < 0:
                    raise _damaged(delete, "a negative position")
                found[path] = found.get(path, BitMap64()) | bitmap(rows)
    return found


def named_paths(delete: LiveFile, opener: Opener) -> frozenset[str]:
    """Paths of the data files that a Parquet position delete file names."""
    with opener.parquet(delete) as parquet:
        path_column, _ = _columns(parquet, delete)
        found: set[str] = set()
        for batch in parquet.iter_batches(columns=[path_column]):
            found.update(batch.column(path_column).unique().to_pylist())
    return frozenset(found)


def _columns(parquet: pq.ParquetFile, delete: LiveFile) -> tuple[str, str]:
    """Names of the two columns in this file; they are known by their reserved field ids."""
    by_id = {field_id(field): field.name for field in parquet.schema_arrow}
    try:
        return by_id[POSITION_DELETE_PATH_ID], by_id[_POSITION_ID]
    except KeyError:
        raise _damaged(delete, f"no column with field id {POSITION_DELETE_PATH_ID} or {_POSITION_ID}") from None


def _by_path(paths: pa.Array, positions: Positions, wanted: set[str]) -> Iterator[tuple[str, Positions]]:
    coded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    indices = coded.indices.to_numpy(zero_copy_only=False)
    for code, path in enumerate(coded.dictionary.to_pylist()):
        if path in wanted:
            rows = positions[indices == code]
            if len(rows):
                yield path, rows


def _damaged(delete: LiveFile, what: str) -> TableUnreadableError:
    return TableUnreadableError(f"{delete.path} is no position delete file: it has {what}", field=delete.path)
