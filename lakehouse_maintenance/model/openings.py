"""What a query on one partition opens: manifests whose partition range covers it, and the partition's files (IM-21).

Before it opens anything, a reader compares the partition with each manifest's summary: for each partition field the
least and the greatest value of the manifest's entries, and whether there are nulls and NaNs (Iceberg spec: Manifest
Lists, field_summary). Only ranges are kept, so a manifest that holds two distant partitions is opened for all between.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

MOST_BITS = 400_000_000
"""Partitions × manifests that are compared; of more partitions, evenly chosen ones stand for all."""


@dataclass(frozen=True, slots=True)
class FieldRange:
    """One field of a manifest's summary. `low`, `high`: None where no entry has a value that is neither null nor NaN.

    `is_known`: False where the range cannot be read or compared; it covers everything.
    """

    low: Any = None
    high: Any = None
    has_null: bool = True
    has_nan: bool = True
    is_known: bool = True


UNKNOWN = FieldRange(is_known=False)


@dataclass
class PartitionCount:
    """Live files of one partition; `data_bytes`: of its data files."""

    data_files: int = 0
    data_bytes: int = 0
    delete_files: int = 0


@dataclass
class SpecManifests:
    """The manifests of one partition spec that hold live files, and their partitions by the values of their tuples.

    `ranges`: of each manifest, one for each partition field, or None where it has no summary.
    `bytes`: of all manifests of data files, and of all of delete files.
    """

    ranges: list[Sequence[FieldRange] | None] = field(default_factory=list)
    partitions: dict[tuple[Any, ...], PartitionCount] = field(default_factory=dict)
    data_manifests: int = 0
    delete_manifests: int = 0
    data_bytes: int = 0
    delete_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Openings:
    """Of the partitions that hold data files, the median and the worst; after: what is left by the whole upkeep.

    `manifests_after`: of the table, in all.
    """

    manifests_median: int = 0
    manifests_worst: int = 0
    manifests_median_after: int = 0
    manifests_worst_after: int = 0
    files_median: int = 0
    files_worst: int = 0
    files_median_after: int = 0
    files_worst_after: int = 0
    manifests_after: int = 0


def openings(specs: Iterable[SpecManifests], *, manifest_target: int, file_target: int) -> Openings:
    """`manifest_target`, `file_target`: bytes that rewrite_manifests and compaction aim at.

    The estimate of what is left: manifests of one spec and content, with their entries in the order of partitions, as
    many as their bytes fill; of each partition, as many data files as its bytes fill, no more than now, and no deletes.
    """
    manifests: list[int] = []
    manifests_after: list[int] = []
    files: list[int] = []
    files_after: list[int] = []
    in_all = 0
    for spec in specs:
        counted = {values: count for values, count in spec.partitions.items() if count.data_files}
        data = min(spec.data_manifests, -(-spec.data_bytes // manifest_target))
        deletes = min(spec.delete_manifests, -(-spec.delete_bytes // manifest_target))
        in_all += data + deletes
        files += [count.data_files + count.delete_files for count in counted.values()]
        files_after += [min(c.data_files, max(1, -(-c.data_bytes // file_target))) for c in counted.values()]
        chosen = _chosen(counted, len(spec.ranges))
        manifests += covering(spec.ranges, chosen)
        ordered = sorted(spec.partitions, key=_order)
        spans = _spans([spec.partitions[v].data_files for v in ordered], data)
        delete_spans = _spans([spec.partitions[v].delete_files for v in ordered], deletes)
        after = {v: one + two for v, one, two in zip(ordered, spans, delete_spans, strict=True)}
        manifests_after += [after[values] for values in chosen]
    return Openings(
        *(median(manifests), max(manifests, default=0), median(manifests_after), max(manifests_after, default=0)),
        *(median(files), max(files, default=0), median(files_after), max(files_after, default=0)),
        in_all,
    )


def median(numbers: Sequence[int]) -> int:
    """The lower one of the two in the middle, of an even number of them; 0 of none."""
    return sorted(numbers)[(len(numbers) - 1) // 2] if numbers else 0


def covering(ranges: Sequence[Sequence[FieldRange] | None], partitions: Sequence[tuple[Any, ...]]) -> list[int]:
    """For each partition, how many of the manifests a query on it opens."""
    everyone = (1 << len(ranges)) - 1
    width = len(partitions[0]) if partitions else 0
    found = [everyone] * len(partitions)
    for position in range(width):
        column = [UNKNOWN if one is None or position >= len(one) else one[position] for one in ranges]
        try:
            sets = _covering(column, [values[position] for values in partitions])
        except TypeError:
            continue  # values that do not compare: nobody can skip a manifest by them
        found = [before & now for before, now in zip(found, sets, strict=True)]
    return [bits.bit_count() for bits in found]


def _covering(ranges: Sequence[FieldRange], values: Sequence[Any]) -> list[int]:
    """Of each value, the set of ranges that cover it, as the bits of a number."""
    nulls = nans = unknown = 0
    plain = sorted({value for value in values if value is not None and not _is_nan(value)})
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for index, one in enumerate(ranges):
        bit = 1 << index
        if not one.is_known:
            unknown |= bit
            continue
        nulls |= bit if one.has_null else 0
        nans |= bit if one.has_nan else 0
        if one.low is not None and one.high is not None:
            first, last = bisect_left(plain, one.low), bisect_right(plain, one.high)
            starts[first] = starts.get(first, 0) | bit
            ends[last] = ends.get(last, 0) | bit
    sets: dict[Any, int] = {}
    bits = 0
    for number, value in enumerate(plain):
        bits = (bits | starts.get(number, 0)) & ~ends.get(number, 0)
        sets[value] = bits | unknown
    return [nulls | unknown if v is None else nans | unknown if _is_nan(v) else sets[v] for v in values]


def _chosen(partitions: Mapping[tuple[Any, ...], PartitionCount], manifests: int) -> list[tuple[Any, ...]]:
    """All of them, or evenly chosen ones and the largest, where they and the manifests are too many to compare."""
    most = max(MOST_BITS // max(manifests, 1), 1)
    if len(partitions) <= most:
        return list(partitions)
    ordered = sorted(partitions, key=_order)
    chosen = dict.fromkeys(ordered[:: -(-len(ordered) // most)])
    chosen[max(partitions, key=lambda values: partitions[values].data_files)] = None
    return list(chosen)


def _spans(counts: Sequence[int], manifests: int) -> list[int]:
    """Over how many manifests each partition's entries reach, where they are in order and evenly spread."""
    total = sum(counts)
    found = []
    at = 0
    for count in counts:
        if not count or not manifests:
            found.append(0)
        else:
            found.append((at + count - 1) * manifests // total - at * manifests // total + 1)
        at += count
    return found


def _order(values: tuple[Any, ...]) -> list[tuple[bool, str, Any]]:
    """Sorts tuples that hold nulls, and values of several kinds."""
    return [(v is not None, type(v).__name__, 0 if v is None or _is_nan(v) else v) for v in values]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)
