"""Runs a removal: recheck, delete, learn the fate of every key, journal (see the package's text for the order)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from lakehouse_maintenance.model.errors import InputError, LakehouseError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.removal.deleting import Fate, delete_batch
from lakehouse_maintenance.removal.lists import Candidate, RemovalList, close_list, read_list, write_list
from lakehouse_maintenance.removal.permit import Permit
from lakehouse_maintenance.state import State
from lakehouse_maintenance.storage import Storage

BATCH = 1000
"""Keys in one call, as many as S3 takes; and so many files at most are deleted between two rechecks."""

Recheck = Callable[[Sequence[Candidate]], Mapping[str, str]]
"""With facts that are fresh now: path → why it must stay. A path that is not in the answer may go."""

REMOVE_FILES = "remove_files"
"""The action of a removal's own journal events: an intent for the list, an outcome for each batch."""

_NAMED = 200


@dataclass
class Removal:
    """What became of a list. `kept`: reason → files. `failed`, `unknown`: some of them, by path, with the reason."""

    deleted: int = 0
    deleted_bytes: int = 0
    gone: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Nothing failed and nothing is unknown."""
        return not self.failed and not self.unknown

    def as_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "deleted": self.deleted,
            "deleted_bytes": self.deleted_bytes,
            "gone": self.gone,
            "kept": dict(self.kept),
            "failed": len(self.failed),
            "unknown": len(self.unknown),
            "failed_paths": dict(islice(self.failed.items(), _NAMED)),
            "unknown_paths": dict(islice(self.unknown.items(), _NAMED)),
        }


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes files of one table. `progress`: files and bytes done since the last call."""

    state: State
    storage: Storage
    progress: Callable[[int, int], None]

    def intend(self, permit: Permit, candidates: Iterable[Candidate], at_ms: int) -> RemovalList:
        """Writes the list, then the intent. Nothing is deleted; after this a killed run will be finished."""
        permit.check()
        head = write_list(
            self.state,
            table=permit.table,
            run_id=permit.run_id,
            action=permit.action,
            digest=permit.digest,
            at_ms=at_ms,
            candidates=candidates,
            uuid=permit.uuid,
        )
        self._journal(permit, "intent", None, head.files, head.bytes, {"for": permit.action, "removal_list": head.key})
        return head

    def remove(
        self,
        permit: Permit,
        head: RemovalList,
        recheck: Recheck,
        *,
        resumed: bool = False,
        into: Removal | None = None,
    ) -> Removal:
        """Removes what the list names and the recheck clears. `resumed`: the list is of an earlier run.

        Raises LeaseLostError and what the recheck raises; the list stays open then, and nothing more is deleted.
        """
        result = Removal() if into is None else into
        if head.uuid != permit.uuid:
            result.kept["the list is of another table, which had this name"] += head.files
            close_list(self.state, head, result.as_json())
            return result
        for part in read_list(self.state, head):
            pending = iter(part)
            while batch := list(islice(pending, BATCH)):
                self._batch(permit, head, batch, recheck, result, resumed)
        if result.is_complete:
            close_list(self.state, head, result.as_json())
        return result

    def _batch(
        self,
        permit: Permit,
        head: RemovalList,
        batch: Sequence[Candidate],
        recheck: Recheck,
        result: Removal,
        resumed: bool,
    ) -> None:
        # The recheck comes last before the deletion: looking at a thousand files takes a while.
        meant = self._still_meant(batch, head, result) if resumed else batch
        cleared = self._cleared(permit, meant, recheck, result)
        permit.check()
        fates = delete_batch(self.storage, self.storage.client, list(cleared))
        for location, told in fates.items():
            candidate = cleared[location]
            if told.fate is Fate.DELETED:
                result.deleted += 1
                result.deleted_bytes += candidate.size or 0
            elif told.fate is Fate.GONE:
                result.gone += 1
            elif told.fate is Fate.FAILED:
                result.failed[candidate.path] = told.why
            else:
                result.unknown[candidate.path] = told.why
        self.progress(len(batch), sum(candidate.size or 0 for candidate in batch))
        counted = Counter(told.fate.value for told in fates.values())
        self._journal(
            permit,
            "outcome",
            "done" if counted["deleted"] + counted["gone"] == len(fates) else "failed",
            counted["deleted"],
            sum(cleared[location].size or 0 for location, told in fates.items() if told.fate is Fate.DELETED),
            {
                "for": permit.action,
                "removal_list": head.key,
                "fates": dict(counted),
                "not_tried": len(batch) - len(fates),
                "not_deleted": {
                    cleared[location].path: f"{told.fate}: {told.why}"
                    for location, told in islice(fates.items(), _NAMED)
                    if told.fate is not Fate.DELETED
                },
            },
        )

    def _cleared(
        self, permit: Permit, batch: Sequence[Candidate], recheck: Recheck, result: Removal
    ) -> dict[Location, Candidate]:
        reasons = recheck(batch)
        cleared: dict[Location, Candidate] = {}
        for candidate in batch:
            why = reasons.get(candidate.path)
            if why is None:
                location, why = _location(candidate.path)
                if location is not None and not permit.covers(location):
                    why = "outside the table's own locations"
                elif location is not None:
                    cleared[location] = candidate
            if why is not None:
                result.kept[why] += 1
        return cleared

    def _still_meant(self, batch: Sequence[Candidate], head: RemovalList, result: Removal) -> list[Candidate]:
        """Between the runs a name may have been used again, and what is gone already was not deleted by this run."""
        meant: list[Candidate] = []
        for candidate in batch:
            try:
                info = self.storage.stat(Location.parse(candidate.path))
            except InputError as error:
                result.kept[f"not a location: {error.message}"] += 1
            except StorageError as error:
                result.unknown[candidate.path] = error.message
            else:
                if info is None:
                    result.gone += 1
                elif info.modified is None or info.modified.timestamp() * 1000 > head.at_ms:
                    result.kept["written since the list was made"] += 1
                elif candidate.size not in (None, info.size) and candidate.kind != "deletion_vector":
                    result.kept["another size than the file that was meant"] += 1
                else:
                    meant.append(candidate)
        return meant

    def _journal(
        self, permit: Permit, phase: str, status: str | None, files: int, size: int, details: dict[str, Any]
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.state.journal.record(
            Event(
                at=now,
                run_id=permit.run_id,
                table=permit.table,
                action=REMOVE_FILES,
                phase=phase,
                status=status,
                digest=permit.digest,
                files=files,
                bytes=size,
                details=details,
            )
        )


def _location(path: str) -> tuple[Location | None, str | None]:
    try:
        return Location.parse(path), None
    except InputError as error:
        return None, f"not a location: {error.message}"
    except LakehouseError as error:
        return None, error.message
