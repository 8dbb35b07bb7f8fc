"""Which manifests are rewritten together (IM-06). Pure.

Manifests of one partition spec and one content (data or deletes) are looked at together. There are two gains:

- Fewer: those below three quarters of the target size fit into fewer manifests.
- Clustering: partition ranges overlap, so that a query on one partition opens manifests that hold little for it. The
  gain is worth a rewrite of all where a manifest overlaps on average with another one at least, and with a tenth of
  them all.

What a rewrite writes has neither gain left, so running it again right after plans nothing: written manifests are
closed once they have reached the target, and are sorted by partition, so that two of them share one value at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse_maintenance.config.action_options import check_action_options
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.manifests import ManifestFacts, Range
from lakehouse_maintenance.model.plans import PlannedFile

SPEC_ID = "spec-id"
TARGET = "target-size-bytes"
TARGET_PROPERTY = "commit.manifest.target-size-bytes"
DEFAULT_TARGET = 8 << 20

_LEAST_MEAN = 1.0
_LEAST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """The settings in force. `spec_id`: manifests of this spec alone, as in Iceberg's procedure."""

    spec_id: int
    target_size_bytes: int

    @classmethod
    def resolve(
        cls, options: Mapping[str, str], properties: Mapping[str, str], default_spec_id: int, spec_ids: Iterable[int]
    ) -> ManifestOptions:
        """Raises InputError whose `field` is the option that is unknown, unreadable or does not fit the table."""
        check_action_options(Action.REWRITE_MANIFESTS, options, field="option")
        given = options.get(SPEC_ID)
        spec_id = default_spec_id if given is None else int(given)
        known = sorted(spec_ids)
        if given is not None and spec_id not in known:
            raise InputError(
                f"the table has no partition spec {spec_id}",
                field=SPEC_ID,
                hint=f"it has {', '.join(map(str, known))}",
            )
        text = properties.get(TARGET_PROPERTY, "")
        target = int(text) if text.isascii() and text.isdigit() and int(text) else DEFAULT_TARGET
        return cls(spec_id, target)

    def as_text(self) -> dict[str, str]:
        """For a plan and its digest."""
        return {SPEC_ID: str(self.spec_id), TARGET: str(self.target_size_bytes)}

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> ManifestOptions:
        """Inverse of `as_text`. Raises InputError where a setting is missing or unreadable."""
        try:
            return cls(int(text[SPEC_ID]), int(text[TARGET]))
        except (KeyError, ValueError) as error:
            raise InputError(
                f"the plan's options do not tell {SPEC_ID} and {TARGET}", field="options", hint="make the plan anew"
            ) from error


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """`chosen`: manifests to rewrite; `expected`: manifests that should stand in their place, `expected_bytes` their
    size. `why`: the gain, or why there is none."""

    chosen: tuple[ManifestFacts, ...] = ()
    expected: int = 0
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Of the chosen."""
        return sum(manifest.size for manifest in self.chosen)

    @property
    def files(self) -> tuple[PlannedFile, ...]:
        """For a plan: `records` is the number of live entries, 0 where it is not known."""
        return tuple(PlannedFile(m.path, m.size, m.live_files or 0) for m in self.chosen)


@dataclass(slots=True)
class _Choice:
    chosen: list[ManifestFacts] = field(default_factory=list)
    expected: int = 0
    why: str = ""


def plan_manifests(manifests: Iterable[ManifestFacts], options: ManifestOptions) -> ManifestPlan:
    """What one snapshot's manifests would gain. Manifests without live entries count for nothing."""
    live = [manifest for manifest in manifests if manifest.live_files != 0]
    choices = [
        _choose([m for m in live if m.spec_id == options.spec_id and m.deletes is d], options) for d in (False, True)
    ]
    chosen = [choice for choice in choices if choice.chosen]
    others = _others(live, options)
    if not chosen:
        why = "; ".join(dict.fromkeys(choice.why for choice in choices if choice.why)) or (
            f"no manifest is of partition spec {options.spec_id}"
        )
        return ManifestPlan(why="; ".join((why, *others)), notes=())
    return ManifestPlan(
        tuple(manifest for choice in chosen for manifest in choice.chosen),
        sum(choice.expected for choice in chosen),
        "; ".join(choice.why for choice in chosen),
        tuple(others),
    )


def _others(live: Sequence[ManifestFacts], options: ManifestOptions) -> list[str]:
    """Other specs that would gain: Iceberg's procedure, too, works on one spec at a time."""
    found: dict[int, int] = {}
    for spec_id in sorted({manifest.spec_id for manifest in live} - {options.spec_id}):
        of_spec = ManifestOptions(spec_id, options.target_size_bytes)
        gaining = [
            _choose([m for m in live if m.spec_id == spec_id and m.deletes is deletes], of_spec)
            for deletes in (False, True)
        ]
        count = sum(len(choice.chosen) for choice in gaining)
        if count:
            found[spec_id] = count
    return [f"{count} manifests of partition spec {spec} would gain: {SPEC_ID}={spec}" for spec, count in found.items()]


def _choose(bucket: list[ManifestFacts], options: ManifestOptions) -> _Choice:
    if not bucket:
        return _Choice()
    target = options.target_size_bytes
    what = "delete manifests" if bucket[0].deletes else "manifests"
    total = _fit(bucket, target)
    if _overlap_much(bucket):
        why = f"the partition ranges of {len(bucket)} {what} overlap, on average with {_mean(bucket):.1f} others each"
        return _Choice(bucket, min(total, len(bucket)), why)
    small = [manifest for manifest in bucket if manifest.size * 4 < target * 3]
    fewer = _fit(small, target)
    if fewer >= len(small):
        return _Choice(why=f"{len(bucket)} {what}: rewriting would leave neither fewer nor better clustered ones")
    if any(m.ranges is None for m in small) or _would_overlap(bucket, small, fewer):
        # What is written from the small ones alone would be worth another rewrite at once.
        if total >= len(bucket):
            return _Choice(why=f"{len(bucket)} {what}: rewriting would leave no fewer")
        return _Choice(bucket, total, f"{len(bucket)} {what} fit into {total}")
    return _Choice(small, fewer, f"{len(small)} small {what} fit into {fewer}")


def _fit(manifests: Sequence[ManifestFacts], target: int) -> int:
    return -(-sum(manifest.size for manifest in manifests) // target)


def _would_overlap(bucket: Sequence[ManifestFacts], small: Sequence[ManifestFacts], fewer: int) -> bool:
    """Taking each manifest that would be written for as wide as all of them, which no real one is."""
    gone = {manifest.path for manifest in small}
    staying = [manifest for manifest in bucket if manifest.path not in gone]
    if not staying:
        return False
    ranges = [manifest.ranges for manifest in small if manifest.ranges is not None]
    together = tuple(_union(column) for column in zip(*ranges, strict=True))
    written = ManifestFacts("", 0, small[0].spec_id, small[0].deletes, None, together)
    return any(_overlap_much([*staying, *[written] * count]) for count in {1, fewer})


def _union(ranges: Iterable[Range]) -> Range:
    first, *others = ranges
    for other in others:
        first = first.with_(other)
    return first


def _overlap_much(manifests: Sequence[ManifestFacts]) -> bool:
    mean = _mean(manifests)
    return mean >= _LEAST_MEAN and mean >= _LEAST_SHARE * len(manifests)


def _mean(manifests: Sequence[ManifestFacts]) -> float:
    """With how many others a manifest overlaps on average."""
    known = [manifest.ranges for manifest in manifests if manifest.ranges]
    return _overlaps(known, 0) / len(manifests) if manifests else 0.0


def _overlaps(ranges: Sequence[tuple[Range, ...]], depth: int) -> int:
    """Ordered pairs of manifests that overlap in more than one shared value of a field, by the first field that has
    more than one value in either."""
    if len(ranges) < 2 or depth >= len(ranges[0]):
        return 0
    column = [one[depth] for one in ranges]
    lowers = sorted(r.lower for r in column)
    uppers = sorted(r.upper for r in column)
    points: dict[tuple[Any, ...], list[tuple[Range, ...]]] = defaultdict(list)
    for one in ranges:
        if one[depth].is_point:
            points[one[depth].lower].append(one)
    count = 0
    for r in column:
        count += len(column) - (len(lowers) - bisect_left(lowers, r.upper)) - bisect_right(uppers, r.lower)
        # A point at the same place is outside on both sides, and was taken off twice; any other range overlaps itself.
        count += len(points[r.lower]) if r.is_point else -1
    return count + sum(_overlaps(same, depth + 1) for same in points.values())
