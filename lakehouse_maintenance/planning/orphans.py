"""Which listed files may go because no table references them: age, hidden folders, limits (IM-08, RS-09). Pure.

Whether a file is referenced is the evidence's to say; everything else about it is decided here, by the same predicate
when the plan is made and when it is checked again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import format_duration, format_size
from lakehouse_maintenance.model.orphans import OrphanFile
from lakehouse_maintenance.planning.ages import SKEW_MS, is_believable

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import RemoveOrphanFiles
    from lakehouse_maintenance.config.settings import Limits

SHORTEST = timedelta(hours=24)
"""A cutoff nearer than this takes files of writers that are still at work: it needs a word of its own (IM-08)."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

ERROR, IGNORE, DELETE = "ERROR", "IGNORE", "DELETE"


@dataclass(frozen=True, slots=True)
class OrphanRequest:
    """What somebody asked for beyond the policy; None: as the policy says.

    `location`: only in this folder. `prefix_mismatch_mode`: what becomes of a file whose path equals a reference in all
    but scheme or bucket: ERROR stops, IGNORE keeps, DELETE takes it for an orphan. `equal_schemes`,
    `equal_authorities`: aliases (several with commas) → the name that counts.
    """

    older_than: timedelta | None = None
    location: str | None = None
    prefix_mismatch_mode: str | None = None
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    allow_short_retention: bool = False
    plan_digest: str | None = None
    removal: str | None = None
    max_concurrent_deletes: int | None = None

    def check(self) -> None:
        """Raises InputError for a mode that does not exist, and ages and numbers that make no sense."""
        if self.prefix_mismatch_mode not in (None, ERROR, IGNORE, DELETE):
            raise InputError(
                f"{self.prefix_mismatch_mode!r} is no prefix mismatch mode",
                field="prefix_mismatch_mode",
                hint="write ERROR, IGNORE or DELETE",
            )
        if self.older_than is not None and self.older_than < timedelta(0):
            raise InputError("an age is not negative", field="older_than", hint="such as 3 days")
        if self.removal not in (None, "delete", "quarantine"):
            raise InputError(
                f"{self.removal!r} is no way to remove", field="removal", hint="write delete or quarantine"
            )
        if self.plan_digest is not None and not _DIGEST.fullmatch(self.plan_digest):
            raise InputError(
                f"{self.plan_digest!r} is no digest",
                field="plan_digest",
                hint="sha256: and 64 digits, as a dry run tells",
            )
        if self.max_concurrent_deletes is not None and self.max_concurrent_deletes < 1:
            raise InputError("at least one at a time", field="max_concurrent_deletes", hint="such as 4")


@dataclass(frozen=True, slots=True)
class OrphanRules:
    """What decides over a listed file. Times in ms since 1970; `partition_fields`: names of the table's real ones."""

    cutoff_ms: int
    now_ms: int
    partition_fields: frozenset[str]

    def keeps(self, path_below: str, size: int, modified_ms: int | None) -> str | None:
        """Why a file that nothing references stays, or None. `path_below`: relative to the listed folder."""
        if is_marker(path_below, size):
            return FOLDER_MARKER
        if is_hidden(path_below, self.partition_fields):
            return HIDDEN
        if not is_believable(modified_ms, self.now_ms):
            return UNKNOWN_AGE
        if modified_ms >= self.cutoff_ms:
            return TOO_YOUNG
        return None


FOLDER_MARKER = "an empty object that stands for a folder"
HIDDEN = "in a hidden folder (a name that begins with _ or .), or hidden itself"
UNKNOWN_AGE = "its age cannot be established"
TOO_YOUNG = "younger than the cutoff"
REFERENCED = "a table references it"
MISMATCH = "a reference has the same path under another scheme or bucket"


def is_marker(path: str, size: int) -> bool:
    """Objects that stand for folders: `dir/`, `dir_$folder$`. Never data, never counted, never deleted.

    Below a folder, its own marker is the empty path.
    """
    return not path or path.endswith("/") or (size == 0 and path.endswith("_$folder$"))


def is_hidden(path_below: str, partition_fields: frozenset[str]) -> bool:
    """Whether a part of the path begins with `_` or `.`, and is no value of one of the table's own partition fields.

    `_day=1` is data of a table with a partition field `_day`; `_day_backup` is not, however it begins.
    """
    for part in path_below.split("/"):
        if part[:1] in ("_", "."):
            name, is_value, _ = part.partition("=")
            if not is_value or name not in partition_fields:
                return True
    return False


def effective_age(policy: RemoveOrphanFiles, asked: OrphanRequest) -> timedelta:
    """How old a file must be. Raises InputError for less than a day without the word that allows it."""
    age = policy.older_than if asked.older_than is None else asked.older_than
    if age < SHORTEST and not asked.allow_short_retention and not policy.allow_short_retention:
        raise InputError(
            f"older_than {format_duration(age)} is nearer than {format_duration(SHORTEST)}: files of writers that are "
            "still at work would look like orphans",
            field="older_than",
            hint="--allow-short-retention, or the policy's allow_short_retention, lets it pass",
        )
    return age


def cutoff_ms(now_ms: int, age: timedelta, lease_starts_ms: Sequence[int]) -> int:
    """The earliest of all horizons: the age, and the start of the oldest run of ours that is still at work.

    The start is by our clock and a file's time by the store's, so they are not held against each other to the second.
    """
    return min([now_ms - age // timedelta(milliseconds=1), *(start - SKEW_MS for start in lease_starts_ms)])


def limit_reason(
    limits: Limits, *, is_first: bool, listed_files: int, listed_bytes: int | None, files: int, size: int
) -> str | None:
    """Why so many orphans are taken for a mistake, with what to do; None where they are believed (RS-09).

    Shares are of all the table's files, and of the bytes that were listed in all of its folders; `listed_bytes` None
    where only a part of them was.
    """
    tripped: list[str] = []
    if files > limits.removed_files:
        tripped.append(f"{files} files, more than limits.removed_files ({limits.removed_files})")
    if is_first and files > limits.first_run_files:
        tripped.append(
            f"{files} files in the first removal on this table, more than limits.first_run_files "
            f"({limits.first_run_files})"
        )
    if files > limits.removed_share * listed_files:
        tripped.append(
            f"{files} of {listed_files} files, more than limits.removed_share ({limits.removed_share:g} of them)"
        )
    if listed_bytes is not None and size > limits.removed_share * listed_bytes:
        tripped.append(
            f"{format_size(size)} of {format_size(listed_bytes)}, more than limits.removed_share "
            f"({limits.removed_share:g} of them)"
        )
    if not tripped:
        return None
    return (
        f"the plan would remove {'; and '.join(tripped)}. Look at the files (--list); where they are rightly orphans, "
        "take one folder after the other (--location), or raise the limit in lakehouse.yaml"
    )


class Digest:
    """A digest over a table, settings, and files in whatever order they come."""

    _MODULUS = 1 << 256

    def __init__(self, table: str, uuid: str, settings: Mapping[str, object]) -> None:
        self._head = json.dumps([1, table, uuid, settings], sort_keys=True, separators=(",", ":"))
        self._sum = 0
        self._files = 0

    def add(self, file: OrphanFile) -> None:
        """One more file."""
        text = json.dumps([file.path, file.size, file.modified_ms], separators=(",", ":"))
        hashed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        self._sum = (self._sum + int.from_bytes(hashed, "big")) % self._MODULUS
        self._files += 1

    def text(self) -> str:
        """`sha256:…`"""
        whole = f"{self._head}|{self._files}|{self._sum:064x}"
        return "sha256:" + hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
