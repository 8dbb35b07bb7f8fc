"""Moving a branch to another snapshot of the table, back or forward (Iceberg spec: Snapshot References).

Only the reference changes: no snapshot and no file is added or removed. As every commit of ours it goes through the
catalog's public `commit_table`, and requires the branch to stand where its caller saw it: what somebody commits
meanwhile is never hidden unseen. An answer that is lost is looked up.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from lakehouse_maintenance.iceberg.answers import Answer, answer
from lakehouse_maintenance.iceberg.commit import load_again, load_for_commit, pause
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.iceberg.metadata import MAIN, Metadata
from lakehouse_maintenance.model.errors import CommitConflictError, CommitUnknownError, LakehouseError
from lakehouse_maintenance.model.names import TableName

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse_maintenance.catalogs import Catalog


def ancestry(metadata: Metadata, snapshot_id: int) -> Iterator[int]:
    """The snapshot and its ancestors, as far as they exist. Damaged metadata may hold a cycle: each comes once."""
    seen: set[int] = set()
    pending: int | None = snapshot_id
    while pending is not None and pending not in seen and pending in metadata.snapshots:
        seen.add(pending)
        yield pending
        pending = metadata.snapshots[pending].parent_id


def stands_behind(metadata: Metadata, branch: str, old: int, new: int) -> bool:
    """Whether the branch was moved from `old` to `new`, also where others have committed on top of `new` since."""
    head = metadata.head(branch)
    if head is None:
        return False
    line = set(ancestry(metadata, head.snapshot_id))
    return new in line and (old not in line or old in set(ancestry(metadata, new)))


@dataclass
class RollbackCommit:
    """One move of a branch: configured once, run once. `guard`: raises LeaseLostError; called before each commit."""

    catalog: Catalog
    name: TableName
    uuid: str
    old: int
    new: int
    guard: Callable[[], None]
    branch: str = MAIN
    cache: BlobCache | None = None
    attempts: int = 8
    pause: Callable[[int], None] = pause
    attempted: int = 0

    def run(self) -> None:
        """Moves the branch from snapshot `old` to snapshot `new`; its retention stays.

        Raises CommitConflictError (the branch moved meanwhile, or the catalog refused), CommitUnknownError (it may
        have moved), LeaseLostError, UnsupportedError, TableUnreadableError.
        """
        last: Exception | None = None
        is_unknown = False
        while self.attempted < self.attempts:
            try:
                table, metadata, _ = self._load(last)
                if last is not None and stands_behind(metadata, self.branch, self.old, self.new):
                    return
                self._refuse_moved(metadata)
                self.guard()
            except CommitConflictError:
                raise  # it was seen that the branch is neither at `old`, where our request could arrive, nor at `new`
            except LakehouseError as error:
                if not is_unknown or last is None:
                    raise
                raise self._unknown(last) from error
            self.attempted += 1
            try:
                self._commit(table, metadata)
            except Exception as error:
                # Drivers, HTTP clients and PyIceberg raise errors of their own.
                last = error
                said = answer(error, client_side=self.catalog.client_side_commits)
                is_unknown = is_unknown or said is Answer.LOST
                if said in (Answer.DENIED, Answer.REFUSED):
                    if self._moved(error):
                        return
                    raise self._failed(error, is_unknown=is_unknown) from error
            else:
                return
            self.pause(self.attempted)
        assert last is not None
        if not self._moved(last):
            raise self._failed(last, is_unknown=is_unknown) from last

    def _moved(self, last: Exception) -> bool:
        _, metadata, _ = self._load(last)
        return stands_behind(metadata, self.branch, self.old, self.new)

    def _failed(self, error: Exception, *, is_unknown: bool) -> LakehouseError:
        if is_unknown:
            return self._unknown(error)
        return CommitConflictError(
            f"{self.name}: the catalog refused to move branch {self.branch}: {error}", field=str(self.name)
        )

    def _load(self, last: Exception | None) -> tuple[Table, Metadata, object]:
        return load_again(lambda: load_for_commit(self.catalog, self.name, self.uuid, self.cache), last, self._unknown)

    def _refuse_moved(self, metadata: Metadata) -> None:
        head = metadata.head(self.branch)
        if head is None or head.snapshot_id != self.old:
            where = "is gone" if head is None else f"stands at snapshot {head.snapshot_id} by now"
            raise CommitConflictError(
                f"{self.name}: branch {self.branch} {where}, not at {self.old}: it was not moved",
                field=str(self.name),
                hint="look at what was committed meanwhile, and run it again",
            )
        if self.new not in metadata.snapshots:
            raise CommitConflictError(f"{self.name}: snapshot {self.new} has expired meanwhile", field=str(self.name))

    def _commit(self, table: Table, metadata: Metadata) -> None:
        ref = metadata.refs[self.branch]
        move = SetSnapshotRefUpdate(
            ref_name=self.branch,
            type=SnapshotRefType.BRANCH,
            snapshot_id=self.new,
            # This replaces the whole ref: its retention goes along.
            max_ref_age_ms=ref.max_ref_age_ms,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
        )
        requirements = (
            AssertTableUUID(uuid=uuids.UUID(metadata.uuid)),
            AssertRefSnapshotId(ref=self.branch, snapshot_id=self.old),
        )
        self.catalog.pyiceberg.commit_table(table, requirements, (move,))

    def _unknown(self, error: Exception) -> CommitUnknownError:
        return CommitUnknownError(
            f"{self.name}: the catalog's answer was lost ({type(error).__name__}: {error}); branch {self.branch} may "
            f"or may not stand at snapshot {self.new}",
            field=str(self.name),
            hint="the next run on the table looks, and tells the journal",
        )
