"""The result of asking for everything: complete, or an error value that nobody can take for a short list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Complete(Generic[T]):
    """Every page was read to the end."""

    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The listing failed; how much was seen is told for messages only, the items themselves are not given out."""

    why: str
    seen: int = 0


Listed = Complete[T] | Incomplete
