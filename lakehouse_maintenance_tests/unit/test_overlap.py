"""Files out of order, and what a query on one partition opens: counted against the definitions, pair by pair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.model import overlap as overlapping
from lakehouse_maintenance.model.openings import (
    UNKNOWN,
    FieldRange,
    PartitionCount,
    SpecManifests,
    covering,
    median,
    openings,
)
from lakehouse_maintenance.model.overlap import depths, overlap

RANGES = st.tuples(st.integers(0, 12), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))
BOXES = st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[RANGES] * n), max_size=25))


def meet(one: tuple[int, int], two: tuple[int, int]) -> bool:
    return (one[0] < two[1] and two[0] < one[1]) or one == two


@given(BOXES)
@pytest.mark.requirement("IM-15")
def test_depth_is_the_number_of_others_that_overlap_on_every_column(boxes: list[tuple[tuple[int, int], ...]]) -> None:
    expected = [sum(i != j and all(map(meet, one, two)) for j, two in enumerate(boxes)) for i, one in enumerate(boxes)]
    assert depths(boxes) == expected


@pytest.mark.requirement("IM-15")
def test_sorted_runs_do_not_overlap_and_shuffled_ones_do() -> None:
    in_order = [((n, n + 1),) for n in range(40)]
    assert overlap([in_order]) == overlapping.Overlap(0, 100), "neighbours meet in one value"
    assert overlap([[((0, 100),)] * 40]) == overlapping.Overlap(40, 4000)
    # Sorted by two columns, with one value of the first in many files.
    assert overlap([[((7, 7), (n, n + 1)) for n in range(40)]]).files == 0
    # A z-order curve: cells of a grid, which meet in their edges alone.
    grid = [((x, x + 1), (y, y + 1)) for x in range(8) for y in range(8)]
    assert overlap([grid]) == overlapping.Overlap(0, 100)
    # Partitions are told apart; nothing is measured of nothing.
    assert overlap([[((0, 9),)], [((0, 9),)]]).depth_percent == 100
    assert overlap([]) == overlapping.Overlap(0, 100)


def test_large_partitions_are_compared_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlapping, "CHUNK", 10)
    shuffled = [((n % 100, n % 100 + 1),) for n in range(0, 7 * 100, 7)]
    assert overlap([shuffled]) == overlapping.Overlap(0, 100)
    assert overlap([[((0, 9),)] * 100]) == overlapping.Overlap(100, 1000)


VALUES = st.one_of(st.none(), st.integers(0, 9), st.just(float("nan")))
FIELD = st.one_of(
    st.just(UNKNOWN),
    st.builds(lambda null, nan: FieldRange(has_null=null, has_nan=nan), st.booleans(), st.booleans()),
    st.builds(lambda r, null, nan: FieldRange(r[0], r[1], null, nan), RANGES, st.booleans(), st.booleans()),
)


@given(
    st.lists(st.one_of(st.none(), st.tuples(FIELD, FIELD)), max_size=12),
    st.lists(st.tuples(VALUES, VALUES), max_size=12),
)
@pytest.mark.requirement("IM-21")
def test_manifests_whose_ranges_cover_a_partition(manifests: list, partitions: list) -> None:
    def covers(one: FieldRange, value: object) -> bool:
        if not one.is_known:
            return True
        if value is None:
            return one.has_null
        if value != value:
            return one.has_nan
        return one.low is not None and one.low <= value <= one.high  # type: ignore[operator]

    expected = [
        sum(ranges is None or all(map(covers, ranges, values)) for ranges in manifests) for values in partitions
    ]
    assert covering(manifests, partitions) == expected


def test_values_that_do_not_compare_skip_nothing() -> None:
    assert covering([(FieldRange(1, 5),), (FieldRange("a", "b"),)], [(3,), ("a",)]) == [2, 2]


@pytest.mark.requirement("IM-21")
def test_before_and_after() -> None:
    spec = SpecManifests(
        ranges=[(FieldRange(0, 9, False, False),)] * 20 + [(FieldRange(3, 3, False, False),)],
        partitions={(n,): PartitionCount(10 if n else 50, 1000, 1 if n == 3 else 0) for n in range(10)},
        data_manifests=20,
        delete_manifests=1,
        data_bytes=400,
        delete_bytes=10,
    )
    found = openings([spec], manifest_target=100, file_target=400)
    assert (found.manifests_median, found.manifests_worst) == (20, 21)
    assert (found.files_median, found.files_worst) == (10, 50)
    assert found.manifests_after == 5, "four of data files, one of delete files"
    # 140 files in four manifests, in order: the first 50 reach into the second.
    assert (found.manifests_median_after, found.manifests_worst_after) == (1, 2)
    assert (found.files_median_after, found.files_worst_after) == (3, 3)
    assert openings([], manifest_target=1, file_target=1).manifests_worst == 0
    assert [median([]), median([4]), median([9, 1]), median([3, 1, 2])] == [0, 4, 1, 2]


def test_of_too_many_partitions_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehouse_maintenance.model.openings.MOST_BITS", 40)
    counts = {(n,): PartitionCount(99 if n == 501 else 1, 1) for n in range(1000)}
    spec = SpecManifests([(FieldRange(501, 501),)] * 2 + [None] * 2, counts, 4, 0, 4, 0)
    found = openings([spec], manifest_target=1, file_target=1)
    assert (found.manifests_median, found.manifests_worst) == (2, 4), "the largest is among them"
    assert found.files_worst == 99, "files are counted in all of them"
