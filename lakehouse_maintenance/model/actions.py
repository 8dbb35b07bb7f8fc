"""The actions, engines and statuses that plans, outcomes, the journal and users' files speak of."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """What can be done to a table. The names stay stable."""

    REWRITE_DATA_FILES = "rewrite_data_files"
    REWRITE_POSITION_DELETE_FILES = "rewrite_position_delete_files"
    REWRITE_MANIFESTS = "rewrite_manifests"
    EXPIRE_SNAPSHOTS = "expire_snapshots"
    REMOVE_ORPHAN_FILES = "remove_orphan_files"
    PRUNE_METADATA = "prune_metadata"
    SET_PROPERTIES = "set_properties"
    UNTRACKED_FOLDERS = "untracked_folders"
    VACUUM = "vacuum"
    OPTIMIZE = "optimize"
    DELTA_CHECKPOINT = "delta_checkpoint"
    DELTA_CLEAN_LOG = "delta_clean_log"
    CLEAN_SOURCE = "clean_source"


LEAVES_DATA = frozenset(
    {Action.EXPIRE_SNAPSHOTS, Action.PRUNE_METADATA, Action.SET_PROPERTIES, Action.REMOVE_ORPHAN_FILES}
)
"""Actions on a table that neither read nor write a data or delete file: they change metadata, or delete files."""


class Engine(StrEnum):
    """Who does the data work."""

    EMBEDDED = "embedded"
    SPARK = "spark"


class Control(StrEnum):
    """How closely an engine follows a reviewed plan: the very file list, or within its bounds."""

    EXACT = "exact"
    BOUNDED = "bounded"


class Status(StrEnum):
    """How an action or a table ended. UNKNOWN: a commit's answer was lost, and nothing was cleaned up."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"
