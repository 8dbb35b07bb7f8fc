"""Which snapshots and refs may go (Iceberg: ExpireSnapshots; table properties `history.expire.*`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.properties import forbids_deleting
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH, RefFact, SnapshotFact

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import ExpireSnapshots

MAX_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
MIN_TO_KEEP_PROPERTY = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"

DEFAULT_MAX_AGE_MS = 5 * 24 * 60 * 60 * 1000
DEFAULT_MIN_TO_KEEP = 1
FOREVER_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Expired:
    """What may go. `snapshot_ids`: oldest first. `refs`: names of branches and tags that have outlived their age."""

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules in force where a ref has none of its own. Ages in milliseconds."""

    max_snapshot_age_ms: int
    min_snapshots_to_keep: int
    max_ref_age_ms: int


def retention(policy: ExpireSnapshots, properties: Mapping[str, str]) -> Retention | None:
    """Policy and table property: the longer wins; where neither says anything, Iceberg's 5 days and 1 snapshot.

    None where nothing may go: `gc.enabled=false`, or a property that cannot be read, whose retention is unknown.
    """
    if forbids_deleting(properties):
        return None
    try:
        age = _number(properties, MAX_AGE_PROPERTY)
        keep = _number(properties, MIN_TO_KEEP_PROPERTY)
        ref_age = _number(properties, MAX_REF_AGE_PROPERTY)
    except ValueError:
        return None
    older_than = None if policy.older_than is None else policy.older_than // timedelta(milliseconds=1)
    return Retention(
        _longer(older_than, age, DEFAULT_MAX_AGE_MS),
        max(_longer(policy.retain_last, keep, DEFAULT_MIN_TO_KEEP), 1),
        FOREVER_MS if ref_age is None else ref_age,
    )


def expired_snapshots(
    snapshots: Iterable[SnapshotFact],
    refs: Iterable[RefFact],
    policy: ExpireSnapshots,
    properties: Mapping[str, str],
    now_ms: int,
) -> Expired:
    """What the policy lets go at `now_ms` (milliseconds since 1970).

    Kept are: the snapshot of each ref that stays; of a branch, walking back from its head, the ancestors that are
    young enough or among the first to keep, up to the first that is neither; snapshots that no staying ref reaches,
    while they are young. A ref's own retention replaces the table's. `main` never goes. A ref whose snapshot does not
    exist keeps nothing, and goes.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    rules = retention(policy, properties)
    if rules is None:
        return Expired()
    all_refs = list(refs)
    staying = [ref for ref in all_refs if _stays(ref, by_id, rules, now_ms)]
    kept: set[int] = set()
    reached: set[int] = set()
    for ref in staying:
        if ref.snapshot_id not in by_id:
            continue
        kept.add(ref.snapshot_id)
        reached.add(ref.snapshot_id)
        if ref.is_branch:
            lineage = list(lineage_of(ref.snapshot_id, by_id))
            reached.update(snapshot.snapshot_id for snapshot in lineage)
            kept.update(_kept_of_branch(ref, lineage, rules, now_ms))
    for snapshot in by_id.values():
        is_young = snapshot.timestamp_ms >= now_ms - rules.max_snapshot_age_ms
        if is_young and snapshot.snapshot_id not in reached:
            kept.add(snapshot.snapshot_id)
    gone = [snapshot for snapshot in by_id.values() if snapshot.snapshot_id not in kept]
    gone.sort(key=lambda snapshot: (snapshot.timestamp_ms, snapshot.snapshot_id))
    stay_names = {ref.name for ref in staying}
    return Expired(
        tuple(snapshot.snapshot_id for snapshot in gone),
        tuple(sorted(ref.name for ref in all_refs if ref.name not in stay_names)),
    )


def expired_of_branch(
    snapshots: Iterable[SnapshotFact],
    refs: Iterable[RefFact],
    branch: str,
    policy: ExpireSnapshots,
    properties: Mapping[str, str],
    now_ms: int,
) -> Expired:
    """What may go of one branch (IM-23): snapshots of its line that no other branch and no tag reaches.

    By the same rules as above. Refs stay, this one too, and so does every snapshot that is not of its line.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    all_refs = list(refs)
    rules = retention(policy, properties)
    mine = next((ref for ref in all_refs if ref.name == branch and ref.is_branch), None)
    if rules is None or mine is None:
        return Expired()
    lineage = list(lineage_of(mine.snapshot_id, by_id))
    kept = {mine.snapshot_id, *_kept_of_branch(mine, lineage, rules, now_ms)}
    # Of a tag its ancestors as well: they are not this branch's own.
    for other in all_refs:
        if other.name != branch:
            kept.update(snapshot.snapshot_id for snapshot in lineage_of(other.snapshot_id, by_id))
    return Expired(tuple(snapshot.snapshot_id for snapshot in reversed(lineage) if snapshot.snapshot_id not in kept))


def _stays(ref: RefFact, by_id: Mapping[int, SnapshotFact], rules: Retention, now_ms: int) -> bool:
    if ref.name == MAIN_BRANCH:
        return True
    snapshot = by_id.get(ref.snapshot_id)
    if snapshot is None:
        return False
    oldest = rules.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return now_ms - snapshot.timestamp_ms <= oldest


def _kept_of_branch(ref: RefFact, lineage: list[SnapshotFact], rules: Retention, now_ms: int) -> Iterator[int]:
    age = rules.max_snapshot_age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
    first = rules.min_snapshots_to_keep if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    for position, snapshot in enumerate(lineage):
        if position >= first and snapshot.timestamp_ms < now_ms - age:
            return
        yield snapshot.snapshot_id


def lineage_of(head: int, by_id: Mapping[int, SnapshotFact]) -> Iterator[SnapshotFact]:
    """Head and ancestors, as far as they still exist. Damaged metadata may hold a cycle: each comes once."""
    seen: set[int] = set()
    current: int | None = head
    while current is not None and current in by_id and current not in seen:
        seen.add(current)
        yield by_id[current]
        current = by_id[current].parent_id


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    number = int(text)
    if number < 0:
        raise ValueError(name)
    return number


def _longer(of_policy: int | None, of_property: int | None, default: int) -> int:
    said = [value for value in (of_policy, of_property) if value is not None]
    return max(said) if said else default
