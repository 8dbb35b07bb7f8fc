"""What PyIceberg would commit to a table, for us to commit.

`Transaction` removes manifests of a commit that it takes for failed, and `Table` old metadata after one that succeeded.
After a lost answer that a gateway's repeated request turned into a conflict, the first would destroy the table. The
catalog's public `commit_table` removes nothing, so the change is built on a table whose catalog only takes notes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

if TYPE_CHECKING:
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lakehouse_maintenance.catalogs import Catalog


@dataclass(frozen=True, slots=True)
class Change:
    """A change of `table` as it was loaded; its data files, manifests and list are written."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]

    def commit(self, catalog: Catalog) -> None:
        """One attempt. Raises what the catalog's `commit_table` raises; see iceberg.answers."""
        catalog.pyiceberg.commit_table(self.table, self.requirements, self.updates)


def stage(table: Table, change: Callable[[Table], Any]) -> Change | None:
    """What `change` wants to commit, which is one commit at most; None where it changes nothing.

    Raises what writing files raises; nothing is committed, and nothing is removed.
    """
    noted = Table(table.name(), table.metadata, table.metadata_location, table.io, _NoteBook("notes"), table.config)
    try:
        change(noted)
    except _Noted as found:
        updates = tuple(_with_retention(table, update) for update in found.updates)
        return Change(table, found.requirements, updates)
    return None


class _Noted(Exception):
    """Ends the change where it would be committed. Not a CommitFailedException, after which files are removed."""

    def __init__(self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> None:
        super().__init__("not committed")
        self.requirements = requirements
        self.updates = updates


class _NoteBook(NoopCatalog):
    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> Any:
        del table
        raise _Noted(requirements, updates)


def _with_retention(table: Table, update: TableUpdate) -> TableUpdate:
    """Setting a branch replaces all of it: its own retention, which PyIceberg leaves out, goes along."""
    if not isinstance(update, SetSnapshotRefUpdate):
        return update
    ref = table.metadata.refs.get(update.ref_name)
    if ref is None:
        return update
    kept = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")
    return update.model_copy(update={name: getattr(ref, name) for name in kept})
