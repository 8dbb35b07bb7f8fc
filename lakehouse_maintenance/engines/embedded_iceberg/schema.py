"""Arrow schemas with Iceberg field ids, and arrays brought from a file's schema to the table's (Column Projection).

Fields are matched by id only. A renamed column keeps its id, a column dropped and added again has another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table

from lakehouse_maintenance.model.errors import UnsupportedError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.support import NO_FIELD_IDS

_FIELD_ID = b"PARQUET:field_id"
ROW_ID, LAST_UPDATED_ID = 2147483540, 2147483539
"""Reserved field ids of the columns of row lineage (spec: Reserved Field IDs)."""

Defaults = Mapping[int | None, Any]
_NO_DEFAULTS: Defaults = {}


def field_id(field: pa.Field) -> int | None:
    """The Iceberg id that a Parquet file gave to a field."""
    value = (field.metadata or {}).get(_FIELD_ID)
    return None if value is None else int(value)


def table_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema to write, with field ids; 32-bit offsets, since a batch never needs more.

    Without columns of type `unknown`, which are null in every row and stored in no file.
    """
    return pa.schema([_narrow(field) for field in schema_to_pyarrow(schema, include_field_ids=True) if _stored(field)])


def _stored(field: pa.Field) -> bool:
    return not pa.types.is_null(field.type)


def _narrow(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _narrow_type(field.type), field.nullable, field.metadata)


def _narrow_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_narrow(kind.field(i)) for i in range(kind.num_fields) if _stored(kind.field(i))])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_narrow(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_narrow(kind.key_field), _narrow(kind.item_field))
    return kind


def file_schema(found: pa.Schema, table: Table, path: str) -> pa.Schema:
    """The file's schema with field ids: its own, or those of the table's name mapping where the file has none."""
    ids = [field_id(field) is not None for field in found]
    if all(ids):
        return found
    mapping = table.name_mapping()
    if any(ids) or mapping is None:
        raise UnsupportedError(
            NO_FIELD_IDS.format(path),
            field=".".join(table.name()),
            hint="set the table property schema.name-mapping.default, as Iceberg asks for imported files",
        )
    mapped = schema_to_pyarrow(
        pyarrow_to_schema(found, name_mapping=mapping, downcast_ns_timestamp_to_us=True), include_field_ids=True
    )
    return pa.schema([_narrow(field) for field in mapped])


class Projection:
    """Brings batches of one file to the table's schema."""

    def __init__(self, table: Table, want: pa.Schema, have: pa.Schema, file: LiveFile) -> None:
        self._want = want
        self._have = have
        by_id = {field_id(field): index for index, field in enumerate(have)}
        self._sources = [by_id.get(field_id(field)) for field in want]
        self.columns = [have.field(index).name for index in self._sources if index is not None]
        self._defaults = _defaults(table.schema())
        self._constants = _constants(table, want, self._sources, file, self._defaults)

    def __call__(self, columns: dict[str, pa.Array], rows: int) -> list[pa.Array]:
        """Arrays in the wanted schema's order; `columns`: the file's arrays by name, `rows` long."""
        arrays: list[pa.Array] = []
        for index, (source, wanted) in enumerate(zip(self._sources, self._want, strict=True)):
            if source is None:
                constant = self._constants[index]
                arrays.append(pa.nulls(rows, wanted.type) if constant is None else pa.repeat(constant, rows))
            else:
                have = self._have.field(source)
                arrays.append(conform(columns[have.name], have, wanted, self._defaults))
        return arrays


def conform(array: pa.Array, have: pa.Field, want: pa.Field, defaults: Defaults = _NO_DEFAULTS) -> pa.Array:
    """Casts an array to the wanted type; structs by field id (children added, dropped, reordered, renamed).

    `defaults`: field id → what an added child has in rows from before it was added.
    """
    target = want.type
    if array.type == target and _same_ids(have.type, target):
        return array
    if pa.types.is_struct(target):
        return _conform_struct(array, have.type, target, defaults)
    if pa.types.is_map(target):
        if array.offset:
            array = pa.concat_arrays([array])
        keys = conform(array.keys, have.type.key_field, target.key_field, defaults)
        items = conform(array.items, have.type.item_field, target.item_field, defaults)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=_mask(array))
    if pa.types.is_list(target):
        if array.offset:
            array = pa.concat_arrays([array])
        values = conform(array.values, have.type.value_field, target.value_field, defaults)
        return pa.ListArray.from_arrays(array.offsets.cast(pa.int32()), values, type=target, mask=_mask(array))
    if isinstance(target, pa.BaseExtensionType):
        storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
        return pa.ExtensionArray.from_storage(target, storage.cast(target.storage_type))
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    # Imported files may hold nanoseconds: cut to the table's unit, as its readers do. A day beyond what nanoseconds can
    # say is an error, not another day.
    return array.cast(target, safe=not (pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type)))


def _conform_struct(array: pa.Array, have: pa.StructType, target: pa.StructType, defaults: Defaults) -> pa.Array:
    by_id = {field_id(have.field(i)): i for i in range(have.num_fields)}
    children: list[pa.Array] = []
    for index in range(target.num_fields):
        wanted = target.field(index)
        source = by_id.get(field_id(wanted))
        if source is None:
            children.append(_missing(wanted, len(array), defaults))
        else:
            # Not compute.struct_field: that pushes the parent's nulls into children that must not be null.
            children.append(conform(array.field(source), have.field(source), wanted, defaults))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _same_ids(have: pa.DataType, want: pa.DataType) -> bool:
    """Types that look equal may hold other columns: a nested field dropped and added again under the same name."""
    if pa.types.is_struct(want):
        pairs = [(have.field(i), want.field(i)) for i in range(want.num_fields)]
    elif pa.types.is_map(want):
        pairs = [(have.key_field, want.key_field), (have.item_field, want.item_field)]
    elif pa.types.is_list(want):
        pairs = [(have.value_field, want.value_field)]
    else:
        return True
    return all(
        a.name == b.name and a.nullable == b.nullable and field_id(a) == field_id(b) and _same_ids(a.type, b.type)
        for a, b in pairs
    )


def _defaults(schema: Schema) -> Defaults:
    """Initial defaults of a table's fields on all levels, by field id; empty before format version 3."""
    fields = index_by_id(schema).items()
    return {fid: field.initial_default for fid, field in fields if field.initial_default is not None}


def _missing(field: pa.Field, rows: int, defaults: Defaults) -> pa.Array:
    default = defaults.get(field_id(field))
    return pa.nulls(rows, field.type) if default is None else pa.repeat(_scalar(default, field.type), rows)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A Python value, as PyIceberg reads defaults, as a scalar of the column's type."""
    if isinstance(kind, pa.BaseExtensionType):
        raw = value.bytes if isinstance(value, UUID) else value
        return pa.ExtensionArray.from_storage(kind, pa.array([raw], kind.storage_type))[0]
    return pa.scalar(value, kind)


def _constants(
    table: Table, want: pa.Schema, sources: list[int | None], file: LiveFile, defaults: Defaults
) -> list[pa.Scalar | None]:
    """For columns that the file lacks: the identity partition value, else the initial default, else None (null)."""
    identity = identity_values(table, file)
    constants: list[pa.Scalar | None] = []
    for field, source in zip(want, sources, strict=True):
        fid = field_id(field)
        if source is not None or fid is None:
            constants.append(None)
        elif fid in identity:
            constants.append(partition_scalar(identity[fid], field.type))
        else:
            default = defaults.get(fid)
            constants.append(None if default is None else _scalar(default, field.type))
    return constants


def identity_values(table: Table, file: LiveFile) -> dict[int, Any]:
    """Source field id → value as LiveFile.partition spells it, for identity partition fields."""
    spec = table.specs()[file.spec_id]
    values = json.loads(file.partition)
    return {
        field.source_id: value
        for field, value in zip(spec.fields, values, strict=True)
        if str(field.transform) == "identity"
    }


def partition_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A raw partition value, as LiveFile.partition spells it, as a scalar of the column's type."""
    if value is None:
        return pa.scalar(None, kind)
    if isinstance(value, dict):
        name, inner = next(iter(value.items()))
        if name == "decimal":
            # Not scaleb: that rounds to the context's 28 digits.
            return pa.scalar(Decimal(f"{inner}E-{kind.scale}"), kind)
        if name == "bytes":
            raw = bytes.fromhex(inner)
            if isinstance(kind, pa.BaseExtensionType):
                return pa.ExtensionArray.from_storage(kind, pa.array([raw], kind.storage_type))[0]
            return pa.scalar(raw, kind)
        value = float(inner) if name == "float" else inner
    if pa.types.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.scalar(value, pa.int64()).cast(kind)
    return pa.scalar(value, kind)
