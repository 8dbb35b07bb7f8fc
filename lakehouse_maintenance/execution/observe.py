"""One look at a table: its metadata, its health, and the groups that a plan could rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.iceberg.expiry import only_reached_by
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.measure import measure
from lakehouse_maintenance.iceberg.metadata import MAIN, Metadata, read_metadata
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.planning.compaction import GroupPlan, plan_groups
from lakehouse_maintenance.planning.expiring import ExpiryFacts, Reach
from lakehouse_maintenance.planning.expiry import expired_snapshots
from lakehouse_maintenance.planning.rewrite_options import RewriteOptions
from lakehouse_maintenance.planning.score import score
from lakehouse_maintenance.planning.triggers import due_actions
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from lakehouse_maintenance.config import Policy


@dataclass(frozen=True, slots=True)
class Observed:
    """A table as one metadata file describes it. `branch`: the one whose head is meant by all that reads files."""

    name: TableName
    metadata: Metadata
    storage: Storage
    reader: ManifestReader
    branch: str = MAIN

    def on(self, branch: str) -> Observed:
        """The same look, at another branch. Raises InputError with field `branch` where there is no such branch."""
        ref = self.metadata.refs.get(branch)
        if branch == MAIN or (ref is not None and ref.is_branch):
            return replace(self, branch=branch)
        found = sorted(ref.name for ref in self.metadata.refs.values() if ref.is_branch)
        what = "is a tag" if ref is not None else "does not exist"
        raise InputError(
            f"{self.name}: branch {branch!r} {what}",
            field="branch",
            hint=f"branches of this table: {', '.join(found) or 'none'}",
        )

    def manifests(self, *, deletes: bool) -> list[ManifestFile]:
        """The head's manifests of one content that hold live files."""
        head = self.metadata.head(self.branch)
        found = [] if head is None else self.reader.manifests(head)
        return [manifest for manifest in found if manifest.deletes is deletes and manifest.live_files != 0]

    def delete_index(self) -> DeleteIndex:
        """The head's delete files."""
        deletes = self.reader.live_files(self.manifests(deletes=True))
        return DeleteIndex(deletes, self.metadata.unpartitioned_specs)

    def data_files(self, paths: frozenset[str]) -> dict[str, LiveFile]:
        """Those of the head's data files that have these paths.

        A file that is listed more than once is left out: each entry has its own sequence number, so deletes may reach
        one of them and not the other, and none can be taken out alone.
        """
        found: dict[str, LiveFile] = {}
        twice: set[str] = set()
        for file in self.reader.live_files(self.manifests(deletes=False)):
            if file.path in paths:
                if file.path in found:
                    twice.add(file.path)
                found[file.path] = file
        return {path: file for path, file in found.items() if path not in twice}

    def reach(self, expired: frozenset[int]) -> Reach:
        """What only these snapshots reach."""
        found = list(only_reached_by(self.metadata, self.reader, expired))
        return Reach(len(found), sum(reference.size or 0 for reference in found))

    def groups(self, options: RewriteOptions, now_ms: int) -> GroupPlan:
        """What bin-packing would rewrite."""
        files = self.reader.live_files(self.manifests(deletes=False))
        return plan_groups(self.metadata.state(self.branch), files, self.delete_index(), options, now_ms=now_ms)


def observe(catalog: Catalog, name: TableName, cache: BlobCache | None = None) -> Observed:
    """Loads the table's current metadata; manifests are read when they are asked for.

    Raises UnknownTableError, CatalogUnavailableError, TableUnreadableError, StorageError.
    """
    location, storage = catalog.locate(name)
    metadata = read_metadata(storage, str(name), location)
    return Observed(name, metadata, storage, ManifestReader(storage, str(name), cache))


def expiry_facts(metadata: Metadata) -> ExpiryFacts:
    """Snapshots and refs, for retention rules."""
    refs = tuple(metadata.refs.values())
    return ExpiryFacts(metadata.snapshot_facts(), refs, metadata.properties, metadata.began_ms())


def health_of(
    observed: Observed, policy: Policy, last_run_ms: Mapping[str, int], now_ms: int, *, exact: bool = False
) -> TableHealth:
    """Numbers from metadata, score, and what the policy makes due. `exact`: metadata files are looked up for size."""
    metadata = observed.metadata
    expired = expired_snapshots(
        metadata.snapshot_facts(), metadata.refs.values(), policy.expire_snapshots, metadata.properties, now_ms
    )
    measured = measure(
        metadata,
        observed.reader,
        small_below=_small_below(policy, metadata),
        expired=frozenset(expired.snapshot_ids),
    )
    if exact:
        measured = replace(measured, metadata_bytes=_metadata_bytes(observed))
    measured = replace(measured, due=due_actions(measured, policy, last_run_ms, now_ms))
    return replace(measured, score=score(measured))


def _small_below(policy: Policy, metadata: Metadata) -> int:
    """The size under which compaction takes a file for too small; the default where the options do not fit."""
    try:
        options = RewriteOptions.resolve(policy.rewrite_data_files.options, metadata.properties)
    except InputError:
        options = RewriteOptions.resolve({}, {})
    return options.min_file_size_bytes


def _metadata_bytes(observed: Observed) -> int:
    from lakehouse_maintenance.model.locations import Location

    paths = [observed.metadata.location, *observed.metadata.log_locations()]
    found = observed.storage.stat_many(Location.parse(path) for path in paths)
    return sum(info.size for _, info in found if info is not None)
