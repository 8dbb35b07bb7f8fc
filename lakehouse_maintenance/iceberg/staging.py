"""Manifests and manifest list of a REPLACE, written for one attempt to commit it.

Manifests that hold nothing to remove are listed again as they are. The others are written anew, several small ones
into one up to the table's target size; live entries keep snapshot id and sequence numbers, removed ones become DELETED
under the new snapshot. Delete files that reach no data file any more go in the same snapshot.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from pyiceberg.table.locations import load_location_provider

from lakehouse_maintenance.iceberg.fields import ADDED, DELETED, EXISTING, AvroType
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader, partition_spelling
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.replace import Identity, Replacement, named
from lakehouse_maintenance.iceberg.summary import replace_summary
from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
from lakehouse_maintenance.model.deletes import DanglingDeletes
from lakehouse_maintenance.model.errors import StorageError
from lakehouse_maintenance.model.files import Content, LiveFile

if TYPE_CHECKING:
    from pyiceberg.table import Table

Targets = Callable[[LiveFile], frozenset[str] | None]

_MANIFEST_TARGET_BYTES = 8 << 20
"""Iceberg's default of `commit.manifest.target-size-bytes`."""


@dataclass(frozen=True, slots=True)
class Staged:
    """`files`: metadata files written for this attempt. `added_files`: data files that the snapshot adds."""

    snapshot_id: int
    sequence_number: int
    manifest_list: str
    files: tuple[str, ...]
    summary: dict[str, str]
    added_files: tuple[str, ...]
    removed_delete_files: int


@dataclass
class _Writer:
    """Writes manifests of one attempt and keeps their rows and paths."""

    table: Table
    metadata: Metadata
    snapshot_id: int
    announce: Callable[[Sequence[str]], None]
    files: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._locations = load_location_provider(self.table.location(), self.table.properties)
        self._id = uuid.uuid4()
        self._numbers = count()
        self._announced = 0

    def expect(self, manifests: int) -> None:
        """Announces the list and the first so many manifests, before any of them is written."""
        self._announced = manifests
        self.announce([self._list_path, *map(self._manifest_path, range(manifests))])

    @property
    def _list_path(self) -> str:
        return str(self._locations.new_metadata_location(f"snap-{self.snapshot_id}-1-{self._id}.avro"))

    def _manifest_path(self, number: int) -> str:
        return str(self._locations.new_metadata_location(f"{self._id}-m{number}.avro"))

    def put(self, path: str, data: bytes) -> None:
        self.files.append(path)
        try:
            with self.table.io.new_output(path).create() as out:
                out.write(data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}", field=path) from error

    def manifest(self, spec_id: int, content: int, partition: AvroType, entries: Sequence[dict[str, Any]]) -> None:
        number = next(self._numbers)
        path = self._manifest_path(number)
        if number >= self._announced:
            self.announce([path])
        row = write_manifest(self.put, path, self.metadata, spec_id, content, partition, entries, self.snapshot_id)
        self.rows.append(row)

    def manifest_list(self, rows: Sequence[dict[str, Any]], parent_id: int, sequence_number: int) -> str:
        path = self._list_path
        version = self.metadata.format_version
        write_manifest_list(
            self.put, path, self.metadata, rows, self.snapshot_id, parent_id, sequence_number if version > 1 else None
        )
        return path


def stage(
    table: Table,
    metadata: Metadata,
    head: Snapshot,
    reader: ManifestReader,
    groups: Sequence[Replacement],
    targets: Targets,
    announce: Callable[[Sequence[str]], None] = lambda paths: None,
) -> Staged:
    """Writes manifests and list for a snapshot on `head`; the groups must fit that head (replace.misfit).

    `targets`: the data files that a position delete file names, or None where that is not known. `announce`: told
    every path before anything is written to it; a few of them may never be.
    """
    snapshot_id = _new_snapshot_id(metadata)
    asked = metadata.properties.get("commit.manifest.target-size-bytes", "")
    target = int(asked) if asked.isdigit() else _MANIFEST_TARGET_BYTES
    manifests = [manifest for manifest in reader.manifests(head) if manifest.live_files != 0]
    removal = _find(reader, manifests, groups, metadata.unpartitioned_specs, targets)
    writer = _Writer(table, metadata, snapshot_id, announce)
    removed: list[dict[str, Any]] = []
    tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]] = {}
    batches = list(_batches(removal.touched, target))
    writer.expect(len(batches) + len({group.partition_id[0] for group in groups}))
    for batch in batches:
        removed += _rewrite(reader, writer, batch, removal.identities, snapshot_id, tuples)
    rewritten = len(writer.rows)
    added = _add(writer, groups, tuples, snapshot_id, metadata.format_version)
    new_rows = writer.rows[rewritten:] + writer.rows[:rewritten]
    kept = [manifest for manifest in manifests if manifest.path not in removal.touched_paths]
    sequence_number = metadata.last_sequence_number + 1
    path = writer.manifest_list([*new_rows, *(m.raw for m in kept)], head.snapshot_id, sequence_number)
    summary = replace_summary(head.summary, added, removed)
    summary |= {
        "manifests-created": str(len(new_rows)),
        "manifests-kept": str(len(kept)),
        "manifests-replaced": str(len(removal.touched)),
        "changed-partition-count": str(len({group.partition_id for group in groups})),
    }
    return Staged(
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        manifest_list=path,
        files=tuple(writer.files),
        summary=summary,
        added_files=tuple(record["file_path"] for record in added),
        removed_delete_files=sum(1 for record in removed if record["content"] != 0),
    )


@dataclass(frozen=True, slots=True)
class _Removal:
    identities: frozenset[Identity]
    touched: list[ManifestFile]
    touched_paths: frozenset[str]


def _find(
    reader: ManifestReader,
    manifests: Sequence[ManifestFile],
    groups: Sequence[Replacement],
    unpartitioned: frozenset[int],
    targets: Targets,
) -> _Removal:
    """What goes, and which manifests hold it: inputs, and delete files that nothing left needs."""
    inputs = named(groups)
    partitions = {group.partition_id for group in groups}
    staying: dict[tuple[int, str], set[str]] = {partition: set() for partition in partitions}
    touched: list[ManifestFile] = []
    holders = list(reader.live_files_by_manifest(m for m in manifests if m.deletes))
    dangling = DanglingDeletes((file for _, files in holders for file in files), unpartitioned)
    for manifest, files in reader.live_files_by_manifest(m for m in manifests if not m.deletes):
        hit = False
        for file in files:
            if file.path in inputs:
                hit = True
                continue
            dangling.saw(file)
            if holders and file.partition_id in staying:
                staying[file.partition_id].add(file.path)
        if hit:
            touched.append(manifest)
    for group in groups:
        for output in group.outputs:
            dangling.saw(_as_live(output, group))
    gone = {delete.identity for delete in dangling.dangling()}
    for _, files in holders:
        gone |= {f.identity for f in files if f.partition_id in staying and _names_none(f, staying, targets)}
    touched += [manifest for manifest, files in holders if any(file.identity in gone for file in files)]
    return _Removal(
        frozenset(gone | {(path, None) for path in inputs}),
        touched,
        frozenset(manifest.path for manifest in touched),
    )


def _names_none(delete: LiveFile, staying: dict[tuple[int, str], set[str]], targets: Targets) -> bool:
    """Does a position delete file of a whole partition name no file that stays?

    Sequence numbers alone cannot tell: a rewritten file keeps the number its rewrite started from, and so seems to be
    reached by deletes that are older than its path. What the delete file names can.
    """
    if delete.content is not Content.POSITION_DELETES or delete.referenced_data_file is not None:
        return False
    named_files = targets(delete)
    return named_files is not None and named_files.isdisjoint(staying[delete.partition_id])


def _as_live(output: dict[str, Any], group: Replacement) -> LiveFile:
    first = group.inputs[0]
    return LiveFile(
        path=output["file_path"],
        content=first.content,
        file_format=output["file_format"],
        spec_id=first.spec_id,
        partition=first.partition,
        records=output["record_count"],
        size=output["file_size_in_bytes"],
        sequence_number=group.sequence_number,
        snapshot_id=0,
    )


def _batches(manifests: Iterable[ManifestFile], target: int) -> Iterable[list[ManifestFile]]:
    """Manifests of one spec and content whose sizes add up to about the target."""
    open_batches: dict[tuple[int, bool], list[ManifestFile]] = {}
    sizes: dict[tuple[int, bool], int] = {}
    for manifest in manifests:
        key = (manifest.spec_id, manifest.deletes)
        if key in open_batches and sizes[key] + manifest.length > target:
            yield open_batches.pop(key)
            sizes[key] = 0
        open_batches.setdefault(key, []).append(manifest)
        sizes[key] = sizes.get(key, 0) + manifest.length
    yield from open_batches.values()


def _rewrite(
    reader: ManifestReader,
    writer: _Writer,
    batch: Sequence[ManifestFile],
    remove: frozenset[Identity],
    snapshot_id: int,
    tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]],
) -> list[dict[str, Any]]:
    """Writes the batch's live entries anew, the removed ones as DELETED; returns the records removed.

    `tuples` learns the raw partition tuple, and its Avro type, of every partition that loses a file.
    """
    removed: list[dict[str, Any]] = []
    # An Avro type of partition tuples may have been widened between manifests: one manifest has one type.
    by_type: dict[str, tuple[AvroType, list[dict[str, Any]]]] = {}
    for manifest in batch:
        entries = reader.entries(manifest)
        spell = partition_spelling(entries.partition)
        kept = by_type.setdefault(json.dumps(entries.partition), (entries.partition, []))[1]
        for entry in entries.records:
            if entry["status"] == DELETED:
                continue
            record = entry["data_file"]
            if (record["file_path"], record["content_offset"]) in remove:
                entry["status"], entry["snapshot_id"] = DELETED, snapshot_id
                removed.append(record)
                tuples[(manifest.spec_id, spell(record["partition"]))] = (record["partition"], entries.partition)
            else:
                entry["status"] = EXISTING
            kept.append(entry)
    content = 1 if batch[0].deletes else 0
    for partition, records in by_type.values():
        if records:
            writer.manifest(batch[0].spec_id, content, partition, records)
    return removed


def _add(
    writer: _Writer,
    groups: Sequence[Replacement],
    tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]],
    snapshot_id: int,
    version: int,
) -> list[dict[str, Any]]:
    """Writes the outputs as ADDED entries; returns their records."""
    by_type: dict[tuple[int, str], tuple[AvroType, list[dict[str, Any]]]] = {}
    added: list[dict[str, Any]] = []
    for group in groups:
        values, partition = tuples[group.partition_id]
        spec_id = group.partition_id[0]
        entries = by_type.setdefault((spec_id, json.dumps(partition)), (partition, []))[1]
        for output in group.outputs:
            record = {**output, "partition": values}
            added.append(record)
            entries.append(
                {
                    "status": ADDED,
                    "snapshot_id": snapshot_id,
                    "sequence_number": group.sequence_number if version > 1 else None,
                    "file_sequence_number": None,
                    "data_file": record,
                }
            )
    for (spec_id, _), (partition, entries) in by_type.items():
        if entries:
            writer.manifest(spec_id, 0, partition, entries)
    return added


def _new_snapshot_id(metadata: Metadata) -> int:
    while True:
        candidate = secrets.randbits(63)
        if candidate and candidate not in metadata.snapshots:
            return candidate
