"""The right to delete."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.state import Lease


@dataclass(frozen=True, slots=True)
class Permit:
    """The right of one run to delete files of one table for one plan, as long as it holds the table's lease.

    `territory`: folders in which it may delete; whatever lies elsewhere is kept. `digest`: of the plan.
    `uuid`: of the table; a list that was made for another is not deleted.
    """

    table: str
    run_id: str
    action: str
    digest: str
    lease: Lease
    territory: tuple[Location, ...]
    uuid: str = ""

    def check(self) -> None:
        """Raises LeaseLostError once the lease is not ours any more."""
        self.lease.check()

    def covers(self, location: Location) -> bool:
        """Whether the location lies in the territory, and does so too where symbolic links are followed."""
        return self._covers(location, self.territory) and self._covers(
            location.resolved, tuple(folder.resolved for folder in self.territory)
        )

    def covers_folder(self, folder: Location) -> bool:
        """As `covers`, and the territory's own folders as well: for directories that are empty."""
        return any(own.contains(folder) for own in self.territory) and any(
            own.resolved.contains(folder.resolved) for own in self.territory
        )

    @staticmethod
    def _covers(location: Location, territory: tuple[Location, ...]) -> bool:
        return any(folder.contains(location) and folder.key != location.key for folder in territory)
