"""`application.json` of the job that untracked table folders come from, read unchanged (UF-01 to UF-05, seed 000).

Field names, defaults and types are the source's. What `lakehouse.yaml` writes for a database under `untracked_folders`
adds how a folder goes: `removal`, `purge_after`, `review`, and paths that are kept. Where it writes nothing, a folder
is deleted without review, as in the source (UF-44).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt, StrictStr, ValidationError, model_validator

from lakehouse_maintenance.config.base import Section, exact_name
from lakehouse_maintenance.config.json_reading import read_json
from lakehouse_maintenance.config.merging import full_name
from lakehouse_maintenance.config.models import LakehouseConfig
from lakehouse_maintenance.config.policies import UntrackedFolders
from lakehouse_maintenance.config.problems import combined, problems_of
from lakehouse_maintenance.model.errors import ConfigurationError, InputError
from lakehouse_maintenance.model.folders import FolderRequest, HowToRemove
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.model.names import quote_part, split_name
from lakehouse_maintenance.model.nearest import nearest, suggestion

DEPRECATED = "collect_size_statistics"
"""Accepted with any value, and ignored (UF-02)."""

Spellings = Mapping[str, tuple[str, ...]]
"""Every way in which a file may write one of its databases, with the names that it has from here on: several where
`a.b` and a database in backticks come to the same text."""

_MOST_HOURS = 24 * 365_000
_LARGEST_INT = 2**31 - 1
_LONGEST_SHOWN = 120


class UntrackedJob(Section):
    """The fields of `application.json`. `null` is no value: an exclusion that somebody's template lost must be told."""

    catalog: StrictStr
    databases: tuple[StrictStr, ...]
    exclude_paths: tuple[StrictStr, ...] = ()
    exclude_database_folders: tuple[StrictStr, ...] = ()
    older_than_hours: Annotated[float, Field(strict=True, ge=0, le=_MOST_HOURS, allow_inf_nan=False)] = 24.0
    dry_run: StrictBool = True
    delete_enabled: StrictBool = False
    max_candidate_folders_per_database: Annotated[StrictInt, Field(ge=0, le=_LARGEST_INT)] = 10
    report_only_storage_roots: dict[StrictStr, tuple[StrictStr, ...]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_unset(cls, data: Any) -> Any:
        return data


def load_untracked_job(path: str | Path, config: LakehouseConfig) -> tuple[FolderRequest, list[str]]:
    """The request in a file, and notes on what was accepted and has no effect.

    Raises ConfigurationError that tells everything found wrong, before any call to a catalog or a store.
    """
    file = Path(path).expanduser().absolute()
    document = read_json(file, field="FILE.json")
    given = {name: value for name, value in document.data.items() if name in UntrackedJob.model_fields}
    wrong: list[InputError] = list(_unknown_fields(document.data))
    try:
        job = UntrackedJob.model_validate(given)
    except ValidationError as error:
        # `from None`: pydantic's own error holds the inputs, and a traceback would print its chain.
        raise combined([*wrong, *problems_of(error, given, {})], str(file), document.lines) from None
    spellings = _spellings(job.databases)
    wrong += _contradictions(job, config, spellings)
    if wrong:
        raise combined(wrong, str(file), document.lines)
    return _request(job, config, spellings), list(_notes(document.data, job))


def policy_request(config: LakehouseConfig, database: str, *, removes: bool) -> FolderRequest:
    """One database by the policy in force for it, defaults included. `database`: `catalog.database`.

    Raises InputError for what is no name, or of no configured catalog.
    """
    name = full_name(database, config.groups, 2)
    if len(name) < 2 or "*" in database:
        raise InputError(f"{database!r} is no full name of a database", field="database", hint="write catalog.database")
    unknown = _unknown_catalog(name[0], "database", config)
    if unknown is not None:
        raise unknown
    inside = _dotted(name[1:])
    policy = config.policy_index.of_database(name).untracked_folders
    return FolderRequest(
        catalog=name[0],
        databases=(inside,),
        exclude_paths=policy.exclude_paths,
        older_than_hours=policy.older_than / timedelta(hours=1),
        dry_run=not removes,
        delete_enabled=removes,
        max_candidates=policy.max_candidates,
        how={inside: HowToRemove(policy.removal, policy.purge_after, policy.review)},
    )


def _request(job: UntrackedJob, config: LakehouseConfig, spellings: Spellings) -> FolderRequest:
    databases = tuple(dict.fromkeys(name for names in spellings.values() for name in names))
    excluded = list(job.exclude_paths)
    how: dict[str, HowToRemove] = {}
    for database in databases:
        written = config.policy_index.written_for_database((job.catalog, *split_name(database)))
        policy: Mapping[str, Any] = written.get("untracked_folders", {})
        how[database] = HowToRemove(
            removal=policy.get("removal", "delete"),
            purge_after=policy.get("purge_after", UntrackedFolders().purge_after),
            needs_review=policy.get("review", False),
        )
        excluded += policy.get("exclude_paths", ())
    roots: dict[str, tuple[str, ...]] = {}
    for key, locations in job.report_only_storage_roots.items():
        for database in spellings[key]:
            roots[database] = (*roots.get(database, ()), *locations)
    return FolderRequest(
        catalog=job.catalog,
        databases=databases,
        exclude_paths=tuple(dict.fromkeys(excluded)),
        exclude_database_folders=tuple(
            dict.fromkeys(pair for entry in job.exclude_database_folders for pair in _folders(entry, spellings))
        ),
        older_than_hours=job.older_than_hours,
        dry_run=job.dry_run,
        delete_enabled=job.delete_enabled,
        max_candidates=job.max_candidate_folders_per_database,
        approved_roots=roots,
        how=how,
    )


def _notes(given: Mapping[str, Any], job: UntrackedJob) -> Iterator[str]:
    if DEPRECATED in given:
        yield (
            f"{DEPRECATED} is deprecated and ignored: object count and size are always collected; the field can be "
            "removed"
        )
    for number, path in enumerate(job.exclude_paths):
        if "*" in path:
            yield f"exclude_paths.{number} holds a *, which stands for itself: {_shown(path)} is no pattern"
    for database, times in Counter(job.databases).items():
        if times > 1:
            yield f"{_shown(database)} stands more than once in databases; it is looked at once"


def _unknown_fields(given: Iterable[str]) -> Iterator[ConfigurationError]:
    known = list(UntrackedJob.model_fields)
    for name in given:
        if name not in known and name != DEPRECATED:
            yield ConfigurationError(
                f"unknown field {_shown(name)}; the nearest known field is {nearest(name, known)!r}",
                field=name if len(name) <= _LONGEST_SHOWN else name[:_LONGEST_SHOWN] + "…",
                hint=suggestion(name, known),
            )


def _contradictions(job: UntrackedJob, config: LakehouseConfig, spellings: Spellings) -> Iterator[ConfigurationError]:
    """What no single value's type can tell."""
    unknown = _unknown_catalog(job.catalog, "catalog", config)
    if unknown is not None:
        yield unknown
    yield from _wrong_databases(job.databases)
    if not job.dry_run and not job.delete_enabled:
        yield ConfigurationError(
            "dry_run is false and delete_enabled is not true: nothing says that folders may be deleted",
            field="delete_enabled",
            hint='write "delete_enabled": true beside "dry_run": false, or leave "dry_run" true',
        )
    for number, path in enumerate(job.exclude_paths):
        why = _no_full_path(path)
        if why is not None:
            yield ConfigurationError(
                f"exclude_paths.{number}: {_shown(path)} {why}",
                field=f"exclude_paths.{number}",
                hint="write the whole path with scheme and bucket, such as s3a://bucket/data/analytics/manual_archive",
            )
    for number, entry in enumerate(job.exclude_database_folders):
        why = _no_database_folder(entry, spellings)
        if why is not None:
            yield ConfigurationError(
                f"exclude_database_folders.{number}: {_shown(entry)} {why}",
                field=f"exclude_database_folders.{number}",
                hint="write database.folder: a database of this file's databases, and the name of one folder in it; "
                + suggestion(entry.rpartition(".")[0] or entry, job.databases),
            )
    for key in job.report_only_storage_roots:
        if key not in spellings:
            yield ConfigurationError(
                f"report_only_storage_roots: {_shown(key)} is not one of databases",
                field=f"report_only_storage_roots.{key[:_LONGEST_SHOWN]}",
                hint=suggestion(key, job.databases),
            )


def _wrong_databases(databases: tuple[str, ...]) -> Iterator[ConfigurationError]:
    if not databases:
        yield ConfigurationError(
            "databases names no database", field="databases", hint='write their names, such as ["analytics"]'
        )
    for number, database in enumerate(databases):
        try:
            exact_name(database, least=1)
            why = None if database.casefold() != "all" else "is no name: databases are never taken all at once"
        except InputError:
            why = "is a pattern" if "*" in database else "is no name of a database"
        if why is not None:
            yield ConfigurationError(
                f"databases.{number}: {_shown(database)} {why}",
                field=f"databases.{number}",
                hint="write the exact name of each database; a part that holds a dot, and a database that is really "
                "called all, stand in backticks",
            )


def _unknown_catalog(name: str, field: str, config: LakehouseConfig) -> ConfigurationError | None:
    if name in config.catalogs:
        return None
    why = "is a group of Delta tables, no catalog" if name in config.delta else "is not a configured catalog"
    hint = "of the catalogs in lakehouse.yaml, " + suggestion(name, config.catalogs)
    return ConfigurationError(f"{_shown(name)} {why}", field=field, hint=hint)


def _no_full_path(path: str) -> str | None:
    """Why a path has no scheme and bucket; None where it has both. `file:` paths have no bucket but this machine."""
    if path != path.strip():
        return "begins or ends with white space"
    if "://" not in path and not path.lower().startswith("file:/"):
        return "has no scheme and bucket"
    try:
        location = Location.parse(path)
    except InputError:
        return "has no scheme and bucket, or cannot be parsed"
    if location.family != "file" and not location.authority.strip():
        return "has no bucket"
    return "names another machine" if location.family == "file" and location.authority else None


def _no_database_folder(entry: str, spellings: Spellings) -> str | None:
    if _folders(entry, spellings):
        return None
    is_known = any(database in spellings for database, _ in _split_at_dots(entry))
    return "names no single folder inside the database" if is_known else "begins with none of databases and a dot"


def _folders(entry: str, spellings: Spellings) -> list[tuple[str, str]]:
    """(database, folder) of `database.folder`. Both names may hold dots; where several databases fit, it is all."""
    return [
        (database, folder)
        for before, folder in _split_at_dots(entry)
        if folder not in ("", ".", "..") and "/" not in folder
        for database in spellings.get(before, ())
    ]


def _split_at_dots(text: str) -> Iterator[tuple[str, str]]:
    for dot in re.finditer(r"\.", text):
        yield text[: dot.start()], text[dot.end() :]


def _spellings(databases: Iterable[str]) -> Spellings:
    found: dict[str, tuple[str, ...]] = {}
    for database in databases:
        try:
            parts = split_name(database)
        except InputError:
            continue
        name = _dotted(parts)
        for spelling in (name, database, ".".join(parts)):
            found[spelling] = tuple(dict.fromkeys((*found.get(spelling, ()), name)))
    return found


def _dotted(parts: Iterable[str]) -> str:
    return ".".join(map(quote_part, parts))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")
