"""Buckets that keep versions: what is deleted there is still paid for."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage


def versions_kept(storage: Storage, places: Sequence[Location]) -> list[str]:
    """What a reader of "deleted bytes" has to know about versioned buckets."""
    kept = {place.root for place in places if storage.keeps_versions(place)}
    return [
        f"{root} keeps versions: what is deleted costs until a lifecycle rule removes old versions" for root in kept
    ]
