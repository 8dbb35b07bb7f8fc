"""Each option of `remove_orphan_files` does what its name says, under Iceberg's own names of results (IM-08)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate

from lakehouse_maintenance.model.actions import Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.orphans import OrphanRequest
from lakehouse_maintenance.removal import remover
from lakehouse_maintenance.removal.deleting import Fate, Told, delete_batch
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance_tests.engine.stores import Lake


def orphans_of(lake: Lake, count: int) -> list[str]:
    location = lake.table().location()
    return [lake.put(f"{location}/data/orphan-{number}.parquet") for number in range(count)]


@pytest.mark.parametrize("most", [1, 3])
def test_max_concurrent_deletes_bounds_the_calls_in_flight(
    local_lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    lake = local_lake
    orphans = orphans_of(lake, 5)
    lake.pass_days(4)
    asked: list[dict[str, Any]] = []

    def counting(storage: Storage, locations: Sequence[Location], **options: Any) -> dict[Location, Told]:
        asked.append(options)
        return delete_batch(storage, locations, **options)

    monkeypatch.setattr(remover, "delete_batch", counting)
    assert lake.orphans(max_concurrent_deletes=most).deleted_files == len(orphans)
    assert asked == [{"concurrency": most}]


def test_calls_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that delete one object a call."""
    running = most = 0
    lock = threading.Lock()

    class Slow(Storage):
        def client(self, location: Location) -> Any:
            return None

        def vendor_client(self, location: Location) -> None:
            return None

        def stat(self, location: Location) -> None:
            return None

    def delete(storage: Storage, locations: Sequence[Location]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    monkeypatch.setattr("lakehouse_maintenance.removal.deleting._delete_objects", delete)
    locations = [Location.parse(f"gs://lake/t/{number}.parquet") for number in range(40)]
    fates = delete_batch(Slow({}), locations, concurrency=2)
    assert {told.fate for told in fates.values()} == {Fate.DELETED}
    assert most <= 2


def test_none_in_flight_is_no_number() -> None:
    with pytest.raises(InputError, match="at least one"):
        OrphanRequest(max_concurrent_deletes=0).check()


def test_a_hidden_folder_stays_hidden_for_who_names_it(local_lake: Lake) -> None:
    lake = local_lake
    location = lake.table().location()
    lake.put(f"{location}/_temporary/0/part.parquet")
    lake.pass_days(4)
    result = lake.orphans(location=f"{location}/_temporary")
    assert (result.status, result.deleted_files) == (Status.DONE, 0)
    assert "hidden" in result.kept[0].reason


@pytest.mark.requirement("IM-08")
def test_what_the_procedure_keeps_and_what_it_takes(lake: Lake) -> None:
    """In one table: everything that is referenced in its own way, beside one orphan of each folder."""
    data = f"{lake.root}elsewhere/data"
    table = lake.table(commits=2, properties={"write.data.path": data, "write.metadata.previous-versions-max": "2"})
    location = table.location()
    lake.add(table, f"{data}/2.parquet")
    lake.put(f"{location}/metadata/version-hint.text")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    puffin = lake.put(f"{location}/metadata/{snapshot.snapshot_id}.stats")
    statistics = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=puffin,
        file_size_in_bytes=8,
        file_footer_size_in_bytes=4,
        blob_metadata=[],
    )
    lake.writer.commit_table(table, (), (SetStatisticsUpdate(statistics=statistics),))
    referenced = lake.objects()
    dropped = {path for path in referenced if path.endswith(".metadata.json")} - named_metadata(lake)
    orphans = {lake.put(f"{folder}/orphan.parquet") for folder in (data, f"{location}/data", f"{location}/metadata")}
    lake.pass_days(2)
    assert lake.orphans().deleted_files == 0, "three days, unless somebody says otherwise"
    dry = lake.orphans(delete=False, older_than=timedelta(days=1))
    names = set(dry.as_json(with_files=True)["orphan_file_locations"])
    assert names == orphans | dropped
    done = lake.orphans(older_than=timedelta(days=1), max_concurrent_deletes=2, plan_digest=dry.digest)
    assert (done.status, done.deleted_files) == (Status.DONE, len(names)), done
    assert lake.objects() == referenced - dropped


def named_metadata(lake: Lake) -> set[str]:
    """The current metadata file, and the previous ones that it still names."""
    metadata = lake.writer.load_table("db.t").metadata
    previous = {entry.metadata_file for entry in metadata.metadata_log}
    return {lake.writer.load_table("db.t").metadata_location, *previous}
