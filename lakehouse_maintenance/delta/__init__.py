"""Delta transaction logs, read by ourselves: what a table consists of, and every file that its log owns."""

from __future__ import annotations

from lakehouse_maintenance.delta.actions import (
    AddFile,
    DeletionVector,
    DeltaReference,
    DeltaReferenceKind,
    Protocol,
    RemoveFile,
    TableMetadata,
)
from lakehouse_maintenance.delta.log import DeltaLog, find_log, references
from lakehouse_maintenance.delta.paths import is_delta_log_marker, table_root_of
from lakehouse_maintenance.delta.snapshot import DeltaSnapshot

__all__ = [
    "AddFile",
    "DeletionVector",
    "DeltaLog",
    "DeltaReference",
    "DeltaReferenceKind",
    "DeltaSnapshot",
    "Protocol",
    "RemoveFile",
    "TableMetadata",
    "find_log",
    "is_delta_log_marker",
    "references",
    "table_root_of",
]
