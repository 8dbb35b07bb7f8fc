"""Triggers, windows, expiry and the health score."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from lakehouse_maintenance.config.policies import ExpireSnapshots, Policy, Trigger, Window
from lakehouse_maintenance.model.errors import ConfigurationError
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.snapshots import RefFact, SnapshotFact
from lakehouse_maintenance.planning.expiry import expired_snapshots, retention
from lakehouse_maintenance.planning.score import score
from lakehouse_maintenance.planning.triggers import crossed, due_actions, measure, near
from lakehouse_maintenance.planning.window import is_open

DAY = 24 * 3_600_000
NOW = 100 * DAY


class TestTriggers:
    small = Trigger(of="small_files", base=20, scale=0.1, size="data_files")
    flat = Trigger(of="manifests", base=100)

    def test_the_reason_holds_the_numbers(self):
        health = TableHealth("t", small_files=812, data_files=845)
        assert crossed([self.small], health) == "small_files 812 ≥ 20 + 0.1 × 845 data_files = 104.5"
        assert crossed([self.flat], TableHealth("t", manifests=100)) == "manifests 100 ≥ 100"

    def test_below_it(self):
        assert crossed([self.small, self.flat], TableHealth("t", small_files=104, data_files=845)) is None

    def test_any_of_several_is_enough(self):
        assert crossed([self.small, self.flat], TableHealth("t", manifests=200)) == "manifests 200 ≥ 100"
        assert crossed([], TableHealth("t", manifests=200)) is None

    def test_nothing_is_never_enough(self):
        assert crossed([Trigger(of="delete_files", base=0)], TableHealth("t")) is None

    def test_near(self):
        assert near(self.flat, TableHealth("t", manifests=80)) == 0.8
        assert near(self.flat, TableHealth("t")) == 0.0
        assert near(Trigger(of="manifests", base=0), TableHealth("t", manifests=1)) == 1.0

    def test_unknown_numbers(self):
        assert measure(TableHealth("t", metadata_bytes=None), "metadata_bytes") == 0
        for name in ("table", "histogram", "as_json", "nothing"):
            with pytest.raises(ConfigurationError):
                measure(TableHealth("t"), name)

    def test_due_actions_in_the_order_they_are_done(self):
        health = TableHealth("t", small_files=90, data_files=100, manifests=200, expired_snapshots=11)
        names = ["rewrite_data_files", "rewrite_manifests", "expire_snapshots"]
        assert [due.action for due in due_actions(health, Policy(), {}, NOW)] == names
        ran = dict.fromkeys(names, NOW - 1)
        assert [due.action for due in due_actions(health, Policy(), ran, NOW)] == names[1:]


class TestWindow:
    def window(self, start: str = "22:00", hours: float = 5, zone: str = "UTC") -> Window:
        return Window(start=start, duration=timedelta(hours=hours), timezone=zone)

    @pytest.mark.parametrize(
        ("hour", "minute", "open_"),
        [(21, 59, False), (22, 0, True), (0, 0, True), (2, 59, True), (3, 0, False), (12, 0, False)],
    )
    def test_across_midnight(self, hour, minute, open_):
        assert is_open(self.window(), datetime(2026, 3, 1, hour, minute, tzinfo=UTC)) is open_

    def test_in_its_own_zone(self):
        berlin = self.window("01:00", 1, "Europe/Berlin")
        assert is_open(berlin, datetime(2026, 1, 10, 0, 30, tzinfo=UTC))
        assert is_open(berlin, datetime(2026, 7, 9, 23, 30, tzinfo=UTC))
        assert not is_open(berlin, datetime(2026, 7, 10, 0, 30, tzinfo=UTC))

    def test_five_hours_in_the_night_of_a_clock_change(self):
        spring = self.window("01:00", 5, "Europe/Berlin")
        # 2026-03-29: 01:00 is 00:00 UTC, and the clocks go from 02:00 to 03:00.
        assert is_open(spring, datetime(2026, 3, 29, 4, 59, tzinfo=UTC))
        assert not is_open(spring, datetime(2026, 3, 29, 5, 0, tzinfo=UTC))

    def test_always(self):
        noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
        assert is_open(None, noon)
        assert is_open(Window(start=time(1), duration=timedelta(hours=24)), noon)


def line(*ages_in_days: int) -> list[SnapshotFact]:
    """Snapshots 1, 2, … of one line, the oldest first."""
    return [SnapshotFact(n + 1, n or None, NOW - age * DAY) for n, age in enumerate(ages_in_days)]


def gone(snapshots, refs=(), *, older_than: str | None = None, retain_last: int | None = None, **properties: str):
    policy = ExpireSnapshots(older_than=older_than, retain_last=retain_last)
    named = {f"history.expire.{name.replace('_', '-')}": value for name, value in properties.items()}
    main = RefFact("main", "branch", snapshots[-1].snapshot_id)
    return expired_snapshots(snapshots, [main, *refs], policy, named, NOW)


class TestExpiry:
    def test_icebergs_defaults(self):
        assert gone(line(9, 6, 5, 1)).snapshot_ids == (1, 2)
        assert gone(line(90, 80, 70)).snapshot_ids == (1, 2)

    def test_the_longer_of_policy_and_property_wins(self):
        snapshots = line(9, 8, 7, 6, 1)
        assert gone(snapshots, older_than="7 days").snapshot_ids == (1, 2)
        assert gone(snapshots, older_than="7 days", max_snapshot_age_ms=str(8 * DAY)).snapshot_ids == (1,)
        assert gone(snapshots, older_than="8 days", max_snapshot_age_ms=str(7 * DAY)).snapshot_ids == (1,)
        assert gone(snapshots, older_than="1 day", retain_last=2, min_snapshots_to_keep="3").snapshot_ids == (1, 2)
        assert gone(snapshots, older_than="1 day", retain_last=4).snapshot_ids == (1,)
        # A policy shorter than Iceberg's default, where the table says nothing, is what somebody wrote.
        assert gone(snapshots, older_than="1 day").snapshot_ids == (1, 2, 3, 4)

    def test_a_tag_keeps_its_snapshot_alone(self):
        assert gone(line(9, 8, 7, 1), [RefFact("t", "tag", 2)]).snapshot_ids == (1, 3)

    def test_a_branch_keeps_by_its_own_rules(self):
        snapshots = [*line(9, 8, 7, 6), SnapshotFact(10, 2, NOW - 7 * DAY), SnapshotFact(11, 4, NOW)]
        branch = RefFact("b", "branch", 10, min_snapshots_to_keep=2, max_snapshot_age_ms=0)
        assert gone(snapshots, [branch]).snapshot_ids == (1, 3, 4)
        older = RefFact("b", "branch", 10, max_snapshot_age_ms=20 * DAY)
        assert gone(snapshots, [older]).snapshot_ids == (3, 4)

    def test_refs_that_have_outlived_their_age_go(self):
        refs = [RefFact("old", "tag", 1, max_ref_age_ms=5 * DAY), RefFact("kept", "tag", 2, max_ref_age_ms=50 * DAY)]
        expired = gone(line(9, 8, 1), refs)
        assert (expired.snapshot_ids, expired.refs) == ((1,), ("old",))
        assert gone(line(9, 8, 1), [RefFact("old", "tag", 1)], max_ref_age_ms=str(DAY)).refs == ("old",)
        assert gone(line(9, 8, 1), [RefFact("broken", "tag", 77)]).refs == ("broken",)

    def test_main_never_goes(self):
        assert gone(line(400), max_ref_age_ms="1") == gone(line(1))

    def test_what_no_ref_reaches_goes_by_age_alone(self):
        snapshots = [SnapshotFact(20, 1, NOW - 6 * DAY), SnapshotFact(21, 1, NOW - 2 * DAY), *line(9, 1)]
        assert gone(snapshots, min_snapshots_to_keep="10").snapshot_ids == (20,)

    def test_walking_back_ends_at_the_first_that_goes(self):
        """A snapshot that is younger by its own clock than its child does not stay beyond one that goes."""
        snapshots = [SnapshotFact(1, None, NOW - DAY), SnapshotFact(2, 1, NOW - 9 * DAY), SnapshotFact(3, 2, NOW)]
        assert gone(snapshots).snapshot_ids == (2, 1)

    def test_a_cycle_ends(self):
        snapshots = [SnapshotFact(1, 2, NOW), SnapshotFact(2, 1, NOW)]
        assert gone(snapshots).snapshot_ids == ()

    @pytest.mark.parametrize(
        "properties",
        [
            {"gc.enabled": "false"},
            {"history.expire.max-snapshot-age-ms": "long"},
            {"history.expire.min-snapshots-to-keep": "-1"},
        ],
    )
    def test_nothing_goes_where_it_is_forbidden_or_unreadable(self, properties):
        policy = ExpireSnapshots(older_than="1s", retain_last=1)
        assert retention(policy, properties) is None
        main = RefFact("main", "branch", 3)
        assert expired_snapshots(line(9, 8, 7), [main], policy, properties, NOW).snapshot_ids == ()


class TestScore:
    def test_healthy_and_sick(self):
        assert score(TableHealth("t")) == 100
        assert score(TableHealth("t", data_files=500, records=10**9, manifests=5)) == 100
        assert score(TableHealth("t", data_files=3, small_files=3)) >= 94
        assert score(TableHealth("t", data_files=3000, small_files=2950, manifests=50)) < 65
        assert score(TableHealth("t", error="unreadable")) == 0
        everything = TableHealth(
            "t",
            data_files=10**6,
            small_files=10**6,
            records=1,
            deleted_rows=1,
            delete_files=10**8,
            manifests=10**8,
            expired_snapshots=10**6,
        )
        assert score(everything) <= 2
