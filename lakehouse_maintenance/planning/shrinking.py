"""When storage shrinks after a rewrite: once the snapshots expire that still need the replaced files (IM-19). Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.snapshots import MAIN_BRANCH
from lakehouse_maintenance.planning.expiring import ExpiryFacts, moment, refusal
from lakehouse_maintenance.planning.expiry import FOREVER_MS, lineage_of, retention

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import ExpireSnapshots

WORDS = "storage shrinks only when the snapshots before this one expire"


def shrinks(
    facts: ExpiryFacts,
    policy: ExpireSnapshots,
    snapshot_id: int,
    longest_reader: timedelta,
    branch: str = MAIN_BRANCH,
) -> str:
    """In words, for the snapshot that replaced files: that they stay until what is older expires, and until when.

    By age they go at the time of the snapshot right before plus the age in force; before that many newer snapshots
    have to come as the branch keeps, and branches and tags that stand on older ones have to go.
    """
    refused = refusal(policy, facts.properties, longest_reader)
    rules = retention(policy, facts.properties)
    if refused is not None or rules is None:
        return f"{WORDS}, which is refused as it is: {refused}"
    by_id = {snapshot.snapshot_id: snapshot for snapshot in facts.snapshots}
    older = {s.snapshot_id for s in lineage_of(snapshot_id, by_id)} - {snapshot_id}
    if not older:
        return WORDS
    mine = next((ref for ref in facts.refs if ref.name == branch), None)
    age = rules.max_snapshot_age_ms
    keep = rules.min_snapshots_to_keep
    if mine is not None:
        age = age if mine.max_snapshot_age_ms is None else mine.max_snapshot_age_ms
        keep = keep if mine.min_snapshots_to_keep is None else mine.min_snapshots_to_keep
    if not policy.allow_short_retention:
        age = max(age, longest_reader // timedelta(milliseconds=1))
    if age > FOREVER_MS // 4:
        return f"{WORDS}, and by policy none does by its age"
    newest = max(by_id[i].timestamp_ms for i in older)
    head = snapshot_id if mine is None else mine.snapshot_id
    position = [s.snapshot_id for s in lineage_of(head, by_id)]
    since = position.index(snapshot_id) + 1 if snapshot_id in position else 1
    text = f"{WORDS}: by policy from {moment(newest + age + 1)} on"
    if keep > since:
        count = keep - since
        text += f", once {count} more {'snapshot has' if count == 1 else 'snapshots have'} come ({keep} are kept)"
    text += f", {_due(policy)}"
    holding = sorted(f"{ref.kind} {ref.name}" for ref in facts.refs if ref.name != branch and ref.snapshot_id in older)
    if holding:
        text += f"; what {', '.join(holding[:5])} needs stays longer"
    return text


def _due(policy: ExpireSnapshots) -> str:
    if not policy.trigger:
        return "when somebody asks for it: no trigger makes expiry due"
    sizes = [
        f"{t.of} ≥ {t.base:g}" + (f" + {t.scale:g} × {t.size}" if t.size and t.scale else "") for t in policy.trigger
    ]
    return f"with the expiry that {' or '.join(sizes)} makes due"
