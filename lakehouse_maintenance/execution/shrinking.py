"""What a rewrite says of the files that it replaced: they stay until the snapshots before it expire (IM-19)."""

from __future__ import annotations

from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.observe import expiry_facts, observe
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH
from lakehouse_maintenance.planning.shrinking import WORDS, shrinks


def shrink_note(run: Run, target: Target, snapshot_id: int, branch: str = MAIN_BRANCH) -> str:
    """When storage shrinks after the snapshot, by the table as it is now. Never raises: it is a note."""
    try:
        facts = expiry_facts(observe(target.catalog, target.name, run.cache).metadata)
    except LakehouseError:
        return WORDS
    return shrinks(facts, target.policy.expire_snapshots, snapshot_id, target.longest_reader, branch)
