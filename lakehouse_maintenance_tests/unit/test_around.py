"""Looking above a table with credentials that may not look there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse_maintenance.evidence.around import ancestors, logs_at, metadata_at
from lakehouse_maintenance.model.errors import ListingIncompleteError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo, Storage

TABLE = Location.parse("s3://lake/wh/db/t")
ABOVE = list(ancestors(TABLE))


class Denying(Storage):
    """Lists below `wh/db` alone, where there is a log."""

    cause = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>"

    def list(self, prefix: Location, *, batch_size: int = 1000) -> Iterator[list[ObjectInfo]]:
        if not prefix.key.startswith("wh/db/"):
            raise ListingIncompleteError(f"cannot list {prefix.text}: {self.cause}")
        if prefix.name == "_delta_log":
            yield [ObjectInfo(prefix.child("00000000000000000000.json"), 1, None)]
        elif prefix.name == "metadata":
            yield [ObjectInfo(prefix.child("v1.metadata.json"), 1, None)]


def test_folders_above_are_nearest_first() -> None:
    assert [folder.key for folder in ABOVE] == ["wh/db", "wh", ""]


def test_vended_credentials_look_as_far_as_they_may() -> None:
    storage = Denying({}, is_vended=True)
    assert logs_at(storage, ABOVE) == [("s3://lake/wh/db", "_delta_log")]
    assert [row[0] for row in metadata_at(storage, ABOVE)] == ["s3://lake/wh/db/metadata/v1.metadata.json"]


def test_anybody_else_is_told() -> None:
    for look in (logs_at, metadata_at):
        with pytest.raises(ListingIncompleteError, match="403"):
            look(Denying({}), ABOVE)


def test_another_failure_is_told_whoever_looks() -> None:
    storage = Denying({}, is_vended=True)
    storage.cause = "503 Slow Down"
    with pytest.raises(ListingIncompleteError, match="503"):
        logs_at(storage, ABOVE)
