"""Which table properties would have kept a table healthy, by the symptoms that it shows (IM-18). Pure.

Each rule asks for a symptom, in numbers, and for a property that stands in its way; a table that is well, or has the
property, gets no advice. What the properties mean is told in `docs/health.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.advice import Advice
from lakehouse_maintenance.model.intervals import format_size
from lakehouse_maintenance.model.properties import (
    DELETE_AFTER_COMMIT,
    MANIFEST_MERGE,
    MANIFEST_MIN_COUNT,
    MANIFEST_MIN_COUNT_DEFAULT,
    MANIFEST_TARGET,
    MANIFEST_TARGET_DEFAULT,
    PREVIOUS_VERSIONS,
    PREVIOUS_VERSIONS_DEFAULT,
    whole_number,
)
from lakehouse_maintenance.planning.expiry import MAX_AGE_PROPERTY, MIN_TO_KEEP_PROPERTY
from lakehouse_maintenance.planning.rewrite_options import DEFAULT_TARGET, TARGET_PROPERTY

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import Policy
    from lakehouse_maintenance.model.health import TableHealth

MANY_VERSIONS = 50
"""Previous metadata files from which on their number is a symptom."""
FEW_VERSIONS = 20
"""Previous metadata files that are advised: enough to step back from a bad commit."""
MANY_MANIFESTS = 50
FEW_MANIFESTS = 20
"""Small manifests that may gather before they are merged, as is advised."""
MANY_FILES = 100
SMALL_TARGET = 64 << 20
MANY_EXPIRED = 10
MANY_SNAPSHOTS = 100


def advise(health: TableHealth, properties: Mapping[str, str], policy: Policy) -> tuple[Advice, ...]:
    """In a fixed order; each property once."""
    if health.error is not None:
        return ()
    rules = (_metadata_history, _manifests, _file_size)
    found = [one for rule in rules for one in rule(health, properties)]
    found += _retention(health, properties, policy)
    return tuple(found)


def to_set(policy: Policy, advice: Iterable[Advice], properties: Mapping[str, str]) -> dict[str, str]:
    """What the policy wants to be set and is not: its own values before what is advised.

    A retention that the table sets itself is its owner's word: advice does not change it.
    """
    section = policy.set_properties
    wanted = {}
    for one in advice:
        is_wanted = section.advised if isinstance(section.advised, bool) else one.property in section.advised
        if is_wanted and not (one.property.startswith("history.") and one.current is not None):
            wanted[one.property] = one.value
    wanted |= section.values
    return {name: value for name, value in sorted(wanted.items()) if properties.get(name) != value}


def _metadata_history(health: TableHealth, properties: Mapping[str, str]) -> Iterator[Advice]:
    previous = health.metadata_files - 1
    if previous < MANY_VERSIONS:
        return
    size = "" if health.metadata_bytes is None else f" ({format_size(health.metadata_bytes)})"
    if properties.get(DELETE_AFTER_COMMIT, "false").strip().lower() != "true":
        yield Advice(
            DELETE_AFTER_COMMIT,
            "true",
            properties.get(DELETE_AFTER_COMMIT),
            f"{health.metadata_files} metadata files{size}: each commit writes a whole new one, and nobody deletes "
            "those that leave the log, which are orphan files then",
        )
    if whole_number(properties, PREVIOUS_VERSIONS, PREVIOUS_VERSIONS_DEFAULT) > FEW_VERSIONS:
        yield Advice(
            PREVIOUS_VERSIONS,
            str(FEW_VERSIONS),
            properties.get(PREVIOUS_VERSIONS),
            f"{previous} previous metadata files{size} are kept, {FEW_VERSIONS} are enough to step back from a bad "
            "commit",
        )


def _manifests(health: TableHealth, properties: Mapping[str, str]) -> Iterator[Advice]:
    crowded = health.manifests >= MANY_MANIFESTS and health.manifests >= 4 * max(health.manifests_after, 1)
    if not crowded:
        return
    evidence = (
        f"{health.manifests} manifests ({format_size(health.manifest_bytes)}) where about {health.manifests_after} "
        f"would do; a query on one partition opens up to {health.opened_manifests_worst}"
    )
    least = whole_number(properties, MANIFEST_MIN_COUNT, MANIFEST_MIN_COUNT_DEFAULT)
    target = whole_number(properties, MANIFEST_TARGET, MANIFEST_TARGET_DEFAULT)
    merge = properties.get(MANIFEST_MERGE, "").strip().lower()
    if merge == "false" or (merge != "true" and health.manifests > least):
        why = "merging is switched off" if merge else "unset, Iceberg's Java writers merge and PyIceberg's do not"
        yield Advice(MANIFEST_MERGE, "true", properties.get(MANIFEST_MERGE), f"{evidence}; {why}")
    if least > FEW_MANIFESTS:
        yield Advice(
            MANIFEST_MIN_COUNT,
            str(FEW_MANIFESTS),
            properties.get(MANIFEST_MIN_COUNT),
            f"{evidence}; a commit merges small manifests only once {least} of them have gathered",
        )
    if target < MANIFEST_TARGET_DEFAULT:
        yield Advice(
            MANIFEST_TARGET,
            str(MANIFEST_TARGET_DEFAULT),
            properties.get(MANIFEST_TARGET),
            f"{evidence}; they are cut at {format_size(target)}",
        )


def _file_size(health: TableHealth, properties: Mapping[str, str]) -> Iterator[Advice]:
    target = whole_number(properties, TARGET_PROPERTY, DEFAULT_TARGET)
    if target < SMALL_TARGET and health.data_files >= MANY_FILES and health.data_bytes > MANY_FILES * target // 2:
        average = format_size(health.data_bytes // health.data_files)
        yield Advice(
            TARGET_PROPERTY,
            str(DEFAULT_TARGET),
            properties.get(TARGET_PROPERTY),
            f"{health.data_files} data files of {average} on average: writers cut them at {format_size(target)}, and "
            "compaction aims at the same",
        )


def _retention(health: TableHealth, properties: Mapping[str, str], policy: Policy) -> Iterator[Advice]:
    """So that other engines' expiry keeps what the policy keeps, and no more."""
    expire = policy.expire_snapshots
    wanted = {
        MAX_AGE_PROPERTY: None if expire.older_than is None else expire.older_than // timedelta(milliseconds=1),
        MIN_TO_KEEP_PROPERTY: expire.retain_last,
    }
    for name, value in wanted.items():
        current = properties.get(name)
        if value is None or value < 1:
            continue
        if current is None and health.expired_snapshots >= MANY_EXPIRED:
            yield Advice(
                name,
                str(value),
                None,
                f"{health.expired_snapshots} of {health.snapshots} snapshots have outlived the policy and hold "
                f"{format_size(health.reclaimable_bytes)}; the property makes every engine's expiry follow it",
            )
        elif current is not None and health.snapshots >= MANY_SNAPSHOTS and whole_number(properties, name, 0) > value:
            yield Advice(
                name,
                str(value),
                current,
                f"{health.snapshots} snapshots are kept: the table's {name} is longer than the policy's, and the "
                "longer wins",
            )
