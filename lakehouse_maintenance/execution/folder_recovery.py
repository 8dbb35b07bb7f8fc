"""What killed runs left on a database whose folders they removed: ended under its lease, before anything new begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakehouse_maintenance.execution.claims import Claims
from lakehouse_maintenance.execution.clock import now_text
from lakehouse_maintenance.execution.making import describe
from lakehouse_maintenance.execution.quarantining import finish_entry_lists
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.errors import LakehouseError, LeaseLostError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal import Candidate, Operation, Permit, RemovalList, Remover, open_lists, read_list
from lakehouse_maintenance.removal.emptied import remove_emptied
from lakehouse_maintenance.removal.lists import close_list
from lakehouse_maintenance.removal.remover import REMOVE_FILES
from lakehouse_maintenance.state import Lease
from lakehouse_maintenance.storage import Storage

_ACTION = Action.UNTRACKED_FOLDERS

Still = Callable[[Location], Callable[[Sequence[Candidate]], Mapping[str, str]]]
"""For a folder: the recheck of objects in it, by facts that are fresh now."""


def finish_what_was_left(
    run: Run, storage_of: Callable[[], Storage], subject: str, lease: Lease, still: Still
) -> list[str]:
    """Ends what killed runs left on the database, under its lease; says what was found and done.

    Moving to quarantine goes on, where this run would remove the folder, too: the entry is one folder, and can be
    restored. Where not, what was moved is all there is in the entry. A list to delete is closed and not worked off:
    what is left of its folder is looked at again, by what this run was told. `still`: the recheck of a folder's
    objects.
    """
    notes = finish_entry_lists(
        run.state,
        lambda entry: storage_of(),
        lambda entry: Claims(run.state, run.evidence, entry),
        run.run_id,
        lease,
        run.progress,
    )
    for head in open_lists(run.state, subject):
        if head.operation == Operation.QUARANTINE:
            notes.append(_go_on_moving(run, storage_of(), head, lease, still))
        elif head.operation == Operation.DELETE:
            notes.append(_close(run, storage_of(), head))
    for intent in run.state.journal.open_intents(subject):
        if intent.run_id != run.run_id and _is_cleared(run, storage_of, intent, lease, still):
            _end_intent(run, intent)
    return notes


def _go_on_moving(run: Run, storage: Storage, head: RemovalList, lease: Lease, still: Still) -> str:
    folder = Location.parse(str(head.evidence["folder"]))
    permit = Permit(head.table, run.run_id, head.action, head.digest, lease, (folder,), head.uuid)
    remover = Remover(run.state, storage, lambda files, size: run.progress.advance(folder.text, files, size))
    what = f"run {head.run_id} ended while it moved {folder.text} to quarantine (entry {head.entry})"
    try:
        removal = remover.remove(permit, head, still(folder), resumed=True)
        if not removal.kept:
            remove_emptied(storage, permit, folder)
    except LeaseLostError:
        raise
    except LakehouseError as error:
        return f"{what}; it could not go on: {describe(error)}"
    kept = f", {sum(removal.kept.values())} kept" if removal.kept else ""
    left = "" if removal.is_complete else f"; {len(removal.failed) + len(removal.unknown)} are not moved"
    return f"{what}; it went on: {removal.moved} objects moved{kept}{left}"


def _close(run: Run, storage: Storage, head: RemovalList) -> str:
    """Tells the truth of what is gone, and leaves the rest to the decision of this run."""
    there = gone = 0
    for part in read_list(run.state, head):
        for _, info in storage.stat_many(Location.parse(candidate.path) for candidate in part):
            there, gone = there + (info is not None), gone + (info is None)
    close_list(run.state, head, {"abandoned": "its run ended amid it", "gone": gone, "left": there})
    return (
        f"run {head.run_id} ended while it deleted {head.evidence.get('folder', head.table)}: {gone} of "
        f"{gone + there} objects are gone; what is left was looked at again"
    )


def _is_cleared(run: Run, storage_of: Callable[[], Storage], intent: Event, lease: Lease, still: Still) -> bool:
    """Removes the directories of folders whose objects are all gone: the run was killed before it could. False where
    that cannot be told now."""
    folders = [Location.parse(path) for path in intent.details.get("folders", ())] if intent.action == _ACTION else []
    for folder in folders:
        if folder.family != "file":
            continue
        permit = Permit(lease.table, run.run_id, _ACTION, intent.digest or "", lease, (folder,))
        try:
            storage = storage_of()
            if not any(storage.list(folder)) and not still(folder)([Candidate(folder.text, "untracked folder")]):
                remove_emptied(storage, permit, folder)
        except LeaseLostError:
            raise
        except LakehouseError:
            return False
    return True


def _end_intent(run: Run, intent: Event) -> None:
    run.state.journal.record(
        Event(
            at=now_text(),
            run_id=intent.run_id,
            table=intent.table,
            action=intent.action,
            phase="outcome",
            status=Status.FAILED,
            digest=intent.digest,
            details={
                **({"removal_list": intent.details["removal_list"]} if intent.action == REMOVE_FILES else {}),
                "recovered": True,
                "why": f"the run ended amid it; run {run.run_id} looked at what it left",
            },
        )
    )
