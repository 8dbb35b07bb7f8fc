"""Pruning a table's metadata history: list, commit, recheck, delete (IM-07).

As for expiry, the list of files is made durable before the commit: after it, which entries left the metadata log can no
longer be told. A run that is killed in between leaves an open list, and the next run on the table finishes it. Which
entries are really gone from the log, the recheck asks of the table as it is then: whoever commits, this process or a
server, trims the log by its own code, and what the log still names stays.

`write.metadata.delete-after-commit.enabled` is set by a commit of its own, after the one that trims: a catalog that
obeys it deletes what leaves the log at once, and asks nobody whether another table needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.work import Run, Work
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.iceberg.properties import PropertiesCommit, are_set
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import LakehouseError, NotFoundError, TableError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.outcomes import ActionOutcome, Actual, Check
from lakehouse_maintenance.model.plans import PlannedAction, TablePlan
from lakehouse_maintenance.model.properties import PREVIOUS_VERSIONS
from lakehouse_maintenance.model.references import Reference, ReferenceKind
from lakehouse_maintenance.planning.metadata_history import KEEP, SET, PruneRequest, Pruning, leaving, pruning
from lakehouse_maintenance.removal import Removal, RemovalList
from lakehouse_maintenance.state import Lease
from lakehouse_maintenance.storage import Storage

VERSION_HINT = "metadata/version-hint.text"


@dataclass
class _Seen:
    """What was there when the list was made: `present`, of the versions that stay; `hinted`, kept for engines without
    a catalog."""

    written: RemovalList | None = None
    present: frozenset[str] = frozenset()
    hinted: tuple[str, ...] = ()


def prune(run: Run, target: Target, plan: TablePlan, action: PlannedAction, lease: Lease, work: Work) -> ActionOutcome:
    """Lets the planned versions leave the metadata log, and deletes those that nobody names any more."""
    deletion = Deletion(run, target, action.action, lease)
    observed = observe(target.catalog, target.name, run.cache)
    refuse_blocked(observed.metadata, plan, target)
    rules = _rules(observed.metadata, target, action)
    deletion.refuse(observed.metadata)
    planned = {file.path: file.size or None for file in action.files}
    seen = _Seen()

    def make_durable(metadata: Metadata) -> None:
        log = metadata.log_locations()
        going = set(leaving(metadata.location, log, rules.keep))
        seen.hinted = tuple(_hinted(observed.storage, metadata, planned))
        found = [path for path in planned if path in going and path not in seen.hinted]
        staying = [path for path in (*log, metadata.location) if path not in going]
        seen.present = frozenset(_existing(observed.storage, staying))
        references = (Reference(ReferenceKind.METADATA, path, planned[path]) for path in found)
        seen.written = deletion.intend(metadata, observed.storage, references) if found else None

    def is_trimmed(metadata: Metadata) -> bool:
        named = {metadata.location, *metadata.log_locations()}
        return are_set(metadata, rules.trims) and not named.intersection(planned)

    trimmed = _commit(run, target, observed.metadata, lease, work, rules.trims, is_trimmed, make_durable)
    removal = Removal()
    problems: list[str] = []
    try:
        was_set = _set_rest(run, target, lease, work, rules)
        if seen.written is not None:
            deletion.remove(seen.written, into=removal)
    except LakehouseError as error:
        if not trimmed:
            raise
        # The log is trimmed all the same, and some of the files may be gone. An open list is finished by the next run.
        problems.append(f"the metadata log is pruned, but the work ended early: {describe(error)}")
    else:
        if not trimmed and not was_set:
            return ActionOutcome(
                action.action,
                Status.SKIPPED,
                asdict(action.expected),
                Actual(seconds=work.seconds()),
                error="the table changed since it was planned: its metadata log is pruned already",
            )
    return _outcome(deletion, action, removal, work, seen, problems)


def intended_properties(action: PlannedAction) -> dict[str, str]:
    """Table properties that a planned action sets, for the journal: by them a later run sees how it ended."""
    if action.action == Action.SET_PROPERTIES:
        return action.options
    return {PREVIOUS_VERSIONS: action.options[KEEP]} if action.action == Action.PRUNE_METADATA else {}


def _rules(metadata: Metadata, target: Target, action: PlannedAction) -> Pruning:
    """As planned, where the guards still let it. Raises TableError."""
    asked = PruneRequest.from_options({KEEP: action.options[KEEP], SET: action.options[SET]})
    rules = pruning(target.policy.prune_metadata, asked, metadata.properties)
    if isinstance(rules, str):
        raise TableError(f"{target.name}: {rules}", field=str(target.name))
    return rules


def _commit(
    run: Run,
    target: Target,
    metadata: Metadata,
    lease: Lease,
    work: Work,
    properties: Mapping[str, str],
    is_done: Callable[[Metadata], bool],
    before: Callable[[Metadata], None] = lambda metadata: None,
) -> bool:
    commit = PropertiesCommit(
        catalog=target.catalog,
        name=target.name,
        uuid=metadata.uuid,
        properties=properties,
        seen={name: metadata.properties.get(name) for name in properties},
        guard=lease.check,
        is_done=is_done,
        before=before,
        cache=run.cache,
    )
    try:
        return commit.run()
    finally:
        work.attempts += commit.attempted


def _set_rest(run: Run, target: Target, lease: Lease, work: Work, rules: Pruning) -> bool:
    """What is set after the log was trimmed; whether anything had to be."""
    if not rules.sets:
        return False
    metadata = observe(target.catalog, target.name, run.cache).metadata
    return _commit(run, target, metadata, lease, work, rules.sets, lambda now: are_set(now, rules.sets))


def _hinted(storage: Storage, metadata: Metadata, paths: Iterable[str]) -> Iterator[str]:
    """Those of the paths that a version hint names: engines without a catalog begin to read the table there."""
    folder = metadata.table_location.rstrip("/")
    try:
        hint = storage.read(Location.parse(f"{folder}/{VERSION_HINT}")).decode("utf-8", "replace").strip()
    except NotFoundError:
        return
    for path in paths:
        name = path.rpartition("/")[2]
        version = re.match(r"v?([0-9]+)[.-]", name)
        if hint.isdigit():
            is_named = version is not None and int(version[1]) == int(hint)
        else:
            # Some name the file, with its path or without its ending; an empty hint says nothing, and frees nothing.
            is_named = hint.rpartition("/")[2] in name or name in hint
        if is_named:
            yield path


def _existing(storage: Storage, paths: Iterable[str]) -> Iterator[str]:
    by_location = {Location.parse(path): path for path in paths}
    return (by_location[location] for location, info in storage.stat_many(by_location) if info is not None)


def _present(deletion: Deletion, seen: _Seen) -> Check:
    """The current metadata can be read, and every version that its log names is there, as far as it was before."""
    try:
        observed = observe(deletion.target.catalog, deletion.target.name, deletion.run.cache)
        named = (observed.metadata.location, *observed.metadata.log_locations())
        there = frozenset(_existing(observed.storage, named))
    except LakehouseError as error:
        return Check("metadata_present", False, f"could not be verified: {describe(error)}")
    missing = [path for path in named if path not in there and path in seen.present]
    if missing:
        return Check("metadata_present", False, f"{len(missing)} versions are missing that were there: {missing[0]}")
    return Check("metadata_present", True, f"the current metadata and {len(there) - 1} previous versions are there")


def _outcome(
    deletion: Deletion, action: PlannedAction, removal: Removal, work: Work, seen: _Seen, problems: list[str]
) -> ActionOutcome:
    check = _present(deletion, seen)
    if not check.passed:
        problems = [f"{check.name}: {check.detail}", *problems]
    if removal.failed:
        path, why = next(iter(removal.failed.items()))
        problems.append(f"{len(removal.failed)} files could not be deleted, the first is {path}: {why}")
    if removal.unknown:
        problems.append(f"of {len(removal.unknown)} files it is not known whether they are deleted")
    notes = [f"{count} files kept: {why}" for why, count in sorted(removal.kept.items())]
    notes += [f"{path} kept: version-hint.text names it" for path in seen.hinted]
    if removal.gone:
        notes.append(f"{removal.gone} files were gone already")
    if removal.deleted:
        notes += deletion.versions_kept()
    return ActionOutcome(
        action=action.action,
        status=Status.FAILED if problems else Status.DONE,
        expected=asdict(action.expected),
        actual=Actual(
            files=removal.deleted,
            bytes=removal.deleted_bytes,
            seconds=work.seconds(),
            attempts=work.attempts,
            deleted_files=removal.deleted,
            deleted_bytes=removal.deleted_bytes,
            kept_files=sum(removal.kept.values()) + len(seen.hinted),
            failed_files=len(removal.failed),
            unknown_files=len(removal.unknown),
        ),
        verified=check.passed,
        checks=(check,),
        error="; ".join(problems) or None,
        notes=tuple(notes),
    )
