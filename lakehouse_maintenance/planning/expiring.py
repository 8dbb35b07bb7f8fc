"""Whether a table's snapshots expire now, which, and what guards stand before it (IM-05, IM-17). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.intervals import format_duration
from lakehouse_maintenance.model.properties import GC_PROPERTY, forbids_deleting
from lakehouse_maintenance.model.snapshots import MAIN_BRANCH, RefFact, SnapshotFact
from lakehouse_maintenance.planning.expiry import (
    Expired,
    Retention,
    expired_of_branch,
    expired_snapshots,
    lineage_of,
    retention,
)

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import ExpireSnapshots


@dataclass(frozen=True, slots=True)
class Reach:
    """What only the expired snapshots reach: number of files of every kind, and their bytes where metadata tells."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What somebody asked for beyond the policy; None: as the policy says. `snapshot_ids`: these and no others.

    `max_concurrent_deletes`: deleting calls in flight.
    """

    older_than: timedelta | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    allow_short_retention: bool = False
    max_concurrent_deletes: int | None = None


@dataclass(frozen=True, slots=True)
class ExpiryFacts:
    """A table's snapshots and refs as one metadata file tells them.

    `began_ms`: when the table was made, in ms since 1970; None where its history was cut, so that it is not known.
    """

    snapshots: tuple[SnapshotFact, ...]
    refs: tuple[RefFact, ...]
    properties: Mapping[str, str]
    began_ms: int | None = None


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
    facts: ExpiryFacts,
    policy: ExpireSnapshots,
    asked_ids: Iterable[int],
    now_ms: int,
    longest_reader: timedelta,
    branch: str | None = None,
) -> Expired:
    """What goes. With `asked_ids`, these alone, as far as they exist and no ref stands on them.

    `branch`: of this branch's own snapshots alone; None: of the table's.
    A branch's or tag's own retention may be nearer than the longest reader too: without a word for a short one, what
    is younger stays, and so does a ref that stands on it.
    """
    ids = tuple(asked_ids)
    if not ids:
        if branch is None:
            gone = expired_snapshots(facts.snapshots, facts.refs, policy, facts.properties, now_ms)
        else:
            gone = expired_of_branch(facts.snapshots, facts.refs, branch, policy, facts.properties, now_ms)
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
    if branch is not None:
        known = _own(facts, branch)
    return Expired(tuple(i for i in ids if i in known and i not in heads))


def _own(facts: ExpiryFacts, branch: str) -> set[int]:
    """Snapshots of the branch's line that no other ref reaches."""
    mine = next((ref for ref in facts.refs if ref.name == branch and ref.is_branch), None)
    if mine is None:
        return set()
    by_id = {snapshot.snapshot_id: snapshot for snapshot in facts.snapshots}
    others = {s.snapshot_id for ref in facts.refs if ref.name != branch for s in lineage_of(ref.snapshot_id, by_id)}
    return {snapshot.snapshot_id for snapshot in lineage_of(mine.snapshot_id, by_id)} - others


def unmet(
    facts: ExpiryFacts, asked_ids: Iterable[int], gone: Expired, now_ms: int, longest_reader: timedelta
) -> tuple[str, ...]:
    """What a person who named snapshots has to know: which of them stay and why, and which a query may still read."""
    heads: dict[int, list[str]] = {}
    for ref in facts.refs:
        heads.setdefault(ref.snapshot_id, []).append(f"{ref.kind} {ref.name}")
    known = {snapshot.snapshot_id: snapshot for snapshot in facts.snapshots}
    told: list[str] = []
    for asked in dict.fromkeys(asked_ids):
        if asked in gone.snapshot_ids:
            continue
        if asked not in known:
            why = "the table has no such snapshot"
        elif asked in heads:
            why = f"it stays: {', '.join(heads[asked])} stands on it"
        else:
            why = "it stays: it is not the branch's own"
        told.append(f"snapshot {asked}: {why}")
    oldest = now_ms - longest_reader // timedelta(milliseconds=1)
    young = sum(known[i].timestamp_ms > oldest for i in gone.snapshot_ids if i in known)
    if told or young:
        told += [f"{young} of them are younger than the longest reader, {format_duration(longest_reader)}"] * bool(
            young
        )
    return tuple(told)


def notes(facts: ExpiryFacts, gone: Expired, branch: str = MAIN_BRANCH) -> tuple[str, ...]:
    """The earliest point in time that stays readable, and how many rollbacks remain (IM-17)."""
    by_id = {s.snapshot_id: s for s in facts.snapshots if s.snapshot_id not in set(gone.snapshot_ids)}
    main = next((ref for ref in facts.refs if ref.name == branch), None)
    lineage = [] if main is None else list(lineage_of(main.snapshot_id, by_id))
    if not lineage:
        return ()
    what = "the table" if branch == MAIN_BRANCH else f"branch {branch}"
    return (
        f"{what} stays readable as of {moment(lineage[-1].timestamp_ms)} and later",
        f"{len(lineage) - 1} rollbacks remain",
    )


def moment(time_ms: int) -> str:
    """ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def as_text(
    policy: ExpireSnapshots, rules: Retention, asked: ExpiryRequest, branch: str | None = None
) -> dict[str, str]:
    """The settings in force, for PlannedAction.options."""
    text = {
        "older-than-ms": str(rules.max_snapshot_age_ms),
        "retain-last": str(rules.min_snapshots_to_keep),
        "max-ref-age-ms": str(rules.max_ref_age_ms),
        "snapshot-ids": ",".join(map(str, sorted(asked.snapshot_ids))),
        "clean-expired-metadata": str(asked.clean_expired_metadata).lower(),
        "allow-short-retention": str(policy.allow_short_retention).lower(),
    }
    if branch is not None:
        text["branch"] = branch
    if asked.max_concurrent_deletes is not None:
        text["max-concurrent-deletes"] = str(asked.max_concurrent_deletes)
    return text
