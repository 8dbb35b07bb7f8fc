"""The one remover: nothing else in the product deletes what is not its own.

The order of a removal:
  1. somebody who holds the table's lease, and knows why, issues a permit (execution);
  2. the full list is written to the state, and the intent to the journal, before anything else happens;
  3. each batch is checked again by the caller's own recheck, with fresh facts; what it cannot clear is kept;
  4. the lease is checked, the batch is deleted, each key's fate is learned: deleted, gone, failed, unknown;
  5. the batch's outcome goes to the journal; after the last one the list is closed.
A run killed anywhere leaves an open list, which the next run on the table finishes by the same steps from 3 on.
Uncertainty keeps the file.
"""

from __future__ import annotations

from lakehouse_maintenance.removal.lists import Candidate, RemovalList, open_lists, read_list
from lakehouse_maintenance.removal.permit import Permit
from lakehouse_maintenance.removal.remover import Removal, Remover

__all__ = ["Candidate", "Permit", "Removal", "RemovalList", "Remover", "open_lists", "read_list"]
