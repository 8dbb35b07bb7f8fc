"""Where the views of all catalogs lie. A view owns no data, but an Iceberg view is its metadata files: whoever removes
the folder that holds them removes the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakehouse_maintenance.catalogs import Catalog, ask_each
from lakehouse_maintenance.evidence import Look
from lakehouse_maintenance.model.errors import LakehouseError, UnknownTableError
from lakehouse_maintenance.model.folders import Claim, ClaimKind
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName


@dataclass(frozen=True, slots=True)
class ViewPlaces:
    """Folders of one view's metadata. `unknown`: why they cannot be told; then there are none."""

    folders: tuple[Location, ...] = ()
    unknown: str | None = None

    def may_meet(self, near: Sequence[Location]) -> bool:
        """Whether it may lie there."""
        return self.unknown is not None or any(folder.overlaps(place) for folder in self.folders for place in near)


Views = Mapping[TableName, ViewPlaces]


def view_places(look: Look, catalogs: Mapping[str, Catalog], known: Views, near: Sequence[Location] = ()) -> Views:
    """All views of the look. Of `known` ones those alone are asked again that may lie near the places: a view moves
    only when it is made anew, and then to the same place by default."""
    found = {name: known[name] for name in look.views if name in known and not known[name].may_meet(near)}
    for catalog in catalogs.values():
        names = [name for name in look.views if name.catalog == catalog.name and name not in found]
        found.update(zip(names, ask_each(catalog, partial(_places, catalog), names), strict=True))
    return found


def view_claims(views: Views) -> list[Claim]:
    """Of those whose place is known."""
    return [
        Claim(folder, str(name), ClaimKind.VIEW) for name, places in sorted(views.items()) for folder in places.folders
    ]


def _places(catalog: Catalog, name: TableName) -> ViewPlaces:
    try:
        return ViewPlaces(tuple(Location.parse(text) for text in catalog.view_folders(name)))
    except UnknownTableError:
        return ViewPlaces()  # dropped since it was listed
    except LakehouseError as error:
        return ViewPlaces(unknown=error.message)
