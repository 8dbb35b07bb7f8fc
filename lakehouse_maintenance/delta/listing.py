"""What lies in a `_delta_log` folder, by the names of its files (Delta protocol: Delta Log Entries, Checkpoints).

Only the listing counts. `_last_checkpoint` is a hint that can be stale or wrong, and is not read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from lakehouse_maintenance.delta.paths import log_folder
from lakehouse_maintenance.model.errors import TableUnreadableError
from lakehouse_maintenance.model.locations import Location
from lakehouse_maintenance.storage import ObjectInfo

SIDECARS = "_sidecars"

_COMMIT = re.compile(r"([0-9]+)\.json")
_COMPACTION = re.compile(r"([0-9]+)\.([0-9]+)\.compacted\.json")
_CHECKPOINT = re.compile(r"([0-9]+)\.checkpoint\.parquet")
_PART = re.compile(r"([0-9]+)\.checkpoint\.([0-9]+)\.([0-9]+)\.parquet")
_V2_CHECKPOINT = re.compile(r"([0-9]+)\.checkpoint\.([^./]+)\.(json|parquet)")
_STAGED = re.compile(r"(?:_staged_commits|_commits)/([0-9]+)\.([^./]+)\.json")


class CheckpointForm(StrEnum):
    """How a checkpoint is named; a classic one may follow the v2 spec as well."""

    CLASSIC = "classic"
    MULTI_PART = "multi_part"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts in order."""

    version: int
    form: CheckpointForm
    files: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class Compaction:
    """A log compaction: the actions of the commits `first` to `last`, reconciled."""

    first: int
    last: int
    file: ObjectInfo


@dataclass(frozen=True, slots=True)
class LogListing:
    """One look at a log. Memory grows with the number of the log's own files alone.

    `files`: every object in the folder by its name below it. `commits`: version → file. `checkpoints`: complete ones,
    by version, at most one of each form. `missing_parts`: names that keep multi-part checkpoints from being complete.
    `staged`: commits that only the table's catalog or commit coordinator can call valid.
    """

    root: Location
    files: dict[str, ObjectInfo]
    commits: dict[int, ObjectInfo] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    missing_parts: tuple[str, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    staged: tuple[ObjectInfo, ...] = ()

    @property
    def latest_version(self) -> int:
        """Raises TableUnreadableError where neither a commit nor a complete checkpoint is there."""
        versions = [*self.commits, *(checkpoint.version for checkpoint in self.checkpoints)]
        if not versions:
            missing = f"; {self.missing_parts[0]} is missing" if self.missing_parts else ""
            raise self.unreadable(f"it holds neither a commit nor a complete checkpoint{missing}")
        return max(versions)

    @property
    def token(self) -> str:
        """A digest of the log's state: names, sizes, etags and times of its files. Equal: nothing has changed."""
        digest = hashlib.sha256()
        for name, info in sorted(self.files.items()):
            modified = "" if info.modified is None else info.modified.isoformat()
            digest.update(repr((name, info.size, info.etag, modified)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def find(self, location: Location) -> ObjectInfo | None:
        """The log's own file at that place, None where the listing did not show it."""
        return self.files.get(_name_in(self.root, location))

    def name_of(self, file: ObjectInfo) -> str:
        """The file's name below `_delta_log/`."""
        return _name_in(self.root, file.location)

    def base_of(self, version: int) -> Checkpoint | None:
        """The newest complete checkpoint that is not newer than `version`; None: replay begins with version 0."""
        usable = [checkpoint for checkpoint in self.checkpoints if checkpoint.version <= version]
        return usable[-1] if usable else None

    def commits_after(self, base: Checkpoint | None, version: int) -> list[ObjectInfo]:
        """The commits that lead from `base` to `version`, oldest first. Raises TableUnreadableError at a gap."""
        first = 0 if base is None else base.version + 1
        return [self._commit(number) for number in range(first, version + 1)]

    def all_commits(self) -> list[ObjectInfo]:
        """Every commit that is still there, oldest first.

        Raises TableUnreadableError where one is missing between two others, or before the first of them although no
        checkpoint stands in for what came before.
        """
        if not self.commits:
            return []
        first, last = min(self.commits), max(self.commits)
        oldest = self.checkpoints[0].version if self.checkpoints else -1
        newest = self.checkpoints[-1].version if self.checkpoints else -1
        return [self._commit(number) for number in range(min(first, oldest + 1), max(last, newest) + 1)]

    def unreadable(self, what: str, file: str | None = None) -> TableUnreadableError:
        """The error for this log; `file`: name below `_delta_log/`."""
        where = f"{log_folder(self.root).text}/{file}" if file else log_folder(self.root).text
        return TableUnreadableError(
            f"the Delta log cannot be read: {where}: {what}",
            field=self.root.text,
            hint="nothing was concluded from the rest of the log, and nothing of the table is removed meanwhile",
        )

    def _commit(self, version: int) -> ObjectInfo:
        found = self.commits.get(version)
        if found is None:
            missing = next((name for name in self.missing_parts if int(name.split(".")[0]) >= version), None)
            also = f", and so is {missing}" if missing else ""
            raise self.unreadable(f"it is missing{also}", f"{version:020d}.json")
        return found


def list_files(root: Location, objects: Iterable[ObjectInfo]) -> LogListing | None:
    """Sorts a listing of `_delta_log/` by what each name means; None where it holds nothing but folder markers."""
    files = {_name_in(root, info.location): info for info in objects if not info.location.key.endswith("/")}
    if not files:
        return None
    listing = LogListing(root, files)
    compactions: list[Compaction] = []
    staged: list[ObjectInfo] = []
    single: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, ObjectInfo]] = {}
    for name, info in sorted(files.items()):
        if match := _COMMIT.fullmatch(name):
            version = int(match[1])
            if version in listing.commits:
                raise listing.unreadable(f"version {version} has another commit file too", name)
            listing.commits[version] = info
        elif match := _CHECKPOINT.fullmatch(name):
            single.append(Checkpoint(int(match[1]), CheckpointForm.CLASSIC, (info,)))
        elif match := _PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = info
        elif match := _V2_CHECKPOINT.fullmatch(name):
            single.append(Checkpoint(int(match[1]), CheckpointForm.V2, (info,)))
        elif match := _COMPACTION.fullmatch(name):
            compactions.append(Compaction(int(match[1]), int(match[2]), info))
        elif _STAGED.fullmatch(name):
            staged.append(info)
    whole, missing = _complete(parts)
    return LogListing(
        root=root,
        files=files,
        commits=listing.commits,
        checkpoints=_preferred([*single, *whole]),
        missing_parts=tuple(missing),
        compactions=tuple(compactions),
        staged=tuple(staged),
    )


def _complete(parts: dict[tuple[int, int], dict[int, ObjectInfo]]) -> tuple[list[Checkpoint], list[str]]:
    whole: list[Checkpoint] = []
    missing: list[str] = []
    for (version, count), present in sorted(parts.items()):
        absent = next((number for number in range(1, count + 1) if number not in present), None)
        if absent is None:
            files = tuple(present[number] for number in range(1, count + 1))
            whole.append(Checkpoint(version, CheckpointForm.MULTI_PART, files))
        else:
            missing.append(f"{version:020d}.checkpoint.{absent:010d}.{count:010d}.parquet")
    return whole, missing


def _preferred(checkpoints: list[Checkpoint]) -> tuple[Checkpoint, ...]:
    """One a version: they say the same, and writers of the newest form know the table best."""
    rank = {CheckpointForm.MULTI_PART: 0, CheckpointForm.CLASSIC: 1, CheckpointForm.V2: 2}
    chosen: dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        other = chosen.get(checkpoint.version)
        if other is None or rank[checkpoint.form] > rank[other.form]:
            chosen[checkpoint.version] = checkpoint
    return tuple(chosen[version] for version in sorted(chosen))


def _name_in(root: Location, location: Location) -> str:
    return location.key.removeprefix(log_folder(root).folder_key)
