"""The pure rules over listed files: age, hidden folders, markers, limits, digests (IM-08, RS-09)."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.config.policies import RemoveOrphanFiles
from lakehouse_maintenance.config.settings import Limits
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.orphans import OrphanFile
from lakehouse_maintenance.planning.orphans import (
    FOLDER_MARKER,
    HIDDEN,
    TOO_YOUNG,
    UNKNOWN_AGE,
    Digest,
    OrphanRequest,
    OrphanRules,
    cutoff_ms,
    effective_age,
    is_hidden,
    is_marker,
    limit_reason,
)

DAY = 86_400_000
NOW = 1_800_000_000_000
RULES = OrphanRules(NOW - 3 * DAY, NOW, frozenset({"_day", ".h"}))
OLD = NOW - 4 * DAY


@pytest.mark.parametrize(
    ("path", "size", "modified", "why"),
    [
        ("data/a.parquet", 1, OLD, None),
        ("data/a.parquet", 0, OLD, None),
        ("data/a.parquet", 1, NOW - 3 * DAY, TOO_YOUNG),
        ("data/a.parquet", 1, NOW - 3 * DAY - 1, None),
        ("data/a.parquet", 1, NOW, TOO_YOUNG),
        ("data/a.parquet", 1, NOW + 60_000, TOO_YOUNG),
        ("data/a.parquet", 1, NOW + DAY, UNKNOWN_AGE),
        ("data/a.parquet", 1, None, UNKNOWN_AGE),
        ("data/a.parquet", 1, 0, UNKNOWN_AGE),
        ("data/a.parquet", 1, -5, UNKNOWN_AGE),
        ("data/_day=1/a.parquet", 1, OLD, None),
        ("data/_dates/a.parquet", 1, OLD, HIDDEN),
        ("_SUCCESS", 0, OLD, HIDDEN),
        ("data/", 0, OLD, FOLDER_MARKER),
        ("data/p=1_$folder$", 0, OLD, FOLDER_MARKER),
        ("data/p=1_$folder$", 3, OLD, None),
        ("", 0, OLD, FOLDER_MARKER),
        ("a//b", 1, OLD, None),
    ],
)
def test_what_keeps_a_file(path: str, size: int, modified: int | None, why: str | None) -> None:
    assert RULES.keeps(path, size, modified) == why


@pytest.mark.parametrize(
    "path", ["_day", "_day/x", "_day_2=1/x", "a/.b", "_days=1/x", "x/_day=1/_tmp/y", "=_day/_x", "_="]
)
def test_hidden(path: str) -> None:
    assert is_hidden(path, frozenset({"_day"}))


@pytest.mark.parametrize("path", ["_day=1/x", "_day=/x", "a/_day=_x/b", "a_b", "a.b", "a=_b/c=.d", "x", ""])
def test_not_hidden(path: str) -> None:
    assert not is_hidden(path, frozenset({"_day"}))


def test_markers_are_no_files() -> None:
    assert [is_marker(path, 0) for path in ("a/", "", "a_$folder$", "a", "a$")] == [True, True, True, False, False]
    assert [is_marker(path, 9) for path in ("a/", "a_$folder$")] == [True, False]


def test_the_cutoff_is_the_earliest_of_all_horizons() -> None:
    age = timedelta(days=3)
    assert cutoff_ms(NOW, age, []) == NOW - 3 * DAY
    assert cutoff_ms(NOW, age, [NOW - DAY]) == NOW - 3 * DAY
    a_clocks_slip = 15 * 60 * 1000
    assert cutoff_ms(NOW, age, [NOW - DAY, NOW - 9 * DAY]) == NOW - 9 * DAY - a_clocks_slip


@pytest.mark.parametrize(
    ("policy", "asked", "allowed"),
    [("3 days", None, True), ("24h", None, True), ("23h", None, False), ("3 days", 23, False), ("1h", 24, True)],
)
def test_less_than_a_day_needs_a_word(policy: str, asked: int | None, allowed: bool) -> None:
    request = OrphanRequest(older_than=None if asked is None else timedelta(hours=asked))
    section = RemoveOrphanFiles.model_validate({"older_than": policy})
    if allowed:
        assert effective_age(section, request) >= timedelta(hours=24)
    else:
        with pytest.raises(InputError, match="nearer than") as caught:
            effective_age(section, request)
        assert "--allow-short-retention" in str(caught.value.hint)
    told = OrphanRequest(older_than=request.older_than, allow_short_retention=True)
    assert effective_age(section, told) == effective_age(
        section.model_copy(update={"allow_short_retention": True}), request
    )


@pytest.mark.parametrize(
    "request_",
    [
        OrphanRequest(prefix_mismatch_mode="error"),
        OrphanRequest(older_than=timedelta(seconds=-1)),
        OrphanRequest(removal="move"),
        OrphanRequest(max_concurrent_deletes=0),
    ],
)
def test_requests_that_make_no_sense(request_: OrphanRequest) -> None:
    with pytest.raises(InputError):
        request_.check()


@pytest.mark.parametrize(
    ("is_first", "listed", "size", "files", "removed", "key"),
    [
        (False, 1000, 1000, 300, 300, None),
        (False, 1000, 1000, 301, 300, "removed_share"),
        (False, 1000, 1000, 300, 301, "removed_share"),
        (False, 10_000_000, 1, 100_000, 0, None),
        (False, 10_000_000, 1, 100_001, 0, "removed_files"),
        (True, 10_000_000, 1, 1000, 0, None),
        (True, 10_000_000, 1, 1001, 0, "first_run_files"),
        (False, 10_000_000, 1, 1001, 0, None),
        (True, 0, 0, 0, 0, None),
    ],
)
def test_limits(is_first: bool, listed: int, size: int, files: int, removed: int, key: str | None) -> None:
    why = limit_reason(Limits(), is_first=is_first, listed_files=listed, listed_bytes=size, files=files, size=removed)
    if key is None:
        assert why is None
    else:
        assert f"limits.{key}" in str(why)
        assert str(why).startswith("the plan would remove")


def test_all_limits_that_trip_are_told_at_once() -> None:
    why = limit_reason(Limits(), is_first=True, listed_files=10, listed_bytes=10, files=200_000, size=9)
    assert all(f"limits.{key}" in str(why) for key in ("removed_files", "first_run_files", "removed_share"))
    assert limit_reason(Limits(), is_first=False, listed_files=10, listed_bytes=None, files=3, size=9) is None


files = st.lists(
    st.builds(OrphanFile, st.text(max_size=6), st.integers(0, 9), st.integers(0, 9)), max_size=4, unique=True
)


@given(files)
def test_a_digest_knows_no_order(found: list[OrphanFile]) -> None:
    digests = set()
    for order in itertools.permutations(found):
        digest = Digest("main.db.t", "u", {"a": 1, "b": None})
        for file in order:
            digest.add(file)
        digests.add(digest.text())
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")


@given(files, files)
def test_other_findings_have_another_digest(one: list[OrphanFile], other: list[OrphanFile]) -> None:
    texts = []
    for found in (one, other):
        digest = Digest("main.db.t", "u", {})
        for file in found:
            digest.add(file)
        texts.append(digest.text())
    assert (texts[0] == texts[1]) is (set(one) == set(other))


def test_a_digest_is_of_a_table_and_its_settings() -> None:
    made = [("t", "u", {"a": 1}), ("x", "u", {"a": 1}), ("t", "x", {"a": 1}), ("t", "u", {"a": 2}), ("t", "u", {})]
    assert len({Digest(table, uuid, settings).text() for table, uuid, settings in made}) == len(made)
    assert Digest("t", "u", {"a": 1, "b": 2}).text() == Digest("t", "u", {"b": 2, "a": 1}).text()
