"""`explain PATH` for what lies under a database's cleanup root: the verdict on its folder, by the policy in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakehouse_maintenance.catalogs import Catalog
from lakehouse_maintenance.config.untracked_job import policy_request
from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.database_facts import World
from lakehouse_maintenance.execution.looking_inside import look_inside
from lakehouse_maintenance.execution.reconciling import Found, claims_on, left_alone, own_places
from lakehouse_maintenance.model.errors import InputError, LakehouseError
from lakehouse_maintenance.model.folders import Folder, FolderRequest
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import quote_part, split_name
from lakehouse_maintenance.planning.untracked_folders import (
    FolderRules,
    assess,
    exclusions,
    first_verdict,
    last_verdict,
)
from lakehouse_maintenance.state import State

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig

_HOUR_MS = 3_600_000


def folder_verdict(
    config: LakehouseConfig, catalogs: Mapping[str, Catalog], state: State, world: World, location: Location
) -> dict[str, Any] | None:
    """What reconciling says of the folder that the location is, or lies in; None where it lies under the cleanup root
    of no database. Raises nothing for what it meets."""
    failed: dict[str, Any] | None = None
    for storage in world.storages.values():
        if not any(_is_below(location, text) for text in storage.locations):
            continue
        catalog, *namespace = split_name(storage.name)
        inside = ".".join(quote_part(part) for part in namespace)
        try:
            request = policy_request(config, storage.name, removes=False)
            aside = config.quarantine.prefix
            found = _verdict(world, catalogs[catalog], inside, request, own_places(state), aside, location)
        except LakehouseError as error:
            failed = {"database": storage.name, "error": error.message}
            continue
        if found is not None:
            return found
    return failed


def _verdict(
    world: World,
    catalog: Catalog,
    database: str,
    request: FolderRequest,
    own: tuple[Location, ...],
    aside: str,
    location: Location,
) -> dict[str, Any] | None:
    facts = world.facts(catalog, database)
    assessment = assess(facts)
    root = assessment.root
    if root is None or not root.contains(location):
        return None
    below = location.key.removeprefix(root.folder_key).strip("/").split("/")[0]
    if not below or location.key.rstrip("/") == root.key.rstrip("/"):
        return None
    folder, now = root.child(below), now_ms()
    rules = FolderRules(
        now - int(request.older_than_hours * _HOUR_MS),
        now,
        exclusions(request.exclude_paths, request.exclude_database_folders, database, [root]),
        aside,
        own,
    )
    found = Found(database, facts, assessment, left_alone=left_alone(rules))
    ended = first_verdict(folder, claims_on(world, found, root, folder), rules)
    content = None
    if ended is None:
        content = look_inside(catalog.storage_for_listing(world.tables_of(facts.name)), folder)
        ended = last_verdict(content, rules, assessment.unresolved)
    return {
        "database": facts.name,
        "cleanup_root": root.text,
        "blocked": assessment.reason,
        "blocked_why": assessment.message,
        **Folder(folder, *ended, content).as_json(),
    }


def _is_below(location: Location, folder: str) -> bool:
    try:
        return Location.parse(folder).contains(location)
    except InputError:
        return False
