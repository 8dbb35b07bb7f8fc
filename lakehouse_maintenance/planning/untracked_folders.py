"""Which table folders of a database may nobody own? One pure decision over facts (UF-06 to UF-16, UF-29, UF-30).

In order: `assess` says whether the database can be looked at, where its cleanup root is, and the first reason against
removing anything (`storage_roots`: which other roots are shown for review); `first_verdict` ends the folders that
somebody owns or that are left alone by name; the rest is looked into, and `last_verdict` ends it by age. The same
predicates decide again before anything is removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.folders import (
    Claim,
    ClaimKind,
    Content,
    Reason,
    Verdict,
)
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.reviews import PlannedFolder
from lakehouse_maintenance.planning.ages import is_believable

SUPPORTED = frozenset({"s3", "gs", "abfs", "file"})
"""Families of storage that folders can be reconciled on."""

_WORKING = re.compile(
    r"""\..*                                   # .spark-staging, .hive-staging, .hoodie, .Trash: hidden from engines
    |_temporary.*|_tmp.*|_temp|_staging.*|_scratch.*|_distcp.*|_impala_insert_staging.*
    |_spark_metadata|_delta_log|_delta_index|_change_data|_symlink_format_manifest
    |_SUCCESS|_committed_.*|_started_.*|_metadata|_common_metadata|_logs?
    |_lakehouse_maintenance_quarantine|_checkpoints?|_bad_records|_schemas?|-ext-\d+|hive-staging.*|spark-staging.*|__tmp.*
    """,
    re.VERBOSE,
)
"""Working folders of Spark, Hadoop, Hive, Impala, Delta, Hudi and streams (UF-12)."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table (no view) of the database. `location`: as its metadata has it; None where it is not known.

    `unresolved`: why it is not known what storage it owns, whether or not its location is. `is_unparsable`: its
    location has a scheme and is no location all the same.
    """

    name: str
    location: str | None
    unresolved: str | None = None
    is_unparsable: bool = False


@dataclass(frozen=True, slots=True)
class DatabaseStorage:
    """Where a database lies. `locations`: as the catalog tells it, or all that its default may be. `unknown`: why that
    cannot be told."""

    name: str
    locations: tuple[str, ...] = ()
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class Stranger:
    """An unresolved table of another database or a Delta group. `places`: where its files may lie; empty: anywhere."""

    name: str
    why: str
    places: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What the catalog tells. `name`: `catalog.database`. `location`: the catalog's, or its default where it is
    `is_inferred`. `namespace_folder`: the catalog's default folder for the database, where it has one. `gaps`: why
    other databases or tables may exist that nobody has seen. `unlisted`: why its own tables are not known, where the
    catalog did not list its databases."""

    name: str
    exists: bool = True
    location: str | None = None
    is_inferred: bool = False
    warehouse: str | None = None
    namespace_folder: str | None = None
    tables: tuple[TableFacts, ...] = ()
    others: tuple[DatabaseStorage, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    gaps: tuple[str, ...] = ()
    unlisted: str | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What can be done for a database. `root`: the cleanup root; None where it must not be scanned. `reason`: the first
    that keeps everything from being removed, with its message; candidates may be too many all the same.

    `located`: tables whose location is known, with it. `unresolved`: why nothing in the database can be proven
    untracked, whatever else is against removing it.
    """

    database: Location | None
    root: Location | None
    reason: Reason | None
    message: str | None
    located: tuple[tuple[TableFacts, Location], ...] = ()
    unresolved: str | None = None

    @property
    def outside(self) -> tuple[tuple[TableFacts, Location], ...]:
        """Tables that do not lie under the cleanup root."""
        root = self.root
        return () if root is None else tuple((t, at) for t, at in self.located if not is_inside(at, root))


def assess(facts: DatabaseFacts) -> Assessment:
    """The first reason in the order of UF-30, and the cleanup root where there is one to scan (UF-07)."""
    located = tuple((table, at) for table in facts.tables if (at := parsed(table.location)) is not None)
    database, warehouse = parsed(facts.location), parsed(facts.warehouse)
    unresolved = _unresolved(facts)

    def refused(reason: Reason, message: str, root: Location | None = None) -> Assessment:
        return Assessment(database, root, reason, message, located, unresolved)

    if not facts.exists:
        return refused(Reason.DATABASE_NOT_FOUND, f"there is no database {facts.name} in the catalog")
    if not (facts.location or "").strip():
        return refused(Reason.DATABASE_LOCATION_MISSING, f"the catalog tells no storage location of {facts.name}")
    invalid = _invalid(facts)
    if invalid is not None:
        return refused(Reason.INVALID_STORAGE_LOCATION, invalid)
    if warehouse is None:
        return refused(
            Reason.CATALOG_WAREHOUSE_UNKNOWN,
            "the catalog has no warehouse location: where other databases lie cannot be told apart",
        )
    assert database is not None, "what cannot be parsed is invalid"
    if is_bucket_root(database):
        return refused(Reason.DATABASE_LOCATION_IS_BUCKET_ROOT, f"{database.text} is the root of its bucket")
    if is_inside(warehouse, database):
        return refused(
            Reason.DATABASE_LOCATION_CONTAINS_WAREHOUSE_ROOT,
            f"{database.text} equals or contains the warehouse {warehouse.text}, where other databases lie",
        )
    if not located and facts.unlisted is not None:
        return refused(Reason.OTHER_DATABASE_STORAGE_UNKNOWN, facts.unlisted)
    if not located:
        return refused(Reason.NO_ACTIVE_TABLES_IN_DATABASE, f"no table of {facts.name} has a readable storage location")
    root = _cleanup_root(database, [at for _, at in located])
    bounds = boundary(database, warehouse)
    is_outside = not any(is_inside(root, bound) for bound in bounds)
    scanned = None if is_outside else root
    unknown = _unknown_storage(facts, database if is_outside else root)
    if unknown is not None:
        return refused(Reason.OTHER_DATABASE_STORAGE_UNKNOWN, unknown, scanned)
    if is_outside:
        return refused(
            Reason.SCAN_ROOT_OUTSIDE_DATABASE_BOUNDARY,
            f"the folder that holds the tables, {root.text}, is outside of {database.text}",
        )
    if not any(is_inside(at, root) for _, at in located):
        return refused(
            Reason.CLEANUP_ROOT_HAS_NO_VISIBLE_TABLE, f"no visible table is stored under {root.text}", scanned
        )
    if unresolved is not None:
        return refused(Reason.UNRESOLVED_CATALOG_OWNERSHIP, unresolved, scanned)
    return Assessment(database, root, None, None, located)


@dataclass(frozen=True, slots=True)
class FolderRules:
    """What decides over a folder beside its claims. Times in ms since 1970. `aside`: the name of quarantine folders;
    `own`: where this product keeps its state."""

    cutoff_ms: int
    now_ms: int
    excluded: tuple[Location, ...]
    aside: str
    own: tuple[Location, ...] = ()


_BY_KIND = (
    (ClaimKind.LOCATION, Verdict.TABLE),
    (ClaimKind.WRITE_PATH, Verdict.WRITE_PATH),
    (ClaimKind.FILES, Verdict.REFERENCED),
    (ClaimKind.VIEW, Verdict.REFERENCED),
    (ClaimKind.DATABASE, Verdict.OTHER_DATABASE),
)


def first_verdict(folder: Location, claims: Sequence[Claim], rules: FolderRules) -> tuple[Verdict, str] | None:
    """How a folder ends that somebody owns or that is left alone by its name, and why; None: it has to be looked into.

    `claims`: all that meet the folder.
    """
    for kind, verdict in _BY_KIND:
        for claim in claims:
            if claim.kind is kind:
                return verdict, str(claim)
    for excluded in rules.excluded:
        if folder.overlaps(excluded):
            return Verdict.EXCLUDED, f"excluded by configuration: {excluded.text}"
    for claim in claims:
        if claim.kind is ClaimKind.EXCLUDED:
            return Verdict.EXCLUDED, f"excluded by configuration: {claim.where.text}"
        if claim.kind is ClaimKind.OURS:
            return Verdict.WORKING_FOLDER, f"what this product keeps lies there: {claim.where.text}"
    name = folder.collapsed.segments[-1] if folder.collapsed.segments else ""
    if name == rules.aside:
        return Verdict.WORKING_FOLDER, "what was removed is kept there (quarantine)"
    if any(folder.overlaps(own) for own in rules.own):
        return Verdict.WORKING_FOLDER, "the state of this product lies there"
    if not name or _WORKING.fullmatch(name):
        return Verdict.WORKING_FOLDER, f"{name!r} is a working folder of a framework"
    return None


def last_verdict(content: Content, rules: FolderRules, unresolved: str | None) -> tuple[Verdict, str]:
    """How a folder ends that nobody claims. `unresolved`: why it may be somebody's all the same."""
    if unresolved is not None:
        return Verdict.POTENTIALLY_UNTRACKED, f"nobody claims it, but {unresolved}"
    if content.objects == 0:
        return Verdict.UNKNOWN_AGE, "its age cannot be established: nothing lies in it"
    newest = content.newest_ms
    if not is_believable(newest, rules.now_ms):
        return Verdict.UNKNOWN_AGE, "its age cannot be established: an object has no time, or an impossible one"
    if newest > rules.cutoff_ms:
        return Verdict.TOO_YOUNG, "an object in it is younger than older_than_hours"
    return Verdict.CANDIDATE, "no visible table of any catalog owns it, or references anything in it"


def exclusions(
    paths: Iterable[str], folders: Iterable[tuple[str, str]], database: str, roots: Sequence[Location]
) -> tuple[Location, ...]:
    """The effective excluded paths of a database: full ones, and its `database.folder` ones under each root (UF-06)."""
    found = [Location.parse(path) for path in paths]
    found += [root.child(name) for of, name in folders if of == database for root in roots]
    return tuple(dict.fromkeys(found))


def plan_digest(database: str, folders: Iterable[PlannedFolder]) -> str | None:
    """Over every candidate; the same candidates have the same digest, whatever run found them. None without any."""
    rows = sorted((f.path.rstrip("/"), f.objects, f.bytes, f.newest_ms) for f in folders)
    return _digest([database, rows]) if rows else None


def run_digest(digests: Iterable[str | None]) -> str | None:
    """Over those of all databases of a run."""
    found = sorted(digest for digest in digests if digest is not None)
    return _digest(["run", found]) if found else None


def _digest(value: object) -> str:
    text = json.dumps([1, value], separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def parsed(text: str | None) -> Location | None:
    """None for what is no location, or has no scheme: whose storage that is hangs on who reads it."""
    if text is None or not text.strip() or text.startswith("/"):
        return None
    try:
        return Location.parse(text)
    except InputError:
        return None


def _invalid(facts: DatabaseFacts) -> str | None:
    named = [("the database location", facts.location), ("the warehouse location", facts.warehouse)]
    for what, text in named:
        if text is not None and parsed(text) is None:
            return f"{what} {text!r} has no scheme and bucket, or cannot be parsed"
    database = parsed(facts.location)
    if database is not None and not is_supported(database):
        return f"the database location {facts.location!r} is on storage that is not supported ({database.scheme})"
    broken = next((table for table in facts.tables if table.is_unparsable), None)
    return None if broken is None else f"the location of {broken.name} cannot be parsed: {broken.location!r}"


def _unresolved(facts: DatabaseFacts) -> str | None:
    unresolved = [table for table in facts.tables if table.unresolved is not None]
    if not unresolved:
        return None
    number = f"{len(unresolved)} table{'' if len(unresolved) == 1 else 's'}"
    first = f"the first is {unresolved[0].name}: {unresolved[0].unresolved}"
    return f"{number} of {facts.name} may own any of its folders; {first}"


def _cleanup_root(database: Location, tables: Sequence[Location]) -> Location:
    parents = {at.collapsed.with_key(parent_key(at)): None for at in tables}
    if len(parents) != 1:
        return database
    # In the database's spelling, not that of whichever table comes first: plans name folders by their text.
    (root,) = parents
    if root.collapsed == database.collapsed:
        return database  # to the letter: with its `//` it is another prefix of the store
    is_near = (root.family, root.authority) == (database.family, database.authority)
    return database.with_key(root.key) if is_near else root


def parent_key(location: Location) -> str:
    """Of the folder that it lies in; empty for a bucket's root."""
    return "/".join(location.collapsed.segments[:-1])


def boundary(database: Location | None, warehouse: Location | None) -> list[Location]:
    """The database location, and the same without `.db` unless other databases lie there."""
    if database is None:
        return []
    short = without_suffix(database)
    if short is None or (warehouse is not None and is_inside(warehouse, short)):
        return [database]
    return [database, short]


def without_suffix(database: Location) -> Location | None:
    """The same path without `.db`; None where it has none."""
    key = database.key.rstrip("/")
    return database.with_key(key.removesuffix(".db")) if key.endswith(".db") and key[-4:-3] not in ("", "/") else None


def _unknown_storage(facts: DatabaseFacts, root: Location) -> str | None:
    """Why storage of somebody else may lie in the root and nobody knows (UF-14, UF-15)."""
    if facts.gaps:
        return facts.gaps[0]
    for other in facts.others:
        if other.unknown is not None:
            return f"where database {other.name} lies cannot be told: {other.unknown}"
        for text in other.locations:
            if parsed(text) is None:
                return f"the location of database {other.name} cannot be compared: {text!r}"
    for stranger in facts.strangers:
        if not stranger.places or any(place.overlaps(root) for place in stranger.places):
            return f"{stranger.name} may own files here: {stranger.why}"
    return None


def is_supported(location: Location) -> bool:
    """`file:` of another machine is no storage that can be listed from here."""
    return location.family in SUPPORTED and not (location.family == "file" and location.authority)


def is_bucket_root(location: Location) -> bool:
    """Of this machine's files, `/` is (UF-29)."""
    return not location.key.strip("/")


def is_inside(one: Location, other: Location) -> bool:
    """Whether `one` is the other, or lies in it."""
    return other.contains(one) or other.collapsed.contains(one.collapsed)
