"""Reviews: what somebody is asked to approve before it is removed, and what they said."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

UNTRACKED_FOLDERS = "untracked_folders"
"""The kind of reviews of table folders that no table owns."""


class ReviewState(StrEnum):
    """PARTLY_APPROVED: some folders are, and the others are not. EXPIRED: what was approved, and its time has passed.

    SUPERSEDED: a later plan of the same subject found something else; nothing is removed by this one any more.
    """

    PENDING = "pending"
    APPROVED = "approved"
    PARTLY_APPROVED = "partly_approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class PlannedFolder:
    """An entry of a plan: what an approval of it means (UF-46). `newest_ms`: ms since 1970."""

    path: str
    objects: int
    bytes: int
    newest_ms: int
    why: str = ""

    def is_same(self, other: PlannedFolder) -> bool:
        """Whether it is still what was looked at."""
        mine, theirs = ((one.path.rstrip("/"), one.objects, one.bytes, one.newest_ms) for one in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """The candidates of one database as one reconciliation found them. `subject`: `catalog.database`."""

    digest: str
    subject: str
    at: datetime
    run_id: str
    folders: tuple[PlannedFolder, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The last word on one folder of a plan. `until`: when an approval ends; None of a rejection. Times in UTC."""

    path: str
    is_approved: bool
    by: str
    at: datetime
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether the folder may go by it now."""
        return self.is_approved and self.until is not None and now < self.until


@dataclass(frozen=True, slots=True)
class Review:
    """A plan and the last word on each of its folders, in the order in which they were said.

    `decisions`: at most one a folder, and of folders of the plan alone. `is_latest`: no later plan of the subject.
    """

    plan: FolderPlan
    decisions: tuple[Decision, ...] = ()
    is_latest: bool = True

    @property
    def approved(self) -> tuple[str, ...]:
        """Paths of folders that were approved, whether or not that has expired."""
        return tuple(one.path for one in self.decisions if one.is_approved)

    @property
    def rejected(self) -> tuple[str, ...]:
        """Paths of folders that were rejected."""
        return tuple(one.path for one in self.decisions if not one.is_approved)

    @property
    def by(self) -> str | None:
        """Who decided last; None before anybody did."""
        return self.decisions[-1].by if self.decisions else None

    @property
    def at(self) -> datetime | None:
        """When that was."""
        return self.decisions[-1].at if self.decisions else None

    @property
    def until(self) -> datetime | None:
        """When the first of its approvals ends; None where nothing is approved."""
        return min((one.until for one in self.decisions if one.is_approved and one.until is not None), default=None)

    def state(self, now: datetime) -> ReviewState:
        """What it comes to now."""
        if not self.is_latest:
            return ReviewState.SUPERSEDED
        holding = sum(one.holds(now) for one in self.decisions)
        if holding:
            return ReviewState.APPROVED if holding == len(self.plan.folders) else ReviewState.PARTLY_APPROVED
        if self.approved:
            return ReviewState.EXPIRED
        return ReviewState.REJECTED if self.rejected else ReviewState.PENDING

    def may_go(self, now: datetime) -> tuple[PlannedFolder, ...]:
        """Folders that may be removed now: of the latest plan, approved, each while its own approval holds."""
        if not self.is_latest:
            return ()
        holding = {one.path for one in self.decisions if one.holds(now)}
        return tuple(folder for folder in self.plan.folders if folder.path in holding)

    def as_json(self, now: datetime) -> dict[str, Any]:
        """One of the verb's `reviews`."""
        decided = {one.path: one for one in self.decisions}
        return {
            "digest": self.plan.digest,
            "kind": UNTRACKED_FOLDERS,
            "subject": self.plan.subject,
            "found_at": self.plan.at.isoformat(),
            "folders": [_folder_json(folder, decided.get(folder.path)) for folder in self.plan.folders],
            "state": self.state(now),
            "by": self.by,
            "at": _text(self.at),
            "until": _text(self.until),
        }


def _folder_json(folder: PlannedFolder, decision: Decision | None) -> dict[str, Any]:
    word = "pending" if decision is None else "approved" if decision.is_approved else "rejected"
    return {
        "path": folder.path,
        "objects": folder.objects,
        "bytes": folder.bytes,
        "newest_ms": folder.newest_ms,
        "why": folder.why,
        "decision": word,
        "by": None if decision is None else decision.by,
        "at": None if decision is None else _text(decision.at),
        "until": None if decision is None else _text(decision.until),
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
