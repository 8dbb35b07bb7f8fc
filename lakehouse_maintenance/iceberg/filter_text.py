"""The text of a `where` as an expression bound to a table's schema; what is wrong with it is told first of all.

The grammar is that of PyIceberg's filter strings. Literals are taken a little further than PyIceberg takes them, each
time to the one thing they can mean: a date alone is midnight, a decimal may have fewer digits than its column. What
would change the meaning is refused: PyIceberg rounds `1.5` for a whole-number column.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    BooleanExpression,
    IsNull,
    LiteralPredicate,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DecimalLiteral, Literal, LongLiteral, StringLiteral
from pyiceberg.expressions.visitors import BindVisitor, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.nearest import suggestion

WHERE = "where"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ZONE = re.compile(r"(?:[+-]\d{2}:\d{2}|Z)$")


def parse_filter(text: str) -> BooleanExpression:
    """The expression, columns not looked up yet. Raises InputError of field `where` for what is no filter."""
    from pyiceberg.expressions import parser
    from pyparsing import ParseBaseException

    try:
        expression = parser.parse(text)
        # A part that is no expression ("x = 1 and 5") comes through the parser and fails here.
        return rewrite_not(expression)
    except ParseBaseException as error:
        raise InputError(
            f"where cannot be read at character {error.column}: {text[error.loc : error.loc + 30]!r}",
            field=WHERE,
            hint="write a filter such as: day >= CURRENT_DATE - 7 AND country IN ('de', 'fr')",
        ) from error
    except (ValueError, TypeError, AttributeError, NotImplementedError, RecursionError) as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else _first_line(error)
        raise InputError(
            f"where cannot be read: {told}",
            field=WHERE,
            hint="write a filter such as: day >= CURRENT_DATE - 7 AND country IN ('de', 'fr')",
        ) from error


def bind_filter(text: str, schema: Schema) -> BooleanExpression:
    """The filter bound to the schema's field ids, without NOT. Raises InputError of field `where`.

    Names are case-sensitive; a nested field is written with dots.
    """
    return visit(parse_filter(text), _Binder(schema))


class _Binder(BindVisitor):
    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, case_sensitive=True)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        name = str(predicate.term.name)  # type: ignore[attr-defined]
        try:
            field = self.schema.find_field(name)
            self.schema.accessor_for_field(field.field_id)
        except ValueError as error:
            known = sorted(set(self.schema._name_to_id))
            raise InputError(
                f"where names {name!r}, which is no column that a row has one value of",
                field=WHERE,
                hint=suggestion(name, known),
            ) from error
        if isinstance(predicate, IsNull) and not self._is_top_level(field.field_id):
            # PyIceberg takes a required field for never null, which it is inside a struct that is null.
            return AlwaysTrue() if field.required else predicate.bind(self.schema)
        try:
            return _fitted(predicate, field.field_type).bind(self.schema, case_sensitive=True)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise InputError(
                f"where compares {name!r}, which is {field.field_type}, with what is none: {_first_line(error)}",
                field=WHERE,
                hint=_how_to_write(field.field_type),
            ) from error

    def _is_top_level(self, field_id: int) -> bool:
        return any(field.field_id == field_id for field in self.schema.fields)


def _fitted(predicate: UnboundPredicate, kind: IcebergType) -> UnboundPredicate:
    if not kind.is_primitive and (isinstance(predicate, LiteralPredicate | SetPredicate)):
        raise TypeError("it has no single value")
    if isinstance(predicate, LiteralPredicate):
        return type(predicate)(predicate.term, _fit(predicate.literal, kind))
    if isinstance(predicate, SetPredicate):
        return type(predicate)(predicate.term, {_fit(one, kind) for one in predicate.literals})
    return predicate


def _fit(literal: Literal[Any], kind: IcebergType) -> Literal[Any]:
    if isinstance(kind, IntegerType | LongType):
        value = Decimal(literal.value) if isinstance(literal, StringLiteral) else literal.value
        if isinstance(value, Decimal) and value != value.to_integral_value():
            raise ValueError(f"{literal.value} is no whole number")
    elif isinstance(kind, DecimalType) and isinstance(literal, DecimalLiteral | StringLiteral | LongLiteral):
        return DecimalLiteral(_rescaled(Decimal(literal.value), kind))
    elif isinstance(kind, DateType | TimeType | TimestampType | TimestamptzType) and isinstance(literal, LongLiteral):
        # PyIceberg takes it for days or microseconds since 1970, which nobody means.
        raise ValueError(f"{literal.value} is a number")
    elif isinstance(kind, TimestampType | TimestamptzType) and isinstance(literal, StringLiteral):
        return StringLiteral(_moment(literal.value, with_zone=isinstance(kind, TimestamptzType)))
    elif isinstance(kind, StringType) and not isinstance(literal, StringLiteral):
        raise TypeError(f"{literal.value} is no text")
    return literal


def _rescaled(value: Decimal, kind: DecimalType) -> Decimal:
    if not value.is_finite():
        raise ValueError(f"{value} is no number")
    unscaled = value.scaleb(kind.scale)
    if unscaled != unscaled.to_integral_value():
        raise ValueError(f"{value} has more than {kind.scale} digits after the point")
    return Decimal((int(value.is_signed()), Decimal(abs(int(unscaled))).as_tuple().digits, -kind.scale))


def _moment(text: str, *, with_zone: bool) -> str:
    """As PyIceberg reads it: `T` between date and time; a zone if and only if the column has one."""
    if _DATE.fullmatch(text):
        text += "T00:00:00"
    if len(text) > 10 and text[10] == " ":
        text = f"{text[:10]}T{text[11:]}"
    zone = _ZONE.search(text[10:])
    if zone is None:
        return f"{text}+00:00" if with_zone else text
    plain = text[: -len(zone[0])]
    if zone[0] in ("Z", "+00:00"):
        # Times without a zone are compared with what CURRENT_TIMESTAMP says in UTC.
        return f"{plain}+00:00" if with_zone else plain
    return text


def _how_to_write(kind: IcebergType) -> str:
    if isinstance(kind, DateType):
        return "write a date such as '2026-01-31', or CURRENT_DATE - 7"
    if isinstance(kind, TimestampType | TimestamptzType):
        return "write a time such as '2026-01-31T12:00:00', or CURRENT_TIMESTAMP - 7"
    return f"write a value of type {kind}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
