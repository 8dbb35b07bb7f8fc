"""A table's health in numbers, from metadata alone (IM-14). What is due and the score are decided by planning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.deletes import DanglingDeletes
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.health import SIZE_BUCKETS, TableHealth


def measure(
    metadata: Metadata, reader: ManifestReader, *, small_below: int, expired: frozenset[int] = frozenset()
) -> TableHealth:
    """Health of the main branch. `small_below`: bytes under which a data file counts as small.

    `expired`: snapshots that the policy would let go. Reads the current snapshot's manifests, and those of other
    snapshots only where some snapshot could expire.
    """
    head = metadata.head()
    manifests = [] if head is None else reader.manifests(head)
    count = _Count(small_below)
    delete_files = [m for m in manifests if m.deletes and m.live_files != 0]
    for file in reader.live_files(delete_files):
        count.add_delete_file(file)
    dangling = DanglingDeletes(count.deletes, metadata.unpartitioned_specs)
    for file in reader.live_files(m for m in manifests if not m.deletes and m.live_files != 0):
        count.add_data_file(file)
        dangling.saw(file)
    times = [s.timestamp_ms for s in metadata.snapshots.values()]
    return TableHealth(
        table=metadata.table,
        format_version=metadata.format_version,
        snapshot_id=None if head is None else head.snapshot_id,
        records=count.records,
        data_files=count.data_files,
        data_bytes=count.data_bytes,
        small_files=count.small_files,
        delete_files=len(count.deletes),
        position_delete_files=count.position_delete_files,
        equality_delete_files=count.equality_delete_files,
        deletion_vectors=count.deletion_vectors,
        deleted_rows=count.deleted_rows,
        dangling_delete_files=len(dangling.dangling()),
        snapshots=len(metadata.snapshots),
        expired_snapshots=len(expired),
        oldest_snapshot_ms=min(times, default=None),
        newest_snapshot_ms=max(times, default=None),
        refs=len(metadata.refs),
        manifests=len(manifests),
        manifest_bytes=sum(manifest.length for manifest in manifests),
        metadata_files=1 + len(metadata.log_locations()),
        partitions=len(count.partitions),
        largest_partition_files=max(count.partitions.values(), default=0),
        histogram=count.histogram(),
        reclaimable_bytes=_reclaimable(metadata, reader, expired),
    )


class _Count:
    def __init__(self, small_below: int) -> None:
        self._small_below = small_below
        self._buckets = [0] * len(SIZE_BUCKETS)
        self.records = self.data_files = self.data_bytes = self.small_files = 0
        self.position_delete_files = self.equality_delete_files = self.deletion_vectors = self.deleted_rows = 0
        self.deletes: list[LiveFile] = []
        self.partitions: Counter[tuple[int, str]] = Counter()

    def add_data_file(self, file: LiveFile) -> None:
        self.data_files += 1
        self.records += file.records
        self.data_bytes += file.size
        self.small_files += file.size < self._small_below
        self.partitions[file.partition_id] += 1
        for index, (_, bound) in enumerate(SIZE_BUCKETS):
            if file.size < bound:
                self._buckets[index] += 1
                return

    def add_delete_file(self, file: LiveFile) -> None:
        self.deletes.append(file)
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
