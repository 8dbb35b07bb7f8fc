"""When storage shrinks after a rewrite, in words (IM-19)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakehouse_maintenance.config.policies import ExpireSnapshots
from lakehouse_maintenance.model.snapshots import RefFact, SnapshotFact
from lakehouse_maintenance.planning.expiring import ExpiryFacts
from lakehouse_maintenance.planning.shrinking import WORDS, shrinks

DAY = 86_400_000
T = 1_790_000_000_000
"""2026-09-21T14:13:20Z; snapshots 1 to 4 in steps of a minute, the last is the rewrite's."""


def facts(refs: tuple[RefFact, ...] = (), snapshots: int = 4, **properties: str) -> ExpiryFacts:
    line = tuple(SnapshotFact(n, n - 1 or None, T + (n - 3) * 60_000) for n in range(1, snapshots + 1))
    has_main = any(ref.name == "main" for ref in refs)
    main = () if has_main else (RefFact("main", "branch", snapshots),)
    return ExpiryFacts(line, (*main, *refs), {name.replace("_", "."): value for name, value in properties.items()})


def policy(**changes: Any) -> ExpireSnapshots:
    return ExpireSnapshots(**{"older_than": timedelta(days=5), "retain_last": 1, **changes})


def said(about: ExpiryFacts, by: ExpireSnapshots | None = None, snapshot: int = 4) -> str:
    text = shrinks(about, by or policy(), snapshot, timedelta(hours=24))
    assert text.startswith(WORDS)
    return text.removeprefix(WORDS)


def test_a_date_by_age() -> None:
    assert said(facts()) == (
        ": by policy from 2026-09-26T14:13:20+00:00 on, with the expiry that expired_snapshots ≥ 10 makes due"
    )


def test_the_longer_of_policy_and_property_counts() -> None:
    about = ExpiryFacts(facts().snapshots, facts().refs, {"history.expire.max-snapshot-age-ms": str(7 * DAY)})
    assert "from 2026-09-28T14:13:20" in said(about)


def test_a_branchs_own_retention_not_nearer_than_the_longest_reader() -> None:
    main = RefFact("main", "branch", 4, max_snapshot_age_ms=1, min_snapshots_to_keep=1)
    assert "from 2026-09-22T14:13:20" in said(facts((main,)))
    assert "from 2026-09-21T14:13:20" in said(facts((main,)), policy(allow_short_retention=True))


@pytest.mark.parametrize(
    ("keep", "later", "count"),
    [(1, 0, None), (2, 0, "1 more snapshot has"), (10, 0, "9 more snapshots have"), (10, 3, "6 more")],
)
def test_how_many_have_to_come(keep: int, later: int, count: str | None) -> None:
    text = said(facts(snapshots=4 + later), policy(retain_last=keep))
    assert ("once" in text) is (count is not None)
    assert count is None or f"once {count}" in text


def test_what_branches_and_tags_need_stays() -> None:
    text = said(facts((RefFact("audit", "branch", 2), RefFact("year", "tag", 3), RefFact("now", "tag", 4))))
    assert text.endswith("; what branch audit, tag year needs stays longer")


def test_where_it_never_does() -> None:
    assert "by policy none does by its age" in said(
        ExpiryFacts(facts().snapshots, facts().refs, {"history.expire.max-snapshot-age-ms": str((1 << 63) - 1)})
    )
    assert "refused as it is: gc.enabled=false" in said(facts(gc_enabled="false"))
    assert "refused as it is: older_than 1 hour" in said(facts(), policy(older_than=timedelta(hours=1)))
    assert "no trigger makes expiry due" in said(facts(), policy(trigger=[]))


def test_nothing_is_older() -> None:
    assert said(facts(snapshots=1), snapshot=1) == ""
