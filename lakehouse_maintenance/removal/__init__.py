"""The one remover: nothing else in the product deletes or moves what is not its own.

A removal list says what is done to what it names: delete, quarantine, restore or purge. The order is always the same:
  1. somebody who holds the lease of the table or database, and knows why, issues a permit (execution);
  2. the full list is written to the state, and the intent to the journal, before anything else happens;
  3. each batch is checked again by the caller's own recheck, with fresh facts; what it cannot clear is kept;
  4. the lease is checked, the batch is acted on, each key's fate is learned: done, gone, kept, failed, unknown;
  5. the batch's outcome goes to the journal; after the last one the list is closed.
A run killed anywhere leaves an open list, which the next run on the table finishes by the same steps from 3 on, each
of which may be done twice. Uncertainty keeps the file.

What 4 is for each operation:
  delete      the keys are deleted (deleting.py);
  quarantine  copied aside, verified, made durable in the entry, looked at again, then deleted (moving.py);
  restore     all copied back over nothing, verified, then all copies in quarantine deleted (restoring.py);
  purge       what the entry names is deleted (restoring.py).
A restore is refused as a whole before anything is touched where its place is occupied again.
"""

from __future__ import annotations

from lakehouse_maintenance.removal.emptied import remove_emptied
from lakehouse_maintenance.removal.lists import Candidate, Operation, RemovalList, all_lists, open_lists, read_list
from lakehouse_maintenance.removal.permit import Permit
from lakehouse_maintenance.removal.quarantine import (
    Entry,
    EntryKind,
    EntryState,
    Unreadable,
    entries,
    new_entry,
    read_entry,
)
from lakehouse_maintenance.removal.remover import Remover
from lakehouse_maintenance.removal.results import Removal

__all__ = [
    "Candidate",
    "Entry",
    "EntryKind",
    "EntryState",
    "Operation",
    "Permit",
    "Removal",
    "RemovalList",
    "Remover",
    "Unreadable",
    "all_lists",
    "entries",
    "new_entry",
    "open_lists",
    "read_entry",
    "read_list",
    "remove_emptied",
]
