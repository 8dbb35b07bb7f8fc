"""The wall clock, in the two forms we write."""

from __future__ import annotations

from datetime import UTC, datetime


def now_text() -> str:
    """Now in ISO 8601 UTC with milliseconds, as the journal and plans hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now_ms() -> int:
    """Milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)
