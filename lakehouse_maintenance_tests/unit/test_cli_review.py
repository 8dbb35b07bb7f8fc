"""The verb `review` on a real lakehouse: what it shows, what it takes, and its exit codes."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import parse_until
from lakehouse_maintenance.model.reviews import FolderPlan, PlannedFolder
from lakehouse_maintenance.planning.untracked_folders import plan_digest, run_digest
from lakehouse_maintenance.state import open_state
from lakehouse_maintenance_tests.small_lakehouse import Ended, SmallLakehouse, call, make_lakehouse

KEYS = {"digest", "kind", "subject", "folders", "state", "by", "at", "until"}
FOUND = datetime(2026, 5, 4, 12, tzinfo=UTC)
NEWEST_MS = 1_700_000_000_000


@pytest.fixture
def lakehouse(tmp_path: Path) -> SmallLakehouse:
    return make_lakehouse(tmp_path)


def record(lakehouse: SmallLakehouse, *names: str, subject: str = "main.db", at: datetime = FOUND) -> FolderPlan:
    """A plan as a reconciliation leaves it."""
    folders = tuple(PlannedFolder(f"s3://lake/{name}", 3, 2048, NEWEST_MS, "no table owns it") for name in names)
    digest = plan_digest(subject, folders)
    assert digest is not None
    plan = FolderPlan(digest, subject, at, "run 1", folders)
    open_state(str(lakehouse.folder / "state")).reviews.record(plan)
    return plan


def on(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], *argv: object) -> Ended:
    return call(capsys, "--config", lakehouse.config, "review", *argv)


def decisions(shown: dict[str, Any]) -> dict[str, str]:
    return {folder["path"]: folder["decision"] for folder in shown["folders"]}


def test_nothing_to_review(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    assert on(lakehouse, capsys, "list", "--json").json == {"reviews": []}
    assert "nothing to review" in on(lakehouse, capsys, "list").out
    assert not (lakehouse.folder / "state").exists(), "looking writes nothing"


def test_help_where_it_is_not_said_what_to_do(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    ended = on(lakehouse, capsys)
    assert ended.code == 2
    assert all(verb in ended.err for verb in ("list", "approve", "reject"))


@pytest.mark.requirement("DG-10")
def test_approve_some_and_reject(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    plan = record(lakehouse, "one", "two")
    (shown,) = on(lakehouse, capsys, "list", "--json").json["reviews"]
    assert set(shown) >= KEYS
    assert (shown["digest"], shown["kind"], shown["subject"]) == (plan.digest, "untracked_folders", "main.db")
    assert (shown["state"], shown["by"], shown["at"], shown["until"]) == ("pending", None, None, None)

    ended = on(lakehouse, capsys, "approve", plan.digest, "--folder", "s3://lake/one", "--by", "ann", "--json")
    assert ended.code == 0
    (shown,) = ended.json["reviews"]
    assert (shown["state"], shown["by"]) == ("partly_approved", "ann")
    assert decisions(shown) == {"s3://lake/one": "approved", "s3://lake/two": "pending"}
    left = datetime.fromisoformat(shown["until"]) - datetime.fromisoformat(shown["at"])
    assert left == timedelta(days=7)

    both = ("--folder", "s3://lake/one", "--folder", "s3://lake/two/")
    (shown,) = on(lakehouse, capsys, "reject", plan.digest, *both, "--by", "ben", "--json").json["reviews"]
    assert (shown["state"], shown["by"], shown["until"]) == ("rejected", "ben", None)

    found = Lakehouse.open(lakehouse.config)
    (review,) = found.reviews()
    assert found.review_of("main.db") == review
    events = [(event.details["review"], event.details["by"]) for event in found.audit(table="main.db")]
    assert events == [("approved", "ann"), ("rejected", "ben")]
    told = call(capsys, "--config", lakehouse.config, "audit").out
    assert "untracked_folders: approved by ann" in told


def test_the_first_digits_the_user_and_the_whole_plan(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = record(lakehouse, "one", "two")
    short = plan.digest.removeprefix("sha256:")[:12]
    (shown,) = on(lakehouse, capsys, "approve", short, "--until", "3 days", "--json").json["reviews"]
    assert (shown["state"], shown["by"]) == ("approved", getpass.getuser())
    assert datetime.fromisoformat(shown["until"]) - datetime.fromisoformat(shown["at"]) < timedelta(days=3, seconds=1)


def test_a_run_is_approved_at_once(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    plans = record(lakehouse, "one"), record(lakehouse, "two", subject="main.other")
    digests = [plan.digest for plan in plans]
    whole = run_digest(digests)
    assert whole is not None
    open_state(str(lakehouse.folder / "state")).reviews.record_run(whole, digests)
    shown = on(lakehouse, capsys, "approve", whole, "--json").json["reviews"]
    assert {(one["subject"], one["state"]) for one in shown} == {("main.db", "approved"), ("main.other", "approved")}


def test_what_people_see(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    record(lakehouse, "old")
    plan = record(lakehouse, "one", "[red]two", at=FOUND + timedelta(days=1))
    told = on(lakehouse, capsys, "list").out
    assert "main.db: pending" in told
    assert "2 folders, 4 KB, found 2026-05-05T12:00:00Z" in told
    assert "2 KB  s3://lake/[red]two" in told
    assert "3 objects, newest 2023-11-14T22:13:20Z" in told
    assert plan.digest in told
    assert "s3://lake/old" not in told
    assert "1 superseded plan not shown" in told
    told = on(lakehouse, capsys, "approve", plan.digest, "--by", "ann", "--until", "2999-01-01").out
    assert "main.db: approved" in told
    assert "until 2999-01-01T00:00:00Z" in told


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (["approve", "sha256:" + "0" * 64], "digest"),
        (["approve", "0" * 11], "digest"),
        (["approve", "{}", "--folder", "s3://lake/on"], "--folder"),
        (["reject", "{}", "--folder", "s3://lake/one", "--folder", "s3://lake/three"], "--folder"),
        (["approve", "{}", "--by", " "], "--by"),
        (["approve", "{}", "--until", "2020-01-01"], "--until"),
        (["approve", "{}", "--until", "0"], "--until"),
        (["approve", "{}", "--until", "soon"], "--until"),
        (["approve"], None),
        (["shred"], None),
    ],
)
def test_bad_input(
    lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str], argv: list[str], field: str | None
) -> None:
    plan = record(lakehouse, "one", "two")
    before = lakehouse.listing()
    ended = on(lakehouse, capsys, *(text.format(plan.digest) for text in argv), "--json")
    assert ended.code == 2
    assert field is None or ended.error["field"] == field
    assert lakehouse.listing() == before, "nothing was recorded"


def test_a_superseded_plan_names_the_newer_one(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = record(lakehouse, "one"), record(lakehouse, "one", "two")
    ended = on(lakehouse, capsys, "approve", old.digest, "--json")
    assert ended.code == 2
    assert new.digest in ended.error["hint"]


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("36h", FOUND + timedelta(hours=36)),
        ("1 day 12 hours", FOUND + timedelta(hours=36)),
        ("2026-12-24", datetime(2026, 12, 24, tzinfo=UTC)),
        ("2026-12-24T18:00", datetime(2026, 12, 24, 18, tzinfo=UTC)),
        ("2026-12-24T18:00+01:00", datetime(2026, 12, 24, 17, tzinfo=UTC)),
        ("2026-12-24T18:00Z", datetime(2026, 12, 24, 18, tzinfo=UTC)),
    ],
)
def test_until(text: str, until: datetime) -> None:
    assert parse_until(text, FOUND) == until


@pytest.mark.parametrize("text", ["", " ", "soon", "3", "-3 days", "2026-13-01", "20261224", "3 days-"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_until(text, FOUND, field="--until")
    assert caught.value.field == "--until"
