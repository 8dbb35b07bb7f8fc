"""Which position delete files are rewritten together (IM-10). Pure.

By the rules of Iceberg's `rewrite_position_delete_files`: per partition, those outside the size range, where there are
`min-input-files` of them or more bytes than the target. With these differences:

- Delete files that no live data file needs go, however few they are.
- A plan has to leave fewer delete files. So where the table wants one delete file for each data file
  (`write.delete.granularity=file`), only data files with several are worth it.
- Where the table does not say, outputs have the scope of their inputs: files of one data file each stay such, and files
  of a partition stay files of the partition. Both never meet in one group.
- Files of different partition specs never meet: a position delete applies within its own spec and partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from lakehouse_maintenance.config.action_options import check_action_options
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.deletes import DanglingDeletes
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.plans import FileGroup, PlannedFile
from lakehouse_maintenance.model.support import NOT_PARQUET
from lakehouse_maintenance.planning.compaction import output_files
from lakehouse_maintenance.planning.rewrite_options import TARGET, RewriteOptions

TARGET_PROPERTY = "write.delete.target-file-size-bytes"
DEFAULT_TARGET = "67108864"
GRANULARITY_PROPERTY = "write.delete.granularity"
PARTIAL_PROGRESS = "partial-progress.enabled"


def resolve(options: Mapping[str, str], properties: Mapping[str, str]) -> RewriteOptions:
    """Option over the table's `write.delete.target-file-size-bytes` over 64 MB. Raises InputError.

    Options that say how groups run side by side, or in which order, mean nothing here: one commit takes all.
    """
    check_action_options(Action.REWRITE_POSITION_DELETE_FILES, options, field="option")
    return RewriteOptions.resolve({TARGET: properties.get(TARGET_PROPERTY, DEFAULT_TARGET), **options}, {})


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """What one look at a snapshot's delete files gives. `left_alone`: why → how many files."""

    groups: tuple[FileGroup, ...] = ()
    left_alone: Mapping[str, int] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """Delete files to rewrite or drop."""
        return sum(len(group.files) for group in self.groups)

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(group.bytes for group in self.groups)

    @property
    def expected_files(self) -> int:
        """Delete files that should stand in their place."""
        return sum(group.expected_files for group in self.groups)


TOO_FEW = "too few and too small together: fewer than min-input-files, and not more than one file of the target size"
NO_GAIN = "rewriting would leave no fewer delete files"
LISTED_TWICE = "listed more than once in the table"


def by_file(deletes: Sequence[LiveFile], properties: Mapping[str, str]) -> bool:
    """Whether what is written for these, which are all of one scope where the table does not say, is for one data file
    each."""
    granularity = properties.get(GRANULARITY_PROPERTY, "").strip().lower()
    if granularity in ("file", "partition"):
        return granularity == "file"
    return all(delete.referenced_data_file is not None for delete in deletes)


def plan_deletes(
    deletes: Iterable[LiveFile],
    data: Iterable[LiveFile],
    unpartitioned_specs: frozenset[int],
    options: RewriteOptions,
    properties: Mapping[str, str],
) -> DeletePlan:
    """Groups of one snapshot's position delete files. `data`: its live data files, passed over once."""
    known = [d for d in deletes if d.content is Content.POSITION_DELETES and d.file_format != "PUFFIN"]
    left: Counter[str] = Counter()
    times = Counter(delete.path for delete in known)
    dangling = DanglingDeletes(known, unpartitioned_specs)
    reachable: Counter[tuple[int, str]] = Counter()
    for file in data:
        dangling.saw(file)
        reachable[file.partition_id] += 1
    gone = {delete.path for delete in dangling.dangling()}
    buckets: dict[tuple[int, str, bool], list[LiveFile]] = defaultdict(list)
    for delete in known:
        if times[delete.path] > 1:
            left[LISTED_TWICE] += 1
        elif delete.file_format != "PARQUET":
            left[NOT_PARQUET] += 1
        else:
            buckets[(*delete.partition_id, by_file([delete], properties))].append(delete)
    groups: list[FileGroup] = []
    for (spec_id, partition, is_by_file), bucket in sorted(buckets.items()):
        dropped = [delete for delete in bucket if delete.path in gone]
        candidates = [d for d in bucket if d.path not in gone and _is_candidate(d, options)]
        most = reachable[spec_id, partition]
        for chosen, expected in _chosen(candidates, is_by_file, most, options, left):
            groups.append(_group(spec_id, partition, chosen, expected, "merged"))
        if dropped:
            groups.append(_group(spec_id, partition, dropped, 0, "needed by no data file"))
    return DeletePlan(tuple(groups), dict(left))


def _is_candidate(delete: LiveFile, options: RewriteOptions) -> bool:
    return options.rewrite_all or not options.min_file_size_bytes <= delete.size <= options.max_file_size_bytes


def _chosen(
    candidates: Sequence[LiveFile], is_by_file: bool, most: int, options: RewriteOptions, left: Counter[str]
) -> Iterator[tuple[list[LiveFile], int]]:
    """Groups that gain, each with the number of files that should come of it. `most`: data files of the partition."""
    for packed in _pack(_units(candidates, is_by_file), options):
        size = sum(delete.size for delete in packed)
        is_enough = len(packed) >= options.min_input_files or size > options.target_file_size_bytes
        expected = _expected(packed, is_by_file, most, options)
        if expected >= len(packed):
            left[NO_GAIN] += len(packed)
        elif not is_enough and not options.rewrite_all:
            left[TOO_FEW] += len(packed)
        else:
            yield packed, expected


def _units(candidates: Sequence[LiveFile], is_by_file: bool) -> list[list[LiveFile]]:
    """What must stay together: all files of one data file, where each of these gets one; without lone ones, unless
    files of the whole partition are to be split up among them."""
    in_order = sorted(candidates, key=lambda d: (d.referenced_data_file or "", d.sequence_number, d.path))
    if not is_by_file:
        return [[delete] for delete in in_order]
    if any(delete.referenced_data_file is None for delete in in_order):
        return [in_order]
    units = [list(same) for _, same in groupby(in_order, key=lambda d: d.referenced_data_file)]
    return [unit for unit in units if len(unit) > 1]


def _expected(packed: Sequence[LiveFile], is_by_file: bool, most: int, options: RewriteOptions) -> int:
    if not is_by_file:
        return output_files(sum(delete.size for delete in packed), options)
    named = {delete.referenced_data_file for delete in packed}
    if None not in named:
        return len(named)
    return min(most, sum(delete.records for delete in packed))


def _pack(units: Iterable[list[LiveFile]], options: RewriteOptions) -> Iterator[list[LiveFile]]:
    """Units filled up to `max-file-group-size-bytes`, one after the other."""
    group: list[LiveFile] = []
    size = 0
    for unit in units:
        more = sum(delete.size for delete in unit)
        if group and size + more > options.max_file_group_size_bytes:
            yield group
            group, size = [], 0
        group.extend(unit)
        size += more
    if group:
        yield group


def _group(spec_id: int, partition: str, files: Sequence[LiveFile], expected: int, why: str) -> FileGroup:
    planned = tuple(PlannedFile(delete.path, delete.size, delete.records) for delete in files)
    return FileGroup(spec_id, partition, planned, expected, f"{len(planned)} delete files: {why}")
