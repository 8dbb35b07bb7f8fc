"""The order of rows in data files: sort orders (Iceberg spec: Sorting) and z-order, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WIDTH_FIRST = ("bucket", "truncate")


@dataclass(frozen=True, slots=True)
class SortField:
    """One term. `column`: Iceberg's dotted name, part by part. `transform`: identity, bucket, truncate, year, month,
    day or hour; `width`: of bucket and truncate. Equal rows of one term are ordered by the next.
    """

    column: tuple[str, ...]
    transform: str = "identity"
    width: int | None = None
    descending: bool = False
    nulls_first: bool = True

    @property
    def name(self) -> str:
        """The column's dotted name, as schemas have it."""
        return ".".join(self.column)

    @property
    def text(self) -> str:
        """Canonical, and readable again: `bucket(4, id) ASC NULLS FIRST`."""
        column = quoted(self.column)
        if self.transform in _WIDTH_FIRST:
            column = f"{self.transform}({self.width}, {column})"
        elif self.transform != "identity":
            column = f"{self.transform}({column})"
        direction = "DESC" if self.descending else "ASC"
        return f"{column} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Terms from the most to the least significant; with `zorder`, columns of equal weight (no transforms)."""

    fields: tuple[SortField, ...]
    zorder: bool = False

    @property
    def text(self) -> str:
        """Canonical: equal orders have equal text."""
        if self.zorder:
            return f"zorder({', '.join(quoted(field.column) for field in self.fields)})"
        return ", ".join(field.text for field in self.fields)


def quoted(column: tuple[str, ...]) -> str:
    """The dotted name; parts that are no plain words in backticks, as in Spark."""
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in column)
