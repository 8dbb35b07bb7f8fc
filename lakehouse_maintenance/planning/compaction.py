"""Which data files are rewritten together (IM-01, IM-25, IM-26). Pure.

Files are chosen and grouped by the rules of Iceberg's bin-pack planner (`rewrite_data_files` in its Spark procedures),
with these differences, each of which only ever rewrites less; the last one orders alone:

- A group has to leave fewer files, or fewer deletes to apply. Fewer files means: also if the written files come out
  `MARGIN` larger than estimated, so that what one rewrite leaves is never rewritten again for an estimate's error.
- Files of an older partition spec are rewritten under their own spec: under the table's current one they would
  scatter over its partitions, and an evolved table could end with more files than before. With `output-spec-id` they
  come under that one, all of them grouped together as if they had no partition (Iceberg does so); how many files that
  gives is only known when it is done, so a gain is not asked for.
- A file above the maximum size is split only within a group that leaves fewer files all the same; splitting alone
  never does. Where it would spoil its group's gain, the group goes without it. With `split_oversized` (a person asked
  for the rewrite) it is a group of its own then, if parts of it fit between minimum and maximum size.
- Groups are packed from files in the order of sequence number and path, files above the maximum last: the same files
  give the same groups, whatever order manifests list them in.
- Groups come in the order of `rewrite-job-order`; where that is none, those with the newest files first (IM-25).

With strategies `sort` and `zorder` the same rules choose the files, and order is a gain of its own, in three cases:

- The order is one of the table's own. A file that does not carry its id (`sort_order_id`) is a candidate, and one of
  full size is worth a rewrite alone. What a rewrite leaves carries the id, so each file is rewritten for it once.
- `rewrite-all`: somebody asked for it. Nothing in a file tells whether it has an order that is not the table's, so
  without `rewrite-all` such an order is given to files that are rewritten anyway, and is no reason by itself.
- `reorder`: the policy's trigger found that files overlap too much. Candidates are then files above the sequence
  number that was the head's when this was last done, whatever they carry: each file is rewritten for it once, whether
  or not its rows could be told apart by then.

Such a group may leave as many files as it had, and never more (but for oversized ones that are to be split).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.files import LiveFile, TableState
from lakehouse_maintenance.model.plans import MOVED, FileGroup, PlannedFile
from lakehouse_maintenance.model.support import FOREIGN_DELETES, NOT_PARQUET
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.sizing import MARGIN, expected_bytes, in_order, output_files, parts

__all__ = [
    "FOREIGN_DELETES",
    "NOT_PARQUET",
    "GroupPlan",
    "LeftAlone",
    "RewriteOptions",
    "expected_bytes",
    "gains_order",
    "is_unordered",
    "output_files",
    "plan_groups",
    "recheck",
]

UNSETTLED = "in partitions written to within the settle time"
FEW_DELETES = "have deletes, below delete-file-threshold and delete-ratio-threshold"
TOO_FEW = "too few and too small together: fewer than min-input-files, and not more than one file of the target size"
NO_GAIN = "rewriting would leave neither fewer files nor fewer deletes to apply"
LISTED_TWICE = "listed more than once in the table: one entry cannot be replaced without the others"
OVERSIZED = "larger than max-file-size-bytes: splitting would leave more files"
UNSPLITTABLE = "larger than max-file-size-bytes: no number of parts is between the minimum and the maximum size each"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Files that are not as they should be, or that deletes apply to, and are not rewritten. `bytes`: their size."""

    reason: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What one look at a table's files gives. `fewer_deletes`: delete files that reach rewritten files alone.

    `outside`: data files that no row of what was asked for can be in.
    """

    groups: tuple[FileGroup, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    fewer_deletes: int = 0
    outside: int = 0

    @property
    def input_files(self) -> int:
        """Data files to rewrite."""
        return sum(len(group.files) for group in self.groups)

    @property
    def input_bytes(self) -> int:
        """Their bytes."""
        return sum(group.bytes for group in self.groups)

    @property
    def expected_files(self) -> int:
        """Data files that should stand in their place."""
        return sum(group.expected_files for group in self.groups)

    @property
    def expected_bytes(self) -> int:
        """Bytes of those: the input's less the share of its rows that is known to be deleted."""
        return sum(expected_bytes(group.files) for group in self.groups)

    @property
    def ordered_files(self) -> int:
        """Data files whose rows come into the order that is asked for."""
        return sum(file.unordered for group in self.groups for file in group.files)

    @property
    def fewer_files(self) -> int:
        """Data files a reader no longer opens."""
        return self.input_files - self.expected_files


@dataclass(slots=True)
class _Tally:
    left: dict[str, list[int]] = field(default_factory=dict)

    def add(self, reason: str, files: Iterable[PlannedFile]) -> None:
        count = self.left.setdefault(reason, [0, 0])
        for file in files:
            count[0] += 1
            count[1] += file.size

    def result(self) -> tuple[LeftAlone, ...]:
        return tuple(LeftAlone(reason, files, size) for reason, (files, size) in sorted(self.left.items()) if files)


@dataclass(frozen=True, slots=True)
class _Candidate:
    live: LiveFile
    planned: PlannedFile


def plan_groups(
    state: TableState,
    data: Iterable[LiveFile],
    deletes: DeleteIndex,
    options: RewriteOptions,
    *,
    now_ms: int,
    chosen: Callable[[LiveFile], bool] = lambda live: True,
) -> GroupPlan:
    """Groups of one table's data files, from one pass over `data`; memory grows with candidates, not with files.

    `data`: the live data files of the state's snapshot, `deletes` the delete files of the same. `now_ms`:
    milliseconds since 1970, for `settle_ms` alone. `chosen`: asked of each file once, when it is read; the others keep
    their deletes needed, and are neither rewritten nor left alone.
    """
    tally = _Tally()
    outside = 0
    reached: Counter[tuple[str, int | None]] = Counter()
    partitions: dict[tuple[int, str], list[_Candidate]] = {}
    hot: set[tuple[int, str]] = set()
    settled_before = now_ms - options.settle_ms if options.settle_ms else None
    for live in data:
        applying = _applying(live, deletes, state)
        if applying:
            reached.update(delete.identity for delete in applying)
        planned = _planned(live, applying, options)
        if settled_before is not None and _written_after(settled_before, (live, *applying), state):
            hot.add(live.partition_id)
        if not chosen(live):
            outside += 1
            continue
        if not _is_candidate(planned, options):
            if planned.deletes:
                tally.add(FEW_DELETES, (planned,))
            continue
        obstacle = _obstacle(live, applying)
        if obstacle is not None:
            tally.add(obstacle, (planned,))
            continue
        partitions.setdefault(_grouped_by(live, options), []).append(_Candidate(live, planned))

    groups: list[FileGroup] = []
    newest: list[int] = []
    for partition_id in sorted(partitions):
        candidates = partitions[partition_id]
        unsettled = [candidate for candidate in candidates if candidate.live.partition_id in hot]
        if unsettled:
            tally.add(UNSETTLED, (candidate.planned for candidate in unsettled))
            candidates = [candidate for candidate in candidates if candidate.live.partition_id not in hot]
        times = Counter(candidate.live.path for candidate in candidates)
        if len(times) < len(candidates):
            tally.add(LISTED_TWICE, (c.planned for c in candidates if times[c.live.path] > 1))
            candidates = [candidate for candidate in candidates if times[candidate.live.path] == 1]
        for packed in _pack(candidates, options):
            for group in _choose(partition_id, [candidate.planned for candidate in packed], options, tally):
                groups.append(group)
                grouped = {file.path for file in group.files}
                members = [candidate.live for candidate in packed if candidate.live.path in grouped]
                newest.append(max(state.snapshot_times.get(live.snapshot_id, 0) for live in members))
                for live in members:
                    reached.subtract(d.identity for d in _applying(live, deletes, state))
    unneeded = sum(1 for left in reached.values() if left == 0)
    return GroupPlan(in_order(groups, newest, options), tally.result(), unneeded, outside)


def recheck(
    group: FileGroup,
    current: Mapping[str, LiveFile],
    deletes: DeleteIndex,
    state: TableState,
    options: RewriteOptions,
) -> FileGroup | None:
    """The group of a reviewed plan with fresh facts, or None where nothing of it is worth rewriting any more.

    `current`: live data files by path, at least those of the group. Files that are gone, changed, or no candidates
    any more are dropped; none is added. What is left has to make the gain that planning asks for. `settle_ms` is not
    asked again: these very files were old enough when they were planned, and an append beside them does not conflict.
    """
    kept = []
    for seen in group.files:
        live = current.get(seen.path)
        if live is None or (live.size, live.records) != (seen.size, seen.records):
            continue
        applying = _applying(live, deletes, state)
        if _grouped_by(live, options) != (group.spec_id, group.partition) or _obstacle(live, applying) is not None:
            continue
        planned = _planned(live, applying, options)
        if _is_candidate(planned, options):
            kept.append(planned)
    found = _choose((group.spec_id, group.partition), kept, options, _Tally())
    return found[0] if found else None


def _applying(data: LiveFile, deletes: DeleteIndex, state: TableState) -> list[LiveFile]:
    """Deletes of every kind that a reader of the file has to look at.

    A rewritten file keeps the sequence number its rewrite started from, and so by numbers alone seems reached by
    position deletes of that very commit, although none of them can know its path. They would be counted as deletes to
    apply after every rewrite. Where both snapshots are known, the file being added later than the delete tells.
    Equality deletes of that commit do not reach it: they apply to strictly older numbers.
    """
    found = deletes.position_deletes_for(data)
    added = state.snapshot_times.get(data.snapshot_id) if found else None
    if added is not None:
        found = [
            delete
            for delete in found
            if delete.referenced_data_file is not None or state.snapshot_times.get(delete.snapshot_id, added) >= added
        ]
    return found + deletes.equality_deletes_for(data)


def _planned(data: LiveFile, applying: list[LiveFile], options: RewriteOptions) -> PlannedFile:
    # A delete file for a whole partition, or of keys, does not tell how many rows of this data file it deletes.
    known = sum(delete.records for delete in applying if delete.referenced_data_file is not None)
    return PlannedFile(
        data.path, data.size, data.records, len(applying), min(known, data.records), is_unordered(data, options)
    )


def is_unordered(data: LiveFile, options: RewriteOptions) -> bool:
    """Whether the file lacks the order that is asked for, as far as the table or our own memory tells."""
    if options.reorder is not None and data.sequence_number > options.reorder[0]:
        return True
    return options.sort_order_id is not None and data.sort_order_id != options.sort_order_id


def gains_order(files: Iterable[LiveFile], options: RewriteOptions) -> bool:
    """Whether writing these files anew gives their rows an order that nobody knows them to have."""
    if options.sort_order is None:
        return False
    return options.rewrite_all or any(is_unordered(file, options) for file in files)


def _written_after(time_ms: int, files: Iterable[LiveFile], state: TableState) -> bool:
    # A snapshot that is not there any more was expired: it is old.
    return any(state.snapshot_times.get(file.snapshot_id, time_ms) > time_ms for file in files)


def _obstacle(data: LiveFile, applying: Iterable[LiveFile]) -> str | None:
    if data.file_format.upper() != "PARQUET":
        return NOT_PARQUET
    if any(delete.file_format not in ("PARQUET", "PUFFIN") for delete in applying):
        return FOREIGN_DELETES
    return None


def _grouped_by(live: LiveFile, options: RewriteOptions) -> tuple[int, str]:
    if options.output_spec_id is None or live.spec_id == options.output_spec_id:
        return live.partition_id
    return options.output_spec_id, MOVED


def _is_small(file: PlannedFile, options: RewriteOptions) -> bool:
    return file.size < options.min_file_size_bytes


def _is_large(file: PlannedFile, options: RewriteOptions) -> bool:
    return file.size > options.max_file_size_bytes


def _has_many_deletes(file: PlannedFile, options: RewriteOptions) -> bool:
    if not file.deletes:
        return False
    if file.deletes >= options.delete_file_threshold:
        return True
    return file.records > 0 and file.deleted_rows / file.records >= options.delete_ratio_threshold


def _is_candidate(file: PlannedFile, options: RewriteOptions) -> bool:
    return (
        options.rewrite_all
        or file.unordered
        or _is_small(file, options)
        or _is_large(file, options)
        or _has_many_deletes(file, options)
    )


def _only_large(file: PlannedFile, options: RewriteOptions) -> bool:
    return _is_large(file, options) and not (_has_many_deletes(file, options) or _wants_order(file, options))


def _wants_order(file: PlannedFile, options: RewriteOptions) -> bool:
    """Whether its order is reason enough to rewrite the file; small ones wait until they are enough together."""
    if options.sort_order is None:
        return False
    return options.rewrite_all or (file.unordered and not _is_small(file, options))


def _pack(candidates: list[_Candidate], options: RewriteOptions) -> Iterator[list[_Candidate]]:
    """Groups of at most `max-file-group-size-bytes`, filled one after the other; a larger file stands alone."""
    in_order = sorted(
        candidates, key=lambda c: (_only_large(c.planned, options), c.live.sequence_number, c.planned.path)
    )
    group: list[_Candidate] = []
    size = 0
    for candidate in in_order:
        if group and size + candidate.planned.size > options.max_file_group_size_bytes:
            yield group
            group, size = [], 0
        group.append(candidate)
        size += candidate.planned.size
    if group:
        yield group


def _choose(
    partition_id: tuple[int, str], files: list[PlannedFile], options: RewriteOptions, tally: _Tally
) -> list[FileGroup]:
    """The files as a group, without those too large where these spoil the gain, and these alone where they are to be
    split; empty where no gain is left."""
    large = [file for file in files if _only_large(file, options)]
    if not large or partition_id[1] == MOVED:
        return _worthwhile(partition_id, files, options, tally)
    if _is_enough(files, options) and _leaves_fewer_files(files, options):
        return [_group(partition_id, files, options)]
    others = _worthwhile(partition_id, [file for file in files if not _only_large(file, options)], options, tally)
    if not options.split_oversized:
        tally.add(OVERSIZED, large)
        return others
    alone = [_part(partition_id, file, options) for file in large]
    tally.add(UNSPLITTABLE, (file for file, group in zip(large, alone, strict=True) if group is None))
    return [*others, *(group for group in alone if group is not None)]


def _part(partition_id: tuple[int, str], file: PlannedFile, options: RewriteOptions) -> FileGroup | None:
    """A file above the maximum as a group of its own; None where its parts would be candidates again."""
    count = parts(expected_bytes([file]), options)
    if count is None:
        return None
    return FileGroup(partition_id[0], partition_id[1], (file,), count, _why([file], options))


def _worthwhile(
    partition_id: tuple[int, str], files: list[PlannedFile], options: RewriteOptions, tally: _Tally
) -> list[FileGroup]:
    if not _is_enough(files, options):
        tally.add(TOO_FEW, files)
        return []
    reasons = (file.deletes or file.unordered or _wants_order(file, options) for file in files)
    gains = partition_id[1] == MOVED or any(reasons)
    if not gains and not _leaves_fewer_files(files, options):
        tally.add(NO_GAIN, files)
        return []
    return [_group(partition_id, files, options)]


def _is_enough(files: list[PlannedFile], options: RewriteOptions) -> bool:
    if not files:
        return False
    if options.rewrite_all:
        return True
    size = sum(file.size for file in files)
    if len(files) > 1 and (len(files) >= options.min_input_files or size > options.target_file_size_bytes):
        return True
    return size > options.max_file_size_bytes or any(
        _has_many_deletes(file, options) or _wants_order(file, options) for file in files
    )


def _leaves_fewer_files(files: list[PlannedFile], options: RewriteOptions) -> bool:
    more, fewer = MARGIN
    return output_files(expected_bytes(files) * more // fewer, options) < len(files)


def _group(partition_id: tuple[int, str], files: list[PlannedFile], options: RewriteOptions) -> FileGroup:
    size = expected_bytes(files)
    if options.split_oversized and any(_is_large(file, options) for file in files):
        expected = parts(size, options) or output_files(size, options)
    else:
        # Where deletes are the gain, a rewrite still never turns files into more files.
        expected = min(output_files(size, options), len(files))
    why = _why(files, options)
    if partition_id[1] == MOVED:
        why += f", to come under partition spec {partition_id[0]}"
    return FileGroup(partition_id[0], partition_id[1], tuple(files), expected, why)


def _why(files: list[PlannedFile], options: RewriteOptions) -> str:
    kinds = (
        ("below min-file-size-bytes", sum(_is_small(file, options) for file in files)),
        ("above max-file-size-bytes", sum(_is_large(file, options) for file in files)),
        ("with many deletes", sum(_has_many_deletes(file, options) for file in files)),
        (f"not in the order {options.sort_order}", sum(file.unordered for file in files)),
    )
    told = [f"{count} {kind}" for kind, count in kinds if count]
    if options.rewrite_all:
        told.append("rewrite-all")
    return f"{len(files)} files: " + ", ".join(told)
