"""Which of a store's times can be believed as an age. Pure."""

from __future__ import annotations

from typing import TypeGuard

EARLIEST_MS = 946_684_800_000
"""2000-01-01: a time before it is a missing one, or a clock's slip, and no age."""

SKEW_MS = 15 * 60 * 1000
"""How far the clocks of a store and of this machine may differ."""


def is_believable(modified_ms: int | None, now_ms: int) -> TypeGuard[int]:
    """False where an age cannot be established from it: none, an impossible one, or one of the future."""
    return modified_ms is not None and EARLIEST_MS <= modified_ms <= now_ms + SKEW_MS
