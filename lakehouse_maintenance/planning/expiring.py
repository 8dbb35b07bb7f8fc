"""Whether a table's snapshots expire now, which, and what guards stand before it (IM-05, IM-17). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.intervals import format_duration
from lakehouse_maintenance.model.properties import GC_PROPERTY, forbids_deleting
from lakehouse_maintenance.model.snapshots import RefFact, SnapshotFact
from lakehouse_maintenance.planning.expiry import Expired, Retention, expired_snapshots, retention

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import ExpireSnapshots


@dataclass(frozen=True, slots=True)
class Reach:
    """What only the expired snapshots reach: number of files of every kind, and their bytes where metadata tells."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What somebody asked for beyond the policy; None: as the policy says. `snapshot_ids`: these and no others."""

    older_than: timedelta | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    allow_short_retention: bool = False


@dataclass(frozen=True, slots=True)
class ExpiryFacts:
    """A table's snapshots and refs as one metadata file tells them."""

    snapshots: tuple[SnapshotFact, ...]
    refs: tuple[RefFact, ...]
    properties: Mapping[str, str]


CountReach = Callable[[frozenset[int]], Reach]


def effective(policy: ExpireSnapshots, asked: ExpiryRequest) -> ExpireSnapshots:
    """The policy with what was asked for in its place."""
    changed: dict[str, object] = {}
    if asked.older_than is not None:
        changed["older_than"] = asked.older_than
    if asked.retain_last is not None:
        changed["retain_last"] = asked.retain_last
    if asked.allow_short_retention:
        changed["allow_short_retention"] = True
    return policy.model_copy(update=changed)


def refusal(policy: ExpireSnapshots, properties: Mapping[str, str], longest_reader: timedelta) -> str | None:
    """Why nothing may expire under these settings; None where it may.

    A cutoff nearer than the longest reader takes files from under running queries: it needs a word of its own.
    """
    if forbids_deleting(properties):
        return f"{GC_PROPERTY}={properties[GC_PROPERTY]} forbids deleting files of this table"
    rules = retention(policy, properties)
    if rules is None:
        return "a history.expire.* property of the table cannot be read, so its retention is not known"
    if policy.allow_short_retention:
        return None
    age = timedelta(milliseconds=min(rules.max_snapshot_age_ms, 10**15))
    if age < longest_reader:
        return (
            f"older_than {format_duration(age)} is nearer than the longest reader, {format_duration(longest_reader)} "
            "(readers.longest); --allow-short-retention or the policy's allow_short_retention lets it pass"
        )
    if policy.retain_last is not None and policy.retain_last < 1:
        return "retain_last below 1 keeps no snapshot to roll back to; --allow-short-retention lets it pass"
    return None


def decide(
    facts: ExpiryFacts, policy: ExpireSnapshots, asked_ids: Iterable[int], now_ms: int, longest_reader: timedelta
) -> Expired:
    """What goes. With `asked_ids`, these alone, as far as they exist and no ref stands on them.

    A branch's or tag's own retention may be nearer than the longest reader too: without a word for a short one, what
    is younger stays, and so does a ref that stands on it.
    """
    ids = tuple(asked_ids)
    if not ids:
        gone = expired_snapshots(facts.snapshots, facts.refs, policy, facts.properties, now_ms)
        if policy.allow_short_retention:
            return gone
        oldest = now_ms - longest_reader // timedelta(milliseconds=1)
        young = {s.snapshot_id for s in facts.snapshots if s.timestamp_ms > oldest}
        staying = {ref.name for ref in facts.refs if ref.snapshot_id in young}
        return Expired(
            tuple(i for i in gone.snapshot_ids if i not in young), tuple(r for r in gone.refs if r not in staying)
        )
    if retention(policy, facts.properties) is None:
        return Expired()
    heads = {ref.snapshot_id for ref in facts.refs}
    known = {snapshot.snapshot_id for snapshot in facts.snapshots}
    return Expired(tuple(i for i in ids if i in known and i not in heads))


def notes(facts: ExpiryFacts, gone: Expired) -> tuple[str, ...]:
    """The earliest point in time that stays readable, and how many rollbacks remain (IM-17)."""
    by_id = {s.snapshot_id: s for s in facts.snapshots if s.snapshot_id not in set(gone.snapshot_ids)}
    main = next((ref for ref in facts.refs if ref.name == "main"), None)
    lineage: list[SnapshotFact] = []
    current = None if main is None else main.snapshot_id
    while current is not None and current in by_id and len(lineage) <= len(by_id):
        lineage.append(by_id[current])
        current = by_id[current].parent_id
    if not lineage:
        return ()
    earliest = datetime.fromtimestamp(lineage[-1].timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    return (
        f"the table stays readable as of {earliest} and later",
        f"{len(lineage) - 1} rollbacks remain",
    )


def as_text(policy: ExpireSnapshots, rules: Retention, asked: ExpiryRequest) -> dict[str, str]:
    """The settings in force, for PlannedAction.options."""
    return {
        "older-than-ms": str(rules.max_snapshot_age_ms),
        "retain-last": str(rules.min_snapshots_to_keep),
        "max-ref-age-ms": str(rules.max_ref_age_ms),
        "snapshot-ids": ",".join(map(str, sorted(asked.snapshot_ids))),
        "clean-expired-metadata": str(asked.clean_expired_metadata).lower(),
        "allow-short-retention": str(policy.allow_short_retention).lower(),
    }
