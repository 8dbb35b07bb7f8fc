"""Databases as Dagster shows them: those that configuration names, and their asset keys and groups."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_maintenance.model.names import TableName, quote_part, split_name

if TYPE_CHECKING:
    from lakehouse_maintenance.config import LakehouseConfig

EVERY = "*"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True, order=True)
class Database:
    """A namespace of a catalog. `namespace` has at least one part."""

    catalog: str
    namespace: tuple[str, ...]

    @classmethod
    def of(cls, table: TableName) -> Database:
        """The one that holds the table."""
        return cls(table.catalog, table.namespace)

    def __str__(self) -> str:
        return ".".join(quote_part(part) for part in (self.catalog, *self.namespace))

    @property
    def key_prefix(self) -> tuple[str, str, str]:
        """`lakehouse/<catalog>/<database>`; levels of a nested database are joined with dots.

        Dagster makes names of checks out of keys, and allows letters, digits, `_`, `-` and `.` in them alone. A part
        with anything else, or with a dot of its own, is written with underscores, and a hash that tells it from others.
        """
        return ("lakehouse", _key_part(self.catalog), ".".join(map(_key_part, self.namespace)))

    @property
    def group(self) -> str:
        """Name of the group of its assets: letters, digits and underscores, different for different databases."""
        parts = (self.catalog, *self.namespace)
        if all(_PLAIN.fullmatch(part) for part in parts):
            # No part holds two underscores in a row, or one at its end: what they part can be told.
            return "__".join(parts)
        return "__".join([*map(_shown, parts), _hash(str(self))])

    def key(self, asset: str) -> dg.AssetKey:
        """Key of one of the database's assets."""
        return dg.AssetKey([*self.key_prefix, asset])


def _key_part(part: str) -> str:
    return part if _PLAIN_KEY.fullmatch(part) else f"{_shown(part)}-{_hash(part)}"


def _shown(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_") or "x"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def written_databases(config: LakehouseConfig) -> list[Database]:
    """Databases of catalogs that `databases` names one by one, sorted; no catalog is asked."""
    found = {
        Database(catalog, split_name(text))
        for catalog, texts in config.databases.items()
        if catalog in config.catalogs
        for text in texts
        if text != EVERY
    }
    return sorted(found)


class ListedDatabases:
    """Databases that sensors may touch: those that `databases` names, or all of a catalog with `["*"]`."""

    def __init__(self, config: LakehouseConfig) -> None:
        self._written = frozenset(written_databases(config))
        self._whole = frozenset(c for c, texts in config.databases.items() if EVERY in texts and c in config.catalogs)

    @property
    def catalogs(self) -> list[str]:
        """Catalogs of which anything is listed, sorted."""
        return sorted(self._whole | {database.catalog for database in self._written})

    def is_whole(self, catalog: str) -> bool:
        """True where every database of the catalog is meant."""
        return catalog in self._whole

    def written(self, catalog: str) -> list[Database]:
        """Those of the catalog that are named, sorted."""
        return sorted(database for database in self._written if database.catalog == catalog)

    def __contains__(self, database: Database) -> bool:
        return database.catalog in self._whole or database in self._written
