"""After a rewrite: are the rows the same, and is every live file there? (IM-13)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.execution.making import describe
from lakehouse_maintenance.execution.observe import Observed, observe
from lakehouse_maintenance.iceberg.commit import Committed
from lakehouse_maintenance.iceberg.manifests import BlobCache, ManifestFile
from lakehouse_maintenance.iceberg.metadata import Snapshot
from lakehouse_maintenance.iceberg.replace import Replacement, named
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.files import Content, LiveFile
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName
from lakehouse_maintenance.model.outcomes import Check
from lakehouse_maintenance.storage import Storage

_LOOK_UP_EACH = 5000
"""Up to so many files, each is looked up; beyond, the table's folder is listed and only the rest is looked up."""


def compared(
    catalog: Catalog,
    name: TableName,
    cache: BlobCache | None,
    committed: Committed,
    check: str,
    compare: Callable[[Observed, Snapshot, Snapshot], tuple[Check, ...]],
) -> tuple[Check, ...]:
    """What `compare` says of the table, the snapshot before our commit and ours; a failed `check` where one of them
    is gone or cannot be read. Never raises for what concerns the table."""
    try:
        observed = observe(catalog, name, cache)
        before = observed.metadata.snapshots.get(committed.previous_snapshot_id)
        after = observed.metadata.snapshots.get(committed.snapshot_id)
        if before is None or after is None:
            return (Check(check, False, "our snapshot, or the one before, is no longer in the table"),)
        return compare(observed, before, after)
    except LakehouseError as error:
        return (Check(check, False, f"could not be verified: {describe(error)}"),)


def verify_rewrite(
    observed: Observed, before: Snapshot, after: Snapshot, groups: Sequence[Replacement]
) -> tuple[Check, ...]:
    """Checks of a committed rewrite, from the table's metadata and storage as they are now."""
    live = list(_live(observed, after))
    return (
        _rows_unchanged(_live(observed, before), live, groups),
        live_files_present(observed.storage, observed.metadata.table_location, live),
    )


def _live(observed: Observed, snapshot: Snapshot) -> Iterable[LiveFile]:
    return observed.reader.live_files(m for m in observed.reader.manifests(snapshot) if m.live_files != 0)


def _rows_unchanged(before: Iterable[LiveFile], after: Sequence[LiveFile], groups: Sequence[Replacement]) -> Check:
    """Rows in the outputs are those of the inputs less their deletes, and every other data file is as it was.

    How many rows the inputs lose to deletes was counted while they were read; here the commit is held against it.
    """
    inputs = named(groups)
    outputs = {output["file_path"]: output["record_count"] for group in groups for output in group.outputs}
    rows = sum(group.rows for group in groups)
    added = {file.path: file.records for file in after if file.path in outputs}
    if added != outputs or sum(added.values()) != rows:
        return Check(
            "rows_unchanged", False, f"{sum(added.values())} rows are live in the outputs, {rows} were written"
        )
    left = sum(1 for file in after if file.path in inputs)
    if left:
        return Check("rows_unchanged", False, f"{left} rewritten files are still live")
    others_before = _fingerprint(file for file in before if file.path not in inputs)
    others_after = _fingerprint(file for file in after if file.path not in outputs)
    if others_before != others_after:
        return Check("rows_unchanged", False, "data files that were not rewritten have changed")
    return Check(
        "rows_unchanged", True, f"{rows} rows in {len(outputs)} files; {others_after[0]} other data files as before"
    )


def _fingerprint(files: Iterable[LiveFile]) -> tuple[int, int, int]:
    """Number, rows and order-independent hash of data files with their sequence numbers."""
    count = rows = mixed = 0
    for file in files:
        if file.content is Content.DATA:
            count += 1
            rows += file.records
            mixed ^= hash((file.path, file.sequence_number, file.records, file.size))
    return count, rows, mixed


def live_files_present(storage: Storage, table_location: str, live: Sequence[LiveFile]) -> Check:
    """Every live data and delete file exists with the size that metadata tells."""
    sizes = {file.path: file.size if file.content_offset is None else None for file in live}
    unknown = dict(sizes)
    if len(unknown) > _LOOK_UP_EACH:
        for batch in storage.list(Location.parse(table_location)):
            for found in batch:
                # Listed under the spelling of the table's location; files written otherwise are looked up below.
                size = unknown.get(found.location.text, -1)
                if size is None or size == found.size:
                    del unknown[found.location.text]
    missing: list[str] = []
    wrong: list[str] = []
    by_location = {Location.parse(path): path for path in unknown}
    for location, info in storage.stat_many(by_location):
        path = by_location[location]
        if info is None:
            missing.append(path)
        elif unknown[path] is not None and info.size != unknown[path]:
            wrong.append(path)
    if missing or wrong:
        first = (missing + wrong)[0]
        detail = f"{len(missing)} of {len(sizes)} files are missing, {len(wrong)} have another size: {first}"
        return Check("live_files_present", False, detail)
    return Check("live_files_present", True, f"all {len(sizes)} live files are there")


def kept_snapshots_present(
    catalog: Catalog,
    name: TableName,
    cache: BlobCache | None,
    *,
    places: Sequence[Location] | None = None,
    spell: Callable[[str], str] = str,
) -> Check:
    """Every live file of the snapshot of every branch and tag is there. Never raises.

    `places`: only files in these folders, which are all that could have been touched. `spell`: gives the path under
    which storage knows a file that metadata names otherwise.
    """
    try:
        observed = observe(catalog, name, cache)
        manifests: dict[str, ManifestFile] = {}
        for ref in observed.metadata.refs.values():
            snapshot = observed.metadata.snapshots[ref.snapshot_id]
            manifests |= {m.path: m for m in observed.reader.manifests(snapshot) if m.live_files != 0}
        live = list(observed.reader.live_files(manifests.values()))
        if places is not None:
            spelled = (replace(file, path=spell(file.path)) for file in live)
            live = [file for file in spelled if any(place.contains(Location.parse(file.path)) for place in places)]
        return live_files_present(observed.storage, observed.metadata.table_location, live)
    except LakehouseError as error:
        return Check("live_files_present", False, f"could not be verified: {error.message}")
