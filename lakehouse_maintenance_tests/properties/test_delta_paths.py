"""Paths in Delta logs: for any name, what a writer encodes is what we read, decoded exactly once."""

from __future__ import annotations

import uuid
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_maintenance.delta.paths import decode, decode_uuid, deletion_vector_file, resolve
from lakehouse_maintenance.model.locations import Location

ROOTS = [
    Location.parse(text) for text in ("s3://lake/db/t", "s3a://lake/t%20x/", "s3://lake", "/data/a b", "file:///t")
]
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0/")
segments = st.text(characters, min_size=1, max_size=12).filter(lambda text: text not in (".", ".."))
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)
roots = st.sampled_from(ROOTS)
# What Java's URI leaves as it is within a path, and nothing at all: both spellings are one path.
spellings = st.sampled_from(["/", "/=!$&'()*+,;@-._~"])


@given(root=roots, key=keys, safe=spellings)
def test_an_encoded_relative_path_is_the_key_below_the_root(root: Location, key: str, safe: str) -> None:
    assert resolve(root, quote(key, safe=safe)) == root.with_key(root.folder_key + key)


@given(root=roots, key=keys)
def test_an_escaped_folder_name_keeps_its_own_escapes(root: Location, key: str) -> None:
    on_disk = quote(key, safe="/=")
    assert resolve(root, quote(on_disk, safe="/=")) == root.with_key(root.folder_key + on_disk)


@given(
    root=roots,
    key=keys,
    safe=spellings,
    start=st.sampled_from(["s3://other/", "s3a://other/x/", "file:/x/", "file:///"]),
)
def test_an_absolute_path_is_where_it_says_whatever_the_root(root: Location, key: str, safe: str, start: str) -> None:
    assert resolve(root, start + quote(key, safe=safe)) == Location.parse(start + key)


@given(root=roots, text=st.text(max_size=40))
def test_any_text_is_placed_or_refused(root: Location, text: str) -> None:
    try:
        found = resolve(root, text)
    except ValueError:
        return
    assert Location.parse(found.text) == found
    assert not {".", ".."} & set(found.segments)
    if ":/" not in text and not decode(text).startswith("/"):
        assert root.contains(found)


@given(value=st.uuids(), prefix=st.sampled_from(["", "ab", "x%20y"]))
def test_a_deletion_vector_is_found_by_its_encoded_id(value: uuid.UUID, prefix: str) -> None:
    root = Location.parse("s3://lake/t")
    assert decode_uuid(_encoded(value)) == value
    folder = f"s3://lake/t/{prefix}/" if prefix else "s3://lake/t/"
    found = deletion_vector_file(root, "u", prefix + _encoded(value))
    assert found == Location.parse(f"{folder}deletion_vector_{value}.bin")


@given(text=st.text(max_size=30), kind=st.sampled_from("uip"))
def test_any_descriptor_is_placed_or_refused(text: str, kind: str) -> None:
    try:
        found = deletion_vector_file(Location.parse("s3://lake/t"), kind, text)
    except ValueError:
        return
    assert (found is None) == (kind == "i")


def _encoded(value: uuid.UUID) -> str:
    """Z85 by its definition: four bytes, big-endian, to five digits of base 85."""
    text = ""
    for start in range(0, 16, 4):
        number = int.from_bytes(value.bytes[start : start + 4], "big")
        text += "".join(Z85[number // 85**power % 85] for power in range(4, -1, -1))
    return text


def test_the_example_of_the_protocol() -> None:
    found = deletion_vector_file(Location.parse("s3://mytable/"), "u", "ab^-aqEH.-t@S}K{vb[*k^")
    assert found == Location.parse("s3://mytable/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "empty"),
        ("../other/x.parquet", "segment"),
        ("a/%2E%2E/x.parquet", "segment"),
        ("./x.parquet", "segment"),
        ("s3://lake/t/../x", "segment"),
        ("file:/data/../x", "segment"),
        ("a%00b", "NUL"),
        ("a\0b", "NUL"),
        ("a%FFb", "UTF-8"),
        ("a\ud800b", "surrogate"),
        ("s3://lake/", "names no file"),
        ("dbfs:/mnt/x", "not an absolute location"),
        ("s3:///x", "bucket"),
    ],
)
def test_refused_paths(path: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        resolve(Location.parse("s3://lake/t"), path)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("p", "deletion_vector_1.bin", "not absolute"),
        ("u", "short", "too short"),
        ("u", "~" * 20, "Z85"),
        ("u", "#" * 20, "Z85"),
        ("u", "../" + "0" * 20, "segment"),
        ("r", "x.bin", "unknown"),
    ],
)
def test_refused_deletion_vectors(kind: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        deletion_vector_file(Location.parse("s3://lake/t"), kind, text)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("a+b", "t/a+b"),
        ("a%2Bb", "t/a+b"),
        ("50%", "t/50%"),
        ("a%zzb", "t/a%zzb"),
        ("a%2520b", "t/a%20b"),
        ("a%2Fb", "t/a/b"),
        ("a//b", "t/a//b"),
        ("a?b#c", "t/a?b#c"),
        ("/elsewhere/x", "elsewhere/x"),
    ],
)
def test_placed_paths(path: str, key: str) -> None:
    assert resolve(Location.parse("s3://lake/t"), path) == Location.parse("s3://lake/" + key)


@pytest.mark.parametrize("path", ["a/b", "a//b", "/data/t/a//b/", "file:/data//t/a/b", "file:///data/t/a/b"])
def test_local_paths_follow_the_operating_system(path: str) -> None:
    found = resolve(Location.parse("/data/t"), path)
    assert found == Location.parse("/data/t/a/b")
    assert found.local_path == "/data/t/a/b"
