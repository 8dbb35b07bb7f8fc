"""From options on the command line to a request: each goes to every action that knows it, and to no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakehouse_maintenance.cli.requests import Asked
from lakehouse_maintenance.config.action_options import ACTION_OPTIONS, aliases
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.planning.order import SAFE_ORDER, in_safe_order
from lakehouse_maintenance.planning.tables import AVAILABLE, Request
from lakehouse_maintenance_tests.documentation import REPOSITORY

REWRITE, EXPIRE, ORPHANS = Action.REWRITE_DATA_FILES, Action.EXPIRE_SNAPSHOTS, Action.REMOVE_ORPHAN_FILES


def request(*options: str, actions: tuple[Action, ...] = (), **asked: Any) -> Request:
    return Asked(actions=[action.value for action in actions], options=options, **asked).request()


def refused(*options: str, actions: tuple[Action, ...] = (), **asked: Any) -> tuple[str | None, str]:
    with pytest.raises(InputError) as caught:
        request(*options, actions=actions, **asked)
    return caught.value.field, f"{caught.value.message} ({caught.value.hint})"


def test_an_option_goes_to_every_action_that_knows_it() -> None:
    found = request("max-concurrent-deletes=2", "min-input-files=3", "snapshot_ids=1, 2", "location=s3://b/t/data")
    assert found.options == {"min-input-files": "3"}
    assert found.options_of(Action.REWRITE_POSITION_DELETE_FILES) == {"min-input-files": "3"}
    assert found.expiry.snapshot_ids == (1, 2)
    assert (found.expiry.max_concurrent_deletes, found.orphans.max_concurrent_deletes) == (2, 2)
    assert found.orphans.location == "s3://b/t/data"


def test_and_to_none_that_was_not_asked_for() -> None:
    found = request("max_concurrent_deletes=2", actions=(EXPIRE,))
    assert (found.expiry.max_concurrent_deletes, found.orphans.max_concurrent_deletes) == (2, None)


@pytest.mark.requirement("IM-05")
def test_all_of_expiry() -> None:
    found = request(
        "snapshot_ids=7",
        "clean_expired_metadata=TRUE",
        "max_concurrent_deletes=4",
        "stream_results=true",
        actions=(EXPIRE,),
        older_than="2 days",
        retain_last="3",
        allow_short_retention=True,
        branch="audit",
    )
    asked = found.expiry
    assert (asked.older_than, asked.retain_last, asked.snapshot_ids) == (timedelta(days=2), 3, (7,))
    assert (asked.clean_expired_metadata, asked.max_concurrent_deletes, asked.allow_short_retention) == (True, 4, True)
    assert found.branch == "audit"


def test_all_of_orphan_files() -> None:
    found = request(
        "prefix_mismatch_mode=ignore",
        "equal_schemes=oss,cosn=s3; s3a=s3",
        "equal-authorities=old=new",
        actions=(ORPHANS,),
        older_than="7 days",
    ).orphans
    assert (found.older_than, found.prefix_mismatch_mode) == (timedelta(days=7), "IGNORE")
    assert found.equal_schemes == {"oss,cosn": "s3", "s3a": "s3"} == aliases("oss,cosn=s3;s3a=s3;")
    assert found.equal_authorities == {"old": "new"}


def test_an_age_for_snapshots_is_none_for_files() -> None:
    """Whatever is due includes orphan files: a short age there needs their name."""
    found = request(older_than="1h", allow_short_retention=True)
    assert found.expiry.older_than == timedelta(hours=1)
    assert (found.orphans.older_than, found.orphans.allow_short_retention) == (None, False)
    both = request(actions=(EXPIRE, ORPHANS), older_than="1h", allow_short_retention=True)
    assert both.expiry.older_than == both.orphans.older_than == timedelta(hours=1)


@pytest.mark.parametrize(
    ("options", "actions", "field", "said"),
    [
        (["snapshot-id=1"], (), "option.snapshot-id", "'snapshot-ids'"),
        (["snapshot-ids=1"], (ORPHANS,), "--option", "is for expire_snapshots, which is not among"),
        (["max-concurrent-deletes=1"], (REWRITE,), "--option", "expire_snapshots and remove_orphan_files"),
        (["snapshot-ids=1", "snapshot_ids=2"], (), "--option snapshot-ids", "twice"),
        (["snapshot-ids=main"], (), "option.snapshot-ids", "'main'"),
        (["max-concurrent-deletes=0"], (EXPIRE,), "option.max-concurrent-deletes", "from 1 on"),
        (["stream-results=perhaps"], (EXPIRE,), "option.stream-results", "true or false"),
        (["prefix-mismatch-mode=KEEP"], (ORPHANS,), "option.prefix-mismatch-mode", "IGNORE"),
        (["equal-schemes=s3a"], (ORPHANS,), "option.equal-schemes", "A,B=NAME"),
        (["location= "], (ORPHANS,), "option.location", "a text"),
    ],
)
def test_what_fits_nothing(options: list[str], actions: tuple[Action, ...], field: str, said: str) -> None:
    found = refused(*options, actions=actions)
    assert found[0] == field
    assert said in found[1]


def test_a_branch_needs_an_action_that_knows_branches() -> None:
    assert refused(branch="audit")[0] == "branch"
    assert refused(branch="audit", actions=(ORPHANS,))[0] == "--branch"
    assert "not about one branch" in refused(branch="audit", actions=(EXPIRE, ORPHANS))[1]


def test_the_safe_order() -> None:
    assert in_safe_order((ORPHANS, EXPIRE, Action.VACUUM, REWRITE, EXPIRE)) == (REWRITE, EXPIRE, ORPHANS, Action.VACUUM)
    assert set(AVAILABLE) <= set(SAFE_ORDER)
    assert list(ACTION_OPTIONS) == list(SAFE_ORDER)


def test_the_documentation_names_every_option() -> None:
    text = (REPOSITORY / "docs" / "command_line.md").read_text("utf-8")
    rows = [
        f"| `{action}` | `{name}` | {option.meaning} |"
        for action, options in ACTION_OPTIONS.items()
        if action is not REWRITE
        for name, option in options.items()
    ]
    assert "\n".join(rows) in text
