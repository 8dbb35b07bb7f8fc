"""Partition tuples of one spec: one type for all of them, and the order in which manifests hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakehouse_maintenance.iceberg.fields import AvroType
from lakehouse_maintenance.model.manifests import sort_key

_WIDER = {("int", "long"): "long", ("float", "double"): "double"}


def widest(one: AvroType, other: AvroType) -> AvroType:
    """A type for the tuples of both, which are of one spec: a promoted column widens its partition field.

    Raises ValueError where the two do not belong together.
    """
    if [f.get("field-id") for f in one["fields"]] != [f.get("field-id") for f in other["fields"]]:
        raise ValueError("its partition tuples have other fields than those of other manifests of the spec")
    fields = [
        {**mine, "type": _widest(mine["type"], theirs["type"])}
        for mine, theirs in zip(one["fields"], other["fields"], strict=True)
    ]
    return {**one, "fields": fields}


def _widest(one: AvroType, other: AvroType) -> AvroType:
    if isinstance(one, list) or isinstance(other, list):
        plain = _widest(plain_type(one), plain_type(other))
        return ["null", plain]
    first, second = _name(one), _name(other)
    if first == second == "fixed":
        return one if one["size"] >= other["size"] else other
    if first == second:
        return one
    for pair, wider in _WIDER.items():
        if {first, second} == set(pair):
            return one if first == wider else other
    raise ValueError(f"a partition field is {first} here and {second} elsewhere")


def plain_type(avro_type: AvroType) -> AvroType:
    """Without null."""
    if isinstance(avro_type, list):
        return next((branch for branch in avro_type if branch != "null"), "null")
    return avro_type


def _name(avro_type: AvroType) -> str:
    while isinstance(avro_type, dict):
        avro_type = avro_type["type"]
    return str(avro_type)


def is_decimal(avro_type: AvroType) -> bool:
    """Whether values are unscaled numbers as big-endian bytes."""
    plain = plain_type(avro_type)
    return isinstance(plain, dict) and plain.get("logicalType") == "decimal"


def fitted(values: Sequence[Any], partition: AvroType) -> dict[str, Any]:
    """Values of a tuple by the type's names; decimals in its number of bytes."""
    fields = partition["fields"]
    return {field["name"]: _fitted(value, field["type"]) for value, field in zip(values, fields, strict=True)}


def _fitted(value: Any, avro_type: AvroType) -> Any:
    plain = plain_type(avro_type)
    if not isinstance(value, bytes) or not is_decimal(plain) or plain["type"] != "fixed":
        return value
    return int.from_bytes(value, "big", signed=True).to_bytes(int(plain["size"]), "big", signed=True)


def tuple_key(values: Sequence[Any], partition: AvroType) -> tuple[tuple[Any, ...], ...]:
    """Sorts tuples by their fields: nulls first, NaN last."""
    return tuple(
        sort_key(
            int.from_bytes(value, "big", signed=True)
            if isinstance(value, bytes) and is_decimal(field["type"])
            else value
        )
        for value, field in zip(values, partition["fields"], strict=True)
    )
