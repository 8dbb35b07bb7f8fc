"""Text from users' systems in Markdown: none of it may become markup, wherever the Markdown is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MARKUP = frozenset("\\`*~|<>[]!#&$")
_LONGEST = 2000


def plain(text: object) -> str:
    """The text as Markdown shows it unchanged, also inside a table's cell.

    Markup becomes character references, which no reader of Markdown takes for markup again; what cannot be seen, such
    as marks that turn the direction of writing, is named by its code point.
    """
    shown = str(text)
    if len(shown) > _LONGEST:
        shown = shown[:_LONGEST] + "…"
    # An underscore inside a word is no markup, and most names have one.
    return "".join(_plain(char, shown[at - 1 : at], shown[at + 1 : at + 2]) for at, char in enumerate(shown))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells are taken as plain text."""
    lines = [_row(head), "|" + " --- |" * len(head)]
    lines += [_row(row) for row in rows]
    return "\n".join(lines)


def _plain(char: str, before: str, after: str) -> str:
    if char in "\n\r\t":
        return " "
    if char == "_" and not (before.isalnum() and after.isalnum()):
        return "&#95;"
    if char in _MARKUP:
        return f"&#{ord(char)};"
    if not char.isprintable():
        return f"U+{ord(char):04X}"
    return char


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(plain(cell) for cell in cells) + " |"
