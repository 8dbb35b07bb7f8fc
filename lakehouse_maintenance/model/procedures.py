"""What an action did, by the names that Iceberg's Spark procedures give their results (IM-20)."""

from __future__ import annotations

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.outcomes import Actual
from lakehouse_maintenance.model.references import ReferenceKind

_EXPIRED = {
    "deleted_data_files_count": (ReferenceKind.DATA,),
    # Iceberg counts deletion vectors among the position deletes.
    "deleted_position_delete_files_count": (ReferenceKind.POSITION_DELETES, ReferenceKind.DELETION_VECTOR),
    "deleted_equality_delete_files_count": (ReferenceKind.EQUALITY_DELETES,),
    "deleted_manifest_files_count": (ReferenceKind.MANIFEST,),
    "deleted_manifest_lists_count": (ReferenceKind.MANIFEST_LIST,),
    "deleted_statistics_files_count": (ReferenceKind.STATISTICS, ReferenceKind.PARTITION_STATISTICS),
}


def procedure_results(action: str, actual: Actual) -> dict[str, int]:
    """The procedure's result columns; empty for actions that are no procedure of Iceberg's."""
    if action == Action.REWRITE_DATA_FILES:
        return {
            "rewritten_data_files_count": actual.rewritten_data_files,
            "added_data_files_count": actual.added_data_files,
            "rewritten_bytes_count": actual.rewritten_bytes,
            "failed_data_files_count": actual.failed_data_files,
            "removed_delete_files_count": actual.removed_delete_files,
        }
    if action == Action.EXPIRE_SNAPSHOTS:
        kinds = actual.deleted_kinds
        return {name: sum(kinds.get(kind, 0) for kind in of) for name, of in _EXPIRED.items()}
    if action == Action.REMOVE_ORPHAN_FILES:
        return {"orphan_files_count": actual.deleted_files}
    return {}
