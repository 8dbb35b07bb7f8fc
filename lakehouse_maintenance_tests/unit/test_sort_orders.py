"""Sort orders as people write them, against what a table has; the order in force, in a plan and out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.iceberg.sort_orders import column_types, default_sort_order_id, sort_orders
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.sort_orders import SortField, SortOrder
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.sort_orders import parse, parse_zorder, resolve
from lakehouse_maintenance_tests.planning_facts import table

pytestmark = pytest.mark.requirement("IM-02")

TYPES = {
    "id": "long",
    "name": "string",
    "ts": "timestamptz",
    "day": "date",
    "a.b": "int",
    "flag": "boolean",
    "u": "unknown",
}
OWN = (SortField(("name",)), SortField(("id",), "bucket", 4, descending=True, nulls_first=False))


def state(**changes):
    base = replace(table().state, column_types=TYPES, sort_orders={0: (), 3: OWN}, default_sort_order_id=3)
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("id", "id ASC NULLS FIRST"),
        ("id desc", "id DESC NULLS LAST"),
        ("user_id ASC NULLS LAST, day DESC", "user_id ASC NULLS LAST, day DESC NULLS LAST"),
        ("id DESC nulls first", "id DESC NULLS FIRST"),
        ("id NULLS LAST", "id ASC NULLS LAST"),
        ("bucket(4, id), truncate(name, 3)", "bucket(4, id) ASC NULLS FIRST, truncate(3, name) ASC NULLS FIRST"),
        ("days(ts), hour(ts) desc", "day(ts) ASC NULLS FIRST, hour(ts) DESC NULLS LAST"),
        ("years(a.b), date(ts)", "year(a.b) ASC NULLS FIRST, day(ts) ASC NULLS FIRST"),
        ("identity(id)", "id ASC NULLS FIRST"),
        ('`odd name`.b, "q""q"', '`odd name`.b ASC NULLS FIRST, `q"q` ASC NULLS FIRST'),
        ("`a``b`", "`a``b` ASC NULLS FIRST"),
        ("  größe  ", "`größe` ASC NULLS FIRST"),
        ("asc", "asc ASC NULLS FIRST"),
        ("zorder(a, b.c)", "zorder(a, b.c)"),
        ("ZORDER ( a )", "zorder(a)"),
        ("bucket", "bucket ASC NULLS FIRST"),
    ],
)
def test_orders_are_read(text, canonical):
    order = parse(text)
    assert order.text == canonical
    assert parse(order.text) == order


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "a,", "a b", "a ASC DESC", "a NULLS", "a NULLS MIDDLE", "a..b", ".a", "a.", "1", "a;", "a -- b"),
        *("bucket(id)", "bucket(0, id)", "bucket(4, 4)", "bucket(id, id)", "bucket(4, id", "truncate(3)"),
        *("day(4, ts)", "day()", "upper(name)", "zorder()", "zorder(a,)", "zorder(a) DESC", "zorder(bucket(4, a))"),
        *("zorder(a), b", "b, zorder(a)", "zorder(a), zorder(b)", "zorder(a, a)", '""', "`a", "bucket(9999999999, id)"),
    ],
)
def test_what_is_no_order_names_sort_order(text):
    with pytest.raises(InputError) as refused:
        parse(text)
    assert refused.value.field == "sort_order"
    assert refused.value.hint


def test_zorder_takes_columns_alone():
    assert (
        parse_zorder("a, b") == parse_zorder("zorder(a, b)") == SortOrder((SortField(("a",)), SortField(("b",))), True)
    )
    for text in ("a DESC", "bucket(4, a)", "a NULLS LAST", ", ".join(f"c{i}" for i in range(17))):
        with pytest.raises(InputError):
            parse_zorder(text)


names = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3)
terms = st.one_of(
    st.builds(SortField, names.map(tuple), st.just("identity"), st.none(), st.booleans(), st.booleans()),
    st.builds(
        SortField,
        names.map(tuple),
        st.sampled_from(["bucket", "truncate"]),
        st.integers(1, 99),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(SortField, names.map(tuple), st.sampled_from(["year", "month", "day", "hour"]), st.none()),
)


@given(st.lists(terms, min_size=1, max_size=4))
def test_text_and_back(fields):
    order = SortOrder(tuple(fields))
    assert parse(order.text) == order


class TestResolve:
    def test_the_tables_own_order(self):
        assert resolve("sort", None, state()) == (SortOrder(OWN), 3)
        assert resolve("sort", "name, bucket(4, id) DESC", state()) == (SortOrder(OWN), 3)
        assert resolve("sort", "name", state()) == (SortOrder((SortField(("name",)),)), None)

    def test_an_older_order_of_the_table_has_its_id_too(self):
        orders = {0: (), 1: (SortField(("id",)),), 2: OWN, 3: OWN}
        assert resolve("sort", "id", state(sort_orders=orders))[1] == 1
        assert resolve("sort", "name, bucket(4, id) DESC", state(sort_orders=orders))[1] == 3

    def test_zorder_by_either_strategy(self):
        expected = SortOrder((SortField(("id",)), SortField(("a", "b"))), zorder=True), None
        assert resolve("zorder", "id, a.b", state()) == resolve("sort", "zorder(id, a.b)", state()) == expected

    def test_binpack(self):
        assert resolve("binpack", None, state()) == (None, None)

    @pytest.mark.parametrize(
        ("strategy", "text", "changes", "told"),
        [
            ("binpack", "id", {}, "binpack keeps rows"),
            ("zorder", None, {}, "names no columns"),
            ("sort", None, {"default_sort_order_id": 0}, "none of its own"),
            ("sort", None, {"sort_orders": {3: None}}, "not known here"),
            ("sort", "idd", {}, "no column idd"),
            ("sort", "a", {}, "no column a "),
            ("zorder", "id, nope", {}, "no column nope"),
            ("sort", "u", {}, "no order"),
            ("sort", "hours(day)", {}, "type date"),
            ("sort", "bucket(2, flag)", {}, "type boolean"),
            ("sort", "truncate(2, ts)", {}, "type timestamptz"),
        ],
    )
    def test_what_does_not_fit(self, strategy, text, changes, told):
        with pytest.raises(InputError) as refused:
            resolve(strategy, text, state(**changes))
        assert told in refused.value.message
        assert refused.value.field == "sort_order"
        assert refused.value.hint


def test_options_carry_the_order():
    base = RewriteOptions.resolve({}, {})
    assert "strategy" not in base.as_text()
    ordered = base.with_layout("sort", SortOrder(OWN), 3)
    assert ordered.as_text()["sort-order"] == "name ASC NULLS FIRST, bucket(4, id) DESC NULLS LAST"
    for options in (base, ordered, base.with_layout("zorder", parse("zorder(a, b)"), None)):
        assert RewriteOptions.from_text(options.as_text()) == options


METADATA = {
    "current-schema-id": 1,
    "schemas": [
        {"schema-id": 0, "fields": [{"id": 1, "name": "old", "type": "int"}]},
        {
            "schema-id": 1,
            "fields": [
                {"id": 1, "name": "id", "type": "long"},
                {"id": 2, "name": "s", "type": {"type": "struct", "fields": [{"id": 3, "name": "x", "type": "date"}]}},
                {"id": 4, "name": "l", "type": {"type": "list", "element-id": 5, "element": "int"}},
            ],
        },
    ],
    "default-sort-order-id": 2,
    "sort-orders": [
        {"order-id": 0, "fields": []},
        {
            "order-id": 2,
            "fields": [
                {"transform": "truncate[10]", "source-id": 1, "direction": "desc", "null-order": "nulls-first"},
                {"transform": "day", "source-ids": [3], "direction": "asc", "null-order": "nulls-last"},
            ],
        },
        *(
            {"order-id": number, "fields": [{"source-id": 1, "direction": "asc", "null-order": "nulls-first", **odd}]}
            for number, odd in enumerate(
                [{"transform": "zorder"}, {"transform": "day", "source-id": 9}, {"transform": None}, {"direction": 1}],
                3,
            )
        ),
    ],
}


def test_a_tables_orders_and_columns():
    assert column_types(METADATA) == {"id": "long", "s.x": "date"}
    assert default_sort_order_id(METADATA) == 2
    assert sort_orders(METADATA) == {
        0: (),
        2: (
            SortField(("id",), "truncate", 10, descending=True, nulls_first=True),
            SortField(("s", "x"), "day", None, descending=False, nulls_first=False),
        ),
        **dict.fromkeys((3, 4, 5, 6)),
    }


@pytest.mark.parametrize("raw", [{}, {"sort-orders": 3, "schemas": "x"}, {"sort-orders": [None, {"fields": 1}]}])
def test_odd_metadata_has_no_orders(raw):
    assert not any(sort_orders(raw).values())
    assert column_types(raw) == {}
    assert default_sort_order_id(raw) == 0
