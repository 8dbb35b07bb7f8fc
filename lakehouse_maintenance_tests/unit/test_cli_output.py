"""What reaches standard output and standard error: masked sentences, untouched names, harmless control characters."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from lakehouse_maintenance.cli import rendering
from lakehouse_maintenance.cli.progress import Drawn, Lines, showing
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.cli.text import count, printable, seconds
from lakehouse_maintenance.config import Masker
from lakehouse_maintenance.model.actions import Action, Control, Engine, Status
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, ApplyResult, TableOutcome
from lakehouse_maintenance.model.plans import Expected, Inputs, Plan, PlannedAction, TablePlan


def test_sentences_are_masked_and_names_are_not() -> None:
    session = Session(as_json=True)
    session.out = io.StringIO()
    session.hide(Masker(["minioadmin"]))
    data: dict[str, Any] = {
        "path": "s3://lake/minioadmin/t",
        "tables": [{"table": "main.minioadmin.t", "error": "denied for minioadmin", "notes": ["as minioadmin"]}],
        "details": {"why": "minioadmin said no"},
    }
    session.show(data, rendering.health)
    assert json.loads(session.out.getvalue()) == {
        "path": "s3://lake/minioadmin/t",
        "tables": [{"table": "main.minioadmin.t", "error": "denied for ***", "notes": ["as ***"]}],
        "details": {"why": "*** said no"},
    }


@pytest.mark.parametrize("as_json", [True, False])
def test_errors_are_masked(as_json: bool) -> None:
    session = Session(as_json=as_json)
    session.out, session.err = io.StringIO(), io.StringIO()
    session.hide(Masker(["hidden-secret-1"]))
    session.fail(LakehouseError("refused hidden-secret-1", field="x", hint="not hidden-secret-1, nor s3://a:b@c"))
    said = session.out.getvalue() + session.err.getvalue()
    assert "hidden-secret-1" not in said
    assert "s3://a:***@c" in said
    assert (session.out.getvalue() == "") is not as_json


def test_problems_of_a_file_stand_below_each_other() -> None:
    session = Session()
    session.err = io.StringIO()
    session.fail(LakehouseError("a.json has 2 problems:\n  - first\nhint: forged\n  - second\x1b[2J", hint="see it"))
    assert session.err.getvalue().splitlines() == [
        "error: a.json has 2 problems:",
        r"  - first\nhint: forged",
        r"  - second\x1b[2J",
        "  hint: see it",
    ]


def test_a_name_does_not_steer_the_terminal() -> None:
    out = io.StringIO()
    table = {"table": "main.db.\x1b[31m[bold]red\n", "error": "bad\x07 [link=x]", "score": 0, "due": []}
    rendering.health({"tables": [table]}, rendering.console_on(out))
    said = out.getvalue()
    assert "\x1b" not in said
    assert "\x07" not in said
    assert r"\x1b[31m[bold]red\n" in said
    assert "[link=x]" in said


def test_progress_elsewhere_than_on_a_terminal_is_lines() -> None:
    out = io.StringIO()
    with showing(out) as progress:
        assert isinstance(progress, Lines)
        progress.begin("main.db.a", "measuring", 0, 0)
        progress.end("main.db.a", "")
        progress.begin("main.db.t", "rewrite_data_files", 12, 3 << 20)
        progress.advance("main.db.t", 6, 1 << 20)
        progress.end("main.db.t", "done")
    assert out.getvalue().splitlines() == ["main.db.t: rewrite_data_files: 12 files, 3 MB", "main.db.t: done"]


def test_progress_on_a_terminal_is_drawn_and_taken_away() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with showing(out) as progress:
        assert isinstance(progress, Drawn)
        progress.begin("main.db.a", "measuring", 0, 0)
        progress.end("main.db.a", "")
        progress.begin("main.db.t", "rewrite_data_files", 12, 3 << 20)
        progress.advance("main.db.t", 6, 1 << 20)
        progress.end("main.db.t", "done")
    assert "main.db.t: done" in out.getvalue()


def test_texts_for_people() -> None:
    assert [count(number, "file") for number in (0, 1, 12345)] == ["0 files", "1 file", "12,345 files"]
    assert [seconds(number) for number in (0.2, 1.2, 3700)] == [
        "under a second",
        "1 second",
        "1 hour 1 minute 40 seconds",
    ]
    assert printable("a\tb\u202eé") == "a\\tb\\u202eé"


def _expiry() -> PlannedAction:
    return PlannedAction(
        Action.EXPIRE_SNAPSHOTS,
        Engine.EMBEDDED,
        Control.EXACT,
        "expired_snapshots 15 ≥ 10",
        Inputs(120, 3_000_000),
        Expected(0, 0, 0.1, fewer_files=120),
        {},
        snapshots=tuple(range(15)),
        refs=("old", "older"),
        notes=("the table stays readable as of 2026-11-25T00:00:00+00:00 and later", "9 rollbacks remain"),
    )


def test_a_planned_expiry_tells_what_goes_and_what_remains() -> None:
    out = io.StringIO()
    plan = Plan("2026-11-30T00:00:00Z", (TablePlan("main.db.t", "u", 1, (_expiry(),)),))
    rendering.plan(plan.as_json(), rendering.console_on(out))
    said = out.getvalue()
    assert "expires   15 snapshots, and branches and tags that outlived their age: old, older\n" in said
    assert "deletes   120 files, 2.9 MB\n" in said
    assert "after     the table stays readable as of 2026-11-25T00:00:00+00:00 and later; 9 rollbacks remain\n" in said
    assert "1 action on 1 table: 120 files, 2.9 MB to delete\n" in said


def test_an_expirys_outcome_tells_what_stayed_and_why() -> None:
    out = io.StringIO()
    actual = Actual(
        expired_snapshots=15, deleted_files=115, deleted_bytes=2_000_000, kept_files=2, failed_files=1, unknown_files=2
    )
    ended = ActionOutcome(
        "expire_snapshots",
        Status.FAILED,
        {},
        actual,
        verified=True,
        error="1 files could not be deleted",
        notes=("2 files kept: something that is kept reaches it",),
    )
    result = ApplyResult("sha256:0", "run", (TableOutcome("main.db.t", Status.FAILED, "", (ended,)),))
    rendering.outcome(result.as_json(), rendering.console_on(out))
    said = out.getvalue()
    assert (
        "15 snapshots expired, 115 files, 1.9 MB deleted, 2 files kept, 1 file not deleted, 2 files unknown, in" in said
    )
    assert (
        "    verified\n    1 files could not be deleted\n    2 files kept: something that is kept reaches it\n" in said
    )
