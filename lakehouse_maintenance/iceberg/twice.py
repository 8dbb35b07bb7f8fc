"""Does a snapshot name one file twice? It never does rightly, and a flipped bit can make it so.

Names come in series (`00000-0-….parquet`, `00000-1-….parquet`), so a bit that flips in one may spell the other. Every
named file is there then, the counts are right, and the file that was meant looks like nobody's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata

_AT_ONCE = 1 << 22
"""Entries that are compared at once, in 16 bytes each; a larger table's manifests are gone through more than once."""


def named_twice(metadata: Metadata, reader: ManifestReader) -> str | None:
    """A data or delete file that two live entries of one snapshot name; None where there is none.

    The same file in manifests of different snapshots is what rewriting manifests leaves. Deletion vectors share their
    Puffin files. Raises TableUnreadableError.
    """
    manifests: dict[str, ManifestFile] = {}
    snapshots_of: dict[str, set[int]] = {}
    for number, (_, listed) in enumerate(reader.manifests_of(metadata.snapshots.values())):
        for manifest in listed:
            manifests[manifest.path] = manifest
            snapshots_of.setdefault(manifest.path, set()).add(number)
    ordered = list(manifests.values())
    entries = sum(manifest.live_files or 0 for manifest in ordered)
    passes = entries // _AT_ONCE + 1
    known: dict[tuple[int, ...], bool] = {}
    for number in range(passes):
        for at in _in_several(ordered, reader, number, passes):
            meets = known.get(at)
            if meets is None:
                snapshots = [one for index in at for one in snapshots_of[ordered[index].path]]
                meets = known[at] = len(snapshots) != len(set(snapshots))
            if meets:
                path = _the_path([ordered[index] for index in dict.fromkeys(at)], snapshots_of, reader)
                if path is not None:
                    return path
                known[at] = False  # two paths of one hash
    return None


def _in_several(
    manifests: Sequence[ManifestFile], reader: ManifestReader, number: int, passes: int
) -> Iterator[tuple[int, ...]]:
    """Manifests, by position, that hold entries of one hash: as often as each holds it."""
    import numpy as np

    hashes, at = array("q"), array("q")
    positions = {manifest.path: index for index, manifest in enumerate(manifests)}
    for manifest, files in reader.live_files_by_manifest(manifests):
        index = positions[manifest.path]
        for file in files:
            value = hash(file.path)
            if file.content_offset is None and value % passes == number:
                hashes.append(value)
                at.append(index)
    numbers = np.frombuffer(hashes, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    found = numbers[order]
    same = np.flatnonzero(found[1:] == found[:-1])
    start = 0
    while start < len(same):
        end = start
        while end + 1 < len(same) and same[end + 1] == same[end] + 1:
            end += 1
        yield tuple(at[order[position]] for position in range(same[start], same[end] + 2))
        start = end + 1


def _the_path(
    manifests: Sequence[ManifestFile], snapshots_of: dict[str, set[int]], reader: ManifestReader
) -> str | None:
    seen: dict[str, set[int]] = {}
    for manifest, files in reader.live_files_by_manifest(manifests):
        mine = snapshots_of[manifest.path]
        here: set[str] = set()
        for file in files:
            if file.content_offset is None:
                if file.path in here or not mine.isdisjoint(seen.get(file.path, ())):
                    return file.path
                here.add(file.path)
        for path in here:
            seen.setdefault(path, set()).update(mine)
    return None
