"""Delta logs written by hand, for histories and faults that no writer would make on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lakehouse_maintenance.delta import DeltaLog, find_log
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
DV_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}
METADATA = {
    "metaData": {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": ["p"],
        "configuration": {},
        "createdTime": 1700000000000,
    }
}
HEADER = (PROTOCOL, METADATA)


def add(path: str, vector: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """An `add` action as JSON."""
    action = {"path": path, "partitionValues": {"p": "x"}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": action | ({"deletionVector": vector} if vector else {}) | fields}


def remove(path: str, vector: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A `remove` action as JSON."""
    action = {"path": path, "deletionTimestamp": 1700000000000, "dataChange": True}
    return {"remove": action | ({"deletionVector": vector} if vector else {}) | fields}


def vector(path_or_data: str, storage_type: str = "u", offset: int | None = 1) -> dict[str, Any]:
    """A deletion vector's descriptor."""
    descriptor = {"storageType": storage_type, "pathOrInlineDv": path_or_data, "sizeInBytes": 40, "cardinality": 6}
    return descriptor if offset is None else descriptor | {"offset": offset}


class LogWriter:
    """Writes into `<root>/_delta_log`; versions are counted by `commit`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    @property
    def location(self) -> Location:
        return Location.parse(str(self.root))

    def commit(self, *actions: dict[str, Any]) -> Path:
        """The next version."""
        self.version += 1
        return self.put(f"{self.version:020d}.json", lines(*actions))

    def put(self, name: str, content: bytes | str) -> Path:
        """Any file of the log."""
        path = self.log / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def checkpoint(self, version: int, *actions: dict[str, Any], parts: int = 1) -> list[Path]:
        """A classic checkpoint, or one in parts, of exactly these actions."""
        if parts == 1:
            return [self.parquet(f"{version:020d}.checkpoint.parquet", actions)]
        names = [f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)]
        return [self.parquet(name, actions[number::parts]) for number, name in enumerate(names)]

    def parquet(self, name: str, actions: tuple[dict[str, Any], ...]) -> Path:
        """The actions as rows, in the protocol's schema for checkpoints."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{key: _columns(value) for key, value in action.items()} for action in actions]
        path = self.log / name
        path.parent.mkdir(exist_ok=True)
        # Small row groups: a batch must not always be the whole file. No schema of Arrow's own, as with other writers.
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), path, row_group_size=50, store_schema=False)
        return path

    def open(self) -> DeltaLog:
        """The log as the product sees it."""
        found = find_log(Storage({}), self.location)
        assert found is not None
        return found


def lines(*actions: dict[str, Any]) -> str:
    """Actions as a commit file has them."""
    return "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)


def _columns(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(one.items()) if key in ("partitionValues", "configuration") else one for key, one in value.items()
    }


def _schema() -> Any:
    import pyarrow as pa

    text, long = pa.string(), pa.int64()
    pairs = pa.map_(text, text)
    vectors = pa.struct(
        [
            ("storageType", text),
            ("pathOrInlineDv", text),
            ("offset", pa.int32()),
            ("sizeInBytes", pa.int32()),
            ("cardinality", long),
        ]
    )
    features = [("readerFeatures", pa.list_(text)), ("writerFeatures", pa.list_(text))]
    return pa.schema(
        [
            ("txn", pa.struct([("appId", text), ("version", long)])),
            (
                "add",
                pa.struct(
                    [
                        ("path", text),
                        ("partitionValues", pairs),
                        ("size", long),
                        ("modificationTime", long),
                        ("dataChange", pa.bool_()),
                        ("stats", text),
                        ("deletionVector", vectors),
                    ]
                ),
            ),
            (
                "remove",
                pa.struct(
                    [
                        ("path", text),
                        ("deletionTimestamp", long),
                        ("size", long),
                        ("dataChange", pa.bool_()),
                        ("deletionVector", vectors),
                    ]
                ),
            ),
            (
                "metaData",
                pa.struct(
                    [
                        ("id", text),
                        ("schemaString", text),
                        ("partitionColumns", pa.list_(text)),
                        ("configuration", pairs),
                        ("createdTime", long),
                    ]
                ),
            ),
            ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), *features])),
            ("checkpointMetadata", pa.struct([("version", long)])),
            ("sidecar", pa.struct([("path", text), ("sizeInBytes", long), ("modificationTime", long)])),
        ]
    )
