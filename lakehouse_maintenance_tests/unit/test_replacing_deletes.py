"""Which positions reach a data file, and when rewritten delete files no longer fit the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehouse_maintenance.iceberg.replacing_deletes import DeleteReplacement, _as_read, reaches
from lakehouse_maintenance_tests.planning_facts import data_file, delete_file

IN_P = delete_file("del", partition='["p"]', sequence=3)
OF_D = delete_file("del", of="d", sequence=3)


@pytest.mark.requirement("IM-10")
def test_reach():
    data = data_file("d", 1, partition='["p"]', sequence=3)
    assert reaches(IN_P, data)
    assert reaches(OF_D, data)
    assert not reaches(IN_P, replace(data, partition='["q"]'))
    assert not reaches(IN_P, replace(data, spec_id=1))
    assert not reaches(OF_D, replace(data, path="e"))
    for delete in (IN_P, OF_D):
        assert not reaches(delete, replace(data, sequence_number=4)), "a path that was added again after the delete"


@pytest.mark.requirement("IM-10", "IM-12")
def test_a_named_file_that_is_another_by_now_outdates_the_group():
    later = replace(IN_P, sequence_number=7)
    group = DeleteReplacement((IN_P, later), (), {"live": 2, "gone": None})
    assert group.sequence_number == 7
    live = data_file("live", 1, partition='["p"]', sequence=2)
    assert _as_read(group, live)
    assert not _as_read(group, replace(live, sequence_number=5)), "the outputs would reach it, the first input did not"
    back = data_file("gone", 1, partition='["p"]', sequence=2)
    assert not _as_read(group, back), "its positions were dropped"
    assert _as_read(group, replace(back, sequence_number=8)), "no input reaches it"
