"""What of a batch may be deleted: still what was meant, and cleared by the caller's recheck."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.context import Context
from lakehouse_maintenance.removal.copies import Unclear, look, not_meant
from lakehouse_maintenance.removal.lists import Candidate
from lakehouse_maintenance.removal.results import Batch


def still_meant(context: Context, candidates: Sequence[Candidate], batch: Batch) -> Sequence[Candidate]:
    """Between the runs a name may have been used again, and what is gone already was not deleted by this run.

    In the run that made the list, only what a listing described by more than its size is looked at again.
    """
    meant: list[Candidate] = []
    looked_at: dict[Location, Candidate] = {}
    for candidate in candidates:
        if not context.resumed and candidate.etag is None and candidate.modified_ms is None:
            meant.append(candidate)
            continue
        location, why = _location(candidate.path)
        if location is None:
            batch.keep(candidate.path, why or "not a location")
        else:
            looked_at[location] = candidate
    for location, found in look(context.storage, list(looked_at)).items():
        candidate = looked_at[location]
        if isinstance(found, Unclear):
            batch.doubt(candidate.path, found.why)
        elif found is None:
            batch.gone()
        elif why := not_meant(candidate, found, context.head.at_ms if context.resumed else None):
            batch.keep(candidate.path, why)
        else:
            meant.append(candidate)
    return meant


def cleared(context: Context, candidates: Sequence[Candidate], batch: Batch) -> dict[Location, Candidate]:
    """What the caller's recheck and the permit let go, by the exact place that is deleted."""
    reasons = context.recheck(candidates)
    going: dict[Location, Candidate] = {}
    for candidate in candidates:
        why = reasons.get(candidate.path)
        if why is None:
            location, why = _location(candidate.path)
            if location is not None and not context.permit.covers(location):
                why = "outside the table's own locations"
            elif location is not None:
                going[location] = candidate
        if why is not None:
            batch.keep(candidate.path, why)
    return going


def _location(path: str) -> tuple[Location | None, str | None]:
    try:
        return Location.parse(path), None
    except InputError as error:
        return None, f"not a location: {error.message}"
