"""What ends a folder: claims, exclusions, its name, its age; and that nothing which meets a claim may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.evidence.claims import ClaimIndex
from lakehouse_maintenance.model.folders import Claim, ClaimKind, Content, Verdict
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.untracked_folders import (
    FolderRules,
    Stranger,
    TableFacts,
    assess,
    exclusions,
    first_verdict,
    last_verdict,
)
from lakehouse_maintenance_tests.folder_facts import HOME, HOUR_MS, NOW_MS, RULES, at, facts


def verdict_of(name: str, *claims: Claim, rules: FolderRules = RULES) -> Verdict | None:
    found = first_verdict(Location.parse(f"{HOME}/{name}"), claims, rules)
    return None if found is None else found[0]


@pytest.mark.requirement("UF-12")
@pytest.mark.parametrize(
    "name",
    [
        "_temporary",
        "_temporary.1",
        ".spark-staging",
        ".spark-staging-7f3a",
        ".sparkStaging",
        ".hive-staging_hive_2026-01-01",
        ".hoodie",
        ".Trash",
        "_spark_metadata",
        "_delta_log",
        "_change_data",
        "_impala_insert_staging",
        "_tmp.x",
        "_tmp_space.db",
        "_SUCCESS",
        "_committed_1",
        "_checkpoints",
        "-ext-10000",
        "_kept",
    ],
)
def test_working_folders_are_left_alone(name: str) -> None:
    assert verdict_of(name) is Verdict.WORKING_FOLDER


@pytest.mark.requirement("UF-12")
@pytest.mark.parametrize("name", ["temporary", "x_temporary", "_orders", "_temporal", "t.db", "_2026", "ext-1", "kept"])
def test_other_names_are_folders_like_any(name: str) -> None:
    assert verdict_of(name) is None


def test_where_our_state_lies_is_left_alone() -> None:
    rules = replace(RULES, own=(Location.parse(f"{HOME}/state/v1"),))
    assert verdict_of("state", rules=rules) is Verdict.WORKING_FOLDER
    assert verdict_of("state_2", rules=rules) is None


@pytest.mark.requirement("UF-06")
@pytest.mark.parametrize(
    ("excluded", "is_kept"),
    [
        (f"{HOME}/manual_archive", True),
        (f"{HOME}/manual_archive/", True),
        ("s3a://lake/wh/db/manual_archive", True),
        (f"{HOME}/manual_archive/2025/x", True),
        (HOME, True),
        ("s3://lake", True),
        (f"{HOME}/manual_archive_v2", False),
        (f"{HOME}/manual", False),
        (f"{HOME}/Manual_archive", False),
        ("s3://other/wh/db/manual_archive", False),
        ("gs://lake/wh/db/manual_archive", False),
    ],
)
def test_exclusions_by_whole_segments(excluded: str, is_kept: bool) -> None:
    rules = replace(RULES, excluded=exclusions([excluded], [], "db", []))
    assert verdict_of("manual_archive", rules=rules) is (Verdict.EXCLUDED if is_kept else None)


@pytest.mark.requirement("UF-06")
def test_exclusions_of_a_database_hold_under_every_root() -> None:
    roots = [Location.parse(text) for text in (HOME, f"{HOME}.db/", "s3://far/ext")]
    found = exclusions(["s3://lake/x"], [("db", "keep"), ("other", "gone"), ("db", "keep")], "db", roots)
    assert [one.text for one in found] == ["s3://lake/x", f"{HOME}/keep", f"{HOME}.db/keep", "s3://far/ext/keep"]


@pytest.mark.requirement("UF-11")
@pytest.mark.parametrize(
    ("newest_ms", "expected"),
    [
        (NOW_MS - 24 * HOUR_MS, Verdict.CANDIDATE),
        (NOW_MS - 24 * HOUR_MS + 1, Verdict.TOO_YOUNG),
        (NOW_MS, Verdict.TOO_YOUNG),
        (NOW_MS + HOUR_MS, Verdict.UNKNOWN_AGE),
        (0, Verdict.UNKNOWN_AGE),
        (None, Verdict.UNKNOWN_AGE),
    ],
)
def test_ages(newest_ms: int | None, expected: Verdict) -> None:
    assert last_verdict(Content(3, 30, newest_ms), RULES, None)[0] is expected
    assert last_verdict(Content(3, 30, newest_ms), RULES, "a table is unresolved")[0] is Verdict.POTENTIALLY_UNTRACKED


def test_nothing_has_no_age() -> None:
    assert last_verdict(Content(), RULES, None)[0] is Verdict.UNKNOWN_AGE


# --- nobody's folder meets a claim

_SEGMENT = st.sampled_from(["t", "t_2", "T", "deep", "a b", "a%20b", "x"])
_PLACE = st.builds(
    lambda root, segments: "/".join((root, *segments)),
    st.sampled_from([HOME, "s3a://lake/wh/db", "s3n://lake/wh", "s3://other/wh/db", "gs://lake/wh/db"]),
    st.lists(_SEGMENT, max_size=3),
)


@given(
    places=st.lists(st.tuples(_PLACE, st.sampled_from(list(ClaimKind))), max_size=6),
    excluded=st.lists(_PLACE, max_size=3),
    names=st.lists(_SEGMENT, min_size=1, unique=True),
    newest_ms=st.one_of(st.none(), st.integers(0, NOW_MS + 2 * HOUR_MS)),
)
def test_no_folder_that_meets_a_claim_becomes_a_candidate(
    places: list[tuple[str, ClaimKind]], excluded: list[str], names: list[str], newest_ms: int | None
) -> None:
    """Held against each claim and each exclusion, one by one; and what nothing is against is a candidate."""
    claims = [Claim(Location.parse(text), "main.x.t", kind) for text, kind in places]
    rules = replace(RULES, excluded=exclusions(excluded, [], "db", []))
    index = ClaimIndex(claims)
    for name in names:
        folder = Location.parse(f"{HOME}/{name}")
        ended = first_verdict(folder, index.meeting(folder), rules)
        verdict = last_verdict(Content(1, 1, newest_ms), rules, None)[0] if ended is None else ended[0]
        meets = any(folder.overlaps(claim.where) for claim in claims)
        is_kept = meets or any(folder.overlaps(one) for one in rules.excluded)
        if is_kept or newest_ms is None or newest_ms > rules.cutoff_ms:
            assert verdict is not Verdict.CANDIDATE
        if meets:
            assert verdict in {
                Verdict.TABLE,
                Verdict.WRITE_PATH,
                Verdict.REFERENCED,
                Verdict.OTHER_DATABASE,
                Verdict.EXCLUDED,
                Verdict.WORKING_FOLDER,
            }, verdict


@given(
    tables=st.lists(_PLACE, max_size=4),
    unresolved=st.booleans(),
    strangers=st.lists(_PLACE, max_size=2),
)
def test_where_nothing_is_against_it_every_visible_table_is_known(
    tables: list[str], unresolved: bool, strangers: list[str]
) -> None:
    """Where a database may be cleaned, its root lies in it, a table lies under the root, and no table is unresolved
    in it or near it."""
    others = tuple(Stranger("main.x.t", "unreadable", (Location.parse(text),)) for text in strangers)
    odd = (TableFacts("main.db.odd", None, "unreadable"),) if unresolved else ()
    found = assess(facts(tables=(*at(*tables), *odd), strangers=others))
    if found.reason is not None:
        return
    assert found.root is not None
    assert Location.parse(HOME).contains(found.root)
    assert any(found.root.contains(where) for _, where in found.located)
    assert not unresolved
    assert not any(place.overlaps(found.root) for one in others for place in one.places)
