"""Catalogs for tests: PyIceberg's SqlCatalog on a SQLite file of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SqlCatalogFactory = Callable[..., "tuple[SqlCatalog, dict[str, str]]"]
"""(name="main", warehouse=None, **properties) → the catalog, and the properties as lakehouse.yaml takes them."""


def make_sql_catalog(
    folder: Path, *, name: str = "main", warehouse: str | None = None, **properties: str
) -> tuple[SqlCatalog, dict[str, str]]:
    """Creates `<folder>/<name>.db`. Without a warehouse, tables lie in `<folder>/warehouse`."""
    from pyiceberg.catalog.sql import SqlCatalog

    settings = {
        "uri": f"sqlite:///{folder / name}.db",
        "warehouse": warehouse or f"file://{folder / 'warehouse'}",
        **properties,
    }
    return SqlCatalog(name, **settings), {"type": "sql", **settings}


@pytest.fixture
def sql_catalog(tmp_path: Path) -> Iterator[SqlCatalogFactory]:
    """Makes catalogs in the test's folder, and closes them."""
    made: list[SqlCatalog] = []

    def make(
        *, name: str = "main", warehouse: str | None = None, **properties: str
    ) -> tuple[SqlCatalog, dict[str, str]]:
        catalog, settings = make_sql_catalog(tmp_path, name=name, warehouse=warehouse, **properties)
        made.append(catalog)
        return catalog, settings

    yield make
    for catalog in made:
        catalog.close()
