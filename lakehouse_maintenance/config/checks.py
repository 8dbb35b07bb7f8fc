"""What no single value can tell: names that must be known, distinct, or fit one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakehouse_maintenance.config.base import exact_name
from lakehouse_maintenance.config.merging import full_name
from lakehouse_maintenance.config.models import LakehouseConfig
from lakehouse_maintenance.config.policies import Policy, check_options
from lakehouse_maintenance.model.errors import ConfigurationError, InputError
from lakehouse_maintenance.model.names import quote_part, split_name
from lakehouse_maintenance.model.nearest import suggestion

RESERVED = ("sources", "overview")
"""Names that Dagster's asset keys take for themselves."""


def problems(config: LakehouseConfig) -> list[InputError]:
    """Everything that contradicts itself, in the order of the file's keys."""
    checks: tuple[Callable[[LakehouseConfig], Iterator[InputError]], ...] = (
        _something_to_do,
        _group_names,
        _databases,
        _audit,
        _named_tables,
        _volumes,
        _policies,
    )
    return [problem for check in checks for problem in check(config)]


def _something_to_do(config: LakehouseConfig) -> Iterator[InputError]:
    if not config.catalogs and not config.delta and not config.sources:
        yield ConfigurationError(
            "no catalog, no Delta tables and no sources: there is nothing to maintain",
            field="catalogs",
            hint="add a catalog, or write a new file with: lakehouse-maintenance init --catalog NAME --property k=v",
        )


def _group_names(config: LakehouseConfig) -> Iterator[InputError]:
    for section, names in (("catalogs", config.catalogs), ("delta", config.delta)):
        for name in names:
            if name in RESERVED or not name or name != name.strip() or "*" in name:
                why = "is taken for assets of the product" if name in RESERVED else "is no name"
                yield ConfigurationError(
                    f"{name!r} {why} and cannot stand under {section}",
                    field=f"{section}.{name}",
                    hint="choose another name; * and the names " + " and ".join(RESERVED) + " are not allowed",
                )
    for name in config.delta:
        if name in config.catalogs:
            yield ConfigurationError(
                f"{name!r} names a catalog and a group of Delta tables",
                field=f"delta.{name}",
                hint="choose another name for one of them",
            )


def _databases(config: LakehouseConfig) -> Iterator[InputError]:
    for group, databases in config.databases.items():
        where = f"databases.{group}"
        if group not in config.groups:
            yield _unknown_catalog(group, where, config)
        for number, database in enumerate(databases):
            if database == "*":
                continue
            try:
                exact_name(database, least=1)
            except InputError as error:
                yield ConfigurationError(
                    f"{database!r} is no name of a database" if "*" not in database else error.message,
                    field=f"{where}.{number}",
                    hint='write the exact name, or "*" alone for all of them',
                )


def _audit(config: LakehouseConfig) -> Iterator[InputError]:
    if config.audit.catalog is not None and config.audit.catalog not in config.catalogs:
        yield _unknown_catalog(config.audit.catalog, "audit.catalog", config)


def _named_tables(config: LakehouseConfig) -> Iterator[InputError]:
    for name, source in config.sources.items():
        if source.prove_against is not None:
            yield from _name_problems(source.prove_against, 3, f"sources.{name}.prove_against", config)
    for number, shared in enumerate(config.shared_locations):
        where = f"shared_locations.{number}"
        for position, table in enumerate(shared.tables):
            yield from _name_problems(table, 3, f"{where}.tables.{position}", config)
        for table in shared.files:
            if table not in shared.tables:
                yield ConfigurationError(
                    f"{table!r} is not one of the two tables",
                    field=f"{where}.files.{table}",
                    hint=suggestion(table, shared.tables),
                )


def _volumes(config: LakehouseConfig) -> Iterator[InputError]:
    for path in config.volumes:
        if not path.startswith("/Volumes/") or path == "/Volumes/":
            yield ConfigurationError(
                f"{path!r} is no path of a volume",
                field=f"volumes.{path}",
                hint="write /Volumes/catalog/schema/volume, with folders below where needed",
            )


def _policies(config: LakehouseConfig) -> Iterator[InputError]:
    yield from check_options(config.policies.default, "policies.default")
    wrong: list[InputError] = []
    names: dict[str, tuple[str, ...]] = {}
    for section, parts in (("databases", 2), ("tables", 3)):
        layers: dict[str, Policy] = getattr(config.policies, section)
        seen: dict[tuple[str, ...], str] = {}
        for key, layer in layers.items():
            where = f"policies.{section}.{key}"
            yield from check_options(layer, where)
            unnamed = list(_name_problems(key, parts, where, config))
            wrong += unnamed
            if unnamed:
                continue
            name = names[where] = full_name(key, config.groups, parts)
            if name in seen:
                wrong.append(
                    ConfigurationError(
                        f"{key!r} and {seen[name]!r} name the same {section.removesuffix('s')}",
                        field=where,
                        hint="write one policy with the keys of both",
                    )
                )
            seen[name] = key
    yield from wrong
    if not wrong:
        # A contradiction may lie between layers, so each is looked at as it holds in the end.
        yield from _layout(config.policy_index.of_database(()), "policies.default")
        for where, name in names.items():
            is_table = where.startswith("policies.tables.")
            merged = config.policy_index.of_table(name) if is_table else config.policy_index.of_database(name)
            yield from _layout(merged, where)


def _layout(policy: Policy, where: str) -> Iterator[InputError]:
    rewrite = policy.rewrite_data_files
    if rewrite.strategy == "zorder" and not rewrite.sort_order:
        yield ConfigurationError(
            "strategy zorder names no columns",
            field=f"{where}.rewrite_data_files.sort_order",
            hint='add sort_order with the columns, such as sort_order: "user_id, country"',
        )


def _name_problems(key: str, parts: int, where: str, config: LakehouseConfig) -> Iterator[InputError]:
    form = "catalog.database.table" if parts == 3 else "catalog.database"
    try:
        name = full_name(key, config.groups, parts)
    except InputError as error:
        yield ConfigurationError(error.message, field=where, hint=error.hint)
        return
    if "*" in key:
        yield ConfigurationError(f"{key!r} is a pattern", field=where, hint=f"write one exact name: {form}")
    elif len(name) < parts:
        example = (
            ".".join((quote_part(config.groups[0]), key)) if config.groups and name[0] not in config.groups else form
        )
        yield ConfigurationError(f"{key!r} is not a full name", field=where, hint=f"write {form}, such as {example}")
    elif name[0] not in config.groups:
        yield _unknown_catalog(split_name(key)[0], where, config)


def _unknown_catalog(name: str, where: str, config: LakehouseConfig) -> ConfigurationError:
    known = config.catalogs if where == "audit.catalog" else config.groups
    return ConfigurationError(f"{name!r} is not a configured catalog", field=where, hint=suggestion(name, known))
