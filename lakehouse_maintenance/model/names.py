"""Names of tables as users write them, as Dagster partition keys, and patterns over them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lakehouse_maintenance.model.errors import InputError

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def split_name(text: str) -> tuple[str, ...]:
    """`a.b.c` → ("a", "b", "c"); a part with a dot or a backtick stands in backticks, a backtick inside is doubled.

    Raises InputError where the text is not a name (empty part, unclosed backtick).
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None or match.end() == match.start() or match.group(0) == "``":
            raise InputError(
                f"{text!r} is not a table name",
                field="table",
                hint="write catalog.database.table; quote a part that holds a dot or a backtick with backticks",
            )
        parts.append(match.group(2) if match.group(1) is None else match.group(1).replace("``", "`"))
        position = match.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            raise InputError(f"{text!r} is not a table name", field="table", hint="parts are separated by dots")
        position += 1


def quote_part(part: str) -> str:
    """The part as it stands in a dotted name, in backticks where it needs them."""
    return "`" + part.replace("`", "``") + "`" if "." in part or "`" in part else part


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table of one catalog: `catalog.namespace….table`. `namespace` has at least one part."""

    catalog: str
    namespace: tuple[str, ...]
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Raises InputError unless the text has a catalog, a namespace and a table."""
        parts = split_name(text)
        if len(parts) < 3:
            raise InputError(
                f"{text!r} has no catalog or no database", field="table", hint="write catalog.database.table"
            )
        return cls(parts[0], parts[1:-1], parts[-1])

    @classmethod
    def from_partition_key(cls, key: str) -> TableName:
        """Inverse of `partition_key`."""
        parts = [unquote(part) for part in key.split(".")]
        if len(parts) < 3 or not all(parts):
            raise InputError(f"{key!r} is not a table's partition key", field="partition")
        return cls(parts[0], tuple(parts[1:-1]), parts[-1])

    @property
    def database(self) -> str:
        """`catalog.namespace`, quoted where needed: the key of a database in policies."""
        return ".".join(quote_part(part) for part in (self.catalog, *self.namespace))

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace and table: the identifier inside its catalog."""
        return (*self.namespace, self.table)

    @property
    def partition_key(self) -> str:
        """The name with every character that Dagster (or the dot between parts) forbids percent-encoded."""
        return ".".join(_encode(part) for part in (self.catalog, *self.namespace, self.table))

    def __str__(self) -> str:
        return ".".join(quote_part(part) for part in (self.catalog, *self.namespace, self.table))


def _encode(part: str) -> str:
    # Dagster refuses "..." and control characters in partition keys, and the dot separates our parts.
    return "".join(
        char if char not in ".%" and char.isprintable() and (char.isascii() or char.isalnum()) else quote(char, safe="")
        for char in part
    ).replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class TablePattern:
    """What a user may write for one or many tables: `*` matches within a part; the catalog may be left out."""

    text: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Raises InputError where the text is no name."""
        parts = split_name(text)
        if len(parts) < 2:
            raise InputError(
                f"{text!r} names no database", field="table", hint="write database.table or catalog.database.table"
            )
        return cls(text, parts)

    @property
    def is_exact(self) -> bool:
        """True where no part holds a `*`."""
        return not any("*" in part for part in self.parts)

    def matches(self, name: TableName, *, only_catalog: str | None) -> bool:
        """`only_catalog`: the one configured catalog, for names without a catalog; None where there are several."""
        full = (name.catalog, *name.namespace, name.table)
        if _match_parts(self.parts, full):
            return True
        return only_catalog is not None and name.catalog == only_catalog and _match_parts(self.parts, full[1:])

    def means(self, subject: str, *, only_catalog: str | None) -> bool:
        """Whether a table, or a database, is meant whose full name the text is. `only_catalog`: as in `matches`."""
        parts = split_name(subject)
        if _match_parts(self.parts, parts):
            return True
        return only_catalog is not None and parts[0] == only_catalog and _match_parts(self.parts, parts[1:])


def _match_parts(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    return len(pattern) == len(parts) and all(map(_match_part, pattern, parts))


def _match_part(pattern: str, part: str) -> bool:
    if "*" not in pattern:
        return pattern == part
    return re.fullmatch(".*".join(re.escape(piece) for piece in pattern.split("*")), part, re.DOTALL) is not None
