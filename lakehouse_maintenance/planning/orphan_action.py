"""Removal of orphan files as one action of a table's plan: whether it is due, and what a search found. Pure.

Looking for orphans lists the table's folders and asks every table that could reach them, so it is done only when it is
due. A plan that somebody is to review is searched for, and holds the digest of what was found; a run that nobody
reviews searches and removes in one go, within the age and the limits of lakehouse.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.actions import Action, Control, Engine, Status
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import format_duration
from lakehouse_maintenance.model.orphans import OrphanResult
from lakehouse_maintenance.model.plans import Expected, Inputs, PlannedAction
from lakehouse_maintenance.model.properties import GC_PROPERTY, forbids_deleting
from lakehouse_maintenance.planning.orphans import OrphanRequest, effective_age
from lakehouse_maintenance.planning.triggers import crossed

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import RemoveOrphanFiles
    from lakehouse_maintenance.planning.tables import Subject

FindOrphans = Callable[[OrphanRequest], OrphanResult]
"""A search that changes nothing."""

DIGEST = "orphan-digest"
FILES_A_SECOND = 500.0
BLOCKED = f"{Action.REMOVE_ORPHAN_FILES} blocked"
"""Where it is remembered that a search by policy came to no conclusion: every run would list the table again."""
TRY_AGAIN = timedelta(days=1)
NEEDS_REVIEW = (
    "the policy asks for review: look with `plan TABLE --action remove_orphan_files --out FILE`, then `apply FILE`"
)


def plan_orphans(
    subject: Subject, asked: OrphanRequest, find: FindOrphans | None, *, requested: str | None
) -> PlannedAction | str:
    """The planned removal, or why there is none. `find`: None for a run that searches and removes in one go.

    `requested`: the reason where somebody asked for it; None: as the policy makes it due.
    """
    policy = subject.policy.remove_orphan_files
    properties = subject.state.properties
    if forbids_deleting(properties):
        return f"refused: {GC_PROPERTY}={properties[GC_PROPERTY]} forbids deleting files of this table"
    reason = requested
    if reason is None:
        reason, waits = _due(subject, policy)
        if waits is not None:
            return waits
    try:
        age = effective_age(policy, asked)
    except InputError as error:
        return f"refused: {error.message}; {error.hint}"
    if find is None:
        if policy.review:
            return f"blocked: {NEEDS_REVIEW}"
        notes = ("what is found is removed in the same run: within the limits of lakehouse.yaml",)
        return _planned(policy, asked, age, reason, Control.BOUNDED, None, notes)
    found = find(asked)
    if found.status is not Status.DONE:
        return f"{found.status}: {found.reason}"
    if found.limit is not None:
        return f"blocked: {found.limit}"
    if not found.orphan_files:
        return f"nothing to do: no orphan files among {found.objects_listed} objects"
    told = [*found.notes, *(f"{kept.files} files kept: {kept.reason}" for kept in found.kept)]
    if policy.review:
        told.append("the policy asks for review: `maintain` leaves these files, `apply` of this plan removes them")
    return _planned(policy, asked, age, reason, Control.EXACT, found, tuple(told))


def request_of(action: PlannedAction) -> OrphanRequest:
    """What the planned action asks for, the digest of the reviewed finding included."""
    from lakehouse_maintenance.config.action_options import aliases

    options = action.options
    concurrency = options.get("max-concurrent-deletes")
    return OrphanRequest(
        older_than=timedelta(milliseconds=int(options["older-than-ms"])),
        location=options.get("location"),
        prefix_mismatch_mode=options["prefix-mismatch-mode"],
        equal_schemes=aliases(options.get("equal-schemes", "")),
        equal_authorities=aliases(options.get("equal-authorities", "")),
        allow_short_retention=options.get("allow-short-retention") == "true",
        plan_digest=options.get(DIGEST),
        removal=options["removal"],
        max_concurrent_deletes=None if concurrency is None else int(concurrency),
    )


def _due(subject: Subject, policy: RemoveOrphanFiles) -> tuple[str, str | None]:
    """Why it is due, and why it is not; of one of them."""
    if policy.every is None:
        return "", "not due: the policy's `every` is not set"
    now = subject.now_ms
    last = subject.last_run_ms.get(Action.REMOVE_ORPHAN_FILES)
    if last is not None:
        since = timedelta(milliseconds=now - last)
        # A last run in the future is another machine's clock: it holds nothing back for longer than `every`.
        if -policy.every < since < policy.every:
            counted = subject.health.orphans_counted_ms
            much = crossed(policy.trigger, subject.health)
            # A count from before the last run tells what that run met and left.
            if much is not None and counted is not None and counted > last:
                return much, None
            ago = _short(since)
            return "", f"not due: it ran {ago} ago, and runs every {format_duration(policy.every)}"
        return f"it ran {_short(since)} ago, and runs every {format_duration(policy.every)}", None
    blocked = subject.last_run_ms.get(BLOCKED)
    if blocked is not None and timedelta(0) <= (since := timedelta(milliseconds=now - blocked)) < TRY_AGAIN:
        return "", (
            f"not due: a search {_short(since)} ago was blocked, and is tried again after "
            f"{format_duration(TRY_AGAIN)}; `orphans TABLE` says by what"
        )
    began = None if subject.expiry is None else subject.expiry.began_ms
    if began is not None and timedelta(milliseconds=now - began) < policy.older_than:
        # No file that its writers left can be old enough.
        return "", f"not due: the table is younger than older_than, {format_duration(policy.older_than)}"
    return "it never ran here", None


def _short(since: timedelta) -> str:
    return format_duration(timedelta(seconds=max(since, timedelta(0)) // timedelta(seconds=1)))


def _planned(
    policy: RemoveOrphanFiles,
    asked: OrphanRequest,
    age: timedelta,
    reason: str,
    control: Control,
    found: OrphanResult | None,
    notes: tuple[str, ...],
) -> PlannedAction:
    options = {
        "older-than-ms": str(age // timedelta(milliseconds=1)),
        "prefix-mismatch-mode": asked.prefix_mismatch_mode or policy.prefix_mismatch_mode,
        "removal": asked.removal or policy.removal,
    }
    if asked.location is not None:
        options["location"] = asked.location
    for name, pairs in (("equal-schemes", asked.equal_schemes), ("equal-authorities", asked.equal_authorities)):
        if pairs:
            options[name] = ";".join(f"{alias}={target}" for alias, target in sorted(pairs.items()))
    if asked.max_concurrent_deletes is not None:
        options["max-concurrent-deletes"] = str(asked.max_concurrent_deletes)
    if asked.allow_short_retention:
        options["allow-short-retention"] = "true"
    files = size = 0
    if found is not None:
        files, size = found.orphan_files, found.orphan_bytes
        options[DIGEST] = found.digest or ""
    return PlannedAction(
        action=Action.REMOVE_ORPHAN_FILES,
        engine=Engine.EMBEDDED,
        control=control,
        reason=reason,
        inputs=Inputs(files, size),
        expected=Expected(files=0, bytes=0, seconds=round(files / FILES_A_SECOND, 3), fewer_files=files),
        options=options,
        notes=notes,
    )
