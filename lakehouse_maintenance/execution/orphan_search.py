"""Orphan files of one table: list, read references, compare, plan; and on request remove (IM-08, IM-09).

The order is the guard against the race with writers:
  1. list the table's folders, all of it, to a place on disk;
  2. then look at every visible table, and read what those that reach the folders reference;
  3. what is listed and not referenced, old enough, in no hidden folder and in no place that an unseen table may own,
     is an orphan;
  4. limits and digest; a dry run ends here;
  5. durable list, intent; before each batch every table is looked at again, and each file; then delete, look, journal.
A listing that fails half-way, a table that cannot be read, a sign that nobody explains: the files stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.evidence import (
    Look,
    Markers,
    ReferenceIndex,
    Row,
    Spelling,
    Spool,
    Zone,
    folders_of,
    index_references,
    unknown_zones,
)
from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.making import Target
from lakehouse_maintenance.execution.missing import missing_file
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.unanswered import unanswered
from lakehouse_maintenance.execution.versions import versions_kept
from lakehouse_maintenance.execution.work import Blocked, OrphanSettings, Run
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.orphans import OrphanFile
from lakehouse_maintenance.model.properties import forbids_deleting
from lakehouse_maintenance.planning.orphans import (
    DELETE,
    ERROR,
    MISMATCH,
    Digest,
    OrphanRequest,
    OrphanRules,
    cutoff_ms,
    effective_age,
    is_marker,
)
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import Storage

if TYPE_CHECKING:
    from lakehouse_maintenance.config.settings import SharedLocation


LOCATION = "--location"
"""Field of the error about a folder that was asked for, and is not the table's."""

NOT_GIVEN = "shared_locations does not give it to this table"


@dataclass
class Search:
    """What was found in one table. `files`: at most one more than the limits would let go, for memory's sake.

    `asked`: tokens of the owners whose references were read. `rules`: what decided, for the recheck.
    """

    metadata: Metadata
    storage: Storage
    places: tuple[Location, ...]
    rules: OrphanRules
    digest: Digest
    spelling: Spelling
    listed_at_ms: int
    objects: int = 0
    bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    files: list[OrphanFile] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)
    asked: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    references: int | None = None
    """How many files the table names, where only a part of its folders was listed; else None."""


def search(
    run: Run, target: Target, asked: OrphanRequest, settings: OrphanSettings, *, to_remove: bool = False
) -> Search:
    """Looks for orphans in one table; changes nothing.

    `to_remove`: what is found is to go, so metadata has to prove right where it can: every file that it names is there.

    Raises InputError for a request that does not fit the table, Blocked where nothing can be concluded, and what
    listing and reading raise.
    """
    policy = target.policy.remove_orphan_files
    age = effective_age(policy, asked)
    observed = observe(target.catalog, target.name, run.cache)
    metadata = observed.metadata
    name = str(target.name)
    if forbids_deleting(metadata.properties):
        raise Blocked("gc.enabled forbids deleting files of this table")
    places = listed_places(metadata, asked.location)
    listed_at = now_ms()
    at_work = [
        int(lease.acquired_at.timestamp() * 1000) for lease in run.state.leases.all() if lease.run_id != run.run_id
    ]
    lost = unanswered(run, name, metadata)
    at_work += [one.since_ms for one in lost]
    rules = OrphanRules(cutoff_ms(listed_at, age, at_work), listed_at, partition_fields(metadata))
    spelling = Spelling(
        {**policy.equal_schemes, **asked.equal_schemes}, {**policy.equal_authorities, **asked.equal_authorities}
    )
    with Spool() as spool:
        markers, linked = _list(run, name, observed.storage, places, spool)
        reach = spelling.everywhere(folders_of(metadata))
        look = run.evidence.look(reach)
        refuse(look, metadata, target, settings, spelling)
        reaching = look.reaching(reach)
        with index_references(reaching, name, places, spelling, listed=True) as index:
            explained = look.uuids() | frozenset(policy.dropped_tables)
            zones = unknown_zones(look, observed.storage, places, markers, index, explained, run.cache)
            zones += foreign_zones(name, settings.shared)
            zones += _own_state(run.state)
            zones = as_declared(zones, spelling)
            _refuse_covered(name, places, zones)
            mode = asked.prefix_mismatch_mode or policy.prefix_mismatch_mode
            said = {"older_than_ms": age // timedelta(milliseconds=1), "location": asked.location, "mismatch": mode}
            digest = Digest(name, metadata.uuid, said)
            result = Search(metadata, observed.storage, places, rules, digest, spelling, listed_at)
            result.asked = {owner.name: owner.token for owner in reaching}
            if asked.location is not None:
                own_names = next(owner.names for owner in reaching if owner.name == name)
                result.references = sum(len(batch) for batch in own_names.paths())
            result.notes.append(f"{len(look.owners)} tables were looked at, {len(reaching)} may reach files here")
            result.notes += versions_kept(observed.storage, places)
            result.notes += [one.note() for one in lost]
            own = own_folders(name, settings.shared)
            homes = sorted(folders_of(metadata), key=lambda home: -len(home.folder_key))
            most = settings.limits.removed_files + 1
            comparison = _Comparison(index, zones, linked, own, mode, result, homes, most, settings.quarantine_prefix)
            for rows in spool:
                comparison.take(rows)
        if to_remove and result.orphans:
            gone = missing_file(reaching, places, spelling, spool, observed.storage, others=mode == ERROR)
            if gone is not None:
                raise Blocked(
                    f"nothing was deleted: what metadata says is not so; it may be damaged, and mean one of the orphan "
                    f"files: {gone}. Restore what is wrong there, or let the snapshots go that need it"
                )
    return result


def unknown_now(run: Run, target: Target, spelling: Spelling) -> list[Zone]:
    """Where in the table's folders it is not known who owns a file, by a listing made now. Raises LakehouseError."""
    observed = observe(target.catalog, target.name, run.cache)
    name, places = str(target.name), listed_places(observed.metadata, None)
    markers = Markers()
    for place in places:
        for rows, _ in observed.storage.rows(place):
            markers.look(rows)
    reach = spelling.everywhere(folders_of(observed.metadata))
    look = run.evidence.look(reach)
    explained = look.uuids() | frozenset(target.policy.remove_orphan_files.dropped_tables)
    with index_references(look.reaching(reach), name, places, spelling) as index:
        return unknown_zones(look, observed.storage, places, markers, index, explained, run.cache)


def listed_places(metadata: Metadata, only: str | None) -> tuple[Location, ...]:
    """The folders to list: those of the table that lie in no other of them, or the one that was asked for.

    Raises InputError for one outside the table's own.
    """
    folders = folders_of(metadata)
    if only is not None:
        place = Location.parse(only)
        if not any(folder.contains(place) for folder in folders):
            raise InputError(
                f"{only} does not lie in the table's own folders",
                field=LOCATION,
                hint=f"a folder in {folders[0].text}; files elsewhere are not taken for this table's",
            )
        return (place,)
    # `t` and `t/` contain each other: the first of such is listed. So do two ways to one folder by links.
    return tuple(
        folder
        for index, folder in enumerate(folders)
        if not any(
            _contains(other, folder) and (position < index or not _contains(folder, other))
            for position, other in enumerate(folders)
            if position != index
        )
    )


def _contains(folder: Location, other: Location) -> bool:
    return folder.contains(other) or folder.resolved.contains(other.resolved)


def partition_fields(metadata: Metadata) -> frozenset[str]:
    """Names of all partition fields that the table ever had."""
    return frozenset(str(f["name"]) for fields in metadata.specs.values() for f in fields)


def _list(
    run: Run, name: str, storage: Storage, places: Sequence[Location], spool: Spool
) -> tuple[Markers, frozenset[Location]]:
    """Signs of unseen tables, and files that symbolic links in these folders lead to: a reference may name the link."""
    markers = Markers()
    linked: set[Location] = set()
    for place in places:
        for rows, links in storage.rows(place):
            spool.add(rows)
            markers.look(rows)
            linked.update(link.resolved for link in links)
            run.progress.advance(name, len(rows), 0)
    return markers, frozenset(linked)


def refuse(look: Look, metadata: Metadata, target: Target, settings: OrphanSettings, spelling: Spelling) -> None:
    """Raises Blocked where nobody may conclude anything about files of this table."""
    name = target.name
    places = spelling.everywhere(folders_of(metadata))
    why = look.refusal(name.database, places) or shared_refusal(
        look, places, str(name), told(str(name), settings.shared)
    )
    owner = look.owner(str(name))
    if why is None and owner is None:
        why = "it is not in its catalog any more"
    elif why is None and owner is not None and owner.uuid != metadata.uuid:
        why = "it became another table meanwhile"
    elif why is None and owner is not None and set(owner.folders) != set(folders_of(metadata)):
        why = "its location or write paths changed while they were listed; try again"
    if why is not None:
        raise Blocked(why)


def told(name: str, shared: Sequence[SharedLocation]) -> frozenset[str]:
    """Tables of which it was told which files are theirs and which this table's."""
    pairs = (pair for pair in shared if name in pair.tables and pair.files.get(name))
    return frozenset(other for pair in pairs for other in pair.tables if other != name)


def shared_refusal(look: Look, places: Sequence[Location], name: str, told_of: Collection[str]) -> str | None:
    """Two tables in one place: which files are whose has to be told first (IM-09)."""
    for owner, mine, theirs in look.sharing(name, places):
        if owner.name not in told_of:
            return (
                f"the folder {mine} of {name} and {theirs} of {owner.name} overlap; tell which files are whose in "
                f"lakehouse.yaml: shared_locations, an entry with tables: [{name}, {owner.name}] and, under files, the "
                f"folders of each ({name} needs some)"
            )
    return None


def foreign_zones(name: str, shared: Sequence[SharedLocation]) -> list[Zone]:
    """Where shared_locations gives files to the other table of a pair."""
    return [
        Zone(Location.parse(folder), f"shared_locations gives it to {other}")
        for pair in shared
        if name in pair.tables
        for other, folders in pair.files.items()
        if other != name
        for folder in folders
    ]


def as_declared(zones: Sequence[Zone], spelling: Spelling) -> list[Zone]:
    """The zones, and each under every name that was declared to mean the same place."""
    others = [
        Zone(place, zone.why)
        for zone in zones
        if zone.where is not None
        for place in spelling.everywhere([zone.where])[1:]
    ]
    return [*zones, *others]


def _own_state(state: State) -> list[Zone]:
    """What we remember is nobody's orphan, wherever somebody chose to keep it."""
    try:
        return [Zone(Location.parse(state.location), "the state of this product lies there")]
    except InputError:
        return []  # a database


def own_folders(name: str, shared: Sequence[SharedLocation]) -> tuple[Location, ...] | None:
    """Folders that shared_locations gives to the table; None where it shares none."""
    told = [pair.files.get(name, ()) for pair in shared if name in pair.tables]
    if not told:
        return None
    return tuple(Location.parse(folder) for folders in told for folder in folders)


def _refuse_covered(name: str, places: Sequence[Location], zones: Sequence[Zone]) -> None:
    """Where all that was listed is unknown, nothing can be concluded, and the reason is the result."""
    for place in places:
        for zone in zones:
            if zone.where is None or zone.where.contains(place) or zone.where.resolved.contains(place.resolved):
                raise Blocked(
                    f"{zone.why}; nothing in {place} can be told to be nobody's: add the catalog that shows that table "
                    "to lakehouse.yaml (a Delta table under delta), or, once it is known that nobody needs its files, "
                    "name its table-uuid in the policy's remove_orphan_files.dropped_tables"
                )


@dataclass
class _Comparison:
    """Listed files against references and rules. `homes`: the table's folders, the innermost first. `own`: folders to
    which its files are limited, or None. `most`: so many orphans are named, the others counted. `aside`: the name of
    folders that hold what is in quarantine."""

    index: ReferenceIndex
    zones: Sequence[Zone]
    linked: frozenset[Location]
    own: tuple[Location, ...] | None
    mode: str
    result: Search
    homes: Sequence[Location]
    most: int
    aside: str

    def take(self, rows: Sequence[Row]) -> None:
        result = self.result
        result.objects += len(rows) - sum(is_marker(path, size) for path, size, _ in rows if path[-1:] in "/$")
        result.bytes += sum(row[1] for row in rows)
        known = self.index.referenced([row[0] for row in rows])
        strangers = [row for row, is_known in zip(rows, known, strict=True) if not is_known]
        if not strangers:
            return
        mismatched = self.index.mismatched([row[0] for row in strangers])
        for row, is_mismatched in zip(strangers, mismatched, strict=True):
            why = self._keeps(row, is_mismatched)
            if why is None:
                self._found(row)
            else:
                result.kept[why] += 1

    def _keeps(self, row: Row, is_mismatched: bool) -> str | None:
        path, size, modified = row
        location = Location.parse(path)
        below = _below(location, self.homes)
        why = self.result.rules.keeps(below, size, modified)
        if why is None and self.aside in below.split("/"):
            why = "it lies in quarantine"
        if why is None:
            why = next((zone.why for zone in self.zones if zone.covers(location)), None)
        if why is None and self.linked and location.resolved in self.linked:
            why = "a symbolic link leads to it"
        if why is None and self.own is not None and not any(folder.contains(location) for folder in self.own):
            why = NOT_GIVEN
        if why is None and is_mismatched and self.mode != DELETE:
            why = MISMATCH
            if self.mode == ERROR:
                raise Blocked(
                    f"{path} equals a path that the table references in all but scheme or bucket: declare them equal "
                    "(--equal-schemes, --equal-authorities), or choose --prefix-mismatch-mode IGNORE to keep such "
                    "files, DELETE to take them for orphans"
                )
        return why

    def _found(self, row: Row) -> None:
        path, size, modified = row
        assert modified is not None, "a file without an age is kept"
        file = OrphanFile(path, size, modified)
        self.result.digest.add(file)
        self.result.orphans += 1
        self.result.orphan_bytes += size
        if len(self.result.files) < self.most:
            self.result.files.append(file)


def _below(location: Location, homes: Sequence[Location]) -> str:
    """The key below the innermost of the table's folders: what hides a file does so also for who names its folder."""
    for place in homes:
        if location.key.startswith(place.folder_key):
            return location.key[len(place.folder_key) :]
    return location.key
