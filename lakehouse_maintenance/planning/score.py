"""One number for how healthy a table is. Pure."""

from __future__ import annotations

from lakehouse_maintenance.model.health import TableHealth

SMALL_FILES = 40
DELETED_ROWS = 15
DELETE_FILES = 15
MANIFESTS = 15
SNAPSHOTS = 15
"""What each symptom costs at its worst, out of 100."""


def score(health: TableHealth) -> int:
    """0 (sick) to 100 (healthy); 0 where the table could not be measured. More of a symptom never scores higher.

    Each symptom is a share, damped by a number that is nothing to speak of, so that a table of three small files is
    not sick: small files of all data files (20 weigh half), deleted rows of all rows, delete files beside data files
    (10 data files more are assumed), manifests above 10 (100, and one more for ten data files, weigh half), expired
    snapshots (50 weigh half).
    """
    if health.error is not None:
        return 0
    small = _share(health.small_files, health.data_files) * _share(health.small_files, health.small_files + 20)
    # Delete files stay out of it: more of them would make the same manifests weigh less.
    manifests_at_half = 100 + health.data_files / 10
    # Few manifests are no symptom, however few files they hold.
    surplus = max(health.manifests - 10, 0)
    lost = (
        SMALL_FILES * small
        + DELETED_ROWS * _share(health.deleted_rows, health.records)
        + DELETE_FILES * _share(health.delete_files, health.delete_files + health.data_files + 10)
        + MANIFESTS * _share(surplus, surplus + manifests_at_half)
        + SNAPSHOTS * _share(health.expired_snapshots, health.expired_snapshots + 50)
    )
    return max(0, min(100, round(100 - lost)))


def _share(part: float, whole: float) -> float:
    if part <= 0:
        return 0.0
    return 1.0 if whole <= part else part / whole
