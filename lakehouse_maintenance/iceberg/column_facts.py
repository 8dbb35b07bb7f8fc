"""What metadata tells of the values that one column has in one data file: by its partition, and by its bounds.

Everything here errs on the side of "it may": what is missing, damaged or of a form that readers disagree on says
nothing. Values are in Iceberg's internal form (dates in days, times in microseconds, UUIDs as bytes).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

_MICROSECONDS_A_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Facts:
    """`lower`, `upper`: no value is below or above; None where that is not known.

    `prefix`: each value begins with it. `exact`: each value is the lower one. `bucket`: gives a value's bucket, and
    which one each value is in. `nulls`, `nans`: whether there may be any; `values`: whether there may be others.
    `some_nans`: there are NaNs for sure.
    """

    lower: Any = None
    upper: Any = None
    prefix: str | bytes | None = None
    exact: bool = False
    bucket: tuple[Callable[[Any], int | None], int] | None = None
    nulls: bool = True
    nans: bool = True
    values: bool = True
    some_nans: bool = False


ONLY_NULL = Facts(nans=False, values=False)


def bounds_facts(kind: IcebergType, field_id: int, record: Mapping[str, Any]) -> Facts:
    """By a manifest entry's `data_file`; its statistics are lists of `{key, value}`."""
    values = _of(record, "value_counts", field_id)
    nulls = _of(record, "null_value_counts", field_id)
    nans = _of(record, "nan_value_counts", field_id)
    is_float = isinstance(kind, FloatType | DoubleType)
    empty = (nulls or 0) + ((nans or 0) if is_float else 0)
    return Facts(
        lower=_bound(kind, _of(record, "lower_bounds", field_id)),
        upper=_bound(kind, _of(record, "upper_bounds", field_id)),
        nulls=nulls != 0,
        nans=is_float and nans != 0,
        values=values is None or values <= 0 or empty < values,
        some_nans=is_float and (nans or 0) > 0,
    )


def _of(record: Mapping[str, Any], name: str, field_id: int) -> Any:
    for pair in record.get(name) or ():
        if pair["key"] == field_id:
            return pair["value"]
    return None


_FORMATS: Sequence[tuple[tuple[type[IcebergType], ...], Mapping[int, str]]] = (
    ((BooleanType,), {1: "<?"}),
    ((IntegerType, DateType), {4: "<i"}),
    # Bounds of a column that was promoted later have the width of the type they were written with.
    ((LongType,), {4: "<i", 8: "<q"}),
    ((TimeType, TimestampType, TimestamptzType), {8: "<q"}),
    ((FloatType,), {4: "<f"}),
    ((DoubleType,), {4: "<f", 8: "<d"}),
)


def _bound(kind: IcebergType, data: bytes | None) -> Any:
    """A bound's value; None where it says nothing.

    A UUID's bounds say nothing: the bounds of row groups were merged as signed numbers by some Java releases.
    """
    if data is None:
        return None
    for kinds, formats in _FORMATS:
        if isinstance(kind, kinds):
            form = formats.get(len(data))
            value = None if form is None else struct.unpack(form, data)[0]
            return None if isinstance(value, float) and math.isnan(value) else value
    if isinstance(kind, StringType):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(kind, BinaryType | FixedType):
        return bytes(data)
    if isinstance(kind, DecimalType):
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-kind.scale) if data else None
    return None


class PartitionFacts:
    """By partition tuples of one spec, as LiveFile.partition spells them. `fields`: of the spec, as in metadata."""

    def __init__(self, schema: Schema, fields: Sequence[Mapping[str, Any]]) -> None:
        self._by_source: dict[int, list[tuple[int, Any, IcebergType]]] = {}
        for position, field in enumerate(fields):
            sources = field.get("source-ids") or [field.get("source-id")]
            source = schema._lazy_id_to_field.get(sources[0]) if len(sources) == 1 else None
            if source is not None:
                transform = parse_transform(field["transform"])
                self._by_source.setdefault(sources[0], []).append((position, transform, source.field_type))

    def decides(self, field_id: int) -> bool:
        """Whether the partition says all that there is to know of the column."""
        return any(str(transform) == "identity" for _, transform, _ in self._by_source.get(field_id, ()))

    def of(self, field_id: int, partition: str) -> list[Facts]:
        """What the tuple tells of the column, a part of the spec each."""
        parts = self._by_source.get(field_id)
        if not parts:
            return []
        values = json.loads(partition)
        return [_told(transform, kind, values[position]) for position, transform, kind in parts]


def _told(transform: Any, kind: IcebergType, spelled: Any) -> Facts:
    name = str(transform)
    if name in ("void", "unknown"):
        return Facts()
    if spelled is None:
        # Every other transform gives null for null alone.
        return ONLY_NULL
    value = _plain(spelled, kind if name == "identity" or name.startswith("truncate") else None)
    if name == "identity":
        if isinstance(value, float) and math.isnan(value):
            return Facts(nulls=False, values=False, some_nans=True)
        return Facts(lower=value, upper=value, exact=True, nulls=False, nans=False)
    if isinstance(transform, BucketTransform):
        return Facts(bucket=(transform.transform(kind), value), nulls=False, nans=False)
    if name.startswith("truncate"):
        return _truncated(value, transform.width, kind)
    if name in ("year", "month", "day", "hour"):
        return _in_time(name, value, kind)
    return Facts()


def _plain(spelled: Any, kind: IcebergType | None) -> Any:
    """A value as PartitionSpelling writes it, in Iceberg's internal form."""
    if not isinstance(spelled, dict):
        return spelled
    name, inner = next(iter(spelled.items()))
    if name == "decimal":
        return Decimal(inner).scaleb(-kind.scale) if isinstance(kind, DecimalType) else inner
    if name == "bytes":
        return bytes.fromhex(inner)
    return float(inner) if name == "float" else inner


def _truncated(value: Any, width: int, kind: IcebergType) -> Facts:
    if isinstance(value, str | bytes):
        if len(value) < width:
            return Facts(lower=value, upper=value, exact=True, nulls=False, nans=False)
        return Facts(lower=value, prefix=value, nulls=False, nans=False)
    if isinstance(value, int) and value % width:
        # It left the type at its lower end and came in at the upper one, as Java's numbers do.
        return Facts(nulls=False, nans=False)
    step = Decimal(width - 1).scaleb(-kind.scale) if isinstance(kind, DecimalType) else width - 1
    return Facts(lower=value, upper=value + step, nulls=False, nans=False)


def _in_time(name: str, value: int, kind: IcebergType) -> Facts:
    """The span of a year, month, day or hour.

    Up to 1970 some Java releases rounded towards it: a part holds what belongs to the one before as well (Java:
    ProjectionUtil.fixInclusiveTimeProjection).
    """
    first = value - 1 if value <= 0 else value
    if name == "hour":
        if isinstance(kind, DateType):
            return Facts(nulls=False, nans=False)
        start, end = first * (_MICROSECONDS_A_DAY // 24), (value + 1) * (_MICROSECONDS_A_DAY // 24)
    else:
        start, end = _days_before(name, first), _days_before(name, value + 1)
        if not isinstance(kind, DateType):
            start, end = start * _MICROSECONDS_A_DAY, end * _MICROSECONDS_A_DAY
    return Facts(lower=start, upper=end - 1, nulls=False, nans=False)


def _days_before(name: str, value: int) -> int:
    """Days from 1970 to the start of a year, month or day counted from 1970."""
    if name == "day":
        return value
    import numpy as np

    start = np.datetime64(0, "Y") if name == "year" else np.datetime64(0, "M")
    return int((start + value).astype("datetime64[D]").astype(np.int64))
