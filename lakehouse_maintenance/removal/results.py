"""What became of a list, and of each of its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from lakehouse_maintenance.removal.deleting import Fate, Told
from lakehouse_maintenance.removal.lists import Candidate

BATCH = 1000
"""Keys in one call, as many as S3 takes; and so many objects at most are deleted between two rechecks."""

NAMED = 200
"""Objects named in one event of the journal."""

Recheck = Callable[[Sequence[Candidate]], Mapping[str, str]]
"""With facts that are fresh now: path → why it must stay. A path that is not in the answer may go."""

MOVED = "moved"
KEPT = "kept"


@dataclass
class Removal:
    """What became of a list. `kept`: reason → files. `failed`, `unknown`: some of them, by path, with the reason.
    `kinds`: what kind of file was deleted → how many.

    `moved`: to quarantine, or back. `foreign`: what lies in an entry's folder and is not the entry's; left alone.
    """

    deleted: int = 0
    deleted_bytes: int = 0
    gone: int = 0
    moved: int = 0
    moved_bytes: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    foreign_paths: list[str] = field(default_factory=list)

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
            "moved": self.moved,
            "moved_bytes": self.moved_bytes,
            "kept": dict(self.kept),
            "failed": len(self.failed),
            "unknown": len(self.unknown),
            "failed_paths": dict(islice(self.failed.items(), NAMED)),
            "unknown_paths": dict(islice(self.unknown.items(), NAMED)),
            "foreign": self.foreign,
            "foreign_paths": self.foreign_paths,
        }


@dataclass
class Batch:
    """One batch's fates as they become known, counted into the list's result as well.

    `done`: the word for an object that went the way it was meant to, "deleted" or "moved".
    """

    result: Removal
    tried: int
    done: str = Fate.DELETED
    fates: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    not_done: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Nothing of the batch failed and nothing is unknown; what is kept or was gone is no fault."""
        return not self.fates[Fate.FAILED] and not self.fates[Fate.UNKNOWN]

    def tell(self, path: str, told: Told, size: int) -> None:
        """The fate of one key, from a deletion."""
        if told.fate is Fate.DELETED:
            self.fates[self.done] += 1
            self.bytes += size
            if self.done == MOVED:
                self.result.moved += 1
                self.result.moved_bytes += size
            else:
                self.result.deleted += 1
                self.result.deleted_bytes += size
        elif told.fate is Fate.GONE:
            self.gone()
        elif told.fate is Fate.UNKNOWN:
            self.doubt(path, told.why)
        elif told.fate is Fate.HELD:
            # Of a quarantine entry: it stays open, for the day when the hold ends.
            self.fail(path, f"the store holds it: {told.why}")
        else:
            self.fail(path, told.why)

    def gone(self) -> None:
        """Not there any more, by somebody else or by an earlier run."""
        self.fates[Fate.GONE] += 1
        self.result.gone += 1

    def keep(self, path: str, why: str) -> None:
        """It stays where it is, on purpose."""
        self.fates[KEPT] += 1
        self.result.kept[why] += 1
        self._name(path, f"{KEPT}: {why}")

    def fail(self, path: str, why: str) -> None:
        """It stays where it is, and should not."""
        self.fates[Fate.FAILED] += 1
        self.result.failed[path] = why
        self._name(path, f"{Fate.FAILED}: {why}")

    def doubt(self, path: str, why: str) -> None:
        """Whether it is there cannot be told."""
        self.fates[Fate.UNKNOWN] += 1
        self.result.unknown[path] = why
        self._name(path, f"{Fate.UNKNOWN}: {why}")

    def _name(self, path: str, what: str) -> None:
        if len(self.not_done) < NAMED:
            self.not_done[path] = what
