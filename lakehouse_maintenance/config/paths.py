"""Relative paths start from the file's folder, wherever the command runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from lakehouse_maintenance.config.connections import CatalogConfig, DeltaGroup, Source
from lakehouse_maintenance.config.models import LakehouseConfig
from lakehouse_maintenance.config.settings import CompactionJob, UntrackedFoldersJob

M = TypeVar("M", bound=BaseModel)
J = TypeVar("J", CompactionJob, UntrackedFoldersJob)

_SQLITE = re.compile(r"(sqlite(?:\+[a-z]+)?:///)([^/?][^?]*)(\?.*)?", re.DOTALL)
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# A REST or BigQuery warehouse is a name that the service knows, no path.
_WAREHOUSE_IS_A_PATH = ("sql", "in-memory", "hive", "glue", "dynamodb")


def resolved(config: LakehouseConfig, base: Path) -> LakehouseConfig:
    """The configuration with every relative path made absolute below `base`."""
    return _with(
        config,
        catalogs={name: _catalog(catalog, base) for name, catalog in config.catalogs.items()},
        delta={name: _group(group, base) for name, group in config.delta.items()},
        sources={name: _source(source, base) for name, source in config.sources.items()},
        state=_with(
            config.state,
            url=absolute(config.state.url, base),
            cache=None if config.state.cache is None else absolute(config.state.cache, base),
        ),
        jobs=_with(
            config.jobs,
            data_compaction=_file(config.jobs.data_compaction, base),
            untracked_table_folders=_file(config.jobs.untracked_table_folders, base),
        ),
        readers=_with(config.readers, checkpoints=_all(config.readers.checkpoints, base)),
        volumes={name: absolute(location, base) for name, location in config.volumes.items()},
        shared_locations=tuple(
            _with(shared, files={table: _all(folders, base) for table, folders in shared.files.items()})
            for shared in config.shared_locations
        ),
    )


def absolute(text: str, base: Path) -> str:
    """A path without scheme made absolute, `~` the user's home; anything with a scheme is left alone.

    A trailing slash stays, for it tells a folder from an object.
    """
    if not text or _HAS_SCHEME.match(text):
        return text
    path = str(base / Path(text).expanduser())
    return path + "/" if text.endswith("/") and not path.endswith("/") else path


def absolute_database(uri: str, base: Path) -> str:
    """`sqlite:///relative.db` with its path made absolute; any other address is left alone."""
    match = _SQLITE.fullmatch(uri)
    if match is None or match.group(2) == ":memory:" or match.group(2).startswith("file:"):
        return uri
    return match.group(1) + absolute(match.group(2), base) + (match.group(3) or "")


def _catalog(catalog: CatalogConfig, base: Path) -> CatalogConfig:
    uri = catalog.uri
    kind = catalog.type or ("sql" if uri is not None and "sql" in uri.partition(":")[0] else None)
    warehouse = catalog.warehouse
    return _with(
        catalog,
        uri=None if uri is None else absolute_database(uri, base),
        warehouse=absolute(warehouse, base) if warehouse and kind in _WAREHOUSE_IS_A_PATH else warehouse,
    )


def _group(group: DeltaGroup, base: Path) -> DeltaGroup:
    tables = {name: absolute(location, base) for name, location in group.tables.items()}
    return _with(group, roots=_all(group.roots, base), tables=tables)


def _source(source: Source, base: Path) -> Source:
    destination = source.move_destination
    return _with(
        source,
        path=absolute(source.path, base),
        checkpoints=_all(source.checkpoints, base),
        checkpoint_roots=_all(source.checkpoint_roots, base),
        move_destination=None if destination is None else absolute(destination, base),
    )


def _file(job: J | None, base: Path) -> J | None:
    return None if job is None else _with(job, file=absolute(job.file, base))


def _all(locations: Iterable[str], base: Path) -> tuple[str, ...]:
    return tuple(absolute(location, base) for location in locations)


def _with(section: M, **values: object) -> M:
    # Only what changed: what is set here would count as written by the user.
    changed = {name: value for name, value in values.items() if value != getattr(section, name)}
    return section.model_copy(update=changed) if changed else section
