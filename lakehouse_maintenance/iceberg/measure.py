"""A table's health in numbers, from metadata alone (IM-14). What is due and the score are decided by planning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.iceberg.opened import spec_manifests
from lakehouse_maintenance.iceberg.sort_keys import KeyColumn, key_overlap
from lakehouse_maintenance.model.deletes import DanglingDeletes
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.health import SIZE_BUCKETS, TableHealth
from lakehouse_maintenance.model.openings import PartitionCount, median, openings
from lakehouse_maintenance.model.properties import MANIFEST_TARGET, MANIFEST_TARGET_DEFAULT, whole_number


def measure(
    metadata: Metadata,
    reader: ManifestReader,
    *,
    small_below: int,
    file_target: int = 512 << 20,
    expired: frozenset[int] = frozenset(),
    keys: Sequence[KeyColumn] = (),
) -> TableHealth:
    """Health of the main branch. `small_below`: bytes under which a data file counts as small. `file_target`: bytes
    that compaction aims at.

    `expired`: snapshots that the policy would let go. `keys`: columns by which files should be in order; their bounds
    are read where there are any. Reads the current snapshot's manifests, and those of other snapshots only where some
    snapshot could expire.
    """
    head = metadata.head()
    manifests = [] if head is None else reader.manifests(head)
    live = [manifest for manifest in manifests if manifest.live_files != 0]
    count = _Count(small_below)
    for file in reader.live_files(m for m in live if m.deletes):
        count.add_delete_file(file)
    dangling = DanglingDeletes(count.deletes, metadata.unpartitioned_specs)
    for file in reader.live_files(m for m in live if not m.deletes):
        count.add_data_file(file)
        dangling.saw(file)
    times = [s.timestamp_ms for s in metadata.snapshots.values()]
    sizes = [one.data_files for one in count.partitions.values() if one.data_files]
    median_files = median(sizes)
    opened = openings(
        spec_manifests(metadata, live, count.partitions),
        manifest_target=whole_number(metadata.properties, MANIFEST_TARGET, MANIFEST_TARGET_DEFAULT),
        file_target=file_target,
    )
    overlapping = key_overlap(reader, (m for m in live if not m.deletes), keys) if keys else None
    return TableHealth(
        table=metadata.table,
        format_version=metadata.format_version,
        snapshot_id=None if head is None else head.snapshot_id,
        records=count.records,
        data_files=count.data_files,
        data_bytes=count.data_bytes,
        small_files=count.small_files,
        small_files_percent=_percent(count.small_files, count.data_files),
        delete_files=len(count.deletes),
        delete_bytes=count.delete_bytes,
        position_delete_files=count.position_delete_files,
        equality_delete_files=count.equality_delete_files,
        deletion_vectors=count.deletion_vectors,
        deleted_rows=count.deleted_rows,
        deleted_rows_percent=_percent(count.deleted_rows, count.records),
        dangling_delete_files=len(dangling.dangling()),
        snapshots=len(metadata.snapshots),
        expired_snapshots=len(expired),
        oldest_snapshot_ms=min(times, default=None),
        newest_snapshot_ms=max(times, default=None),
        refs=len(metadata.refs),
        manifests=len(manifests),
        manifest_bytes=sum(manifest.length for manifest in manifests),
        delete_manifests=sum(manifest.deletes for manifest in manifests),
        manifests_after=opened.manifests_after,
        opened_manifests_median=opened.manifests_median,
        opened_manifests_worst=opened.manifests_worst,
        opened_manifests_median_after=opened.manifests_median_after,
        opened_manifests_worst_after=opened.manifests_worst_after,
        opened_files_median=opened.files_median,
        opened_files_worst=opened.files_worst,
        opened_files_median_after=opened.files_median_after,
        opened_files_worst_after=opened.files_worst_after,
        overlapping_files=None if overlapping is None else overlapping.files,
        overlap_depth_percent=None if overlapping is None else overlapping.depth_percent,
        metadata_files=1 + len(metadata.log_locations()),
        partitions=len(sizes),
        largest_partition_files=max(sizes, default=0),
        median_partition_files=median_files,
        partition_skew_percent=_percent(max(sizes, default=0), median_files),
        histogram=count.histogram(),
        reclaimable_bytes=_reclaimable(metadata, reader, expired),
        features=metadata.state().features,
        last_maintenance=last_maintenance(metadata),
    )


def last_maintenance(metadata: Metadata) -> dict[str, int]:
    """Action → when the newest snapshot of ours was committed that says it is of that action."""
    found: dict[str, int] = {}
    for snapshot in metadata.snapshots.values():
        action = snapshot.summary.get("lakehouse-maintenance.action")
        if action is not None:
            found[action] = max(found.get(action, 0), snapshot.timestamp_ms)
    return found


def _percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 0


class _Count:
    def __init__(self, small_below: int) -> None:
        self._small_below = small_below
        self._buckets = [0] * len(SIZE_BUCKETS)
        self.records = self.data_files = self.data_bytes = self.small_files = 0
        self.position_delete_files = self.equality_delete_files = self.deletion_vectors = self.deleted_rows = 0
        self.delete_bytes = 0
        self.deletes: list[LiveFile] = []
        self.partitions: defaultdict[tuple[int, str], PartitionCount] = defaultdict(PartitionCount)

    def add_data_file(self, file: LiveFile) -> None:
        self.data_files += 1
        self.records += file.records
        self.data_bytes += file.size
        self.small_files += file.size < self._small_below
        partition = self.partitions[file.partition_id]
        partition.data_files += 1
        partition.data_bytes += file.size
        for index, (_, bound) in enumerate(SIZE_BUCKETS):
            if file.size < bound:
                self._buckets[index] += 1
                return

    def add_delete_file(self, file: LiveFile) -> None:
        self.deletes.append(file)
        self.delete_bytes += file.size
        self.partitions[file.partition_id].delete_files += 1
        if file.content is Content.EQUALITY_DELETES:
            self.equality_delete_files += 1
            return
        # Rows named by position deletes; equality deletes tell how many keys they hold, not how many rows match.
        self.deleted_rows += file.records
        if file.file_format == "PUFFIN":
            self.deletion_vectors += 1
        else:
            self.position_delete_files += 1

    def histogram(self) -> dict[str, int]:
        return {label: count for (label, _), count in zip(SIZE_BUCKETS, self._buckets, strict=True)}


def _reclaimable(metadata: Metadata, reader: ManifestReader, expired: frozenset[int]) -> int:
    """Bytes that only expired snapshots reach: their data and delete files, manifests and lists.

    Of a table that is only appended to, the lists are all that goes.
    """
    if not expired:
        return 0
    kept: dict[str, ManifestFile] = {}
    only_expired: dict[str, ManifestFile] = {}
    lists: dict[str | None, int] = {}
    for snapshot, manifests in reader.manifests_of(metadata.snapshots.values()):
        if snapshot.snapshot_id in expired:
            lists[snapshot.manifest_list] = reader.list_size(snapshot) or 0
        for manifest in manifests:
            (only_expired if snapshot.snapshot_id in expired else kept)[manifest.path] = manifest
    for path in kept:
        only_expired.pop(path, None)
    sizes: dict[int, int] = {}
    for file in reader.live_files(only_expired.values()):
        sizes[hash(file.identity)] = file.size
    if sizes:
        _forget(sizes, reader.live_files(kept.values()))
    of_metadata = sum(lists.values()) + sum(manifest.length for manifest in only_expired.values())
    return sum(sizes.values()) + of_metadata


def _forget(sizes: dict[int, int], kept: Iterable[LiveFile]) -> None:
    for file in kept:
        sizes.pop(hash(file.identity), None)
