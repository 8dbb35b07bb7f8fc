"""What a table's own properties say to whoever maintains it."""

from __future__ import annotations

from collections.abc import Mapping

GC_PROPERTY = "gc.enabled"


def forbids_deleting(properties: Mapping[str, str]) -> bool:
    """Whether `gc.enabled` is anything but true: its files may be others' (snapshot tables, branches elsewhere)."""
    return properties.get(GC_PROPERTY, "true").strip().lower() != "true"
