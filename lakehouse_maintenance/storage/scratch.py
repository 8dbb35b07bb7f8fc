"""The name of the one object that storage writes and removes: the scratch object of a write test."""

from __future__ import annotations

import re
import uuid

from lakehouse_maintenance.model.locations import Location

CONTENT = b"written by the write test of lakehouse-maintenance; safe to remove\n"

_PREFIX = "_lakehouse_maintenance_write_test_"
_NAME = re.compile(re.escape(_PREFIX) + r"[0-9a-f]{32}")


def new_scratch(folder: Location) -> Location:
    """A name in the folder that nobody else uses. It starts with `_`, which engines take for hidden."""
    return folder.child(_PREFIX + uuid.uuid4().hex)


def require_scratch(location: Location) -> None:
    """Raises ValueError unless the name is one of ours: the guard before the only deletion in this package."""
    if _NAME.fullmatch(location.name) is None:
        raise ValueError(f"{location.text!r} is not a scratch object")
