"""Which roots beside the cleanup root are listed for review, and why others are not (UF-23, UF-43). Pure, as all of
planning: nothing in these roots is ever removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lakehouse_maintenance.model.folders import NotScanned, RootStatus, StorageRoot
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.planning.untracked_folders import (
    Assessment,
    DatabaseFacts,
    boundary,
    is_bucket_root,
    is_inside,
    is_supported,
    parent_key,
    parsed,
    without_suffix,
)

MOST_ROOTS = 25
"""Additional roots that are listed for review (UF-23)."""


def roots_to_list(
    facts: DatabaseFacts, assessment: Assessment, approved: Sequence[str]
) -> tuple[list[tuple[Location, str]], list[StorageRoot]]:
    """Roots that are listed for review beside the cleanup root, with their origin; and those that are not, and why."""
    listed: dict[Location, str] = {}
    refused: list[StorageRoot] = []
    seen = {assessment.root.collapsed} if assessment.root is not None else set()
    tables = {at.collapsed for _, at in assessment.located}
    for text, origin in _possible_roots(facts, assessment, approved):
        root = parsed(text)
        if root is not None:
            if root.collapsed in seen:
                continue
            seen.add(root.collapsed)
        why = NotScanned.INVALID_LOCATION if root is None else _not_scanned(root, origin, facts, assessment, tables)
        if why is None and len(listed) >= MOST_ROOTS:
            why = NotScanned.ROOT_LIMIT_REACHED
        if why is None and root is not None:
            listed[root] = origin
        else:
            refused.append(StorageRoot(text, origin, RootStatus.NOT_SCANNED, why))
    return list(listed.items()), refused


def _possible_roots(facts: DatabaseFacts, assessment: Assessment, approved: Sequence[str]) -> Iterator[tuple[str, str]]:
    if facts.location:
        yield facts.location, "database_location"
    if assessment.database is not None:
        short = without_suffix(assessment.database)
        if short is not None:
            yield short.text, "database_location"
    if facts.namespace_folder:
        yield facts.namespace_folder, "namespace_folder"
    for text in approved:
        yield text, "approved"
    for _, at in assessment.located:
        yield at.with_key(parent_key(at)).text, "table_parent"


def _not_scanned(
    root: Location, origin: str, facts: DatabaseFacts, assessment: Assessment, tables: Collection[Location]
) -> NotScanned | None:
    warehouse = parsed(facts.warehouse)
    own = [at for at in (assessment.database, parsed(facts.namespace_folder)) if at is not None]
    if not is_supported(root):
        return NotScanned.INVALID_LOCATION
    if is_bucket_root(root):
        return NotScanned.BUCKET_ROOT
    is_home = assessment.database is not None and root.collapsed == assessment.database.collapsed
    # A database that lies at the warehouse root is shown for review, and nothing more (UF-43).
    at_warehouse = warehouse is not None and is_home and root.collapsed == warehouse.collapsed
    if warehouse is not None and is_inside(warehouse, root) and not at_warehouse:
        return NotScanned.CONTAINS_WAREHOUSE_ROOT
    if any(folder in tables for folder in _at_and_above(root)):
        return NotScanned.INSIDE_TABLE_LOCATION
    if origin in ("approved", "table_parent") and any(
        is_inside(at, root) and at.collapsed != root.collapsed for at in own
    ):
        return NotScanned.CONTAINS_DATABASE_STORAGE
    if origin == "approved":
        return None if any(is_inside(at, root) for at in tables) else NotScanned.NO_VISIBLE_TABLE
    if origin == "table_parent":
        bounds = [*own, *boundary(assessment.database, warehouse)]
        if not any(is_inside(root, bound) for bound in bounds):
            return NotScanned.OUTSIDE_DATABASE_BOUNDARY
    return None


def _at_and_above(folder: Location) -> Iterator[Location]:
    """The folder and all around it: a look for each of them costs less than one at every table."""
    segments = folder.collapsed.segments
    for count in range(len(segments), -1, -1):
        yield folder.with_key("/".join(segments[:count]))
