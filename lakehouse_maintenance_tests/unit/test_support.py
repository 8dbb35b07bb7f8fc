"""The support table: plans refuse what it says and nothing else, and the documentation shows it as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakehouse_maintenance.model import support
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.support import ACTIONS, CASES, Case
from lakehouse_maintenance.planning.position_deletes import plan_deletes
from lakehouse_maintenance.planning.tables import AVAILABLE, Request, Subject
from lakehouse_maintenance_tests.documentation import REPOSITORY
from lakehouse_maintenance_tests.planning_facts import Table, data_file, delete_file
from lakehouse_maintenance_tests.unit.test_planning_tables import plan, subject

DATA, DELETES = Action.REWRITE_DATA_FILES, Action.REWRITE_POSITION_DELETE_FILES
OPENED = (support.WITHOUT_IDS, support.NESTED_KEYS)
"""Seen where a file is opened: `test_imported_files` and `test_deletes_reading` hold them."""


def files(form: str = "PARQUET", deletes: str = "PARQUET") -> Table:
    data = tuple(data_file(f"f{n}", 5, form=form) for n in range(6))
    return Table(data, tuple(delete_file(f"d{n}", of=f"f{n}", form=deletes) for n in range(6)))


def about(case: Case) -> tuple[Subject, Table]:
    """A table of this kind, as planning sees it."""
    table = files()
    found = subject(table)

    def state(**more: Any) -> Subject:
        return replace(found, state=replace(found.state, **more))

    def v3(obstacle: str) -> Subject:
        return replace(state(format_version=3), cannot_commit=obstacle)

    if case is support.V1:
        return state(format_version=1), Table(table.data)
    if case is support.V3:
        return state(format_version=3), table
    if case is support.FOREIGN_DATA:
        return found, files("ORC")
    if case is support.FOREIGN_DELETE:
        return found, files(deletes="AVRO")
    if case is support.ENCRYPTED:
        return state(features=("encryption",)), table
    if case is support.UNKNOWN_TYPES:
        named = state(features=("TYPE",), format_version=3)
        return replace(named, cannot_commit=support.UNREADABLE.format("TYPE")), table
    if case is support.BURIED_UNKNOWN:
        return state(features=("unknown",), format_version=3), table
    if case is support.WITHOUT_ROW_IDS:
        return v3(support.NO_ROW_IDS), table
    if case is support.OWN_CATALOG:
        return v3(support.OWN_WRITER.format("NAME")), table
    if case is support.MORE_METADATA:
        return v3(support.WOULD_LOSE.format("PART")), table
    assert case in (support.V2, support.PARQUET, support.PARTIAL), case.name
    return found, table


def reason(case: Case, action: Action) -> str | None:
    """Why the action is not planned; None where it is."""
    described, table = about(case)

    def deletes(options: Any, branch: str) -> Any:
        return plan_deletes(table.deletes, table.data, frozenset(), options, {})

    options = {"rewrite-all": "true"}
    if case is support.PARTIAL:
        options["partial-progress.enabled"] = "true"
    request = Request((action,), options if action is DATA else {}, by_action={DELETES: options})
    made = plan(described, table, request, deletes=deletes)
    assert made.error is None
    return made.skipped[0].reason if made.skipped else None


def test_every_action_of_the_engine_is_in_the_table() -> None:
    assert set(ACTIONS) == set(AVAILABLE)


@pytest.mark.requirement("IM-22")
@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("case", [case for case in CASES if case not in OPENED], ids=lambda case: case.name)
def test_plans_say_what_the_table_says(case: Case, action: Action) -> None:
    found, gap = reason(case, action), case.gaps.get(action)
    if gap is None:
        assert not (found or "").startswith("unsupported"), found
        assert "embedded engine" not in (found or "")
    elif gap.files:
        assert found is not None
        assert found.startswith("nothing to gain: ")
        assert gap.reason in found
    else:
        assert found == f"unsupported: {gap.reason}"
    if action in case.nothing_to_do:
        assert found is not None
        assert found.startswith("nothing to do")


def test_each_gap_is_one_line_with_its_reason() -> None:
    page = support.page().splitlines()
    for case in CASES:
        assert sum(line.startswith(f"| {case.name} |") for line in page) == 1
        for gap in case.gaps.values():
            assert gap.reason
            assert sum(gap.reason[1:] in line for line in page) == 1


def test_the_page_is_fresh() -> None:
    written = (REPOSITORY / "docs" / "support.md").read_text(encoding="utf-8")
    assert written == support.page(), "run: python -m lakehouse_maintenance.model.support docs/support.md"
