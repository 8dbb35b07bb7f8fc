"""Fixtures of this folder."""

from __future__ import annotations

from lakehouse_maintenance_tests.engine.stores import exact_lake, lake, local_lake

__all__ = ["exact_lake", "lake", "local_lake"]
