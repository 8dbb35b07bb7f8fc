"""Rewriting manifests: the live entries of some, sorted by partition, in as few manifests as the target size asks for.

No entry changes but in its status, which becomes EXISTING: snapshot id, sequence numbers, row ids and statistics stay,
so no reader sees another table. Entries are copied as they are encoded (splicing); they wait in a file where they do
not fit into memory, which holds about fifty bytes for each.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse_maintenance.iceberg.avro import ContainerWriter, encoded
from lakehouse_maintenance.iceberg.fields import AvroType, entry_schema
from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.partition_order import fitted, tuple_key, widest
from lakehouse_maintenance.iceberg.splicing import Layout, Numbers, Spliced, layout, same_encoding
from lakehouse_maintenance.iceberg.staging import Attempt, Staged, StagedWriter
from lakehouse_maintenance.iceberg.summary import replace_summary
from lakehouse_maintenance.iceberg.writing import manifest_header, partition_summaries

_IN_MEMORY = 64 << 20

Choose = Callable[[Metadata, Sequence[ManifestFile]], Collection[str]]
"""From a table and its head's manifests: paths of those to rewrite."""


@dataclass
class RewriteManifests:
    """One rewrite as a change (commit.Change). `choose`: asked at each attempt's head; nothing: nothing is left to do.

    `rewritten`, `written`, `numbers`: of the latest attempt, the manifests read, rows of those written, and the entries
    by snapshot id, data and file sequence number.

    What an attempt wrote is used again by the next one where the manifests it stands for are all still there: it holds
    nothing of the head but them. Java's RewriteManifests does the same.
    """

    choose: Choose
    rewritten: tuple[ManifestFile, ...] = ()
    written: tuple[dict[str, Any], ...] = ()
    numbers: Counter[Numbers] = field(default_factory=Counter)
    _files: tuple[str, ...] = field(default=(), repr=False)
    _version: int = field(default=0, repr=False)

    def misfits(self, metadata: Metadata, head: Snapshot, reader: ManifestReader) -> Mapping[int, str]:
        """None ever: manifests are chosen anew at each head."""
        return {}

    def stage(self, at: Attempt) -> Staged | None:
        """Raises TableUnreadableError for a manifest that cannot be copied."""
        manifests = at.reader.manifests(at.head)
        writer = StagedWriter(at)
        there = {_inherited(manifest) for manifest in manifests}
        # A manifest of version 1 has no sequence numbers: in an upgraded table its entries could not be read.
        is_reusable = (
            bool(self.rewritten)
            and self._version == at.metadata.format_version
            and all(_inherited(manifest) in there for manifest in self.rewritten)
        )
        if not is_reusable:
            chosen = self.choose(at.metadata, manifests)
            self.rewritten = tuple(m for m in manifests if m.path in chosen and m.live_files != 0)
            if not self.rewritten:
                return None
            target = at.manifest_target
            writer.expect(sum(-(-sum(m.length for m in bucket) // target) for bucket in _buckets(self.rewritten)))
            self.numbers.clear()
            for bucket in _buckets(self.rewritten):
                _rewrite(writer, bucket, self.numbers)
            self.written, self._files = tuple(writer.rows), tuple(writer.files)
            self._version = at.metadata.format_version
        else:
            writer.expect(0)
        gone = {manifest.path for manifest in self.rewritten}
        kept = [manifest for manifest in manifests if manifest.path not in gone and manifest.live_files != 0]
        created = [{**row, "added_snapshot_id": writer.snapshot_id} for row in self.written]
        path = writer.manifest_list([*created, *(manifest.raw for manifest in kept)])
        entries = sum(row["existing_files_count"] for row in self.written)
        return Staged(
            snapshot_id=writer.snapshot_id,
            sequence_number=writer.sequence_number,
            manifest_list=path,
            files=tuple(dict.fromkeys((*self._files, *writer.files))),
            summary={
                **replace_summary(at.head.summary, (), ()),
                "manifests-created": str(len(created)),
                "manifests-kept": str(len(kept)),
                "manifests-replaced": str(len(manifests) - len(kept)),
                "entries-processed": str(entries),
                "changed-partition-count": "0",
            },
            added_files=(),
            removed_delete_files=0,
            first_row_id=writer.first_row_id,
            added_rows=writer.added_rows,
        )


def _inherited(manifest: ManifestFile) -> tuple[Any, ...]:
    """A manifest, and what its entries inherit from the list: another list may tell it otherwise."""
    return manifest.path, manifest.added_snapshot_id, manifest.sequence_number, manifest.first_row_id


def _buckets(manifests: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
    """Of one spec and content each: a manifest holds no others."""
    found: dict[tuple[int, bool], list[ManifestFile]] = {}
    for manifest in manifests:
        found.setdefault((manifest.spec_id, manifest.deletes), []).append(manifest)
    return [found[key] for key in sorted(found)]


def _rewrite(writer: StagedWriter, bucket: Sequence[ManifestFile], counts: Counter[Numbers]) -> None:
    spec_id, content = bucket[0].spec_id, 1 if bucket[0].deletes else 0
    metadata = writer.at.metadata
    with _Sorted(metadata.format_version) as entries:
        for manifest, body in writer.at.reader.bodies(bucket):
            with writer.at.reader.damage(manifest):
                made = layout(body.schema, metadata.format_version)
                entries.take(made, made.live(manifest, body))
        declared = entry_schema(metadata.format_version, entries.partition)
        header = manifest_header(metadata, spec_id, content)
        open_manifest = _Manifest(ContainerWriter(declared, header))
        for entry in entries.in_order():
            open_manifest.add(entry)
            if open_manifest.container.size >= writer.at.manifest_target:
                _finish(writer, open_manifest, entries, spec_id, content)
                open_manifest = _Manifest(ContainerWriter(declared, header))
        if open_manifest.records:
            _finish(writer, open_manifest, entries, spec_id, content)
        counts.update(entries.numbers())


@dataclass
class _Manifest:
    """One being written. `tuples`: numbers of the partition tuples in it."""

    container: ContainerWriter
    tuples: dict[int, None] = field(default_factory=dict)
    records: list[int] = field(default_factory=list)
    lowest: int | None = None

    def add(self, entry: _Entry) -> None:
        self.container.add(*entry.parts)
        self.tuples[entry.tuple_number] = None
        self.records.append(entry.records)
        self.lowest = entry.sequence_number if self.lowest is None else min(self.lowest, entry.sequence_number)


def _finish(writer: StagedWriter, manifest: _Manifest, entries: _Sorted, spec_id: int, content: int) -> None:
    data = manifest.container.finish()
    path = writer.manifest_path()
    writer.put(path, data)
    writer.rows.append(
        {
            "manifest_path": path,
            "manifest_length": len(data),
            "partition_spec_id": spec_id,
            "content": content,
            "sequence_number": None,
            "min_sequence_number": manifest.lowest,
            "added_snapshot_id": writer.snapshot_id,
            "added_files_count": 0,
            "existing_files_count": len(manifest.records),
            "deleted_files_count": 0,
            "added_rows_count": 0,
            "existing_rows_count": sum(manifest.records),
            "deleted_rows_count": 0,
            "partitions": partition_summaries(entries.partition, [entries.tuples[n] for n in manifest.tuples]),
            "key_metadata": None,
            "first_row_id": None,
        }
    )


@dataclass(slots=True)
class _Entry:
    parts: tuple[bytes, bytes, bytes]
    tuple_number: int
    records: int
    sequence_number: int


class _Sorted:
    """Entries of one bucket: taken in any order, given in the order of their partition tuples.

    `partition`, `tuples`: one type of tuples, and the tuples by number, once all were taken.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # closed by __exit__
        self._tuple_numbers: dict[tuple[int, bytes], int] = {}
        self._types: list[AvroType] = []
        self._values: list[tuple[Any, ...]] = []
        self._of_numbers: dict[Numbers, int] = {}
        self._columns = {name: array("q") for name in ("start", "cut", "end", "tuple", "records", "numbers")}
        self.partition: AvroType = None
        self.tuples: list[dict[str, Any]] = []

    def __enter__(self) -> _Sorted:
        return self

    def __exit__(self, *details: object) -> None:
        self._spool.close()

    def take(self, made: Layout, entries: Iterable[Spliced]) -> None:
        """Entries of a manifest. Raises what `entries` raises, and ValueError where the tuples are of another kind."""
        self.partition = made.partition if self.partition is None else widest(self.partition, made.partition)
        kind = self._kind(made.partition)
        starts, cuts, ends, tuples, records, numbers = self._columns.values()
        at = ends[-1] if ends else 0
        write, known, known_numbers = self._spool.write, self._tuple_numbers, self._of_numbers
        for entry in entries:
            number = known.get((kind, entry.partition))
            if number is None:
                number = known[kind, entry.partition] = len(self._values)
                self._values.append(tuple(made.read_partition(entry.partition, 0)[0].values()))
            write(entry.before + entry.after)
            starts.append(at)
            cuts.append(at + len(entry.before))
            at += len(entry.before) + len(entry.after)
            ends.append(at)
            tuples.append(number)
            records.append(entry.records)
            numbers.append(known_numbers.setdefault(entry.numbers, len(known_numbers)))

    def numbers(self) -> Counter[Numbers]:
        """How many entries have these."""
        names = list(self._of_numbers)
        return Counter({names[number]: count for number, count in Counter(self._columns["numbers"]).items()})

    def _kind(self, partition: AvroType) -> int:
        for number, known in enumerate(self._types):
            if same_encoding(known, partition):
                return number
        self._types.append(partition)
        return len(self._types) - 1

    def in_order(self) -> Iterator[_Entry]:
        """All of them; entries of one partition in the order they were taken in."""
        import numpy as np

        self.tuples = [fitted(values, self.partition) for values in self._values]
        encodings = [encoded(values, self.partition) for values in self.tuples]
        keys = [tuple_key(tuple(values.values()), self.partition) for values in self.tuples]
        ranks = np.empty(len(keys), dtype=np.int64)
        ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        starts, cuts, ends, tuples, records, numbers = self._columns.values()
        if not tuples:
            return
        names = list(self._of_numbers)
        seek, read = self._spool.seek, self._spool.read
        for index in np.argsort(ranks[np.frombuffer(tuples, dtype=np.int64)], kind="stable").tolist():
            seek(starts[index])
            before = read(cuts[index] - starts[index])
            after = read(ends[index] - cuts[index])
            number = tuples[index]
            yield _Entry((before, encodings[number], after), number, records[index], names[numbers[index]][1])
