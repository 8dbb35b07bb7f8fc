"""Columns of the audit table, and how they fit a table that is there already."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.model.errors import AuditError
from lakehouse_maintenance.model.folders import AuditRow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType

_ICEBERG_TYPES = {
    "str": "string",
    "str | None": "string",
    "RowStatus": "string",
    "bool": "boolean",
    # Not int: nothing bounds the limit of lakehouse.yaml, and a large one must not make the row unwritable.
    "int": "long",
    "float": "double",
    "datetime": "timestamptz",
    "tuple[str, ...]": "list<string>",
    "dict[str, Any]": "string",
}

COLUMNS = {field.name: _ICEBERG_TYPES[str(field.type)] for field in fields(AuditRow)}
"""Column → Iceberg type, in the source's order. All are optional, as in a table that SQL creates."""

_PROMOTED = {"long": "int", "double": "float"}
"""What Iceberg widens to our type: no file is written anew, and who reads the table reads on."""

_WHOLE_HOURS = ("int", "long")
"""Types that `older_than_hours` may also have in a table that is there; it then takes whole hours alone."""


def lacking(schema: Schema, table: str) -> tuple[str, ...]:
    """Columns that are missing or have a narrower type, in our order. Raises AuditError for what cannot be helped."""
    there = {column.name: column for column in schema.fields}
    for name, column in there.items():
        if column.required and (name not in COLUMNS or _may_be_null(name)):
            raise AuditError(
                f"the audit table {table}: column {name} is required, and a row may have no value for it",
                field=table,
                hint="make the column optional, or rename the table",
            )
    found = {name: str(there[name].field_type) for name in COLUMNS if name in there}
    for name, kind in found.items():
        is_whole_hours = name == "older_than_hours" and kind in _WHOLE_HOURS
        if kind not in (COLUMNS[name], _PROMOTED.get(COLUMNS[name])) and not is_whole_hours:
            raise AuditError(
                f"the audit table {table}: column {name} has type {kind}, not {COLUMNS[name]}",
                field=table,
                hint="rename the table, so that a new one is created, or name another database in audit.namespace",
            )
    return tuple(name for name, kind in COLUMNS.items() if name not in found or found[name] == _PROMOTED.get(kind))


def refuse_fraction(schema: Schema, table: str, older_than_hours: float) -> None:
    """Raises AuditError where the table takes whole hours, and these are not."""
    kinds = [str(column.field_type) for column in schema.fields if column.name == "older_than_hours"]
    if any(kind in _WHOLE_HOURS for kind in kinds) and older_than_hours != int(older_than_hours):
        raise AuditError(
            f"the audit table {table}: column older_than_hours has type {kinds[0]}, which does not take this run's "
            f"{older_than_hours}",
            field=table,
            hint="set older_than_hours to whole hours, or rename the table",
        )


def _may_be_null(name: str) -> bool:
    return any(field.name == name and "None" in str(field.type) for field in fields(AuditRow))


def new_schema() -> Schema:
    """Of a table that is created."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    # The catalog numbers fields anew, elements of lists after all columns.
    return Schema(
        *(
            NestedField(number, name, _type(kind, len(COLUMNS) + number), required=False)
            for number, (name, kind) in enumerate(COLUMNS.items(), 1)
        )
    )


def _type(kind: str, element_id: int) -> IcebergType:
    from pyiceberg.types import BooleanType, DoubleType, ListType, LongType, StringType, TimestamptzType

    if kind == "list<string>":
        return ListType(element_id, StringType(), element_required=False)
    simple: dict[str, IcebergType] = {
        "string": StringType(),
        "boolean": BooleanType(),
        "long": LongType(),
        "double": DoubleType(),
        "timestamptz": TimestamptzType(),
    }
    return simple[kind]


def change(names: Iterable[str], table: Table) -> None:
    """Adds these columns, or widens those that are there, in one commit."""
    there = {column.name for column in table.schema().fields}
    with table.update_schema() as update:
        for name in names:
            # A path of one part: a dot in a text would mean a nested column.
            if name in there:
                update.update_column((name,), _type(COLUMNS[name], 1))
            else:
                update.add_column((name,), _type(COLUMNS[name], 1))


def arrow(schema: Schema, row: AuditRow) -> pa.Table:
    """One row in the table's own types; columns of others stay null."""
    import pyarrow as pa

    ours = pa.schema([field for field in schema.as_arrow() if field.name in COLUMNS])
    return pa.Table.from_pylist([dict(_values(row))], schema=ours)


def _values(row: AuditRow) -> Iterator[tuple[str, Any]]:
    for name in COLUMNS:
        value = getattr(row, name)
        if isinstance(value, dict):
            yield name, text(json.dumps(value, ensure_ascii=False, default=str))
        elif isinstance(value, str):
            yield name, text(value)
        elif isinstance(value, tuple):
            yield name, [text(one) for one in value]
        else:
            assert value is None or isinstance(value, bool | int | float | datetime)
            yield name, value


def equal(values: Mapping[str, str]) -> BooleanExpression:
    """Rows with these texts in these columns."""
    from pyiceberg.expressions import AlwaysTrue, And, EqualTo, Reference
    from pyiceberg.expressions.literals import literal

    found: BooleanExpression = AlwaysTrue()
    for name, value in values.items():
        found = And(found, EqualTo(term=Reference(name), value=literal(text(value))))
    return found


def text(value: str) -> str:
    """As it can be stored: names of local files may hold bytes that are no UTF-8, which Iceberg's strings are."""
    return str(value).encode("utf-8", "backslashreplace").decode()
