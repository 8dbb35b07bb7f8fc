"""A table's `metadata.json`, read by ourselves (Iceberg spec: Table Metadata).

Reading raw JSON keeps what libraries drop or refuse (encryption keys, variant columns), and costs one parse.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any

from lakehouse_maintenance.iceberg.partition_types import why_unwritable
from lakehouse_maintenance.iceberg.sort_orders import column_types, default_sort_order_id, sort_orders
from lakehouse_maintenance.model.errors import NotFoundError, TableUnreadableError
from lakehouse_maintenance.model.files import TableState
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.snapshots import RefFact, SnapshotFact
from lakehouse_maintenance.storage import Storage

MAIN = "main"
_MALFORMED = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    *(EOFError, OSError, zlib.error),
)
_UNKNOWN = "unknown"
_TYPES_WE_KNOW = frozenset(
    (
        *("boolean", "int", "long", "float", "double", "decimal", "string", "uuid", "fixed", "binary"),
        *("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "struct", "list", "map"),
        _UNKNOWN,
    )
)
"""Any other type is one that data work here would lose: variant, geometry, geography, and what comes later."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. `manifest_list` is None only in v1 tables that list manifests in place."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    manifest_list: str | None
    schema_id: int | None
    summary: dict[str, str]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one `metadata.json` says; `raw` is the whole document, `location` the file it was read from."""

    table: str
    location: str
    raw: dict[str, Any]
    uuid: str
    format_version: int
    table_location: str
    last_sequence_number: int
    properties: dict[str, str]
    snapshots: dict[int, Snapshot]
    refs: dict[str, RefFact]

    @property
    def next_row_id(self) -> int | None:
        """Version 3: the first row id that no row has yet. None where the document lacks it, which v3 forbids."""
        found = self.raw.get("next-row-id")
        return None if found is None else int(found)

    @property
    def default_spec_id(self) -> int:
        """Id of the partition spec that writers use now."""
        return int(self.raw.get("default-spec-id", 0))

    @property
    def specs(self) -> dict[int, list[dict[str, Any]]]:
        """Partition spec id → its fields, as in the document."""
        specs = {int(spec["spec-id"]): list(spec["fields"]) for spec in self.raw.get("partition-specs") or ()}
        if not specs and "partition-spec" in self.raw:  # v1 tables of old writers have this one alone
            specs[self.default_spec_id] = list(self.raw["partition-spec"])
        return specs

    @property
    def current_schema(self) -> dict[str, Any]:
        """The current schema, as in the document."""
        current = self.raw.get("current-schema-id", 0)
        for schema in self.raw.get("schemas") or ():
            if schema.get("schema-id") == current:
                return dict(schema)
        return dict(self.raw["schema"])

    @property
    def unpartitioned_specs(self) -> frozenset[int]:
        """Ids of the specs that divide nothing: without fields, or with void ones alone, which v1 keeps for dropped
        fields. Iceberg takes equality deletes written with either for global ones (PartitionSpec.isUnpartitioned).
        """
        return frozenset(
            spec_id for spec_id, fields in self.specs.items() if all(f["transform"] == "void" for f in fields)
        )

    @property
    def features(self) -> tuple[str, ...]:
        """What rewriting data would lose."""
        return features(self.raw)

    def head(self, branch: str = MAIN) -> Snapshot | None:
        """The branch's head; None where the branch or the table has no snapshot yet."""
        ref = self.refs.get(branch)
        return None if ref is None else self.snapshots.get(ref.snapshot_id)

    def state(self, branch: str = MAIN) -> TableState:
        """The facts that planning needs."""
        head = self.head(branch)
        return TableState(
            table=self.table,
            uuid=self.uuid,
            format_version=self.format_version,
            location=self.table_location,
            metadata_location=self.location,
            snapshot_id=None if head is None else head.snapshot_id,
            sequence_number=0 if head is None else head.sequence_number,
            properties=self.properties,
            snapshot_times={s.snapshot_id: s.timestamp_ms for s in self.snapshots.values()},
            default_spec_id=self.default_spec_id,
            features=self.features,
            branch=branch,
            default_sort_order_id=default_sort_order_id(self.raw),
            sort_orders=sort_orders(self.raw),
            column_types=column_types(self.raw),
            specs={spec_id: why_unwritable(self.current_schema, fields) for spec_id, fields in self.specs.items()},
        )

    def snapshot_facts(self) -> tuple[SnapshotFact, ...]:
        """For retention rules."""
        return tuple(SnapshotFact(s.snapshot_id, s.parent_id, s.timestamp_ms) for s in self.snapshots.values())

    def began_ms(self) -> int | None:
        """When the table was made, in ms since 1970; None where its history is cut, so that nobody can tell.

        The first snapshot of all has no parent and one of the first two sequence numbers (0 from v1 writers).
        """
        first = min(self.snapshots.values(), key=lambda s: s.timestamp_ms, default=None)
        is_whole = (
            self.last_sequence_number == 0 if first is None else not first.parent_id and first.sequence_number < 2
        )
        if not is_whole or (first is None and self.refs):
            return None
        times = [int(entry["timestamp-ms"]) for entry in self.raw.get("metadata-log") or ()]
        times += [int(self.raw["last-updated-ms"])] if "last-updated-ms" in self.raw else []
        times += [] if first is None else [first.timestamp_ms]
        return min(times, default=None)

    def log_locations(self) -> list[str]:
        """Previous metadata files that this one still names, oldest first."""
        return [str(entry["metadata-file"]) for entry in self.raw.get("metadata-log") or ()]

    def statistics_paths(self) -> list[tuple[str, int | None]]:
        """Puffin statistics files: path and size."""
        return [(str(s["statistics-path"]), s.get("file-size-in-bytes")) for s in self.raw.get("statistics") or ()]

    def partition_statistics_paths(self) -> list[tuple[str, int | None]]:
        """Partition statistics files: path and size."""
        found = self.raw.get("partition-statistics") or ()
        return [(str(s["statistics-path"]), s.get("file-size-in-bytes")) for s in found]


def read_metadata(storage: Storage, table: str, location: str) -> Metadata:
    """Reads and checks the document. Raises TableUnreadableError naming table, file and what is wrong."""
    try:
        data = storage.read(Location.parse(location))
    except NotFoundError as error:
        raise TableUnreadableError(
            f"{table}: its metadata file {location} does not exist",
            field=table,
            hint="the catalog points to a file that is gone; restore it, or register an earlier metadata file",
        ) from error
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return parse_metadata(table, location, json.loads(data))
    except TableUnreadableError:
        raise
    except _MALFORMED as error:
        raise TableUnreadableError(
            f"{table}: its metadata file {location} cannot be read: {_why(error)}",
            field=table,
            hint="the file is truncated or not an Iceberg metadata file",
        ) from error


def parse_metadata(table: str, location: str, raw: Any) -> Metadata:
    """Metadata from the parsed document. Raises ValueError, KeyError or TypeError on what the spec does not allow."""
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    version = raw["format-version"]
    if version not in (1, 2, 3):
        raise TableUnreadableError(
            f"{table}: format version {version!r} is not known to this release (1, 2 and 3 are)", field=table
        )
    snapshots = {s.snapshot_id: s for s in map(_snapshot, raw.get("snapshots") or ())}
    refs = {name: _ref(name, ref) for name, ref in (raw.get("refs") or {}).items()}
    current = raw.get("current-snapshot-id")
    if MAIN not in refs and current not in (None, -1):
        refs[MAIN] = RefFact(MAIN, "branch", int(current), None, None, None)
    for ref in refs.values():
        if ref.snapshot_id not in snapshots:
            raise ValueError(f"ref {ref.name!r} points to snapshot {ref.snapshot_id}, which is not in the table")
    metadata = Metadata(
        table=table,
        location=location,
        raw=raw,
        # v1 tables of old writers have no uuid; their location stands for it.
        uuid=str(raw.get("table-uuid") or raw["location"]),
        format_version=int(version),
        table_location=_text(raw["location"]),
        last_sequence_number=int(raw.get("last-sequence-number") or 0),
        properties={str(k): str(v) for k, v in (raw.get("properties") or {}).items()},
        snapshots=snapshots,
        refs=refs,
    )
    _check(metadata)
    return metadata


def _check(metadata: Metadata) -> None:
    """What is taken from the document later has to be there: who asks for it then expects no error of this kind."""
    for fields in metadata.specs.values():
        for field in fields:
            _text(field["name"])
            _text(field["transform"])
    for entry in (*(metadata.raw.get("statistics") or ()), *(metadata.raw.get("partition-statistics") or ())):
        _text(entry["statistics-path"])
    for entry in metadata.raw.get("metadata-log") or ():
        _text(entry["metadata-file"])
    features(metadata.raw)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:80]!r} is no text")
    return value


def _snapshot(raw: dict[str, Any]) -> Snapshot:
    return Snapshot(
        snapshot_id=int(raw["snapshot-id"]),
        parent_id=raw.get("parent-snapshot-id"),
        sequence_number=int(raw.get("sequence-number") or 0),
        timestamp_ms=int(raw["timestamp-ms"]),
        manifest_list=None if raw.get("manifest-list") is None else _text(raw["manifest-list"]),
        schema_id=raw.get("schema-id"),
        summary={str(k): str(v) for k, v in (raw.get("summary") or {}).items()},
    )


def _ref(name: str, raw: dict[str, Any]) -> RefFact:
    return RefFact(
        name,
        str(raw["type"]),
        int(raw["snapshot-id"]),
        raw.get("max-ref-age-ms"),
        raw.get("max-snapshot-age-ms"),
        raw.get("min-snapshots-to-keep"),
    )


def features(raw: dict[str, Any]) -> tuple[str, ...]:
    """What rewriting data would lose: encryption, and column types that no reader here knows."""
    found: set[str] = set()
    if raw.get("encryption-keys") or "encryption.key-id" in (raw.get("properties") or {}):
        found.add("encryption")
    for schema in raw.get("schemas") or [raw.get("schema") or {}]:
        found.update(_unknown_types(schema))
    return tuple(sorted(found))


def _unknown_types(node: Any) -> set[str]:
    """Types of a schema that cannot be written again.

    A column of type `unknown` is null in every row and is stored nowhere (spec: Primitive Types), so that leaving it
    out keeps it; inside a list or map, or alone in a struct, there would be nothing left to store.
    """
    found: set[str] = set()
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            base = item.split("(")[0].split("[")[0].strip()
            if base not in _TYPES_WE_KNOW:
                found.add(base)
        elif isinstance(item, dict):
            nested = [item[key] for key in ("element", "key", "value") if key in item]
            fields = item.get("fields") or ()
            if _UNKNOWN in nested or (fields and all(field.get("type") == _UNKNOWN for field in fields)):
                found.add(_UNKNOWN)
            pending += [*nested, *fields, *([item["type"]] if "type" in item else [])]
    return found


def _why(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
