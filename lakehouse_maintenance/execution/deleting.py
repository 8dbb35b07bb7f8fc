"""Deleting what a table's metadata let go: who may, what is asked before each batch, and how a killed run's list ends.

The permit is issued here, to the holder of the table's lease. Before the first batch, and whenever the table's metadata
moved, two questions are asked again: could anybody else own files here (territory), and what does the table itself
still reach. A file may go only if nothing in the table's metadata, as it is then, may mean it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lakehouse_maintenance.execution.clock import now_ms
from lakehouse_maintenance.execution.making import Target, describe
from lakehouse_maintenance.execution.observe import observe
from lakehouse_maintenance.execution.territory import folders_of, log_of_another_format
from lakehouse_maintenance.execution.work import Run
from lakehouse_maintenance.iceberg.expiry import reached
from lakehouse_maintenance.iceberg.manifests import BlobCache
from lakehouse_maintenance.iceberg.metadata import Metadata
from lakehouse_maintenance.model.errors import LakehouseError, LeaseLostError, TableError
from lakehouse_maintenance.model.forms import FormIndex
from lakehouse_maintenance.model.references import Reference
from lakehouse_maintenance.planning.expiry import GC_PROPERTY
from lakehouse_maintenance.removal import Candidate, Permit, Removal, RemovalList, Remover, open_lists, read_list
from lakehouse_maintenance.state import Lease
from lakehouse_maintenance.storage import Storage


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletions of one action on one table, by the run that holds its lease."""

    run: Run
    target: Target
    action: str
    lease: Lease

    def refuse(self, metadata: Metadata) -> None:
        """Raises TableError where files of this table must not be deleted at all."""
        name = self.target.name
        if metadata.properties.get(GC_PROPERTY, "true").strip().lower() != "true":
            raise TableError(f"{name}: {GC_PROPERTY} forbids deleting its files", field=str(name))
        why = self.run.neighbours(name, metadata) or log_of_another_format(self.target.catalog.storage(name), metadata)
        if why is not None:
            raise TableError(
                f"{name}: nothing was deleted: {why}",
                field=str(name),
                hint="tables that share a place need their files told apart first",
            )

    def intend(self, metadata: Metadata, storage: Storage, found: Iterable[Reference]) -> RemovalList:
        """Makes the list durable, and the intent; nothing is deleted yet."""
        candidates = (Candidate(reference.path, reference.kind, reference.size) for reference in found)
        return self._remover(storage).intend(self._permit(metadata), candidates, now_ms())

    def remove(self, head: RemovalList, *, resumed: bool = False, into: Removal | None = None) -> Removal:
        """Deletes what the list names and nothing needs. `into`: counts that are there also where it raises."""
        observed = observe(self.target.catalog, self.target.name, self.run.cache)
        self.refuse(observed.metadata)
        paths = FormIndex(candidate.path for part in read_list(self.run.state, head) for candidate in part)
        recheck = StillReached(self.target, self.run.cache, self.refuse, paths, observed.metadata.uuid)
        remover = self._remover(observed.storage)
        return remover.remove(self._permit(observed.metadata), head, recheck, resumed=resumed, into=into)

    def _permit(self, metadata: Metadata) -> Permit:
        name = str(self.target.name)
        folders = folders_of(metadata)
        return Permit(name, self.run.run_id, self.action, self.run.digest, self.lease, folders, metadata.uuid)

    def _remover(self, storage: Storage) -> Remover:
        name = str(self.target.name)
        return Remover(self.run.state, storage, lambda files, size: self.run.progress.advance(name, files, size))


@dataclass
class StillReached:
    """The recheck: what of the whole list the table's metadata, as it is at this moment, still reaches.

    The pointer is asked for before each batch. While it has not moved, the metadata is the same, and so is the answer.
    """

    target: Target
    cache: BlobCache | None
    refuse: Callable[[Metadata], None]
    paths: FormIndex
    uuid: str
    _pointer: str | None = None
    _still: frozenset[str] = frozenset()

    def __call__(self, batch: Sequence[Candidate]) -> Mapping[str, str]:
        pointer, _ = self.target.catalog.locate(self.target.name)
        if pointer != self._pointer:
            observed = observe(self.target.catalog, self.target.name, self.cache)
            if observed.metadata.uuid != self.uuid:
                raise TableError(f"{self.target.name} became another table meanwhile", field=str(self.target.name))
            self.refuse(observed.metadata)
            self._still = reached(observed.metadata, observed.reader, self.paths)
            self._pointer = observed.metadata.location
        return {c.path: "something that is kept reaches it" for c in batch if c.path in self._still}


def finish_open_lists(run: Run, target: Target, lease: Lease) -> list[str]:
    """Finishes the lists that killed runs left on the table; each once, whatever was deleted of it already.

    Returns what is not finished, and why: such a list stays open, and must not keep the table from anything else.
    """
    problems: list[str] = []
    for head in open_lists(run.state, str(target.name)):
        left = f"the files that run {head.run_id} left to delete are not all gone"
        try:
            removal = Deletion(run, target, head.action, lease).remove(head, resumed=True)
        except LeaseLostError:
            raise
        except LakehouseError as error:
            problems.append(f"{left}: {describe(error)}")
            continue
        for path, why in islice({**removal.failed, **removal.unknown}.items(), 1):
            count = len(removal.failed) + len(removal.unknown)
            problems.append(f"{left}: {count} could not be deleted, or it is not known; the first is {path}: {why}")
    return problems
