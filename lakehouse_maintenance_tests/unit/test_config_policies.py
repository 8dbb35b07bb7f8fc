"""Policies merge key by key: default, database, table."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from lakehouse_maintenance.config import LakehouseConfig, MinGain, config_from_mapping
from lakehouse_maintenance.config.policies import MEASURES
from lakehouse_maintenance.model.health import TableHealth
from lakehouse_maintenance.model.names import TableName


def config(**policies: Any) -> LakehouseConfig:
    return config_from_mapping({"catalogs": {"main": {"type": "sql"}}, "policies": policies}, environment={})


EVENTS = TableName("main", ("analytics",), "events")


def test_the_nearest_layer_wins_key_by_key() -> None:
    policies = config(
        default={
            "rewrite_data_files": {
                "cooldown": "2h",
                "min_gain": "1GB",
                "options": {"min-input-files": "3", "target-file-size-bytes": "128MB"},
            },
            "expire_snapshots": {"retain_last": "4"},
        },
        databases={"main.analytics": {"rewrite_data_files": {"cooldown": "3h"}, "engine": "spark"}},
        tables={
            "main.analytics.events": {
                "rewrite_data_files": {"strategy": "sort", "options": {"min-input-files": "9", "rewrite-all": "true"}}
            }
        },
    )
    events = policies.policy_for(EVENTS)
    assert events.rewrite_data_files.cooldown == timedelta(hours=3)
    assert events.rewrite_data_files.min_gain == MinGain(bytes=1 << 30)
    assert events.rewrite_data_files.strategy == "sort"
    assert events.rewrite_data_files.options == {
        "min-input-files": "9",
        "target-file-size-bytes": "128MB",
        "rewrite-all": "true",
    }
    assert events.expire_snapshots.retain_last == 4
    assert events.engine == "spark"
    other = policies.policy_for(TableName("main", ("analytics",), "other"))
    assert (other.rewrite_data_files.strategy, other.engine) == ("binpack", "spark")
    elsewhere = policies.policy_for(TableName("main", ("sales",), "events"))
    assert (elsewhere.rewrite_data_files.cooldown, elsewhere.engine) == (timedelta(hours=2), "auto")
    assert policies.policy_for_database("main.analytics").engine == "spark"
    assert policies.policy_for_database("main.sales").engine == "auto"


def test_triggers_and_lists_are_replaced_whole() -> None:
    policies = config(
        default={
            "rewrite_data_files": {"trigger": {"of": "small_files", "base": 5, "scale": 0.5, "size": "data_files"}},
            "untracked_folders": {"exclude_paths": ["s3://b/x"]},
        },
        databases={"main.analytics": {"untracked_folders": {"exclude_paths": ["s3://b/y"]}}},
        tables={
            "main.analytics.events": {"rewrite_data_files": {"trigger": {"of": "data_files", "base": 7}}},
            "main.analytics.never": {
                "rewrite_data_files": {"trigger": []},
                "rewrite_manifests": {"trigger": None},
                "engine": None,
            },
        },
    )
    (trigger,) = policies.policy_for(EVENTS).rewrite_data_files.trigger
    assert (trigger.of, trigger.base, trigger.scale, trigger.size) == ("data_files", 7, 0, None)
    assert policies.policy_for(EVENTS).untracked_folders.exclude_paths == ("s3://b/y",)
    never = policies.policy_for(TableName("main", ("analytics",), "never"))
    assert never.rewrite_data_files.trigger == ()
    # Empty keys are what remains of lines that are commented out: they set nothing.
    assert never.rewrite_manifests.trigger[0].of == "manifests"


def test_null_takes_away_and_nested_mappings_merge() -> None:
    policies = config(
        default={"window": {"start": "01:00", "duration": "5h"}, "budget": {"bytes_per_day": "1TB"}},
        databases={"main.analytics": {"window": {"timezone": "Europe/Berlin"}, "budget": None}},
        tables={"main.analytics.events": {"window": None, "expire_snapshots": {"older_than": None}}},
    )
    database = policies.policy_for_database("main.analytics")
    assert database.window is not None
    assert (database.window.start.hour, database.window.duration, database.window.timezone) == (
        1,
        timedelta(hours=5),
        "Europe/Berlin",
    )
    assert database.budget is None
    events = policies.policy_for(EVENTS)
    assert (events.window, events.expire_snapshots.older_than) == (None, None)


@pytest.mark.parametrize("key", ["main.analytics.events", "`main`.analytics.`events`", "analytics.events"])
def test_names_match_however_they_are_quoted(key: str) -> None:
    assert config(tables={key: {"engine": "spark"}}).policy_for(EVENTS).engine == "spark"


def test_names_with_dots_and_nested_namespaces() -> None:
    policies = config(databases={"main.a.b": {"engine": "spark"}}, tables={"main.`a.b`.`t``1`": {"engine": "embedded"}})
    assert policies.policy_for(TableName("main", ("a", "b"), "t")).engine == "spark"
    assert policies.policy_for(TableName("main", ("a.b",), "t")).engine == "auto"
    assert policies.policy_for(TableName("main", ("a.b",), "t`1")).engine == "embedded"
    assert policies.policy_for(TableName("main", ("a",), "b")).engine == "auto"


def test_policies_of_delta_groups() -> None:
    policies = config_from_mapping(
        {
            "delta": {"lake": {"tables": {"orders": "s3://lake/orders"}}},
            "policies": {"tables": {"lake.default.orders": {"vacuum": {"retention": "200h"}}}},
        },
        environment={},
    )
    assert policies.policy_for(TableName("lake", ("default",), "orders")).vacuum.retention == timedelta(hours=200)


def test_policies_are_frozen() -> None:
    policy = config().policy_for(EVENTS)
    with pytest.raises(ValidationError):
        policy.engine = "spark"  # type: ignore[misc]


def test_measures_are_the_numbers_of_health() -> None:
    assert {"small_files", "expired_snapshots", "data_files", "manifests", "delete_files", "deleted_rows"} <= set(
        MEASURES
    )
    assert not {"table", "snapshot_id", "score", "due", "histogram", "error", "format_version"} & set(MEASURES)
    health = TableHealth("main.a.t")
    assert all(isinstance(getattr(health, name), int | None) for name in MEASURES)
