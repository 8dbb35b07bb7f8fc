"""Names and reasons from users' systems never become markup."""

from __future__ import annotations

import html

from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.model.markdown import plain, table


def test_markup_is_shown_as_it_was_written() -> None:
    shown = plain("`a`|<script>*x*\n# [y](z) _u_ rewrite_data_files \u202e&lt;")

    assert not set("`|<>*[]#\n\u202e") & set(shown.replace("&#", "").replace("U+202E", ""))
    assert "rewrite_data_files" in shown
    assert "&#95;u&#95;" in shown
    assert html.unescape(shown) == "`a`|<script>*x* # [y](z) _u_ rewrite_data_files U+202E&lt;"


@given(st.text(max_size=50))
def test_a_cell_stays_one_cell_and_reads_as_the_text(text: str) -> None:
    lines = table(("name",), [(text,)]).split("\n")

    assert len(lines) == 3
    assert lines[2].count("|") == 2
    if text.isprintable():
        assert html.unescape(plain(text)) == text


def test_endless_text_is_cut() -> None:
    assert len(plain("x" * 100_000)) < 3_000
