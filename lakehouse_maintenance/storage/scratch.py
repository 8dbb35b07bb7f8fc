"""The names of the objects that storage writes and removes: a write test's, and a local copy's on its way."""

from __future__ import annotations

import re
import uuid

from lakehouse_maintenance.model.locations import Location

CONTENT = b"written by the write test of lakehouse-maintenance; safe to remove\n"

_PREFIX = "_lakehouse_maintenance_write_test_"
_COPY_PREFIX = "_lakehouse_maintenance_copy_"
_NAME = re.compile(f"({_PREFIX}|{_COPY_PREFIX})[0-9a-f]{{32}}")


def new_scratch(folder: Location) -> Location:
    """A name in the folder that nobody else uses. It starts with `_`, which engines take for hidden."""
    return folder.child(_PREFIX + uuid.uuid4().hex)


def new_copy_name(folder: Location) -> Location:
    """Where a local copy is written before it gets its name: what a kill leaves half-written is known by it."""
    return folder.child(_COPY_PREFIX + uuid.uuid4().hex)


def is_unfinished_copy(location: Location) -> bool:
    """Whether the name is that of a local copy on its way, which a kill may have left behind."""
    return location.name.startswith(_COPY_PREFIX) and _NAME.fullmatch(location.name) is not None


def require_scratch(location: Location) -> None:
    """Raises ValueError unless the name is one of ours: the guard before the only deletion in this package."""
    if _NAME.fullmatch(location.name) is None:
        raise ValueError(f"{location.text!r} is not a scratch object")
