"""The index of claims against the plain answer: every claim compared with the folder, one by one.

A claim that is missed is somebody's folder that is removed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse_maintenance.evidence.claims import ClaimIndex
from lakehouse_maintenance.evidence.owners import _meet
from lakehouse_maintenance.model.folders import Claim, ClaimKind
from lakehouse_maintenance.model.locations import Location

ROOTS = (
    "s3://lake/",
    "s3a://lake/",
    "s3://other/",
    "gs://lake/",
    "oss://lake/",
    "abfss://c@acct.dfs.core.windows.net/",
    "wasbs://c@ACCT.blob.core.windows.net/",
    "file://host/",
)
segment = st.one_of(
    st.sampled_from(["a", "b", "t", "t_2", "a b", "a%20b", "a%2520b", "a%2Fb", "%61", "%", "%C3", "%BC", "ü", "T"]),
    st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=3),
    st.just(""),
)
key = st.lists(segment, max_size=4).map("/".join)
remote = st.builds("".join, st.tuples(st.sampled_from(ROOTS), key))
local_segment = st.sampled_from(["a", "b", "link", "up", "nowhere", "a%20b", "a b", "deep", ".", ""])
local = st.lists(local_segment, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`link` leads to `a`, `a/up` out of it, `nowhere` to what is not there."""
    made = tmp_path_factory.mktemp("claims")
    (made / "a" / "deep").mkdir(parents=True)
    (made / "b").mkdir()
    (made / "link").symlink_to(made / "a")
    (made / "a" / "up").symlink_to(made / "b")
    (made / "nowhere").symlink_to(made / "gone" / "deep")
    return made


def places(folder: Path) -> st.SearchStrategy[Location]:
    spelled = st.sampled_from([f"{folder}/", f"file:{folder}/", f"file://{folder}/", "/", "file:///"])
    here = st.builds("".join, st.tuples(spelled, local))
    same_key = st.builds("".join, st.tuples(st.just(f"s3://lake{folder}/"), local))
    return st.one_of(remote, here, same_key).map(Location.parse)


@given(data=st.data())
def test_the_index_finds_what_comparing_each_finds(folder: Path, data: st.DataObject) -> None:
    wheres = data.draw(st.lists(places(folder), max_size=12))
    claims = [Claim(where, f"c.db.t{number}", ClaimKind.FILES) for number, where in enumerate(wheres)]
    index = ClaimIndex(claims)
    for asked in [*data.draw(st.lists(places(folder), min_size=1, max_size=6)), *wheres]:
        assert index.meeting(asked) == [claim for claim in claims if _meet(asked, claim.where)], asked


@given(keys=st.lists(key, min_size=1, max_size=8), asked=key)
@example(keys=["a b/x"], asked="a%20b")
@example(keys=["a%20b"], asked="a b/x")
@example(keys=["a//b"], asked="a")
@example(keys=["a"], asked="a//b")
@example(keys=["", "a"], asked="a/")
@example(keys=["t_2", "t-2", "t", "t/x", "t0"], asked="t")
@example(keys=["a%2Fb"], asked="a/b/c")
def test_within_one_bucket(keys: list[str], asked: str) -> None:
    claims = [Claim(Location.parse("s3a://lake/" + one), "c.db.t", ClaimKind.LOCATION) for one in keys]
    folder = Location.parse("s3://lake/" + asked)
    assert ClaimIndex(claims).meeting(folder) == [claim for claim in claims if _meet(folder, claim.where)]


def test_a_longer_name_is_another_folder() -> None:
    claims = [Claim(Location.parse(f"s3://lake/wh/{name}"), name, ClaimKind.LOCATION) for name in ("t_2", "t", "t.x")]
    assert [claim.by for claim in ClaimIndex(claims).meeting(Location.parse("s3://lake/wh/t"))] == ["t"]
    assert [claim.by for claim in ClaimIndex(claims).meeting(Location.parse("oss://x/wh/t_2"))] == ["t_2"]
    assert ClaimIndex(claims).meeting(Location.parse("s3://other/wh/t")) == []
