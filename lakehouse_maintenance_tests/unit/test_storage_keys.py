"""What storage reads out of keys and errors, without a store."""

from __future__ import annotations

import pytest

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, is_folder_marker
from lakehouse_maintenance.storage.causes import is_held, is_throttling, shortened
from lakehouse_maintenance.storage.keys import is_refused, other_readings


@pytest.mark.parametrize("key", ["a//b", "/a", "a/", "a/./b", "a/../b", "a\x01b", "a\x7fb", ""])
def test_keys_that_obstore_refuses_or_changes(key: str) -> None:
    assert is_refused(key)


@pytest.mark.parametrize("key", ["a/b", "a b", "a%20b", "a+b=c:d", "日本", ".a/..b", "a\\b"])
def test_keys_that_obstore_names_exactly(key: str) -> None:
    assert not is_refused(key)


@pytest.mark.parametrize(
    ("key", "readings"),
    [
        ("a//b", {"a/b"}),
        ("/a/b", {"a/b"}),
        ("a/b/", {"a/b"}),
        ("/a//b/", {"a//b/", "/a//b", "a//b", "/a/b/", "a/b/", "/a/b", "a/b"}),
        ("a/./b", {"a/b"}),
        ("x/../a/b", {"a/b"}),
        ("a\\b", {"a/b"}),
        ("a/b", set()),
        ("a\x01b", set()),
        ("a%2Fb", set()),
        ("//", {"/"}),
    ],
)
def test_what_a_careless_store_could_take_a_key_for(key: str, readings: set[str]) -> None:
    found = other_readings(key)
    assert set(found) == readings
    assert len(found) == len(readings)


def test_folder_markers_are_empty_and_named_like_folders() -> None:
    def marker(key: str, size: int = 0) -> bool:
        return is_folder_marker(ObjectInfo(Location.parse(f"s3://lake/{key}"), size, None))

    assert marker("t/")
    assert marker("t/day=1_$folder$")
    assert not marker("t/", 1)
    assert not marker("t/x_$folder$", 1)
    assert not marker("t/empty")
    assert not marker("t/_$folder$s")


def test_throttling_is_told_from_other_errors() -> None:
    for text in (
        "Server returned non-2xx status code: 503 Service Unavailable: <Error><Code>SlowDown</Code></Error>",
        "Server returned non-2xx status code: 429 Too Many Requests: ",
        "Please reduce your request rate. (code: SlowDown)",
        "An error occurred (503) when calling the HeadObject operation: Service Unavailable",
        "HTTP error: request or response body error: operation timed out",
    ):
        assert is_throttling(text), text
    for text in (
        "Error performing POST http://h/b, after 1 retries, retry_timeout: 60s - HTTP error: error sending request",
        "Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>",
        "cannot stat s3://lake/part-503-429.parquet: 404",
    ):
        assert not is_throttling(text), text


def test_what_one_key_is_refused_is_told_from_a_refused_request() -> None:
    for text in (
        "Access Denied because object protected by object lock.",
        "The operation is not valid for the object's storage class (code: InvalidObjectState)",
        "Object 'b/o' is subject to bucket's retention policy",
        "This operation is not permitted as the blob is immutable due to a policy. BlobImmutableDueToPolicy",
    ):
        assert is_held(text), text
    assert not is_held("Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>")
    assert not is_held("Access Denied (code: AccessDenied)"), "a role that may not delete"


def test_a_refused_batch_is_shortened_to_its_cause() -> None:
    keys = ",".join(f"wh/t/{number:05}.parquet" for number in range(1000))
    text = (
        f"The operation lacked the privileges for path {keys}: Error performing POST http://h - 403\n\nDebug source:\nx"
    )
    assert shortened(text) == "The operation lacked the privileges: Error performing POST http://h - 403"
