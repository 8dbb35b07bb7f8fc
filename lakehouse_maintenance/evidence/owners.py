"""Who may own files: every table that is visible, where it lies, and where else its metadata reaches.

The question before a deletion is never "whose folder is this?" but "does the metadata of any table reach this file?".
An owner's folders and the folders that it reaches tell which owners have to be asked at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import TableName


class Names(Protocol):
    """Reads what an owner's metadata names, all snapshots included. Both raise LakehouseError part-way."""

    def named(self) -> Iterator[tuple[str, str]]:
        """Path as written there, and what the file is to the owner; some are given more than once."""
        ...

    def paths(self) -> Iterator[list[str]]:
        """The same paths, in batches and any order."""
        ...

    def reaching(self, meant: Callable[[str], bool]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Of the named paths that are `meant`: what each is to the owner, and ids of the snapshots that reach it."""
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """A visible table. `database` is empty for one that no configured database holds.

    `token`: changes whenever the metadata does; what was read under one token stays true under it. `folders`: location
    and write paths. `elsewhere`: folders outside of those, in which files lie that the table needs.
    """

    name: str
    database: str
    table_format: str
    token: str
    uuid: str | None
    folders: tuple[Location, ...]
    elsewhere: tuple[Location, ...]
    names: Names = field(repr=False, compare=False)
    keeps_all: bool = False
    """Its properties forbid deleting any file in its name (`gc.enabled=false`)."""
    location_text: str = ""
    """The table's location exactly as its metadata has it."""
    unresolved: str | None = None
    """Why it is not known which storage the table owns, although its metadata reads (UF-15)."""

    def reaches(self, places: Iterable[Location]) -> bool:
        """Whether a file in one of these folders may be the table's."""
        mine = (*self.folders, *self.elsewhere)
        return any(_meet(a, b) for a in places for b in mine)

    def shares(self, places: Iterable[Location]) -> tuple[Location, Location] | None:
        """The first of its own folders that equals, contains or lies in one of these, after that one."""
        return next(((b, a) for a in self.folders for b in places if _overlap(a, b)), None)


@dataclass(frozen=True, slots=True)
class Unread:
    """A table that is there and cannot be read. `places`: where its files may lie besides its database's tables.

    `is_lost`: not even where its metadata lies is known, so its files could be anywhere. `is_gone`: it went away while
    the catalog was read. `location`: the text that its metadata gives, where that is known; `is_unparsable`: it has a
    scheme and is no location all the same.
    """

    name: str
    database: str
    why: str
    places: tuple[Location, ...] = ()
    is_lost: bool = False
    is_gone: bool = False
    location: str | None = None
    is_unparsable: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Tables that may exist and that nobody has seen. `catalog`: or the Delta group. `database`: its full name, as that
    of an owner; None: any, since the databases are not known, or those of other catalogs in the same place."""

    catalog: str
    database: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """All owners as they were at one moment. `gaps`: where there may be more of them."""

    owners: tuple[Owner, ...]
    unread: tuple[Unread, ...] = ()
    gaps: tuple[Gap, ...] = ()
    views: tuple[TableName, ...] = ()
    """Of all catalogs that list them. Where they lie nobody has asked yet."""

    @property
    def incomplete(self) -> str | None:
        """Why there may be more owners; None where all are known."""
        return self.gaps[0].why if self.gaps else None

    def refusal(self, database: str, places: Sequence[Location]) -> str | None:
        """Why nothing in these folders may be deleted, whoever asks; None where every possible owner is known.

        `database`: of the table that the folders belong to; empty where there is none.
        """
        if self.incomplete is not None:
            return f"the tables around it are not known: {self.incomplete}"
        for table in self.unread:
            if table.is_lost:
                return f"{table.name} cannot be found, and may own files anywhere: {table.why}"
            if table.database == database and database:
                return f"{table.name} in its database cannot be read, and may own files here: {table.why}"
            if any(_meet(a, b) for a in places for b in table.places):
                return f"{table.name} cannot be read, and may own files here: {table.why}"
        return None

    def reaching(self, places: Sequence[Location]) -> list[Owner]:
        """Owners that may own a file in these folders."""
        return [owner for owner in self.owners if owner.reaches(places)]

    def sharing(self, name: str, places: Sequence[Location]) -> list[tuple[Owner, Location, Location]]:
        """Other owners whose own folders meet these: the owner, the folder of these, the owner's."""
        found = ((owner, owner.shares(places)) for owner in self.owners if owner.name != name)
        return [(owner, *met) for owner, met in found if met is not None]

    def gone(self) -> frozenset[str]:
        """Tables that went away while the catalog was read: they may have other names by now, and be missing."""
        return frozenset(table.name for table in self.unread if table.is_gone)

    def uuids(self) -> frozenset[str]:
        """Of every owner that has one."""
        return frozenset(owner.uuid for owner in self.owners if owner.uuid is not None)

    def owner(self, name: str) -> Owner | None:
        """The owner of this name."""
        return next((owner for owner in self.owners if owner.name == name), None)


def _overlap(one: Location, two: Location) -> bool:
    if one.overlaps(two) or one.resolved.overlaps(two.resolved):
        return True
    # As for files: some writers encode what others do not.
    is_coded = "%" in one.key or "%" in two.key
    return is_coded and one.with_key(unquote(one.key)).overlaps(two.with_key(unquote(two.key)))


def _meet(one: Location, two: Location) -> bool:
    """As `_overlap`, and also where only the keys tell, since the schemes are no spelling of each other.

    A store that is reached by two schemes (its own and S3's, say) must not hide an owner. Where both have the same
    scheme, another bucket is another bucket.
    """
    if one.family == two.family:
        return _overlap(one, two)
    return one.with_key(one.key).overlaps(Location(two.text, one.root, one.family, one.authority, two.key))
