"""Actions that are killed at each of their calls: see driver.Scenario."""

from __future__ import annotations

from datetime import timedelta

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.expiring import ExpiryRequest
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import delete_rows, many_small_files
from lakehouse_maintenance_tests.interrupted.driver import Scenario
from lakehouse_maintenance_tests.interrupted.folders import FOLDERS_DELETED, FOLDERS_QUARANTINED
from lakehouse_maintenance_tests.interrupted.orphans import REMOVAL, REMOVAL_ENDED_BY_MAINTAIN
from lakehouse_maintenance_tests.interrupted.places import Place
from lakehouse_maintenance_tests.interrupted.quarantined import (
    PURGE,
    PURGE_ENDED_BY_MAINTAIN,
    QUARANTINE,
    RESTORE,
    RESTORE_ENDED_BY_MAINTAIN,
)
from lakehouse_maintenance_tests.interrupted.rollbacks import ROLLING_BACK
from lakehouse_maintenance_tests.interrupted.soundness import (
    NAME,
    TABLE,
    Expected,
    check,
    expected,
    look,
    open_lake,
    writer,
)

ALL = ExpiryRequest(older_than=timedelta(0), retain_last=1, allow_short_retention=True)


def build_small_files(place: Place) -> Expected:
    """Two partitions of small files, deleted rows in one of them, a tag on an older snapshot."""
    catalog = writer(place)
    table = many_small_files(catalog, TABLE, commits=4)
    table.manage_snapshots().create_tag(table.metadata.snapshots[1].snapshot_id, "older").commit()
    first = next(iter(table.scan().plan_files())).file.file_path
    delete_rows(catalog, TABLE, {first: [0, 2]})
    return expected(place)


def compact(place: Place) -> TableOutcome:
    """All groups of the table."""
    options = {"min-input-files": "2", "delete-file-threshold": "1"}
    return open_lake(place).maintain((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,), options=options)).tables[0]


def compact_in_two_commits(place: Place) -> TableOutcome:
    """A group a commit."""
    options = {"min-input-files": "2", "delete-file-threshold": "1", "partial-progress.enabled": "true"}
    return open_lake(place).maintain((NAME,), Request(actions=(Action.REWRITE_DATA_FILES,), options=options)).tables[0]


def build_old_snapshots(place: Place) -> Expected:
    """Snapshots with data files, manifests and lists that nothing else reaches, and a tag that keeps some of them."""
    catalog = writer(place)
    table = many_small_files(catalog, TABLE, commits=3)
    tagged = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_tag(tagged, "older").commit()
    catalog.load_table(TABLE).delete("id >= 15 and id < 25")
    head = catalog.load_table(TABLE).current_snapshot()
    assert head is not None
    return expected(place, stays=[tagged, head.snapshot_id])


def expire(place: Place) -> TableOutcome:
    """All snapshots that no ref keeps."""
    return open_lake(place).maintain((NAME,), Request(actions=(Action.EXPIRE_SNAPSHOTS,), expiry=ALL)).tables[0]


COMPACTION = Scenario("compaction", build_small_files, compact, look, check)
PARTIAL = Scenario("compaction in two commits", build_small_files, compact_in_two_commits, look, check)
EXPIRY = Scenario("expiry", build_old_snapshots, expire, look, check)

ON_LOCAL_FILES = [
    *(COMPACTION, PARTIAL, EXPIRY, REMOVAL, QUARANTINE, RESTORE, PURGE, ROLLING_BACK),
    *(FOLDERS_DELETED, FOLDERS_QUARANTINED),
]
ON_S3 = [scenario for scenario in ON_LOCAL_FILES if scenario is not PARTIAL]
ENDED_BY_ANOTHER_VERB = [REMOVAL_ENDED_BY_MAINTAIN, RESTORE_ENDED_BY_MAINTAIN, PURGE_ENDED_BY_MAINTAIN]

RECOVERIES = [
    (COMPACTION, ("catalog: commit", 1, "before")),
    (COMPACTION, ("catalog: commit", 1, "after")),
    (EXPIRY, ("delete: unlink", 3, "after")),
]
"""Where an action is killed, so that the run that recovers from that can be killed at each of its calls."""

MORE_RECOVERIES = [
    (PARTIAL, ("catalog: commit", 2, "after")),
    (REMOVAL, ("delete: unlink", 30, "after")),
    (QUARANTINE, ("storage: link", 7, "after")),
    (RESTORE, ("storage: link", 7, "after")),
    (RESTORE, ("delete: unlink", 20, "after")),
    (PURGE, ("delete: unlink", 7, "after")),
    (ROLLING_BACK, ("catalog: commit", 1, "after")),
    (FOLDERS_DELETED, ("delete: unlink", 2, "after")),
    (FOLDERS_QUARANTINED, ("storage: link", 2, "after")),
]
"""As well, in the long run."""
