"""Every file that a table's current metadata refers to, streamed (Iceberg spec: Table Metadata; IM-08's list)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakehouse_maintenance.iceberg.manifests import ManifestFile, ManifestReader
from lakehouse_maintenance.iceberg.metadata import Metadata, Snapshot
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.references import Reference, ReferenceKind

_KINDS = {
    Content.DATA: ReferenceKind.DATA,
    Content.POSITION_DELETES: ReferenceKind.POSITION_DELETES,
    Content.EQUALITY_DELETES: ReferenceKind.EQUALITY_DELETES,
}


def references(
    metadata: Metadata, reader: ManifestReader, snapshots: Iterable[Snapshot] | None = None
) -> Iterator[Reference]:
    """References of all snapshots (or of those given), all refs and the metadata history.

    Each manifest is read once, however many snapshots share it. A data file that several manifests list is given
    once for each: memory grows with the number of manifests, not of files. Raises TableUnreadableError part-way; what
    was given until then is not all there is.
    """
    yield Reference(ReferenceKind.METADATA, metadata.location)
    for location in metadata.log_locations():
        yield Reference(ReferenceKind.METADATA, location)
    # Engines without a catalog keep the version here; it belongs to the table wherever it exists.
    yield Reference(ReferenceKind.VERSION_HINT, metadata.table_location.rstrip("/") + "/metadata/version-hint.text")
    for path, size in metadata.statistics_paths():
        yield Reference(ReferenceKind.STATISTICS, path, size)
    for path, size in metadata.partition_statistics_paths():
        yield Reference(ReferenceKind.PARTITION_STATISTICS, path, size)
    seen: set[str] = set()
    for snapshot in metadata.snapshots.values() if snapshots is None else snapshots:
        if snapshot.manifest_list is not None:
            yield Reference(ReferenceKind.MANIFEST_LIST, snapshot.manifest_list)
        fresh: list[ManifestFile] = []
        for manifest in reader.manifests(snapshot):
            if manifest.path not in seen:
                seen.add(manifest.path)
                fresh.append(manifest)
                yield Reference(ReferenceKind.MANIFEST, manifest.path, manifest.length)
        for file in reader.live_files(fresh):
            yield Reference(kind_of(file), file.path, file.size if file.content_offset is None else None)


def referenced_paths(metadata: Metadata, reader: ManifestReader) -> Iterator[list[str]]:
    """The paths of `references`, in batches and any order: for comparing many, at the least cost for each."""
    yield [reference.path for reference in references(metadata, reader, ())]
    manifests: dict[str, ManifestFile] = {}
    lists: list[str] = []
    for snapshot, listed in reader.manifests_of(metadata.snapshots.values()):
        if snapshot.manifest_list is not None:
            lists.append(snapshot.manifest_list)
        manifests |= {manifest.path: manifest for manifest in listed}
    yield lists
    yield list(manifests)
    yield from reader.live_paths(manifests.values())


def kind_of(file: LiveFile) -> ReferenceKind:
    if file.file_format == "PUFFIN" and file.content is Content.POSITION_DELETES:
        return ReferenceKind.DELETION_VECTOR
    return _KINDS[file.content]
