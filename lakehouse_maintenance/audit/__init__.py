"""What runs leave behind in users' own catalogs: audit tables, under the names and columns of the jobs they replace."""

from __future__ import annotations

from lakehouse_maintenance.audit.folder_runs import FolderAudit
from lakehouse_maintenance.audit.identity import runtime_identity

__all__ = ["FolderAudit", "runtime_identity"]
