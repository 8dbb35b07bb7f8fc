"""Which manifests and position delete files are rewritten: gains, and that nothing is worth a second run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.manifests import ManifestFacts, Range, sort_key
from lakehouse_maintenance.planning.manifests import ManifestOptions, plan_manifests
from lakehouse_maintenance.planning.position_deletes import NO_GAIN, TOO_FEW, DeletePlan, plan_deletes, resolve
from lakehouse_maintenance_tests.planning_facts import MB, data_file, delete_file

TARGET = 1000
OPTIONS = ManifestOptions(0, TARGET)


def manifest(
    path: str, size: int, *fields: tuple[object, object], spec: int = 0, deletes: bool = False
) -> ManifestFacts:
    ranges = tuple(Range(sort_key(low), sort_key(high)) for low, high in fields)
    return ManifestFacts(path, size, spec, deletes, 1, ranges)


def chosen(*manifests: ManifestFacts, options: ManifestOptions = OPTIONS) -> tuple[str, ...]:
    return tuple(one.path for one in plan_manifests(manifests, options).chosen)


@pytest.mark.requirement("IM-06", "IM-26")
class TestManifests:
    def test_small_ones_fit_into_fewer(self):
        small = [manifest(f"s{n}", 300, (n, n)) for n in range(4)]
        plan = plan_manifests([*small, manifest("full", 1100, (10, 20))], OPTIONS)
        assert [one.path for one in plan.chosen] == ["s0", "s1", "s2", "s3"]
        assert plan.expected == 2

    def test_well_sized_ones_beside_each_other_are_left(self):
        assert chosen(manifest("a", 1000, (1, 5)), manifest("b", 1000, (5, 9)), manifest("c", 100, (9, 9))) == ()
        assert "neither fewer nor better clustered" in plan_manifests([manifest("a", 1000, (1, 5))], OPTIONS).why

    def test_overlap_is_a_gain(self):
        assert chosen(manifest("a", 1000, (1, 9)), manifest("b", 1000, (2, 8))) == ("a", "b")
        assert chosen(manifest("a", 1000, (1, 9)), manifest("b", 1000, (5, 5))) == ("a", "b"), "one inside another"

    def test_the_second_field_counts_where_the_first_is_one_value(self):
        assert chosen(manifest("a", 1000, (1, 1), (1, 9)), manifest("b", 1000, (1, 1), (2, 8))) == ("a", "b")
        assert chosen(manifest("a", 1000, (1, 1), (1, 4)), manifest("b", 1000, (1, 1), (4, 8))) == ()
        assert chosen(manifest("a", 1000, (1, 2), (1, 9)), manifest("b", 1000, (2, 3), (2, 8))) == ()

    def test_one_wide_one_among_many_is_no_reason_to_rewrite_all(self):
        many = [manifest(f"m{n}", 1000, (n, n + 1)) for n in range(40)]
        assert chosen(*many, manifest("wide", 100, (0, 40))) == ()

    def test_data_and_deletes_are_kept_apart(self):
        plan = plan_manifests(
            [manifest("a", 300), manifest("b", 300), *(manifest(n, 10, deletes=True) for n in "de")], OPTIONS
        )
        assert {one.path for one in plan.chosen} == {*"abde"}
        assert plan.expected == 2

    def test_other_specs_are_named(self):
        plan = plan_manifests([manifest("a", 1000), manifest("b", 10, spec=1), manifest("c", 10, spec=1)], OPTIONS)
        assert not plan.chosen
        assert "2 manifests of partition spec 1 would gain: spec-id=1" in plan.why

    def test_empty_ones_count_for_nothing(self):
        assert chosen(manifest("a", 10), replace(manifest("b", 10), live_files=0)) == ()

    def test_options(self):
        resolved = ManifestOptions.resolve({"spec-id": "1", "use-caching": "true"}, {}, 0, (0, 1))
        assert resolved == ManifestOptions.from_text(resolved.as_text()) == ManifestOptions(1, 8 << 20)
        for wrong in ({"spec-id": "2"}, {"spec-id": "x"}, {"use-caching": "1"}, {"spec": "1"}):
            with pytest.raises(InputError):
                ManifestOptions.resolve(wrong, {}, 0, (0, 1))

    def test_order_of_values(self):
        shuffled = [1.0, float("nan"), 0.0, None, -0.0, -1.0]
        assert [repr(value) for value in sorted(shuffled, key=sort_key)] == [
            "None",
            "-1.0",
            "-0.0",
            "0.0",
            "1.0",
            "nan",
        ]
        assert sort_key("é") > sort_key("z")


ENTRIES = st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=12)


@pytest.mark.requirement("IM-06", "IM-26")
@given(st.lists(st.tuples(ENTRIES, st.integers(1, 40)), min_size=1, max_size=12))
def test_what_a_rewrite_leaves_is_left_alone(written):
    """A model of the writer: entries sorted, a manifest closed once it has reached the target."""
    held = {f"m{n}": (sorted(entries, key=_key), size * 10) for n, (entries, size) in enumerate(written)}
    options = ManifestOptions(0, 200)
    plan = plan_manifests([_facts(path, *one) for path, one in held.items()], options)
    if not plan.chosen:
        return
    taken = [held.pop(one.path) for one in plan.chosen]
    cost = sum(size for _, size in taken) / sum(len(entries) for entries, _ in taken)
    part: list[tuple[int, int | None]] = []
    count = 0
    for entry in sorted((entry for entries, _ in taken for entry in entries), key=_key):
        part.append(entry)
        if len(part) * cost >= 200:
            held[f"n{count}"] = (part, round(len(part) * cost))
            part, count = [], count + 1
    if part:
        held[f"n{count}"] = (part, max(1, int(len(part) * cost)))
    again = plan_manifests([_facts(path, *one) for path, one in held.items()], options)
    assert not again.chosen, again


def _key(entry: tuple[int, int | None]) -> tuple[object, ...]:
    return tuple(sort_key(value) for value in entry)


def _facts(path: str, entries: list[tuple[int, int | None]], size: int) -> ManifestFacts:
    columns = [[sort_key(entry[n]) for entry in entries] for n in range(2)]
    return ManifestFacts(path, size, 0, False, len(entries), tuple(Range(min(c), max(c)) for c in columns))


DATA = (data_file("d", 10), data_file("e", 10))


def deletes(files, data=DATA, properties=None, **options: str) -> DeletePlan:
    return plan_deletes(files, data, frozenset({0}), resolve(options, {}), properties or {})


@pytest.mark.requirement("IM-10", "IM-26")
class TestPositionDeletes:
    def test_five_of_a_partition(self):
        plan = deletes([delete_file(str(n)) for n in range(5)])
        assert (plan.files, plan.expected_files) == (5, 1)

    def test_too_few(self):
        assert deletes([delete_file(str(n)) for n in range(4)]).left_alone == {TOO_FEW: 4}
        assert deletes([delete_file(str(n)) for n in range(4)], **{"min-input-files": "2"}).files == 4

    def test_well_sized_ones_stay_unless_all_are_asked_for(self):
        large = [replace(delete_file(str(n)), size=60 * MB) for n in range(5)]
        assert not deletes(large).groups
        assert deletes(large, **{"rewrite-all": "true"}).left_alone == {NO_GAIN: 5}

    def test_files_of_one_data_file_each_have_nothing_to_gain(self):
        one_each = [delete_file(str(n), of=f"d{n}") for n in range(6)]
        data = [data_file(f"d{n}", 1) for n in range(6)]
        assert not deletes(one_each, data).groups
        merged = deletes(one_each, data, {"write.delete.granularity": "partition"})
        assert (merged.files, merged.expected_files) == (6, 1)

    def test_only_data_files_with_several_are_worth_it(self):
        several = [delete_file(f"{n}", of="d") for n in range(5)]
        plan = deletes([*several, delete_file("x", of="e")])
        assert {file.path for group in plan.groups for file in group.files} == {*"01234"}
        assert plan.expected_files == 1

    def test_scopes_do_not_meet(self):
        both = [delete_file(f"p{n}") for n in range(5)] + [delete_file(f"f{n}", of="d") for n in range(5)]
        assert sorted(len(group.files) for group in deletes(both).groups) == [5, 5]

    def test_file_granularity_never_leaves_more(self):
        scoped = [delete_file(str(n)) for n in range(5)]
        data = [data_file(f"d{n}", 1) for n in range(9)]
        assert deletes(scoped, data, {"write.delete.granularity": "file"}).left_alone == {NO_GAIN: 5}
        assert deletes(scoped, data[:2], {"write.delete.granularity": "file"}).expected_files == 2

    def test_what_dangles_goes_however_little_it_is(self):
        plan = deletes([delete_file("gone", of="z"), delete_file("old", sequence=0), delete_file("kept", of="d")])
        assert {file.path for group in plan.groups for file in group.files} == {"gone", "old"}
        assert plan.expected_files == 0

    def test_partitions_and_specs_do_not_meet(self):
        spread = [delete_file(f"{n}", partition=f'["{n % 2}"]', spec=n % 3) for n in range(9)]
        data = [data_file("d", 1, partition=f'["{p}"]', spec=s) for p in range(2) for s in range(3)]
        assert not deletes(spread, data).groups

    def test_equality_deletes_and_others_are_not_touched(self):
        others = [delete_file(str(n), equality=True) for n in range(5)]
        orc = [replace(delete_file(f"o{n}"), file_format="ORC") for n in range(5)]
        plan = deletes([*others, *orc])
        assert not plan.groups
        assert sum(plan.left_alone.values()) == 5
