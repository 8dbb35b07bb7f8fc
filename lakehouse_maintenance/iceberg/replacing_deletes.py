"""Staging a REPLACE of position delete files by others that delete the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.iceberg.fields import ADDED, AvroType
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.replacing import batches_of, take_out
from lakehouse_maintenance.iceberg.staging import Attempt, Staged, StagedWriter
from lakehouse_maintenance.iceberg.summary import replace_summary
from lakehouse_maintenance.model.files import LiveFile


@dataclass(frozen=True, slots=True)
class DeleteReplacement:
    """One rewritten group of a partition's position delete files.

    `inputs`: as they were read. `outputs`: files written, as records of a manifest entry. `named`: each data file that
    an input names → its data sequence number, or None where it was not live, or no input reached it.
    """

    inputs: tuple[LiveFile, ...]
    outputs: tuple[dict[str, Any], ...]
    named: dict[str, int | None]

    @property
    def partition_id(self) -> tuple[int, str]:
        """Spec and partition tuple of inputs and outputs."""
        return self.inputs[0].partition_id

    @property
    def sequence_number(self) -> int:
        """Of the outputs: the highest of the inputs, as in Iceberg. A position that reached its data file still does;
        those that did not are not in the outputs."""
        return max(delete.sequence_number for delete in self.inputs)


def reaches(delete: LiveFile, data: LiveFile) -> bool:
    """Whether positions for the path of `data` in a position delete file apply to it (spec: Scan Planning)."""
    if delete.sequence_number < data.sequence_number:
        return False
    if delete.referenced_data_file is not None:
        return delete.referenced_data_file == data.path
    return delete.partition_id == data.partition_id


LAST_VERSION = 2
"""Of the format, that takes new position delete files."""


@dataclass(frozen=True, slots=True)
class ReplaceDeletes:
    """Rewritten groups as one change (commit.Change)."""

    groups: Sequence[DeleteReplacement]

    def misfits(self, metadata: Metadata, head: Snapshot, reader: ManifestReader) -> dict[int, str]:
        """A group fits if its inputs are live, and each data file that they name is as it was when they were read, or
        gone by now: then the positions for it dangle, in the outputs as in the inputs. None fits version 3, which
        forbids new position delete files (spec: Position Delete Files)."""
        if metadata.format_version > LAST_VERSION:
            return dict.fromkeys(range(len(self.groups)), "the table was upgraded, and takes no position delete files")
        manifests = [manifest for manifest in reader.manifests(head) if manifest.live_files != 0]
        inputs = {delete.path for group in self.groups for delete in group.inputs}
        live = [f for f in reader.live_files(m for m in manifests if m.deletes) if f.path in inputs]
        there = Counter(file.identity for file in live)
        current = {file.identity: file for file in live}
        found: dict[int, str] = {}
        for index, group in enumerate(self.groups):
            for delete in group.inputs:
                if there[delete.identity] != 1 or current[delete.identity] != delete:
                    found[index] = f"{delete.path} is not in the table as it was read"
        watched: dict[str, list[int]] = {}
        for index, group in enumerate(self.groups):
            for path in group.named:
                watched.setdefault(path, []).append(index)
        seen: set[str] = set()
        for file in reader.live_files(m for m in manifests if not m.deletes):
            for index in watched.get(file.path, ()):
                if file.path in seen or not _as_read(self.groups[index], file):
                    found.setdefault(index, f"{file.path} is not in the table as it was when its deletes were read")
            if file.path in watched:
                seen.add(file.path)
        return found

    def stage(self, at: Attempt) -> Staged:
        """See commit.Change; the groups must fit the head."""
        manifests = [manifest for manifest in at.reader.manifests(at.head) if manifest.live_files != 0]
        gone = frozenset(delete.identity for group in self.groups for delete in group.inputs)
        holders = at.reader.live_files_by_manifest(m for m in manifests if m.deletes)
        touched = [manifest for manifest, files in holders if any(file.identity in gone for file in files)]
        writer = StagedWriter(at)
        batches = list(batches_of(touched, at.manifest_target))
        writer.expect(len(batches) + len({group.partition_id[0] for group in self.groups}))
        removed: list[dict[str, Any]] = []
        tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]] = {}
        for batch in batches:
            removed += take_out(at.reader, writer, batch, gone, writer.snapshot_id, tuples)
        rewritten = len(writer.rows)
        added = self._add(writer, tuples)
        new_rows = writer.rows[rewritten:] + writer.rows[:rewritten]
        replaced = {manifest.path for manifest in touched}
        kept = [manifest.raw for manifest in manifests if manifest.path not in replaced]
        path = writer.manifest_list([*new_rows, *kept])
        return Staged(
            snapshot_id=writer.snapshot_id,
            sequence_number=writer.sequence_number,
            manifest_list=path,
            files=tuple(writer.files),
            summary={
                **replace_summary(at.head.summary, added, removed),
                "manifests-created": str(len(new_rows)),
                "manifests-kept": str(len(kept)),
                "manifests-replaced": str(len(touched)),
                "changed-partition-count": str(len({group.partition_id for group in self.groups})),
            },
            added_files=tuple(record["file_path"] for record in added),
            removed_delete_files=len(removed),
            first_row_id=writer.first_row_id,
            added_rows=writer.added_rows,
        )

    def _add(
        self, writer: StagedWriter, tuples: dict[tuple[int, str], tuple[dict[str, Any], AvroType]]
    ) -> list[dict[str, Any]]:
        by_spec: dict[tuple[int, str], tuple[AvroType, list[dict[str, Any]]]] = {}
        for group in self.groups:
            values, partition = tuples[group.partition_id]
            entries = by_spec.setdefault((group.partition_id[0], str(partition)), (partition, []))[1]
            entries += [
                {
                    "status": ADDED,
                    "snapshot_id": writer.snapshot_id,
                    "sequence_number": group.sequence_number,
                    "file_sequence_number": None,
                    "data_file": {**output, "partition": values},
                }
                for output in group.outputs
            ]
        for (spec_id, _), (partition, entries) in by_spec.items():
            if entries:
                writer.manifest(spec_id, 1, partition, entries)
        return [entry["data_file"] for _, entries in by_spec.values() for entry in entries]


def _as_read(group: DeleteReplacement, data: LiveFile) -> bool:
    sequence = group.named[data.path]
    if sequence is not None:
        return data.sequence_number == sequence
    return not any(reaches(delete, data) for delete in group.inputs)
