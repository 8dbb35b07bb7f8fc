"""The only code that commits to Iceberg tables.

A commit here is one call of the catalog's public `commit_table`, which deletes nothing by itself: neither what a
failed attempt wrote, nor old metadata after a successful one. Files of an attempt that did not become visible stay;
every one was told to `announce` before it was written.

Every attempt starts from the table as it is then:
  1. load the pointer and the metadata; if a snapshot of an earlier attempt is there, that attempt went through;
  2. check that the change still fits that head (Change.misfits), else raise Outdated and commit nothing;
  3. write manifests and list; tell `on_attempt`; check the lease;
  4. commit, requiring that branch and sequence number are those of step 1.

After an answer that was lost nobody knows whether the commit is visible. It cannot become visible twice: each attempt
requires the branch to stand where it was staged from, so once one of them moves the branch, the others are void. So
trying again from step 1 is safe, and cleaning up is not.
"""

from __future__ import annotations

import json
import random
import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
    ValidatableTableRequirement,
)

from lakehouse_maintenance.iceberg.answers import Answer, answer
from lakehouse_maintenance.iceberg.lossless import lost_paths
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestReader
from lakehouse_maintenance.iceberg.metadata import MAIN, Metadata, read_metadata
from lakehouse_maintenance.iceberg.metadata import Snapshot as SnapshotInfo
from lakehouse_maintenance.iceberg.staging import Attempt, Staged
from lakehouse_maintenance.model.errors import (
    CommitConflictError,
    CommitUnknownError,
    LakehouseError,
    UnknownTableError,
    UnsupportedError,
)
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.support import NO_ROW_IDS, OWN_WRITER, UNREADABLE, WOULD_LOSE

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse_maintenance.catalogs import Catalog


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the snapshot's summary says of us."""

    run_id: str
    action: str
    plan: str

    def properties(self) -> dict[str, str]:
        """Summary properties."""
        return {
            "lakehouse-maintenance.run-id": self.run_id,
            "lakehouse-maintenance.action": self.action,
            "lakehouse-maintenance.plan": self.plan,
        }


@dataclass(frozen=True, slots=True)
class Base:
    """What an attempt to commit starts from: it can become visible only while the branch stands there.

    `sequence_number`: the table's last one then. It only grows (always 0 in version 1).
    """

    uuid: str
    branch: str
    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class Committed:
    """`snapshot_id`: ours; `previous_snapshot_id`: the head it replaced, to roll back to.

    `files`: its manifests and list.
    """

    snapshot_id: int
    previous_snapshot_id: int
    attempts: int
    removed_delete_files: int
    added_files: tuple[str, ...]
    files: tuple[str, ...] = ()


class Outdated(Exception):
    """Some parts of a change no longer fit the table: read and write those anew. Nothing was committed.

    `reasons`: index of the part (of a rewrite: the group) → why.
    """

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


class AssertLastSequenceNumber(ValidatableTableRequirement):
    """Checked by catalogs that apply updates in this process; it is never sent to a REST catalog.

    A commit to another branch leaves our branch where it was and takes the sequence number we staged with.
    """

    type: Literal["assert-last-sequence-number"] = "assert-last-sequence-number"
    last_sequence_number: int

    def validate(self, base_metadata: Any) -> None:  # type: ignore[override]
        """Raises CommitFailedException where the number moved."""
        found = None if base_metadata is None else getattr(base_metadata, "last_sequence_number", None) or 0
        if found != self.last_sequence_number:
            raise CommitFailedException(f"last sequence number is {found}, not {self.last_sequence_number}")


class AssertFormatVersion(ValidatableTableRequirement):
    """Checked likewise. An upgrade makes no snapshot, and what we staged is of the version before: without row ids on a
    table of version 3, without a sequence number on one of version 2."""

    type: Literal["assert-format-version"] = "assert-format-version"
    format_version: int

    def validate(self, base_metadata: Any) -> None:  # type: ignore[override]
        """Raises CommitFailedException where the table was upgraded."""
        found = None if base_metadata is None else base_metadata.format_version
        if found != self.format_version:
            raise CommitFailedException(f"format version is {found}, not {self.format_version}")


LOOKED = (CommitConflictError, UnknownTableError, UnsupportedError)
"""What `load_for_commit` raises when it saw how things are; its other errors mean that it saw nothing."""


def pause(attempt: int) -> None:
    """Waits before the next attempt: longer each time, and not in step with other writers."""
    time.sleep(random.uniform(0, min(4.0, 0.1 * 2**attempt)))


def obstacle(catalog: Catalog, metadata: Metadata) -> str | None:
    """Why no commit to a table of format version 3 can be made through this catalog; None where nothing is known.

    For plans, before anything is read or written; `load_for_commit` looks again. No I/O.
    """
    if metadata.format_version < 3:
        return None
    if not catalog.commits_v3:
        return OWN_WRITER.format(catalog.name)
    if metadata.next_row_id is None:
        return NO_ROW_IDS
    try:
        parsed = TableMetadataUtil.parse_raw(json.dumps(metadata.raw))
    except Exception as error:  # noqa: BLE001  # its models raise errors of many kinds; all mean that they cannot read it
        named = ", ".join(metadata.features) or f"{type(error).__name__}: {error}".splitlines()[0]
        return UNREADABLE.format(named)
    if not catalog.client_side_commits:
        return None
    lost = lost_paths(metadata.raw, parsed.model_dump(mode="json", by_alias=True))
    return WOULD_LOSE.format(", ".join(lost[:3])) if lost else None


def load_for_commit(
    catalog: Catalog, name: TableName, uuid: str, cache: BlobCache | None
) -> tuple[Table, Metadata, ManifestReader]:
    """The table as it is now, if we may commit to it.

    Raises CommitConflictError where the name is another table's by now, UnsupportedError where a commit would lose
    something, and what loading raises.
    """
    table = catalog.load(name)
    storage = catalog.storage_of(table)
    metadata = read_metadata(storage, str(name), table.metadata_location)
    if metadata.uuid != uuid:
        raise CommitConflictError(f"{name} is another table now (it was dropped and made anew)", field=str(name))
    if "table-uuid" not in metadata.raw:
        raise UnsupportedError(
            f"{name} has no table-uuid, without which no commit can make sure that it is still the same table",
            field=str(name),
            hint="a table of an old writer: any commit of a current engine gives it one",
        )
    if not catalog.commits_v3 and metadata.format_version > 2:
        raise UnsupportedError(f"{name}: {OWN_WRITER.format(catalog.name)}", field=str(name))
    if metadata.format_version > 2 and metadata.next_row_id is None:
        raise UnsupportedError(f"{name}: {NO_ROW_IDS}", field=str(name))
    if catalog.client_side_commits:
        lost = lost_paths(metadata.raw, table.metadata.model_dump(mode="json", by_alias=True))
        if lost:
            raise UnsupportedError(
                f"{name}: {WOULD_LOSE.format(', '.join(lost[:3]))}",
                field=str(name),
                hint="commit through a REST catalog, or with the engine that wrote this metadata",
            )
    return table, metadata, ManifestReader(storage, str(name), cache)


def load_again(
    load: Callable[[], tuple[Table, Metadata, ManifestReader]],
    last: Exception | None,
    unknown: Callable[[Exception], CommitUnknownError],
) -> tuple[Table, Metadata, ManifestReader]:
    """The table before an attempt; `last`: what the attempt before raised. `load`: calls `load_for_commit`.

    A conflict may be with our own request, repeated by a client or gateway: without a look it is not known.
    """
    try:
        return load()
    except LakehouseError as error:
        if last is None or isinstance(error, LOOKED):
            raise
        raise unknown(last) from error


class Change(Protocol):
    """What one snapshot brings into a branch; staged anew for each attempt from the table as it is then."""

    def misfits(self, metadata: Metadata, head: SnapshotInfo, reader: ManifestReader) -> Mapping[int, str]:
        """Parts that do not fit this head any more, each with the reason; empty where all fit."""
        ...

    def stage(self, at: Attempt) -> Staged | None:
        """Writes manifests and list for a snapshot on the attempt's head; None where nothing is left to do there."""
        ...


@dataclass
class ReplaceCommit:
    """One REPLACE to bring into a table: configured once, run once.

    `guard`: raises LeaseLostError where we may no longer commit; called right before each commit.
    `on_attempt`: told snapshot id, metadata files and base of each attempt, before the catalog is called.
    `announce`: told every path before anything is written to it; a few of them may never be.
    """

    catalog: Catalog
    name: TableName
    uuid: str
    stamp: Stamp
    guard: Callable[[], None]
    on_attempt: Callable[[int, tuple[str, ...], Base], None]
    announce: Callable[[Sequence[str]], None] = lambda paths: None
    cache: BlobCache | None = None
    branch: str = MAIN
    attempts: int = 12
    pause: Callable[[int], None] = pause

    def run(self, change: Change) -> Committed | None:
        """Commits the change in one snapshot; None where the table as it is now leaves nothing to do.

        Raises Outdated (nothing committed, redo those parts), CommitConflictError (rejected for good),
        CommitUnknownError (may be visible; clean nothing), LeaseLostError, UnsupportedError, TableUnreadableError.
        """
        tried: dict[int, tuple[int, Staged]] = {}
        unknown: Exception | None = None
        last: Exception | None = None
        for attempt in range(1, self.attempts + 1):
            try:
                table, metadata, reader = self._load_again(tried, last)
                done = self._went_through(metadata, tried)
                if done is not None:
                    return done
                head = self._head(metadata)
                self._refuse_outdated(change.misfits(metadata, head, reader), unknown, tried)
                staged = change.stage(Attempt(table, metadata, head, reader, self.announce))
                if staged is None:
                    if unknown is not None:
                        # Our own lost commit may be what left nothing to do, and somebody expired its snapshot since.
                        raise self._unknown(unknown, tried)
                    return None
                base = Base(metadata.uuid, self.branch, head.snapshot_id, metadata.last_sequence_number)
                self.on_attempt(staged.snapshot_id, staged.files, base)
                # In this order: a process that sleeps through the end of its lease has told of the attempt before the
                # next run reads what was told, or is stopped here. No attempt is made that nobody knows of.
                self.guard()
            except LakehouseError as error:
                # Whatever keeps us from another attempt, the one before may be visible.
                if unknown is None or isinstance(error, CommitUnknownError):
                    raise
                raise self._unknown(unknown, tried) from error
            tried[staged.snapshot_id] = (head.snapshot_id, staged)
            try:
                self._commit(table, metadata, head, staged)
            except Exception as error:
                # Drivers, HTTP clients and PyIceberg raise errors of their own.
                last = error
                said = answer(error, client_side=self.catalog.client_side_commits)
                if said is Answer.LOST:
                    unknown = error
                # Our sequence number, taken through another branch, is refused too; where the table stands still, the
                # catalog refuses this commit whatever we do.
                elif said is Answer.DENIED or (
                    said is Answer.REFUSED and unknown is None and self._stands_still(metadata)
                ):
                    # Of a request that a proxy or client sent twice we see the second answer.
                    done = self._look_again(error, tried)
                    if done is not None:
                        return done
                    raise self._rejected(error, unknown, tried) from error
            else:
                return self._committed(staged, head.snapshot_id, attempt)
            self.pause(attempt)
        done = self._look_again(last, tried)
        if done is not None:
            return done
        if unknown is not None:
            raise self._unknown(unknown, tried) from unknown
        raise CommitConflictError(
            f"{self.name}: other writers won {self.attempts} times in a row: {last}",
            field=str(self.name),
            hint="nothing was changed; try again when the table is quieter",
        )

    def _load(self) -> tuple[Table, Metadata, ManifestReader]:
        return load_for_commit(self.catalog, self.name, self.uuid, self.cache)

    def _head(self, metadata: Metadata) -> SnapshotInfo:
        head = metadata.head(self.branch)
        if head is None:
            raise CommitConflictError(f"{self.name}: branch {self.branch} is gone", field=str(self.name))
        return head

    def _refuse_outdated(
        self, reasons: Mapping[int, str], unknown: Exception | None, tried: dict[int, tuple[int, Staged]]
    ) -> None:
        if not reasons:
            return
        if unknown is not None:
            # Our own lost commit may be what moved the table, expired since: only a person can tell.
            raise self._unknown(unknown, tried)
        raise Outdated(dict(reasons))

    def _commit(self, table: Table, metadata: Metadata, head: SnapshotInfo, staged: Staged) -> None:
        version = metadata.format_version
        ref = metadata.refs[self.branch]
        requirements: list[Any] = [
            AssertTableUUID(uuid=uuids.UUID(metadata.uuid)),
            AssertRefSnapshotId(ref=self.branch, snapshot_id=head.snapshot_id),
        ]
        if self.catalog.client_side_commits:
            requirements.append(AssertLastSequenceNumber(last_sequence_number=metadata.last_sequence_number))
            requirements.append(AssertFormatVersion(format_version=version))
        snapshot = Snapshot(
            snapshot_id=staged.snapshot_id,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=staged.sequence_number if version > 1 else None,
            timestamp_ms=max(int(time.time() * 1000), int(metadata.raw.get("last-updated-ms") or 0)),
            manifest_list=staged.manifest_list,
            schema_id=metadata.raw.get("current-schema-id"),
            summary=Summary(Operation.REPLACE, **staged.summary, **self.stamp.properties()),
            first_row_id=staged.first_row_id,
            added_rows=staged.added_rows,
        )
        updates: tuple[TableUpdate, ...] = (
            AddSnapshotUpdate(snapshot=snapshot),
            # This replaces the whole ref: its retention goes along.
            SetSnapshotRefUpdate(
                ref_name=self.branch,
                type=SnapshotRefType.BRANCH,
                snapshot_id=staged.snapshot_id,
                max_ref_age_ms=ref.max_ref_age_ms,
                max_snapshot_age_ms=ref.max_snapshot_age_ms,
                min_snapshots_to_keep=ref.min_snapshots_to_keep,
            ),
        )
        self.catalog.pyiceberg.commit_table(table, tuple(requirements), updates)

    def _stands_still(self, metadata: Metadata) -> bool:
        try:
            _, now, _ = self._load()
        except LakehouseError:
            return False  # not known: the next attempt looks again
        seen = (metadata.format_version, metadata.last_sequence_number, metadata.refs)
        return (now.format_version, now.last_sequence_number, now.refs) == seen

    def _went_through(self, metadata: Metadata, tried: dict[int, tuple[int, Staged]]) -> Committed | None:
        for snapshot_id, (parent, staged) in tried.items():
            if snapshot_id in metadata.snapshots:
                return self._committed(staged, parent, len(tried))
        return None

    def _load_again(
        self, tried: dict[int, tuple[int, Staged]], last: Exception | None
    ) -> tuple[Table, Metadata, ManifestReader]:
        return load_again(self._load, last, lambda error: self._unknown(error, tried))

    def _look_again(self, last: Exception | None, tried: dict[int, tuple[int, Staged]]) -> Committed | None:
        try:
            return self._went_through(self._load_again(tried, last)[1], tried)
        except CommitUnknownError:
            raise
        except LakehouseError:
            return None

    def _committed(self, staged: Staged, parent: int, attempts: int) -> Committed:
        return Committed(
            staged.snapshot_id, parent, attempts, staged.removed_delete_files, staged.added_files, staged.files
        )

    def _rejected(
        self, error: Exception, unknown: Exception | None, tried: dict[int, tuple[int, Staged]]
    ) -> LakehouseError:
        if unknown is not None:
            return self._unknown(unknown, tried)
        return CommitConflictError(f"{self.name}: the catalog refused the commit: {error}", field=str(self.name))

    def _unknown(self, error: Exception, tried: dict[int, tuple[int, Staged]]) -> CommitUnknownError:
        ids = ", ".join(str(snapshot_id) for snapshot_id in tried)
        return CommitUnknownError(
            f"{self.name}: the catalog's answer to our commit was lost ({type(error).__name__}: {error}); "
            "it may or may not be visible, and nothing was cleaned up",
            field=str(self.name),
            hint=f"look for run id {self.stamp.run_id} in the summary of snapshot {ids}; the next run does so first",
        )
