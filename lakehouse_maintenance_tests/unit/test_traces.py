"""When a request to the catalog that nobody answered can still be carried out."""

from __future__ import annotations

from typing import Any

import pytest

from lakehouse_maintenance.execution.traces import Attempt, may_appear, trace
from lakehouse_maintenance.iceberg.commit import Base
from lakehouse_maintenance.iceberg.metadata import Metadata, parse_metadata
from lakehouse_maintenance.model.events import Event

MINE = 99


def table(head: int | None, sequence: int, *snapshots: int, version: int = 2) -> Metadata:
    raw: dict[str, Any] = {
        "format-version": version,
        "table-uuid": "u",
        "location": "file:///t",
        "last-sequence-number": sequence,
        "snapshots": [{"snapshot-id": i, "timestamp-ms": 1, "manifest-list": f"l{i}"} for i in snapshots],
        "refs": {} if head is None else {"main": {"type": "branch", "snapshot-id": head}},
    }
    return parse_metadata("db.t", "file:///t/metadata/v1.metadata.json", raw)


BASE = Base("u", "main", 5, 7)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (table(5, 7, 4, 5), "could still arrive"),  # nothing happened since
        (table(5, 9, 4, 5, 6), "could still arrive"),  # the branch went on, and was rolled back to where it was
        (table(4, 7, 4, 5), "could come back"),  # rolled back further: no sequence number was taken
        (table(None, 7, 4, 5), "could come back"),  # dropped
        (table(6, 8, 4, 5, 6), None),  # another commit
        (table(4, 8, 4, 5), None),  # a commit to another branch took the number, and main moved
        (table(6, 7, 6), None),  # the base expired
        (table(6, 0, 5, 6, version=1), "could come back"),  # no sequence numbers
        (table(6, 0, 6, version=1), None),
        (table(MINE, 8, 5, MINE), None),  # it has appeared
    ],
)
def test_an_attempt_is_void_once_its_branch_moved_for_good(metadata: Metadata, why: str | None) -> None:
    told = may_appear(Attempt(MINE, BASE if metadata.format_version == 2 else Base("u", "main", 5, 0)), metadata)
    assert told is None if why is None else why in str(told)


def test_an_attempt_without_its_base_may_always_appear() -> None:
    assert "not known" in str(may_appear(Attempt(MINE, None), table(6, 8, 5, 6)))


def test_a_trace_is_of_one_action_of_one_run() -> None:
    def event(run_id: str, action: str, phase: str = "intent", **details: Any) -> Event:
        return Event("2026-11-30T00:00:00Z", run_id, "main.db.t", action, phase, details=details)

    base = {"uuid": "u", "branch": "main", "snapshot_id": 5, "sequence_number": 7}
    events = [
        event("r", "rewrite_data_files", groups=1),
        event("r", "rewrite_data_files", writing=["a", "b"], uuid="u"),
        event("r", "rewrite_data_files", writing=["b", "c"], uuid="u"),
        event("r", "rewrite_data_files", snapshot_id=MINE, base=base),
        event("r", "rewrite_data_files", snapshot_id=98),
        event("r", "rewrite_data_files", "outcome", snapshot_id=1),
        event("r", "other", writing=["x"], uuid="v"),
        event("s", "rewrite_data_files", writing=["y"], uuid="v"),
    ]
    found = trace(events, "r", "rewrite_data_files")
    assert (found.paths, found.uuid) == (("a", "b", "c"), "u")
    assert found.attempts == (Attempt(MINE, BASE), Attempt(98, None))
    assert found.visible(table(6, 8, 6)) == ()
    assert [one.snapshot_id for one in found.visible(table(MINE, 8, 5, MINE))] == [MINE]
    assert "not known" in str(found.may_appear(table(6, 8, 5, 6)))
