"""The options of every action on an Iceberg table, by Iceberg's names (Iceberg: Spark procedures).

Where the procedure takes an argument and no option, its name is the argument's, with `-` or `_`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from lakehouse_maintenance.config.options import REWRITE_OPTIONS, Option, check_rewrite_options
from lakehouse_maintenance.model.actions import Action
from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.nearest import suggestion

_CONCURRENT_DELETES = Option("count", "Deleting calls in flight; on S3 one call deletes up to 1,000 files. Unset: 16.")

EXPIRY_OPTIONS: dict[str, Option] = {
    "snapshot-ids": Option("ids", "These snapshots and no others, with commas between them."),
    "clean-expired-metadata": Option(
        "flag", "Schemas and partition specs that no snapshot needs any more go as well. Unset: false."
    ),
    "max-concurrent-deletes": _CONCURRENT_DELETES,
    "stream-results": Option("flag", "Accepted, and changes nothing: files are always streamed, a batch at a time."),
}

MANIFEST_OPTIONS: dict[str, Option] = {
    "spec-id": Option("number", "Only manifests of this partition spec. Unset: the table's current one."),
    "use-caching": Option("flag", "Of Spark alone: whether it keeps manifest entries in memory. Unset: false."),
}

PRUNE_OPTIONS: dict[str, Option] = {
    "previous-versions-max": Option(
        "count", "Previous metadata files that stay. Unset: the table's `write.metadata.previous-versions-max`."
    ),
    "set-properties": Option("flag", "Set the table's properties so that writers prune from now on. Unset: false."),
}

ORPHAN_OPTIONS: dict[str, Option] = {
    "location": Option("text", "Only files in this folder of the table."),
    "max-concurrent-deletes": _CONCURRENT_DELETES,
    "prefix-mismatch-mode": Option(
        "mode", "What becomes of a file that equals a reference in all but scheme or bucket. Unset: ERROR."
    ),
    "equal-schemes": Option("pairs", "Schemes that mean the same."),
    "equal-authorities": Option("pairs", "Buckets or hosts that mean the same."),
}

_OF_POSITION_DELETES = (
    "target-file-size-bytes",
    "min-file-size-bytes",
    "max-file-size-bytes",
    "min-input-files",
    "max-file-group-size-bytes",
    "rewrite-all",
    "max-concurrent-file-group-rewrites",
    "partial-progress.enabled",
    "partial-progress.max-commits",
    "rewrite-job-order",
)

ACTION_OPTIONS: dict[Action, dict[str, Option]] = {
    Action.REWRITE_DATA_FILES: REWRITE_OPTIONS,
    Action.REWRITE_POSITION_DELETE_FILES: {name: REWRITE_OPTIONS[name] for name in _OF_POSITION_DELETES},
    Action.REWRITE_MANIFESTS: MANIFEST_OPTIONS,
    Action.EXPIRE_SNAPSHOTS: EXPIRY_OPTIONS,
    Action.SET_PROPERTIES: {},
    Action.PRUNE_METADATA: PRUNE_OPTIONS,
    Action.REMOVE_ORPHAN_FILES: ORPHAN_OPTIONS,
}
"""Action → its options by name, in the safe order."""

MODES = ("ERROR", "IGNORE", "DELETE")

_FORMS = {
    "ids": "snapshot ids with commas between them",
    "count": "a whole number from 1 on",
    "number": "a whole number from 0 on",
    "flag": "true or false",
    "text": "a text",
    "mode": " | ".join(MODES),
    "pairs": "A,B=NAME, several with ; between them",
}


def spelled(name: str) -> str:
    """Iceberg's procedures write arguments with `_`, its options have `-`: both are taken."""
    return name.strip().replace("_", "-")


def spread(options: Mapping[str, str], asked: Collection[Action]) -> dict[Action, dict[str, str]]:
    """Each option given to every asked action that knows it, by our spelling. `asked`: empty for all.

    Raises InputError for one that none of them knows, and for one that is given in both spellings.
    """
    actions = [action for action in ACTION_OPTIONS if not asked or action in asked]
    found: dict[Action, dict[str, str]] = {}
    for given, value in options.items():
        name = spelled(given)
        knowing = [action for action in actions if name in ACTION_OPTIONS[action]]
        if not knowing:
            raise _unknown(given, name, actions)
        for action in knowing:
            if name in found.setdefault(action, {}):
                raise InputError(f"--option {name} is given twice", field=f"--option {name}", hint="keep one of them")
            found[action][name] = value
    return found


def _unknown(given: str, name: str, asked: Iterable[Action]) -> InputError:
    others = [action for action, known in ACTION_OPTIONS.items() if name in known]
    if others:
        return InputError(
            f"--option {given} is for {' and '.join(others)}, which is not among the actions asked for",
            field="--option",
            hint=f"add --action {others[0]}, or leave --option {given} out",
        )
    known = dict.fromkeys(option for action in asked for option in ACTION_OPTIONS[action])
    return InputError(
        f"no action asked for has an option {given!r}", field=f"option.{given}", hint=suggestion(name, known)
    )


def check_action_options(action: Action, options: Mapping[str, str], *, field: str) -> None:
    """Raises InputError for the first option that is unknown or holds what it cannot; `field` is the options' key."""
    known = ACTION_OPTIONS.get(action, {})
    if known is REWRITE_OPTIONS or action is Action.REWRITE_POSITION_DELETE_FILES:
        check_rewrite_options({name: value for name, value in options.items() if name in known}, field=field)
    for name, value in options.items():
        where = f"{field}.{name}"
        if name not in known:
            raise InputError(f"unknown option {name!r} of {action}", field=where, hint=suggestion(name, known))
        kind = known[name].kind
        if kind in _FORMS and not _holds(kind, value):
            raise InputError(
                f"option {name!r} of {action} cannot be {value!r}", field=where, hint=f"write {_FORMS[kind]}"
            )


def aliases(text: str) -> dict[str, str]:
    """`a,b=name; c=other` as aliases → the name that counts."""
    parts = (part.partition("=") for part in text.split(";") if part.strip())
    return {alias.strip(): name.strip() for alias, _, name in parts}


def _holds(kind: str, value: str) -> bool:
    text = value.strip()
    if kind == "flag":
        return text.lower() in ("true", "false")
    if kind == "ids":
        return re.fullmatch(r"[0-9]{1,19}([,\s]+[0-9]{1,19})*,?", text) is not None
    if kind == "mode":
        return text.upper() in MODES
    if kind == "pairs":
        return bool(text) and all(
            re.fullmatch(r"[^=]+=[^=,]+", part.strip()) for part in text.split(";") if part.strip()
        )
    if kind == "text":
        return bool(text)
    return re.fullmatch(r"[0-9]{1,18}", text) is not None and (kind == "number" or int(text) > 0)
