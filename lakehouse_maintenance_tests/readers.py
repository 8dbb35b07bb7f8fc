"""Reads a table's snapshots with PyIceberg, DuckDB and Spark into one canonical form that can be compared.

The canonical form of a table is the sorted list of its rows; a row is one JSON text (keys sorted, no spaces,
characters as they are) of an object from column name to value. Values, whatever reader they come from:

- null, boolean, string: as in JSON; integers of any width: JSON numbers
- float, double: text, Python's repr of the exact value as a double; "NaN", "Infinity", "-Infinity"
- decimal: text with the column's scale, no exponent ("12.50")
- date: ISO text; time: ISO text with six digits
- timestamp: ISO text with six digits (nine where the column has nanoseconds), "Z" at the end if it has a zone (in UTC)
- binary and fixed: text, lower-case hexadecimal; uuid: text in its usual form
- struct: object; list: array; map: array of [key, value], sorted by the key's JSON text

`digest` is the SHA-256 over the rows, each ended by a newline: equal for equal rows in any order.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from lakehouse_maintenance_tests.services.spark.session import Spark

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_pyiceberg(table: Table, *, snapshot_id: int | None = None, ref: str | None = None) -> list[str]:
    """Canonical rows of the current snapshot, of a snapshot (its own schema) or of a ref.

    A branch is read with the table's current schema, a tag with its snapshot's, as Iceberg's own readers do.
    Raises ValueError where the ref does not exist, and PyIceberg's errors (equality deletes are refused). A null list
    or map whose values are structs comes out as an empty one: PyIceberg 0.12 reads it so.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table.refs import SnapshotRefType

    metadata = table.metadata
    schema: Schema | None = None
    if ref is not None:
        found = metadata.refs.get(ref)
        if found is None:
            raise ValueError(f"no branch or tag {ref!r}")
        snapshot_id = found.snapshot_id
        if found.snapshot_ref_type == SnapshotRefType.BRANCH:
            schema = metadata.schema()
    scan = table.scan(snapshot_id=snapshot_id)
    arrow = ArrowScan(metadata, table.io, schema or scan.projection(), AlwaysTrue()).to_table(scan.plan_files())
    return canonical_rows(arrow)


def read_duckdb(
    metadata_location: str, properties: Mapping[str, str] | None = None, *, snapshot_id: int | None = None
) -> list[str]:
    """Canonical rows through DuckDB's `iceberg_scan`; `properties` are PyIceberg's `s3.*`, None for local files.

    No judge of equality deletes in partitioned tables: DuckDB 1.5.5 applies one to the rows of every partition.
    """
    connection = _duckdb_connection(properties or {})
    at = "" if snapshot_id is None else f", snapshot_from_id = {snapshot_id}"
    with _DUCKDB_LOCK:
        result = connection.execute(f"SELECT * FROM iceberg_scan({sql_text(_local_path(metadata_location))}{at})")
        arrow = result.to_arrow_table()
    return canonical_rows(arrow)


def duckdb_query(metadata_location: str, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Rows of a query on a local table through DuckDB; `{}` in it is the table."""
    scan = f"iceberg_scan({sql_text(_local_path(metadata_location))})"
    connection = _duckdb_connection({})
    with _DUCKDB_LOCK:
        return connection.execute(query.replace("{}", scan), list(parameters)).fetchall()


def read_spark(spark: Spark, table: str, *, snapshot_id: int | None = None, ref: str | None = None) -> list[str]:
    """Canonical rows through Spark; `table` is the full name in Spark's quoting, its catalog attached before."""
    return spark.rows(table, snapshot_id=snapshot_id, ref=ref)


def canonical_rows(table: pa.Table) -> list[str]:
    """The canonical form of an Arrow table; see the module's text."""
    names = table.column_names
    if len(set(names)) != len(names):
        raise ValueError(f"columns are not unique: {names}")
    columns = [_column(table.column(position)) for position in range(len(names))]
    return sorted(_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def digest(rows: Sequence[str]) -> str:
    """SHA-256 (hexadecimal) over canonical rows in sorted order."""
    hasher = hashlib.sha256()
    for row in sorted(rows):
        hasher.update(row.encode())
        hasher.update(b"\n")
    return hasher.hexdigest()


def sql_text(text: str) -> str:
    """The text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _column(column: pa.ChunkedArray) -> list[Any]:
    return [value for chunk in column.chunks for value in _values(chunk)]


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return [_uuid(value) for value in array.storage.to_pylist()] if _is_uuid(kind) else _values(array.storage)
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        return _maps(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array)
    if pa.types.is_timestamp(kind):
        return _timestamps(array)
    convert = _leaf(kind)
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _structs(array: pa.StructArray) -> list[Any]:
    names = [array.type.field(position).name for position in range(array.type.num_fields)]
    children = [_values(array.field(position)) for position in range(len(names))]
    valid = array.is_valid().to_pylist()
    return [
        {name: child[row] for name, child in zip(names, children, strict=True)} if valid[row] else None
        for row in range(len(array))
    ]


def _lists(array: pa.Array) -> list[Any]:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    # `values` ignores the array's own offset, and `offsets` count in it.
    values = _values(array.values)
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [values[offsets[row] : offsets[row + 1]] if valid[row] else None for row in range(len(array))]


def _maps(array: pa.MapArray) -> list[Any]:
    keys, items = _values(array.keys), _values(array.items)
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    result: list[Any] = []
    for row in range(len(array)):
        entries = range(offsets[row], offsets[row + 1])
        pairs = sorted(([keys[entry], items[entry]] for entry in entries), key=lambda pair: _json(pair[0]))
        result.append(pairs if valid[row] else None)
    return result


def _timestamps(array: pa.TimestampArray) -> list[Any]:
    # Counted from the epoch by hand: Python's datetime has no nanoseconds.
    kind = array.type
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit]
    digits = 9 if kind.unit == "ns" else 6
    zone = "Z" if kind.tz is not None else ""

    def text(value: int) -> str:
        seconds, rest = divmod(value, per_second)
        whole = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
        return f"{whole}.{rest * 10**digits // per_second:0{digits}d}{zone}"

    return [None if value is None else text(value) for value in array.cast(pa.int64()).to_pylist()]


def _leaf(kind: pa.DataType) -> Callable[[Any], object]:
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_time(kind):
        return _time
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes.hex
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return _same
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _same
    raise ValueError(f"no canonical form for {kind}")


def _same(value: object) -> object:
    return value


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _date(value: date) -> str:
    return value.isoformat()


def _time(value: time) -> str:
    return value.isoformat(timespec="microseconds")


def _is_uuid(kind: pa.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def _uuid(value: bytes | None) -> str | None:
    return None if value is None else str(UUID(bytes=value))


_DUCKDB_LOCK = threading.Lock()
_DUCKDB: dict[tuple[tuple[str, str], ...], duckdb.DuckDBPyConnection] = {}


def _duckdb_connection(properties: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    """One connection for each set of properties, kept for the process: loading the extensions takes a while."""
    key = tuple(sorted(properties.items()))
    with _DUCKDB_LOCK:
        if key not in _DUCKDB:
            _DUCKDB[key] = _connect_duckdb(properties)
        return _DUCKDB[key]


def _connect_duckdb(properties: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": "2", "autoinstall_known_extensions": "false"})
    version = f"v{duckdb.__version__}"
    for name in ("avro", "httpfs", "iceberg"):
        # Loaded from the wheel's own file: nothing is installed into the home folder, which parallel tests share.
        package = importlib.import_module(f"duckdb_extension_{name}")
        folder = Path(next(iter(package.__path__)))
        connection.execute(f"LOAD {sql_text(str(folder / 'extensions' / version / f'{name}.duckdb_extension'))}")
    endpoint = properties.get("s3.endpoint")
    if endpoint is not None:
        scheme, _, host = endpoint.partition("://")
        options = {
            "KEY_ID": sql_text(properties["s3.access-key-id"]),
            "SECRET": sql_text(properties["s3.secret-access-key"]),
            "REGION": sql_text(properties.get("s3.region", "us-east-1")),
            "ENDPOINT": sql_text(host.rstrip("/")),
            "URL_STYLE": "'path'",
            "USE_SSL": "true" if scheme == "https" else "false",
        }
        settings = ", ".join(f"{name} {value}" for name, value in options.items())
        connection.execute(f"CREATE SECRET s3 (TYPE s3, {settings})")
    return connection


def _local_path(location: str) -> str:
    return location.removeprefix("file://") if location.startswith("file:///") else location
