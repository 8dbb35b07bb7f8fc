"""Whether two snapshots hold the same live entries (known traps: "Are the rows the same?")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakehouse_maintenance.iceberg.fields import DELETED, STATISTICS, STATISTICS_BUT_BOUNDS
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader, live_file, partition_spelling
from lakehouse_maintenance.iceberg.metadata import Snapshot
from lakehouse_maintenance.iceberg.splicing import Numbers
from lakehouse_maintenance.model.files import LiveFile

_MODULUS = 1 << 64


@dataclass
class EntrySet:
    """Number of entries, of their rows, and a hash that does not depend on order; an entry listed twice counts twice.

    It covers all of LiveFile: path, place, format, sizes, partition, snapshot, data sequence number, row ids,
    references. Equal within one process: Python salts the hashes of text.
    """

    files: int = 0
    rows: int = 0
    mixed: int = 0

    def add(self, file: LiveFile) -> None:
        """One more."""
        self.files += 1
        self.rows += file.records
        self.mixed = (self.mixed + hash(file)) % _MODULUS


def moved_entries(
    reader: ManifestReader, before: Snapshot, after: Snapshot
) -> tuple[EntrySet, EntrySet, Mapping[Numbers, int]]:
    """Live entries of the manifests that only one of the two snapshots lists: of `before`, of `after`; and the latter's
    by snapshot id, data and file sequence number.

    Those of `before` may be remembered; those of `after` are read from storage, which shows that they are there.
    """
    before_them, after_them = reader.manifests(before), reader.manifests(after)
    old = {_listed(manifest): manifest for manifest in before_them}
    new = {_listed(manifest) for manifest in after_them}
    was = EntrySet()
    for file in reader.live_files(m for m in before_them if _listed(m) not in new and m.live_files != 0):
        was.add(file)
    now, numbers = _read(reader, [_as_written(m) for m in after_them if not _is_kept(m, old.get(_listed(m)))])
    return was, now, numbers


def _is_kept(now: ManifestFile, before: ManifestFile | None) -> bool:
    """The first commit after an upgrade to version 3 gives first row ids to manifests that had none."""
    return before is not None and before.first_row_id in (None, now.first_row_id)


def _as_written(manifest: ManifestFile) -> ManifestFile:
    """Without the row ids that a list gives to files which had none: all that were known before are in the entries."""
    return replace(manifest, first_row_id=None)


def _read(reader: ManifestReader, manifests: Sequence[ManifestFile]) -> tuple[EntrySet, Mapping[Numbers, int]]:
    found, numbers = EntrySet(), Counter[Numbers]()
    for deletes in (False, True):
        wanted = [m for m in manifests if m.deletes is deletes]
        for _, entries in reader.entries_of(wanted, STATISTICS_BUT_BOUNDS if deletes else STATISTICS):
            spell = partition_spelling(entries.partition)
            for entry in entries.records:
                if entry["status"] != DELETED:
                    found.add(live_file(entry, spell))
                    numbers[entry["snapshot_id"], entry["sequence_number"], entry["file_sequence_number"]] += 1
    return found, numbers


def _listed(manifest: ManifestFile) -> tuple[str, int, int]:
    return manifest.path, manifest.added_snapshot_id, manifest.sequence_number
