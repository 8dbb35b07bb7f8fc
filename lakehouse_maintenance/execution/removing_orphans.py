"""One table of an `orphans` run: a dry run, or the removal under the table's lease, with everything in the journal."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lakehouse_maintenance.evidence import folders_of
from lakehouse_maintenance.execution.clock import now_ms, now_text
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.execution.guards import refuse_blocked
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.memory import OrphanCount
from lakehouse_maintenance.execution.orphan_search import LOCATION, Search, search, shared_refusal, told
from lakehouse_maintenance.execution.recovery import Recovery
from lakehouse_maintenance.execution.verify import kept_snapshots_present
from lakehouse_maintenance.execution.work import LEASE_TTL, Blocked, OrphanSettings, Run
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import InputError, LakehouseError, LeaseHeldError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.orphans import OrphanFile, OrphanResult, kept_of
from lakehouse_maintenance.planning.orphans import OrphanRequest, limit_reason
from lakehouse_maintenance.removal import Candidate, Entry, EntryKind, Operation, Removal, new_entry, open_lists
from lakehouse_maintenance.state import Lease

_logger = logging.getLogger(__name__)
_ACTION = Action.REMOVE_ORPHAN_FILES
_NAMED = 200


def orphans_of_table(
    run: Run, target: Target, asked: OrphanRequest, settings: OrphanSettings, *, delete: bool, is_alone: bool = False
) -> OrphanResult:
    """Looks for orphan files of a table and, where asked to, removes them. Never raises for what concerns the table.

    `is_alone`: no other table was asked about. Then a location outside of it is bad input (InputError); beside others
    it just is not this table's.
    """
    name = str(target.name)
    run.progress.begin(name, "listing", 0, 0)
    recovery: Recovery | None = None
    left: list[str] = []
    try:
        if not delete:
            result = _dry_run(run, target, asked, settings)
        else:
            with run.state.leases.acquire(name, run_id=run.run_id, owner=run.owner, ttl=LEASE_TTL) as lease:
                _refuse_pending(run, target, asked)
                recovery = Recovery(run, target, lease)
                recovery.tell_outcomes()
                left = recovery.finish_lists()
                result = _remove(run, target, asked, settings, lease, is_told=False)
    except (Blocked, LeaseHeldError) as error:
        why = describe(error) if isinstance(error, LeaseHeldError) else str(error)
        result = OrphanResult(name, Status.BLOCKED, why, dry_run=not delete)
    except InputError as error:
        if is_alone and error.field == LOCATION:
            raise
        status = Status.SKIPPED if error.field == LOCATION else Status.FAILED
        result = OrphanResult(name, status, describe(error), dry_run=not delete)
    except LakehouseError as error:
        result = OrphanResult(name, Status.FAILED, describe(error), dry_run=not delete)
    except Exception as error:
        # A fault of ours or of a library, met on this table: it must not stop the others.
        _logger.exception("%s: looking for orphan files failed", name)
        result = OrphanResult(name, Status.FAILED, f"unexpected {type(error).__name__}: {error}", dry_run=not delete)
    if recovery is not None:
        # Also where this run itself was refused: the files of an earlier one may be gone.
        result = _with_recovery(result, recovery, left)
    run.progress.end(name, result.status)
    return result


def remove_orphans(
    run: Run, target: Target, asked: OrphanRequest, settings: OrphanSettings, lease: Lease, *, uuid: str | None
) -> OrphanResult:
    """As `orphans_of_table` with `delete`, for a run that holds the table's lease, has finished what earlier runs left,
    and tells the journal itself. `uuid`: of the table that is meant. Raises Blocked, InputError, LakehouseError."""
    _refuse_pending(run, target, asked)
    return _remove(run, target, asked, settings, lease, is_told=True, uuid=uuid)


def _with_recovery(result: OrphanResult, recovery: Recovery, left: list[str]) -> OrphanResult:
    """What earlier runs left is no part of the counts, and is told. `left`: what could not be finished, and why."""
    notes = [f"{one.action} of run {one.run_id}: {one.found}; {one.done}" for one in recovery.recovered]
    result = replace(result, notes=(*result.notes, *notes), recovered=recovery.recovered)
    if left and result.status is Status.DONE:
        result = replace(result, status=Status.FAILED, reason="; ".join(filter(None, (result.reason, *left))))
    return result


def _refuse_pending(run: Run, target: Target, asked: OrphanRequest) -> None:
    """Raises Blocked where finishing what a killed run left is not what was asked for now.

    Its list was made without this review, and says delete where this run may say quarantine.
    """
    policy = target.policy.remove_orphan_files
    is_bound = asked.plan_digest is not None or (asked.removal or policy.removal) == "quarantine"
    for head in open_lists(run.state, str(target.name)):
        if is_bound and head.operation == Operation.DELETE:
            raise Blocked(
                f"run {head.run_id} was killed amid a list of {head.files} files to delete ({head.action}); nothing "
                f"was touched. That list comes first: let `maintain {target.name}` or `orphans {target.name} --delete` "
                "finish it, then look again"
            )


def _dry_run(run: Run, target: Target, asked: OrphanRequest, settings: OrphanSettings) -> OrphanResult:
    found = search(run, target, asked, settings)
    _remember(run, target, asked, found)
    result = _found(target, found)
    result = replace(result, notes=(*result.notes, *run.memory.pending(str(target.name))))
    _refuse_other_digest(asked, result)
    tripped = _limit(run, target, found, settings)
    reason = "dry run: nothing was changed" + ("" if tripped is None else f"; a removal would be refused: {tripped}")
    return replace(result, reason=reason, limit=tripped)


def _remember(run: Run, target: Target, asked: OrphanRequest, found: Search, files: int = 0, size: int = 0) -> None:
    """For the table's health, where all of it was searched. `files`, `size`: of what was found, what is gone."""
    if asked.location is None:
        count = OrphanCount(found.orphans - files, found.orphan_bytes - size, found.listed_at_ms, found.metadata.uuid)
        run.memory.counted_orphans(str(target.name), count)


def _refuse_other_digest(asked: OrphanRequest, result: OrphanResult) -> None:
    if asked.plan_digest is not None and asked.plan_digest != result.digest:
        raise Blocked(
            f"what is found now is not what was reviewed: its digest is {result.digest}, not {asked.plan_digest}; "
            "nothing was removed"
        )


def _remove(
    run: Run,
    target: Target,
    asked: OrphanRequest,
    settings: OrphanSettings,
    lease: Lease,
    *,
    is_told: bool,
    uuid: str | None = None,
) -> OrphanResult:
    found = search(run, target, asked, settings, to_remove=True)
    if uuid is not None and found.metadata.uuid != uuid:
        raise Blocked(f"{target.name} is another table than the planned one")
    _remember(run, target, asked, found)
    refuse_blocked(found.metadata, None, target)
    result = replace(_found(target, found), dry_run=False)
    _refuse_other_digest(asked, result)
    tripped = _limit(run, target, found, settings)
    if tripped is not None:
        return replace(result, status=Status.BLOCKED, reason=f"nothing was deleted: {tripped}", limit=tripped)
    if not found.files:
        run.memory.ran(str(target.name), _ACTION, now_ms())
        return replace(result, reason="no orphan files")
    return _delete(run, target, asked, settings, found, result, lease, is_told=is_told)


def _delete(
    run: Run,
    target: Target,
    asked: OrphanRequest,
    settings: OrphanSettings,
    found: Search,
    result: OrphanResult,
    lease: Lease,
    *,
    is_told: bool,
) -> OrphanResult:
    """`is_told`: the caller tells the journal what is intended, and what came of it."""
    name = str(target.name)
    run = replace(run, digest=result.digest or "")
    shares_with = sorted(told(name, settings.shared))
    deletion = Deletion(
        run,
        target,
        _ACTION,
        lease,
        forbidden=lambda look, places: shared_refusal(look, places, name, shares_with),
        spelling=found.spelling,
        concurrency=asked.max_concurrent_deletes,
    )
    if not is_told:
        _journal(run, name, "intent", None, found.orphans, found.orphan_bytes, {"fence": lease.fence})
    removal = Removal()
    ended: str | None = "it was interrupted"
    moved_to: list[str] = []
    try:
        run.progress.begin(name, _ACTION, found.orphans, found.orphan_bytes)
        for entry, files in _parts(target, asked, settings, found):
            head = deletion.intend_candidates(
                found.metadata,
                found.storage,
                _candidates(files),
                at_ms=found.listed_at_ms,
                into=entry,
                evidence={**_evidence(found), "shares_with": shares_with},
            )
            if entry is not None:
                moved_to.append(entry.id)
            deletion.remove(head, into=removal, asked=found.asked)
        ended = None
    except LakehouseError as error:
        ended = describe(error)
    finally:
        outcome = replace(_outcome(result, removal, ended), quarantine=", ".join(moved_to) or None)
        check = kept_snapshots_present(
            target.catalog, target.name, run.cache, places=found.places, spell=found.spelling.declared
        )
        if not check.passed:
            outcome = replace(
                outcome, status=Status.FAILED, reason=f"{outcome.reason}; {check.name}: {check.detail}".lstrip("; ")
            )
        outcome = replace(outcome, is_verified=check.passed)
        details = {**removal.as_json(), "error": outcome.reason, "verified": check.passed}
        if not is_told:
            _journal(run, name, "outcome", outcome.status, outcome.deleted_files, outcome.deleted_bytes, details)
    _remember(run, target, asked, found, outcome.deleted_files, outcome.deleted_bytes)
    if outcome.status is Status.DONE:
        run.memory.ran(name, _ACTION, now_ms())
        run.memory.ran(name, _removed_from(found), now_ms())
    return outcome


def _parts(
    target: Target, asked: OrphanRequest, settings: OrphanSettings, found: Search
) -> Iterator[tuple[Entry | None, list[OrphanFile]]]:
    """All files to delete; or, to be moved aside, those of each of the table's folders with a new entry."""
    policy = target.policy.remove_orphan_files
    if (asked.removal or policy.removal) == "delete":
        yield None, found.files
        return
    by_folder: dict[Location, list[OrphanFile]] = {}
    folders = folders_of(found.metadata)
    for file in found.files:
        location = Location.parse(file.path)
        home = next(folder for folder in folders if folder.contains(location))
        by_folder.setdefault(home, []).append(file)
    for folder, files in by_folder.items():
        entry = new_entry(
            str(target.name),
            EntryKind.FILES,
            folder,
            prefix=settings.quarantine_prefix,
            keep=policy.purge_after,
            now=datetime.now(UTC),
        )
        yield entry, files


def _evidence(found: Search) -> dict[str, Any]:
    """What the decision rests on, for `explain`."""
    return {
        "listed_at_ms": found.listed_at_ms,
        "cutoff_ms": found.rules.cutoff_ms,
        "objects_listed": found.objects,
        "owners": dict(list(found.asked.items())[:_NAMED]),
        "owners_asked": len(found.asked),
        **found.spelling.as_json(),
    }


def _candidates(files: Sequence[OrphanFile]) -> Iterator[Candidate]:
    for file in files:
        yield Candidate(file.path, "orphan", file.size, modified_ms=file.modified_ms)


def _outcome(result: OrphanResult, removal: Removal, ended: str | None) -> OrphanResult:
    kept = [(k.reason, k.files) for k in result.kept] + list(removal.kept.items())
    problems = []
    if ended is not None:
        problems.append(f"the removal ended early, and the next run goes on with it: {ended}")
    if removal.failed:
        problems.append(f"{len(removal.failed)} files could not be deleted")
    if removal.unknown:
        problems.append(f"of {len(removal.unknown)} files it is not known whether they are deleted")
    status = Status.FAILED if ended or removal.failed else Status.UNKNOWN if removal.unknown else Status.DONE
    return replace(
        result,
        status=status,
        reason="; ".join(problems),
        deleted_files=removal.deleted + removal.moved,
        deleted_bytes=removal.deleted_bytes + removal.moved_bytes,
        kept=kept_of(kept),
        failed=tuple(removal.failed.items()),
        unknown=tuple(removal.unknown),
    )


def _limit(run: Run, target: Target, found: Search, settings: OrphanSettings) -> str | None:
    return limit_reason(
        settings.limits,
        is_first=_removed_from(found) not in run.memory.table(str(target.name)).last_run_ms,
        listed_files=found.objects if found.references is None else found.references + found.orphans,
        listed_bytes=found.bytes if found.references is None else None,
        files=found.orphans,
        size=found.orphan_bytes,
    )


def _removed_from(found: Search) -> str:
    """Where it is remembered that files were removed: a run that finds none proves nothing about the next that does,
    nor does a table that had the name before."""
    return f"{_ACTION} of {found.metadata.uuid}"


def _found(target: Target, found: Search) -> OrphanResult:
    return OrphanResult(
        table=str(target.name),
        status=Status.DONE,
        reason="",
        digest=found.digest.text(),
        objects_listed=found.objects,
        bytes_listed=found.bytes,
        orphan_files=found.orphans,
        orphan_bytes=found.orphan_bytes,
        kept=kept_of(found.kept.items()),
        files=tuple(found.files),
        notes=tuple(found.notes),
    )


def _journal(
    run: Run, name: str, phase: str, status: Status | None, files: int, size: int, details: dict[str, Any]
) -> None:
    run.state.journal.record(
        Event(
            at=now_text(),
            run_id=run.run_id,
            table=name,
            action=_ACTION,
            phase=phase,
            status=status,
            digest=run.digest,
            files=files,
            bytes=size,
            details=details,
        )
    )
