"""A version of a Delta table, replayed from its log (Delta protocol: Action Reconciliation)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehouse_maintenance.delta.actions import AddFile, Protocol, RemoveFile, TableMetadata
from lakehouse_maintenance.delta.checkpoints import CheckpointHeader, read_files, read_header
from lakehouse_maintenance.delta.commits import read_actions
from lakehouse_maintenance.delta.listing import Checkpoint, LogListing
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage

Key = tuple[Location, str | None]


@dataclass(frozen=True, slots=True)
class DeltaSnapshot:
    """One version. What changed since its checkpoint is held in memory; the checkpoint's files are streamed.

    `unsupported`: names of features under which the files below may not be all, or not these; empty: they are.
    """

    root: Location
    version: int
    protocol: Protocol
    metadata: TableMetadata
    _storage: Storage
    _listing: LogListing
    _base: tuple[Checkpoint, CheckpointHeader] | None
    _changed: dict[Key, AddFile | RemoveFile]

    @property
    def unsupported(self) -> tuple[str, ...]:
        return self.protocol.unsupported

    @property
    def iceberg_metadata(self) -> Location | None:
        """The folder of the Iceberg metadata that the table keeps of itself (UniForm), None where it keeps none."""
        return self._beside("iceberg", "metadata")

    @property
    def hudi_metadata(self) -> Location | None:
        """As `iceberg_metadata`, for Hudi."""
        return self._beside("hudi", ".hoodie")

    def active(self) -> Iterator[AddFile]:
        """The files that make up this version, in no order, each logical file once. Errors as `files`."""
        return (action for action in self.files() if isinstance(action, AddFile))

    def tombstones(self) -> Iterator[RemoveFile]:
        """Files removed before or in this version, as far as the log still tells of them. Errors as `files`."""
        return (action for action in self.files() if isinstance(action, RemoveFile))

    def files(self) -> Iterator[AddFile | RemoveFile]:
        """Both in one pass. A checkpoint is read anew at each call.

        Raises TableUnreadableError part-way: what was given until then is not all there is.
        """
        if self._base is not None:
            checkpoint, header = self._base
            for _, action in read_files(self._storage, self._listing, checkpoint, header):
                if action.key not in self._changed:
                    yield action
        yield from self._changed.values()

    def _beside(self, name: str, folder: str) -> Location | None:
        return self.root.child(folder) if name in self.metadata.universal_formats else None


def replay(storage: Storage, listing: LogListing, version: int) -> DeltaSnapshot:
    """The snapshot of `version`. Raises TableUnreadableError for gaps and for anything that cannot be read."""
    base = listing.base_of(version)
    commits = listing.commits_after(base, version)
    header = None if base is None else read_header(storage, listing, base)
    protocol = None if header is None else header.protocol
    metadata = None if header is None else header.metadata
    changed: dict[Key, AddFile | RemoveFile] = {}
    for _, actions in read_actions(storage, listing, commits):
        for action in actions:
            if isinstance(action, AddFile | RemoveFile):
                changed[action.key] = action
            elif isinstance(action, Protocol):
                protocol = action
            elif isinstance(action, TableMetadata):
                metadata = action
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise listing.unreadable(f"no commit up to it has a {missing} action", listing.name_of(commits[-1]))
    return DeltaSnapshot(
        root=listing.root,
        version=version,
        protocol=protocol,
        metadata=metadata,
        _storage=storage,
        _listing=listing,
        _base=None if base is None or header is None else (base, header),
        _changed=changed,
    )
