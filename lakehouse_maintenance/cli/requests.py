"""From the options of `plan` and `maintain` to a request, and from plans to files and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import InputError, StorageError
from lakehouse_maintenance.model.nearest import suggestion
from lakehouse_maintenance.model.plans import Plan

if TYPE_CHECKING:
    from datetime import timedelta

    from lakehouse_maintenance.planning.expiring import ExpiryRequest
    from lakehouse_maintenance.planning.orphans import OrphanRequest
    from lakehouse_maintenance.planning.tables import Request

ACTIONS = tuple(action.value for action in Action)
ENGINES = ("auto", "embedded", "spark")
STRATEGIES = ("binpack", "sort", "zorder")


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as they were typed."""

    actions: Sequence[str] = ()
    options: Sequence[str] = ()
    where: str | None = None
    strategy: str | None = None
    sort_order: str | None = None
    older_than: str | None = None
    retain_last: str | None = None
    branch: str | None = None
    engine: str | None = None
    allow_short_retention: bool = False

    def request(self) -> Request:
        """Raises InputError that names the option: for a value that is none, and for an option that nothing asked
        for would heed."""
        from lakehouse_maintenance.config.action_options import check_action_options, spread
        from lakehouse_maintenance.planning.tables import Request

        actions = tuple(dict.fromkeys(Action(one_of(name, ACTIONS, "--action")) for name in self.actions))
        self._refuse_ignored(actions)
        by_action = spread(pairs(self.options, "--option"), actions)
        for action, options in by_action.items():
            check_action_options(action, options, field="option")
        request = Request(
            actions=actions or None,
            options=by_action.pop(Action.REWRITE_DATA_FILES, {}),
            engine=None if self.engine is None else engine_name(self.engine),
            where=_not_blank(self.where, "--where"),
            strategy=None if self.strategy is None else one_of(self.strategy, STRATEGIES, "--strategy"),
            sort_order=_not_blank(self.sort_order, "--sort-order"),
            expiry=self._expiry(actions, by_action.get(Action.EXPIRE_SNAPSHOTS, {})),
            orphans=self._orphans(actions, by_action.get(Action.REMOVE_ORPHAN_FILES, {})),
            by_action=by_action,
            branch=_not_blank(self.branch, "--branch"),
        )
        request.check()
        return request

    def _expiry(self, actions: Collection[Action], options: Mapping[str, str]) -> ExpiryRequest:
        from lakehouse_maintenance.planning.expiring import ExpiryRequest

        if not _means(actions, Action.EXPIRE_SNAPSHOTS):
            return ExpiryRequest()
        return ExpiryRequest(
            older_than=self._age(),
            retain_last=None if self.retain_last is None else whole_number(self.retain_last, "--retain-last"),
            snapshot_ids=tuple(int(text) for text in options.get("snapshot-ids", "").replace(",", " ").split()),
            clean_expired_metadata=options.get("clean-expired-metadata", "false").strip().lower() == "true",
            allow_short_retention=self.allow_short_retention,
            max_concurrent_deletes=_count(options.get("max-concurrent-deletes")),
        )

    def _orphans(self, actions: Collection[Action], options: Mapping[str, str]) -> OrphanRequest:
        """An age, and the word for a short one, count for orphan files only where these were asked for by name: who
        means snapshots must not shorten the age at which files are taken for nobody's."""
        from lakehouse_maintenance.config.action_options import aliases
        from lakehouse_maintenance.model.locations import Location
        from lakehouse_maintenance.planning.orphans import OrphanRequest

        is_named = Action.REMOVE_ORPHAN_FILES in actions
        location = options.get("location")
        if location is not None:
            Location.parse(location)
        mode = options.get("prefix-mismatch-mode")
        return OrphanRequest(
            older_than=self._age() if is_named else None,
            location=location,
            prefix_mismatch_mode=None if mode is None else mode.strip().upper(),
            equal_schemes=aliases(options.get("equal-schemes", "")),
            equal_authorities=aliases(options.get("equal-authorities", "")),
            allow_short_retention=is_named and self.allow_short_retention,
            max_concurrent_deletes=_count(options.get("max-concurrent-deletes")),
        )

    def _age(self) -> timedelta | None:
        from lakehouse_maintenance.model.intervals import parse_duration

        return None if self.older_than is None else parse_duration(self.older_than, field="--older-than")

    def _refuse_ignored(self, actions: Collection[Action]) -> None:
        from lakehouse_maintenance.planning.tables import OF_BRANCHES

        expiry, orphans, rewrite = Action.EXPIRE_SNAPSHOTS, Action.REMOVE_ORPHAN_FILES, Action.REWRITE_DATA_FILES
        heeded: dict[str, tuple[object, tuple[Action, ...]]] = {
            "--older-than": (self.older_than, (expiry, orphans)),
            "--retain-last": (self.retain_last, (expiry,)),
            "--allow-short-retention": (self.allow_short_retention, (expiry, orphans)),
            "--where": (self.where, (rewrite,)),
            "--strategy": (self.strategy, (rewrite,)),
            "--sort-order": (self.sort_order, (rewrite,)),
            "--branch": (self.branch, OF_BRANCHES),
        }
        for option, (value, by) in heeded.items():
            if value and not any(_means(actions, action) for action in by):
                names = " and ".join(by)
                raise InputError(
                    f"{option} is for {names}, which is not among the actions asked for",
                    field=option,
                    hint=f"add --action {by[0]}, or leave {option} out",
                )


def _means(actions: Collection[Action], action: Action) -> bool:
    """None named: whatever is due."""
    return not actions or action in actions


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)


def whole_number(text: str, option: str) -> int:
    """Raises InputError for a text that is no whole number from 0 on."""
    if not text.strip().isdigit():
        raise InputError(f"{option} cannot be {text!r}", field=option, hint="write a whole number")
    return int(text)


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` texts as a mapping. Raises InputError for a text without `=` and for a name given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            # The text stays out of the message: what was meant as a property's value may be a secret.
            raise InputError(f"{option} needs name=value", field=option, hint=f"write {option} NAME=VALUE")
        if name in found:
            raise InputError(f"{option} {name} is given twice", field=f"{option} {name}", hint="keep one of them")
        found[name] = value
    return found


def engine_name(text: str) -> str:
    """Raises InputError for a name that is no engine's."""
    return one_of(text, ENGINES, "--engine")


def one_of(text: str, known: Collection[str], option: str) -> str:
    """Raises InputError for a text that is none of the known ones."""
    if text not in known:
        raise InputError(f"{option} cannot be {text!r}", field=option, hint=suggestion(text, known))
    return text


def _not_blank(text: str | None, option: str) -> str | None:
    if text is not None and not text.strip():
        raise InputError(f"{option} is empty", field=option, hint="write a value, or leave it out")
    return text


def read_plan(source: str) -> Plan:
    """The plan in a file, `-` for standard input. Raises InputError where it is missing, no plan, or was changed."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text("utf-8")
        data = json.loads(text)
    except OSError as error:
        raise InputError(
            f"the plan {source} cannot be read: {error.strerror or error}",
            field="plan",
            hint="write one with: lakehouse-maintenance plan --out FILE",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source} is not a plan: it is no JSON", field="plan", hint="write one with: plan --out FILE"
        ) from error
    return Plan.from_json(data)


def check_out(path: Path | None) -> None:
    """Raises InputError where a plan may not be written: over anything but an earlier plan or an empty file."""
    if path is None or not path.exists():
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(f"there is no folder {path.absolute().parent}", field="--out", hint="create it first")
        return
    if path.is_file() and path.stat().st_size:
        try:
            read_plan(str(path))
        except InputError as error:
            raise InputError(
                f"{path} exists and is no plan: it is not overwritten", field="--out", hint="name another file"
            ) from error
    elif path.is_dir():
        raise InputError(f"{path} is a folder", field="--out", hint="name a file")


def write_plan(plan: Plan, path: Path) -> None:
    """Not by renaming over the old file: a plan that a crash cut short does not fit its digest, so `apply` refuses it.

    Raises StorageError.
    """
    try:
        path.write_text(json.dumps(plan.as_json(), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise StorageError(f"the plan cannot be written to {path}: {error.strerror or error}", field="--out") from error
