"""The evidence on one path: which tables name it, through what, from which snapshots; or why nobody can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakehouse_maintenance.evidence.delta_owners import DELTA
from lakehouse_maintenance.evidence.evidence import Evidence, index_references, unknown_zones
from lakehouse_maintenance.evidence.index import Spelling
from lakehouse_maintenance.evidence.links import led_to
from lakehouse_maintenance.evidence.markers import Markers
from lakehouse_maintenance.evidence.owners import Look, Owner
from lakehouse_maintenance.model.errors import LakehouseError
from lakehouse_maintenance.model.explanations import OwnedBy, Ownership
from lakehouse_maintenance.model.forms import forms
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import Storage


class Meant:
    """Whether a reference means the path, or something in it where the path is a folder."""

    def __init__(self, path: str) -> None:
        self._forms = frozenset(forms(path))
        self._folders = tuple(form.rstrip("/") + "/" for form in self._forms)

    def __call__(self, reference: str) -> bool:
        names = (reference, *led_to((reference,)))
        return any(form in self._forms or form.startswith(self._folders) for name in names for form in forms(name))


def ownership(evidence: Evidence, storage: Storage, location: Location) -> Ownership:
    """Who owns an object or a folder, as all visible metadata tells it now. Never raises for what it meets."""
    path = location.text
    look = evidence.look()
    if look.incomplete is not None:
        return Ownership(path, None, (), f"not every table is known: {look.incomplete}")
    meant = Meant(path)
    try:
        others, trouble = evidence.around(storage, [location])
        owners = [*look.reaching([location]), *_unlisted(look, others)]
        by = tuple(one for owner in owners for one in _by(owner, location, meant))
    except LakehouseError as error:
        return Ownership(path, None, (), f"what names it cannot be read: {error.message}")
    if by:
        return Ownership(path, True, by, _owned_why(by))
    homes = [owner for owner in look.owners if _is_home(owner, location)]
    why = trouble or _refusal(look, location, homes)
    if why is None:
        try:
            why = _unseen(evidence, storage, look, location, homes)
        except LakehouseError as error:
            why = f"it cannot be told what lies around it: {error.message}"
    if why is not None:
        return Ownership(path, None, (), why)
    return Ownership(path, False, (), _nobody(look, homes))


def _by(owner: Owner, location: Location, meant: Callable[[str], bool]) -> Iterator[OwnedBy]:
    for number, folder in enumerate(owner.folders):
        if location.contains(folder) or location.resolved.contains(folder.resolved):
            yield OwnedBy(owner.name, "location" if number == 0 else "write path")
    for via, snapshot_ids in owner.names.reaching(meant):
        yield OwnedBy(owner.name, via, snapshot_ids)


def _unlisted(look: Look, around: list[Owner]) -> list[Owner]:
    """Of the Delta tables around a place those that the configuration does not name: the others are in the look."""
    listed = {folder.resolved for owner in look.owners if owner.table_format == DELTA for folder in owner.folders}
    return [owner for owner in around if not any(folder.resolved in listed for folder in owner.folders)]


def _unseen(evidence: Evidence, storage: Storage, look: Look, location: Location, homes: list[Owner]) -> str | None:
    """Why a table that nobody shows may own it: by the signs that would keep it from orphan removal too.

    Such a sign may lie anywhere in the folders of the table around it, so these are listed.
    """
    places = [folder for home in homes for folder in home.folders]
    if not any(place.contains(location) for place in places):
        # A folder may hold the metadata of a table that nobody shows.
        places.append(location)
    markers = Markers()
    for place in places:
        for rows, _ in storage.rows(place):
            markers.look(rows)
    with index_references(look.reaching(places), "", places, Spelling()) as index:
        zones = unknown_zones(look, storage, [location, *places], markers, index, look.uuids(), evidence.cache)
    return next((zone.why for zone in zones if zone.covers(location) or _lies_in(zone.where, location)), None)


def _lies_in(where: Location | None, location: Location) -> bool:
    return where is not None and location.contains(where)


def _is_home(owner: Owner, location: Location) -> bool:
    return any(f.contains(location) or f.resolved.contains(location.resolved) for f in owner.folders)


def _refusal(look: Look, location: Location, homes: list[Owner]) -> str | None:
    databases = {owner.database for owner in homes} or {""}
    return next((why for database in databases if (why := look.refusal(database, [location])) is not None), None)


def _owned_why(by: tuple[OwnedBy, ...]) -> str:
    tables = list(dict.fromkeys(one.table for one in by))
    more = len(tables) - 1
    others = (
        f", and so {'does' if more == 1 else 'do'} {more} more {'table' if more == 1 else 'tables'}" if more else ""
    )
    first = by[0]
    through = f", through {len(first.snapshot_ids)} snapshots" if first.snapshot_ids else ""
    return f"{first.table} names it ({first.via}){through}{others}"


def _nobody(look: Look, homes: list[Owner]) -> str:
    looked = f"none of the {len(look.owners)} visible tables names it"
    if not homes:
        return f"{looked}, and it lies in the folder of none of them"
    where = f"{looked}; it lies in the folder of {' and '.join(home.name for home in homes)}"
    if len(homes) > 1:
        return f"{where}, and whose it is has to be told (shared_locations)"
    if homes[0].keeps_all:
        return f"{where}, whose properties forbid deleting (gc.enabled)"
    return where
