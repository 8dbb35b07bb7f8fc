"""Text and numbers as people read them on a terminal."""

from __future__ import annotations

from datetime import timedelta

from lakehouse_maintenance.model.intervals import format_duration, format_size

SHORT_DIGEST = len("sha256:") + 12


def printable(text: object) -> str:
    """The text with control characters as escapes: a table's name must not steer the terminal."""
    return "".join(char if char.isprintable() or char == " " else repr(char)[1:-1] for char in str(text))


def count(number: int, thing: str) -> str:
    """`1 file`, `12,345 files`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(number: int | None) -> str:
    """Bytes for people; `-` where they are not known."""
    return "-" if number is None else format_size(number)


def files_and_bytes(files: int, size_in_bytes: int) -> str:
    """`12 files, 3.4 MB`."""
    return f"{count(files, 'file')}, {format_size(size_in_bytes)}"


def seconds(number: float) -> str:
    """A duration to the second; what is shorter says so."""
    return "under a second" if number < 1 else format_duration(timedelta(seconds=round(number)))
