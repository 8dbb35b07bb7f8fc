"""What only expired snapshots reach, and the commit that lets them go (Iceberg spec: Snapshot Retention Policy; IM-05).

Commit first, then delete: the snapshots leave the table's metadata in one commit, and only then may files go that no
snapshot reaches any more. What is reachable is the live entries of manifests, manifests, manifest lists and statistics
files; the difference of two such sets, never a guess from one snapshot's changes (files added again, cherry-picks and
rollbacks make such guesses wrong).
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    ValidatableTableRequirement,
)

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.iceberg.answers import Answer, answer
from lakehouse_maintenance.iceberg.commit import load_again, load_for_commit, pause
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.iceberg.references import kind_of, references
from lakehouse_maintenance.iceberg.values import column_ids, column_types
from lakehouse_maintenance.model.errors import CommitConflictError, CommitUnknownError, LakehouseError
from lakehouse_maintenance.model.forms import FormIndex
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.references import Reference, ReferenceKind

if TYPE_CHECKING:
    from pyiceberg.table import Table


def only_reached_by(metadata: Metadata, reader: ManifestReader, expired: frozenset[int]) -> Iterator[Reference]:
    """Files that the expired snapshots reach and no other snapshot of the table does.

    Each manifest is read once, however many snapshots share it; those of kept snapshots only as far as the expired
    ones hold anything of their own. Memory grows with what would go. Raises TableUnreadableError before it gives
    anything out.
    """
    gone = [s for s in metadata.snapshots.values() if s.snapshot_id in expired]
    kept = [s for s in metadata.snapshots.values() if s.snapshot_id not in expired]
    kept_manifests = _manifests(reader, kept)
    only_gone = {path: m for path, m in _manifests(reader, gone).items() if path not in kept_manifests}
    # By path, not by identity: a Puffin file lives while any vector in it is referenced.
    found: dict[str, Reference] = {}
    for file in reader.live_files(only_gone.values()):
        found[file.path] = Reference(kind_of(file), file.path, file.size if file.content_offset is None else None)
    if found:
        index = FormIndex(found)
        for file in reader.live_files(kept_manifests.values()):
            for path in index.named_by(file.path):
                found.pop(path, None)
        yield from found.values()
    yield from (Reference(ReferenceKind.MANIFEST, m.path, m.length) for m in only_gone.values())
    lists_kept = {snapshot.manifest_list for snapshot in kept}
    for snapshot in gone:
        if snapshot.manifest_list is not None and snapshot.manifest_list not in lists_kept:
            yield Reference(ReferenceKind.MANIFEST_LIST, snapshot.manifest_list, reader.list_size(snapshot))
    yield from _statistics(metadata, expired)


def _manifests(reader: ManifestReader, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    return {manifest.path: manifest for _, manifests in reader.manifests_of(snapshots) for manifest in manifests}


def _statistics(metadata: Metadata, expired: frozenset[int]) -> Iterator[Reference]:
    for key, kind in (
        ("statistics", ReferenceKind.STATISTICS),
        ("partition-statistics", ReferenceKind.PARTITION_STATISTICS),
    ):
        entries = metadata.raw.get(key) or ()
        kept = {e["statistics-path"] for e in entries if int(e["snapshot-id"]) not in expired}
        for entry in entries:
            if int(entry["snapshot-id"]) in expired and entry["statistics-path"] not in kept:
                yield Reference(kind, str(entry["statistics-path"]), entry.get("file-size-in-bytes"))


def reached(metadata: Metadata, reader: ManifestReader, index: FormIndex) -> frozenset[str]:
    """Those of the index's paths that anything in this metadata may mean, its history of metadata files included."""
    return frozenset(path for one in references(metadata, reader) for path in index.named_by(one.path))


class AssertRefs(ValidatableTableRequirement):
    """Checked by catalogs that apply updates in this process: no ref came, went or moved.

    A tag that somebody sets on an expired snapshot in this moment would go with it otherwise.
    """

    type: Literal["assert-refs"] = "assert-refs"
    refs: dict[str, int]

    def validate(self, base_metadata: Any) -> None:  # type: ignore[override]
        """Raises CommitFailedException where they did."""
        found = {} if base_metadata is None else {name: ref.snapshot_id for name, ref in base_metadata.refs.items()}
        if found != self.refs:
            raise CommitFailedException("a branch or tag came, went or moved")


@dataclass(frozen=True, slots=True)
class Expiring:
    """What one attempt lets go, decided from the metadata it starts from."""

    snapshot_ids: tuple[int, ...]
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Listed:
    """A list of files that was made durable, and the metadata it was made from."""

    metadata: Metadata
    expiring: Expiring

    def holds(self, now: Metadata, fresh: Expiring) -> bool:
        """Whether all of it still expires, and the list names all that goes with it.

        Snapshots that came meanwhile may need some of the files: the recheck before the deletion keeps those. Where
        another snapshot went, files that the two had in common are missing from the list.
        """
        return (
            set(self.expiring.snapshot_ids) <= set(fresh.snapshot_ids)
            and set(self.expiring.refs) <= set(fresh.refs)
            and self.metadata.snapshots.keys() <= now.snapshots.keys()
        )


@dataclass
class ExpireCommit:
    """Takes snapshots and refs out of a table's metadata.

    `decide`: from fresh metadata, what goes now; called before every attempt, so that nothing goes that a writer has
    just begun to need. `before`: called with metadata, reader and what goes: there the list of files is made durable.
    That can take minutes, so attempts share one list as long as it holds what goes: else a busy table would never be
    quiet for long enough. `guard`: raises LeaseLostError where we may no longer commit. `clean_metadata`: schemas and
    partition specs that nothing needs any more go as well. `attempted`: commits that were tried.
    """

    catalog: Catalog
    name: TableName
    uuid: str
    decide: Callable[[Metadata], Expiring]
    before: Callable[[Metadata, ManifestReader, Expiring], None]
    guard: Callable[[], None]
    cache: BlobCache | None = None
    clean_metadata: bool = False
    attempts: int = 12
    pause: Callable[[int], None] = pause
    attempted: int = 0

    def run(self) -> Expiring:
        """Returns what went; nothing where nothing was left to expire.

        Raises CommitConflictError, CommitUnknownError (whether the snapshots are gone is not known), LeaseLostError.
        """
        listed: _Listed | None = None
        asked: set[int] = set()
        last: Exception | None = None
        unknown: Exception | None = None
        for attempt in range(1, self.attempts + 1):
            try:
                table, metadata, reader = self._load(last)
                if asked and not asked & metadata.snapshots.keys():
                    return Expiring(tuple(sorted(asked)), ())
                fresh = self.decide(metadata)
                if not fresh.snapshot_ids and not fresh.refs:
                    return fresh
                if listed is None or not listed.holds(metadata, fresh):
                    self.before(metadata, reader, fresh)
                    listed = _Listed(metadata, fresh)
                    table, metadata, reader = self._load(last)
                    if not listed.holds(metadata, self.decide(metadata)):
                        last = CommitFailedException("what expires changed while its files were listed")
                        self.pause(attempt)
                        continue
                updates = self._updates(metadata, reader, listed.expiring)
                self.guard()
            except LakehouseError as error:
                if unknown is None or isinstance(error, CommitUnknownError):
                    raise
                raise self._unknown(unknown) from error
            asked = set(listed.expiring.snapshot_ids)
            self.attempted += 1
            try:
                self.catalog.pyiceberg.commit_table(table, self._requirements(metadata), updates)
            except Exception as error:
                # Drivers, HTTP clients and PyIceberg raise errors of their own.
                last = error
                said = answer(error, client_side=self.catalog.client_side_commits)
                if said is Answer.LOST:
                    unknown = error
                elif said is Answer.DENIED or (said is Answer.REFUSED and self._stands_still(metadata)):
                    raise self._rejected(error, unknown) from error
            else:
                return listed.expiring
            self.pause(attempt)
        return self._given_up(asked, last, unknown)

    def _load(self, last: Exception | None) -> tuple[Table, Metadata, ManifestReader]:
        return load_again(lambda: load_for_commit(self.catalog, self.name, self.uuid, self.cache), last, self._unknown)

    def _given_up(self, asked: set[int], last: Exception | None, unknown: Exception | None) -> Expiring:
        """After the last attempt: it may have been the one."""
        if asked:
            try:
                if not asked & self._load(last)[1].snapshots.keys():
                    return Expiring(tuple(sorted(asked)), ())
            except LakehouseError as error:
                if unknown is None:
                    raise
                raise self._unknown(unknown) from error
        if unknown is not None:
            raise self._unknown(unknown)
        raise CommitConflictError(
            f"{self.name}: other writers won {self.attempts} times in a row: {last}",
            field=str(self.name),
            hint="no snapshot was expired; try again when the table is quieter",
        )

    def _stands_still(self, metadata: Metadata) -> bool:
        try:
            return self._load(None)[1].location == metadata.location
        except LakehouseError:
            return False  # not known: the next attempt looks again

    def _rejected(self, error: Exception, unknown: Exception | None) -> LakehouseError:
        if unknown is not None:
            return self._unknown(unknown)
        return CommitConflictError(f"{self.name}: the catalog refused: {error}", field=str(self.name))

    def _requirements(self, metadata: Metadata) -> tuple[Any, ...]:
        refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
        requirements: list[Any] = [AssertTableUUID(uuid=uuids.UUID(metadata.uuid))]
        requirements += [AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in refs.items()]
        if self.catalog.client_side_commits:
            requirements.append(AssertRefs(refs=refs))
        return tuple(requirements)

    def _unknown(self, error: Exception) -> CommitUnknownError:
        return CommitUnknownError(
            f"{self.name}: the catalog's answer to our expiry was lost ({type(error).__name__}: {error}); "
            "nothing was deleted",
            field=str(self.name),
            hint="the next run on the table looks which snapshots are left, and goes on from there",
        )

    def _updates(self, metadata: Metadata, reader: ManifestReader, expiring: Expiring) -> tuple[Any, ...]:
        updates = _updates(metadata, expiring)
        if self.clean_metadata:
            schemas, specs = unused(metadata, reader, frozenset(expiring.snapshot_ids))
            if schemas:
                updates += (RemoveSchemasUpdate(schema_ids=schemas),)
            if specs:
                updates += (RemovePartitionSpecsUpdate(spec_ids=specs),)
        return updates


def unused(metadata: Metadata, reader: ManifestReader, expired: frozenset[int]) -> tuple[list[int], list[int]]:
    """Ids of schemas and partition specs that nothing needs once the snapshots are gone (clean_expired_metadata).

    An equality delete compares columns that were dropped since, too (Iceberg spec: Equality Delete Files): what they
    are, older schemas alone tell.
    """
    kept = [snapshot for snapshot in metadata.snapshots.values() if snapshot.snapshot_id not in expired]
    schemas = {int(schema["schema-id"]) for schema in metadata.raw.get("schemas") or ()}
    schemas -= {snapshot.schema_id for snapshot in kept if snapshot.schema_id is not None}
    schemas.discard(int(metadata.raw.get("current-schema-id", 0)))
    manifests = _manifests(reader, kept).values()
    specs = set(metadata.specs) - {manifest.spec_id for manifest in manifests}
    specs.discard(metadata.default_spec_id)
    if any(snapshot.schema_id is None for snapshot in kept):
        schemas.clear()  # a snapshot of an old writer does not say which schema it has
    if schemas:
        deletes = reader.live_files(manifest for manifest in manifests if manifest.deletes)
        compared = {field_id for delete in deletes for field_id in delete.equality_ids}
        compared -= set(column_ids(metadata.raw).values())
        schemas -= {schema_id for schema_id in schemas if compared & _fields_of(metadata, schema_id)}
    return sorted(schemas), sorted(specs)


def _fields_of(metadata: Metadata, schema_id: int) -> set[int]:
    """Ids of the schema's primitive columns."""
    same = [schema for schema in metadata.raw.get("schemas") or () if int(schema["schema-id"]) == schema_id]
    return set(column_types({"schemas": same}))


def _updates(metadata: Metadata, expiring: Expiring) -> tuple[Any, ...]:
    ids = set(expiring.snapshot_ids)
    updates: list[Any] = [RemoveSnapshotRefUpdate(ref_name=name) for name in expiring.refs]
    kinds = {"statistics": RemoveStatisticsUpdate, "partition-statistics": RemovePartitionStatisticsUpdate}
    for key, make in kinds.items():
        with_statistics = {int(entry["snapshot-id"]) for entry in metadata.raw.get(key) or ()}
        updates += [make(snapshot_id=snapshot_id) for snapshot_id in sorted(with_statistics & ids)]
    if ids:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=sorted(ids)))
    return tuple(updates)
