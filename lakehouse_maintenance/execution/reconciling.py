"""Storage of one database against its catalog: which folders under its cleanup root does nobody own (UF-06 to UF-16)?

The order:
  1. what the catalogs tell (database_facts), read once a run;
  2. `assess`: may the database be looked at, where is its cleanup root;
  3. its immediate child folders, each ended by a claim, an exclusion or its name; the rest is looked into, once, for
     objects, bytes, age and signs of a dropped table;
  4. other roots, one level deep, for review.
A table that is created after 1 and before 3 has its folder in the listing and no claim on it. So nothing is removed on
the word of this alone: the removal sees the catalogs again after the listing (removing_folders).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.evidence import ClaimIndex
from lakehouse_maintenance.execution.database_facts import World
from lakehouse_maintenance.execution.looking_inside import look_inside
from lakehouse_maintenance.execution.progress import Progress
from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.folders import (
    ROOTS_SHOWN,
    Claim,
    ClaimKind,
    Content,
    Folder,
    FolderRequest,
    Reason,
    RootStatus,
    StorageRoot,
    Verdict,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.reviews import PlannedFolder
from lakehouse_maintenance.planning.storage_roots import roots_to_list
from lakehouse_maintenance.planning.untracked_folders import (
    Assessment,
    DatabaseFacts,
    FolderRules,
    assess,
    exclusions,
    first_verdict,
    last_verdict,
)
from lakehouse_maintenance.removal import Entry, EntryState, entries
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import Storage
from lakehouse_maintenance.storage.ordered import map_ordered

_AT_ONCE = 16
_MOST_POTENTIAL = 1000
"""Folders that are looked into though nothing can be concluded from it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides in a run, beside the catalogs. `aside`: name of quarantine folders; `own`: where our state lies."""

    request: FolderRequest
    cutoff_ms: int
    now_ms: int
    aside: str
    own: tuple[Location, ...] = ()


def own_places(state: State) -> tuple[Location, ...]:
    """What we keep ourselves, which is nobody's leftover: our state, and every quarantine that still holds something,
    whatever its folder is called by now. Raises StorageError where the state cannot be read."""
    found = [
        entry.quarantined.with_key("/".join(entry.quarantined.segments[:-2]))
        for entry in entries(state)
        if isinstance(entry, Entry) and entry.state not in (EntryState.RESTORED, EntryState.PURGED)
    ]
    with suppress(InputError):  # a database
        found.append(Location.parse(state.location))
    return tuple(dict.fromkeys(found))


@dataclass
class Found:
    """What reconciling one database found. `reason`: the first against removing anything, too many candidates included;
    `left_alone`: exclusions and what is ours, under every way in which two places may be one."""

    database: str
    facts: DatabaseFacts
    assessment: Assessment
    reason: Reason | None = None
    message: str | None = None
    storage: Storage | None = None
    rules: FolderRules | None = None
    left_alone: ClaimIndex = field(default_factory=lambda: ClaimIndex(()))
    folders: list[Folder] = field(default_factory=list)
    roots: list[StorageRoot] = field(default_factory=list)

    @property
    def candidates(self) -> list[Folder]:
        """In the order of their paths."""
        return [folder for folder in self.folders if folder.verdict is Verdict.CANDIDATE]


def reconcile(world: World, catalog: Catalog, database: str, rules: Rules, progress: Progress) -> Found:
    """One database, by its name inside the catalog. Changes nothing. Raises LakehouseError where storage or catalog do
    not answer, so that nothing can be told."""
    facts = world.facts(catalog, database)
    assessment = assess(facts)
    found = Found(database, facts, assessment, assessment.reason, assessment.message)
    approved = rules.request.approved_roots.get(database, ())
    if assessment.root is None and assessment.reason not in ROOTS_SHOWN:
        return found
    to_list, found.roots = roots_to_list(facts, assessment, approved)
    storage = found.storage = catalog.storage_for_listing(world.tables_of(facts.name))
    roots = [*([] if assessment.root is None else [assessment.root]), *(root for root, _ in to_list)]
    found.rules = rules_of(rules, database, roots)
    found.left_alone = left_alone(found.rules)
    if assessment.root is not None:
        _look_at_root(world, found, assessment.root, storage, rules.request.max_candidates, progress)
    found.roots[:0] = [_for_review(world, found, storage, root, origin) for root, origin in to_list]
    if assessment.root is not None:
        status = RootStatus.ABSENT if storage.is_absent(assessment.root) else RootStatus.SCANNED
        found.roots.insert(0, StorageRoot(assessment.root.text, "cleanup_root", status))
    return found


def rules_of(rules: Rules, database: str, roots: Sequence[Location]) -> FolderRules:
    """For folders of one database under these roots."""
    excluded = exclusions(rules.request.exclude_paths, rules.request.exclude_database_folders, database, roots)
    return FolderRules(rules.cutoff_ms, rules.now_ms, excluded, rules.aside, rules.own)


def left_alone(rules: FolderRules) -> ClaimIndex:
    """Exclusions and our own places as claims: by text alone, a symbolic link or a percent code would get past them."""
    excluded = [Claim(where, "the configuration", ClaimKind.EXCLUDED) for where in rules.excluded]
    return ClaimIndex([*excluded, *(Claim(where, "this product", ClaimKind.OURS) for where in rules.own)])


def claims_on(world: World, found: Found, root: Location, folder: Location) -> list[Claim]:
    """Claims that count for a folder of this database: of other databases those alone whose storage lies at or inside
    the root. One around it, such as the database at the warehouse root, would claim everything."""
    name = found.facts.name
    # What a table of this database may own that cannot be read is a guess: its folders are potentially untracked, as
    # all that nobody's verified claim meets (UF-15).
    guessed = {table.name for table in world.look.unread if table.database == name}
    claims = [
        claim
        for claim in world.claims.meeting(folder)
        if claim.by not in guessed
        and (claim.kind is not ClaimKind.DATABASE or (claim.by != name and _at_or_inside(claim.where, root)))
    ]
    return claims + found.left_alone.meeting(folder)


def planned(folders: Sequence[Folder]) -> tuple[PlannedFolder, ...]:
    """Candidates as a plan's entries."""
    return tuple(
        PlannedFolder(one.path, one.content.objects, one.content.bytes, one.content.newest_ms or 0, evidence_of(one))
        for one in folders
        if one.content is not None
    )


def evidence_of(folder: Folder) -> str:
    """Why it may go, and what its reviewer can recognise it by, in a line."""
    signs = [
        f"{sign.format} metadata of table {sign.table_uuid or '(unreadable)'} at {sign.path}"
        for sign in (folder.content.signs if folder.content is not None else ())
    ]
    return "; ".join([folder.why, *signs[:3]])


def _look_at_root(world: World, found: Found, root: Location, storage: Storage, most: int, progress: Progress) -> None:
    assert found.rules is not None
    unmatched: list[Location] = []
    for folder in storage.folders(root):
        ended = first_verdict(folder, claims_on(world, found, root, folder), found.rules)
        if ended is None:
            unmatched.append(folder)
        else:
            found.folders.append(Folder(folder, *ended))
    unmatched = _not_empty(storage, unmatched)
    potential = found.assessment.unresolved
    if potential is None and found.reason is None and len(unmatched) > most:
        found.reason = Reason.TOO_MANY_CANDIDATE_FOLDERS
        so_many = f"{len(unmatched)} folder{'' if len(unmatched) == 1 else 's'}"
        limit = f"more than max_candidate_folders_per_database ({most})"
        found.message = f"{so_many} may be untracked, {limit}; nothing was looked into"
        why = "no visible table claims it; its age was not looked at, since there are too many such folders"
        found.folders += [Folder(folder, Verdict.CANDIDATE, why) for folder in unmatched]
    else:
        told = _progress(progress, found.facts.name)
        for number, folder in enumerate(unmatched):
            is_shown = (potential is None and found.reason is None) or number < _MOST_POTENTIAL
            content = look_inside(storage, folder, progress=told) if is_shown else None
            unseen = None if is_shown else potential or "it was not looked into"
            ended = last_verdict(content or Content(), found.rules, unseen or potential)
            found.folders.append(Folder(folder, *ended, content))
    found.folders.sort(key=lambda one: one.path)


def _for_review(world: World, found: Found, storage: Storage, root: Location, origin: str) -> StorageRoot:
    """A root whose folders are listed and never removed (UF-23)."""
    assert found.rules is not None
    try:
        if storage.is_absent(root):
            return StorageRoot(root.text, origin, RootStatus.ABSENT)
        rules = found.rules
        unmatched = [
            one
            for one in storage.folders(root)
            if first_verdict(one, claims_on(world, found, root, one), rules) is None
        ]
        shown = tuple(folder.text for folder in _not_empty(storage, unmatched))
    except StorageError as error:
        return StorageRoot(root.text, origin, RootStatus.LISTING_FAILED, error=error.message)
    return StorageRoot(root.text, origin, RootStatus.SCANNED, unmatched=shown)


def _not_empty(storage: Storage, folders: Sequence[Location]) -> list[Location]:
    """Some object stores go on listing a folder whose objects are gone. An empty directory is one all the same."""
    in_stores = [folder for folder in folders if folder.family != "file"]
    gone = {folder for folder, is_gone in map_ordered(storage.is_absent, in_stores, concurrency=_AT_ONCE) if is_gone}
    return [folder for folder in folders if folder not in gone]


def _progress(progress: Progress, name: str) -> Callable[[int, int], None]:
    return lambda objects, size: progress.advance(name, objects, size)


def _at_or_inside(place: Location, root: Location) -> bool:
    return any(
        outer.contains(inner)
        for outer, inner in ((root, place), (root.collapsed, place.collapsed), (root.resolved, place.resolved))
    )
