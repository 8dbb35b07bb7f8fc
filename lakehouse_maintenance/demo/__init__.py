"""A lakehouse to look at: sick tables in a folder of their own, maintained by policy through the Dagster assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_maintenance.demo.run import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]


def __getattr__(name: str) -> Any:
    # The command line imports this package for its help text alone; PyArrow, PyIceberg and Dagster wait until it runs.
    if name in __all__:
        from lakehouse_maintenance.demo import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
