"""What one attempt to commit writes: manifests and a manifest list, every path announced before it is written."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from pyiceberg.table.locations import load_location_provider

from lakehouse_maintenance.iceberg.fields import AvroType
from lakehouse_maintenance.iceberg.manifests import ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.writing import write_manifest, write_manifest_list
from lakehouse_maintenance.model.errors import StorageError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_MANIFEST_TARGET_BYTES = 8 << 20
"""Iceberg's default of `commit.manifest.target-size-bytes`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The table that an attempt starts from: `head` is of the branch that is committed to.

    `announce`: told every path before anything is written to it; a few of them may never be.
    """

    table: Table
    metadata: Metadata
    head: Snapshot
    reader: ManifestReader
    announce: Callable[[Sequence[str]], None]

    @property
    def manifest_target(self) -> int:
        """`commit.manifest.target-size-bytes` of the table, in bytes."""
        asked = self.metadata.properties.get("commit.manifest.target-size-bytes", "")
        return int(asked) if asked.isdigit() and int(asked) else _MANIFEST_TARGET_BYTES


@dataclass(frozen=True, slots=True)
class Staged:
    """`files`: metadata files written for this attempt. `added_files`: data and delete files that the snapshot adds.

    `first_row_id`, `added_rows`: of the snapshot in format version 3, else None.
    """

    snapshot_id: int
    sequence_number: int
    manifest_list: str
    files: tuple[str, ...]
    summary: dict[str, str]
    added_files: tuple[str, ...]
    removed_delete_files: int
    first_row_id: int | None = None
    added_rows: int | None = None


@dataclass
class StagedWriter:
    """Writes manifests and the list of one attempt, and keeps their rows and paths.

    In order: `expect`, any number of `manifest`, `manifest_list` once. In format version 3, `first_row_id` and
    `added_rows` are what Staged needs of them, complete once the list is written.
    """

    at: Attempt
    snapshot_id: int = 0
    files: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    added_rows: int | None = None

    def __post_init__(self) -> None:
        self.snapshot_id = self.snapshot_id or _new_snapshot_id(self.at.metadata)
        self._locations = load_location_provider(self.at.table.location(), self.at.table.properties)
        self._id = uuid.uuid4()
        self._numbers = count()
        self._announced = 0

    @property
    def sequence_number(self) -> int:
        """What the snapshot gets."""
        return self.at.metadata.last_sequence_number + 1

    @property
    def first_row_id(self) -> int | None:
        """What the snapshot begins to number rows with; None before format version 3."""
        return self.at.metadata.next_row_id if self.at.metadata.format_version > 2 else None

    def expect(self, manifests: int) -> None:
        """Announces the list and the first so many manifests, before any of them is written."""
        self._announced = manifests
        self.at.announce([self._list_path, *map(self._manifest_path, range(manifests))])

    @property
    def _list_path(self) -> str:
        return str(self._locations.new_metadata_location(f"snap-{self.snapshot_id}-1-{self._id}.avro"))

    def _manifest_path(self, number: int) -> str:
        return str(self._locations.new_metadata_location(f"{self._id}-m{number}.avro"))

    def put(self, path: str, data: bytes) -> None:
        """Writes one new metadata file."""
        self.files.append(path)
        try:
            with self.at.table.io.new_output(path).create() as out:
                out.write(data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}", field=path) from error

    def manifest(self, spec_id: int, content: int, partition: AvroType, entries: Sequence[dict[str, Any]]) -> None:
        """Writes a manifest, whose row is added to `rows`. See writing.write_manifest."""
        path = self.manifest_path()
        metadata = self.at.metadata
        row = write_manifest(self.put, path, metadata, spec_id, content, partition, entries, self.snapshot_id)
        self.rows.append(row)

    def manifest_path(self) -> str:
        """Where the next manifest goes: announced, and used by nothing."""
        number = next(self._numbers)
        path = self._manifest_path(number)
        if number >= self._announced:
            self.at.announce([path])
        return path

    def manifest_list(self, rows: Sequence[dict[str, Any]]) -> str:
        """Writes the snapshot's list of these rows in their order; returns its path."""
        path = self._list_path
        number = self.sequence_number if self.at.metadata.format_version > 1 else None
        metadata, parent = self.at.metadata, self.at.head.snapshot_id
        numbered = write_manifest_list(self.put, path, metadata, rows, self.snapshot_id, parent, number)
        self.added_rows = numbered if metadata.format_version > 2 else None
        return path


def _new_snapshot_id(metadata: Metadata) -> int:
    while True:
        candidate = secrets.randbits(63)
        if candidate and candidate not in metadata.snapshots:
            return candidate
