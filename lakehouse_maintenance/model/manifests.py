"""Facts about the manifests of an Iceberg snapshot, as its manifest list tells them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    """What a manifest's entries hold of one partition field, as sort keys (`sort_key`); nulls and NaN are in it."""

    lower: tuple[Any, ...]
    upper: tuple[Any, ...]

    @property
    def is_point(self) -> bool:
        """One value alone."""
        return self.lower == self.upper

    def with_(self, other: Range) -> Range:
        """Both."""
        return Range(min(self.lower, other.lower), max(self.upper, other.upper))


NULL_KEY: tuple[Any, ...] = (0,)
NAN_KEY: tuple[Any, ...] = (2,)


def sort_key(value: Any) -> tuple[Any, ...]:
    """Order of raw partition values: null, values in Iceberg's order, NaN.

    Text and binary are ordered by unsigned bytes, -0.0 comes before 0.0; a decimal is given as a number.
    """
    if value is None:
        return NULL_KEY
    if isinstance(value, str):
        return (1, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, float):
        if math.isnan(value):
            return NAN_KEY
        return (1, value, repr(value)[0] != "-")
    return (1, value)


@dataclass(frozen=True, slots=True)
class ManifestFacts:
    """A live manifest as its list tells it. `ranges`: of each field of the spec that has a transform other than void,
    in their order; None where the list does not tell. `live_files`: None where an old writer did not count."""

    path: str
    size: int
    spec_id: int
    deletes: bool
    live_files: int | None
    ranges: tuple[Range, ...] | None = None
