"""Which order a rewrite gives to rows: parsing `sort_order`, and choosing by strategy (IM-02). Pure.

The syntax is that of Iceberg's Spark procedure `rewrite_data_files`:

    user_id ASC NULLS LAST, day DESC        directions, null order
    bucket(4, id), days(ts), truncate(3, s) Iceberg's transforms, in its spellings
    zorder(a, b)                            z-order, not to be mixed with other terms

Nulls come first with ASC and last with DESC, unless the order says otherwise (Iceberg: SortOrder's defaults). Names
are exact; nested ones are dotted (`address.city`), odd ones stand in backticks or double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.files import TableState
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.model.sort_orders import SortField, SortOrder, quoted

FIELD = "sort_order"
_FORM = 'write terms such as "user_id ASC NULLS LAST, bucket(4, id), days(ts)", or "zorder(a, b)"'
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\")|([^\W\d]\w*)|(\d+)|([(),.])|(\S))")
_TRANSFORMS = {
    "identity": "identity",
    "bucket": "bucket",
    "truncate": "truncate",
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("day", "days", "date"), "day"),
    **dict.fromkeys(("hour", "hours", "date_hour"), "hour"),
}
_ZORDER = "zorder"
_DATES = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_TIMESTAMPS = _DATES[1:]
_TAKES: Mapping[str, tuple[str, ...]] = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
    "truncate": ("int", "long", "decimal", "string", "binary"),
    "bucket": (
        *("int", "long", "decimal", "date", "time", "string", "uuid", "fixed", "binary"),
        *_TIMESTAMPS,
    ),
}
_WITHOUT_ORDER = ("unknown", "variant", "geometry", "geography")
_MOST_ZORDER_COLUMNS = 16


def parse(text: str, *, field: str = FIELD) -> SortOrder:
    """The order that the text names. Raises InputError, whose `field` is the one given."""
    return _Parser(text, field).order()


def parse_zorder(text: str, *, field: str = FIELD) -> SortOrder:
    """Columns of strategy `zorder`: `a, b`, or `zorder(a, b)`. Raises InputError."""
    order = parse(text, field=field)
    if order.zorder:
        return order
    if any(one != SortField(one.column) for one in order.fields):
        raise InputError(
            f"strategy zorder takes columns alone, not {text!r}", field=field, hint='write columns such as "a, b"'
        )
    return _zorder(order.fields, field)


def resolve(
    strategy: str, sort_order: str | None, state: TableState, *, field: str = FIELD
) -> tuple[SortOrder | None, int | None]:
    """The order that outputs get and, where it is one of the table's own orders, its id; (None, None) for binpack.

    Columns and transforms are checked against the table's current schema. Raises InputError: the table's plan has it
    as its error, and nothing is written.
    """
    if strategy == "binpack":
        if sort_order is not None:
            raise InputError(
                "binpack keeps rows in the order of their files",
                field=field,
                hint="leave sort_order out, or set strategy to sort or zorder",
            )
        return None, None
    if strategy == "zorder":
        if sort_order is None:
            raise InputError(
                "strategy zorder names no columns", field=field, hint='add sort_order, such as "user_id, country"'
            )
        order = parse_zorder(sort_order, field=field)
    elif sort_order is not None:
        order = parse(sort_order, field=field)
    else:
        return _tables_own(state, field)
    check(order, state.column_types, field=field)
    return order, None if order.zorder else order_id(order, state)


def order_id(order: SortOrder, state: TableState) -> int | None:
    """The id under which the table has this very order; the current one first where several are equal."""
    ids = sorted(state.sort_orders, key=lambda one: (one != state.default_sort_order_id, one))
    return next((one for one in ids if one != 0 and state.sort_orders[one] == order.fields), None)


def check(order: SortOrder, types: Mapping[str, str], *, field: str = FIELD) -> None:
    """Raises InputError for a column that is not there or cannot be ordered so.

    `types`: dotted name → type as metadata spells it, for every primitive column outside lists and maps.
    """
    for one in order.fields:
        kind = types.get(one.name)
        if kind is None:
            raise InputError(
                f"the table has no column {quoted(one.column)} that rows can be ordered by",
                field=field,
                hint=suggestion(one.name, list(types)),
            )
        if _base(kind) in _WITHOUT_ORDER:
            raise InputError(
                f"column {quoted(one.column)} is of type {kind}, whose values have no order",
                field=field,
                hint="choose another column",
            )
        accepted = _TAKES.get(one.transform)
        if accepted is not None and _base(kind) not in accepted:
            raise InputError(
                f"{one.transform} does not take column {quoted(one.column)}, which is of type {kind}",
                field=field,
                hint=f"{one.transform} takes {', '.join(accepted)}",
            )


def _base(kind: str) -> str:
    return re.split(r"[(\[]", kind)[0].strip()


def _tables_own(state: TableState, field: str) -> tuple[SortOrder, int]:
    fields = state.sort_orders.get(state.default_sort_order_id, ())
    if state.default_sort_order_id == 0 or fields == ():
        raise InputError(
            "strategy sort has no order to sort by: the table has none of its own",
            field=field,
            hint="add sort_order, or set the table's order: ALTER TABLE … WRITE ORDERED BY …",
        )
    if fields is None:
        raise InputError(
            "the table's own sort order has a term that is not known here",
            field=field,
            hint="add sort_order; known are columns, bucket, truncate, year, month, day and hour",
        )
    order = SortOrder(fields)
    check(order, state.column_types, field=field)
    return order, state.default_sort_order_id


def _zorder(fields: tuple[SortField, ...], field: str) -> SortOrder:
    names = [one.name for one in fields]
    if len(set(names)) < len(names):
        raise InputError("zorder names a column twice", field=field, hint="name each column once")
    if len(names) > _MOST_ZORDER_COLUMNS:
        raise InputError(
            f"zorder of {len(names)} columns orders by none of them",
            field=field,
            hint=f"choose the few that queries filter by, {_MOST_ZORDER_COLUMNS} at most",
        )
    return SortOrder(fields, zorder=True)


class _Parser:
    """Recursive descent over `text`; one token is looked ahead."""

    def __init__(self, text: str, field: str) -> None:
        self._text = text
        self._field = field
        self._tokens = list(_tokens(text))
        self._at = 0

    def order(self) -> SortOrder:
        terms: list[SortField] = []
        zorders: list[tuple[SortField, ...]] = []
        while True:
            found = self._term()
            if isinstance(found, SortField):
                terms.append(found)
            else:
                zorders.append(found)
            if self._kind() == "end":
                break
            self._expect(",")
        if not zorders:
            return SortOrder(tuple(terms))
        if terms or len(zorders) > 1:
            raise InputError(
                f"zorder cannot be mixed with other terms: {self._text!r}",
                field=self._field,
                hint='write one zorder(…) alone, such as "zorder(a, b)", or columns alone',
            )
        return _zorder(zorders[0], self._field)

    def _term(self) -> SortField | tuple[SortField, ...]:
        if self._kind() == "word" and self._peek(1) == ("mark", "("):
            word = self._take()[1].lower()
            self._expect("(")
            if word == _ZORDER:
                return self._zorder_columns()
            column, transform, width = self._transform(word)
        else:
            column, transform, width = self._name(), "identity", None
        descending = self._direction()
        nulls_first = self._null_order(default=not descending)
        return SortField(column, transform, width, descending, nulls_first)

    def _zorder_columns(self) -> tuple[SortField, ...]:
        columns = [SortField(self._name())]
        while self._kind() == "mark" and self._peek()[1] == ",":
            self._take()
            columns.append(SortField(self._name()))
        self._expect(")")
        return tuple(columns)

    def _transform(self, word: str) -> tuple[tuple[str, ...], str, int | None]:
        transform = _TRANSFORMS.get(word)
        if transform is None:
            self._fail(f"{word!r} is no transform", suggestion(word, [*_TRANSFORMS, _ZORDER]))
        width: int | None = None
        column: tuple[str, ...] | None = None
        # As in Spark: the width may stand before or after the column.
        for place in range(2 if transform in ("bucket", "truncate") else 1):
            if place:
                self._expect(",")
            if width is None and self._kind() == "number":
                width = int(self._take()[1])
            else:
                column = self._name()
        self._expect(")")
        needs_width = transform in ("bucket", "truncate")
        if column is None or needs_width == (width is None) or (needs_width and not 0 < (width or 0) < 1 << 31):
            self._fail(f"{word} does not fit", f"write {word}(16, column)" if needs_width else f"write {word}(column)")
        return column, transform, width

    def _name(self) -> tuple[str, ...]:
        parts = [self._part()]
        while self._peek() == ("mark", "."):
            self._take()
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> str:
        kind, value = self._take()
        if kind not in ("word", "quoted") or not value:
            self._fail("a column's name is missing" if kind == "end" else f"{value!r} is no column's name")
        return value

    def _direction(self) -> bool:
        if self._kind() == "word" and self._peek()[1].upper() in ("ASC", "DESC"):
            return self._take()[1].upper() == "DESC"
        return False

    def _null_order(self, *, default: bool) -> bool:
        if self._kind() != "word" or self._peek()[1].upper() != "NULLS":
            return default
        self._take()
        kind, value = self._take()
        if kind != "word" or value.upper() not in ("FIRST", "LAST"):
            self._fail("NULLS is followed by neither FIRST nor LAST")
        return value.upper() == "FIRST"

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _kind(self) -> str:
        return self._peek()[0]

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, mark: str) -> None:
        kind, value = self._take()
        if (kind, value) != ("mark", mark):
            self._fail(f"{mark!r} is missing" if kind == "end" else f"{mark!r} is missing before {value!r}")

    def _fail(self, why: str, hint: str = "") -> NoReturn:
        raise InputError(f"{self._text!r} is no sort order: {why}", field=self._field, hint=hint or _FORM)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, value): word, quoted (without its quotes), number, mark, other; `end` is the last."""
    for match in _TOKEN.finditer(text.rstrip()):
        quoted_name, word, number, mark, other = match.groups()
        if quoted_name is not None:
            quote = quoted_name[0]
            yield "quoted", quoted_name[1:-1].replace(quote * 2, quote)
        elif word is not None:
            yield "word", word
        elif number is not None:
            yield "number", number
        elif mark is not None:
            yield "mark", mark
        else:
            yield "other", other
    yield "end", ""
