"""Which tables a person means: names, patterns, or all that the configuration lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lakehouse_maintenance.catalogs import Catalog, TableKind, discover
from lakehouse_maintenance.model.errors import CatalogUnavailableError, UnknownTableError
from lakehouse_maintenance.model.listing import Incomplete
from lakehouse_maintenance.model.names import TableName, TablePattern, quote_part

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig

EVERY = "*"


class Catalogs(Mapping[str, Catalog]):
    """The configured Iceberg catalogs, opened when first asked for."""

    def __init__(self, config: LakehouseConfig) -> None:
        self._config = config
        self._open: dict[str, Catalog] = {}

    def __getitem__(self, name: str) -> Catalog:
        if name not in self._open:
            from lakehouse_maintenance.catalogs import open_catalog

            self._open[name] = open_catalog(name, self._config.catalogs[name].properties())
        return self._open[name]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._config.catalogs)

    def __len__(self) -> int:
        return len(self._config.catalogs)

    def close(self) -> None:
        """Gives back the connections of those that were opened."""
        for catalog in self._open.values():
            catalog.close()


def select_tables(config: LakehouseConfig, catalogs: Catalogs, texts: Sequence[str]) -> list[TableName]:
    """Sorted names of Iceberg tables. Without `texts`: all tables of the databases that the configuration lists.

    A name without `*` must exist, a pattern must match something. Raises UnknownTableError (with the nearest name),
    CatalogUnavailableError, InputError; nothing is read of any table.
    """
    if not texts:
        return sorted(name for catalog in catalogs for name in _listed(catalogs, catalog, _databases(config, catalog)))
    found: set[TableName] = set()
    for text in texts:
        found |= _matching(config, catalogs, TablePattern.parse(text))
    return sorted(found)


def _databases(config: LakehouseConfig, catalog: str) -> list[str]:
    return list(config.databases.get(catalog) or [EVERY])


def _matching(config: LakehouseConfig, catalogs: Catalogs, pattern: TablePattern) -> set[TableName]:
    only = next(iter(catalogs)) if len(catalogs) == 1 else None
    found: set[TableName] = set()
    seen: list[TableName] = []
    for catalog, rest in _candidates(catalogs, pattern, only):
        exact = rest is not None and not any("*" in part for part in rest[:-1])
        databases = [".".join(quote_part(part) for part in rest[:-1])] if rest is not None and exact else [EVERY]
        names = _listed(catalogs, catalog, databases, missing_ok=True)
        seen += names
        found |= {name for name in names if pattern.matches(name, only_catalog=only)}
    if found:
        return found
    near = get_close_matches(pattern.text, [str(name) for name in seen], 1, 0.5)
    known = ", ".join(catalogs)
    raise UnknownTableError(
        f"no table is named {pattern.text}" if pattern.is_exact else f"no table matches {pattern.text}",
        field="table",
        hint=f"did you mean {near[0]}?" if near else f"the configured catalogs are: {known}",
    )


def _candidates(
    catalogs: Catalogs, pattern: TablePattern, only: str | None
) -> list[tuple[str, tuple[str, ...] | None]]:
    """Catalogs the pattern could mean, each with the pattern's parts inside that catalog."""
    first = pattern.parts[0]
    found: list[tuple[str, tuple[str, ...] | None]] = []
    for catalog in catalogs:
        if len(pattern.parts) > 2 and (first == catalog or "*" in first):
            found.append((catalog, pattern.parts[1:]))
        elif catalog == only:
            found.append((catalog, pattern.parts))
    if only is not None and len(pattern.parts) > 2 and first == only:
        # `main.sales.orders` may also be table `orders` of the nested database `main.sales` inside the only catalog.
        found.append((only, pattern.parts))
    return found


def _listed(catalogs: Catalogs, catalog: str, databases: Sequence[str], *, missing_ok: bool = False) -> list[TableName]:
    opened = catalogs[catalog]
    if missing_ok and EVERY not in databases:
        known = opened.databases()
        if isinstance(known, Incomplete):
            raise _incomplete(catalog, known)
        names = {".".join(quote_part(part) for part in namespace) for namespace in known.items}
        databases = [database for database in databases if database in names]
    listed = discover(opened, databases)
    if isinstance(listed, Incomplete):
        raise _incomplete(catalog, listed)
    return [entry.name for entry in listed.items if entry.kind is TableKind.ICEBERG]


def _incomplete(catalog: str, listing: Incomplete) -> CatalogUnavailableError:
    return CatalogUnavailableError(
        listing.why,
        field=f"catalogs.{catalog}",
        hint="an incomplete listing is never taken for all there is; check the catalog with: doctor",
    )
