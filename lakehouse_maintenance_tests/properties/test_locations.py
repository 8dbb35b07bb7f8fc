"""Locations against the traps "is it the same path?" and "`table` is a string prefix of `table_2`"."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location

SPELLINGS = {
    "s3": ("s3://lake/", "s3a://lake/", "s3n://lake/", "S3://lake/"),
    "gs": ("gs://lake/", "gcs://lake/"),
    "abfs": (
        "abfss://c@acct.dfs.core.windows.net/",
        "abfs://c@acct.dfs.core.windows.net/",
        "wasbs://c@acct.blob.core.windows.net/",
        "wasb://c@ACCT.blob.core.windows.net/",
    ),
    "file": ("/", "file:/", "file:///", "file://localhost/", "FILE:/"),
}

COMPOSED, DECOMPOSED = "\u00fcn", "u\u0308n"
ODD = [
    "a",
    "b",
    "a b",
    "a%20b",
    "a+b",
    "a=b",
    "a:b",
    "日本",
    COMPOSED,
    DECOMPOSED,
    "_day",
    "a.b",
    "...",
    "#a?b",
    "a\\b",
    "a\nb",
]
segment = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6),
)
dotless = segment.filter(lambda text: text not in (".", ".."))
object_segment = st.one_of(segment, st.sampled_from(["", ".", ".."]))
object_key = st.lists(object_segment, max_size=5).map("/".join)
local_key = st.lists(dotless, max_size=5).map("/".join)


def at(key: str) -> Location:
    return Location.parse("s3://lake/" + key)


@given(key=object_key)
@example(key="a//b/")
@example(key="/leading")
@example(key="a%20b+c=d:e")
def test_an_object_key_is_exact(key: str) -> None:
    for family in ("s3", "gs", "abfs"):
        for root in SPELLINGS[family]:
            location = Location.parse(root + key)
            assert location.key == key
            assert location.text == str(location) == root + key
            assert "/".join(location.segments) == key


@given(one=object_key, other=object_key)
@example(one="a b", other="a%20b")
@example(one="a", other="a/")
@example(one="a/b", other="a//b")
@example(one=COMPOSED, other=DECOMPOSED)
def test_two_objects_are_equal_only_under_one_key(one: str, other: str) -> None:
    assert (at(one) == at(other)) is (one == other)
    assert at(one).equals(at(other)) is (one == other)


@given(family=st.sampled_from(["s3", "gs", "abfs"]), key=object_key)
def test_every_spelling_of_an_object_is_one_location(family: str, key: str) -> None:
    assert len({Location.parse(root + key) for root in SPELLINGS[family]}) == 1
    assert {Location.parse(root + key).family for root in SPELLINGS[family]} == {family}


@given(key=local_key)
def test_every_spelling_of_a_local_path_is_one_location(key: str) -> None:
    spelled = [Location.parse(root + key) for root in SPELLINGS["file"]]
    assert len(set(spelled)) == 1
    assert spelled[0].local_path == "/" + key
    assert {location.scheme for location in spelled} == {"file"}


@given(segments=st.lists(dotless, min_size=1, max_size=4), data=st.data())
def test_local_paths_follow_the_operating_system(segments: list[str], data: st.DataObject) -> None:
    noise = st.sampled_from(["/", "//", "/./", "///"])
    text = "".join(data.draw(noise) + part for part in segments) + data.draw(st.sampled_from(["", "/", "/.", "//"]))
    assert Location.parse("file://" + text) == Location.parse("/" + "/".join(segments))


@given(folder=object_key, inside=st.lists(object_segment, max_size=3).map("/".join))
def test_containment_is_by_segments(folder: str, inside: str) -> None:
    container = at(folder)
    joined = at(container.folder_key + inside)
    assert container.contains(joined)
    assert container.contains(container)
    # The same question asked of the segments: the one "/" that ends a folder's key does not count.
    prefix = container.segments[:-1] if container.key.endswith("/") else container.segments
    for other in (at(folder + inside), at(inside), joined):
        assert container.contains(other) is (other.segments[: len(prefix)] == prefix)


@given(folder=object_key.filter(lambda key: key and not key.endswith("/")), more=segment, inside=object_key)
@example(folder="db/table", more="_2", inside="data/x")
@example(folder="db/table", more="-backup", inside="")
@example(folder="db/table", more=" ", inside="")
@example(folder="db/table", more=".", inside="")
def test_a_longer_name_is_another_folder(folder: str, more: str, inside: str) -> None:
    table, other = at(folder), at(f"{folder}{more}/{inside}")
    assert not table.contains(other)
    assert not other.contains(table)
    assert not table.overlaps(other)


@given(one=object_key, other=object_key, third=object_key)
def test_containment_is_an_order(one: str, other: str, third: str) -> None:
    a, b, c = at(one), at(other), at(third)
    if a.contains(b) and b.contains(c):
        assert a.contains(c)
    if a.contains(b) and b.contains(a):
        assert a.folder_key == b.folder_key


@given(one=object_key, other=object_key)
@example(one="t", other="t//x")
@example(one="t//", other="t/x")
@example(one="/t", other="t/x")
def test_overlap_is_never_less_than_containment(one: str, other: str) -> None:
    a, b = at(one), at(other)
    assert a.overlaps(b) is b.overlaps(a)
    if a.contains(b) or a.collapsed.contains(b.collapsed):
        assert a.overlaps(b)


@given(key=object_key)
def test_other_buckets_and_families_contain_nothing_of_this_one(key: str) -> None:
    here = at(key)
    for root in ("s3://lake2/", "gs://lake/", "s3://Lake/", "hdfs://lake/", "file://lake/"):
        elsewhere = Location.parse(root + key)
        assert here != elsewhere
        assert not here.contains(elsewhere)
        assert not here.overlaps(elsewhere)


@given(root=st.sampled_from(SPELLINGS["s3"] + SPELLINGS["file"]), parts=st.lists(dotless, min_size=1, max_size=3))
def test_a_child_keeps_the_spelling(root: str, parts: list[str]) -> None:
    folder = Location.parse(root + "wh/t")
    child = folder.child(*parts)
    assert child.text == root + "wh/t/" + "/".join(parts)
    assert child == Location.parse(child.text)
    assert child.name == parts[-1]
    assert folder.contains(child)
    assert Location.parse(root + "wh/t/").child(*parts) == child


def test_a_bucket_contains_every_key_of_it() -> None:
    for root in (Location.parse("s3://lake"), Location.parse("s3a://lake/")):
        assert root.key == ""
        assert all(root.contains(other) for other in (at("a"), at("/a"), root))
        assert root.child("a") == at("a")


def test_the_text_is_kept_beside_the_normal_form() -> None:
    assert Location.parse("file:/a//b/").text == "file:/a//b/"
    assert Location.parse("s3a://lake/t").text == "s3a://lake/t"
    assert Location.parse("s3a://lake/t").scheme == "s3a"
    assert Location.parse("hdfs://nn:8020/t").family == "hdfs"
    assert at("t//x/").collapsed == at("t/x")


@pytest.mark.parametrize(
    "text", ["", "table", "./table", "wh/t", "s3:/lake/t", "s3:///t", "abfss:///t", "gs://", "C:\\t"]
)
def test_what_is_no_absolute_location_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Location.parse(text)
    assert caught.value.field == "location"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["/a/../b", "file:///..", "file:/a/..", "file://localhost/../x"])
def test_a_local_path_that_climbs_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"'\.\.' segment"):
        Location.parse(text)


@pytest.mark.parametrize("part", ["", "a/b", "/"])
def test_a_child_is_whole_segments(part: str) -> None:
    with pytest.raises(ValueError, match="not one segment"):
        at("t").child(part)
    with pytest.raises(ValueError, match="not one segment"):
        Location.parse("/t").child("..")
