"""What a Delta log says, as values (Delta protocol: Actions, Deletion Vectors). No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakehouse_maintenance.model.locations import Location

KNOWN_READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""Reader features under which this package finds every file that the log names: they change the log in ways that are
handled here, or only what is inside of data files."""

_NEWEST_READER_VERSION = 3
_UNPUBLISHED_COMMITS = frozenset(
    {"catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits", "coordinatedCommits-preview"}
)
"""Features whose commits may lie in a catalog, or in staging where only the catalog knows which ones count."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Versions and features that a client must know to read or write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @property
    def features(self) -> frozenset[str]:
        """All features by name. Tables of old versions (reader < 3, writer < 7) name none."""
        return self.reader_features | self.writer_features

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Why the log's files cannot be known in full from the log: unknown reader features, unpublished commits."""
        names = set(self.reader_features - KNOWN_READER_FEATURES) | (self.features & _UNPUBLISHED_COMMITS)
        if self.min_reader_version > _NEWEST_READER_VERSION:
            names.add(f"reader version {self.min_reader_version}")
        return tuple(sorted(names))


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The table's `metaData` action. `schema_string`: the schema as JSON, as written."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    created_ms: int | None = None

    @property
    def universal_formats(self) -> tuple[str, ...]:
        """Formats whose metadata the table keeps beside its log (`delta.universalFormat.enabledFormats`)."""
        text = self.configuration.get("delta.universalFormat.enabledFormats", "")
        return tuple(sorted({name.strip().lower() for name in text.split(",") if name.strip()}))


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Rows of a data file that are gone. `location`: the file that holds it; None where it is in the log itself."""

    unique_id: str
    location: Location | None
    offset: int | None
    size: int
    cardinality: int


@dataclass(frozen=True, slots=True)
class AddFile:
    """A data file of the table. `size` in bytes, `modified_ms` since the epoch.

    `path`: as written in the log, percent-encoded. `partition_values`: raw, by the names of the log (physical names
    under column mapping); None is null. `records`: rows by the statistics, those that a deletion vector takes away
    included; None where they do not tell.
    """

    location: Location
    path: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    deletion_vector: DeletionVector | None = None
    has_stats: bool = False
    records: int | None = None

    @property
    def key(self) -> tuple[Location, str | None]:
        """Identity of a logical file: data file and deletion vector."""
        return self.location, None if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A tombstone. `deleted_ms`: since the epoch; None where the log does not tell, which is as old as can be."""

    location: Location
    path: str
    deleted_ms: int | None
    size: int | None = None
    deletion_vector: DeletionVector | None = None

    @property
    def key(self) -> tuple[Location, str | None]:
        return self.location, None if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file of the change data feed (`cdc` action)."""

    location: Location
    path: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file of a v2 checkpoint that holds its file actions."""

    location: Location
    size: int | None


Action = Protocol | TableMetadata | AddFile | RemoveFile | ChangeFile | Sidecar


class DeltaReferenceKind(StrEnum):
    """Through what a Delta log owns a file."""

    DATA = "data"
    TOMBSTONE = "tombstone"
    DELETION_VECTOR = "deletion_vector"
    CHANGE_DATA = "change_data"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class DeltaReference:
    """One file that a log names or consists of.

    `path`: as written in the log, percent-encoded; None for files of the log itself. `by`: name of the commit or
    checkpoint below `_delta_log/` that names it. `size` in bytes, where the log tells it.
    """

    kind: DeltaReferenceKind
    location: Location
    path: str | None
    by: str
    size: int | None = None
