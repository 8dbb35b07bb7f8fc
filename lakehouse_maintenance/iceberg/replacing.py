"""Staging a REPLACE of rewritten groups of data files.

Manifests that hold nothing to remove are listed again as they are. The others are written anew, several small ones
into one up to the table's target size; live entries keep snapshot id and sequence numbers, removed ones become DELETED
under the new snapshot. Delete files that reach no data file any more go in the same snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.iceberg.fields import ADDED, DELETED, EXISTING, AvroType
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader, partition_spelling
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.moved import output_partition, output_specs, partitions_of, place_of
from lakehouse_maintenance.iceberg.replace import Identity, Replacement, misfit, named
from lakehouse_maintenance.iceberg.staging import Attempt, Staged, StagedWriter
from lakehouse_maintenance.iceberg.summary import replace_summary
from lakehouse_maintenance.model.deletes import DanglingDeletes, DeleteIndex
from lakehouse_maintenance.model.files import Content, LiveFile

Targets = Callable[[LiveFile], frozenset[str] | None]


@dataclass(frozen=True, slots=True)
class ReplaceGroups:
    """Rewritten groups as one change (commit.Change). `targets`, `keep_dangling`: see stage_replacement."""

    groups: Sequence[Replacement]
    targets: Targets = lambda delete: None
    keep_dangling: bool = False

    def misfits(self, metadata: Metadata, head: Snapshot, reader: ManifestReader) -> dict[int, str]:
        """Groups that no longer fit: index → why."""
        manifests = reader.manifests(head)
        paths = named(self.groups)
        live: dict[str, LiveFile] = {}
        twice: set[str] = set()
        for file in reader.live_files(m for m in manifests if not m.deletes and m.live_files != 0):
            if file.path in paths:
                if file.path in live:
                    twice.add(file.path)
                live[file.path] = file
        deletes = DeleteIndex(
            reader.live_files(m for m in manifests if m.deletes and m.live_files != 0), metadata.unpartitioned_specs
        )
        found = {index: why for index, one in enumerate(self.groups) if (why := misfit(one, live, deletes, twice))}
        for index, one in enumerate(self.groups):
            if not output_specs([one]) <= metadata.specs.keys():
                found.setdefault(index, "the partition spec that it was written under is no longer in the table")
        return found

    def stage(self, at: Attempt) -> Staged:
        """See commit.Change."""
        return stage_replacement(at, self.groups, self.targets, keep_dangling=self.keep_dangling)


def stage_replacement(
    at: Attempt, groups: Sequence[Replacement], targets: Targets, *, keep_dangling: bool = False
) -> Staged:
    """Writes manifests and list for a snapshot on the head; the groups must fit that head (replace.misfit).

    `targets`: the data files that a position delete file names, or None where that is not known. `keep_dangling`
    (`remove-dangling-deletes=false`): delete files that reach nothing any more stay, but for deletion vectors of the
    rewritten files: format version 3 has none without its data file.
    """
    metadata, head, reader = at.metadata, at.head, at.reader
    manifests = [manifest for manifest in reader.manifests(head) if manifest.live_files != 0]
    writer = StagedWriter(at)
    removal = _find(at, manifests, groups, writer.sequence_number, targets, keep_dangling)
    snapshot_id = writer.snapshot_id
    removed: list[dict[str, Any]] = []
    tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]] = {}
    batches = list(batches_of(removal.touched, at.manifest_target))
    writer.expect(len(batches) + len(output_specs(groups)))
    for batch in batches:
        removed += take_out(reader, writer, batch, removal.identities, snapshot_id, tuples)
    rewritten = len(writer.rows)
    added = _add(writer, groups, tuples, snapshot_id, metadata.format_version)
    new_rows = writer.rows[rewritten:] + writer.rows[:rewritten]
    kept = [manifest for manifest in manifests if manifest.path not in removal.touched_paths]
    path = writer.manifest_list([*new_rows, *(m.raw for m in kept)])
    summary = replace_summary(head.summary, added, removed)
    summary |= {
        "manifests-created": str(len(new_rows)),
        "manifests-kept": str(len(kept)),
        "manifests-replaced": str(len(removal.touched)),
        "changed-partition-count": str(len(partitions_of(groups))),
    }
    return Staged(
        snapshot_id=snapshot_id,
        sequence_number=writer.sequence_number,
        manifest_list=path,
        files=tuple(writer.files),
        summary=summary,
        added_files=tuple(record["file_path"] for record in added),
        removed_delete_files=sum(1 for record in removed if record["content"] != 0),
        first_row_id=writer.first_row_id,
        added_rows=writer.added_rows,
    )


@dataclass(frozen=True, slots=True)
class _Removal:
    identities: frozenset[Identity]
    touched: list[ManifestFile]
    touched_paths: frozenset[str]


def _find(
    at: Attempt,
    manifests: Sequence[ManifestFile],
    groups: Sequence[Replacement],
    own_number: int,
    targets: Targets,
    keep_dangling: bool,
) -> _Removal:
    """What goes, and which manifests hold it: inputs, and delete files that nothing left needs."""
    inputs, reader = named(groups), at.reader
    staying: dict[tuple[int, str], set[str]] = {partition: set() for partition in partitions_of(groups)}
    touched: list[ManifestFile] = []
    holders = list(reader.live_files_by_manifest(m for m in manifests if m.deletes))
    dangling = DanglingDeletes((file for _, files in holders for file in files), at.metadata.unpartitioned_specs)
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
            dangling.saw(_as_live(output, group, own_number))
    gone = {
        delete.identity
        for delete in dangling.dangling()
        if not keep_dangling or (delete.file_format == "PUFFIN" and delete.referenced_data_file in inputs)
    }
    if not keep_dangling:
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


def _as_live(output: dict[str, Any], group: Replacement, own_number: int) -> LiveFile:
    spec_id, partition = output_partition(group, output)
    return LiveFile(
        path=output["file_path"],
        content=Content.DATA,
        file_format=output["file_format"],
        spec_id=spec_id,
        partition=partition,
        records=output["record_count"],
        size=output["file_size_in_bytes"],
        sequence_number=own_number if group.sequence_number is None else group.sequence_number,
        snapshot_id=0,
    )


def batches_of(manifests: Iterable[ManifestFile], target: int) -> Iterable[list[ManifestFile]]:
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


def take_out(
    reader: ManifestReader,
    writer: StagedWriter,
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
    writer: StagedWriter,
    groups: Sequence[Replacement],
    tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]],
    snapshot_id: int,
    version: int,
) -> list[dict[str, Any]]:
    """Writes the outputs as ADDED entries; returns their records."""
    by_type: dict[tuple[int, str], tuple[AvroType, list[dict[str, Any]]]] = {}
    added: list[dict[str, Any]] = []
    for group in groups:
        for output in group.outputs:
            spec_id, values, partition = place_of(group, output, tuples)
            entries = by_type.setdefault((spec_id, json.dumps(partition)), (partition, []))[1]
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
