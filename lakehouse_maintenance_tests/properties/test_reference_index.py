"""The index of references against FormIndex, the plain answer to the same question, and against how paths are written.

A reference that is missed is a live file that is deleted; one that is found too much keeps a file. So every test asks
for what must be found, and one that not everything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse_maintenance.evidence import ReferenceIndex, Spelling, index
from lakehouse_maintenance.model.forms import FormIndex, forms

ROOTS = (
    "s3://lake/",
    "s3a://lake/",
    "s3n://lake/",
    "s3://other/",
    "gs://lake/",
    "/",
    "file:/",
    "file:///",
    "oss://lake/",
)
WRITTEN = {
    "s3": ("s3://lake/", "s3a://lake/", "s3n://lake/", "S3://lake/"),
    "file": ("/", "file:/", "file:///", "file://localhost/"),
    "abfs": ("abfss://c@acct.dfs.core.windows.net/", "abfs://c@ACCT.dfs.core.windows.net/"),
}
"""Roots that mean the same."""

segment = st.one_of(
    st.sampled_from(
        ["a", "b", "a b", "a%20b", "a%2520b", "a%2Fb", "a+b", "a=b", "a:b", "ü", "u\u0308", "_day", "%", "s3:"]
    ),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=4),
).filter(lambda text: text not in (".", ".."))
part = st.one_of(segment, st.just(""))
key = st.lists(part, min_size=1, max_size=4).map("/".join)
path = st.builds("".join, st.tuples(st.sampled_from(ROOTS), key))


@contextmanager
def runs_of(size: int) -> Iterator[None]:
    """Spills so many hashes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_RUN", size)
        patch.setattr(index, "_FOLDERS", size)
        yield


def may_be_the_same(references: list[str], listed: list[str], spelling: Spelling) -> list[bool]:
    """FormIndex' answer."""
    known = FormIndex(spelling.declared(one) for one in references)
    return [any(True for _ in known.named_by(spelling.declared(one))) for one in listed]


@given(references=st.lists(path, max_size=8), listed=st.lists(path, max_size=8), run=st.sampled_from([1, 2, 5, 100]))
@example(references=["s3a://lake/t//x"], listed=["s3://lake/t//x"], run=1)
@example(references=["s3://lake/x"], listed=["s3a://lake//x"], run=1)
@example(references=["s3://lake/a b/x"], listed=["s3://lake/a%20b/x"], run=1)
def test_what_may_be_the_same_is_found(references: list[str], listed: list[str], run: int) -> None:
    spelling = Spelling()
    with runs_of(run), ReferenceIndex(spelling) as found:
        for reference in references:
            found.add([reference])
        assert found.references == len(references)
        # Hashes of 64 bits do not meet by chance here: equal, and not only found at least.
        assert found.referenced(listed) == may_be_the_same(references, listed, spelling)


@given(references=st.lists(path, max_size=6), listed=st.lists(path, max_size=6), data=st.data())
@example(references=["oss://lake/t/x"], listed=["s3://lake/t/x"], data=None)
def test_what_was_declared_equal_is_found(references: list[str], listed: list[str], data: st.DataObject | None) -> None:
    schemes = {"oss,cosn": "s3"} if data is None or data.draw(st.booleans()) else {}
    authorities = {"other": "lake"} if data is not None and data.draw(st.booleans()) else {}
    spelling = Spelling(schemes, authorities)
    with runs_of(3), ReferenceIndex(spelling) as found:
        found.add(references)
        answers = found.referenced(listed)
    assert answers == may_be_the_same(references, listed, spelling)
    if data is None:
        assert answers == [True]


@given(family=st.sampled_from(sorted(WRITTEN)), name=key, data=st.data())
def test_the_same_path_in_any_spelling_is_found(family: str, name: str, data: st.DataObject) -> None:
    """By no rule of ours: the root, doubled slashes and percent codes are varied as writers vary them."""
    one, other = (data.draw(st.sampled_from(WRITTEN[family])) for _ in range(2))
    varied = name
    if "%" not in name and data.draw(st.booleans()):
        varied = quote(name, safe="/")
    if data.draw(st.booleans()):
        varied = data.draw(st.sampled_from([varied.replace("/", "//"), varied + "/", varied.rstrip("/")]))
    listed, reference = data.draw(st.permutations([one + name, other + varied]))
    if not name.strip("/") or ("file:/" in (one, other) and name.startswith("/")):
        return  # after `file:/`, a key that begins with a slash reads as the name of a host
    with runs_of(1), ReferenceIndex() as found:
        found.add([reference])
        assert found.referenced([listed]) == [True]
    assert set(forms(listed)) & set(forms(reference))


@given(one=st.lists(segment, min_size=1, max_size=3), other=st.lists(segment, min_size=1, max_size=3))
def test_another_path_is_not_found(one: list[str], other: list[str]) -> None:
    plain = all("%" not in text for text in (*one, *other))
    with ReferenceIndex() as found:
        found.add(["s3://lake/" + "/".join(one)])
        assert found.referenced(["s3://lake/" + "/".join(other)]) == [one == other] or not plain
        assert found.referenced(["s3://elsewhere/" + "/".join(one), "gs://lake/" + "/".join(one)]) == [False, False]


@given(key, st.sampled_from(["oss://lake/", "s3://other/", "cosn://x/"]), st.sampled_from([1, 4]))
def test_the_same_key_elsewhere_is_a_mismatch(name: str, root: str, run: int) -> None:
    with runs_of(run), ReferenceIndex() as found:
        assert found.mismatched(["s3://lake/" + name]) == [False]
        found.add_elsewhere([root + name])
        collapsed = "/".join(one for one in name.split("/") if one)
        assert found.mismatched(["s3://lake/" + name, "s3://lake/" + collapsed]) == [True, True]
        assert found.mismatched(["s3://lake/else/" + name]) == [False]


def test_many_runs_and_many_folders() -> None:
    with runs_of(64), ReferenceIndex() as found:
        for start in range(0, 2000, 50):
            found.add([f"s3://lake/t/{number % 173}/{number}.parquet" for number in range(start, start + 50)])
        there = [f"s3a://lake/t/{number % 173}/{number}.parquet" for number in range(2000)]
        absent = [f"s3a://lake/t/{number % 173 + 1}/{number}.parquet" for number in range(2000)]
        mixed = [one for pair in zip(there, absent, strict=True) for one in pair]
        assert found.referenced(mixed) == [True, False] * 2000
        assert found.referenced([*there[:3], "s3://lake/t//0/0.parquet"]) == [True] * 4
        assert found.referenced([]) == []
