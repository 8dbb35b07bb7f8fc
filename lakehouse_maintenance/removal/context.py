"""What all batches of one list share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.deleting import Told
from lakehouse_maintenance.removal.lists import RemovalList
from lakehouse_maintenance.removal.permit import Permit
from lakehouse_maintenance.removal.results import Recheck
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import Storage

RemoveBatch = Callable[[Sequence[Location]], Mapping[Location, Told]]


@dataclass(frozen=True, slots=True)
class Context:
    """What all batches of one list share. `remove_batch`: the one call that deletes."""

    state: State
    storage: Storage
    permit: Permit
    head: RemovalList
    recheck: Recheck
    remove_batch: RemoveBatch
    resumed: bool
