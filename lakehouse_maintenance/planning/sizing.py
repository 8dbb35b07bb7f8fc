"""How many files a group becomes, and which group comes first (Iceberg: SizeBasedFileRewritePlanner). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakehouse_maintenance.model.plans import FileGroup, PlannedFile
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions

MARGIN = (9, 8)
"""Estimated sizes are taken times 9/8 where a gain has to be sure: written files may be a tenth smaller or larger."""


def output_files(size: int, options: RewriteOptions) -> int:
    """How many files `size` bytes should become, by Iceberg's rule: none is left over that is too small.

    A remainder above the minimum size is a file of its own. A smaller one is spread over the others, unless that
    would make them 10 % larger than the target, or more than half-way from the target to the maximum.
    """
    target = options.target_file_size_bytes
    if size < target:
        return 1
    whole, remainder = divmod(size, target)
    if remainder == 0:
        return whole
    if remainder > options.min_file_size_bytes:
        return whole + 1
    half_way = target + (options.max_file_size_bytes - target) // 2
    spread = size // whole
    return whole if spread * 10 < target * 11 and spread < half_way else whole + 1


def expected_bytes(files: Iterable[PlannedFile]) -> int:
    """Bytes the files should take when rewritten: of each its size, less the share of its rows known to be deleted."""
    return sum(file.size * (file.records - file.deleted_rows) // max(file.records, 1) for file in files)


def parts(size: int, options: RewriteOptions) -> int | None:
    """How many files more than one `size` bytes above the maximum become, none of them a candidate again; None where
    no number of parts is between minimum and maximum size each."""
    more, fewer = MARGIN
    count = output_files(size, options)
    while count > 1 and size < count * options.min_file_size_bytes:
        count -= 1
    # A part that comes out larger than estimated must not be above the maximum, where there is room for that.
    if size * more > count * options.max_file_size_bytes * fewer and size >= (count + 1) * options.min_file_size_bytes:
        count += 1
    return count if count > 1 and size <= count * options.max_file_size_bytes else None


def is_split(inputs: int, outputs: int, largest: int, options: RewriteOptions) -> bool:
    """Whether more files than before are what was asked for; `largest`: bytes of the largest input."""
    return options.split_oversized and outputs > inputs and largest > options.max_file_size_bytes


def in_order(groups: Sequence[FileGroup], newest: Sequence[int], options: RewriteOptions) -> tuple[FileGroup, ...]:
    """`newest`: for each group, when its youngest file was added (milliseconds; 0 where that snapshot expired).

    Files that a compaction wrote are as old as that compaction: what was added since comes before them. Ties stay in
    the order of partitions.
    """
    what, _, direction = options.job_order.partition("-")
    if what == "none":
        ranks = [-time for time in newest]
    else:
        sizes = [group.bytes if what == "bytes" else len(group.files) for group in groups]
        ranks = [-size for size in sizes] if direction == "desc" else sizes
    order = sorted(range(len(groups)), key=ranks.__getitem__)
    return tuple(groups[index] for index in order)
