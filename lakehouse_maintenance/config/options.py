"""The options of `rewrite_data_files` by Iceberg's names, and what each may hold (Iceberg: Spark procedures)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.intervals import SIZE_FORMS, parse_size
from lakehouse_maintenance.model.nearest import suggestion

JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")


@dataclass(frozen=True, slots=True)
class Option:
    """`kind`: size, count, number (whole, 0 allowed), ratio (0 to 1), flag or order."""

    kind: str
    meaning: str


REWRITE_OPTIONS: dict[str, Option] = {
    "target-file-size-bytes": Option(
        "size", "Size to aim at. Unset: the table's `write.target-file-size-bytes`, then Iceberg's 512 MB."
    ),
    "min-file-size-bytes": Option("size", "Smaller files are rewritten. Unset: 75 % of the target."),
    "max-file-size-bytes": Option("size", "Larger files are rewritten, and split. Unset: 180 % of the target."),
    "min-input-files": Option("count", "Files that make a group worth rewriting by their number alone. Unset: 5."),
    "max-file-group-size-bytes": Option("size", "The most that one group reads. Unset: 100 GB."),
    "rewrite-all": Option("flag", "Rewrite every file, whatever its size. Unset: false."),
    "delete-file-threshold": Option("number", "Deletes on a file that make it worth rewriting. Unset: never."),
    "delete-ratio-threshold": Option("ratio", "Share of deleted rows that makes a file worth rewriting. Unset: 0.3."),
    "max-concurrent-file-group-rewrites": Option(
        "count", "Groups rewritten at once, as far as memory and cores let them. Unset: 5."
    ),
    "partial-progress.enabled": Option("flag", "Commit groups as they are done, in several snapshots. Unset: false."),
    "partial-progress.max-commits": Option("count", "The most commits with partial progress. Unset: 10."),
    "partial-progress.max-failed-commits": Option(
        "number", "Commits that may fail before the action does. Unset: as many as partial-progress.max-commits."
    ),
    "rewrite-job-order": Option("order", "Which groups come first. Unset: none, which is newest files first."),
    "use-starting-sequence-number": Option(
        "flag", "Give new files the sequence number at the start, so that later equality deletes hold. Unset: true."
    ),
    "output-spec-id": Option(
        "number", "Partition spec that files of other specs are brought under. Unset: each keeps its own."
    ),
    "verify-rows": Option(
        "flag", "Ours: read and compare all rewritten rows after the commit. Unset: the policy's `verification`."
    ),
    "remove-dangling-deletes": Option(
        "flag", "Drop delete files that nothing needs any more. Unset: true here, where Iceberg's procedure says false."
    ),
}

_FORMS = {
    "size": SIZE_FORMS,
    "count": "a whole number from 1 on",
    "number": "a whole number from 0 on",
    "ratio": "a number from 0 to 1",
    "flag": "true or false",
    "order": " | ".join(JOB_ORDERS),
}


def check_rewrite_options(options: Mapping[str, str], *, field: str) -> None:
    """Raises InputError for the first option that is unknown or holds what it cannot; `field` is the options' key."""
    for name, value in options.items():
        where = f"{field}.{name}"
        option = REWRITE_OPTIONS.get(name)
        if option is None:
            raise InputError(
                f"unknown option {name!r} of rewrite_data_files", field=where, hint=suggestion(name, REWRITE_OPTIONS)
            )
        if not _holds(option.kind, value):
            raise InputError(
                f"option {name!r} of rewrite_data_files cannot be {value!r}",
                field=where,
                hint=f"write {_FORMS[option.kind]}",
            )


def _holds(kind: str, value: str) -> bool:
    if kind == "size":
        try:
            return parse_size(value) > 0
        except InputError:
            return False
    if kind == "flag":
        return value.lower() in ("true", "false")
    if kind == "order":
        return value.lower() in JOB_ORDERS
    if kind == "ratio":
        return re.fullmatch(r"[0-9]*\.?[0-9]+", value) is not None and 0 <= float(value) <= 1
    return re.fullmatch(r"[0-9]{1,18}", value) is not None and (kind == "number" or int(value) > 0)
