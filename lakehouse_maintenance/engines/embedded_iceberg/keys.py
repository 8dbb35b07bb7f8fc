"""The key columns of equality deletes, read from files of any age in a form that compares as Iceberg compares.

Iceberg's readers compare keys as Java objects (StructLikeSet): null equals null, NaN equals NaN, and -0.0 is another
value than 0.0. DuckDB takes the zeros for equal and cuts zoned nanoseconds; so it is given plain numbers and bytes that
are equal exactly where the values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType, StructType

from lakehouse_maintenance.engines.embedded_iceberg.schema import (
    conform,
    field_id,
    identity_values,
    partition_scalar,
    table_schema,
)
from lakehouse_maintenance.model.errors import TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.support import NESTED_KEY

_BATCH_ROWS = 1 << 16

Keys = tuple[list[pa.Array], int]
"""Comparable arrays, and how many rows they have."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One delete column. `path`: field ids from the top-level column down to it. `field`: as the table knows it last,
    nullable; older values are promoted to its type. `default`: for files written before the column was added.
    """

    path: tuple[int, ...]
    field: pa.Field
    default: Any

    @property
    def field_id(self) -> int:
        """Its own id."""
        return self.path[-1]


def key_columns(table: Table, delete: LiveFile) -> list[KeyColumn]:
    """The columns that the delete compares, by field id; also those that were dropped from the table since.

    Raises TableUnreadableError for ids that no schema has or none at all, UnsupportedError for columns that are no
    primitive values inside structs alone (which the spec forbids).
    """
    if not delete.equality_ids:
        raise TableUnreadableError(f"{delete.path} is an equality delete without equality_ids", field=delete.path)
    older = sorted((s for s in table.schemas().values()), key=lambda schema: schema.schema_id, reverse=True)
    columns = []
    for key_id in sorted(set(delete.equality_ids)):
        for schema in (table.schema(), *older):
            fields = _path_to(schema.fields, key_id)
            if fields is not None:
                break
        else:
            name = ".".join(table.name())
            if any(key_id in schema.field_ids for schema in older):
                raise UnsupportedError(NESTED_KEY.format(delete.path, key_id), field=name)
            wrong = f"{delete.path} compares field {key_id}, which is in no schema of the table"
            raise TableUnreadableError(wrong, field=name)
        last = fields[-1]
        if not isinstance(last.field_type, PrimitiveType):
            raise UnsupportedError(
                f"{delete.path} compares {last.name}, a {last.field_type}: only primitive values are compared",
                field=".".join(table.name()),
            )
        arrow = table_schema(Schema(last)).field(0).with_nullable(True)
        columns.append(KeyColumn(tuple(field.field_id for field in fields), arrow, last.initial_default))
    return columns


def _path_to(fields: Sequence[NestedField], key_id: int) -> tuple[NestedField, ...] | None:
    for field in fields:
        if field.field_id == key_id:
            return (field,)
        if isinstance(field.field_type, StructType):
            below = _path_to(field.field_type.fields, key_id)
            if below is not None:
                return (field, *below)
    return None


def compared_schema(columns: Sequence[KeyColumn]) -> list[pa.DataType]:
    """Types of the arrays that `read_keys` gives: for each column its structs' presence, then its value."""
    types: list[pa.DataType] = []
    for column in columns:
        types += [pa.bool_()] * (len(column.path) - 1)
        types.append(comparable(pa.nulls(0, column.field.type)).type)
    return types


def read_keys(
    parquet: pq.ParquetFile, have: pa.Schema, columns: Sequence[KeyColumn], constants: Sequence[pa.Scalar] | None
) -> Iterator[Keys]:
    """Keys of a file's rows in their order. `have`: the file's schema with field ids.

    `constants`: of each column its value in a file that lacks it. None: the file has to have them all, as an equality
    delete file has; raises KeyError with the id of one that is missing.
    """
    tops = {field_id(field): field for field in have}
    if constants is None:
        for column in columns:
            _require(tops, column)
    names = sorted({tops[column.path[0]].name for column in columns if column.path[0] in tops})
    if not names:
        assert constants is not None, "there is a key column, and it is missing"
        rows = parquet.metadata.num_rows
        for start in range(0, rows, _BATCH_ROWS):
            count = min(_BATCH_ROWS, rows - start)
            yield _compared(pa.RecordBatch.from_arrays([], []), tops, columns, constants, count), count
        return
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
        yield _compared(batch, tops, columns, constants, batch.num_rows), batch.num_rows


def missing_constants(table: Table, file: LiveFile, columns: Sequence[KeyColumn]) -> list[pa.Scalar]:
    """Values in a data file that lacks the columns: of an identity partition, else the initial default, else null."""
    identity = identity_values(table, file)
    found = []
    for column in columns:
        kind = column.field.type
        if column.field_id in identity:
            found.append(partition_scalar(identity[column.field_id], kind))
        else:
            found.append(pa.scalar(column.default, kind))
    return found


def _require(tops: dict[int | None, pa.Field], column: KeyColumn) -> None:
    field = tops[column.path[0]]
    for step in column.path[1:]:
        if not pa.types.is_struct(field.type):
            raise KeyError(step)
        field = {field_id(child): child for child in field.type}[step]


def _compared(
    batch: pa.RecordBatch,
    tops: dict[int | None, pa.Field],
    columns: Sequence[KeyColumn],
    constants: Sequence[pa.Scalar] | None,
    rows: int,
) -> list[pa.Array]:
    arrays: list[pa.Array] = []
    for index, column in enumerate(columns):
        constant = None if constants is None else constants[index]
        arrays += _column(batch, tops, column, constant, rows)
    return arrays


def _column(
    batch: pa.RecordBatch, tops: dict[int | None, pa.Field], column: KeyColumn, constant: pa.Scalar | None, rows: int
) -> list[pa.Array]:
    """Whether each struct around the column is there, then its values.

    Iceberg compares structs first: one that is null is another key than one whose field is null.
    """
    field = tops.get(column.path[0])
    array = None if field is None else batch.column(field.name)
    present: list[pa.Array] = []
    for step in column.path[1:]:
        if array is None or field is None:
            present.append(pa.repeat(pa.scalar(False), rows))
            continue
        present.append(array.is_valid())
        children = {field_id(child): number for number, child in enumerate(field.type)}
        number = children.get(step)
        # struct_field takes over the struct's nulls, which the children themselves need not have.
        parent, array = array, None if number is None else pc.struct_field(array, [number])
        field = None if number is None else field.type.field(number)
        if number is None and constant is not None and constant.is_valid and step == column.path[-1]:
            return [*present, comparable(_where(parent.is_valid(), constant))]
    if array is None or field is None:
        constant = pa.scalar(None, column.field.type) if constant is None else constant
        # In a file without the struct, the struct is null, and what is in it too.
        value = constant if len(column.path) == 1 else pa.scalar(None, column.field.type)
        return [*present, comparable(pa.repeat(value, rows))]
    return [*present, comparable(conform(array, field, column.field))]


def _where(valid: pa.Array, value: pa.Scalar) -> pa.Array:
    """The value where it is valid, else null."""
    storage = value.value if isinstance(value, pa.ExtensionScalar) else value
    return pc.if_else(valid, storage, pa.scalar(None, storage.type))


def comparable(array: pa.Array) -> pa.Array:
    """Booleans, integers, decimals or bytes that are equal exactly where Iceberg takes the values for equal."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_floating(kind):
        # Java's Float and Double compare by their bits, all NaNs being one.
        one = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), kind), array)
        return one.view(pa.int32() if pa.types.is_float32(kind) else pa.int64())
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return array.cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    return array
