"""How far files that should be in order overlap: what a reader that looks for one key cannot skip (IM-15).

A file is a box: for each column of the sort order the range of its values, by the column bounds that manifests hold.
Two files overlap on a column where their ranges share more than an end point, or are the same: files that follow one
another in a sorted run meet in one value and do not overlap. They overlap where they do so on every column. A file's
depth is the number of other files of its partition that it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MORE_THAN = 3
"""Overlapping so many others is nothing to speak of: neighbours on a z-order curve do, however well it is laid."""

CHUNK = 4096
"""Files of one partition that are compared with each other; see `overlap`."""

Box = tuple[tuple[Any, Any], ...]
"""For each column, the least and the greatest value."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """`files`: those that overlap more than MORE_THAN others. `depth_percent`: 100 × (1 + the depth on average)."""

    files: int
    depth_percent: int


def overlap(partitions: Iterable[Sequence[Box]]) -> Overlap:
    """Of all partitions' files together; no file at all counts as depth 100.

    Of a partition with more than CHUNK files, each is compared with those of its run of CHUNK files, in the order of
    their first column's lower bounds: depths are too small there, and memory stays bounded.
    """
    deep = total = files = 0
    for boxes in partitions:
        ordered = sorted(boxes) if len(boxes) > CHUNK else boxes
        for start in range(0, len(ordered), CHUNK):
            for depth in depths(ordered[start : start + CHUNK]):
                files += 1
                total += depth
                deep += depth > MORE_THAN
    return Overlap(deep, 100 if not files else 100 * (files + total) // files)


def depths(boxes: Sequence[Box]) -> list[int]:
    """Of each box, how many others it overlaps. Raises TypeError where values of a column cannot be compared."""
    meeting = [(1 << len(boxes)) - 1] * len(boxes)
    for column in range(len(boxes[0]) if boxes else 0):
        ranges = [box[column] for box in boxes]
        for index, others in enumerate(_meeting(ranges)):
            meeting[index] &= others
    # Each box meets itself on every column.
    return [others.bit_count() - 1 for others in meeting]


def _meeting(ranges: Sequence[tuple[Any, Any]]) -> list[int]:
    """Of each range, the set of those that overlap it, as the bits of a number."""
    everyone = (1 << len(ranges)) - 1
    below = _sets(sorted((high, index) for index, (_, high) in enumerate(ranges)), {low for low, _ in ranges})
    started = _sets(
        sorted((low, index) for index, (low, _) in enumerate(ranges)), {high for _, high in ranges}, strict=True
    )
    same: dict[tuple[Any, Any], int] = {}
    for index, one in enumerate(ranges):
        same[one] = same.get(one, 0) | 1 << index
    return [started[high] & (everyone ^ below[low]) | same[low, high] for low, high in ranges]


def _sets(ends: Sequence[tuple[Any, int]], limits: Iterable[Any], *, strict: bool = False) -> dict[Any, int]:
    """For each limit, whose end lies at or below it (below it alone, where strict)."""
    found: dict[Any, int] = {}
    bits = at = 0
    for limit in sorted(limits):
        while at < len(ends) and (ends[at][0] < limit or (not strict and ends[at][0] == limit)):
            bits |= 1 << ends[at][1]
            at += 1
        found[limit] = bits
    return found
