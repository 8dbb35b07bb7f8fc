"""Reviews of what is to be removed: each plan, and the last word on each of its folders.

`reviews/<hex of the digest>` holds a plan with its decisions, `reviews-latest/<subject>` the digest of the subject's
latest plan, and `reviews-runs/<hex>` the digests that the digest of a whole run stands for. All are changed by
compare-and-swap alone, so that two who decide at once lose neither word. Nothing here is ever removed: a plan that is
found again has its decisions still.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.model.reviews import UNTRACKED_FOLDERS, Decision, FolderPlan, PlannedFolder, Review
from lakehouse_maintenance.state.backend import FIELD, Backend
from lakehouse_maintenance.state.journal import OUTCOME, Journal

APPROVED_FOR = timedelta(days=7)
"""How long an approval holds where nobody says until when."""

LEAST_DIGITS = 12
"""So many hex digits of a digest are enough where no other begins with them."""

_PLANS = "reviews/"
_LATEST = "reviews-latest/"
_RUNS = "reviews-runs/"
_ATTEMPTS = 1000
_NAMED = 200
"""Folders named in one event of the journal."""

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")
_WHOLE = 64


class Reviews:
    """The reviews of a state. Safe between threads, processes and machines as the store is."""

    def __init__(self, store: Backend) -> None:
        self._store = store
        self._journal = Journal(store)

    def record(self, plan: FolderPlan) -> Review:
        """Remember a plan as the latest of its subject. One that is known keeps the decisions on it."""
        decisions = self._change(plan.digest, lambda known: (plan, () if known is None else known[1]))[1]
        # The plan first: what is named as the latest is always there.
        self._name_latest(plan.subject, plan.digest)
        return Review(plan, decisions)

    def record_nothing(self, subject: str) -> None:
        """A reconciliation found no candidate: no plan of the subject is the latest any more."""
        if self._latest_digest(subject) is not None:
            self._name_latest(subject, None)

    def record_run(self, run_digest: str, digests: Iterable[str]) -> None:
        """The digest of a run stands for those of its databases."""
        value = json.dumps(sorted(digests)).encode("ascii")
        key = _RUNS + _hex(run_digest)
        for _ in range(_ATTEMPTS):
            stored = self._store.get(key)
            if stored is not None and stored[0] == value:
                return
            if self._store.put(key, value, None if stored is None else stored[1]) is not None:
                return
        raise _keeps_changing(run_digest)

    def find(self, digest: str) -> list[Review]:
        """The review of a plan, or those of a run's databases.

        `digest`: whole, or its first 12 hex digits or more. Raises InputError for one that is unknown, or that more
        than one begins with.
        """
        key = self._key_of(digest)
        if not key.startswith(_RUNS):
            return [self._review(key)]
        stored = self._store.get(key)
        try:
            digests = [str(one) for one in json.loads(b"[]" if stored is None else stored[0])]
        except (ValueError, TypeError) as error:
            raise _damaged(key) from error
        # Of a database where something stands against removing anything, no plan is recorded.
        keys = [key for key in (_PLANS + _hex(one) for one in digests) if self._store.get(key) is not None]
        if not keys:
            raise InputError(
                f"nothing that the run {digest} found can be reviewed",
                field="digest",
                hint="its report says what stands against removing anything",
            )
        return [self._review(key) for key in keys]

    def all(self) -> list[Review]:
        """Every review, those of superseded plans included; what was found last comes first."""
        found = [self._review(key) for key in self._store.keys(_PLANS)]
        return sorted(found, key=lambda review: (review.plan.at, review.plan.digest), reverse=True)

    def latest(self, subject: str) -> Review | None:
        """Of the subject's latest plan; None where it has none, or its last reconciliation found nothing."""
        digest = self._latest_digest(subject)
        return None if digest is None else self._review(_PLANS + _hex(digest))

    def approve(
        self, digest: str, folders: Sequence[str] | None, *, by: str, until: datetime | None = None, now: datetime
    ) -> list[Review]:
        """Approve folders of a plan, or of a run's plans; all of them where `folders` is None. Returns the reviews.

        `folders`: paths as the plan has them; `until`: 7 days from now where nobody says. Raises InputError, and then
        nothing is recorded, for a folder that no plan has, for a plan that a later one took the place of, where
        nobody is named, and for an `until` that is over.
        """
        ends = now + APPROVED_FOR if until is None else until
        if _utc(ends, "--until") <= _utc(now, "now"):
            raise InputError(
                f"an approval until {ends.isoformat()} would be over already",
                field="--until",
                hint="name a time to come, such as 3 days",
            )
        return self._decide(digest, folders, by=by, until=_utc(ends, "--until"), now=now)

    def reject(self, digest: str, folders: Sequence[str] | None, *, by: str, now: datetime) -> list[Review]:
        """Reject folders, which takes an approval back; all of them where `folders` is None. Raises as `approve`, but
        for superseded plans: what was approved of one would hold again if it were found again."""
        return self._decide(digest, folders, by=by, until=None, now=now)

    def _decide(
        self, digest: str, folders: Sequence[str] | None, *, by: str, until: datetime | None, now: datetime
    ) -> list[Review]:
        """`until`: of an approval; None for a rejection."""
        name = by.strip()
        if not name:
            raise InputError("nobody is named", field="--by", hint="say who decides: --by NAME")
        found = self.find(digest)
        chosen = _chosen(found, folders)
        if until is not None:
            for review in found:
                if chosen[review.plan.digest] and not review.is_latest:
                    raise self._superseded(review)
        at = _utc(now, "now")
        run_id = str(uuid.uuid4())
        decided: list[Review] = []
        for review in found:
            picked = chosen[review.plan.digest]
            if not picked:
                decided.append(review)
                continue
            words = tuple(Decision(folder.path, until is not None, name, at, until) for folder in picked)
            # The journal first: no approval is ever in force that it does not know of.
            self._journal.record(_event(review.plan, words, run_id))
            self._change(review.plan.digest, partial(_with, words))
            decided.append(self._review(_PLANS + _hex(review.plan.digest)))
        return decided

    def _superseded(self, review: Review) -> InputError:
        newer = self._latest_digest(review.plan.subject)
        return InputError(
            f"{review.plan.digest} of {review.plan.subject} is not its latest plan any more",
            field="digest",
            hint="its last reconciliation found nothing to remove"
            if newer is None
            else f"look at the newer one, {newer}, and approve that",
        )

    def _key_of(self, digest: str) -> str:
        match = _DIGEST.fullmatch(digest.strip().lower())
        if match is None:
            raise InputError(
                f"{digest!r} is no digest",
                field="digest",
                hint=f"write it as review list shows it, or at least {LEAST_DIGITS} of its hex digits",
            )
        digits = match.group(1)
        if len(digits) == _WHOLE:
            keys = [key for key in (_PLANS + digits, _RUNS + digits) if self._store.get(key) is not None]
        else:
            keys = [*self._store.keys(_PLANS + digits), *self._store.keys(_RUNS + digits)]
        if len(keys) == 1:
            return keys[0]
        if keys:
            raise InputError(
                f"{len(keys)} digests begin with {digest}", field="digest", hint="write more of its hex digits"
            )
        raise InputError(
            f"no plan has the digest {digest}", field="digest", hint="see: lakehouse-maintenance review list"
        )

    def _review(self, key: str) -> Review:
        known = self._read(key)[0]
        if known is None:
            raise _damaged(key)
        plan, decisions = known
        return Review(plan, decisions, self._latest_digest(plan.subject) == plan.digest)

    def _read(self, key: str) -> tuple[tuple[FolderPlan, tuple[Decision, ...]] | None, str | None]:
        stored = self._store.get(key)
        return (None, None) if stored is None else (_decoded(key, stored[0]), stored[1])

    def _change(self, digest: str, changed: Callable[[_Known | None], _Known]) -> _Known:
        key = _PLANS + _hex(digest)
        for _ in range(_ATTEMPTS):
            known, version = self._read(key)
            wanted = _fitting(*changed(known))
            if self._store.put(key, _encoded(*wanted), version) is not None:
                return wanted
        raise _keeps_changing(digest)

    def _latest_digest(self, subject: str) -> str | None:
        return self._pointer(subject)[0]

    def _pointer(self, subject: str) -> tuple[str | None, str | None]:
        stored = self._store.get(_LATEST + subject)
        if stored is None:
            return None, None
        try:
            digest = json.loads(stored[0])["digest"]
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(_LATEST + subject) from error
        return None if digest is None else str(digest), stored[1]

    def _name_latest(self, subject: str, digest: str | None) -> None:
        for _ in range(_ATTEMPTS):
            named, version = self._pointer(subject)
            if named == digest and version is not None:
                return
            if self._store.put(_LATEST + subject, json.dumps({"digest": digest}).encode("ascii"), version) is not None:
                return
        raise _keeps_changing(subject)


_Known = tuple[FolderPlan, tuple[Decision, ...]]


def _chosen(found: Sequence[Review], folders: Sequence[str] | None) -> dict[str, tuple[PlannedFolder, ...]]:
    """By digest, the folders that are meant. Raises InputError for one that is in no plan: nothing that was not
    looked at is ever decided on."""
    if folders is None:
        return {review.plan.digest: review.plan.folders for review in found}
    wanted = {path.rstrip("/") for path in folders}
    if not wanted:
        raise InputError("no folder is named", field="--folder", hint="name one, or leave it out for all of them")
    chosen = {
        review.plan.digest: tuple(folder for folder in review.plan.folders if folder.path.rstrip("/") in wanted)
        for review in found
    }
    known = {folder.path.rstrip("/") for review in found for folder in review.plan.folders}
    for path in folders:
        if path.rstrip("/") not in known:
            raise InputError(f"{path} is not in the plan", field="--folder", hint=suggestion(path, known))
    return chosen


def _with(words: tuple[Decision, ...], known: _Known | None) -> _Known:
    """The last word counts, and stands last."""
    assert known is not None, "values are never removed"
    plan, decisions = known
    paths = {word.path for word in words}
    return plan, (*(one for one in decisions if one.path not in paths), *words)


def _fitting(plan: FolderPlan, decisions: tuple[Decision, ...]) -> _Known:
    """Decisions on folders of the plan alone."""
    paths = {folder.path for folder in plan.folders}
    return plan, tuple(one for one in decisions if one.path in paths)


def _event(plan: FolderPlan, words: tuple[Decision, ...], run_id: str) -> Event:
    """Counts no files: nothing was removed by it."""
    first = words[0]
    return Event(
        at=first.at.isoformat(),
        run_id=run_id,
        table=plan.subject,
        action=UNTRACKED_FOLDERS,
        phase=OUTCOME,
        status="done",
        digest=plan.digest,
        details={
            "review": "approved" if first.is_approved else "rejected",
            "by": first.by,
            "until": None if first.until is None else first.until.isoformat(),
            "folders": len(words),
            "of": len(plan.folders),
            "paths": [word.path for word in words[:_NAMED]],
        },
    )


def _encoded(plan: FolderPlan, decisions: tuple[Decision, ...]) -> bytes:
    data = {
        "digest": plan.digest,
        "subject": plan.subject,
        "at": plan.at.isoformat(),
        "run_id": plan.run_id,
        "folders": [[one.path, one.objects, one.bytes, one.newest_ms, one.why] for one in plan.folders],
        "decisions": [
            [
                one.path,
                one.is_approved,
                one.by,
                one.at.isoformat(),
                None if one.until is None else one.until.isoformat(),
            ]
            for one in decisions
        ],
    }
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode("ascii"), 1)


def _decoded(key: str, value: bytes) -> _Known:
    try:
        data: dict[str, Any] = json.loads(zlib.decompress(value))
        plan = FolderPlan(
            digest=str(data["digest"]),
            subject=str(data["subject"]),
            at=_time(data["at"]),
            run_id=str(data["run_id"]),
            folders=tuple(
                PlannedFolder(str(p), int(n), int(b), int(t), str(why)) for p, n, b, t, why in data["folders"]
            ),
        )
        decisions = tuple(
            Decision(str(path), bool(is_approved), str(by), _time(at), None if until is None else _time(until))
            for path, is_approved, by, at, until in data["decisions"]
        )
        if _PLANS + _hex(plan.digest) != key:
            raise ValueError("it is another's")
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
        raise _damaged(key) from error
    return _fitting(plan, decisions)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _utc(moment: datetime, field: str) -> datetime:
    if moment.tzinfo is None:
        raise InputError(f"{moment.isoformat()} has no time zone", field=field, hint="write an offset, such as +00:00")
    return moment.astimezone(UTC)


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _damaged(key: str) -> StorageError:
    return StorageError(
        f"the value {key!r} of the state is damaged",
        field=FIELD,
        hint="nothing is removed by it; restore it from a backup of the state",
    )


def _keeps_changing(what: str) -> StorageError:
    return StorageError(f"the review of {what} keeps changing; gave up", field=FIELD)
