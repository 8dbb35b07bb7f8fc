"""Names in Dagster that stay stable: asset keys, checks, group, and keys of metadata."""

from __future__ import annotations

import dagster as dg

GROUP = "lakehouse_maintenance"
STATE_KEY = dg.AssetKey(["lakehouse", "maintenance_state"])
PLAN_KEY = dg.AssetKey(["lakehouse", "maintenance_plan"])
MAINTAINED_KEY = dg.AssetKey(["lakehouse", "maintained"])

ROWS_UNCHANGED = "rows_unchanged"
LIVE_FILES_PRESENT = "live_files_present"
HEALTHY = "healthy"
ALL_TABLES_MEASURED = "all_tables_measured"
ALL_TABLES_SEARCHED = "all_tables_searched"
CANDIDATES_REVIEWED = "candidates_reviewed"


def meta(name: str) -> str:
    """Our own metadata keys stand in a namespace of ours."""
    return f"lakehouse_maintenance/{name}"
