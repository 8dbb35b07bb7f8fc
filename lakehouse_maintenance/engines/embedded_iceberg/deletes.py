"""Every kind of delete as row positions by data file, so that a rewrite leaves out what a reader does not see (IM-03).

Three readers stand behind: position delete files, deletion vectors, equality deletes. Which of them reach a data file
is the index's word (Iceberg spec: Scan Planning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyroaring import BitMap64

from lakehouse_maintenance.engines.embedded_iceberg.equality import equal_rows
from lakehouse_maintenance.engines.embedded_iceberg.keys import key_columns
from lakehouse_maintenance.engines.embedded_iceberg.opening import Opener
from lakehouse_maintenance.engines.embedded_iceberg.positions import RowPositions, named_paths, read_positions
from lakehouse_maintenance.engines.embedded_iceberg.vectors import is_vector, read_vector
from lakehouse_maintenance.iceberg.replace import Identity
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import TableUnreadableError, UnsupportedError
from lakehouse_maintenance.model.files import Content, LiveFile


@dataclass(frozen=True, slots=True)
class Deletes:
    """`positions`: data file path → sorted distinct row positions that are deleted.

    `applied`: path → identities of all deletes that reach the file, whether they hold a row of it or not.
    """

    positions: RowPositions
    applied: dict[str, frozenset[Identity]]


def load_deletes(
    files: Sequence[LiveFile], index: DeleteIndex, opener: Opener, table: Table, memory_limit: int
) -> Deletes:
    """Reads each delete that reaches one of these data files once, and the key columns that equality deletes compare.

    `memory_limit`: bytes for the keys of equality deletes; what does not fit goes to temporary files on local disk.
    What is deleted is kept as bitmaps. Raises UnsupportedError, before anything is read, for deletes that this engine
    does not apply, and TableUnreadableError for damaged ones.
    """
    by_position = {file.path: index.position_deletes_for(file) for file in files}
    by_equality = {file.path: index.equality_deletes_for(file) for file in files}
    name = ".".join(table.name())
    _refuse(by_position, by_equality, table, name)
    applied = {
        file.path: frozenset(delete.identity for delete in (*by_position[file.path], *by_equality[file.path]))
        for file in files
    }
    found: dict[str, BitMap64] = {}
    _load_positions(by_position, opener, found)
    for rows in _partitions(files):
        reaching = {file.path: by_equality[file.path] for file in rows if by_equality[file.path]}
        if reaching:
            _merge(found, equal_rows(rows, reaching, opener, table, memory_limit))
    return Deletes(RowPositions(found), applied)


def named_data_files(delete: LiveFile, opener: Opener) -> frozenset[str] | None:
    """Paths of the data files that a position delete file or a vector names; None for what is not read here."""
    if delete.content is not Content.POSITION_DELETES:
        return None
    if is_vector(delete):
        return None if delete.referenced_data_file is None else frozenset((delete.referenced_data_file,))
    return named_paths(delete, opener) if delete.file_format == "PARQUET" else None


def _refuse(
    by_position: Mapping[str, Sequence[LiveFile]],
    by_equality: Mapping[str, Sequence[LiveFile]],
    table: Table,
    name: str,
) -> None:
    """What is not applied here, told before anything is read."""
    for path, deletes in by_position.items():
        if sum(is_vector(delete) for delete in deletes) > 1:
            # Readers would each believe another one (spec: at most one vector a data file).
            raise TableUnreadableError(f"{path} has more than one deletion vector", field=name)
    needed = {d.identity: d for each in (by_position, by_equality) for deletes in each.values() for d in deletes}
    for delete in needed.values():
        if not is_vector(delete) and delete.file_format != "PARQUET":
            raise UnsupportedError(
                f"{delete.path} holds deletes as {delete.file_format}; this release reads Parquet", field=name
            )
        if delete.content is Content.EQUALITY_DELETES:
            key_columns(table, delete)


def _load_positions(by_position: Mapping[str, Sequence[LiveFile]], opener: Opener, found: dict[str, BitMap64]) -> None:
    needed: dict[Identity, LiveFile] = {}
    wanted: dict[Identity, set[str]] = {}
    for path, deletes in by_position.items():
        for delete in deletes:
            needed[delete.identity] = delete
            wanted.setdefault(delete.identity, set()).add(path)
    for identity, delete in needed.items():
        if is_vector(delete):
            _merge(found, dict.fromkeys(wanted[identity], read_vector(delete, opener)))
        else:
            _merge(found, read_positions(delete, opener, wanted[identity]))


def _partitions(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    """The files by spec and partition: those of one are reached by the same equality deletes but for their age."""
    groups: dict[tuple[int, str], list[LiveFile]] = {}
    for file in files:
        groups.setdefault(file.partition_id, []).append(file)
    return list(groups.values())


def _merge(found: dict[str, BitMap64], more: Mapping[str, BitMap64]) -> None:
    for path, rows in more.items():
        found[path] = found[path] | rows if path in found else rows
