"""A table property that would have kept a table healthy, with the evidence (IM-18)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """`value`: what to set `property` to. `current`: what it is now, None where the table does not set it."""

    property: str
    value: str
    current: str | None
    reason: str
