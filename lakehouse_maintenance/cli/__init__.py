"""The command line: a thin shell over `lakehouse.py`. Whatever is heavy is imported inside the verb that needs it."""

from __future__ import annotations

from lakehouse_maintenance.cli.running import main

__all__ = ["main"]
