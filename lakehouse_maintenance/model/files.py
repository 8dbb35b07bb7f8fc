"""Facts about the files of an Iceberg snapshot, as manifests tell them (Iceberg spec: Manifests)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from lakehouse_maintenance.model.sort_orders import SortField


class Content(IntEnum):
    """`content` of a manifest entry's data file."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One live entry of a snapshot, with everything that the spec lets a reader inherit filled in.

    `partition`: canonical JSON of the raw partition tuple; within one spec, equal text means equal tuple.
    `records`: rows of a data file, deletes of a delete file. `size`: bytes (of the blob, for a deletion vector).
    `sequence_number`: the data sequence number (0 in v1). `snapshot_id`: the snapshot that added the file.
    `referenced_data_file`: for position deletes, the one data file they are for, where metadata proves that there is
    only one. `content_offset`: of a deletion vector inside its Puffin file; with the path, a file's identity.
    `equality_ids`: field ids that an equality delete compares. `first_row_id`: of a v3 data file, inherited ones
    filled in. `sort_order_id`: the order that the writer says the rows have; None or 0 where it says none.
    """

    path: str
    content: Content
    file_format: str
    spec_id: int
    partition: str
    records: int
    size: int
    sequence_number: int
    snapshot_id: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    equality_ids: tuple[int, ...] = ()
    first_row_id: int | None = None
    sort_order_id: int | None = None

    @property
    def identity(self) -> tuple[str, int | None]:
        """A Puffin file holds many deletion vectors: its path alone names none of them."""
        return self.path, self.content_offset

    @property
    def partition_id(self) -> tuple[int, str]:
        """Spec and partition tuple."""
        return self.spec_id, self.partition


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table's current metadata says, as far as decisions need it; one reading of one `metadata.json`.

    `snapshot_id`: head of `branch`, None for an empty table. `sequence_number`: of that head. `snapshot_times`:
    snapshot id → milliseconds since 1970. `features`: what our data work cannot keep (encryption, variant, …).
    `sort_orders`: id → terms of the table's orders, None for one with a term that is not known here; 0 is the id of
    "unsorted". `column_types`: dotted name → type of the current schema's primitive columns outside lists and maps.
    `specs`: partition spec id → why no rows can be written under it, None where they can.
    """

    table: str
    uuid: str
    format_version: int
    location: str
    metadata_location: str
    snapshot_id: int | None
    sequence_number: int
    properties: dict[str, str]
    snapshot_times: dict[int, int]
    default_spec_id: int = 0
    features: tuple[str, ...] = ()
    branch: str = "main"
    default_sort_order_id: int = 0
    sort_orders: dict[int, tuple[SortField, ...] | None] = field(default_factory=dict)
    column_types: dict[str, str] = field(default_factory=dict)
    specs: Mapping[int, str | None] = field(default_factory=lambda: {0: None})
