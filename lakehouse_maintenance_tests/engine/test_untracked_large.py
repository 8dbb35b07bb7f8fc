"""A candidate of ten thousand objects: one listing of it, bounded memory, and progress that is told."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.stores import Lake
from lakehouse_maintenance_tests.engine.untracked import Untracked, folder, only

COUNT = 10_000


class Told:
    """Progress as it was told."""

    def __init__(self) -> None:
        self.objects: Counter[str] = Counter()

    def begin(self, table: str, what: str, files: int, size: int) -> None:
        del table, what, files, size

    def advance(self, table: str, files: int, size: int) -> None:
        del size
        self.objects[table] += files

    def end(self, table: str, what: str) -> None:
        del table, what


@pytest.fixture
def large(local_lake: Lake) -> tuple[Untracked, str]:
    local_lake.table("db.live")
    untracked = Untracked(local_lake)
    place = f"{untracked.root}/large"
    at = Path(Location.parse(place).local_path)
    for part in range(10):
        (at / f"p={part}").mkdir(parents=True)
    for number in range(COUNT):
        (at / f"p={number % 10}" / f"{number:05}-{'x' * 100}.parquet").write_bytes(b"12345")
    return untracked, place


@pytest.mark.requirement("UF-28")
def test_one_listing_tells_age_count_and_bytes(large: tuple[Untracked, str], monkeypatch: pytest.MonkeyPatch) -> None:
    untracked, place = large
    listed: Counter[str] = Counter()
    real = Storage.list

    def counted(self: Storage, prefix: Location, *args: Any, **kwargs: Any) -> Any:
        listed[prefix.text.rstrip("/")] += 1
        return real(self, prefix, *args, **kwargs)

    monkeypatch.setattr(Storage, "list", counted)
    ours = untracked.lake.open()
    told = Told()
    ours.progress = told
    result = only(untracked.run(ours))
    found = folder(result, "large")
    assert found.content is not None
    assert (found.content.objects, found.content.bytes) == (COUNT, COUNT * 5)
    assert (result.row.candidate_object_count, result.row.candidate_total_size_bytes) == (COUNT, COUNT * 5)
    assert {path: times for path, times in listed.items() if path.startswith(place)} == {place: 1}
    assert told.objects["main.db"] >= COUNT


@pytest.mark.requirement("UF-28")
@pytest.mark.parametrize("removal", ["delete", "quarantine"])
def test_memory_does_not_grow_with_it(large: tuple[Untracked, str], removal: str) -> None:
    """All of it held as text alone would be three megabytes, and as locations ten times that."""
    untracked, place = large
    ours = untracked.lake.open(policies={"default": {"untracked_folders": {"removal": removal}}})
    untracked.run(ours)  # what is imported and read once
    told = Told()
    ours.progress = told
    file = untracked.job(dry_run=False, delete_enabled=True)
    tracemalloc.start()
    try:
        result = only(ours.untracked_folders(file))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.row.deleted_folders == (place,), result.row
    assert (result.row.deleted_object_count, result.row.deleted_total_size_bytes) == (COUNT, COUNT * 5)
    assert told.objects[place] >= COUNT
    assert peak < 20_000_000, f"{peak:,} bytes"
