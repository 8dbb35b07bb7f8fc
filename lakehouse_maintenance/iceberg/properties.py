"""Setting table properties (Iceberg REST specification: SetPropertiesUpdate), as one of our commits.

The commit requires the table to be the same one; what others commit meanwhile does not stand against it. Setting the
same values twice changes nothing more, so after an answer that was lost the table is looked at and, where the values
are not there, they are set again. A property that somebody else was seen to change meanwhile is not overwritten.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate, ValidatableTableRequirement

from lakehouse_maintenance.iceberg.answers import Answer, answer
from lakehouse_maintenance.iceberg.commit import load_again, load_for_commit, pause
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.errors import CommitConflictError, CommitUnknownError, LakehouseError
from lakehouse_maintenance.model.names import TableName

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse_maintenance.catalogs import Catalog


class AssertProperties(ValidatableTableRequirement):
    """Checked by catalogs that apply updates in this process: these properties have the values that were seen.

    REST has no such requirement: there, what somebody sets in the moment of our request is overwritten.
    """

    type: Literal["assert-properties"] = "assert-properties"
    seen: dict[str, str | None]

    def validate(self, base_metadata: Any) -> None:  # type: ignore[override]
        """Raises CommitFailedException where one has another value."""
        found = {} if base_metadata is None else base_metadata.properties
        for name, value in self.seen.items():
            if found.get(name) != value:
                raise CommitFailedException(f"{name} is {found.get(name)!r}, not {value!r}")


def are_set(metadata: Metadata, properties: Mapping[str, str]) -> bool:
    """Whether the table has all these properties with these values."""
    return all(metadata.properties.get(name) == value for name, value in properties.items())


@dataclass
class PropertiesCommit:
    """One change of properties: configured once, run once.

    `seen`: the values that were there when it was decided, None for a property that was not set. `before`: called with
    the metadata of the first attempt, before anything is sent. `is_done`: whether nothing is left to do; it has to
    become true by the commit. `guard`: raises LeaseLostError; called right before each commit. `attempted`: commits
    that were tried.
    """

    catalog: Catalog
    name: TableName
    uuid: str
    properties: Mapping[str, str]
    seen: Mapping[str, str | None]
    guard: Callable[[], None]
    is_done: Callable[[Metadata], bool]
    before: Callable[[Metadata], None] = lambda metadata: None
    cache: BlobCache | None = None
    attempts: int = 12
    pause: Callable[[int], None] = pause
    attempted: int = 0

    def run(self) -> bool:
        """Whether anything was committed: False where nothing was left to do.

        Raises CommitConflictError (rejected for good, or a property was changed meanwhile), CommitUnknownError (the
        properties may or may not be set), LeaseLostError, UnsupportedError, TableUnreadableError.
        """
        unknown: Exception | None = None
        last: Exception | None = None
        for attempt in range(1, self.attempts + 1):
            try:
                table, metadata = self._load(last)
                if self.is_done(metadata):
                    return self.attempted > 0
                self._refuse_changed(metadata)
                if not self.attempted:
                    self.before(metadata)
                self.guard()
            except LakehouseError as error:
                # Whatever keeps us from another attempt, the one before may be visible.
                if unknown is None or isinstance(error, CommitUnknownError):
                    raise
                raise self._unknown(unknown) from error
            self.attempted += 1
            try:
                self._commit(table, metadata)
            except Exception as error:
                # Drivers, HTTP clients and PyIceberg raise errors of their own.
                last = error
                said = answer(error, client_side=self.catalog.client_side_commits)
                if said is Answer.LOST:
                    unknown = error
                elif said is Answer.DENIED or (said is Answer.REFUSED and self._stands_still(metadata)):
                    if self._is_done_now(error):
                        return True
                    raise self._rejected(error, unknown) from error
            else:
                return True
            self.pause(attempt)
        if last is not None and self._is_done_now(last):
            return True
        if unknown is not None:
            raise self._unknown(unknown) from unknown
        raise CommitConflictError(
            f"{self.name}: other writers won {self.attempts} times in a row: {last}",
            field=str(self.name),
            hint="no property was changed; try again when the table is quieter",
        )

    def _load(self, last: Exception | None) -> tuple[Table, Metadata]:
        table, metadata, _ = load_again(
            lambda: load_for_commit(self.catalog, self.name, self.uuid, self.cache), last, self._unknown
        )
        return table, metadata

    def _refuse_changed(self, metadata: Metadata) -> None:
        for name, value in self.properties.items():
            found = metadata.properties.get(name)
            if found not in (value, self.seen.get(name)):
                raise CommitConflictError(
                    f"{self.name}: somebody set {name} to {found!r} meanwhile; it was left as it is",
                    field=str(self.name),
                    hint="plan anew",
                )

    def _commit(self, table: Table, metadata: Metadata) -> None:
        requirements: list[Any] = [AssertTableUUID(uuid=uuids.UUID(metadata.uuid))]
        if self.catalog.client_side_commits:
            requirements.append(
                AssertProperties(seen={name: metadata.properties.get(name) for name in self.properties})
            )
        updates = (SetPropertiesUpdate(updates=dict(self.properties)),)
        self.catalog.pyiceberg.commit_table(table, tuple(requirements), updates)

    def _stands_still(self, metadata: Metadata) -> bool:
        try:
            return self._load(None)[1].location == metadata.location
        except LakehouseError:
            return False  # not known: the next attempt looks again

    def _is_done_now(self, last: Exception) -> bool:
        try:
            return self.is_done(self._load(last)[1])
        except CommitUnknownError:
            raise
        except LakehouseError:
            return False

    def _rejected(self, error: Exception, unknown: Exception | None) -> LakehouseError:
        if unknown is not None:
            return self._unknown(unknown)
        return CommitConflictError(f"{self.name}: the catalog refused: {error}", field=str(self.name))

    def _unknown(self, error: Exception) -> CommitUnknownError:
        return CommitUnknownError(
            f"{self.name}: the catalog's answer was lost ({type(error).__name__}: {error}); "
            f"{', '.join(self.properties)} may or may not be set",
            field=str(self.name),
            hint="the next run on the table looks, and tells the journal",
        )
