"""Do the statistics that a manifest has of a data file hold for what is in the file?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.types import LongType

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_FIELD_ID = b"PARQUET:field_id"
LINEAGE = {2147483540: "_row_id", 2147483539: "_last_updated_sequence_number"}
"""Columns of row lineage, which no schema names; Iceberg's own writers have statistics of them too."""


def added_files(table: Table) -> dict[str, DataFile]:
    """The data files that the current snapshot added, by path."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = (
        entry
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    return {entry.data_file.file_path: entry.data_file for entry in entries if entry.status.name == "ADDED"}


def check_statistics(table: Table, *, bounded: bool = True) -> int:
    """Asserts that counts are exact and that bounds hold for each column outside lists and maps; how many bounds.

    Such a column must have bounds where it has values other than NaN, unless `bounded` is false.
    """
    schema = table.schema()
    checked = 0
    for path, file in added_files(table).items():
        for field_id, values in _leaves(table, path).items():
            name = LINEAGE.get(field_id) or schema.find_column_name(field_id)
            kind = LongType() if field_id in LINEAGE else schema.find_type(field_id)
            nans = sum(isinstance(value, float) and math.isnan(value) for value in values)
            present = [value for value in values if value is not None and value == value]
            assert file.value_counts[field_id] == len(values), name
            assert file.null_value_counts[field_id] == sum(value is None for value in values), name
            assert file.nan_value_counts.get(field_id, 0) == nans, name
            lower, upper = file.lower_bounds.get(field_id), file.upper_bounds.get(field_id)
            if lower is None or upper is None:
                assert not (present and bounded), f"{name} has no bounds"
                continue
            low, high = _bound(kind, lower), _bound(kind, upper)
            assert all(low <= value <= high for value in present), (name, low, high)
            checked += 1
    return checked


def _bound(kind: Any, raw: bytes) -> Any:
    value = from_bytes(kind, raw)
    return value.bytes if hasattr(value, "bytes") else value


def _leaves(table: Table, path: str) -> dict[int, list[Any]]:
    """Values of each primitive column outside lists and maps by field id, as bounds have them (times as integers)."""
    with table.io.new_input(path).open() as stream:
        rows = pq.read_table(stream)
    found: dict[int, list[Any]] = {}

    def walk(array: pa.Array, field: pa.Field) -> None:
        if pa.types.is_struct(field.type):
            # flatten gives a child's null where its struct is null, as Parquet counts it.
            for position, child in enumerate(array.flatten()):
                walk(child, field.type.field(position))
        elif not pa.types.is_nested(field.type):
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            elif pa.types.is_timestamp(field.type) or pa.types.is_time64(field.type):
                array = array.cast(pa.int64())
            elif pa.types.is_date(field.type):
                array = array.cast(pa.int32())
            found.setdefault(int(field.metadata[_FIELD_ID]), []).extend(array.to_pylist())

    for field, column in zip(rows.schema, rows.columns, strict=True):
        for chunk in column.chunks or [pa.array([], field.type)]:
            walk(chunk, field)
    return found
