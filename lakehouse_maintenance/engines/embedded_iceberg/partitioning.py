"""Which partition of a spec each row belongs to, how its tuple stands in a manifest, and where its files go."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import ObjectStoreLocationProvider, load_location_provider
from pyiceberg.typedef import Record

from lakehouse_maintenance.engines.embedded_iceberg.output import is_cut
from lakehouse_maintenance.engines.embedded_iceberg.schema import field_id
from lakehouse_maintenance.engines.embedded_iceberg.transforms import transform, unscaled
from lakehouse_maintenance.iceberg.fields import AvroType
from lakehouse_maintenance.iceberg.partition_types import partition_avro_type
from lakehouse_maintenance.model.errors import UnsupportedError

Tuple = tuple[Any, ...]
"""Raw partition values, as a manifest's Avro holds them, in the spec's order."""

_LONGEST_SEGMENT = 200


@dataclass(frozen=True, slots=True)
class _Field:
    """`path`: child indices of the source column, from the schema's root."""

    name: str
    transform: str
    path: tuple[int, ...]
    size: int | None


class Partitioning:
    """One spec over one schema. `avro`: the type of its tuples."""

    def __init__(self, table: Table, spec_id: int, schema: pa.Schema) -> None:
        """Raises UnsupportedError where the table has no such spec, or no rows can be written under it."""
        name = ".".join(table.name())
        self.spec_id = spec_id
        self._spec = table.specs().get(spec_id)
        if self._spec is None:
            raise UnsupportedError(f"{name} has no partition spec {spec_id} any more", field=name)
        self._schema: Schema = table.schema()
        document = self._schema.model_dump(mode="json", by_alias=True)
        fields = [field.model_dump(mode="json", by_alias=True) for field in self._spec.fields]
        try:
            self.avro: AvroType = partition_avro_type(document, fields)
        except ValueError as error:
            raise UnsupportedError(f"{name}: spec {spec_id} cannot be written: {error}", field=name) from error
        self._fields = [
            _Field(made["name"], str(one.transform), _path_of(schema, one.source_id) or (), _fixed_size(made["type"]))
            for made, one in zip(self.avro["fields"], self._spec.fields, strict=True)
        ]

    def split(self, rows: pa.Table) -> tuple[npt.NDArray[np.int64], list[Tuple]]:
        """For each row the number of its partition, and the partitions' tuples by number.

        -0.0 and 0.0 are two partitions, all NaNs are one, as in Iceberg's own comparison of tuples.
        """
        numbers = np.zeros(rows.num_rows, np.int64)
        columns = []
        for field in self._fields:
            values = self._values(rows, field)
            encoded = _comparable(values).dictionary_encode(null_encoding="encode")
            columns.append(values)
            # Made dense at each step: a product of the columns' numbers of values could leave 64 bits.
            combined = numbers * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
            _, numbers = np.unique(combined, return_inverse=True)
        _, first = np.unique(numbers, return_index=True)
        taken = [column.take(pa.array(first)) for column in columns]
        tuples = [
            tuple(_raw(column[row], field.size) for column, field in zip(taken, self._fields, strict=True))
            for row in range(len(first))
        ]
        return numbers.astype(np.int64, copy=False), tuples

    def _values(self, rows: pa.Table, field: _Field) -> pa.Array:
        if field.transform == "void":
            return pa.nulls(rows.num_rows, pa.int32())
        column = rows.column(field.path[0])
        array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
        for index in field.path[1:]:
            # flatten, not field: a value under a null struct is null.
            array = array.flatten()[index]
        values = transform(array, field.transform)
        return values.storage if isinstance(values.type, pa.BaseExtensionType) else values

    def record(self, values: Tuple) -> dict[str, Any]:
        """The tuple as an entry's `partition`."""
        return {
            field.name: _float_of(value) if isinstance(value, _Bits) else value
            for field, value in zip(self._fields, values, strict=True)
        }

    def folder(self, values: Tuple) -> str:
        """`name=value/…` as Iceberg's writers name it; empty where that would be too long for a file system."""
        assert self._spec is not None
        shown = Record(*(self._shown(index, value) for index, value in enumerate(values)))
        path = self._spec.partition_to_path(shown, self._schema)
        return "" if any(len(part) > _LONGEST_SEGMENT for part in path.split("/")) else path

    def _shown(self, index: int, value: Any) -> Any:
        kind = self.avro["fields"][index]["type"][1]
        if isinstance(value, _Bits):
            return _float_of(value)
        logical = kind.get("logicalType") if isinstance(kind, dict) else None
        if isinstance(value, bytes) and logical == "decimal":
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind["scale"])
        if isinstance(value, bytes) and logical == "uuid":
            return uuid.UUID(bytes=value)
        return value


class PartitionFolder:
    """Where outputs of one partition go: as the table's location provider lays its data files out."""

    def __init__(self, table: Table, below: str) -> None:
        self._provider = load_location_provider(table.location(), table.properties)
        flat = isinstance(self._provider, ObjectStoreLocationProvider) and not self._provider._include_partition_paths
        self._below = f"{below}/" if below and not flat else ""

    def new_path(self) -> str:
        """A path that nothing uses."""
        path = self._provider.new_data_location(f"{self._below}{uuid.uuid4()}.parquet")
        if is_cut(path):
            raise UnsupportedError(f"{path} has a character that cannot be written to", field=path)
        return path


@dataclass(frozen=True, slots=True)
class _Bits:
    """A float by its bits: as a number, NaN would differ from itself and -0.0 equal 0.0."""

    bits: int
    width: int


def _bits_of(value: float, width: int) -> _Bits:
    value = math.nan if math.isnan(value) else value
    form = ("<i", "<f") if width == 32 else ("<q", "<d")
    return _Bits(struct.unpack(form[0], struct.pack(form[1], value))[0], width)


def _float_of(value: _Bits) -> float:
    form = ("<i", "<f") if value.width == 32 else ("<q", "<d")
    return float(struct.unpack(form[1], struct.pack(form[0], value.bits))[0])


def _path_of(schema: pa.Schema, source_id: int) -> tuple[int, ...] | None:
    """Child indices of a field that is at the root or in structs alone."""
    pending: list[tuple[tuple[int, ...], pa.Field]] = [((index,), field) for index, field in enumerate(schema)]
    while pending:
        path, field = pending.pop()
        if field_id(field) == source_id:
            return path
        if pa.types.is_struct(field.type):
            pending += [((*path, index), field.type.field(index)) for index in range(field.type.num_fields)]
    return None


def _fixed_size(avro: Any) -> int | None:
    kind = avro[1]
    return int(kind["size"]) if isinstance(kind, Mapping) and kind.get("type") == "fixed" else None


def _comparable(array: pa.Array) -> pa.Array:
    """Values whose equality is that of partition tuples."""
    kind = array.type
    if not pa.types.is_floating(kind):
        return array
    one_nan = pc.if_else(pc.is_nan(array), pa.scalar(math.nan, kind), array)
    return one_nan.view(pa.int32() if pa.types.is_float32(kind) else pa.int64())


def _raw(scalar: pa.Scalar, size: int | None) -> Any:
    """As Avro holds it. `size`: of a fixed type, in bytes."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_floating(kind):
        return _bits_of(scalar.as_py(), kind.bit_width)
    if pa.types.is_temporal(kind):
        return scalar.value
    if pa.types.is_decimal(kind):
        return unscaled(scalar.as_py(), kind.scale).to_bytes(size or 16, "big", signed=True)
    return scalar.as_py()
