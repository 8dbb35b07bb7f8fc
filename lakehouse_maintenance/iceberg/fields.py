"""Avro fields of manifests and manifest lists, by field id (Iceberg spec: Manifests, Manifest Lists).

Each row: field id, name, Avro type (None: given by the partition spec), required, format versions that have it.
`required` None means: required from v2 on, and for `snapshot_id` the other way round.
"""

from __future__ import annotations

from typing import Any

AvroType = Any
"""A JSON-ready Avro schema: a name, a dict, or a list for a union."""

ADDED, EXISTING, DELETED = 1, 0, 2
"""`status` of a manifest entry."""

POSITION_DELETE_PATH_ID = 2147483546
"""Reserved field id of `file_path` in position delete files; its bounds tell which data files they are for."""

_ALL = (1, 2, 3)
_Row = tuple[int, str, AvroType, bool | None, tuple[int, ...]]


def _map(key_id: int, value_id: int, value_type: str) -> AvroType:
    return {
        "type": "array",
        "logicalType": "map",
        "items": {
            "type": "record",
            "name": f"k{key_id}_v{value_id}",
            "fields": [
                {"name": "key", "type": "int", "field-id": key_id},
                {"name": "value", "type": value_type, "field-id": value_id},
            ],
        },
    }


def _list(element_id: int, element: AvroType) -> AvroType:
    return {"type": "array", "items": element, "element-id": element_id}


_DATA_FILE: list[_Row] = [
    (134, "content", "int", True, (2, 3)),
    (100, "file_path", "string", True, _ALL),
    (101, "file_format", "string", True, _ALL),
    (102, "partition", None, True, _ALL),
    (103, "record_count", "long", True, _ALL),
    (104, "file_size_in_bytes", "long", True, _ALL),
    (105, "block_size_in_bytes", "long", True, (1,)),
    (108, "column_sizes", _map(117, 118, "long"), False, _ALL),
    (109, "value_counts", _map(119, 120, "long"), False, _ALL),
    (110, "null_value_counts", _map(121, 122, "long"), False, _ALL),
    (137, "nan_value_counts", _map(138, 139, "long"), False, _ALL),
    (125, "lower_bounds", _map(126, 127, "bytes"), False, _ALL),
    (128, "upper_bounds", _map(129, 130, "bytes"), False, _ALL),
    (131, "key_metadata", "bytes", False, _ALL),
    (132, "split_offsets", _list(133, "long"), False, _ALL),
    (135, "equality_ids", _list(136, "int"), False, (2, 3)),
    (140, "sort_order_id", "int", False, _ALL),
    (142, "first_row_id", "long", False, (3,)),
    (143, "referenced_data_file", "string", False, (2, 3)),
    (144, "content_offset", "long", False, (3,)),
    (145, "content_size_in_bytes", "long", False, (3,)),
]

_ENTRY: list[_Row] = [
    (0, "status", "int", True, _ALL),
    (1, "snapshot_id", "long", None, _ALL),
    (3, "sequence_number", "long", False, (2, 3)),
    (4, "file_sequence_number", "long", False, (2, 3)),
]

_PARTITION_SUMMARY: AvroType = {
    "type": "record",
    "name": "r508",
    "fields": [
        {"name": "contains_null", "type": "boolean", "field-id": 509},
        {"name": "contains_nan", "type": ["null", "boolean"], "default": None, "field-id": 518},
        {"name": "lower_bound", "type": ["null", "bytes"], "default": None, "field-id": 510},
        {"name": "upper_bound", "type": ["null", "bytes"], "default": None, "field-id": 511},
    ],
}

_MANIFEST_FILE: list[_Row] = [
    (500, "manifest_path", "string", True, _ALL),
    (501, "manifest_length", "long", True, _ALL),
    (502, "partition_spec_id", "int", True, _ALL),
    (517, "content", "int", True, (2, 3)),
    (515, "sequence_number", "long", True, (2, 3)),
    (516, "min_sequence_number", "long", True, (2, 3)),
    (503, "added_snapshot_id", "long", True, _ALL),
    (504, "added_files_count", "int", None, _ALL),
    (505, "existing_files_count", "int", None, _ALL),
    (506, "deleted_files_count", "int", None, _ALL),
    (512, "added_rows_count", "long", None, _ALL),
    (513, "existing_rows_count", "long", None, _ALL),
    (514, "deleted_rows_count", "long", None, _ALL),
    (507, "partitions", _list(508, _PARTITION_SUMMARY), False, _ALL),
    (519, "key_metadata", "bytes", False, _ALL),
    (520, "first_row_id", "long", False, (3,)),
]

DATA_FILE_ID, PARTITION_ID = 2, 102

NAMES: dict[int, str] = {row[0]: row[1] for row in (*_DATA_FILE, *_ENTRY, *_MANIFEST_FILE)} | {
    DATA_FILE_ID: "data_file"
}
"""Field id → the name we use; older writers named some fields otherwise."""

STATISTICS = frozenset(
    (
        "column_sizes",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
        "key_metadata",
        "split_offsets",
    )
)
"""Fields of a data file that decisions about whole files do not need; without them reading is several times faster."""

STATISTICS_BUT_BOUNDS = STATISTICS - {"lower_bounds", "upper_bounds"}


def _avro_fields(rows: list[_Row], version: int, partition: AvroType = None) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = []
    for field_id, name, avro_type, required, versions in rows:
        if version not in versions:
            continue
        actual = partition if field_id == PARTITION_ID else avro_type
        by_version = (version == 1) if field_id == 1 else version > 1
        if by_version if required is None else required:
            fields.append({"name": name, "type": actual, "field-id": field_id})
        else:
            fields.append({"name": name, "type": ["null", actual], "default": None, "field-id": field_id})
    return fields


def entry_schema(version: int, partition: AvroType) -> AvroType:
    """Avro schema of a manifest for a format version; `partition`: Avro record of the spec's partition tuple."""
    data_file = {"type": "record", "name": "r2", "fields": _avro_fields(_DATA_FILE, version, partition)}
    fields = [*_avro_fields(_ENTRY, version), {"name": "data_file", "type": data_file, "field-id": DATA_FILE_ID}]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def manifest_list_schema(version: int) -> AvroType:
    """Avro schema of a manifest list for a format version."""
    return {"type": "record", "name": "manifest_file", "fields": _avro_fields(_MANIFEST_FILE, version)}
