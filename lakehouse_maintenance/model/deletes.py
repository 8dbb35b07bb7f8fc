"""Which delete files reach which data files (Iceberg spec: Scan Planning, delete file applicability). Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from lakehouse_maintenance.model.files import Content, LiveFile


class DeleteIndex:
    """Delete files of one snapshot, looked up by the data file they could apply to.

    `unpartitioned_specs`: ids of specs without fields, or with void ones alone; equality deletes written with one
    apply to every partition of every spec.
    """

    def __init__(self, deletes: Iterable[LiveFile], unpartitioned_specs: frozenset[int]) -> None:
        self._by_path: dict[str, list[LiveFile]] = defaultdict(list)
        self._vectors: dict[str, list[LiveFile]] = defaultdict(list)
        self._by_partition: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
        self._equality: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
        self._global: list[LiveFile] = []
        for delete in deletes:
            if delete.content is Content.EQUALITY_DELETES:
                if delete.spec_id in unpartitioned_specs:
                    self._global.append(delete)
                else:
                    self._equality[delete.partition_id].append(delete)
            elif delete.referenced_data_file is None:
                self._by_partition[delete.partition_id].append(delete)
            elif delete.file_format == "PUFFIN":
                self._vectors[delete.referenced_data_file].append(delete)
            else:
                self._by_path[delete.referenced_data_file].append(delete)
        # Newest first: those that are newer than a data file are a run at the start.
        for found in (self._global, *self._equality.values()):
            found.sort(key=lambda one: -one.sequence_number)

    def position_deletes_for(self, data: LiveFile) -> list[LiveFile]:
        """Deletion vector or position deletes that may hold positions of this data file.

        A vector silences position delete files; those apply from their own sequence number on, inclusive. More than
        one vector is against the spec: whoever reads them has to refuse.
        """
        vectors = self._vectors.get(data.path)
        if vectors is not None:
            return list(vectors)
        found = [d for d in self._by_path.get(data.path, ()) if d.sequence_number >= data.sequence_number]
        found += [d for d in self._by_partition.get(data.partition_id, ()) if d.sequence_number >= data.sequence_number]
        return found

    def equality_deletes_for(self, data: LiveFile) -> list[LiveFile]:
        """Equality deletes that apply: strictly newer than the data, global or of the same partition."""
        return _newer(self._global, data) + _newer(self._equality.get(data.partition_id, []), data)


def _newer(newest_first: list[LiveFile], data: LiveFile) -> list[LiveFile]:
    return newest_first[: bisect_left(newest_first, -data.sequence_number, key=lambda one: -one.sequence_number)]


class DanglingDeletes:
    """Finds delete files that reach no data file, from one pass over the data files.

    Feed every live data file that stays to `saw`, then ask `dangling`. Memory grows with partitions and with the
    number of data files that some delete file names, not with the number of files.
    """

    def __init__(self, deletes: Iterable[LiveFile], unpartitioned_specs: frozenset[int]) -> None:
        self._deletes = list(deletes)
        self._unpartitioned = unpartitioned_specs
        self._named = {d.referenced_data_file for d in self._deletes if d.referenced_data_file is not None}
        self._named_sequence: dict[str, int] = {}
        self._oldest: dict[tuple[int, str], int] = {}
        self._oldest_of_all: int | None = None

    def saw(self, data: LiveFile) -> None:
        """A data file that stays live."""
        sequence = data.sequence_number
        if data.path in self._named:
            # A table may list a file more than once: the oldest entry decides what is still needed.
            self._named_sequence[data.path] = min(sequence, self._named_sequence.get(data.path, sequence))
        oldest = self._oldest.get(data.partition_id)
        if oldest is None or sequence < oldest:
            self._oldest[data.partition_id] = sequence
        if self._oldest_of_all is None or sequence < self._oldest_of_all:
            self._oldest_of_all = sequence

    def dangling(self) -> list[LiveFile]:
        """Delete files that no data file seen needs.

        One that is listed more than once is taken out with all of its entries: it stays while one of them is needed.
        """
        needed = {delete.identity for delete in self._deletes if self._needed(delete)}
        return [delete for delete in self._deletes if delete.identity not in needed]

    def _needed(self, delete: LiveFile) -> bool:
        if delete.content is Content.EQUALITY_DELETES:
            oldest = (
                self._oldest_of_all if delete.spec_id in self._unpartitioned else self._oldest.get(delete.partition_id)
            )
            return oldest is not None and oldest < delete.sequence_number
        if delete.referenced_data_file is not None:
            sequence = self._named_sequence.get(delete.referenced_data_file)
            if sequence is None:
                return False
            return delete.file_format == "PUFFIN" or sequence <= delete.sequence_number
        oldest = self._oldest.get(delete.partition_id)
        return oldest is not None and oldest <= delete.sequence_number
