"""Rows of a Parquet checkpoint to actions, by column: a checkpoint can hold millions, and most of its bytes are
statistics that nobody asks for here. Everything wrong is a ValueError that says what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.delta.actions import AddFile, RemoveFile
from lakehouse_maintenance.delta.parsing import RECORDS_FIRST, deletion_vector, place, records_in
from lakehouse_maintenance.model.locations import Location

if TYPE_CHECKING:
    import pyarrow as pa

_ADD = ("path", "partitionValues", "size", "modificationTime", "deletionVector", "stats")
_REMOVE = ("path", "deletionTimestamp", "size", "deletionVector")
_FIELDS = {"add": _ADD, "remove": _REMOVE}

_ACTIONS = frozenset(
    {
        "add",
        "remove",
        "metaData",
        "protocol",
        "txn",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
        "cdc",
        "commitInfo",
    }
)
_FILE_FIELDS = frozenset(
    {
        "path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector",
        "baseRowId", "defaultRowCommitVersion", "clusteringProvider", "partitionValues_parsed", "stats_parsed",
        "deletionTimestamp", "extendedFileMetadata",
    }
)  # fmt: skip
_VECTOR_FIELDS = frozenset({"storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality", "maxRowIndex"})
_DECISIVE = {"add": ("path", "deletionVector"), "remove": ("path", "deletionVector", "deletionTimestamp", "size")}


def check_actions(schema: pa.Schema, *, needs_files: bool) -> None:
    """Raises ValueError where the file cannot hold what it should. `needs_files`: it is where file actions belong.

    Missing columns count as null by the protocol. But no checksum covers the names of columns: where one that decides
    is missing and an unknown one is there, it may be the same column with a flipped bit.
    """
    if needs_files and "add" not in schema.names:
        raise ValueError("it has no add column")
    decisive = ["add", "remove"] if needs_files else []
    if "checkpointMetadata" in schema.names:
        decisive.append("sidecar")
    _check_names("the checkpoint", set(schema.names), decisive, _ACTIONS)


def columns_for(schema: pa.Schema, actions: Sequence[str]) -> list[str]:
    """The columns to read for these actions, as far as the file has them. Raises ValueError as `check_actions`."""
    import pyarrow as pa

    columns: list[str] = []
    for action in actions:
        if action not in schema.names:
            continue
        kind = schema.field(action).type
        if not pa.types.is_struct(kind):
            raise ValueError(f"the column {action} is no struct")
        columns += _file_columns(action, kind) if action in _FIELDS else [action]
    return columns


def _file_columns(action: str, kind: pa.StructType) -> list[str]:
    present = {child.name: child.type for child in kind}
    if "path" not in present:
        raise ValueError(f"the column {action} has no path")
    _check_names(f"the column {action}", set(present), _DECISIVE[action], _FILE_FIELDS)
    if "deletionVector" in present:
        _check_names("the column deletionVector", _children(present["deletionVector"]), ["offset"], _VECTOR_FIELDS)
    columns = [f"{action}.{name}" for name in _FIELDS[action] if name in present]
    if action == "add" and "stats_parsed" in present and "numRecords" in _children(present["stats_parsed"]):
        columns.append("add.stats_parsed.numRecords")
    return columns


def _check_names(where: str, present: set[str], decisive: Sequence[str], known: frozenset[str]) -> None:
    missing = [name for name in decisive if name not in present]
    unknown = sorted(present - known)
    if missing and unknown:
        raise ValueError(f"{where} lacks {missing[0]} and has {unknown[0]!r}, which is unknown")


def header_documents(batch: pa.RecordBatch, actions: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of these few actions, in the shape that JSON has."""
    for action in actions:
        if action in batch.schema.names:
            column = batch.column(action)
            for value in column.filter(column.is_valid()).to_pylist(maps_as_pydicts="strict"):
                yield {action: value}


def add_files(root: Location, batch: pa.RecordBatch) -> Iterator[AddFile]:
    """The batch's `add` rows."""
    if (rows := _rows(batch, "add")) is None:
        return
    paths = _texts(rows, "path")
    sizes = _numbers(rows, "size")
    times = _numbers(rows, "modificationTime")
    partitions = _maps(rows, "partitionValues")
    vectors = _values(rows, "deletionVector")
    with_stats = _with_stats(rows)
    records = _records(rows)
    for number, path in enumerate(paths):
        size, modified_ms = sizes[number], times[number]
        if path is None or size is None or modified_ms is None or size < 0:
            raise ValueError("add: path, size or modificationTime is missing")
        yield AddFile(
            location=place(root, path),
            path=path,
            size=size,
            modified_ms=modified_ms,
            partition_values=partitions[number],
            deletion_vector=deletion_vector(root, vectors[number]),
            has_stats=with_stats[number],
            records=records[number],
        )


def remove_files(root: Location, batch: pa.RecordBatch) -> Iterator[RemoveFile]:
    """The batch's `remove` rows."""
    if (rows := _rows(batch, "remove")) is None:
        return
    paths = _texts(rows, "path")
    times = _numbers(rows, "deletionTimestamp")
    sizes = _numbers(rows, "size")
    vectors = _values(rows, "deletionVector")
    for number, path in enumerate(paths):
        if path is None:
            raise ValueError("remove: path is missing")
        yield RemoveFile(
            location=place(root, path),
            path=path,
            deleted_ms=times[number],
            size=sizes[number],
            deletion_vector=deletion_vector(root, vectors[number]),
        )


def _rows(batch: pa.RecordBatch, action: str) -> pa.StructArray | None:
    """The action's rows that are not null, or None where there are none."""
    if action not in batch.schema.names:
        return None
    column = batch.column(action)
    # Children of a null struct count as values once they are taken out of it: the filter comes first.
    rows = column.filter(column.is_valid())
    return rows if len(rows) else None


def _texts(rows: pa.StructArray, name: str) -> list[str | None]:
    import pyarrow as pa

    column = rows.field(name)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"{name} is no text")
    found: list[str | None] = column.to_pylist()
    return found


def _numbers(rows: pa.StructArray, name: str) -> list[int | None]:
    import pyarrow as pa

    if name not in _children(rows.type):
        return [None] * len(rows)
    column = rows.field(name)
    if not pa.types.is_integer(column.type):
        raise ValueError(f"{name} is no number")
    found: list[int | None] = column.to_pylist()
    return found


def _maps(rows: pa.StructArray, name: str) -> list[dict[str, str | None]]:
    import pyarrow as pa

    if name not in _children(rows.type):
        return [{} for _ in range(len(rows))]
    column = rows.field(name)
    if not pa.types.is_map(column.type):
        raise ValueError(f"{name} is no map")
    # Far faster than to_pylist of the map, which makes a list of tuples a row.
    ends = column.offsets.to_pylist()
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    return [dict(zip(keys[start:end], items[start:end], strict=True)) for start, end in pairwise(ends)]


def _values(rows: pa.StructArray, name: str) -> list[dict[str, Any] | None]:
    if name not in _children(rows.type) or rows.field(name).null_count == len(rows):
        return [None] * len(rows)
    found: list[dict[str, Any] | None] = rows.field(name).to_pylist()
    return found


def _with_stats(rows: pa.StructArray) -> list[bool]:
    import pyarrow.compute as pc

    valid = [rows.field("stats").is_valid()] if "stats" in _children(rows.type) else []
    if "stats_parsed" in _children(rows.type):
        parsed = rows.field("stats_parsed")
        valid.append(pc.and_(parsed.is_valid(), parsed.field("numRecords").is_valid()))
    if not valid:
        return [False] * len(rows)
    found: list[bool] = (valid[0] if len(valid) == 1 else pc.or_(*valid)).to_pylist()
    return found


def _records(rows: pa.StructArray) -> list[int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[int | None] = [None] * len(rows)
    if "stats_parsed" in _children(rows.type):
        parsed = rows.field("stats_parsed")
        numbers = parsed.field("numRecords")
        if pa.types.is_integer(numbers.type):
            # Children of a null struct count as values once they are taken out of it.
            found = pc.if_else(parsed.is_valid(), numbers, None).to_pylist()
    if "stats" not in _children(rows.type) or None not in found:
        return found
    stats = rows.field("stats")
    if not (pa.types.is_string(stats.type) or pa.types.is_large_string(stats.type)):
        return found
    first = pc.extract_regex(stats, RECORDS_FIRST.replace("([0-9]", "(?P<records>[0-9]")).field("records")
    told = pc.cast(pc.if_else(pc.equal(first, ""), None, first), pa.int64()).to_pylist()
    return [
        known if known is not None else number if number is not None else records_in(stats[at].as_py())
        for at, (known, number) in enumerate(zip(found, told, strict=True))
    ]


def _children(kind: pa.DataType) -> set[str]:
    import pyarrow as pa

    return {child.name for child in kind} if pa.types.is_struct(kind) else set()
