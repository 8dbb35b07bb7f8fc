"""Which files are grouped, and which are left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.planning import compaction
from lakehouse_maintenance.planning.compaction import output_files, recheck
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance_tests.planning_facts import (
    HOUR,
    MB,
    NOW,
    Table,
    data_file,
    delete_file,
    options,
    rewritten,
    table,
)


def small(count: int, megabytes: float = 5, prefix: str = "f", **more: object) -> list:
    return [data_file(f"{prefix}{n:03}", megabytes, **more) for n in range(count)]


def reasons(plan: compaction.GroupPlan) -> dict[str, int]:
    return {left.reason: left.files for left in plan.left_alone}


class TestOptions:
    def test_defaults_are_icebergs(self):
        resolved = RewriteOptions.resolve({}, {})
        assert resolved.target_file_size_bytes == 536_870_912
        assert resolved.min_file_size_bytes == 402_653_184
        assert resolved.max_file_size_bytes == 966_367_641
        assert resolved.min_input_files == 5
        assert resolved.max_file_group_size_bytes == 107_374_182_400
        assert resolved.delete_file_threshold == 2_147_483_647
        assert resolved.delete_ratio_threshold == 0.3
        assert not resolved.rewrite_all

    def test_option_goes_before_property_before_default(self):
        of_table = {"write.target-file-size-bytes": "134217728"}
        assert RewriteOptions.resolve({}, of_table).target_file_size_bytes == 128 * MB
        both = RewriteOptions.resolve({"target-file-size-bytes": "64MB"}, of_table)
        assert both.target_file_size_bytes == 64 * MB
        assert both.min_file_size_bytes == 48 * MB

    def test_an_option_makes_a_broken_property_harmless(self):
        broken = {"write.target-file-size-bytes": "big"}
        assert RewriteOptions.resolve({"target-file-size-bytes": "64MB"}, broken).target_file_size_bytes == 64 * MB
        with pytest.raises(InputError) as wrong:
            RewriteOptions.resolve({}, broken)
        assert wrong.value.field == "write.target-file-size-bytes"

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"target-file-size-bytes": "0"}, "target-file-size-bytes"),
            ({"min-file-size-bytes": "512MB"}, "min-file-size-bytes"),
            ({"max-file-size-bytes": "512MB"}, "max-file-size-bytes"),
            ({"max-file-group-size-bytes": "0"}, "max-file-group-size-bytes"),
            ({"min-input-files": "0"}, "min-input-files"),
            ({"min-input-files": "²"}, "min-input-files"),
            ({"delete-file-threshold": "-1"}, "delete-file-threshold"),
            ({"delete-ratio-threshold": "0"}, "delete-ratio-threshold"),
            ({"delete-ratio-threshold": "1.1"}, "delete-ratio-threshold"),
            ({"delete-ratio-threshold": "nan"}, "delete-ratio-threshold"),
            ({"rewrite-all": "yes"}, "rewrite-all"),
            ({"max-concurrent-file-group-rewrites": "0"}, "max-concurrent-file-group-rewrites"),
            ({"partial-progress.max-commits": "0"}, "partial-progress.max-commits"),
            ({"partial-progress.max-failed-commits": "-1"}, "partial-progress.max-failed-commits"),
            ({"rewrite-job-order": "size"}, "rewrite-job-order"),
            ({"use-starting-sequence-number": "no"}, "use-starting-sequence-number"),
            ({"target-file-size": "1MB"}, "target-file-size"),
        ],
    )
    def test_errors_name_the_option(self, given, field):
        with pytest.raises(InputError) as wrong:
            RewriteOptions.resolve(given, {})
        assert wrong.value.field == field
        assert wrong.value.hint

    def test_text_and_back(self):
        resolved = RewriteOptions.resolve(
            {"target-file-size-bytes": "64MB", "delete-ratio-threshold": "0.15", "rewrite-all": "true"},
            {},
            settle=timedelta(minutes=30),
        )
        assert RewriteOptions.from_text(resolved.as_text()) == resolved
        with pytest.raises(InputError, match="settle-ms"):
            RewriteOptions.from_text({k: v for k, v in resolved.as_text().items() if k != "settle-ms"})

    @pytest.mark.requirement("IM-01")
    def test_how_it_is_done_has_icebergs_defaults(self):
        """But for remove-dangling-deletes, whose default is ours (IM-26)."""
        resolved = RewriteOptions.resolve({}, {})
        assert resolved.max_concurrent_groups == 5
        assert (resolved.partial_progress, resolved.max_commits, resolved.max_failed_commits) == (False, 10, 10)
        assert (resolved.job_order, resolved.use_starting_sequence_number) == ("none", True)
        assert resolved.remove_dangling_deletes
        assert not resolved.split_oversized

    @pytest.mark.requirement("IM-01")
    def test_every_option_is_taken(self):
        given = {
            "use-starting-sequence-number": "false",
            "partial-progress.enabled": "TRUE",
            "partial-progress.max-commits": "3",
            "rewrite-job-order": "Bytes-Asc",
            "remove-dangling-deletes": "false",
            "max-concurrent-file-group-rewrites": "4",
            "output-spec-id": "3",
            "verify-rows": "True",
        }
        resolved = RewriteOptions.resolve(given, {}, split_oversized=True)
        assert (resolved.use_starting_sequence_number, resolved.remove_dangling_deletes) == (False, False)
        assert (resolved.partial_progress, resolved.max_commits, resolved.max_failed_commits) == (True, 3, 3)
        assert (resolved.job_order, resolved.max_concurrent_groups) == ("bytes-asc", 4)
        assert (resolved.output_spec_id, resolved.verify_rows) == (3, True)
        assert RewriteOptions.from_text(resolved.as_text()) == resolved
        none = RewriteOptions.resolve({**given, "partial-progress.max-failed-commits": "0"}, {})
        assert none.max_failed_commits == 0


class TestOutputFiles:
    @pytest.mark.parametrize(
        ("megabytes", "files"),
        [
            (0, 1),
            (99, 1),
            (100, 1),
            (109, 1),  # 9 % above the target: no second file
            (110, 2),  # 10 %: too much for one
            (176, 2),  # the remainder is a good file
            (1010, 10),  # 10.1 targets: the rest is spread
            (1080, 11),  # the remainder is large enough to stand alone
            (1075, 10),  # at the minimum it is not
        ],
    )
    def test_remainders(self, megabytes, files):
        assert output_files(megabytes * MB, options()) == files

    def test_a_near_maximum_leaves_little_room(self):
        assert output_files(108 * MB, options(max_file_size_bytes=110 * MB)) == 2
        assert output_files(104 * MB, options(max_file_size_bytes=110 * MB)) == 1


class TestGroups:
    def test_small_files_of_a_partition_become_one(self):
        plan = table(*small(6), *[data_file("g", 5, partition="[1]")]).plan(options())
        (group,) = plan.groups
        assert [file.path for file in group.files] == [f"f{n:03}" for n in range(6)]
        assert (group.expected_files, group.spec_id, group.partition) == (1, 0, "[]")
        assert group.reason == "6 files: 6 below min-file-size-bytes"
        assert (plan.input_files, plan.fewer_files, plan.expected_bytes) == (6, 5, 30 * MB)
        assert reasons(plan) == {compaction.TOO_FEW: 1}

    def test_four_are_too_few_unless_they_fill_a_file(self):
        assert not table(*small(4)).plan(options()).groups
        filled = table(*small(4, 40)).plan(options())
        assert [group.expected_files for group in filled.groups] == [2]

    def test_min_input_files(self):
        assert table(*small(2)).plan(options(min_input_files=2)).groups
        assert not table(*small(1)).plan(options(min_input_files=1)).groups

    def test_well_sized_files_are_left_without_a_word(self):
        plan = table(*small(20, 100)).plan(options())
        assert plan == compaction.GroupPlan()

    def test_groups_are_no_larger_than_their_maximum(self):
        plan = table(*small(30, 10)).plan(options(max_file_group_size_bytes=100 * MB))
        assert [len(group.files) for group in plan.groups] == [10, 10, 10]

    def test_the_order_of_manifests_does_not_count(self):
        files = [*small(7, 30), *small(7, 50, "p", partition="[1]", sequence=2)]
        chosen = options(max_file_group_size_bytes=200 * MB, min_input_files=2)
        assert table(*files).plan(chosen) == table(*reversed(files)).plan(chosen)

    def test_files_of_an_older_spec_stay_under_it(self):
        plan = table(*small(5), *small(5, prefix="n", spec=1, partition="[3]")).plan(options())
        assert [(group.spec_id, group.partition) for group in plan.groups] == [(0, "[]"), (1, "[3]")]

    def test_equal_tuples_of_two_specs_are_two_partitions(self):
        plan = table(*small(3), *small(3, prefix="n", spec=1)).plan(options())
        assert not plan.groups

    def test_rewrite_all_still_has_to_gain(self):
        chosen = options(rewrite_all=True)
        assert reasons(table(*small(10, 100)).plan(chosen)) == {compaction.NO_GAIN: 10}
        (group,) = table(*small(2, 20)).plan(chosen).groups
        assert group.reason == "2 files: 2 below min-file-size-bytes, rewrite-all"

    def test_files_that_only_a_miscount_would_merge_are_left(self):
        plan = table(*small(2, 54)).plan(options())
        assert reasons(plan) == {compaction.NO_GAIN: 2}


class TestOversized:
    def test_alone_it_is_not_split(self):
        plan = table(data_file("big", 1000)).plan(options())
        assert not plan.groups
        assert reasons(plan)[compaction.OVERSIZED] == 1

    def test_it_is_split_where_files_get_fewer_all_the_same(self):
        (group,) = table(data_file("big", 300), *small(8)).plan(options()).groups
        assert (len(group.files), group.expected_files) == (9, 4)

    def test_it_does_not_stand_in_the_way_of_others(self):
        plan = table(data_file("big", 2000), *small(8)).plan(options())
        assert [len(group.files) for group in plan.groups] == [8]
        assert reasons(plan) == {compaction.OVERSIZED: 1}

    def test_deletes_on_a_small_file_do_not_drag_it_along(self):
        deletes = [delete_file("d", of="f000", records=500)]
        plan = table(data_file("big", 2000), *small(3), deletes=deletes).plan(options())
        assert [[file.path for file in group.files] for group in plan.groups] == [["f000", "f001", "f002"]]

    def test_its_own_deletes_are_applied_without_splitting(self):
        plan = table(data_file("big", 1000), deletes=[delete_file("d", of="big", records=300)]).plan(options())
        (group,) = plan.groups
        assert (group.expected_files, plan.expected_bytes, plan.fewer_deletes) == (1, 700 * MB, 1)


@pytest.mark.requirement("IM-01")
class TestSplit:
    """A person asked: files above the maximum are split also where that leaves more files."""

    chosen = options(split_oversized=True)

    @pytest.mark.parametrize(
        ("megabytes", "parts"), [(181, 2), (220, 2), (240, 3), (300, 3), (1000, 10), (1080, 11), (1010, 10)]
    )
    def test_parts_are_between_minimum_and_maximum(self, megabytes, parts):
        before = table(data_file("big", megabytes))
        plan = before.plan(self.chosen)
        (group,) = plan.groups
        assert (group.expected_files, group.reason) == (parts, "1 files: 1 above max-file-size-bytes")
        assert 75 <= megabytes / parts <= 180
        assert not plan.left_alone

    @pytest.mark.requirement("IM-26")
    @pytest.mark.parametrize("jitter", [0.9, 1.0, 1.1])
    @pytest.mark.parametrize("megabytes", [181, 205, 220, 240, 310, 1000])
    def test_what_was_split_is_left_alone(self, megabytes, jitter):
        before = table(data_file("big", megabytes), *small(8))
        after = rewritten(before, before.plan(self.chosen), lambda _: jitter)
        again = rewritten(after, after.plan(self.chosen), lambda _: jitter)
        assert not again.plan(self.chosen).groups
        assert all(file.size <= 180 * MB for file in again.data)

    def test_it_is_a_group_beside_the_small_ones(self):
        plan = table(data_file("big", 2000), data_file("large", 900), *small(8)).plan(self.chosen)
        assert [[file.path for file in group.files] for group in plan.groups] == [
            [f"f{n:03}" for n in range(8)],
            ["big"],
            ["large"],
        ]
        assert [group.expected_files for group in plan.groups] == [1, 20, 9]
        assert plan.fewer_files == 10 - 30

    def test_where_no_part_would_be_large_enough_it_is_left(self):
        narrow = options(min_file_size_bytes=90 * MB, max_file_size_bytes=110 * MB, split_oversized=True)
        plan = table(data_file("big", 150)).plan(narrow)
        assert not plan.groups
        assert reasons(plan) == {compaction.UNSPLITTABLE: 1}

    def test_with_many_deletes_it_is_split_too(self):
        deletes = [delete_file("d", of="big", records=300)]
        before = table(data_file("big", 1000), deletes=deletes)
        (group,) = before.plan(self.chosen).groups
        assert group.expected_files == 7

    def test_the_recheck_of_a_split_is_the_same(self):
        before = table(data_file("big", 1000))
        (group,) = before.plan(self.chosen).groups
        assert recheck(group, {"big": before.data[0]}, before.index, before.state, self.chosen) == group
        assert recheck(group, {"big": before.data[0]}, before.index, before.state, options()) is None


class TestOrder:
    def groups(self, order: str, *files) -> list[str]:
        plan = table(*files).plan(options(job_order=order, min_input_files=2))
        return [group.partition for group in plan.groups]

    @pytest.mark.requirement("IM-01")
    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            ("bytes-asc", ["[2]", "[1]", "[3]"]),
            ("bytes-desc", ["[3]", "[1]", "[2]"]),
            ("files-asc", ["[3]", "[1]", "[2]"]),
            ("files-desc", ["[2]", "[1]", "[3]"]),
        ],
    )
    def test_the_order_that_is_asked_for(self, order, expected):
        files = [
            *small(4, 5, "a", partition="[1]"),
            *small(6, 2, "b", partition="[2]"),
            *small(2, 30, "c", partition="[3]"),
        ]
        assert self.groups(order, *files) == expected

    @pytest.mark.requirement("IM-25")
    def test_what_changed_since_the_last_compaction_comes_first(self):
        # Snapshot 2 is the later one: say a compaction made it, and snapshot 3 came after it.
        files = [
            *small(3, 5, "a", partition="[1]", snapshot=1),
            *small(3, 5, "b", partition="[2]", snapshot=2),
            *small(2, 5, "c", partition="[3]", snapshot=2),
            *small(1, 5, "d", partition="[3]", snapshot=3),
            *small(3, 5, "e", partition="[4]", snapshot=99),  # expired: old
        ]
        before = Table(tuple(files), times={1: NOW - 3 * HOUR, 2: NOW - 2 * HOUR, 3: NOW - HOUR})
        plan = before.plan(options(min_input_files=2))
        assert [group.partition for group in plan.groups] == ["[3]", "[2]", "[1]", "[4]"]


class TestDeletes:
    def test_the_ratio_counts_what_is_for_the_file_alone(self):
        files = small(2, 100)
        alone = table(*files, deletes=[delete_file("d", of="f000", records=300)]).plan(options())
        assert [[file.path for file in group.files] for group in alone.groups] == [["f000"]]
        assert alone.groups[0].files[0].deleted_rows == 300
        assert alone.fewer_deletes == 1
        shared = table(*files, deletes=[delete_file("d", records=900)]).plan(options())
        assert not shared.groups
        assert reasons(shared) == {compaction.FEW_DELETES: 2}

    def test_the_threshold_counts_delete_files(self):
        deletes = [delete_file(f"d{n}") for n in range(3)]
        plan = table(*small(2, 100), deletes=deletes).plan(options(delete_file_threshold=3))
        assert (plan.input_files, plan.expected_files, plan.fewer_deletes) == (2, 2, 3)
        assert not table(*small(2, 100), deletes=deletes).plan(options(delete_file_threshold=4)).groups

    def test_a_delete_that_another_file_needs_is_no_gain_in_files(self):
        deletes = [delete_file("shared"), delete_file("own", of="f000", records=900)]
        plan = table(*small(2, 100), deletes=deletes).plan(options())
        assert (plan.input_files, plan.fewer_deletes) == (1, 1)

    def test_deleted_rows_shrink_what_is_expected(self):
        deletes = [delete_file(f"d{n}", of=f"f{n:03}", records=500) for n in range(4)]
        plan = table(*small(4, 100), deletes=deletes).plan(options())
        assert (plan.expected_files, plan.expected_bytes) == (2, 200 * MB)

    def test_files_without_rows_are_no_error(self):
        plan = table(*small(6, records=0), deletes=[delete_file("d", of="f000")]).plan(options())
        assert plan.expected_files == 1

    def test_the_deletes_a_rewrite_started_from_do_not_reach_its_files(self):
        # An Avro file is left alone and keeps the partition's delete file alive, with the new file's own number.
        before = table(*small(6), data_file("old", 5, form="AVRO"), deletes=[delete_file("d")])
        chosen = options(delete_file_threshold=1)
        after = rewritten(before, before.plan(chosen), lambda _: 1.0)
        assert after.deletes
        assert after.index.position_deletes_for(after.data[-1])
        assert not after.plan(chosen).groups

    def test_equality_deletes_are_deletes_to_apply(self):
        older, newer = data_file("older", 100), data_file("newer", 100, sequence=3)
        deletes = [delete_file("e", equality=True), delete_file("f", equality=True)]
        chosen = options(delete_file_threshold=2)
        plan = table(older, newer, deletes=deletes).plan(chosen)
        (file,) = plan.groups[0].files
        assert (file.path, file.deletes, file.deleted_rows, plan.fewer_deletes) == ("older", 2, 0, 2)
        after = rewritten(table(older, newer, deletes=deletes), plan, lambda _: 1.0)
        assert not after.plan(options(delete_file_threshold=1)).groups, "what was applied does not reach the new file"

    def test_equality_deletes_count_for_no_ratio(self):
        deletes = [delete_file("e", equality=True, records=1000)]
        plan = table(*small(2, 100), deletes=deletes).plan(options())
        assert reasons(plan) == {compaction.FEW_DELETES: 2}

    def test_deletes_in_other_formats_leave_files_alone(self):
        deletes = [delete_file("e", equality=True, form="AVRO")]
        plan = table(*small(6), *small(6, prefix="p", sequence=2), deletes=deletes).plan(options())
        assert [file.path for file in plan.groups[0].files] == [f"p{n:03}" for n in range(6)]
        assert reasons(plan) == {compaction.FOREIGN_DELETES: 6}

    def test_other_formats_are_left_alone(self):
        plan = table(*small(6, form="ORC"), *small(6, prefix="p")).plan(options())
        assert [file.path for file in plan.groups[0].files] == [f"p{n:03}" for n in range(6)]
        assert reasons(plan) == {compaction.NOT_PARQUET: 6}


class TestSettle:
    def test_a_partition_written_to_is_left_for_later(self):
        files = [*small(6), *small(6, prefix="p", partition="[1]"), data_file("new", 100, partition="[1]", snapshot=2)]
        plan = table(*files).plan(options(settle_ms=90 * 60_000))
        assert [group.partition for group in plan.groups] == ["[]"]
        assert reasons(plan)[compaction.UNSETTLED] == 6
        assert len(table(*files).plan(options(settle_ms=30 * 60_000)).groups) == 2

    def test_deletes_are_writes_too(self):
        plan = table(*small(6), deletes=[delete_file("d", of="f000")]).plan(options(settle_ms=90 * 60_000))
        assert reasons(plan)[compaction.UNSETTLED] == 6

    def test_files_of_expired_snapshots_are_old(self):
        expired = Table(tuple(small(6, snapshot=99)), times={2: NOW - HOUR})
        assert expired.plan(options(settle_ms=24 * HOUR)).groups


class TestRecheck:
    def check(self, before: Table, after: Table, **changes: object):
        chosen = options(**changes)
        (group,) = before.plan(chosen).groups
        return recheck(group, {file.path: file for file in after.data}, after.index, after.state, chosen)

    def test_unchanged(self):
        before = table(*small(6))
        assert self.check(before, before) == before.plan(options()).groups[0]

    def test_appends_beside_it_change_nothing(self):
        before = table(*small(6))
        after = Table((*before.data, data_file("new", 5, snapshot=3)), times={**before.times, 3: NOW})
        group = self.check(before, after, settle_ms=60_000)
        assert group is not None
        assert len(group.files) == 6

    def test_files_that_are_gone_are_dropped_and_the_rest_must_still_gain(self):
        before = table(*small(6))
        group = self.check(before, table(*before.data[1:]))
        assert group is not None
        assert [file.path for file in group.files] == ["f001", "f002", "f003", "f004", "f005"]
        assert self.check(before, table(*before.data[2:])) is None
        assert self.check(before, table()) is None

    @pytest.mark.parametrize(
        "other",
        [data_file("f000", 6), data_file("f000", 5, records=7), data_file("f000", 5, partition="[2]")],
        ids=["size", "records", "partition"],
    )
    def test_changed_files_are_dropped(self, other):
        before = table(*small(6))
        group = self.check(before, table(other, *before.data[1:]))
        assert group is not None
        assert len(group.files) == 5

    def test_new_deletes_are_seen(self):
        before = table(*small(6))
        group = self.check(before, table(*before.data, deletes=[delete_file("d", of="f003", records=400)]))
        assert group is not None
        assert [file.deletes for file in group.files] == [0, 0, 0, 1, 0, 0]

    def test_new_equality_deletes_are_applied_too(self):
        before = table(*small(6))
        group = self.check(before, table(*before.data, deletes=[delete_file("e", equality=True)]))
        assert {file.deletes for file in group.files} == {1}

    def test_new_deletes_in_another_format_end_it(self):
        before = table(*small(6))
        after = table(*before.data, deletes=[delete_file("e", equality=True, form="ORC")])
        assert self.check(before, after) is None

    def test_no_candidate_any_more(self):
        before = table(data_file("f", 100), deletes=[delete_file("d", of="f", records=900)])
        assert self.check(before, table(*before.data)) is None
