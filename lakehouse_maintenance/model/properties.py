"""What a table's own properties say to whoever maintains it."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_maintenance.model.errors import InputError

GC_PROPERTY = "gc.enabled"
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
PREVIOUS_VERSIONS_DEFAULT = 100
MANIFEST_TARGET = "commit.manifest.target-size-bytes"
MANIFEST_TARGET_DEFAULT = 8 << 20
MANIFEST_MERGE = "commit.manifest-merge.enabled"
MANIFEST_MIN_COUNT = "commit.manifest.min-count-to-merge"
MANIFEST_MIN_COUNT_DEFAULT = 100

_SETTABLE = ("write.", "commit.", "history.", "read.")
_WHERE_FILES_LIE = {"path", "location-provider"}


def check_settable(name: str, value: str) -> None:
    """Raises InputError for a property that is not set by policy.

    Others than those of upkeep mean other things than upkeep (`format-version` upgrades the table, `gc.enabled` and
    `location` say whose the files are); paths say where its files lie, and who may delete there.
    """
    if not name.startswith(_SETTABLE) or _WHERE_FILES_LIE & set(name.split(".")):
        raise InputError(
            f"{name!r} is no property that is set by policy",
            field=name,
            hint=f"names begin with {', '.join(_SETTABLE)}, and none says where files lie",
        )
    if not value.strip():
        raise InputError(f"{name} has an empty value", field=name, hint="write a value")


def whole_number(properties: Mapping[str, str], name: str, default: int, *, at_least: int = 1) -> int:
    """The property's number; the default where it is not set, or is no whole number of at least that."""
    text = properties.get(name, "").strip()
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        return default
    return int(text)


def forbids_deleting(properties: Mapping[str, str]) -> bool:
    """Whether `gc.enabled` is anything but true: its files may be others' (snapshot tables, branches elsewhere)."""
    return properties.get(GC_PROPERTY, "true").strip().lower() != "true"
