"""Files that a run wrote and that never became part of the table: removed once that is proven.

The proof, for one action of one run, under the table's lease:
  a. no attempt to commit can still become visible (traces.may_appear);
  b. no metadata reaches the file, this table's or another's, asked here and again right before the deletion;
  c. the file was last written before our lease began, so its run was over (for this run's own: before now).
With any doubt the file stays, and a later run looks again. What removes them is the remover, with list and journal as
for every deletion. Paths come from the journal, where the run announced them; a listing is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.deleting import Deletion
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import Observed
from lakehouse_maintenance.execution.traces import Trace
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.iceberg.expiry import reached
from lakehouse_maintenance.model.errors import InputError, LakehouseError, LeaseLostError
from lakehouse_maintenance.model.forms import FormIndex
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.references import Reference, ReferenceKind
from lakehouse_maintenance.removal import Removal
from lakehouse_maintenance.state import Lease

RECOVER = "recover"
"""What the removal lists of this module are for."""

StillOwned = Callable[[Sequence[str]], Mapping[str, str]]
"""Of these paths, those that somebody owns or may own → why."""


@dataclass
class Cleaned:
    """`reached`: files that are the table's after all. `kept`: why files stay and are looked at again → how many."""

    removed: int = 0
    removed_bytes: int = 0
    reached: int = 0
    kept: Counter[str] = field(default_factory=Counter)


def clean(
    run: Run, target: Target, lease: Lease, observed: Observed, left: Trace, still_owned: StillOwned | None = None
) -> Cleaned:
    """Removes what the action left, as far as the proof goes. Raises LeaseLostError alone."""
    result = Cleaned()
    if not left.paths:
        return result
    if left.uuid != observed.metadata.uuid:
        result.kept["the table was made anew since they were written"] += len(left.paths)
        return result
    why = left.may_appear(observed.metadata)
    if why is not None:
        result.kept[why] += len(left.paths)
        return result
    try:
        _remove(run, target, lease, observed, left, still_owned or _reached(observed), result)
    except LeaseLostError:
        raise
    except LakehouseError as error:
        # What was removed until then is counted; the list, if there is one, stays open for the next run.
        result.kept[describe(error)] += max(1, len(left.paths) - result.removed - result.reached)
    return result


def _remove(
    run: Run, target: Target, lease: Lease, observed: Observed, left: Trace, still_owned: StillOwned, result: Cleaned
) -> None:
    found = _old_enough(observed, left, _written_before(run, lease, left), result)
    owned = still_owned([reference.path for reference in found])
    result.reached = sum(1 for reference in found if reference.path in owned)
    candidates = [reference for reference in found if reference.path not in owned]
    if not candidates:
        return
    deletion = Deletion(run, target, RECOVER, lease)
    deletion.refuse(observed.metadata)
    removal = Removal()
    try:
        # As a resumed list: each file is looked at again for its time and size right before it goes.
        deletion.remove(deletion.intend(observed.metadata, observed.storage, candidates), resumed=True, into=removal)
    finally:
        result.removed, result.removed_bytes = removal.deleted, removal.deleted_bytes
    result.kept.update(removal.kept)
    for why in (*removal.failed.values(), *removal.unknown.values()):
        result.kept[why] += 1


def _reached(observed: Observed) -> StillOwned:
    def still_owned(paths: Sequence[str]) -> Mapping[str, str]:
        found = reached(observed.metadata, observed.reader, FormIndex(paths)) if paths else frozenset()
        return dict.fromkeys(found, "the table's metadata reaches it")

    return still_owned


def _written_before(run: Run, lease: Lease, left: Trace) -> int:
    """Milliseconds: what this action wrote, it wrote before then."""
    if left.run_id == run.run_id:
        return now_ms()
    return int(lease.info.acquired_at.timestamp() * 1000)


def _old_enough(observed: Observed, left: Trace, before_ms: int, result: Cleaned) -> list[Reference]:
    """Files that exist and were last written before."""
    paths: dict[Location, str] = {}
    for path in left.paths:
        try:
            paths[Location.parse(path)] = path
        except InputError as error:
            result.kept[f"not a location: {error.message}"] += 1
    found: list[Reference] = []
    for location, info in observed.storage.stat_many(paths):
        if info is None:
            continue  # announced and never written, or removed by now
        if info.modified is None or info.modified.timestamp() * 1000 > before_ms:
            result.kept["written after the run's lease had ended, or nobody can tell when"] += 1
        else:
            found.append(Reference(ReferenceKind.DATA, paths[location], info.size))
    return found
