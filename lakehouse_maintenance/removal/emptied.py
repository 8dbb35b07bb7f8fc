"""Directories of this machine that a removal has emptied; in object stores a folder ends with its objects.

Only empty ones go, by a call that the system refuses for any other, so nothing can be lost: where somebody writes
meanwhile, the folder stays. Whoever makes a directory and has not written into it yet may have to make it again.
"""

from __future__ import annotations

import os
from contextlib import suppress

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.deleting import remove_empty_folder
from lakehouse_maintenance.removal.permit import Permit
from lakehouse_maintenance.removal.quarantine import Entry
from lakehouse_maintenance.storage import Storage

_CHECKED_EVERY = 1000
"""Directories between two looks at the lease."""


def remove_emptied(storage: Storage, permit: Permit, folder: Location) -> bool:
    """Removes the empty directories in `folder`, deepest first, and then itself; symbolic links stay, unfollowed.

    Nothing is touched outside of the permit's territory, nor in object stores. Returns whether the folder is gone:
    False where it still holds something. Raises LeaseLostError, and StorageError where that cannot be told.
    """
    if folder.family == "file" and permit.covers_folder(folder):
        _remove(permit, folder)
    return storage.is_absent(folder)


def remove_emptied_entry(permit: Permit, entry: Entry) -> None:
    """The directories of an entry that is over: its folder, and the one above, which carries its id.

    Not the quarantine itself: another run may be about to make its own entry's folder there.
    """
    folder = entry.quarantined
    if folder.family == "file" and permit.covers_folder(folder):
        _remove(permit, folder)
        remove_empty_folder(folder.local_path.rpartition("/")[0])


def _remove(permit: Permit, folder: Location) -> None:
    permit.check()
    number = 0
    # By descriptors, so that a directory which somebody replaces by a link meanwhile is not left through it.
    # What cannot be opened, or went, is nothing to us: a look at the folder tells afterwards.
    with suppress(OSError, ValueError):
        for _, names, _, descriptor in os.fwalk(folder.local_path, topdown=False, follow_symlinks=False):
            for name in names:
                number += 1
                if number % _CHECKED_EVERY == 0:
                    permit.check()
                remove_empty_folder(name, within=descriptor)
        remove_empty_folder(folder.local_path)
