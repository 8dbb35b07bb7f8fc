"""Autovacuum for the lakehouse: keeps Iceberg and Delta tables fast, small and clean, and deletes nothing owned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_maintenance.lakehouse import Lakehouse

__version__ = "0.1.0"
__all__ = ["Lakehouse", "__version__"]


def __getattr__(name: str) -> Any:
    # Importing the package must stay cheap: Dagster and the command line load it before they know what is asked.
    if name == "Lakehouse":
        from lakehouse_maintenance.lakehouse import Lakehouse

        return Lakehouse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
