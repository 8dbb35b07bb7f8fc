"""One look at a table: its metadata, its health, and the groups that a plan could rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.execution.memory import OrphanCount
from lakehouse_maintenance.iceberg.expiry import only_reached_by
from lakehouse_maintenance.iceberg.file_filter import FileFilter
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.measure import measure
from lakehouse_maintenance.iceberg.metadata import MAIN, Metadata, read_metadata
from lakehouse_maintenance.iceberg.partition_ranges import manifest_facts
from lakehouse_maintenance.iceberg.sort_keys import key_columns
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.deletes import DeleteIndex
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.files import LiveFile
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.manifests import ManifestFacts
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.planning.advice import advise, to_set
from lakehouse_maintenance.planning.compaction import GroupPlan, plan_groups
from lakehouse_maintenance.planning.expiring import ExpiryFacts, Reach
from lakehouse_maintenance.planning.expiry import expired_snapshots
from lakehouse_maintenance.planning.metadata_history import MetadataVersions, prunable
from lakehouse_maintenance.planning.position_deletes import DeletePlan, plan_deletes
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

    def versions(self) -> MetadataVersions:
        """The metadata file, and those that its log names, with their sizes in storage."""
        current, log = self.metadata.location, tuple(self.metadata.log_locations())
        by_location = {Location.parse(path): path for path in (*log, current)}
        found = self.storage.stat_many(by_location)
        return MetadataVersions(current, log, {by_location[at]: info.size for at, info in found if info is not None})

    def manifest_facts(self, branch: str) -> list[ManifestFacts]:
        """The manifests of a branch's head, as its list tells them."""
        head = self.metadata.head(branch)
        return [] if head is None else manifest_facts(self.metadata, self.reader.manifests(head))

    def delete_plan(self, options: RewriteOptions, branch: str, only: frozenset[str] | None = None) -> DeletePlan:
        """Which position delete files of a branch's head would be rewritten; `only`: of those with these paths."""
        head = self.metadata.head(branch)
        manifests = [] if head is None else [m for m in self.reader.manifests(head) if m.live_files != 0]
        deletes = self.reader.live_files(m for m in manifests if m.deletes)
        return plan_deletes(
            (delete for delete in deletes if only is None or delete.path in only),
            self.reader.live_files(m for m in manifests if not m.deletes),
            self.metadata.unpartitioned_specs,
            options,
            self.metadata.properties,
        )

    def groups(self, options: RewriteOptions, now_ms: int, where: str | None = None) -> GroupPlan:
        """What bin-packing would rewrite, of the files that may hold rows that `where` is true for.

        Raises InputError of field `where`, before any file is looked at.
        """
        if where is None:
            files = self.reader.live_files(self.manifests(deletes=False))
            return plan_groups(self.metadata.state(self.branch), files, self.delete_index(), options, now_ms=now_ms)
        choice = _Choice(FileFilter(self.metadata, where).choose(self.reader, self.manifests(deletes=False)))
        return plan_groups(
            self.metadata.state(self.branch), choice.files(), self.delete_index(), options, now_ms=now_ms, chosen=choice
        )


class _Choice:
    """Tells of the file that was given out last whether it is chosen: so no verdict has to be kept."""

    def __init__(self, verdicts: Iterator[tuple[LiveFile, bool]]) -> None:
        self._verdicts = verdicts
        self._verdict = False

    def files(self) -> Iterator[LiveFile]:
        for file, verdict in self._verdicts:
            self._verdict = verdict
            yield file

    def __call__(self, file: LiveFile) -> bool:
        return self._verdict


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
    observed: Observed,
    policy: Policy,
    last_run_ms: Mapping[str, int],
    now_ms: int,
    *,
    exact: bool = False,
    orphans: OrphanCount | None = None,
) -> TableHealth:
    """Numbers from metadata, score, what the policy makes due, and advice. `exact`: metadata files are looked up for
    their size. `orphans`: as last counted."""
    metadata = observed.metadata
    properties = metadata.properties
    expired = expired_snapshots(
        metadata.snapshot_facts(), metadata.refs.values(), policy.expire_snapshots, properties, now_ms
    )
    options = _rewrite_options(policy, metadata)
    rewrite = policy.rewrite_data_files
    measured = measure(
        metadata,
        observed.reader,
        small_below=options.min_file_size_bytes,
        file_target=options.target_file_size_bytes,
        expired=frozenset(expired.snapshot_ids),
        keys=key_columns(metadata, rewrite.strategy, rewrite.sort_order),
    )
    is_same = orphans is not None and orphans.uuid == metadata.uuid
    measured = replace(
        measured,
        metadata_bytes=sum(observed.versions().sizes.values()) if exact else None,
        prunable_metadata_files=prunable(policy.prune_metadata, properties, measured.metadata_files - 1),
        orphan_files=orphans.files if orphans is not None and is_same else None,
        orphan_bytes=orphans.bytes if orphans is not None and is_same else None,
        orphans_counted_ms=orphans.at_ms if orphans is not None and is_same else None,
        measured_at_ms=now_ms,
        last_maintenance=_last_maintenance(measured.last_maintenance, last_run_ms),
    )
    measured = replace(measured, advice=advise(measured, properties, policy))
    measured = replace(measured, properties_to_set=len(to_set(policy, measured.advice, properties)))
    measured = replace(measured, due=due_actions(measured, policy, last_run_ms, now_ms))
    return replace(measured, score=score(measured))


def _rewrite_options(policy: Policy, metadata: Metadata) -> RewriteOptions:
    """Those that compaction would run with; the defaults where the options do not fit."""
    try:
        return RewriteOptions.resolve(policy.rewrite_data_files.options, metadata.properties)
    except InputError:
        return RewriteOptions.resolve({}, {})


def _last_maintenance(by_snapshots: Mapping[str, int], remembered: Mapping[str, int]) -> dict[str, int]:
    """Another machine's runs show in the table alone; those that committed no snapshot, in our memory alone."""
    actions = {action.value for action in Action}
    found = {action: at for action, at in remembered.items() if action in actions}
    for action, at in by_snapshots.items():
        found[action] = max(found.get(action, 0), at)
    return dict(sorted(found.items()))
