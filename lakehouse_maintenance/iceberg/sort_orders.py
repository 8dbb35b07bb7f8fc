"""A table's sort orders and columns, from its raw metadata (Iceberg spec: Sorting, Schemas)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lakehouse_maintenance.model.sort_orders import SortField

_TRANSFORM = re.compile(r"(identity|year|month|day|hour)|(bucket|truncate)\[(\d+)\]")


def default_sort_order_id(raw: dict[str, Any]) -> int:
    """Id of the order that writers use now; 0 where there is none."""
    found = raw.get("default-sort-order-id")
    return found if isinstance(found, int) else 0


def sort_orders(raw: dict[str, Any]) -> dict[int, tuple[SortField, ...] | None]:
    """Order id → its terms. None where a term is malformed, has a transform that is not known here, or is about a
    column that the current schema lacks: rows cannot be sorted so, and nothing else depends on it."""
    names = {field_id: name for field_id, name, _ in _primitives(raw)}
    found: dict[int, tuple[SortField, ...] | None] = {}
    for order in _dicts(raw.get("sort-orders")):
        order_id = order.get("order-id")
        if isinstance(order_id, int):
            fields = [_field(field, names) for field in _dicts(order.get("fields"))]
            known = tuple(field for field in fields if field is not None)
            found[order_id] = known if len(known) == len(fields) else None
    return found


def column_types(raw: dict[str, Any]) -> dict[str, str]:
    """Dotted name → type, of the current schema's primitive columns outside lists and maps."""
    return {".".join(name): kind for _, name, kind in _primitives(raw)}


def _field(field: dict[str, Any], names: dict[int, tuple[str, ...]]) -> SortField | None:
    source = field.get("source-id")
    sources = field.get("source-ids")
    if source is None and isinstance(sources, list) and len(sources) == 1:
        source = sources[0]
    match = _TRANSFORM.fullmatch(str(field.get("transform")))
    direction, nulls = field.get("direction"), field.get("null-order")
    if match is None or source not in names or direction not in ("asc", "desc"):
        return None
    if nulls not in ("nulls-first", "nulls-last"):
        return None
    plain, wide, width = match.groups()
    return SortField(
        column=names[source],
        transform=plain or wide,
        width=None if width is None else int(width),
        descending=direction == "desc",
        nulls_first=nulls == "nulls-first",
    )


def _primitives(raw: dict[str, Any]) -> Iterator[tuple[int, tuple[str, ...], str]]:
    current = raw.get("current-schema-id", 0)
    schemas = [one for one in _dicts(raw.get("schemas")) if one.get("schema-id", 0) == current]
    schema = schemas[0] if schemas else raw.get("schema")
    if isinstance(schema, dict):
        yield from _walk(schema, ())


def _walk(struct: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...], str]]:
    for field in _dicts(struct.get("fields")):
        field_id, name, kind = field.get("id"), field.get("name"), field.get("type")
        if not isinstance(field_id, int) or not isinstance(name, str):
            continue
        if isinstance(kind, str):
            yield field_id, (*above, name), kind
        elif isinstance(kind, dict) and kind.get("type") == "struct":
            yield from _walk(kind, (*above, name))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
