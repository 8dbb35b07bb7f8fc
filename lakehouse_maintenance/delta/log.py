"""A Delta table's transaction log: its state, its versions, and every file that it owns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from lakehouse_maintenance.delta.actions import (
    Action,
    AddFile,
    ChangeFile,
    DeltaReference,
    DeltaReferenceKind,
    Protocol,
    RemoveFile,
)
from lakehouse_maintenance.delta.checkpoints import read_files, read_header
from lakehouse_maintenance.delta.commits import PIECE, committed_ms, read_actions
from lakehouse_maintenance.delta.listing import Checkpoint, LogListing, list_files
from lakehouse_maintenance.delta.paths import log_folder
from lakehouse_maintenance.delta.snapshot import DeltaSnapshot, replay
from lakehouse_maintenance.model.errors import UnsupportedError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage


class DeltaLog:
    """One look at a table's log: everything below follows from a single listing. Nothing is cached."""

    def __init__(self, storage: Storage, listing: LogListing) -> None:
        self._storage = storage
        self.listing = listing

    @property
    def root(self) -> Location:
        """The table's folder."""
        return self.listing.root

    @property
    def token(self) -> str:
        """A digest of names, sizes, etags and times of the log's files: equal means that the log has not changed."""
        return self.listing.token

    @property
    def latest_version(self) -> int:
        """The newest published version. Raises TableUnreadableError where the log holds none."""
        return self.listing.latest_version

    def snapshot(self, version: int | None = None) -> DeltaSnapshot:
        """The table at `version`, the latest by default.

        Raises TableUnreadableError for a version that cannot be replayed from what the log still holds. Features that
        are not understood do not raise: see `DeltaSnapshot.unsupported`.
        """
        latest = self.latest_version
        if version is not None and not 0 <= version <= latest:
            raise self.listing.unreadable(f"there is no version {version}; the latest is {latest}")
        return replay(self._storage, self.listing, latest if version is None else version)

    def last_commit_ms(self) -> int | None:
        """When the latest version was committed, in ms since 1970: as its commit says, else when its file was written.

        Raises TableUnreadableError where there is no version, StorageError where the commit cannot be read.
        """
        version = self.latest_version
        commit = self.listing.commits.get(version)
        if commit is not None and commit.size:
            data = self._storage.read(commit.location, 0, min(commit.size, PIECE))
            if (told := committed_ms(data)) is not None:
                return told
        file = commit or self.listing.checkpoints[-1].files[0]
        return None if file.modified is None else int(file.modified.timestamp() * 1000)

    def references(self) -> Iterator[DeltaReference]:
        """Every file that the log consists of or names: in any commit still there, and in its checkpoints.

        Files of versions that can still be read are among them, and so are removed files until their tombstone ends.
        The same file is given once for each action that names it. Of the checkpoints the oldest and the newest are
        read: what the others name, the oldest one or a commit after it names.
        Memory: as in `read_actions` and `read_files`. Raises TableUnreadableError and UnsupportedError, possibly
        part-way: then nothing may be concluded from what was given.
        """
        latest = self.latest_version
        for name, info in self.listing.files.items():
            yield DeltaReference(DeltaReferenceKind.LOG, info.location, None, name, info.size)
        yield from self._named_by_commits(latest)
        for checkpoint in self._checkpoints_to_read():
            header = read_header(self._storage, self.listing, checkpoint)
            self._require_complete(header.protocol)
            for file, action in read_files(self._storage, self.listing, checkpoint, header):
                yield from references_of(action, self.listing.name_of(file))

    def _named_by_commits(self, latest: int) -> Iterator[DeltaReference]:
        commits = self.listing.all_commits()
        compacted = [compaction.file for compaction in self.listing.compactions]
        protocol: Protocol | None = None
        for file, actions in read_actions(self._storage, self.listing, [*commits, *compacted, *self.listing.staged]):
            by = self.listing.name_of(file)
            for action in actions:
                if isinstance(action, Protocol):
                    protocol = action
                    self._require_complete(action)
                yield from references_of(action, by)
        if protocol is None and not self.listing.checkpoints:
            raise self.listing.unreadable("no commit up to it has a protocol action", f"{latest:020d}.json")

    def _checkpoints_to_read(self) -> list[Checkpoint]:
        checkpoints = self.listing.checkpoints
        if not checkpoints:
            return []
        # The newest is what readers of the table use. Where the commits begin with version 0, it is read as a proof
        # alone; elsewhere the oldest stands in for all commits that are gone.
        oldest = [] if 0 in self.listing.commits or len(checkpoints) == 1 else [checkpoints[0]]
        return [*oldest, checkpoints[-1]]

    def _require_complete(self, protocol: Protocol) -> None:
        if protocol.unsupported:
            names = ", ".join(protocol.unsupported)
            raise UnsupportedError(
                f"the Delta log of {self.root.text} may own files that it does not show: it uses {names}",
                field=self.root.text,
                hint="nothing of the table, or around it, is removed; an engine that knows these features can tell",
            )


def find_log(storage: Storage, root: Location) -> DeltaLog | None:
    """The log of the table at `root`; None where `_delta_log/` holds nothing. Lists that folder once.

    Raises ListingIncompleteError or another StorageError where the store failed, TableUnreadableError where two files
    claim one version.
    """
    objects = chain.from_iterable(storage.list(log_folder(root)))
    listing = list_files(root, objects)
    return None if listing is None else DeltaLog(storage, listing)


def references(storage: Storage, root: Location) -> Iterator[DeltaReference]:
    """`DeltaLog.references` of the table at `root`; nothing where there is no log."""
    log = find_log(storage, root)
    if log is not None:
        yield from log.references()


def references_of(action: Action, by: str) -> Iterator[DeltaReference]:
    """The files that one action names."""
    if isinstance(action, AddFile | RemoveFile):
        kind = DeltaReferenceKind.DATA if isinstance(action, AddFile) else DeltaReferenceKind.TOMBSTONE
        yield DeltaReference(kind, action.location, action.path, by, action.size)
        vector = action.deletion_vector
        if vector is not None and vector.location is not None:
            yield DeltaReference(DeltaReferenceKind.DELETION_VECTOR, vector.location, None, by)
    elif isinstance(action, ChangeFile):
        yield DeltaReference(DeltaReferenceKind.CHANGE_DATA, action.location, action.path, by, action.size)
